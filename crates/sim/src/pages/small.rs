//! The small programs whose orders of events are gone through ([`explore`](super::explore)).

pub mod kept_diffs;
pub mod multicast;
mod sync_objects;

use super::explore::{Case, Ways};
use super::layout::Layout;
use super::memory::PAGE_WORDS;
use super::program::{Op, Programs};
use comem_protocol::coherence::pages::page_table::PrefetchPlan;
use comem_protocol::coherence::pages::region::Homes;
use comem_protocol::ids::{FlagId, LockId, NodeId};
use std::sync::Arc;

/// The cases for a way of treating memory.
pub fn cases(ways: Ways) -> Vec<Case> {
    let on = || Homes::On(NodeId(0));
    let case = |name, layout, programs| Case { name, layout: Arc::new(layout), programs };
    let wanted = |nodes, threads| Layout { wants: true, ..ways.layout(nodes, threads, 1, on()) };
    let compared = |nodes| Layout { compares: true, ..ways.layout(nodes, 1, 1, on()) };
    vec![
        case("counter", ways.layout(2, 1, 1, on()), alone((0..2).map(|who| count(who, 2, 2)).collect())),
        case("counter of three", ways.layout(3, 1, 1, on()), alone((0..3).map(|who| count(who, 3, 1)).collect())),
        case("two threads beside one", ways.layout(2, 2, 1, on()), beside()),
        case("handed on", ways.layout(3, 1, 1, on()), alone(handed())),
        case("home moves", ways.layout(2, 1, 1, Homes::Automatic), alone(moves())),
        case("first touch", ways.layout(2, 1, 1, Homes::FirstTouch), alone(touched())),
        case("little cache", Layout { cache_pages: 1, ..ways.layout(2, 1, 3, on()) }, alone(evicted())),
        case("two locks", ways.layout(2, 2, 1, on()), two_locks()),
        case("counter, often", ways.layout(2, 1, 1, on()), alone((0..2).map(|who| count(who, 2, 4)).collect())),
        case(
            "counter of three, twice",
            ways.layout(3, 1, 1, on()),
            alone((0..3).map(|who| count(who, 3, 2)).collect()),
        ),
        case("both engines", ways.both(3), alone((0..3).map(counts_in_both).collect())),
        case("sent at barriers", ways.layout(3, 1, 1, on()), alone(sent())),
        case("laid aside", Layout { idles: true, ..ways.layout(2, 2, 2, on()) }, two_locks()),
        case(
            "stores forbidden",
            Layout { chunk_pages: 4, ..ways.layout(2, 2, 2, Homes::Cyclic(1)) }.with_stores_forbidden(),
            forbidden(),
        ),
        case("notice beside a fetch", ways.layout(2, 2, 1, on()), noticed()),
        case("counter, tokens wanted", wanted(2, 1), alone((0..2).map(|who| count(who, 2, 2)).collect())),
        case("two locks, tokens wanted", wanted(2, 2), two_locks()),
        case("counter of three, tokens wanted", wanted(3, 1), alone((0..3).map(|who| count(who, 3, 2)).collect())),
        case("flushed and told", Layout { cache_pages: 1, ..ways.layout(3, 1, 3, on()) }, alone(flushed(false))),
        case("flushed under a lock", Layout { cache_pages: 1, ..ways.layout(3, 1, 3, on()) }, alone(flushed(true))),
        case(
            "writer without a copy",
            Layout { cache_pages: 1, ..ways.layout(2, 1, 4, Homes::Automatic) },
            alone(gone()),
        ),
        case("home moves on", ways.layout(3, 1, 1, Homes::Automatic), alone(moves_on())),
        case("from lock to lock", ways.both(3), alone(lock_to_lock(ways))),
        case("flags of two logs", ways.both(3), alone(two_flags())),
        case("two that raise one flag", ways.layout(3, 1, 2, on()), alone(two_raisers())),
        case("beside a section", ways.layout(2, 1, 1, on()), alone(beside_section())),
        case("neighbours", ways.layout(3, 1, 2, on()), alone(neighbours())),
        case(
            "counter of three, often",
            ways.layout(3, 1, 1, on()),
            alone((0..3).map(|who| count(who, 3, 4)).collect()),
        ),
        case("two locks of three", ways.layout(3, 1, 1, on()), alone(two_of_three())),
        case("written again and again", ways.layout(2, 1, 1, on()), alone(steady(0))),
        case("copy written again and again", ways.layout(2, 1, 1, on()), alone(steady(1))),
        case("compared", compared(3), alone(waves_and_ends())),
        case("compared, and written elsewhere", compared(2), alone(steady_beside())),
        case("held across a barrier", wanted(2, 1), alone(held())),
        case("one book after the other", ways.both(2), alone((0..2).map(one_then_other).collect())),
        case("offered", ways.layout(3, 1, 2, on()), alone(offered())),
        case("wavering", ways.layout(3, 1, 1, on()), alone(wavers())),
        case(
            "between pages that are shared",
            Layout {
                chunk_pages: 4,
                ahead: PrefetchPlan { units: 2, stride: 2, known: 1, claims: false },
                ..ways.layout(2, 1, 3, Homes::Cyclic(1))
            },
            alone(between_shared()),
        ),
        case("acquired lazily", ways.layout(3, 1, 2, on()), alone(lazily())),
        case("posted", ways.layout(3, 1, 1, on()), sync_objects::posted()),
        case("handed on by a semaphore", ways.layout(3, 1, 1, on()), sync_objects::handed()),
        case("read and written", ways.layout(3, 1, 1, on()), sync_objects::read_and_written()),
        case("signalled", ways.layout(3, 1, 2, on()), sync_objects::signalled()),
        case("reduced", ways.layout(2, 1, 1, on()), sync_objects::reduced()),
        case("met", ways.layout(3, 1, 1, on()), sync_objects::met()),
    ]
}

