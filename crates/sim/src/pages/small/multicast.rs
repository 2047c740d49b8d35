//! Small programs on pages whose diffs are told to sets of nodes.

use super::kept_diffs::{figure_three, kept_cases};
use super::{alone, word};
use crate::pages::explore::{Case, Ways};
use crate::pages::layout::Layout;
use crate::pages::memory::PAGE_WORDS;
use crate::pages::program::Op;
use comem_protocol::coherence::pages::region::Homes;
use comem_protocol::ids::{LockId, NodeId};
use comem_protocol::tuning::{MulticastTuning, Tuning};
use std::sync::Arc;

/// The cases for a way of treating memory.
pub fn set_cases(ways: Ways) -> Vec<Case> {
    let mut cases = kept_cases(ways);
    cases.extend([late_reader(ways), pages_at_once(ways, 3, 2, 2)]);
    cases
}

/// Longer ones.
pub fn long_cases(ways: Ways) -> Vec<Case> {
    vec![
        leaver_is_asked(ways),
        figure_three_in_rounds(ways, 3),
        pages_at_once(ways, 4, 3, 3),
        manager_moves(ways, 3),
        gathered(ways, 1, 4),
    ]
}

/// So many nodes write words of so many pages in each round, and read each other's, all in the same order.
pub fn pages_at_once(ways: Ways, nodes: usize, pages: usize, rounds: usize) -> Case {
    let program = |me: usize| {
        let round = |n: usize| {
            let each = move |what: fn(usize, u64) -> Op, who: usize| {
                (0..pages).map(move |at| what(word(at, who), (8 * n + who) as u64))
            };
            let writes = each(Op::Write, me).chain([Op::Barrier]);
            writes.chain(each(|at, _| Op::Read(at), (me + 1) % nodes)).chain([Op::Barrier]).collect::<Vec<Op>>()
        };
        (1..=rounds).flat_map(round).collect()
    };
    let layout = Arc::new(ways.layout(nodes, 1, pages as u32, Homes::On(NodeId(0))));
    Case { name: "pages at once", layout, programs: alone((0..nodes).map(program).collect()) }
}

/// Figure 3 again and again: the fourth node does not use what it is told. It comes to each barrier after all others
/// have told what they have to.
pub fn figure_three_in_rounds(ways: Ways, rounds: usize) -> Case {
    let writer = |me: usize| {
        let round = |n: usize| [Op::Write(me, (8 * n + me) as u64), Op::Barrier, Op::Read((me + 1) % 3), Op::Barrier];
        (1..=rounds).flat_map(round).collect::<Vec<Op>>()
    };
    let mut programs: Vec<Vec<Op>> = (0..3).map(writer).collect();
    let idle = [Op::Think(20_000_000), Op::Barrier].repeat(2 * rounds);
    programs.push([&[Op::Read(3)][..], &idle].concat());
    Case { name: "Figure 3 in rounds", layout: figure_three(ways).layout, programs: alone(programs) }
}

/// Two nodes write a page and read each other's words. Then a third gets its first copy, of a manager that has none.
pub fn late_reader(ways: Ways) -> Case {
    let writer = |me: usize| vec![Op::Write(me, 5 + me as u64), Op::Barrier, Op::Read(1 - me), Op::Barrier];
    let late = vec![Op::Barrier, Op::Barrier, Op::Read(0), Op::Read(1)];
    let programs = vec![writer(0), writer(1), late, vec![Op::Barrier, Op::Barrier]];
    let layout = Arc::new(ways.layout(4, 1, 1, Homes::On(NodeId(3))));
    Case { name: "late reader", layout, programs: alone(programs) }
}

/// A node writes a word and does not use its page any more, which two others write and read: so it leaves the copyset.
/// Then a fourth reads all words, and its manager has no copy.
pub fn leaver_is_asked(ways: Ways) -> Case {
    let rounds = 4;
    let worker = |me: usize| {
        let round = |n: usize| [Op::Write(me, (8 * n + me) as u64), Op::Barrier, Op::Read(3 - me), Op::Barrier];
        (1..=rounds).flat_map(round).collect::<Vec<Op>>()
    };
    let leaver = [&[Op::Write(0, 7)][..], &[Op::Think(20_000_000), Op::Barrier].repeat(2 * rounds)].concat();
    let late = [&[Op::Barrier].repeat(2 * rounds)[..], &[0, 1, 2].map(Op::Read)].concat();
    let programs = vec![leaver, worker(1), worker(2), [Op::Barrier].repeat(2 * rounds), late];
    let layout = ways.layout(5, 1, 1, Homes::On(NodeId(3)));
    let multicast = MulticastTuning { leave_after: 1, ..layout.tuning.multicast };
    let layout = Layout { tuning: Tuning { multicast, ..layout.tuning }, ..layout };
    Case { name: "a leaver is asked", layout: Arc::new(layout), programs: alone(programs) }
}

/// A node writes a page in each round and reads another's word, which writes and reads in every second one. Neither
/// manages the page. Then a late node gets its first copy.
pub fn manager_moves(ways: Ways, rounds: usize) -> Case {
    let worker = |me: usize| {
        let round = |n: usize| {
            let takes_part = me == 0 || n.is_multiple_of(2);
            let write = takes_part.then_some(Op::Write(me, (8 * n + me) as u64));
            let read = takes_part.then_some(Op::Read(1 - me));
            write.into_iter().chain([Op::Barrier]).chain(read).chain([Op::Barrier]).collect::<Vec<Op>>()
        };
        (1..=rounds).flat_map(round).collect::<Vec<Op>>()
    };
    let barriers = [Op::Barrier].repeat(2 * rounds);
    let late = [&barriers[..], &[Op::Read(0), Op::Read(1)]].concat();
    let programs = alone(vec![worker(0), worker(1), barriers, late]);
    Case { name: "manager moves", layout: Arc::new(ways.layout(4, 1, 1, Homes::On(NodeId(2)))), programs }
}

/// Two nodes write their halves of a page in each round, and so many others read a word of each.
pub fn gathered(ways: Ways, readers: usize, rounds: usize) -> Case {
    let round_of = |me: usize, n: usize| match me {
        0 | 1 => {
            let half = me * PAGE_WORDS / 2..(me + 1) * PAGE_WORDS / 2;
            let writes = half.map(|at| Op::Write(at, (1_000 * n + at) as u64));
            writes.chain([Op::Barrier, Op::Barrier]).collect::<Vec<Op>>()
        }
        _ => vec![Op::Barrier, Op::Read(0), Op::Read(PAGE_WORDS - 1), Op::Barrier],
    };
    let program = |me: usize| (1..=rounds).flat_map(|n| round_of(me, n)).collect::<Vec<Op>>();
    let programs = alone((0..2 + readers).map(program).collect());
    let layout = Arc::new(ways.layout(2 + readers, 1, 1, Homes::On(NodeId(0))));
    Case { name: "gathered", layout, programs }
}

/// A counter under a lock goes about among so many nodes, so many times in all.
pub fn counter_goes_about(ways: Ways, nodes: usize, rounds: usize) -> Case {
    let lock = LockId(1);
    let turn = [Op::Lock(lock), Op::Read(0), Op::WriteNext(0), Op::Unlock(lock), Op::Think(20_000)];
    let programs = alone(vec![[&turn.repeat(rounds / nodes)[..], &[Op::Barrier]].concat(); nodes]);
    Case { name: "counter goes about", layout: Arc::new(ways.layout(nodes, 1, 1, Homes::On(NodeId(0)))), programs }
}
