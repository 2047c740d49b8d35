//! The side of a benchmark that runs as the nodes of a job.
//!
//! Node 0 measures, block by block: so many operations of Comem, then so many exchanges of plain datagrams, so that
//! whatever disturbs the machine disturbs both. Node 1's thread blocks in a plain socket meanwhile: what node 0 reads
//! is answered by node 1's service thread, as in a program that computes. Each node keeps to one core. Node 0 prints
//! the blocks' medians as one line of JSON.

use crate::access;
use crate::echo::{HOLD, Peer, Request, Wait, host_ns};
use crate::objects::Objects;
use crate::shared;
use clap::{Args, ValueEnum};
use comem::{Comem, Engine, Home, LockId, NodeId, ObjectArray, ObjectOptions, Thread};
use comem_bench::sample::{Comparison, median};
use serde_json::{Value, json};
use std::hint::black_box;
use std::io;
use std::time::Instant;

/// The lock that both nodes want all the time.
const QUEUED: LockId = LockId(100);

/// What a node is to do.
#[derive(Args, Clone, Debug)]
pub struct Task {
    /// What to measure
    #[arg(value_enum)]
    pub what: What,
    /// How many blocks
    #[arg(long, default_value_t = 40)]
    pub blocks: usize,
    /// How many operations in a block
    #[arg(long, default_value_t = 300)]
    pub rounds: usize,
    /// How many pages change in a round (`refetch`, `release`)
    #[arg(long, default_value_t = 14)]
    pub pages: u16,
    /// Whole pages change, not one word of each (`release`)
    #[arg(long)]
    pub whole: bool,
    /// Every core computes (`pages`)
    #[arg(long)]
    pub busy: bool,
    /// How many of the other node's pages are cached (`memory`, `cached-barrier`)
    #[arg(long, default_value_t = shared::node::STREAM_PAGES)]
    pub cached: usize,
}

/// What a node can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Reads of an element that the other node owns.
    Ping,
    /// Barriers.
    Barrier,
    /// A lock that rests with the other node.
    Lock,
    /// A lock that the other node holds and this one waits for, by turns.
    Queue,
    /// Reads of elements of shared objects that are here, under `direct` and under `msi`.
    ObjectReadHits,
    /// Writes of such elements.
    ObjectWriteHits,
    /// Reads of elements that their home has written since.
    ObjectReadMisses,
    /// Writes of such elements.
    ObjectWriteMisses,
    /// Ranges that are here, against plain slices.
    Range,
    /// Reads that hit, `rounds` of them, to have their instructions counted.
    ReadHits,
    /// Plain reads, as many.
    ReadPlain,
    /// Writes that hit.
    WriteHits,
    /// Plain writes.
    WritePlain,
    /// Scattered faults on fresh shared pages that are at home on the other node.
    Pages,
    /// Fresh shared pages in order.
    Stream,
    /// The same, those that never were here alone.
    FirstTouch,
    /// Shared pages that were in use and that a barrier invalidated.
    Refetch,
    /// Locks last held here, beside written shared pages.
    Relock,
    /// Barriers after some of a thousand cached shared pages were written.
    Release,
    /// Barriers with pages cached and none written.
    CachedBarrier,
    /// Memory that a node takes for copies, and for a large allocation.
    Memory,
}

impl What {
    fn is_of_objects(self) -> bool {
        let all = [What::ObjectReadHits, What::ObjectWriteHits, What::ObjectReadMisses, What::ObjectWriteMisses];
        all.contains(&self)
    }

    fn is_of_one_node(self) -> bool {
        let all = [What::Range, What::ReadHits, What::ReadPlain, What::WriteHits, What::WritePlain];
        all.contains(&self)
    }
}

/// Takes part in a job.
///
/// # Errors
/// A sentence about what went wrong.
pub fn run(task: &Task) -> Result<(), String> {
    match task.what {
        What::Ping | What::Barrier | What::Lock | What::Queue => exchanges(task),
        what if what.is_of_objects() => exchanges(task),
        what if what.is_of_one_node() => access::in_one_node(task),
        _ => between_two_nodes(task, &|_, comem, thread, peer| shared::node::side(task, comem, thread, peer)),
    }
}

/// Node 0 measures, and node 1 does what it is asked.
fn exchanges(task: &Task) -> Result<(), String> {
    between_two_nodes(task, &|bed, _, thread, peer| match thread.id() {
        0 => bed.measure(thread, peer, task),
        _ => bed.serve(thread, peer).map(|()| Value::Null),
    })
}

/// What each of two nodes does, after their plain sockets have met; node 0's value is printed.
type Side<'a> = &'a (dyn Fn(&TestBed, &Comem, &Thread, &Peer) -> io::Result<Value> + Sync);