/// Programs of nodes with one thread each.
fn alone(programs: Vec<Vec<Op>>) -> Programs {
    programs.into_iter().map(|program| vec![program]).collect()
}

fn word(page: usize, at: usize) -> usize {
    page * PAGE_WORDS + at
}

/// Counts under a lock, writes a word of its own in the same page between, and reads all in the end.
fn count(who: usize, of: usize, rounds: usize) -> Vec<Op> {
    let mut program = Vec::new();
    for round in 0..rounds {
        program.extend([Op::Lock(LockId(1)), Op::Read(0), Op::WriteNext(0), Op::Unlock(LockId(1))]);
        program.push(Op::Write(1 + who, (10 * (round + 1) + who) as u64));
    }
    program.push(Op::Barrier);
    program.extend((0..=of).map(Op::Read));
    program
}

/// Two threads of one node and one of two of another write words of one page in two epochs; each reads another's.
fn beside() -> Programs {
    let program = |me: usize, other: usize| {
        let values = [1, 2].map(|epoch| (10 * epoch + me) as u64);
        vec![
            Op::Write(me, values[0]),
            Op::Barrier,
            Op::Read(other),
            Op::Barrier,
            Op::Write(me, values[1]),
            Op::Barrier,
            Op::Read(other),
        ]
    };
    vec![vec![program(0, 1), vec![Op::Barrier; 3]], vec![program(1, 0), program(2, 0)]]
}

/// Two threads of one node store to a page table to which stores are forbidden: one to a page that nobody else has, the
/// other under a lock to a copy, and the page's home looks under that lock.
fn forbidden() -> Programs {
    let lock = LockId(1);
    let (own, copy) = (word(0, 0), word(1, 0));
    let under_lock = |op| vec![Op::Barrier, Op::Lock(lock), op, Op::Unlock(lock), Op::Barrier];
    vec![
        vec![
            vec![Op::Write(own, 3), Op::Read(copy), Op::Barrier, Op::Write(own, 5), Op::Barrier],
            under_lock(Op::Write(copy, 7)),
        ],
        vec![under_lock(Op::Read(copy)), vec![Op::Barrier, Op::Barrier]],
    ]
}

