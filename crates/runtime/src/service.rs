//! The service thread, and how application threads wait.
//!
//! The service thread sleeps in the node's service socket and answers what comes; it never waits for an answer itself.
//! Now and then it looks after what nobody else looks after: timers of its own sender, sockets of threads that compute
//! while something they sent is under way, the watch over the other nodes.

use crate::bind::threads_have_cores;
use crate::config::{Config, WaitPolicy};
use crate::error::{Error, Result};
use crate::node::{Node, Waiting};
use crate::report;
use comem_memory::pages::fault::uncancelled;
use comem_net::Wait;
use comem_protocol::ids::{LockId, Slot};
use comem_protocol::outbox::Outbox;
use comem_protocol::time::{Span, Time};
use comem_protocol::tuning::WaitTuning;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

/// Without any progress for so long, a node says where its threads wait.
const HANG: Span = Span::from_ms(10_000);

/// A wait that began behind the job's end, for what nobody gives any more, lasts so long before a word is said.
const UNANSWERED_FOR: Span = Span::from_ms(2_000);

/// Set by SIGUSR1: somebody wants to know where the threads wait.
static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_usr1(_signal: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

/// Whether somebody has asked since this was called last.
pub(crate) fn was_asked() -> bool {
    ASKED.swap(false, Ordering::Relaxed)
}

/// Lets SIGUSR1 ask for a report, unless the program uses the signal itself.
pub(crate) fn listen_for_questions() {
    // SAFETY: the structures are plain data, and the handler only stores to an atomic.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGUSR1, std::ptr::null(), &mut before) != 0 || before.sa_sigaction != libc::SIG_DFL {
            return;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_usr1 as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
}

/// Gives SIGUSR1 back to whoever listens next, if it is listened to here.
pub(crate) fn listen_no_more() {
    // SAFETY: the structures are plain data.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let ours = on_usr1 as extern "C" fn(libc::c_int) as libc::sighandler_t;
        if libc::sigaction(libc::SIGUSR1, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == ours {
            action = std::mem::zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        }
    }
}

/// The service thread of this process's node is at work.
static RUNS: AtomicBool = AtomicBool::new(false);
/// After its node has left, it has so long to end.
const ENDS_IN: Duration = Duration::from_secs(2);

/// Whether the service thread of a node that has left the job has ended, for which it gets some time.
pub(crate) fn has_ended() -> bool {
    let until = std::time::Instant::now() + ENDS_IN;
    while RUNS.load(Ordering::Acquire) && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    !RUNS.load(Ordering::Acquire)
}

/// Starts the service thread.
pub(crate) fn start(node: &Arc<Node>) -> Result<()> {
    let node = node.clone();
    RUNS.store(true, Ordering::Release);
    let spawned = comem_net::threads::start("comem-service", move || {
        // A blocked thread of high priority gets its core soon, also beside computing threads.
        // SAFETY: the call changes the calling thread's priority and touches no memory.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -10) };
        let name = node.name_of(node.me());
        let at_home = node.cores.keep_service_at_home();
        let mut service = Service { last_tick: Time(0), last_progress: (0, node.now()), told: None, at_home, node };
        // Without this thread every other node would wait for this one for ever.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| service.run())).is_err() {
            crate::error::say(format_args!(
                "comem: {name}: the thread that answers other nodes has failed, as told above; the node ends; please \
                 report this"
            ));
            std::process::abort();
        }
        RUNS.store(false, Ordering::Release);
    });
    if spawned.is_err() {
        RUNS.store(false, Ordering::Release);
    }
    spawned.map(drop).map_err(Error::system("cannot start the service thread"))
}

struct Service {
    node: Arc<Node>,
    last_tick: Time,
    /// The progress count when it last changed, and when that was.
    last_progress: (u64, Time),
    /// When it was told that nothing happens, of all waits that had begun.
    told: Option<Time>,
    /// No other node's threads come back to where it runs.
    at_home: bool,
}

