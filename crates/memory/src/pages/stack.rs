//! Stacks for the fault handler.
//!
//! The handler does the runtime's work, which needs far more room than the stack that it interrupts may have: that of
//! a thread with 16 KiB, or one that has just overflowed. What lies below a small stack would be overwritten without a
//! word. So the work never depends on it:
//!
//! - A thread that was prepared has an alternate stack of [`STACK_BYTES`] ([`provide`]), and the kernel itself moves
//!   to that.
//! - For any other thread the handler borrows a stack from a pool, as its first act ([`with_room`]). On the
//!   interrupted stack lies nothing but the kernel's record of the signal (3.5 KiB where the processor has AVX-512)
//!   and a few hundred bytes of the handler's.
//!
//! The pool's stacks are mapped when they are first used and stay. A thread tries the one that its thread pointer says
//! before others, so that threads which fault at the same time do not meet. Borrowing takes one atomic exchange, no
//! lock, no allocation and no storage of the thread's own, since the thread may be at its very beginning or end. Where
//! all are in use, a stack is mapped for the one signal.
//!
//! A thread may also have a small alternate stack (Rust's library gives its threads one, Python's faulthandler the
//! main thread). The work then moves on to a borrowed one, which becomes the alternate one meanwhile: or the next
//! signal would begin at the top of the small one, over what is in use there.

use super::PAGE_BYTES;
use std::cell::RefCell;
use std::io;

const STACK_BYTES: usize = 256 << 10;

/// Memory for a stack, with a guard page below it.
struct Stack {
    /// Where the guard page begins.
    base: usize,
}

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
    alternate(Some(&stack.description()))?;
    // At the thread's very end there is nowhere to keep it, and it goes again.
    let _ = STACK.try_with(|own| own.replace(Some(stack)));
    Ok(())
}

impl Stack {
    /// Maps one. Neither allocates nor locks.
    fn new() -> io::Result<Stack> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: the kernel chooses a place where nothing is.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), STACK_BYTES + PAGE_BYTES, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Stack { base: base.expose_provenance() };
        let bytes = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the part of this new mapping above its first page.
        match unsafe { libc::mprotect(stack.start(), STACK_BYTES, bytes) } {
            0 => Ok(stack),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Where it ends, and use begins.
    fn top(&self) -> usize {
        self.base + PAGE_BYTES + STACK_BYTES
    }

    /// Its lowest address above the guard page.
    fn start(&self) -> *mut libc::c_void {
        std::ptr::with_exposed_provenance_mut(self.base + PAGE_BYTES)
    }

    /// As an alternate stack.
    fn description(&self) -> libc::stack_t {
        libc::stack_t { ss_sp: self.start(), ss_flags: 0, ss_size: STACK_BYTES }
    }
}

impl Drop for Stack {
    /// At the thread's end, or when somebody had taken the stack away and it got a new one.
    fn drop(&mut self) {
        let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        if alternate(None).is_ok_and(|there| there.ss_sp == self.start()) {
            let _ = alternate(Some(&none));
        }
        let base = std::ptr::with_exposed_provenance_mut(self.base);
        // SAFETY: this mapping, which is no longer anybody's stack.
        unsafe { libc::munmap(base, STACK_BYTES + PAGE_BYTES) };
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use moved::with_room;

/// Does `work` on the stack in use.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub fn with_room(_context: *const libc::c_void, work: &mut dyn FnMut()) {
    work();
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod moved {
    use super::{STACK_BYTES, Stack, alternate};
    use std::mem::ManuallyDrop;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// What the handler's work may need of a stack.
    const ROOM_BYTES: usize = STACK_BYTES / 2;
    /// Stacks that stay.
    const POOL_STACKS: usize = 1024;
    /// Threads that do not meet begin at one of so many, so that no more are mapped without need.
    const FIRST_STACKS: usize = 64;

    /// A place for a stack that stays.
    #[repr(align(64))]
    struct Place {
        taken: AtomicBool,
        /// Of [`Stack`]; 0 until it is mapped.
        base: AtomicUsize,
    }

    static POOL: [Place; POOL_STACKS] =
        [const { Place { taken: AtomicBool::new(false), base: AtomicUsize::new(0) } }; POOL_STACKS];

    /// A stack that nobody else uses; it goes back when this is dropped.
    struct Borrowed {
        stack: ManuallyDrop<Stack>,
        /// `None`: it was mapped for this one use.
        place: Option<&'static Place>,
    }

    impl Borrowed {
        fn new() -> Option<Borrowed> {
            let first = thread_pointer() / 64 % FIRST_STACKS;
            let (before, after) = POOL.split_at(first);
            let take =
                |place: &&Place| !place.taken.load(Ordering::Relaxed) && !place.taken.swap(true, Ordering::Acquire);
            let place = after.iter().chain(before).find(take);
            let there = place.map_or(0, |place| place.base.load(Ordering::Relaxed));
            let stack = if there != 0 { Some(Stack { base: there }) } else { Stack::new().ok() };
            let Some(stack) = stack else {
                place.inspect(|place| place.taken.store(false, Ordering::Release));
                return None;
            };
            place.inspect(|place| place.base.store(stack.base, Ordering::Relaxed));
            Some(Borrowed { stack: ManuallyDrop::new(stack), place })
        }
    }

    impl Drop for Borrowed {
        fn drop(&mut self) {
            match self.place {
                Some(place) => place.taken.store(false, Ordering::Release),
                // SAFETY: nobody uses it, and this is the only drop.
                None => unsafe { ManuallyDrop::drop(&mut self.stack) },
            }
        }
    }

    /// A number of the calling thread's, spread over threads; found without touching what may not be there yet, or any
    /// more.
    fn thread_pointer() -> usize {
        let pointer: usize;
        // SAFETY: by the processor's ABI the first word of a thread's block is the block's address.
        unsafe { std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly)) };
        (pointer >> 12) ^ (pointer >> 6)
    }

