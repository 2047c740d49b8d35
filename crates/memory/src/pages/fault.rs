//! The process's fault handler: from a signal to a question to the runtime, and to whoever handled such signals before.
//!
//! A fault on Comem's memory is synchronous: it comes in the thread that made the access, at that instruction, so the
//! handler may do what ordinary code may do there (send, wait, receive), as long as it holds nothing that ordinary code
//! could hold while it touches shared memory. Signals stay unblocked meanwhile, so that timers and Ctrl-C work during a
//! long wait; that also means that a fault within the handler is noticed here, and it ends the process with one
//! sentence.
//!
//! Everything else goes to the handlers that were there before ([`install`]) or came later ([`ensure_installed`]).

use super::restorer;
use super::resume::resume;
use super::signal_chain::{self, ENTRIES, Handler, SIGNALS};
use super::stack;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// What the faulting instruction wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store, or a load and a store in one instruction.
    Write,
    /// This processor's context does not tell.
    Unknown,
}

/// An access that was not permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The exact address.
    pub address: usize,
    /// The address of the instruction; 0 where this processor's context does not tell.
    pub instruction: usize,
    /// What was wanted.
    pub access: Access,
    /// The signal that brought it: SIGBUS from userfaultfd, SIGSEGV from `mprotect`, and where stores are forbidden.
    pub signal: i32,
}

/// What the runtime says to a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go back and try the access again.
    Retry,
    /// Not Comem's: the handler that was there before decides.
    NotOurs,
}

/// How many signals came, since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Faults on Comem's memory.
    pub ours: u64,
    /// Signals handed on to other handlers.
    pub others: u64,
}

static OURS: AtomicU64 = AtomicU64::new(0);
static OTHERS: AtomicU64 = AtomicU64::new(0);

/// How many faults of Comem's memory this process has handled, and how many signals it handed on.
pub fn counts() -> Counts {
    Counts { ours: OURS.load(Ordering::Relaxed), others: OTHERS.load(Ordering::Relaxed) }
}

/// The runtime's function; null before [`install`] and in a forked child.
static HANDLER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

fn handler() -> Option<fn(&Fault) -> Verdict> {
    let handler = HANDLER.load(Ordering::Acquire);
    if handler.is_null() {
        return None;
    }
    // SAFETY: the only pointer ever stored besides null is such a function, in `install`.
    Some(unsafe { std::mem::transmute::<*mut (), fn(&Fault) -> Verdict>(handler) })
}

/// Installs the process's fault handler for SIGBUS and SIGSEGV. Earlier handlers (Rust's own, which reports stack
/// overflows, Python's faulthandler) get every signal that `handler` calls [`Verdict::NotOurs`], as if they had been
/// called directly: the default action ends the process at the same instruction as without Comem.
///
/// A forked child keeps the signal handler but not `handler`: no shared memory is mapped there.
///
/// # Errors
/// What the system says to `sigaction`.
pub fn install(handler: fn(&Fault) -> Verdict) -> io::Result<()> {
    watch_forks();
    HANDLER.store(handler as *mut (), Ordering::Release);
    SIGNALS.iter().try_for_each(|signal| signal_chain::come_first(*signal, &HANDLERS).map(|_| ()))
}

/// From now on children made by `fork` know that they are ([`in_a_child`]).
pub fn watch_forks() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: these functions live for ever, store to atomics, and copy and map memory.
        unsafe { libc::pthread_atfork(Some(copy_for_child), Some(go_on), Some(leave_to_parent)) };
    });
}

/// Whether this process was made by `fork` from one that watched.
#[inline]
pub fn in_a_child() -> bool {
    IN_A_CHILD.load(Ordering::Relaxed)
}

static IN_A_CHILD: AtomicBool = AtomicBool::new(false);

/// Puts the handler back in front when somebody replaced it, and hands on to the newcomer from now on. True if it had
/// to. Cheap: two `sigaction` calls.
pub fn ensure_installed() -> bool {
    if HANDLER.load(Ordering::Relaxed).is_null() {
        return false;
    }
    let replaced = |signal: &i32| signal_chain::come_first(*signal, &HANDLERS).unwrap_or(false);
    SIGNALS.iter().filter(|signal| replaced(signal)).count() > 0
}

/// Unblocks both signals in the calling thread and gives it an alternate stack of 256 KiB with a guard page, if it has
/// none that large. Threads that touch shared memory should call it: the stack that Rust's library gives its threads
/// is large enough for its own handler only. (On x86-64 the handler moves to a stack of Comem's in any other thread,
/// whatever stack it finds itself on.)
///
/// # Errors
/// What the system says when there is no room, or when the thread is running on the smaller stack just now.
pub fn prepare_thread() -> io::Result<()> {
    THREAD.with(|thread| thread.handling.get());
    signal_chain::unblock()?;
    stack::provide()
}