/// A word goes from node to node by flags, while each writes another word of the page.
fn handed() -> Vec<Vec<Op>> {
    let (first, second) = (FlagId(1), FlagId(2));
    vec![
        vec![
            Op::Write(1, 7),
            Op::Await(second, 1),
            Op::Read(0),
            Op::WriteNext(0),
            Op::Barrier,
            Op::Read(2),
            Op::Read(3),
        ],
        vec![Op::Write(2, 8), Op::Read(0), Op::WriteNext(0), Op::Set(first, 1), Op::Barrier, Op::Read(0), Op::Read(1)],
        vec![
            Op::Await(first, 1),
            Op::Read(0),
            Op::WriteNext(0),
            Op::Set(second, 1),
            Op::Write(3, 9),
            Op::Barrier,
            Op::Read(0),
        ],
    ]
}

/// What a node wrote before a lock's token came to it, another learns that acquires the lock lazily, from a third that
/// acquired it plainly.
fn lazily() -> Vec<Vec<Op>> {
    let (lock, data, sign) = (LockId(1), word(0, 0), word(1, 0));
    let [left, ended, told, passed] = [1, 2, 3, 4].map(FlagId);
    let takes = [Op::Lock(lock), Op::Unlock(lock)];
    let first = vec![Op::Barrier, Op::Write(data, 5), Op::Set(ended, 1), Op::Await(left, 1)];
    let second =
        [vec![Op::Read(data), Op::Barrier], takes.to_vec(), vec![Op::Set(left, 1), Op::Await(told, 1)]].concat();
    let third = vec![Op::Read(data), Op::Barrier, Op::Await(passed, 1), Op::Widen(lock), Op::Lock(lock)];
    vec![
        [first, vec![Op::Lock(lock), Op::Write(sign, 1), Op::Unlock(lock), Op::Set(told, 1)]].concat(),
        [second, takes.to_vec(), vec![Op::Set(passed, 1)]].concat(),
        [third, vec![Op::Read(sign), Op::Unlock(lock), Op::Read(data)]].concat(),
    ]
}

/// A node fetches two pages at once, whose home fetches the one between them from that node, writes it, and tells of
/// that before the next barrier.
fn between_shared() -> Vec<Vec<Op>> {
    let told = FlagId(1);
    let mut home = vec![Op::Write(word(0, 0), 1), Op::Write(word(2, 0), 2), Op::Barrier];
    home.extend([Op::Read(word(1, 0)), Op::Write(word(1, 1), 3), Op::Set(told, 1), Op::Barrier]);
    let mut other = vec![Op::Write(word(1, 0), 4), Op::Barrier];
    other.extend([Op::Read(word(0, 0)), Op::Read(word(2, 0))]);
    other.extend([Op::Await(told, 1), Op::Read(word(1, 1)), Op::Barrier]);
    vec![home, other]
}

/// One node alone writes, epoch after epoch, and becomes the home; then the other does.
fn moves() -> Vec<Vec<Op>> {
    let (wrote, idle) = ([Op::Read(0), Op::WriteNext(0), Op::Barrier], [Op::Barrier]);
    let look = [Op::Read(0), Op::Barrier];
    let one = [&idle[..], &idle, &look, &wrote, &wrote, &[Op::Read(0)]].concat();
    let other = [&wrote[..], &wrote, &idle, &idle, &idle, &[Op::Read(0)]].concat();
    vec![one, other]
}

/// Two nodes touch a page that nobody had.
fn touched() -> Vec<Vec<Op>> {
    (0..2)
        .map(|me| {
            vec![
                Op::Write(me, 5),
                Op::Barrier,
                Op::Read(1 - me),
                Op::Barrier,
                Op::Write(me, 6),
                Op::Barrier,
                Op::Read(1 - me),
            ]
        })
        .collect()
}

/// More pages than the cache has room for, all written by both nodes.
fn evicted() -> Vec<Vec<Op>> {
    let program = |me: usize| {
        let mut program: Vec<Op> = (0..3).map(|page| Op::Write(word(page, me), (page + 1) as u64)).collect();
        program.push(Op::Barrier);
        program.extend((0..3).map(|page| Op::Read(word(page, 1 - me))));
        program
    };
    vec![program(0), program(1)]
}