fn between_two_nodes(task: &Task, side: Side<'_>) -> Result<(), String> {
    keep_to_one_core();
    let comem = comem::start().map_err(|e| e.to_string())?;
    if comem.threads() != 2 || comem.nodes() != 2 {
        return Err("this measurement takes two nodes of one thread: comem run -n 2 …".to_string());
    }
    let bed = TestBed::new(&comem, task).map_err(|e| e.to_string())?;
    let measured = std::sync::Mutex::new(Value::Null);
    comem.parallel(|thread| {
        let value = bed.meet(thread).and_then(|peer| side(&bed, &comem, thread, &peer)).unwrap_or_else(|why| {
            // The other node waits for this one somewhere: the job ends here.
            eprintln!("comem-bench: the measurement failed: {why}");
            std::process::exit(1);
        });
        // Without coherence: what was fetched is not fetched again, and counted.
        if let Err(why) = thread.checked_rendezvous() {
            eprintln!("comem-bench: the nodes do not end together: {why}");
            std::process::exit(1);
        }
        *measured.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = value;
    });
    let is_first = comem.node() == 0;
    comem.finish().map_err(|e| e.to_string())?;
    if is_first {
        println!("{}", measured.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }
    Ok(())
}

/// Keeps this process, and the threads that it will start, to the core of its node.
fn keep_to_one_core() {
    let node: usize = std::env::var("COMEM_NODE").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let cores = comem::bind::allowed_cores();
    let Some(core) = cores.get(node % cores.len().max(1)) else { return };
    // SAFETY: the set is plain data of ours; the call only reads it. A refusal leaves things as they are.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(*core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// How this job waits, and so the plain sockets.
fn way_of_waiting() -> Wait {
    if std::env::var("COMEM_WAIT").as_deref() == Ok("spin") { Wait::Spin } else { Wait::Block }
}

/// What the two nodes share.
struct TestBed {
    /// The ports of the plain sockets.
    ports: ObjectArray<u64>,
    /// Lives at node 1; every access from node 0 is a request and a reply.
    remote: ObjectArray<u64>,
    /// When node 1 had the queued lock: the begin and the end of each time, in nanoseconds.
    held: ObjectArray<u64>,
    /// What accesses to objects are measured on.
    objects: Option<Objects>,
}

impl TestBed {
    fn new(comem: &Comem, task: &Task) -> comem::Result<TestBed> {
        let msi = ObjectOptions { engine: Some(Engine::Msi), ..ObjectOptions::default() };
        let remote =
            ObjectOptions { engine: Some(Engine::Owner), home: Home::On(NodeId(1)), ..ObjectOptions::default() };
        let objects = task.what.is_of_objects().then(|| Objects::new(comem, task.rounds)).transpose()?;
        Ok(TestBed {
            ports: comem.object_array_with(2, &msi)?,
            held: comem.object_array_with(2 * task.rounds, &msi)?,
            remote: comem.object_array_with(8, &remote)?,
            objects,
        })
    }

    /// Connects this node's plain socket with the other node's.
    fn meet(&self, thread: &Thread) -> io::Result<Peer> {
        let peer = Peer::bind(way_of_waiting()).map(|p| p.with_pages(shared::node::SOURCE_PAGES));
        let port = peer.as_ref().map_or(Ok(0), |p| p.port()).unwrap_or(0);
        self.ports.write(thread, thread.id(), u64::from(port));
        thread.barrier();
        let other = u16::try_from(self.ports.read(thread, 1 - thread.id())).unwrap_or(0);
        let peer = peer?;
        peer.connect(other)?;
        thread.barrier();
        Ok(peer)
    }

    fn serve(&self, thread: &Thread, peer: &Peer) -> io::Result<()> {
        peer.serve(|request| match request {
            Request::Barriers(count) => (0..count).for_each(|_| thread.barrier()),
            Request::Lock(number) => thread.locked(LockId(u64::from(number)), || ()),
            Request::Queue(count) => {
                for (number, [begin, end]) in queue(thread, count as usize).into_iter().enumerate() {
                    self.held.write(thread, 2 * number, begin);
                    self.held.write(thread, 2 * number + 1, end);
                }
                thread.barrier();
            }
            Request::Take => self.objects.iter().for_each(|objects| objects.take(thread)),
            _ => {}
        })
    }

    fn measure(&self, thread: &Thread, peer: &Peer, task: &Task) -> io::Result<Value> {
        if let Some(objects) = &self.objects {
            return objects.measure(thread, peer, task);
        }
        let mut comparison = Comparison { per_block: task.rounds, ..Comparison::default() };
        let mut same = Vec::new();
        // The first block warms up and does not count.
        for block in 0..=task.blocks {
            let ours = match task.what {
                What::Barrier => barriers(thread, peer, task.rounds)?,
                What::Lock => locks(self, thread, peer, task.rounds)?,
                What::Queue => {
                    peer.ask(Request::Queue(task.rounds as u32))?;
                    let mine = queue(thread, task.rounds);
                    thread.barrier();
                    let at = |place| self.held.read(thread, place);
                    let theirs: Vec<_> = (0..task.rounds).map(|n| [at(2 * n), at(2 * n + 1)]).collect();
                    hand_overs(&mine, &theirs)
                }
                _ => self.reads(thread, task.rounds),
            };
            let bare = timed(task.rounds, || peer.ask(Request::Echo))?;
            if ours.is_empty() {
                return Err(io::Error::other("the lock never went from one node to the other"));
            }
            let alike = bare_alike(task, peer)?;
            if block > 0 {
                comparison.push(median(&ours), median(&bare));
                same.extend(alike.map(|times| median(&times)));
            }
        }
        peer.ask(Request::Stop)?;
        Ok(json!({"ours": comparison.ours, "base": comparison.base, "same": same, "per_block": comparison.per_block}))
    }

    fn reads(&self, thread: &Thread, rounds: usize) -> Vec<f64> {
        let read = || -> io::Result<()> {
            black_box(self.remote.read(thread, 3));
            Ok(())
        };
        timed(rounds, read).unwrap_or_default()
    }
}

/// The same by plain datagrams, where it is less than an exchange; `None` where it is one.
fn bare_alike(task: &Task, peer: &Peer) -> io::Result<Option<Vec<f64>>> {
    let count = task.rounds as u32;
    match task.what {
        What::Barrier => {
            peer.ask(Request::Meet(count))?;
            timed(task.rounds, || peer.meet()).map(Some)
        }
        What::Queue => {
            peer.ask(Request::Pass(count))?;
            peer.pass(task.rounds).map(Some)
        }
        _ => Ok(None),
    }
}

fn barriers(thread: &Thread, peer: &Peer, rounds: usize) -> io::Result<Vec<f64>> {
    peer.ask(Request::Barriers(rounds as u32 + 1))?;
    thread.barrier();
    timed(rounds, || {
        thread.barrier();
        Ok(())
    })
}

/// Takes a lock that the other node took last, again and again, in turn with that node; of the eight locks half are
/// managed by either node.
fn locks(bed: &TestBed, thread: &Thread, peer: &Peer, rounds: usize) -> io::Result<Vec<f64>> {
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let number = 1 + (round % 8) as u32;
        peer.ask(Request::Lock(number))?;
        // The other node's service thread has just answered something, like the plain socket's thread.
        black_box(bed.remote.read(thread, 3));
        let lock = LockId(u64::from(number));
        let start = Instant::now();
        let held = thread.lock(lock);
        times.push(start.elapsed().as_secs_f64() * 1e6);
        drop(held);
    }
    Ok(times)
}

/// Takes a lock so many times beside the other node, which does the same: each holds it until the other has asked for
/// it. Gives when it was held, from when to when, in nanoseconds of the host's clock.
fn queue(thread: &Thread, rounds: usize) -> Vec<[u64; 2]> {
    let hold = |_| {
        let held = thread.lock(QUEUED);
        let begin = host_ns();
        let mut end = begin;
        while end < begin + HOLD.as_nanos() as u64 {
            std::hint::spin_loop();
            end = host_ns();
        }
        drop(held);
        [begin, end]
    };
    (0..rounds).map(hold).collect()
}

/// From one node's release of a lock to the acquisition by the other that comes next, in microseconds. A node that took
/// the lock twice in a row was not handed it.
fn hand_overs(mine: &[[u64; 2]], theirs: &[[u64; 2]]) -> Vec<f64> {
    let mut held: Vec<_> = mine.iter().map(|held| (*held, 0)).chain(theirs.iter().map(|held| (*held, 1))).collect();
    held.sort_unstable();
    let changes = held.windows(2).filter(|pair| pair[0].1 != pair[1].1);
    changes.map(|pair| pair[1].0[0].saturating_sub(pair[0].0[1]) as f64 / 1e3).collect()
}

/// Does something so many times; gives the microseconds that each took.
pub fn timed(rounds: usize, mut operation: impl FnMut() -> io::Result<()>) -> io::Result<Vec<f64>> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        operation()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_handed_over_where_the_other_node_has_it_next() {
        // Node 0, node 0 again, node 1, node 0.
        let (mine, theirs) = ([[1_000, 2_000], [2_500, 4_000], [9_000, 10_000]], [[7_000, 8_500]]);
        assert_eq!(hand_overs(&mine, &theirs), [3.0, 0.5]);
        assert_eq!(hand_overs(&mine, &[]), [0.0; 0]);
    }
}
