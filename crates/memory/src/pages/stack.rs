//! A stack for the fault handler in each thread.
//!
//! The handler does the runtime's work, which needs more than a few kilobytes; and the stack of the program may be
//! what has just overflowed. Threads that were prepared have an alternate stack with room enough. Others may have one that is made for
//! less (Rust's library gives its threads one, Python's faulthandler replaces the main thread's): there the handler's work
//! moves to a stack of its own.

use super::PAGE_BYTES;
use super::sys::View;
use std::cell::RefCell;
use std::io;

const STACK_BYTES: usize = 256 << 10;

/// A thread's alternate stack, with a guard page below it.
struct Stack(View);

thread_local! {
    static STACK: RefCell<Option<Stack>> = const { RefCell::new(None) };
}

/// Sets an alternate stack, or asks for it; returns what was there.
fn alternate(new: Option<&libc::stack_t>) -> io::Result<libc::stack_t> {
    let mut old = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: reads one description or none and writes one; what is set here is memory that lives until it is unset.
    match unsafe { libc::sigaltstack(new, &raw mut old) } {
        0 => Ok(old),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the calling thread an alternate stack of [`STACK_BYTES`] unless it has one that large.
pub fn provide() -> io::Result<()> {
    let there = alternate(None)?;
    if there.ss_flags & libc::SS_DISABLE == 0 && there.ss_size >= STACK_BYTES {
        return Ok(());
    }
    let stack = Stack::new()?;
    alternate(Some(&libc::stack_t { ss_sp: stack.start(), ss_flags: 0, ss_size: STACK_BYTES }))?;
    // At the thread's very end there is nowhere to keep it, and it goes again.
    let _ = STACK.try_with(|own| own.replace(Some(stack)));
    Ok(())
}

/// Does `work` where there is room for it: on the stack in use, or beside an alternate stack that is too small. True if it was the stack in use; else
/// the end of the signal handler has the thread's alternate stack to restore.
pub fn with_room(work: &mut dyn FnMut()) -> bool {
    let marker = 0_u8;
    let here = std::ptr::from_ref(&marker).addr();
    // At the thread's very end it has no alternate stack of Comem's any more.
    let top = STACK.try_with(|own| {
        let mut own = own.try_borrow_mut().ok()?;
        if own.as_ref().is_some_and(|own| own.holds(here)) || !on_a_small_stack() {
            return None;
        }
        if own.is_none() {
            *own = Stack::new().ok();
        }
        own.as_ref().map(Stack::top)
    });
    let top = top.ok().flatten();
    match top {
        Some(top) => move_to(top, work),
        None => work(),
    }
    top.is_none()
}

fn on_a_small_stack() -> bool {
    alternate(None).is_ok_and(|there| there.ss_flags & libc::SS_ONSTACK != 0 && there.ss_size < STACK_BYTES)
}

/// Does `work` on the stack that ends at `top`, which nobody uses.
///
/// The new stack becomes the alternate one, or the next signal would begin at the top of the old one, over what is in use
/// there. Between the move and that no signal may come. The end of the signal handler restores the old one by itself.
#[cfg(target_arch = "x86_64")]
fn move_to(top: usize, work: &mut dyn FnMut()) {
    struct Move<'a> {
        top: usize,
        mask: libc::sigset_t,
        work: &'a mut dyn FnMut(),
    }
    extern "C" fn run(this: *mut Move<'_>) {
        // SAFETY: the pointer that `move_to` passes, to what outlives the call.
        let this = unsafe { &mut *this };
        let start = std::ptr::with_exposed_provenance_mut(this.top - STACK_BYTES);
        let own = alternate(Some(&libc::stack_t { ss_sp: start, ss_flags: 0, ss_size: STACK_BYTES }));
        set_mask(&this.mask);
        if own.is_ok() {
            (this.work)();
        }
    }
    // SAFETY: all-zero bytes are a valid set, which sigfillset fills.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes to one set of ours.
    unsafe { libc::sigfillset(&raw mut all) };
    let mut this = Move { top, mask: set_mask(&all), work };
    // SAFETY: the new stack is aligned, has room, and is the thread's own. The old stack pointer waits in a register that
    // calls preserve; `run` does not unwind.
    unsafe {
        std::arch::asm!("mov r12, rsp", "mov rsp, {top}", "call {run}", "mov rsp, r12", top = in(reg) top,
            run = in(reg) run as extern "C" fn(*mut Move<'_>), in("rdi") &raw mut this, out("r12") _,
            clobber_abi("C"));
    }
}

/// Exchanges the calling thread's blocked signals.
#[cfg(target_arch = "x86_64")]
fn set_mask(mask: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: all-zero bytes are a valid set.
    let mut old: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: reads one set and writes one.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::from_ref(mask), &raw mut old) };
    old
}

#[cfg(not(target_arch = "x86_64"))]
fn move_to(_: usize, work: &mut dyn FnMut()) {
    work();
}

impl Stack {
    fn new() -> io::Result<Stack> {
        let view = View::new(None, STACK_BYTES + PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE, None)?;
        view.mprotect(0, PAGE_BYTES, libc::PROT_NONE)?;
        Ok(Stack(view))
    }

    fn holds(&self, address: usize) -> bool {
        (self.0.start()..self.top()).contains(&address)
    }

    /// Where it ends, and use begins.
    fn top(&self) -> usize {
        self.0.start() + self.0.bytes()
    }

    fn start(&self) -> *mut libc::c_void {
        std::ptr::with_exposed_provenance_mut(self.0.start() + PAGE_BYTES)
    }
}

impl Drop for Stack {
    /// At the thread's end, or when somebody had taken the stack away and it got a new one.
    fn drop(&mut self) {
        let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        if alternate(None).is_ok_and(|there| there.ss_sp == self.start()) {
            let _ = alternate(Some(&none));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::probe::Pipe;
    use super::*;

    #[test]
    fn a_thread_gets_one_stack_with_nothing_below_it() {
        let provided = || {
            provide().unwrap();
            alternate(None).unwrap().ss_sp.addr()
        };
        std::thread::spawn(move || {
            let (start, pipe) = (provided(), Pipe::new().unwrap());
            assert_eq!(provided(), start);
            let ends = [start - 1, start, start + STACK_BYTES - 1].map(|at| pipe.load(at).is_some());
            assert_eq!(ends, [false, true, true]);
        })
        .join()
        .unwrap();
    }
}
