//! Quarks, as its own programs call it (M. Swanson, L. Stoller, J. Carter, "Making Distributed Shared Memory Simple,
//! Yet Efficient", HIPS 1998).
//!
//! The master runs `main`; the other nodes wait in `Qk_init` for *letters*: a region was created or destroyed, a
//! function shall be run, the job ends. A fork is a release by the master and an acquire by the node, by a flag of the
//! node's; the end of the function is the same the other way round, by another flag.

use super::load_address::LoadAddress;
use super::tagged_messages::{TaggedMessage, TaggedMessages};
use super::{argument, begin, elapsed, keep_letters, misuse};
use crate::buffer;
use crate::failure::{Outcome, call, done, reported};
use crate::job::{comem_finish, job, thread};
use comem_rt::heap::RegionOptions;
use comem_rt::{FlagId, LockId, SubsetBarrierId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulong, c_void};

/// Kinds of letters.
const REGION: u8 = 1;
const GONE: u8 = 2;
const FORK: u8 = 3;
const END: u8 = 4;

/// The flags of forks and ends of forked functions; the node's number is added.
const FORKED: u64 = 1 << 40;
const RETURNED: u64 = 1 << 41;

/// A region of shared memory.
#[derive(Clone, Copy, Debug)]
struct Region {
    address: usize,
    /// The creator's variable with its address, if it is one of the program's.
    variable: Option<usize>,
    /// Whether this node created it.
    mine: bool,
}

#[derive(Debug, Default)]
struct Quarks {
    image: LoadAddress,
    letters: TaggedMessages,
    regions: BTreeMap<c_ulong, Region>,
    /// The nodes with a forked function that the master has not waited for, from 1 on.
    forked: usize,
    /// How often each node was forked to; at another node its own number of forks.
    forks: BTreeMap<usize, u64>,
    /// Locks and barriers made here.
    names: c_ulong,
    shut_down: bool,
}

thread_local! {
    static QUARKS: RefCell<Quarks> = RefCell::default();
}

/// Numbers in a letter.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word))
}

fn bytes(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

impl Quarks {
    fn tell_all(&mut self, kind: u8, content: &[u64]) -> Outcome<()> {
        let me = job()?.node();
        for to in (0..job()?.nodes()).filter(|node| *node != me) {
            self.letters.send(to, kind, 0, &bytes(content))?;
        }
        Ok(thread()?.flush_posts()?)
    }

    /// News of a region.
    fn hear(&mut self, letter: &TaggedMessage) {
        let mut content = numbers(&letter.bytes);
        let (Some(id), address) = (content.next(), content.next()) else { return };
        match address {
            Some(address) if letter.kind == REGION => {
                let region = Region { address: address as usize, variable: None, mine: false };
                self.regions.entry(id).or_insert(region);
            }
            _ => {
                self.regions.remove(&id);
            }
        }
    }

    fn poll(&mut self) -> Outcome<()> {
        while let Some(letter) = self.letters.poll(|letter| matches!(letter.kind, REGION | GONE))? {
            self.hear(&letter);
        }
        Ok(())
    }

    /// The program's variable, by its name, which is to have the address of a region. It has no other's any more.
    fn take_variable(&mut self, address: usize) -> Option<usize> {
        let variable = self.image.variable(address, size_of::<c_ulong>())?;
        let regions = self.regions.values_mut();
        regions.filter(|region| region.variable == Some(variable)).for_each(|region| region.variable = None);
        Some(variable)
    }

    /// What a fork tells: the function, and the variables of the regions.
    fn fork_letter(&self, function: usize) -> Vec<u8> {
        let mine = self.regions.values().filter(|region| region.mine);
        let known = mine.filter_map(|region| Some([region.variable? as u64, region.address as u64]));
        bytes(&std::iter::once(function as u64).chain(known.flatten()).collect::<Vec<_>>())
    }

    /// Takes in a fork: sets the variables, and gives the function's address.
    fn forked_here(&mut self, letter: &TaggedMessage) -> Outcome<usize> {
        let content: Vec<u64> = numbers(&letter.bytes).collect();
        let (function, variables) = content.split_first().ok_or_else(|| misuse("a fork of nothing"))?;
        for [name, address] in variables.as_chunks::<2>().0 {
            let place = self.image.address(*name as usize);
            if self.image.variable(place, size_of::<usize>()).is_some() {
                // SAFETY: a variable of the program's, which it gave up to be set when it forked; nothing else runs
                // here.
                unsafe { (place as *mut usize).write_unaligned(*address as usize) };
            }
        }
        let function = self.image.address(*function as usize);
        let known = self.image.function(function);
        known.map(|_| function).ok_or_else(|| misuse("a fork of a function that this program does not have"))
    }
}

/// Takes in what has come of regions, which would pile up on a node that opens none.
fn hear_news() -> Outcome<()> {
    QUARKS.with_borrow_mut(Quarks::poll)
}

/// Another node than the master: does what it is told until the job ends.
fn attend() -> Outcome<()> {
    let me = job()?.node() as u64;
    let mut forks = 0;
    loop {
        let letter = QUARKS.with_borrow_mut(|quarks| quarks.letters.receive(|_| true))?;
        match letter.kind {
            FORK => {
                forks += 1;
                thread()?.flag_wait(FlagId(FORKED | me), forks);
                let address = QUARKS.with_borrow_mut(|quarks| quarks.forked_here(&letter))?;
                // SAFETY: code of this program, at the address of the function without arguments that the master
                // forked.
                let function = unsafe { std::mem::transmute::<usize, extern "C-unwind" fn()>(address) };
                call("the function of a Qk_fork", || function());
                thread()?.flag_set(FlagId(RETURNED | me), forks);
            }
            END => return Ok(()),
            _ => QUARKS.with_borrow_mut(|quarks| quarks.hear(&letter)),
        }
    }
}

/// `Qk_init`: joins the job, and says who is who; does not return but on the master.
///
/// # Safety
/// Called by `main`, before there are other threads; all point to variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_quarks_init_(
    node: *mut c_ulong,
    nodes: *mut c_int,
    master: *mut c_int,
    child: *mut c_int,
) {
    done(|| {
        // SAFETY: by this function's contract.
        unsafe { begin("Quarks", "hlrc") }?;
        keep_letters()?;
        QUARKS.with_borrow_mut(|quarks| quarks.image = LoadAddress::of_program());
        let me = job()?.node();
        // SAFETY: by this function's contract.
        unsafe {
            node.write(me as c_ulong + 1);
            nodes.write(job()?.nodes() as c_int);
            master.write(c_int::from(me == 0));
            child.write(c_int::from(me != 0));
        }
        if me == 0 {
            return Ok(());
        }
        attend()?;
        comem_finish();
        // SAFETY: ends the process as `main` would; by now nobody else needs it.
        unsafe { libc::exit(0) }
    });
}