impl Service {
    fn run(&mut self) {
        let waits = self.node.config.tuning.wait;
        let (tick, early) = (Span::from_ms(waits.tick_ms), Span::from_ms(waits.tick_early_ms));
        while !self.node.life.is_ending() {
            self.node.end_deferrals(Slot::SERVICE, None);
            self.node.look_before_repeating(Slot::SERVICE, waits.messages_at_a_look);
            let next = self.node.run_timers(Slot::SERVICE);
            let now = self.node.now();
            // To wait for less than 8 ms takes one more system call (`comem_net::Endpoint`), after which whoever asks
            // meanwhile waits longer.
            if (now - self.last_tick).0 >= tick.0 - early.0 {
                self.last_tick = now;
                self.tick(now);
            }
            let mut until = next.unwrap_or(now + tick).min(self.last_tick + tick);
            let looks = [self.node.release_holds(), self.node.look_at_remote()];
            until = looks.into_iter().flatten().fold(until, Time::min);
            let until = self.node.follow_schedule(until);
            // The service thread does not spin by itself: a thread that waits does so in its stead
            // ([`Node::serve_meanwhile`]). Both would keep two cores busy for one node that has nothing to do, and one
            // of them may be the core on which another node computes.
            let wait = self.node.slots[Slot::SERVICE].spins.wait(&self.node.config, false);
            let timeout = until.map_or(Duration::ZERO, |until| Duration::from_nanos((until - now).0.max(1_000)));
            if self.node.receive(Slot::SERVICE, Slot::SERVICE, Some(timeout), wait) > 0 {
                self.poll_idle();
            }
        }
    }

    /// The service thread was woken in a node whose threads all sleep: for a while it looks whether there is more,
    /// since who asks for one token mostly asks for others soon, and to wake it each time costs both sides more than
    /// that. Not while a thread of the node spins (it looks by itself), nor once one has something to do: it needs the
    /// core. Not `at_home`, where it may keep another node's thread from its core, it yields to that on every look if a
    /// look is a system call anyway.
    fn poll_idle(&self) {
        let node = &self.node;
        let idle = || node.slots.all_sleep();
        if node.config.wait != WaitPolicy::Auto || !may_spin(&node.config) || !idle() {
            return;
        }
        let service = node.wire.endpoint(Slot::SERVICE);
        let watched = service.watch(true);
        let yields = !watched && !self.at_home;
        let start = node.now();
        let waits = &node.config.tuning.wait;
        // It has other things to look after.
        let (poll, last) = (Span::from_us(waits.poll_us), start + Span::from_us(waits.poll_max_us));
        let (mut now, mut until) = (start, start + poll);
        while now < until.min(last) && idle() {
            node.release_holds();
            node.look_at_remote();
            if !watched || service.glance() {
                if node.receive(Slot::SERVICE, Slot::SERVICE, Some(Duration::ZERO), Wait::Block) > 0 {
                    until = node.now() + poll;
                }
            } else if node.wire.threads_glance() {
                break;
            }
            if yields {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            now = node.now();
        }
        if watched {
            service.watch(false);
        }
    }

    fn tick(&mut self, now: Time) {
        let start = self.node.now();
        if self.node.attend_idle_sockets(Slot::SERVICE) {
            // What a thread has posted goes on as it computes: what has come lets more be sent. The next look is soon,
            // and not each time that somebody asks.
            let waits = self.node.config.tuning.wait;
            let (tick, early) = (Span::from_ms(waits.tick_ms), Span::from_ms(waits.tick_early_ms));
            self.last_tick = Time((now.0 + 2 * early.0).saturating_sub(tick.0));
        }
        self.node.slots.of_threads().for_each(|slot| self.node.send_combined_of(slot, Slot::SERVICE));
        // The service thread may have been the last to hear of what the node's arrival waited for, with all threads
        // asleep for long.
        if self.node.nodes() > 1 {
            self.node.repeat_arrival(Slot::SERVICE);
        }
        self.node.watch(now);
        self.look_for_hangs(now);
        self.node.counters(Slot::SERVICE).service_ns.add((self.node.now() - start).0);
    }

    fn look_for_hangs(&mut self, now: Time) {
        if was_asked() {
            report::print_waits(&self.node, "asked where it waits");
        }
        let progress = self.node.life.progress();
        if progress != self.last_progress.0 {
            self.last_progress = (progress, now);
            self.told = None;
        }
        // Whoever waits is awake now and then, and seems not to wait: that says nothing.
        let untold = self.told.unwrap_or_default();
        if self.node.slots.waits_in_work().any(|since| since >= untold && now - since.max(self.last_progress.1) >= HANG)
        {
            self.told = Some(now);
            report::print_hang(&self.node);
        }
    }
}

/// Whether a thread that waits may spin: only while every computing thread on the host can have a core of its own.
pub(crate) fn may_spin(config: &Config) -> bool {
    match config.wait {
        WaitPolicy::Spin => true,
        WaitPolicy::Block => false,
        WaitPolicy::Auto => threads_have_cores(config),
    }
}

/// Whether spinning has been worth it lately: each spin that ends with a datagram earns two more, each vain one costs
/// one; when nothing is left, every sixteenth wait tries again. On a host where others need the cores, spins are vain.
#[derive(Debug)]
pub(crate) struct SpinBudget(AtomicI32);

impl Default for SpinBudget {
    fn default() -> SpinBudget {
        SpinBudget(AtomicI32::new(WaitTuning::DEFAULT.spin_budget_max.into()))
    }
}

impl SpinBudget {
    /// How a thread waits now; `free`: where the host's cores allow it and spins have been worth it, it spins.
    pub(crate) fn wait(&self, config: &Config, free: bool) -> Wait {
        let spin = match config.wait {
            WaitPolicy::Spin => true,
            WaitPolicy::Block => false,
            WaitPolicy::Auto => {
                let budgeted = || !config.tuning.wait.spin_budget || self.allows();
                free && may_spin(config) && budgeted()
            }
        };
        if spin { Wait::Spin(config.spin()) } else { Wait::Block }
    }