    /// Does `work` where there is room for it, whatever stack the signal has come on. `context` is the kernel's record
    /// of the signal. When this returns, the thread's alternate stack and mask are as `work` has left them.
    pub fn with_room(context: *const libc::c_void, work: &mut dyn FnMut()) {
        // SAFETY: the kernel hands a handler with SA_SIGINFO a valid context.
        let alternate = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_stack };
        let marker = 0_u8;
        let below = std::ptr::from_ref(&marker).addr().wrapping_sub(alternate.ss_sp.addr());
        let on_alternate = below < alternate.ss_size;
        if on_alternate && below >= ROOM_BYTES {
            return work();
        }
        let Some(stack) = Borrowed::new() else {
            super::super::fault::end_without_stack();
        };
        // Where it is disarmed the kernel has taken it away for the time of the handler.
        const SS_AUTODISARM: i32 = 1 << 31;
        match on_alternate && alternate.ss_flags & SS_AUTODISARM == 0 {
            true => exchanged(&stack.stack, work),
            false => call_on(&stack.stack, work),
        }
    }

    /// Does `work` on a stack that is the thread's alternate one meanwhile. Between the exchange and the move no
    /// signal may come.
    fn exchanged(stack: &Stack, work: &mut dyn FnMut()) {
        // SAFETY: all-zero bytes are a valid set, which sigfillset fills.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: writes to one set of ours.
        unsafe { libc::sigfillset(&raw mut all) };
        let mask = set_mask(&all);
        let mut before = None;
        call_on(stack, &mut || {
            before = alternate(Some(&stack.description())).ok();
            if before.is_none() {
                super::super::fault::end_without_stack();
            }
            set_mask(&mask);
            work();
            set_mask(&all);
        });
        // The stack pointer is back in what is made the alternate stack here, as it was when the signal came.
        let _ = before.map(|before| alternate(Some(&before)));
        set_mask(&mask);
    }

    /// Exchanges the calling thread's blocked signals.
    fn set_mask(mask: &libc::sigset_t) -> libc::sigset_t {
        // SAFETY: all-zero bytes are a valid set.
        let mut old: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: reads one set and writes one.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::from_ref(mask), &raw mut old) };
        old
    }

    /// Does `work` on this stack.
    fn call_on(stack: &Stack, mut work: &mut dyn FnMut()) {
        extern "C" fn run(work: *mut libc::c_void) {
            // SAFETY: the pointer that `call_on` passes, to what outlives the call.
            unsafe { (*work.cast::<&mut dyn FnMut()>())() }
        }
        // SAFETY: the stack is aligned and has room, and nobody else uses it; `run` takes that pointer and does not
        // unwind.
        unsafe { comem_call_on_stack((&raw mut work).cast(), run, stack.top()) }
    }

    // Debuggers and unwinders go on from here to the interrupted stack, though that may lie below this one: what they
    // take for the frame of a signal may.
    std::arch::global_asm!(
        ".pushsection .text.comem_call_on_stack,\"ax\",@progbits",
        ".p2align 4",
        ".type comem_call_on_stack,@function",
        ".hidden comem_call_on_stack",
        ".globl comem_call_on_stack",
        "comem_call_on_stack:",
        ".cfi_startproc",
        ".cfi_signal_frame",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        ".size comem_call_on_stack, . - comem_call_on_stack",
        ".popsection",
    );

    unsafe extern "C" {
        /// Calls `function` with `argument`, on the stack that ends at `top`.
        fn comem_call_on_stack(argument: *mut libc::c_void, function: extern "C" fn(*mut libc::c_void), top: usize);
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// As if the signal had come on a thread's ordinary stack.
        fn on_an_ordinary_stack(work: &mut dyn FnMut()) {
            // SAFETY: all-zero bytes are a record of a thread without an alternate stack.
            let context: libc::ucontext_t = unsafe { std::mem::zeroed() };
            with_room((&raw const context).cast(), work);
        }

        fn here() -> usize {
            let marker = std::hint::black_box(0_u8);
            std::ptr::from_ref(&marker).addr()
        }

        /// Takes one stack within the other, so many in all, and gives where each is.
        fn nested(count: usize, seen: &mut Vec<usize>) {
            if count > 0 {
                on_an_ordinary_stack(&mut || {
                    seen.push(here());
                    nested(count - 1, seen);
                });
            }
        }

        #[test]
        fn stacks_beyond_the_pool_are_mapped_for_one_use_and_all_are_apart() {
            let mut seen = Vec::new();
            nested(POOL_STACKS + 3, &mut seen);
            let (first, mut apart) = (seen[0], seen);
            apart.sort_unstable();
            assert_eq!(apart.len(), POOL_STACKS + 3);
            assert!(apart.windows(2).all(|two| two[1] - two[0] >= STACK_BYTES), "{apart:x?}");
            let mut again = Vec::new();
            nested(1, &mut again);
            assert!(
                again[0].abs_diff(first) < STACK_BYTES,
                "the thread's first one is free again: {again:x?} {first:x}"
            );
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
