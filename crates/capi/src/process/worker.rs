//! A worker's side: it waits for an order, takes the globals that belong to it, runs the function, and says that it is
//! done.

use super::control::Order;
use super::{Process, Work, exit, locked, semaphore};
use crate::failure::{Code, Failure, Outcome, call, report};
use crate::job;
use comem_rt::Thread;
use std::cell::Cell;

thread_local! {
    /// The slot and serial of the order that this thread carries out.
    static IN_WORK: Cell<Option<(usize, u64)>> = const { Cell::new(None) };
    /// The round of that order.
    static ROUND: Cell<u32> = const { Cell::new(0) };
    /// This thread's number in a round, once GET_PID has asked for it.
    static NUMBER: Cell<Option<(u32, u32)>> = const { Cell::new(None) };
}

/// The slot and serial of what this thread works at.
pub fn in_work() -> Option<(usize, u64)> {
    IN_WORK.get()
}

/// A thread for each further slot of this node; in a job of one node they start when first needed.
pub fn start_threads(process: &'static Process) -> Outcome<()> {
    if process.job.nodes() == 1 {
        return Ok(());
    }
    let (node, threads) = (process.job.node(), process.job.threads_per_node());
    (1..threads).try_for_each(|place| start_thread(process, node * threads + place))
}

/// A thread for one slot, with as much stack as the C library gives its own.
pub fn start_thread(process: &'static Process, slot: usize) -> Outcome<()> {
    let body = move || {
        let work = || {
            process.job.take_place(process.place_of(slot))?;
            serve(process, slot)
        };
        if let Err(failure) = work() {
            report(&failure);
        }
    };
    let builder = std::thread::Builder::new().name(format!("comem-{slot}")).stack_size(comem_rt::stack_bytes());
    let spawned = builder.spawn(body);
    spawned.map(drop).map_err(|e| Failure::new(Code::System, format!("cannot start a thread for slot {slot}: {e}")))
}

/// Carries out the orders to a slot until there are no more.
pub fn serve(process: &'static Process, slot: usize) -> Outcome<()> {
    serve_as(&*job::thread()?, process, slot)
}

/// Says that an order is carried out, and carries out further ones until there are no more.
pub fn go_on(process: &'static Process, slot: usize, serial: u64) -> Outcome<()> {
    let thread = job::thread()?;
    done_with(process, slot, serial)?;
    serve_as(&thread, process, slot)
}

/// The thread has been found before the last order was done: afterwards the job may be over for this process before the
/// thread looks for its next order.
fn serve_as(thread: &Thread, process: &'static Process, slot: usize) -> Outcome<()> {
    loop {
        thread.checked_sem_wait(semaphore::order(slot))?;
        let order = process.control.order(slot);
        if order.function == 0 {
            return Ok(());
        }
        {
            // Who comes first brings the node's globals to where they were at CREATE.
            let mut version = locked(&process.version);
            // SAFETY: node 0 wrote the versions before the order. Where the node was idle, no worker of it is at work
            // before this.
            unsafe { process.globals.bring(&version, &order.version)? };
            *version = version.later(order.version);
        }
        thread.begin_work();
        carry_out(slot, &order);
        done_with(process, slot, order.serial)?;
    }
}

/// Calls the function that an order names.
pub fn carry_out(slot: usize, order: &Order) {
    IN_WORK.set(Some((slot, order.serial)));
    ROUND.set(order.round);
    NUMBER.set(None);
    // SAFETY: the address of a function that the program gave to CREATE; the program is at the same address on every
    // node.
    let work = unsafe { std::mem::transmute::<usize, Work>(order.function) };
    // SAFETY: the program wants it called like this; a function without parameters leaves the argument alone.
    call("the function of a CREATE", || unsafe { work(std::ptr::with_exposed_provenance_mut(order.argument)) });
}

/// GET_PID: how many of the workers of this time, and main, have asked before this one did first.
pub fn number(process: &Process) -> Outcome<u32> {
    let round = if in_work().is_some() { ROUND.get() } else { locked(&process.creator).round_of_main() };
    if let Some((of, number)) = NUMBER.get()
        && of == round
    {
        return Ok(number);
    }
    let number = process.control.number_in(round)?;
    NUMBER.set(Some((round, number)));
    Ok(number)
}

/// Says that an order is carried out; its output goes out first.
pub fn done_with(process: &Process, slot: usize, serial: u64) -> Outcome<()> {
    IN_WORK.set(None);
    exit::flush_output();
    process.control.set_carried_out(slot, serial);
    job::thread()?.sem_post(semaphore::end());
    Ok(())
}

/// The main thread of a node other than the first: works, leaves the job, and exits.
pub fn serve_node(process: &'static Process) -> ! {
    let slot = process.job.node() * process.job.threads_per_node();
    if let Err(failure) = serve(process, slot) {
        report(&failure);
    }
    exit::leave_and_exit()
}