    /// How long a thread looks at a word that nodes share before it sleeps: as long as others need a core, not at all.
    pub(crate) fn span(&self, config: &Config) -> Span {
        match self.wait(config, true) {
            Wait::Spin(span) => span,
            Wait::Block => Span(0),
        }
    }

    fn allows(&self) -> bool {
        let left = self.0.load(Ordering::Relaxed);
        if left <= 0 {
            self.0.store(if left <= -15 { 1 } else { left - 1 }, Ordering::Relaxed);
        }
        left > 0
    }

    /// A spin has ended.
    pub(crate) fn account(&self, config: &Config, brought_something: bool) {
        let most = config.tuning.wait.spin_budget_max;
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(if brought_something { (left.max(0) + 2).min(most.into()) } else { left - 1 }, Ordering::Relaxed);
    }
}

impl Config {
    /// How long a wait spins before it blocks, on a host with a core to spare: longer than it takes to wake a thread on
    /// another core (some 50 us on virtual machines), or a node that has fallen asleep would be asleep again before
    /// whoever woke it can ask for more; and longer than a token stays where it is. A core that spins longer is missed
    /// by the service threads of other nodes (decision 0020).
    pub(crate) fn spin(&self) -> Span {
        Span::from_us(self.tuning.wait.spin_us)
    }

    /// How long a node whose threads look after its service socket now and then is left to itself.
    pub(crate) fn unattended(&self) -> Span {
        Span::from_us(self.tuning.wait.unattended_us)
    }
}

impl Node {
    /// Before a thread sleeps for what others do: if all of this node's threads wait, it keeps nothing from other
    /// nodes.
    pub(crate) fn lets_go_at_rest(&self, slot: Slot) {
        if self.slots.all_wait() {
            self.carry_out_deferred(slot, self.schedule.threads_wait(self.now()));
        }
    }

    /// Looks after the sockets of threads that are not in them although something they sent is under way.
    /// What comes there lets more be sent; true while there is more to look after soon.
    pub(crate) fn attend_idle_sockets(&self, as_slot: Slot) -> bool {
        let mut goes_on = false;
        for slot in self.slots.of_threads() {
            if slot == as_slot || self.slots[slot].waiter.in_socket() || !self.wire.is_sending(slot) {
                continue;
            }
            let came = self.receive(slot, as_slot, Some(Duration::ZERO), Wait::Block) > 0;
            self.run_timers(slot);
            goes_on |= came && self.wire.is_sending(slot);
        }
        goes_on
    }

    /// Sleeps until something has happened that may end this thread's wait, which began at `since`.
    pub(crate) fn wait_some(&self, slot: Slot, why: Waiting, since: Time) -> Result<()> {
        self.slots.asleep(slot, why, since, || {
            self.life.goes_on().and_then(|()| self.sleep(slot, why, since)).and_then(|()| self.life.goes_on())
        })
    }

    /// Behind the job's end some waits still end, for what other threads of the node are about; others never will. Of
    /// those the thread that has ended the job, which nothing else would end, hears by an error, and of any other
    /// thread's a line tells.
    pub(crate) fn look_whether_unanswered(&self, slot: Slot, why: Waiting, since: Time) -> Result<()> {
        let Some((finisher, at)) = self.life.ended() else { return Ok(()) };
        if since < at || (self.now() - since).0 < UNANSWERED_FOR.0 || self.nodes() == 1 {
            return Ok(());
        }
        let what = why.in_words(self);
        let sentence = format!(
            "this thread waits for {what}, but the job has ended, and nobody answers any more; do that before its end"
        );
        if slot == finisher {
            return Err(Error::Finished(sentence));
        }
        static SAID: std::sync::Once = std::sync::Once::new();
        SAID.call_once(|| crate::error::say(format_args!("comem: {}: {sentence}", self.name_of(self.me()))));
        Ok(())
    }

