//! Small programs on pages whose diffs stay with their writers.

use super::{alone, beside, count, evicted, handed, noticed, two_locks, word};
use crate::pages::explore::{Case, Ways};
use crate::pages::layout::Layout;
use crate::pages::program::Op;
use comem_protocol::coherence::pages::region::{Homes, Unit};
use comem_protocol::ids::{FlagId, LockId, NodeId};
use std::sync::Arc;

/// The cases for a way of treating memory.
pub fn kept_cases(ways: Ways) -> Vec<Case> {
    let on = || Homes::On(NodeId(0));
    let case = |name, layout, programs| Case { name, layout: Arc::new(layout), programs };
    let counters = |nodes, rounds| alone((0..nodes).map(|who| count(who, nodes, rounds)).collect());
    let collects = |nodes, pages| Layout { diffs_kept_max: 0, ..ways.layout(nodes, 1, pages, on()) };
    vec![
        figure_three(ways),
        case("two locks, one page", ways.layout(3, 1, 1, on()), alone(two_locks_one_page())),
        case("counter", ways.layout(2, 1, 1, on()), counters(2, 2)),
        case("counter of three, twice", ways.layout(3, 1, 1, on()), counters(3, 2)),
        case("two threads beside one", ways.layout(2, 2, 1, on()), beside()),
        case("handed on", ways.layout(3, 1, 1, on()), alone(handed())),
        case("two locks", ways.layout(2, 2, 1, on()), two_locks()),
        case("notice beside a fetch", ways.layout(2, 2, 1, on()), noticed()),
        case("little cache", Layout { cache_pages: 1, ..ways.layout(2, 1, 3, on()) }, alone(evicted())),
        case("base of a page that wavers", ways.layout(2, 1, 1, on()), alone(wavering_base())),
        case("base and an older diff", ways.layout(3, 1, 1, on()), alone(base_and_older())),
        case("collected", collects(3, 1), alone(collected())),
        case("counter, collected", collects(2, 1), counters(2, 2)),
        case("a block that a late diff hits", ways.layout(3, 1, 1, on()), alone(late_diff_of_a_block())),
        case("a block that is zero at its owner", ways.layout(3, 1, 1, on()), alone(block_of_zeros())),
        case("a block that is zero, collected", collects(3, 1), alone(block_of_zeros())),
    ]
}

/// Brazos, Figure 3: three nodes write words of one page that a fourth has used, and each reads another's word.
pub fn figure_three(ways: Ways) -> Case {
    let writer = |me: usize| vec![Op::Write(me, 5 + me as u64), Op::Barrier, Op::Read((me + 1) % 3)];
    let mut programs: Vec<Vec<Op>> = (0..3).map(writer).collect();
    programs.push(vec![Op::Read(3), Op::Barrier]);
    let layout = Arc::new(ways.layout(4, 1, 1, Homes::On(NodeId(3))));
    Case { name: "Figure 3", layout, programs: alone(programs) }
}

/// So many nodes, at most eight, write words of one unit, and each reads another's word.
pub fn all_to_all(ways: Ways, nodes: usize) -> Case {
    let program = |me: usize| vec![Op::Write(me, 5 + me as u64), Op::Barrier, Op::Read((me + 1) % nodes)];
    let mut layout = ways.layout(nodes, 1, 2, Homes::On(NodeId(0)));
    layout.regions[0].0.unit = Unit::Pages(2);
    Case { name: "all to all", layout: Arc::new(layout), programs: alone((0..nodes).map(program).collect()) }
}

/// A counter under a lock goes from node to node so many times.
pub fn migrating(ways: Ways, nodes: usize, rounds: usize) -> Case {
    let round = [Op::Lock(LockId(1)), Op::Read(0), Op::WriteNext(0), Op::Unlock(LockId(1)), Op::Think(30_000)];
    let programs = alone(vec![[&round.repeat(rounds)[..], &[Op::Barrier, Op::Read(0)]].concat(); nodes]);
    Case { name: "migrating", layout: Arc::new(ways.layout(nodes, 1, 1, Homes::On(NodeId(0)))), programs }
}