/// Words of one page under two locks, each lock wanted by a thread of each node.
fn two_locks() -> Programs {
    let program = |lock: u64| {
        let at = lock as usize - 1;
        let mut program = vec![Op::Lock(LockId(lock)), Op::Read(at), Op::WriteNext(at), Op::Unlock(LockId(lock))];
        program.extend([Op::Barrier, Op::Read(0), Op::Read(1)]);
        program
    };
    vec![vec![program(1), program(2)], vec![program(1), program(2)]]
}

/// While one thread fetches a page for a word that nobody writes, the node's other thread hears that the page was
/// written.
fn noticed() -> Programs {
    let counts = [Op::Lock(LockId(1)), Op::Read(0), Op::WriteNext(0), Op::Unlock(LockId(1))];
    let (writes, reads) =
        ([&counts[..], &counts, &[Op::Barrier]].concat(), vec![Op::Read(3), Op::Barrier, Op::Read(0)]);
    let hears = [&counts[..], &[Op::Barrier, Op::Read(0)]].concat();
    vec![vec![writes, vec![Op::Barrier]], vec![reads, hears]]
}

/// Counts in two pages under one lock, and writes a word of its own in each.
fn counts_in_both(who: usize) -> Vec<Op> {
    let (other, lock) = (word(1, 0), LockId(1));
    let mut program = Vec::new();
    for round in 0..2 {
        program.extend([Op::Lock(lock), Op::Read(0), Op::WriteNext(0), Op::Read(other), Op::WriteNext(other)]);
        program.extend([Op::Unlock(lock), Op::Write(1 + who, round + 1), Op::Write(word(1, 1 + who), round + 1)]);
    }
    program.push(Op::Barrier);
    program.extend([0, other, 1, word(1, 2), 3].map(Op::Read));
    program
}

/// The home writes in each epoch what the second node reads in the next; the third hands the second a lock, and with it
/// a word of the page.
fn sent() -> Vec<Vec<Op>> {
    let (mut home, mut reader, mut other) = (Vec::new(), Vec::new(), Vec::new());
    let counts = [Op::Lock(LockId(1)), Op::Read(1), Op::WriteNext(1), Op::Unlock(LockId(1))];
    for epoch in 0..4 {
        home.extend([Op::Write(0, epoch + 1), Op::Barrier, Op::Barrier]);
        reader.extend([Op::Barrier, Op::Read(0), Op::Barrier]);
        other.extend([Op::Barrier, Op::Barrier]);
        if epoch >= 2 {
            reader.splice(reader.len() - 2..reader.len() - 2, counts);
            other.splice(other.len() - 1..other.len() - 1, counts);
        }
    }
    vec![home, reader, other]
}

/// A node writes three pages and has room for one copy; another node held the first of them.
fn flushed(under_lock: bool) -> Vec<Vec<Op>> {
    let lock = LockId(1);
    let section = |ops: &[Op]| match under_lock {
        true => [&[Op::Lock(lock)], ops, &[Op::Unlock(lock)]].concat(),
        false => ops.to_vec(),
    };
    let writes: Vec<Op> = (0..3).map(|page| Op::Write(word(page, 1), 5)).collect();
    let reads = [Op::Read(1), Op::Barrier, Op::Read(1)];
    let next = section(&[Op::Read(0), Op::WriteNext(0)]);
    vec![
        [&next[..], &[Op::Barrier, Op::Barrier, Op::Read(0), Op::Read(1)]].concat(),
        [&[Op::Barrier][..], &section(&writes), &[Op::Barrier]].concat(),
        [&reads[..2], &section(&[Op::Read(2)]), &[Op::Barrier], &reads[2..]].concat(),
    ]
}

/// A node that alone writes pages has given their copies back by the time the epoch ends.
fn gone() -> Vec<Vec<Op>> {
    let pages = [0, 1, 2, 3].map(|page| word(page, 0));
    let writes = pages.map(|at| Op::Write(at, 9)).to_vec();
    let reads = pages.map(Op::Read).to_vec();
    vec![
        [&[Op::Barrier][..], &reads, &[Op::Barrier, Op::Barrier], &reads].concat(),
        [&writes[..], &[Op::Barrier], &reads, &[Op::Barrier, Op::WriteNext(pages[0]), Op::Barrier], &reads].concat(),
    ]
}

