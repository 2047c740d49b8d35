//! What the engines of pages allow a litmus program: release consistency (`hlrc`) and scope consistency (`scope`).
//!
//! Both order accesses by synchronisation alone. A load may return any store to its variable but
//!
//! - one that it comes before, by program order and synchronisation, and
//! - one behind which another store to the variable comes that the load must see.
//!
//! The models differ in what must be seen. Under release consistency (Gharachorloo et al. 1990; Keleher et al. 1992)
//! that is whatever comes before the load. Under scope consistency (Iftode, Singh and Li 1996) a lock tells only of
//! what was stored while it was held; a barrier tells of everything, and a flag of everything its raiser has stored.
//!
//! Plain accesses order nothing, and a release waits for nobody: only the orders of what may have to wait are tried.

use super::Access::{Barrier, Lock, R, Set, Unlock, W, Wait};
use super::{Litmus, Reads};
use std::collections::{BTreeMap, BTreeSet};

type Clock = Vec<usize>;

/// A memory model of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Model {
    /// That of `hlrc`.
    Release,
    /// That of `scope`.
    Scope,
}

/// A store in one order of synchronisation.
#[derive(Clone, Debug)]
struct Store {
    variable: usize,
    value: u64,
    thread: usize,
    /// Of its thread's moments, the one in which it was made.
    moment: usize,
    /// What of all threads comes before it.
    clock: Clock,
    /// The locks that its thread held.
    held: BTreeSet<usize>,
    /// The stores that it must see.
    sees: BTreeSet<usize>,
}

/// A load in one order of synchronisation.
#[derive(Clone, Debug)]
struct Load {
    variable: usize,
    thread: usize,
    moment: usize,
    sees: BTreeSet<usize>,
    /// Stores that were made before it in its own thread: all others of that thread come behind it.
    own: usize,
}

/// What a thread has been told under scope consistency: of each thread, up to which of its moments.
#[derive(Clone, Debug, Default)]
struct Told {
    by_locks: BTreeMap<usize, Clock>,
    by_raisers: Clock,
    by_barriers: Clock,
}

/// One order of synchronisation, as far as it has been followed.
#[derive(Clone, Debug)]
struct Walk {
    at: Vec<usize>,
    clocks: Vec<Clock>,
    told: Vec<Told>,
    held: Vec<BTreeSet<usize>>,
    locks: BTreeMap<usize, Clock>,
    flags: BTreeMap<usize, Vec<(usize, Clock)>>,
    stores: Vec<Store>,
    loads: Vec<Vec<Load>>,
}

fn join(into: &mut Clock, other: &Clock) {
    into.iter_mut().zip(other).for_each(|(a, b)| *a = (*a).max(*b));
}

/// The outcomes that a model allows.
pub fn allowed(litmus: &Litmus, model: Model) -> BTreeSet<Reads> {
    let threads = litmus.threads.len();
    let told = Told { by_raisers: vec![0; threads], by_barriers: vec![0; threads], ..Told::default() };
    let walk = Walk {
        at: vec![0; threads],
        clocks: (0..threads).map(|t| (0..threads).map(|u| usize::from(t == u)).collect()).collect(),
        told: vec![told; threads],
        held: vec![BTreeSet::new(); threads],
        locks: BTreeMap::new(),
        flags: BTreeMap::new(),
        stores: Vec::new(),
        loads: vec![Vec::new(); threads],
    };
    let mut outcomes = BTreeSet::new();
    follow(litmus, model, walk, &mut outcomes);
    outcomes
}