/// Whether the calling thread is inside the runtime's handler.
pub fn is_handling() -> bool {
    THREAD.with(|thread| thread.handling.get())
}

/// What the sentences of this module begin with, in place of `comem`: "comem: node 3 (host b, pid 4711)".
pub fn introduce(who: String) {
    let who: &'static str = Box::leak(who.into_boxed_str());
    WHO.store(std::ptr::from_ref(Box::leak(Box::new(who))).cast_mut(), Ordering::Release);
}

static WHO: AtomicPtr<&'static str> = AtomicPtr::new(std::ptr::null_mut());

/// Writes a sentence to the standard error without allocating, locking or formatting.
fn say(text: &str) {
    // SAFETY: null or a string that was leaked.
    let who = unsafe { WHO.load(Ordering::Acquire).as_ref() }.copied().unwrap_or("comem");
    for part in [who, ": ", text, "\n"] {
        // SAFETY: writes from a string that lives for ever.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
}

/// Writes down what is known of the address of an access that ends the process; nothing, if nothing is.
pub type Guess = fn(usize, &mut dyn fmt::Write);

/// The runtime's; null before [`on_crash`].
static GUESS: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Has `guess` asked when an access outside of all mapped memory ends the process, and what it writes said. It may be
/// called in the midst of anything, `malloc` too, so it may not allocate.
///
/// # Errors
/// What the system says to `sigaction`.
pub fn on_crash(guess: Guess) -> io::Result<()> {
    GUESS.store(guess as *mut (), Ordering::Release);
    signal_chain::come_first(libc::SIGSEGV, &HANDLERS).map(|_| ())
}

/// A sentence in a place of fixed size; what does not fit is left out.
struct Sentence {
    bytes: [u8; 600],
    len: usize,
}

impl fmt::Write for Sentence {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.split_inclusive(|_| true) {
            let Some(place) = self.bytes.get_mut(self.len..self.len + letter.len()) else { break };
            place.copy_from_slice(letter.as_bytes());
            self.len += letter.len();
        }
        Ok(())
    }
}

/// Of an access to unmapped memory that ends the process.
pub(super) fn say_what_was_meant(address: usize, context: *const libc::c_void) {
    let mut told = false;
    let guess = GUESS.load(Ordering::Acquire);
    if !guess.is_null() && !in_a_child() {
        // SAFETY: the only pointer ever stored besides null is such a function, in `on_crash`.
        let guess = unsafe { std::mem::transmute::<*mut (), Guess>(guess) };
        stack::with_room(context, &mut || {
            let mut sentence = Sentence { bytes: [0; 600], len: 0 };
            guess(address, &mut sentence);
            told = sentence.len > 0;
            if told {
                say(str::from_utf8(&sentence.bytes[..sentence.len]).unwrap_or_default());
            }
        });
    }
    // In programs that begin with shared memory, most come from a node that lacks a pointer which another has.
    if !told && address < super::PAGE_BYTES && handler().is_some() {
        say("a null pointer was followed; each node has variables of its own: has this one made the allocation, \
            or got the pointer from shared memory, after a barrier or lock?");
    }
}

/// Ends the process, whose calling thread has been interrupted in the middle of Comem and is to go into that a second
/// time.
pub fn end_in_the_middle() -> ! {
    say("shared memory was touched, or Comem called, while the same thread was in the middle of Comem; a signal \
         handler of the program does this: let it set a flag of the process's own, and look at that outside");
    std::process::abort();
}

/// The runtime's last words before the process ends because the system has no memory for a page; null before
/// [`on_no_memory`].
static NO_MEMORY: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Has `tell` told the address, in the application's view, of a page for which the system has no memory, or that there
/// is none for a twin: the memory that the process, its group or the host may use is exhausted, or what may be promised
/// (`vm.overcommit_memory`). The process ends after it.
pub fn on_no_memory(tell: fn(Option<usize>)) {
    NO_MEMORY.store(tell as *mut (), Ordering::Release);
}

/// The page at this address, or a twin, could not get memory: says so, and ends the process.
pub(crate) fn end_without_memory(address: Option<usize>) -> ! {
    let tell = NO_MEMORY.load(Ordering::Acquire);
    if tell.is_null() {
        say("the system has no memory for a shared page");
    } else {
        // SAFETY: the only pointer ever stored besides null is such a function, in `on_no_memory`.
        let tell = unsafe { std::mem::transmute::<*mut (), fn(Option<usize>)>(tell) };
        tell(address);
    }
    std::process::abort();
}