/// A word is written under one lock by two nodes in turn; a third learns of the second write by another lock, and goes
/// on under the first.
fn two_locks_one_page() -> Vec<Vec<Op>> {
    let (first, second) = (LockId(1), LockId(2));
    let counts = |lock, at| [Op::Lock(lock), Op::Read(at), Op::WriteNext(at), Op::Unlock(lock)];
    let end = [Op::Barrier, Op::Read(0), Op::Read(1)];
    vec![
        [&counts(first, 0)[..], &counts(first, 0), &end].concat(),
        [&counts(first, 0)[..], &counts(second, 1), &counts(first, 0), &end].concat(),
        [&counts(second, 1)[..], &counts(first, 0), &counts(second, 1), &counts(first, 0), &end].concat(),
    ]
}

/// A node gets its first copy of a page while the manager stores in it for a while what does not stay.
fn wavering_base() -> Vec<Vec<Op>> {
    let manager =
        [Op::Write(1, 9), Op::Barrier, Op::Read(0), Op::Write(0, 77), Op::WriteBack(0), Op::Barrier, Op::Read(0)];
    let reader = [Op::Barrier, Op::Read(1), Op::Barrier, Op::Read(0)];
    vec![manager.to_vec(), reader.to_vec()]
}

/// Two nodes write a word in turn, and the manager reads it; then a third gets its first copy.
fn base_and_older() -> Vec<Vec<Op>> {
    let lock = LockId(1);
    let counts = [Op::Lock(lock), Op::Read(0), Op::WriteNext(0), Op::Unlock(lock)];
    let manager = [&counts[..], &[Op::Barrier], &counts, &[Op::Barrier, Op::Read(0), Op::Barrier]].concat();
    let writer = [&counts[..], &[Op::Barrier, Op::Write(1, 4), Op::Barrier, Op::Read(0), Op::Barrier]].concat();
    let late = [Op::Barrier, Op::Barrier, Op::Read(0), Op::Read(1), Op::Barrier];
    vec![manager, writer, late.to_vec()]
}

/// A node writes a block, and another one, which has heard of that, frees it. The owner, which has not, zeroes it.
fn late_diff_of_a_block() -> Vec<Vec<Op>> {
    let (written, end) = (FlagId(1), [Op::Barrier, Op::Read(0), Op::Read(1)]);
    let owner = [Op::Read(0), Op::Barrier, Op::ReuseBlock(0, 2, 1), Op::Write(0, 0), Op::Write(1, 0), Op::Write(1, 4)];
    let freer = [Op::Barrier, Op::Await(written, 1), Op::FreeBlock(0, 0, 1)];
    let writer = [Op::Barrier, Op::Write(0, 7), Op::Write(1, 8), Op::Set(written, 1)];
    [&owner[..], &freer, &writer].map(|program| [program, &end].concat()).to_vec()
}

/// A node has read what stood in a block for a while. The owner has not, so the block is zero there all the time.
fn block_of_zeros() -> Vec<Vec<Op>> {
    let ([written, read, given], end) = ([1, 2, 3].map(FlagId), [Op::Barrier, Op::Read(0), Op::Barrier, Op::Read(0)]);
    let owner = [Op::Read(0), Op::Barrier, Op::ReuseBlock(0, 1, 1), Op::Write(0, 0), Op::Set(given, 1)];
    let writer = [
        Op::Barrier,
        Op::Write(0, 7),
        Op::Set(written, 1),
        Op::Await(read, 1),
        Op::Write(0, 0),
        Op::FreeBlock(0, 0, 1),
    ];
    let reader = [Op::Barrier, Op::Await(written, 1), Op::Read(0), Op::Set(read, 1), Op::Await(given, 1), Op::Read(0)];
    [&owner[..], &writer, &reader].map(|program| [program, &end].concat()).to_vec()
}

/// Diffs are collected at each barrier: what was written is read by a node that had a copy, by one that had none, and
/// by the manager, some barriers later.
fn collected() -> Vec<Vec<Op>> {
    let manager = [Op::Barrier, Op::Barrier, Op::Barrier, Op::Read(0), Op::Barrier, Op::Read(word(0, 1))];
    let mut writer = vec![Op::Write(0, 5), Op::Barrier, Op::Read(0), Op::Barrier, Op::Write(1, 6), Op::Barrier];
    writer.extend([Op::Barrier, Op::Read(1)]);
    let late = [Op::Read(2), Op::Barrier, Op::Barrier, Op::Read(0), Op::Barrier, Op::Barrier, Op::Read(1), Op::Read(0)];
    vec![manager.to_vec(), writer, late.to_vec()]
}