fn follow(litmus: &Litmus, model: Model, mut walk: Walk, outcomes: &mut BTreeSet<Reads>) {
    let threads = litmus.threads.len();
    for t in 0..threads {
        while let Some(step) = litmus.threads[t].get(walk.at[t]).copied() {
            match step {
                W(variable, value) => walk.stores(model, t, variable, value),
                R(variable) => walk.loads(model, t, variable),
                Unlock(lock) => {
                    walk.held[t].remove(&lock);
                    walk.locks.insert(lock, walk.clocks[t].clone());
                    walk.clocks[t][t] += 1;
                }
                Set(flag) => {
                    let clock = walk.clocks[t].clone();
                    walk.flags.entry(flag).or_default().push((t, clock));
                    walk.clocks[t][t] += 1;
                }
                Lock(_) | Wait(_) | Barrier => break,
            }
            walk.at[t] += 1;
        }
    }
    let next = |walk: &Walk, t: usize| litmus.threads[t].get(walk.at[t]).copied();
    if (0..threads).all(|t| next(&walk, t).is_none()) {
        if litmus.finally {
            walk.barrier();
            (0..threads).for_each(|t| (0..litmus.variables).for_each(|variable| walk.loads(model, t, variable)));
        }
        return walk.outcomes(outcomes);
    }
    if (0..threads).all(|t| next(&walk, t) == Some(Barrier)) {
        walk.at.iter_mut().for_each(|at| *at += 1);
        walk.barrier();
        return follow(litmus, model, walk, outcomes);
    }
    for t in 0..threads {
        let mut after = walk.clone();
        after.at[t] += 1;
        let may = match next(&walk, t) {
            Some(Lock(lock)) => after.acquires(t, lock),
            Some(Wait(flag)) => after.awaits(t, flag),
            _ => false,
        };
        if may {
            follow(litmus, model, after, outcomes);
        }
    }
}

impl Walk {
    fn acquires(&mut self, t: usize, lock: usize) -> bool {
        if self.held.iter().any(|held| held.contains(&lock)) {
            return false;
        }
        self.held[t].insert(lock);
        if let Some(clock) = self.locks.get(&lock) {
            join(&mut self.clocks[t], clock);
            self.told[t].by_locks.insert(lock, clock.clone());
        }
        true
    }

    fn awaits(&mut self, t: usize, flag: usize) -> bool {
        // Whoever raised it first is the only one of whom a waiter surely hears.
        let Some((raiser, clock)) = self.flags.get(&flag).and_then(|raised| raised.first()).cloned() else {
            return false;
        };
        join(&mut self.clocks[t], &clock);
        let told = &mut self.told[t].by_raisers[raiser];
        *told = (*told).max(clock[raiser]);
        true
    }

    fn barrier(&mut self) {
        let mut all = vec![0; self.clocks.len()];
        self.clocks.iter().for_each(|clock| join(&mut all, clock));
        for (t, clock) in self.clocks.iter_mut().enumerate() {
            clock.clone_from(&all);
            clock[t] += 1;
            self.told[t].by_barriers.clone_from(&all);
        }
    }

    /// The stores to a variable that what thread `t` does now must see.
    fn seen(&self, model: Model, t: usize, variable: usize) -> BTreeSet<usize> {
        let is_seen = |store: &Store| {
            let (u, moment, told) = (store.thread, store.moment, &self.told[t]);
            let by_lock = |lock: &usize| told.by_locks.get(lock).is_some_and(|clock| clock[u] >= moment);
            match model {
                _ if u == t => true,
                Model::Release => self.clocks[t][u] >= moment,
                Model::Scope => {
                    told.by_barriers[u] >= moment || told.by_raisers[u] >= moment || store.held.iter().any(by_lock)
                }
            }
        };
        let all = self.stores.iter().enumerate();
        all.filter(|(_, store)| store.variable == variable && is_seen(store)).map(|(index, _)| index).collect()
    }

    fn stores(&mut self, model: Model, t: usize, variable: usize, value: u64) {
        let sees = self.seen(model, t, variable);
        let (clock, held) = (self.clocks[t].clone(), self.held[t].clone());
        self.stores.push(Store { variable, value, thread: t, moment: clock[t], clock, held, sees });
    }

