//! Node 0's side: CREATE gives an order to a free slot, WAIT_FOR_END waits for workers to have carried theirs out.

use super::control::Order;
use super::{Given, Process, exit, libraries, locked, pointers, semaphore, stand_in, worker};
use crate::failure::{Code, Failure, Outcome};
use crate::job;
use std::sync::atomic::{AtomicBool, Ordering};

/// A slot, as node 0 sees it.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// The last order's serial, and whether it is known to have been carried out.
    serial: u64,
    busy: bool,
    /// Whether a thread waits for orders there (in a job of one node they start when first needed).
    exists: bool,
}

/// What node 0 knows of its workers.
pub struct Creator {
    slots: Vec<Slot>,
    /// Workers that were not waited for yet.
    outstanding: usize,
    /// How often main has created workers with none at work.
    round: u32,
    /// The libraries of all nodes have been compared.
    compared: bool,
}

impl Creator {
    pub fn new(slots: usize) -> Creator {
        Creator { slots: vec![Slot::default(); slots], outstanding: 0, round: 0, compared: false }
    }

    /// Workers that were not waited for yet.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// The round that main is in: with none at work, the one that begins with its next CREATE.
    pub fn round_of_main(&self) -> u32 {
        self.round + u32::from(self.outstanding == 0)
    }
}

/// There has been a worker.
static CREATED: AtomicBool = AtomicBool::new(false);

/// Whether `main` is all that has run so far.
pub fn nobody_was_created(process: &Process) -> bool {
    process.job.node() == 0 && !CREATED.load(Ordering::Relaxed)
}

fn misuse(what: String) -> Failure {
    Failure::new(Code::Misuse, what)
}

/// Only main's thread may create workers and wait for them.
fn check_caller(macro_name: &str) -> Outcome<()> {
    match (job::thread()?.id(), worker::in_work()) {
        (0, None) => Ok(()),
        (slot, _) => Err(misuse(format!(
            "{macro_name} was called by the worker in slot {slot}; only main() may: let it create all workers"
        ))),
    }
}

/// CREATE: starts a function on the next free slot. When no other is free, and main only creates (`main_waits`), that
/// is main's own:
/// then it runs as soon as main waits.
pub fn create(process: &'static Process, given: Given, main_waits: bool) -> Outcome<()> {
    check_caller("CREATE")?;
    exit::watch_before_destructors();
    let mut creator = locked(&process.creator);
    let is_free = |slot: &usize| !creator.slots[*slot].busy;
    let mains = Some(0).filter(|_| main_waits && process.job.nodes() > 1);
    let Some(slot) = (1..process.slots()).find(is_free).or(mains.filter(is_free)) else {
        return Err(no_slot(process, creator.outstanding));
    };
    let node = process.node_of(slot);
    if node != 0
        && let Some(what) = pointers::private(given.argument)
    {
        return Err(private_argument(given.argument, what));
    }
    let mut order = Order {
        function: given.function as usize,
        argument: given.argument,
        round: creator.round_of_main(),
        serial: creator.slots[slot].serial + 1,
        ..Order::default()
    };
    if process.job.nodes() == 1 {
        if !creator.slots[slot].exists {
            worker::start_thread(process, slot)?;
            creator.slots[slot].exists = true;
        }
    } else if node != 0 {
        compare_libraries(process, &mut creator)?;
        let busy = |at: usize| creator.slots[at].busy;
        let node_is_idle = !(0..process.slots()).any(|at| process.node_of(at) == node && busy(at));
        let all_idle = !(0..process.slots()).any(busy);
        if pointers::wanted() {
            let mut pieces = process.job.pieces();
            pieces.retain(|piece| !process.globals.is_store(piece.start));
            pointers::check_shared(&pieces)?;
        }
        order.version = process.globals.version_for(process, node, node_is_idle, all_idle)?;
    }
    if process.job.nodes() > 1 && creator.outstanding == 0 {
        job::thread()?.end_setup();
    }
    creator.round = order.round;
    CREATED.store(true, Ordering::Relaxed);
    exit::flush_output(); // what main has printed stands before what the worker will
    process.control.give(slot, order);
    creator.slots[slot].serial = order.serial;
    creator.slots[slot].busy = true;
    creator.outstanding += 1;
    if slot == 0 {
        return stand_in::engage(process);
    }
    job::thread()?.sem_post(semaphore::order(slot));
    Ok(())
}

fn private_argument(argument: usize, what: &str) -> Failure {
    Failure::new(
        Code::Argument,
        format!(
            "CREATE_WITH_ARG was given {argument:#x}, which points to {what} of node 0 and means nothing to a worker \
             of another node; let it point to memory of G_MALLOC or to a global variable, or pass a number itself"
        ),
    )
}

fn no_slot(process: &Process, outstanding: usize) -> Failure {
    let (nodes, threads) = (process.job.nodes(), process.job.threads_per_node());
    let needed = (outstanding + 1).div_ceil(nodes).max(threads + 1);
    misuse(match nodes {
        1 => format!(
            "CREATE of more than {outstanding} workers at once; one node has no room for more: start more nodes (-n)"
        ),
        _ => format!(
            "CREATE of worker {}, but {nodes} nodes of {threads} threads have no free slot; start the job with -t \
             {needed} or more (nodes times -t is at least the number of workers, and one more if main works as well)",
            outstanding + 1
        ),
    })
}

/// Before the first worker of another node: pointers to the C library, in globals and everywhere, must mean the same
/// there.
fn compare_libraries(process: &Process, creator: &mut Creator) -> Outcome<()> {
    if creator.compared {
        return Ok(());
    }
    let thread = job::thread()?;
    (1..process.job.nodes()).try_for_each(|_| thread.checked_sem_wait(semaphore::ready()))?;
    for node in 1..process.job.nodes() {
        if let Some(difference) = libraries::difference(&process.libraries, &process.control.description(node)) {
            return Err(Failure::new(Code::Start, format!("node {node} {difference}")));
        }
    }
    creator.compared = true;
    Ok(())
}

/// WAIT_FOR_END.
pub fn wait(process: &Process, n: i32) -> Outcome<()> {
    check_caller("WAIT_FOR_END")?;
    let outstanding = locked(&process.creator).outstanding;
    let n = match usize::try_from(n) {
        Ok(n) if n <= outstanding => n,
        // Where CREATE(f, n) counts the caller, so may this.
        Ok(n) if n == outstanding + 1 => outstanding,
        _ => {
            return Err(misuse(format!(
                "WAIT_FOR_END({n}), but {outstanding} workers were created and not waited for yet; say their number"
            )));
        }
    };
    wait_for(process, n)
}

/// Waits for so many workers to end.
pub fn wait_for(process: &Process, n: usize) -> Outcome<()> {
    stand_in::work();
    let thread = job::thread()?;
    for _ in 0..n {
        thread.checked_sem_wait(semaphore::end())?;
    }
    let mut creator = locked(&process.creator);
    creator.outstanding -= n;
    for (index, slot) in creator.slots.iter_mut().enumerate().filter(|(_, slot)| slot.busy) {
        slot.busy = process.control.carried_out(index) != slot.serial;
    }
    Ok(())
}

/// Tells every worker that there is no more work, those of this node too: what they ask for is under way until it is
/// answered.
pub fn dismiss(process: &Process) -> Outcome<()> {
    if process.job.nodes() == 1 {
        return Ok(());
    }
    let thread = job::thread()?;
    for slot in 1..process.slots() {
        process.control.give(slot, Order::default());
        thread.sem_post(semaphore::order(slot));
    }
    Ok(())
}