/// One node after the other alone writes a page, which all read.
fn moves_on() -> Vec<Vec<Op>> {
    let program = |me: usize| {
        let epoch = |writer: usize| match writer == me {
            true => vec![Op::Read(0), Op::WriteNext(0), Op::Barrier, Op::Read(0), Op::Barrier],
            false => vec![Op::Barrier, Op::Read(0), Op::Barrier],
        };
        [1, 1, 2, 0].into_iter().flat_map(epoch).collect()
    };
    (0..3).map(program).collect()
}

/// What was written under one lock is read after another, which a third node has passed on.
fn lock_to_lock(ways: Ways) -> Vec<Vec<Op>> {
    let (first, second) = (LockId(1), LockId(2));
    let (of_hlrc, of_scope) = if ways.engine.is_scoped() { (1, 0) } else { (0, 1) };
    let (told, heard, said) = (word(of_scope, 0), word(of_scope, 1), word(of_hlrc, 0));
    let count = |lock, at| [Op::Lock(lock), Op::Read(at), Op::WriteNext(at), Op::Unlock(lock)];
    let look = |lock, at| [Op::Lock(lock), Op::Read(at), Op::Unlock(lock)];
    vec![
        [&[Op::Barrier, Op::Write(said, 6)][..], &count(first, told), &[Op::Barrier]].concat(),
        [
            &[Op::Read(said), Op::Barrier][..],
            &look(first, told),
            &[Op::SkipIfZero(4)],
            &count(second, heard),
            &[Op::Barrier],
        ]
        .concat(),
        [
            &[Op::Read(said), Op::Barrier][..],
            &look(second, heard),
            &[Op::SkipIfZero(1), Op::Read(said), Op::Barrier, Op::Read(said)],
        ]
        .concat(),
    ]
}

/// Two nodes write both regions and raise a flag each; the third waits for both.
fn two_flags() -> Vec<Vec<Op>> {
    let flags = [FlagId(1), FlagId(2)];
    let writes = |me: usize| vec![Op::Write(me, 4), Op::Write(word(1, me), 4), Op::Set(flags[me], 1)];
    let reads = [0, 1, word(1, 0), word(1, 1)].map(Op::Read);
    let end = [&[Op::Barrier][..], &reads].concat();
    vec![
        [&writes(0)[..], &[Op::Await(flags[1], 1), Op::Read(1), Op::Read(word(1, 1))], &end].concat(),
        [&writes(1)[..], &[Op::Await(flags[0], 1), Op::Read(0), Op::Read(word(1, 0))], &end].concat(),
        [&reads[2..3], &[Op::Read(3), Op::Barrier], &reads].concat().into_iter().skip(1).collect(),
    ]
}

/// Two threads of a node hand a lock back and forth; one of the other node wants it once. For times that a seed gives:
/// in an order where a message is late there may be any number of turns.
pub fn in_turn(ways: Ways) -> Case {
    let long = vec![Op::Read(0); 8];
    let turns =
        |lock, times| [&[Op::Lock(LockId(lock))][..], &long, &[Op::Unlock(LockId(lock))]].concat().repeat(times);
    let then = |turns: Vec<Op>| [turns, vec![Op::Barrier]].concat();
    let other = [turns(2, 3), turns(1, 1)].concat();
    let programs = vec![vec![then(turns(1, 150)), then(turns(1, 150))], vec![then(other), then(Vec::new())]];
    Case {
        name: "two threads in turn beside one",
        layout: Arc::new(ways.layout(2, 2, 1, Homes::On(NodeId(0)))),
        programs,
    }
}