    fn loads(&mut self, model: Model, t: usize, variable: usize) {
        let sees = self.seen(model, t, variable);
        let own = self.stores.iter().filter(|store| store.thread == t).count();
        self.loads[t].push(Load { variable, thread: t, moment: self.clocks[t][t], sees, own });
    }

    /// What a load may return.
    fn values(&self, load: &Load) -> BTreeSet<u64> {
        let mut own = 0;
        let mut values = BTreeSet::new();
        for (index, store) in self.stores.iter().enumerate() {
            let is_later = match store.thread == load.thread {
                true => {
                    own += 1;
                    own > load.own
                }
                false => store.clock[load.thread] >= load.moment,
            };
            let is_overwritten = load.sees.iter().any(|seen| self.stores[*seen].sees.contains(&index));
            if store.variable == load.variable && !is_later && !is_overwritten {
                values.insert(store.value);
            }
        }
        if load.sees.is_empty() {
            values.insert(0);
        }
        values
    }

    /// Every load may return any of its values, whatever the others return.
    fn outcomes(&self, outcomes: &mut BTreeSet<Reads>) {
        let choices: Vec<BTreeSet<u64>> = self.loads.iter().flatten().map(|load| self.values(load)).collect();
        let mut all = vec![Reads::new()];
        for values in &choices {
            let longer = |reads: &Reads, value: u64| reads.iter().copied().chain([value]).collect();
            all = all.iter().flat_map(|reads| values.iter().map(move |value| longer(reads, *value))).collect();
        }
        outcomes.extend(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(name: &str, model: Model, outcome: &[u64]) -> bool {
        allowed(&Litmus::named(name).unwrap(), model).contains(outcome)
    }

    #[test]
    fn without_synchronisation_both_allow_nearly_everything() {
        for model in [Model::Release, Model::Scope] {
            for (name, outcome) in [("SB", &[0, 0][..]), ("MP", &[1, 0]), ("IRIW", &[1, 0, 1, 0]), ("CoRR", &[1, 0])] {
                assert!(allows(name, model, outcome), "{name} under {model:?}");
            }
            assert!(!allows("SB", model, &[2, 0]), "what nobody stores nobody loads");
        }
    }

    #[test]
    fn where_synchronisation_orders_everything_release_consistency_is_sequential() {
        for name in ["SB+lock", "SB+barrier", "MP+lock", "MP+publish", "MP+flag", "LB+lock", "IRIW+locks", "WRC+locks"]
        {
            let litmus = Litmus::named(name).unwrap();
            let weak = allowed(&litmus, Model::Release);
            let racy = ["MP+publish", "WRC+locks"].contains(&name);
            assert!(litmus.allowed().is_subset(&weak), "{name}");
            // In these a load that found no sign races, and may return anything.
            assert!(racy || weak == litmus.allowed(), "{name}: {weak:?}");
        }
        assert!(!allows("MP+publish", Model::Release, &[1, 0]) && !allows("WRC+locks", Model::Release, &[1, 1, 0]));
    }

    #[test]
    fn scope_consistency_tells_only_of_what_was_stored_under_the_lock() {
        for name in ["SB+lock", "SB+barrier", "MP+lock", "MP+flag", "LB+lock", "IRIW+locks"] {
            let litmus = Litmus::named(name).unwrap();
            assert_eq!(allowed(&litmus, Model::Scope), litmus.allowed(), "{name}");
        }
        assert!(allows("MP+publish", Model::Scope, &[1, 0]) && allows("WRC+locks", Model::Scope, &[1, 1, 0]));
    }

    #[test]
    fn a_thread_sees_its_own_stores() {
        let litmus = Litmus::parse("own", "x = 1; x; x = 2; x | x").unwrap();
        let outcomes = allowed(&litmus, Model::Scope);
        assert!(outcomes.iter().all(|o| o[0] == 1 && o[1] == 2) && outcomes.len() == 3, "{outcomes:?}");
    }
}