    fn sleep(&self, slot: Slot, why: Waiting, since: Time) -> Result<()> {
        let waiter = &self.slots[slot].waiter;
        // A host wants to be asked now and then, in the middle of a wait.
        let asked = crate::host::host().is_some();
        let mut lets_go = self.schedule.lets_go_at(why, self.now());
        let for_page = matches!(why, Waiting::Page(_) | Waiting::Told(..));
        // Who has asked a set of nodes sleeps where it hears what it is told, too.
        let (hears, until) = match why {
            Waiting::Told(_, until) => (self.wire.selective(), until),
            _ => (None, None),
        };
        loop {
            // What this thread takes in itself does not rouse it.
            if for_page && self.look_at_told(slot) > 0 || waiter.was_roused() {
                return Ok(());
            }
            if until.is_some_and(|at| at <= self.now()) {
                return Ok(());
            }
            self.look_whether_unanswered(slot, why, since)?;
            if lets_go.is_some_and(|at| at <= self.now()) {
                lets_go = None;
                self.lets_go_at_rest(slot);
            }
            // What was fetched ahead has come while this thread computed: that is no reason to ask for it again. Who
            // waits for a page takes in no more than that: with the run behind it, no fault would tell that the next is
            // wanted.
            let most = if for_page { 1 } else { self.config.tuning.wait.messages_at_a_look };
            if self.look_before_repeating(slot, most) {
                return Ok(());
            }
            let mut next = self.run_timers(slot);
            // Whoever arrived last knows when the node's arrival is to be repeated; the others may be asleep already.
            let at_barrier = matches!(why, Waiting::Barrier(..)) && self.nodes() > 1;
            if at_barrier {
                next = earlier(next, self.repeat_arrival(slot));
            }
            // Arrivals at barriers come to the socket of the node's first thread. So may a token that the node has
            // wanted ahead come, to the service socket: the node's only thread may as well look there.
            let alone_for_lock = matches!(why, Waiting::Lock(_)) && self.nodes() > 1 && self.threads() == 1;
            let answers_come_here = (at_barrier && slot == Slot::thread(0))
                || alone_for_lock
                || hears.is_some()
                || self.wire.is_sending(slot);
            next = next.into_iter().chain(lets_go).chain(until).min();
            let now = self.now();
            let most = if asked { crate::host::SLICE } else { Duration::from_secs(1) };
            let timeout = next.map_or(most, |at| Duration::from_nanos((at - now).0.max(1_000)).min(most));
            if !answers_come_here {
                // What another thread of the node fetches may lie in its socket, which it does not attend while it
                // computes.
                let most = if for_page { Duration::from_micros(500) } else { Duration::from_secs(1) };
                if waiter.park(timeout.min(most)) || for_page || asked {
                    return Ok(());
                }
            } else if waiter.enter_socket() {
                let wait = self.slots[slot].spins.wait(&self.config, true);
                let served = if wait == Wait::Block {
                    None
                } else {
                    self.slots.spinning(|| self.serve_meanwhile(slot, timeout, hears.is_some()))
                };
                let came = match (served, hears) {
                    (Some(came), _) if came > 0 || waiter.is_roused() || lets_go.is_some() => came,
                    (_, Some(selective)) => self.receive_or_hear(selective, slot, timeout),
                    // It has spun enough.
                    (Some(_), None) => self.receive(slot, slot, Some(timeout), Wait::Block),
                    (None, None) => self.receive(slot, slot, Some(timeout), wait),
                };
                if waiter.leave_socket() || came > 0 || asked {
                    return Ok(());
                }
            }
        }
    }

    /// Where something would be sent again now, takes in what lies at the slot's socket, in at most so many looks: an
    /// answer to it, or an acknowledgement for which nobody was roused. Whether something was there.
    fn look_before_repeating(&self, slot: Slot, most: usize) -> bool {
        let overdue = || self.wire.sender(slot).lock().next_timeout().is_some_and(|at| at <= self.now());
        let takes = || overdue() && self.receive(slot, slot, Some(Duration::ZERO), Wait::Block) > 0;
        (0..most).take_while(|_| takes()).count() > 0
    }