/// The fault handler has no stack to work on: says so, and ends the process.
pub(super) fn end_without_stack() -> ! {
    say("the system has no memory for the stack of the fault handler (free -m, ulimit -v, vm.max_map_count)");
    std::process::abort();
}

extern "C" fn copy_for_child() {
    super::window::copy_for_child();
}

extern "C" fn go_on() {
    super::window::drop_copy();
}

extern "C" fn leave_to_parent() {
    IN_A_CHILD.store(true, Ordering::Relaxed);
    HANDLER.store(std::ptr::null_mut(), Ordering::Release);
    super::window::keep_in_child();
}

struct Thread {
    handling: Cell<bool>,
}

thread_local! {
    static THREAD: Thread = const { Thread { handling: Cell::new(false) } };
}

const ARENAS_MAX: usize = 256;

/// Where arenas are, for the decisions that are taken without the runtime: the application's view, and where the same
/// memory begins in the service view.
static ARENAS: [(AtomicUsize, AtomicUsize, AtomicUsize); ARENAS_MAX] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)) }; ARENAS_MAX];

/// How many of these were ever in use: a fault looks at no others.
static ARENAS_USED: AtomicUsize = AtomicUsize::new(0);

fn arenas() -> &'static [(AtomicUsize, AtomicUsize, AtomicUsize)] {
    &ARENAS[..ARENAS_USED.load(Ordering::Acquire)]
}

/// Notes an arena's application view, and where its memory begins in the service view.
pub(crate) fn remember(view: Range<usize>, service: usize) -> io::Result<()> {
    for (index, (start, end, twin)) in ARENAS.iter().enumerate() {
        if start.compare_exchange(0, view.start, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            twin.store(service, Ordering::Release);
            end.store(view.end, Ordering::Release);
            ARENAS_USED.fetch_max(index + 1, Ordering::AcqRel);
            return Ok(());
        }
    }
    Err(io::Error::other("the process has 256 arenas already"))
}

/// Forgets the arena that begins at `base`.
pub(crate) fn forget(base: usize) {
    if let Some((start, end, _)) = arenas().iter().find(|(start, _, _)| start.load(Ordering::Acquire) == base) {
        end.store(0, Ordering::Release);
        start.store(0, Ordering::Release);
    }
}

fn in_an_arena(address: usize) -> bool {
    arenas()
        .iter()
        .any(|(start, end, _)| address >= start.load(Ordering::Acquire) && address < end.load(Ordering::Acquire))
}

/// Where the application sees what lies at this address of a service view.
fn seen_from_service(address: usize) -> Option<usize> {
    arenas().iter().find_map(|(start, end, service)| {
        let (end, start) = (end.load(Ordering::Acquire), start.load(Ordering::Acquire));
        let offset = address.checked_sub(service.load(Ordering::Acquire))?;
        (offset < end.saturating_sub(start)).then_some(start + offset)
    })
}

/// What the signal's record says, before anybody is asked.
fn describe(signal: i32, info: *const libc::siginfo_t, context: *const libc::c_void) -> Option<Fault> {
    // SAFETY: the kernel hands a handler with SA_SIGINFO a valid record and context.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr()) };
    const MEMORY_IS_BROKEN: [i32; 2] = [4, 5];
    let sent_by_somebody = code <= 0;
    if sent_by_somebody || (signal == libc::SIGBUS && MEMORY_IS_BROKEN.contains(&code)) {
        return None;
    }
    if is_jump(context) {
        if in_an_arena(address.addr()) {
            say("a function was called at an address in shared memory, where there is no code; is it one of data?");
        }
        return None;
    }
    Some(Fault { address: address.addr(), instruction: instruction(context), access: access(context), signal })
}

#[cfg(target_arch = "x86_64")]
fn instruction(context: *const libc::c_void) -> usize {
    // SAFETY: the kernel hands a handler with SA_SIGINFO a valid context.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] as usize }
}

#[cfg(not(target_arch = "x86_64"))]
fn instruction(_: *const libc::c_void) -> usize {
    0
}

#[cfg(target_arch = "x86_64")]
fn access(context: *const libc::c_void) -> Access {
    if page_fault_bits(context) & 2 != 0 { Access::Write } else { Access::Read }
}

#[cfg(not(target_arch = "x86_64"))]
fn access(_: *const libc::c_void) -> Access {
    Access::Unknown
}