/// Two nodes write a page each and raise one flag, the second no higher than it is; the third, which has copies, waits
/// for what the first has raised it to.
fn two_raisers() -> Vec<Vec<Op>> {
    let (flag, pages) = (FlagId(1), [word(0, 0), word(1, 0)]);
    let (reads, pass) = (pages.map(Op::Read), |lock| [Op::Lock(LockId(lock)), Op::Unlock(LockId(lock))]);
    let raises = |me: usize, value| [Op::Write(pages[me], 4), Op::Set(flag, value), Op::Barrier];
    vec![
        [&[Op::Barrier][..], &raises(0, 2), &reads].concat(),
        [&[Op::Barrier][..], &pass(1), &raises(1, 1), &reads].concat(),
        [&reads[..], &[Op::Barrier], &pass(2), &pass(4), &[Op::Await(flag, 2), reads[0], Op::Barrier], &reads].concat(),
    ]
}

/// While one node counts in a page under a lock, the other reads a word of it that nobody writes, and then counts.
fn beside_section() -> Vec<Vec<Op>> {
    let count = [Op::Lock(LockId(1)), Op::Read(0), Op::WriteNext(0), Op::Unlock(LockId(1))];
    let end = [Op::Barrier, Op::Read(0)];
    vec![[&count[..], &count, &end].concat(), [&[Op::Read(3)][..], &count, &[Op::Read(3)], &count, &end].concat()]
}

/// The home writes two pages of one chunk, which two others read at different times.
fn neighbours() -> Vec<Vec<Op>> {
    let (one, two, lock) = (word(0, 0), word(1, 0), LockId(1));
    let pass = [Op::Lock(lock), Op::Unlock(lock)];
    let end = [Op::Barrier, Op::Read(two), Op::Barrier];
    let home = [Op::Write(one, 1), Op::Write(two, 1), Op::Barrier, Op::Write(two, 2)];
    let again = [Op::Write(two, 3), Op::Barrier, Op::Read(two)];
    let reader = [Op::Read(word(0, 2)), Op::Barrier, Op::Read(one)];
    let other = [Op::Read(word(1, 2)), Op::Barrier, Op::Read(word(1, 3))];
    let last = [Op::Barrier, Op::Read(two)];
    vec![
        [&pass[..], &home, &end, &again].concat(),
        [&pass[..], &reader, &end, &last].concat(),
        [&other[..], &end, &last].concat(),
    ]
}

/// Words of one page under two locks, which three nodes take in different orders; each writes a word of its own
/// between.
fn two_of_three() -> Vec<Vec<Op>> {
    let program = |me: usize| {
        let mut program = Vec::new();
        for round in 0..3 {
            for lock in [(me + round) % 2, (me + round + 1) % 2] {
                let name = LockId(lock as u64 + 1);
                program.extend([Op::Lock(name), Op::Read(lock), Op::WriteNext(lock), Op::Unlock(name)]);
            }
            program.extend((me > 0).then_some(Op::Write(1 + me, round as u64 + 1)));
        }
        program.push(Op::Barrier);
        program.extend((0..4).map(Op::Read));
        program
    };
    (0..3).map(program).collect()
}

/// A word that waves while another word of its page goes about with a lock: it ends as it was.
fn wavers() -> Vec<Vec<Op>> {
    let (carries, other) = (LockId(1), LockId(2));
    let count = [Op::Lock(carries), Op::Read(0), Op::WriteNext(0), Op::Unlock(carries)];
    let look = [Op::Lock(carries), Op::Read(0), Op::Unlock(carries)];
    let pass = [Op::Lock(other), Op::Unlock(other)];
    let wave = [Op::Read(1), Op::Write(1, 1 << 40), Op::Think(1), Op::WriteBack(1)];
    let end = [Op::Barrier, Op::Read(1)];
    vec![
        [&look[..], &look, &look, &end].concat(),
        [&count[..], &count, &pass, &wave, &count, &end].concat(),
        [&pass[..], &look, &pass, &look, &end].concat(),
    ]
}

/// The home (node 0), or the other node, writes the same word in each epoch, and the other one reads it in the next.
fn steady(writer: usize) -> Vec<Vec<Op>> {
    let epoch = |value: u64| [Op::Write(1, value), Op::Barrier, Op::Barrier];
    let writes = (1..5).flat_map(epoch).collect();
    let reads = std::iter::repeat_n([Op::Barrier, Op::Read(1), Op::Barrier], 4).flatten().collect();
    if writer == 0 { vec![writes, reads] } else { vec![reads, writes] }
}