    /// A thread that spins in its socket can as well do the service thread's work: nobody need be woken for it, and the
    /// core is this thread's already. Gives how many receives brought something, as soon as one has, or 0 when the spin
    /// is over; `None` where the service thread spins itself.
    /// Where it `hears`, it looks at what the node is told, too.
    fn serve_meanwhile(&self, slot: Slot, timeout: Duration, hears: bool) -> Option<usize> {
        let (mine, service) = (self.wire.endpoint(slot), self.wire.endpoint(Slot::SERVICE));
        // Over a network the service thread is woken all the same; but mostly this one has been quicker.
        let watched = service.watch(true);
        if !watched && self.config.wait == WaitPolicy::Spin {
            return None;
        }
        let start = self.now();
        let end = start + Span(self.config.spin().0.min(timeout.as_nanos() as u64));
        let waiter = &self.slots[slot].waiter;
        let mut settled = start;
        let mut came = loop {
            if !watched || mine.glance() {
                let came = self.receive(slot, slot, Some(Duration::ZERO), Wait::Block);
                if came > 0 {
                    break came;
                }
            }
            let told = if hears { self.look_at_told(slot) } else { 0 };
            if told > 0 {
                break told;
            }
            // What this thread waits for may come of it; it is not roused by itself.
            if !watched || service.glance() {
                let came = self.receive(Slot::SERVICE, slot, Some(Duration::ZERO), Wait::Block);
                if came > 0 {
                    break came;
                }
            }
            if waiter.is_roused() {
                break 0;
            }
            std::hint::spin_loop();
            let now = self.now();
            if now >= end {
                break 0;
            }
            if (now - settled).0 >= self.config.unattended().0 {
                settled = now;
                mine.settle(true);
            }
        };
        if watched {
            service.watch(false);
        }
        while service.glance() {
            match self.receive(Slot::SERVICE, slot, Some(Duration::ZERO), Wait::Block) {
                0 => break,
                more => came += more,
            }
        }
        mine.settle(false);
        if came > 0 || self.now() - start >= self.config.spin() {
            self.slots[slot].spins.account(&self.config, came > 0);
        }
        Some(came)
    }

    /// Rouses whoever has not looked, before this thread goes on to compute.
    pub(crate) fn flush_wakeups(&self, slot: Slot) {
        self.slots[slot].set_patient(false);
        if self.nodes() > 1 {
            self.wire.endpoint(slot).settle(false);
        }
    }

    /// Does what lies there for the service thread, if it can be seen without a system call: for the beginning of calls
    /// that threads make often, such as the release of a `lock`.
    #[inline]
    pub(crate) fn serve_at_call(&self, slot: Slot, lock: Option<LockId>) {
        if self.nodes() > 1 && self.wire.endpoint(Slot::SERVICE).glance() {
            uncancelled(|| self.serve_what_lies_there(slot));
        }
        self.end_deferrals(slot, lock);
    }

    #[cold]
    fn serve_what_lies_there(&self, slot: Slot) {
        let service = self.wire.endpoint(Slot::SERVICE);
        // Nobody need be roused for the next while this thread takes one.
        let watched = service.watch(true);
        for _ in 0..self.config.tuning.wait.messages_at_a_look {
            self.receive(Slot::SERVICE, slot, Some(Duration::ZERO), Wait::Block);
            if !service.glance() {
                break;
            }
        }
        if watched {
            service.watch(false);
        }
        if service.glance() {
            self.receive(Slot::SERVICE, slot, Some(Duration::ZERO), Wait::Block);
        }
    }

    /// Sleeps for a moment or until this thread's socket has something: for what no event announces.
    pub(crate) fn sleep_a_little(&self, slot: Slot) -> Result<()> {
        if self.nodes() > 1 {
            self.run_timers(slot);
            self.receive(slot, slot, Some(Duration::from_millis(1)), Wait::Block);
        }
        Ok(())
    }

    /// Repeats this node's arrival at a barrier when it is time; gives the next time.
    fn repeat_arrival(&self, slot: Slot) -> Option<Time> {
        let now = self.now();
        let mut out = Outbox::new();
        let next = self.sync.with_barrier(|b| {
            b.on_timeout(now, &mut out);
            b.next_timeout()
        });
        if !out.is_empty() {
            self.counters(slot).timeouts.add(1);
            self.flush_repeats(slot, &mut out);
        }
        next
    }
}

fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vain_spins_stop_and_are_tried_again_now_and_then() {
        let (budget, config) = (SpinBudget::default(), Config::from_env().expect("no settings"));
        let tried = (0..200).filter(|_| {
            let spin = budget.allows();
            if spin {
                budget.account(&config, false);
            }
            spin
        });
        let tried = tried.count();
        assert!((20..40).contains(&tried), "{tried} of 200 waits spun in vain");
        budget.account(&config, true);
        assert!(budget.allows());
    }
}