/// Whether the program went on at that address: no bytes that come there make it code.
#[cfg(target_arch = "x86_64")]
fn is_jump(context: *const libc::c_void) -> bool {
    page_fault_bits(context) & 16 != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn is_jump(_: *const libc::c_void) -> bool {
    false
}

/// The page-fault error code: bit 1 tells a store, bit 4 the fetch of an instruction.
#[cfg(target_arch = "x86_64")]
fn page_fault_bits(context: *const libc::c_void) -> i64 {
    // SAFETY: the kernel hands a handler with SA_SIGINFO a valid context.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize] }
}

/// The signal handler, under as many addresses as there are entries in front of other handlers.
static HANDLERS: [Handler; ENTRIES] = [
    on_signal::<0>,
    on_signal::<1>,
    on_signal::<2>,
    on_signal::<3>,
    on_signal::<4>,
    on_signal::<5>,
    on_signal::<6>,
    on_signal::<7>,
];

/// Where the kernel calls a handler itself, its record of the context lies right behind the return address.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[unsafe(naked)]
extern "C" fn on_signal<const ENTRY: usize>(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    std::arch::naked_asm!(
        "lea rcx, [rsp + 8]",
        "mov r8d, {entry}",
        "jmp {handle}",
        entry = const ENTRY,
        handle = sym handle
    )
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
extern "C" fn on_signal<const ENTRY: usize>(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    handle(signal, info, context, std::ptr::null(), ENTRY);
}

/// A signal has come at an entry. `behind` is where the context would lie if no other handler had been called before.
extern "C" fn handle(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    behind: *const libc::c_void,
    entry: usize,
) {
    // SAFETY: errno is the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let answer = describe(signal, info, context).map_or(Answer::NotOurs, |fault| answer(&fault, context));
    if answer == Answer::NotOurs {
        OTHERS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: record and context are the kernel's, for this signal.
        unsafe { signal_chain::hand_on(entry, signal, info, context) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    if answer == Answer::Resume && std::ptr::eq(context, behind) {
        // SAFETY: the context lies right behind the return address.
        let return_address = unsafe { behind.cast::<usize>().sub(1).read() };
        // SAFETY: the context is the kernel's, which called this handler itself, and nothing is left to do.
        unsafe { resume(context, restorer::is_ours(return_address)) };
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// Does something during which this thread cannot be cancelled: its access is no cancellation point, and nothing here
/// could be unwound.
pub fn uncancelled<T>(work: impl FnOnce() -> T) -> T {
    const DISABLE: libc::c_int = 1;
    let mut before = 0;
    // SAFETY: concerns the calling thread alone; `before` lives.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
    let result = work();
    // SAFETY: as above; there is no need for the state that was set.
    unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
    result
}

/// What becomes of a signal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// The access is to be tried again, and all is as it was when the handler began.
    Resume,
    /// Others are to be asked.
    NotOurs,
}

/// Finds out whose the access is. The interrupted stack may be almost full, so this looks at a few numbers at most;
/// all else moves to a stack of Comem's.
fn answer(fault: &Fault, context: *const libc::c_void) -> Answer {
    // The service view is always readable and writable: what fails there is the memory behind it.
    let seen = seen_from_service(fault.address).filter(|_| fault.signal == libc::SIGBUS);
    // Of an access anywhere else nothing is known of the thread, which may be in the midst of malloc or at its very
    // end: what it keeps for itself is not to be touched, for the first touch may allocate.
    if seen.is_none() && !in_an_arena(fault.address) {
        return Answer::NotOurs;
    }
    let mut answer = Answer::NotOurs;
    stack::with_room(context, &mut || {
        if seen.is_some() {
            end_without_memory(seen);
        }
        answer = uncancelled(|| answer_in_arena(fault));
    });
    answer
}

/// Asks the runtime about an access to shared memory.
fn answer_in_arena(fault: &Fault) -> Answer {
    let Some(handler) = handler() else {
        say("a process made by fork touched shared memory, which it does not have; \
            start it as a node of its own, or let it keep away");
        return Answer::NotOurs;
    };
    if is_handling() {
        say("shared memory was touched while a fault on shared memory was being handled in the same thread; \
            a signal handler of the program that uses shared memory does this");
        std::process::abort();
    }
    THREAD.with(|thread| thread.handling.set(true));
    let verdict = handler(fault);
    THREAD.with(|thread| thread.handling.set(false));
    if verdict != Verdict::Retry {
        return Answer::NotOurs;
    }
    OURS.fetch_add(1, Ordering::Relaxed);
    Answer::Resume
}