/// The home writes a word in each epoch, and another node reads it; in one it changes another word, which ends as it
/// was. Meanwhile a third node reads that for the first time.
fn waves_and_ends() -> Vec<Vec<Op>> {
    let mut programs = vec![Vec::new(), Vec::new(), Vec::new()];
    for epoch in 1..4 {
        programs[0].extend([Op::Write(1, epoch), Op::Barrier, Op::Barrier]);
        programs[1].extend([Op::Barrier, Op::Read(1), Op::Barrier]);
        programs[2].extend([Op::Barrier, Op::Barrier]);
    }
    programs[0].extend([Op::Read(2), Op::Write(2, 1 << 40), Op::Think(1), Op::WriteBack(2), Op::Barrier]);
    programs[1].push(Op::Barrier);
    programs[2].extend([Op::Read(3), Op::Barrier, Op::Read(2)]);
    programs
}

/// The home writes a word of a page in each epoch, and the other node another one; each reads both.
fn steady_beside() -> Vec<Vec<Op>> {
    let epoch = |me, value| [Op::Write(me, value), Op::Barrier, Op::Read(1 - me), Op::Read(me), Op::Barrier];
    (0..2).map(|me| (1..6).flat_map(|value| epoch(me, value)).collect()).collect()
}

/// A node that wants a lock's token back comes to a barrier, which the holder passes before it lets go of the lock.
fn held() -> Vec<Vec<Op>> {
    let (first, second, taken) = (LockId(1), LockId(2), FlagId(1));
    let count = [Op::Lock(first), Op::Read(0), Op::WriteNext(0), Op::Unlock(first)];
    let hold = [Op::Lock(first), Op::Set(taken, 1), Op::Barrier, Op::Read(0), Op::WriteNext(0), Op::Unlock(first)];
    let wish = [Op::Await(taken, 1), Op::Lock(second), Op::Unlock(second), Op::Barrier];
    let (start, end) = ([Op::Barrier], [Op::Barrier, Op::Read(0)]);
    vec![[&count[..], &start, &wish, &count, &end].concat(), [&start[..], &hold, &end].concat()]
}

/// Counts in one region under a lock, several times, and then in the other.
fn one_then_other(who: usize) -> Vec<Op> {
    let count = |at| [Op::Lock(LockId(1)), Op::Read(at), Op::WriteNext(at), Op::Unlock(LockId(1))];
    let (one, other) = if who == 0 { (0, word(1, 0)) } else { (1, word(1, 1)) };
    let look = [Op::Read(word(1, 3)), Op::Read(3)];
    [
        &look[..],
        &count(one),
        &count(one),
        &count(0),
        &count(other),
        &count(word(1, 0)),
        &[Op::Barrier, Op::Read(word(1, 0))],
    ]
    .concat()
}

/// While one node takes a page that it was offered and its home writes there, a third asks for the page beside it.
fn offered() -> Vec<Vec<Op>> {
    let (one, beside) = (word(0, 0), word(1, 0));
    let (still, calm) = (word(0, 3), word(1, 3));
    let home = |value| [Op::Write(one, value), Op::Barrier];
    let taker = [Op::Read(still), Op::Barrier, Op::Read(one), Op::Barrier];
    vec![
        [
            &[Op::Write(beside, 1), Op::Barrier][..],
            &home(1),
            &[Op::Barrier],
            &home(2),
            &[Op::Barrier],
            &home(3),
            &[Op::Barrier],
        ]
        .concat(),
        [&[Op::Barrier][..], &taker, &taker, &taker].concat(),
        [
            Op::Barrier,
            Op::Barrier,
            Op::Barrier,
            Op::Read(calm),
            Op::Barrier,
            Op::Read(beside),
            Op::Barrier,
            Op::Barrier,
            Op::Barrier,
        ]
        .to_vec(),
    ]
}