/// Ends the job; the master's call.
#[unsafe(no_mangle)]
pub extern "C" fn Qk_shutdown(terminate: c_int) {
    done(|| {
        if !QUARKS.with_borrow(|quarks| quarks.shut_down) {
            if job()?.node() != 0 {
                return Ok(());
            }
            wait_for_forked()?;
            QUARKS.with_borrow_mut(|quarks| quarks.tell_all(END, &[]))?;
            QUARKS.with_borrow_mut(|quarks| quarks.shut_down = true);
            comem_finish();
        }
        if terminate != 0 {
            // SAFETY: ends the process as `main` would; by now nobody else needs it.
            unsafe { libc::exit(0) }
        }
        Ok(())
    });
}

fn fork(function: usize) -> Outcome<c_int> {
    let (me, nodes) = (job()?.node(), job()?.nodes());
    if me != 0 {
        return Err(misuse(format!("Qk_fork() on node {}; only the master, node 1, forks", me + 1)));
    }
    let thread = thread()?;
    QUARKS.with_borrow_mut(|quarks| {
        let to = quarks.forked + 1;
        if to >= nodes {
            return Err(misuse(format!(
                "Qk_fork() to node {}, but the job has {nodes} nodes; start it with -n {} or more",
                to + 1,
                to + 1
            )));
        }
        let name = quarks.image.function(function);
        let name = name.ok_or_else(|| argument("Qk_fork() of what is no function of the program"))?;
        let letter = quarks.fork_letter(name);
        quarks.forked = to;
        let forks = quarks.forks.entry(to).or_default();
        *forks += 1;
        thread.flag_set(FlagId(FORKED | to as u64), *forks);
        quarks.letters.send(to, FORK, 0, &letter)?;
        Ok(to as c_int + 1)
    })
}

/// Runs a function on the next node.
#[unsafe(no_mangle)]
pub extern "C" fn Qk_fork(function: *mut c_void) -> c_int {
    reported(|| fork(function.addr()), |code| code)
}

fn wait_for_forked() -> Outcome<()> {
    let (forked, forks) = QUARKS.with_borrow_mut(|q| (std::mem::take(&mut q.forked), q.forks.clone()));
    let thread = thread()?;
    for node in 1..=forked {
        thread.flag_wait(FlagId(RETURNED | node as u64), forks.get(&node).copied().unwrap_or(0));
    }
    hear_news()
}

/// Waits until the forked functions have returned.
#[unsafe(no_mangle)]
pub extern "C" fn Qk_wait_for_threads() {
    done(wait_for_forked);
}

fn create(id: c_ulong, size: usize, variable: *mut c_ulong) -> Outcome<()> {
    if variable.is_null() {
        return Err(argument("Qk_create_region() was given no variable for the address"));
    }
    let (exists, name) = QUARKS.with_borrow_mut(|quarks| {
        quarks.poll()?;
        Outcome::Ok((quarks.regions.contains_key(&id), quarks.take_variable(variable.addr())))
    })?;
    if exists {
        comem_rt::error::say(format_args!(
            "comem: Qk_create_region({id}): there is such a region already; open it, or take another number"
        ));
        // SAFETY: not null, and the program gave it for this purpose.
        unsafe { buffer::give(variable, 0) };
        return Ok(());
    }
    let options = RegionOptions { alignment: 4096, label: format!("region {id}"), ..RegionOptions::default() };
    let address = job()?.alloc_at(size, &options, "Qk_create_region")?.addr();
    QUARKS.with_borrow_mut(|quarks| {
        quarks.regions.insert(id, Region { address, variable: name, mine: true });
        quarks.tell_all(REGION, &[id, address as u64])
    })?;
    // SAFETY: as above.
    unsafe { buffer::give(variable, address as c_ulong) };
    Ok(())
}

/// Creates a region of shared memory.
#[unsafe(no_mangle)]
pub extern "C" fn Qk_create_region(id: c_ulong, size: c_ulong, variable: *mut c_ulong) {
    done(|| create(id, size as usize, variable));
}

/// Where a region is that another node has created.
#[unsafe(no_mangle)]
pub extern "C" fn Qk_open_region(id: c_ulong) -> c_ulong {
    let open = || {
        QUARKS.with_borrow_mut(|quarks| {
            quarks.poll()?;
            let region = quarks.regions.get(&id).map(|region| region.address as c_ulong);
            if region.is_none() {
                comem_rt::error::say(format_args!(
                    "comem: Qk_open_region({id}): there is no such region; create it first, and synchronise"
                ));
            }
            Ok(region.unwrap_or(0))
        })
    };
    reported(open, |_| 0)
}

/// This node does not use a region any more: there is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn Qk_close_region(_id: c_ulong) {}

/// Gives a region's memory back.
#[unsafe(no_mangle)]
pub extern "C" fn Qk_destroy_region(id: c_ulong) {
    done(|| {
        let region = QUARKS.with_borrow_mut(|quarks| quarks.poll().map(|()| quarks.regions.remove(&id)))?;
        let region = region.ok_or_else(|| argument(format!("Qk_destroy_region({id}): there is no such region")))?;
        job()?.free(std::ptr::with_exposed_provenance_mut(region.address))?;
        QUARKS.with_borrow_mut(|quarks| quarks.tell_all(GONE, &[id]))
    });
}

/// A number that no other node gives.
fn name() -> c_ulong {
    let named = || {
        let (me, nodes) = (job()?.node() as c_ulong, job()?.nodes() as c_ulong);
        QUARKS.with_borrow_mut(|quarks| {
            quarks.names += 1;
            Ok(quarks.names * nodes + me)
        })
    };
    reported(named, |_| 0)
}

/// A new lock.
#[unsafe(no_mangle)]
pub extern "C" fn Qk_newlock() -> c_ulong {
    name()
}

/// A new barrier.
#[unsafe(no_mangle)]
pub extern "C" fn Qk_newbarrier() -> c_ulong {
    name()
}

/// Acquires a lock.
#[unsafe(no_mangle)]
pub extern "C" fn Qk_acquire(lock: c_ulong) {
    done(|| {
        thread()?.raw_lock(LockId(lock))?;
        hear_news()
    });
}

/// Releases a lock.
#[unsafe(no_mangle)]
pub extern "C" fn Qk_release(lock: c_ulong) {
    done(|| Ok(thread()?.raw_unlock(LockId(lock))?));
}

/// Waits until so many nodes have come.
#[unsafe(no_mangle)]
pub extern "C" fn Qk_wait_barrier(barrier: c_ulong, crossers: c_int) {
    done(|| {
        let wrong = || argument(format!("a barrier of {crossers} nodes makes no sense; give a number from 1 on"));
        let crossers = usize::try_from(crossers).ok().filter(|crossers| *crossers > 0).ok_or_else(wrong)?;
        thread()?.checked_subset_barrier(SubsetBarrierId(barrier), crossers)?;
        hear_news()
    });
}

/// Milliseconds since `Qk_init`.
#[unsafe(no_mangle)]
pub extern "C" fn Qk_current_time() -> c_ulong {
    (elapsed() * 1e3) as c_ulong
}
