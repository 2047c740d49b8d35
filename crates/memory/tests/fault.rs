//! The fault handler among other handlers. What ends a process is tried in a child: the test program runs itself again.

mod common;

use comem_memory::pages::fault::{self, Verdict};
use comem_memory::pages::{Detector, Tracking};
use comem_memory::twins::Twins;
use common::{detectors, subject, subjects};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const CHILD: &str = "COMEM_TEST_CHILD";

/// In the child: does `what`, which is to end the process. In the parent: the signal that ended the child, and what it
/// said.
fn in_a_child(test: &str, what: impl FnOnce()) -> (Option<i32>, String) {
    if std::env::var_os(CHILD).is_some_and(|name| name == test) {
        // SAFETY: switches core dumps off for this process.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
        what();
        std::process::exit(0);
    }
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", test, "--nocapture", "--test-threads=1"];
    let output = Command::new(program).args(arguments).env(CHILD, test).output().unwrap();
    (output.status.signal(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// An address of the zero page, which is never mapped, hidden from the compiler.
fn nowhere() -> *mut u64 {
    std::hint::black_box(std::ptr::without_provenance_mut(0x88))
}

fn touch_nowhere() {
    // SAFETY: not sound: the fault is what is tested; it ends the process or is repaired by a handler.
    unsafe { nowhere().write_volatile(1) };
}

fn any_subject() -> &'static common::Subject {
    subject(4, Tracking::Tracked, Detector::best().0)
}

#[test]
fn a_bad_access_still_ends_the_process_by_sigsegv() {
    let (signal, said) = in_a_child("a_bad_access_still_ends_the_process_by_sigsegv", || {
        assert_eq!(any_subject().load(1), 0);
        touch_nowhere();
    });
    assert_eq!(signal, Some(libc::SIGSEGV), "{said}");
}

#[test]
fn who_follows_a_null_pointer_is_told_so_where_the_process_would_end_without_a_word() {
    let name = "who_follows_a_null_pointer_is_told_so_where_the_process_would_end_without_a_word";
    let (signal, said) = in_a_child(name, || {
        set(libc::SIGSEGV, libc::SIG_DFL, 0);
        any_subject();
        touch_nowhere();
    });
    assert_eq!(signal, Some(libc::SIGSEGV), "{said}");
    assert_eq!(said.matches("a null pointer was followed").count(), 1, "{said}");
}

/// Shared memory that was not touched yet.
static UNTOUCHED: AtomicUsize = AtomicUsize::new(0);

/// Ends the process in the midst of a test: what a thread keeps for itself is destroyed first, then `last` is called.
fn exit_by(last: extern "C" fn()) -> ! {
    let subject = any_subject();
    assert_eq!(subject.load(1), 0, "this thread has met a fault of Comem's");
    UNTOUCHED.store(subject.address(2) as usize, Ordering::Relaxed);
    // SAFETY: the function lives for ever.
    assert_eq!(unsafe { libc::atexit(last) }, 0);
    std::process::exit(0);
}

#[test]
fn a_bad_access_at_the_very_end_of_the_process_is_one_by_sigsegv() {
    extern "C" fn last() {
        touch_nowhere();
    }
    let (signal, said) = in_a_child("a_bad_access_at_the_very_end_of_the_process_is_one_by_sigsegv", || exit_by(last));
    assert_eq!((signal, said.as_str()), (Some(libc::SIGSEGV), ""));
}

#[test]
fn shared_memory_can_be_used_at_the_very_end_of_the_process() {
    extern "C" fn last() {
        // SAFETY: an address in an arena whose faults are answered.
        let word = unsafe { std::ptr::with_exposed_provenance::<u64>(UNTOUCHED.load(Ordering::Relaxed)).read() };
        eprintln!("the word is {word}");
    }
    let (signal, said) = in_a_child("shared_memory_can_be_used_at_the_very_end_of_the_process", || exit_by(last));
    assert_eq!((signal, said.as_str()), (None, "the word is 0\n"));
}

#[test]
fn twins_for_which_there_is_no_memory_end_the_process_with_a_sentence() {
    let (signal, said) = in_a_child("twins_for_which_there_is_no_memory_end_the_process_with_a_sentence", || {
        fault::introduce("comem: node 3 (host b, pid 4711)".into());
        let mut row = Twins::new().row(1, 4096);
        // No more address space than there is in use.
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: reads one limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const none) }, 0);
        row.take(0..1);
    });
    assert_eq!(signal, Some(libc::SIGABRT), "{said}");
    assert_eq!(said, "comem: node 3 (host b, pid 4711): the system has no memory for a shared page\n");
}

fn overflow(depth: usize) -> usize {
    let frame = std::hint::black_box([depth; 512]);
    if std::hint::black_box(true) { overflow(depth + 1) + frame[depth % 512] } else { 0 }
}

#[test]
fn a_stack_overflow_is_still_reported_by_rusts_handler() {
    let (signal, said) = in_a_child("a_stack_overflow_is_still_reported_by_rusts_handler", || {
        any_subject();
        let prepared = std::thread::Builder::new().name("deep".into()).spawn(|| {
            fault::prepare_thread().unwrap();
            overflow(0)
        });
        println!("{:?}", prepared.unwrap().join());
    });
    assert_eq!(signal, Some(libc::SIGABRT), "{said}");
    assert!(said.contains("'deep'") && said.contains("overflowed its stack"), "{said}");
}

fn send(signal: i32) {
    any_subject();
    // SAFETY: sends a signal to this process.
    unsafe { libc::kill(libc::getpid(), signal) };
    std::thread::sleep(std::time::Duration::from_secs(20));
}

#[test]
fn a_sigbus_that_somebody_sends_ends_the_process() {
    let (signal, said) = in_a_child("a_sigbus_that_somebody_sends_ends_the_process", || send(libc::SIGBUS));
    assert_eq!(signal, Some(libc::SIGBUS), "{said}");
}

#[test]
fn a_sigsegv_that_somebody_sends_ends_the_process() {
    let (signal, said) = in_a_child("a_sigsegv_that_somebody_sends_ends_the_process", || send(libc::SIGSEGV));
    assert_eq!(signal, Some(libc::SIGSEGV), "{said}");
}

#[test]
fn shared_memory_touched_inside_the_handler_ends_the_process_with_a_sentence() {
    static WORD: AtomicUsize = AtomicUsize::new(0);
    fn touching(fault: &fault::Fault) -> Verdict {
        // SAFETY: not sound without a handler that maps the page: the second fault is what is tested.
        unsafe { std::ptr::with_exposed_provenance::<u64>(WORD.load(Ordering::Relaxed)).read_volatile() };
        println!("{fault:?}");
        Verdict::Retry
    }
    let (signal, said) =
        in_a_child("shared_memory_touched_inside_the_handler_ends_the_process_with_a_sentence", || {
            let subject = any_subject();
            WORD.store(subject.address(2) as usize, Ordering::Relaxed);
            fault::introduce("comem: node 3 (host b, pid 4711)".into());
            fault::install(touching).unwrap();
            subject.load(1);
        });
    assert_eq!(signal, Some(libc::SIGABRT), "{said}");
    assert!(said.contains("comem: node 3 (host b, pid 4711): shared memory was touched while"), "{said}");
}

#[test]
fn a_forked_child_that_touches_shared_memory_is_told_so() {
    let (signal, said) = in_a_child("a_forked_child_that_touches_shared_memory_is_told_so", || {
        let subject = any_subject();
        subject.load(1);
        // SAFETY: the child calls nothing that another thread of the parent may have locked.
        if unsafe { libc::fork() } == 0 {
            if !fault::in_a_child() {
                // SAFETY: ends the child without running anything else.
                unsafe { libc::_exit(1) };
            }
            subject.load(1);
            // SAFETY: ends the child without running anything else.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: writes one status.
        unsafe { libc::wait(&raw mut status) };
        assert_eq!(subject.load(1), 0, "the parent still has it");
        assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
        std::process::abort();
    });
    assert_eq!(signal, Some(libc::SIGABRT), "{said}");
    assert!(said.contains("made by fork touched shared memory"), "{said}");
}

fn set(signal: i32, handler: usize, flags: i32) -> libc::sigaction {
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    // SAFETY: reads one action and writes one.
    assert_eq!(unsafe { libc::sigaction(signal, &raw const new, &raw mut old) }, 0);
    old
}

/// As Python's faulthandler: puts back what it found, says something, raises the signal again.
mod reporter {
    use super::*;
    pub static FOUND: Mutex<Option<libc::sigaction>> = Mutex::new(None);

    pub extern "C" fn report(signal: i32) {
        let found = FOUND.lock().unwrap().take().expect("called once");
        // SAFETY: reads one action; then sends a signal.
        unsafe {
            libc::sigaction(signal, &raw const found, std::ptr::null_mut());
            libc::write(2, c"the reporter was here\n".as_ptr().cast(), 22);
            libc::raise(signal);
        }
    }
}

#[test]
fn a_reporter_that_came_later_reports_once_and_hands_on() {
    let (signal, said) = in_a_child("a_reporter_that_came_later_reports_once_and_hands_on", || {
        let subject = any_subject();
        let handler = reporter::report as *const () as usize;
        let found = set(libc::SIGSEGV, handler, libc::SA_NODEFER | libc::SA_ONSTACK);
        *reporter::FOUND.lock().unwrap() = Some(found);
        assert!(fault::ensure_installed() && !fault::ensure_installed());
        assert_eq!(subject.load(1), 0);
        touch_nowhere();
    });
    assert_eq!(signal, Some(libc::SIGSEGV), "{said}");
    assert_eq!(said.matches("the reporter was here").count(), 1, "{said}");
}

/// As crash reporters do that put back what they found and return, so that the access faults again and reaches that.
#[test]
fn a_reporter_that_restores_and_returns_reports_once_and_hands_on() {
    extern "C" fn restore(signal: i32) {
        let found = reporter::FOUND.lock().unwrap().take().expect("called once");
        // SAFETY: reads one action; writes from a constant.
        unsafe {
            libc::sigaction(signal, &raw const found, std::ptr::null_mut());
            libc::write(2, c"the reporter was here\n".as_ptr().cast(), 22);
        }
    }
    let (signal, said) = in_a_child("a_reporter_that_restores_and_returns_reports_once_and_hands_on", || {
        let subject = any_subject();
        *reporter::FOUND.lock().unwrap() = Some(set(libc::SIGSEGV, restore as *const () as usize, libc::SA_ONSTACK));
        assert!(fault::ensure_installed());
        assert_eq!(subject.load(1), 0);
        touch_nowhere();
    });
    assert_eq!(signal, Some(libc::SIGSEGV), "{said}");
    assert_eq!(said.matches("the reporter was here").count(), 1, "{said}");
}

/// As a crash reporter asks for that returns: the kernel has put the default in its place.
#[test]
fn a_handler_that_wants_to_be_called_once_is_called_once() {
    extern "C" fn report(_: i32) {
        // SAFETY: writes from a constant.
        unsafe { libc::write(2, c"the reporter was here\n".as_ptr().cast(), 22) };
    }
    let (signal, said) = in_a_child("a_handler_that_wants_to_be_called_once_is_called_once", || {
        let subject = any_subject();
        set(libc::SIGSEGV, report as *const () as usize, libc::SA_RESETHAND);
        assert!(fault::ensure_installed());
        assert_eq!(subject.load(1), 0);
        touch_nowhere();
    });
    assert_eq!(signal, Some(libc::SIGSEGV), "{said}");
    assert_eq!(said.matches("the reporter was here").count(), 1, "{said}");
}

/// What makes an access possible does not make code of data: it faulted for ever.
#[test]
fn a_jump_into_shared_memory_ends_the_process() {
    let (signal, said) = in_a_child("a_jump_into_shared_memory_ends_the_process", || {
        let subject = any_subject();
        assert_eq!(subject.load(1), 0);
        // SAFETY: not sound: the fault is what is tested, and it ends the process.
        let data = unsafe { std::mem::transmute::<*const u64, extern "C" fn()>(subject.address(1)) };
        data();
    });
    assert_eq!(signal, Some(libc::SIGSEGV), "{said}");
    assert_eq!(said.matches("a function was called at an address in shared memory").count(), 1, "{said}");
}

#[test]
fn a_newcomer_may_come_and_go_without_end() {
    extern "C" fn idle(_: i32) {}
    let (signal, said) = in_a_child("a_newcomer_may_come_and_go_without_end", || {
        let subject = any_subject();
        for _ in 0..100 {
            let found = set(libc::SIGBUS, idle as *const () as usize, 0);
            assert!(fault::ensure_installed());
            subject.load(1);
            subject.arena.unmap(1..2).unwrap();
            set(libc::SIGBUS, found.sa_sigaction, found.sa_flags);
            assert!(!fault::ensure_installed(), "an older entry is in front again");
            subject.load(1);
            subject.arena.unmap(1..2).unwrap();
        }
        touch_nowhere();
    });
    assert_eq!(signal, Some(libc::SIGSEGV), "{said}");
}

/// Two that stay and hand on what they do not know; each is asked once.
#[test]
fn newcomers_that_stay_are_asked_one_after_the_other_however_many_have_come_and_gone() {
    static FOUND: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    extern "C" fn idle(_: i32) {}
    extern "C" fn forward<const N: usize>(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let text = ["the first was asked\n", "the second was asked\n"][N];
        // SAFETY: writes from a constant; the address is that of the handler that was found, which has this form.
        let found: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = unsafe {
            libc::write(2, text.as_ptr().cast(), text.len());
            std::mem::transmute(FOUND[N].load(Ordering::Relaxed))
        };
        found(signal, info, context);
    }
    let name = "newcomers_that_stay_are_asked_one_after_the_other_however_many_have_come_and_gone";
    let (signal, said) = in_a_child(name, || {
        let subject = any_subject();
        for _ in 0..20 {
            let found = set(libc::SIGSEGV, idle as *const () as usize, 0);
            assert!(fault::ensure_installed());
            set(libc::SIGSEGV, found.sa_sigaction, found.sa_flags);
            assert!(!fault::ensure_installed());
        }
        for (found, handler) in FOUND.iter().zip([forward::<0> as *const (), forward::<1> as *const ()]) {
            let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            found.store(set(libc::SIGSEGV, handler as usize, flags).sa_sigaction, Ordering::Relaxed);
            assert!(fault::ensure_installed());
        }
        assert_eq!(subject.load(1), 0);
        touch_nowhere();
    });
    assert_eq!(signal, Some(libc::SIGSEGV), "{said}");
    assert_eq!(said, "the second was asked\nthe first was asked\n");
}

/// More than there are entries: the last entry serves them all.
#[test]
fn shared_memory_works_however_many_newcomers_stay() {
    extern "C" fn idle(_: i32) {}
    let (signal, said) = in_a_child("shared_memory_works_however_many_newcomers_stay", || {
        let subject = any_subject();
        for signal in [libc::SIGBUS, libc::SIGSEGV].repeat(12) {
            set(signal, idle as *const () as usize, 0);
            assert!(fault::ensure_installed());
        }
        assert_eq!(subject.load(1), 0);
        eprintln!("it works");
    });
    assert!(signal.is_none() && said.contains("it works"), "{signal:?} {said}");
}

/// A signal that somebody sends, and that was ignored before, still is.
#[test]
fn what_was_ignored_is_ignored_when_somebody_sends_it() {
    let (signal, said) = in_a_child("what_was_ignored_is_ignored_when_somebody_sends_it", || {
        set(libc::SIGBUS, libc::SIG_IGN, 0);
        let subject = any_subject();
        // SAFETY: sends a signal to this thread.
        unsafe { libc::raise(libc::SIGBUS) };
        assert_eq!(subject.load(1), 0);
        eprintln!("it was ignored");
    });
    assert!(signal.is_none() && said.contains("it was ignored"), "{signal:?} {said}");
}

/// While another's handler works its signals are blocked, and afterwards none is.
#[test]
fn another_handlers_mask_holds_as_long_as_it_works() {
    static BLOCKED: AtomicUsize = AtomicUsize::new(0);
    fn is_blocked(signal: i32) -> usize {
        // SAFETY: all-zero bytes are a valid set, into which the mask is written.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
            libc::sigismember(&raw const mask, signal) as usize
        }
    }
    extern "C" fn look(signal: i32) {
        BLOCKED.store(is_blocked(libc::SIGUSR2) + 2 * is_blocked(signal), Ordering::Relaxed);
    }
    let (signal, said) = in_a_child("another_handlers_mask_holds_as_long_as_it_works", || {
        // SAFETY: all-zero bytes are a valid action; adds a signal to its mask; reads one action.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = look as *const () as usize;
            libc::sigaddset(&raw mut action.sa_mask, libc::SIGUSR2);
            assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()), 0);
        }
        any_subject();
        // SAFETY: sends a signal to this thread.
        unsafe { libc::raise(libc::SIGSEGV) };
        let afterwards = is_blocked(libc::SIGUSR2) + is_blocked(libc::SIGSEGV);
        eprintln!("{} while it works and {afterwards} afterwards", BLOCKED.load(Ordering::Relaxed));
    });
    assert!(signal.is_none() && said.contains("3 while it works and 0 afterwards"), "{signal:?} {said}");
}

#[test]
fn a_newcomer_that_repairs_its_own_faults_goes_on_doing_so() {
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    static BLOCKED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn repair(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        let page = PAGE.load(Ordering::Relaxed);
        // SAFETY: the kernel's record; the page is the test's own.
        unsafe {
            assert_eq!((*info).si_addr() as usize & !4095, page);
            libc::mprotect(page as *mut _, 4096, libc::PROT_READ | libc::PROT_WRITE);
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
            BLOCKED.fetch_add(libc::sigismember(&raw const mask, signal) as usize, Ordering::Relaxed);
        }
    }
    let (signal, said) = in_a_child("a_newcomer_that_repairs_its_own_faults_goes_on_doing_so", || {
        let subject = any_subject();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh page of the test's own.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0) };
        PAGE.store(page as usize, Ordering::Relaxed);
        set(libc::SIGSEGV, repair as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK);
        assert!(fault::ensure_installed(), "the newcomer had replaced the handler");
        assert!(!fault::ensure_installed(), "it is in front again");
        let before = fault::counts();
        for round in 1..50_usize {
            // SAFETY: a page that the newcomer's handler makes writable.
            unsafe {
                page.cast::<usize>().write_volatile(round);
                libc::mprotect(page, 4096, libc::PROT_NONE);
            }
            assert_eq!(subject.load(1), 0);
        }
        assert!(fault::counts().others >= before.others + 49);
        assert_eq!(BLOCKED.load(Ordering::Relaxed), 49, "its signal was blocked, as it had asked");
        eprintln!("all repaired");
    });
    assert!(signal.is_none() && said.contains("all repaired"), "{signal:?} {said}");
}

/// Debuggers and crash reporters go from the handler through the kernel's record to the access.
#[cfg(target_env = "gnu")]
#[test]
fn a_backtrace_leads_from_a_handler_to_the_access() {
    #[inline(never)]
    extern "C" fn access() {
        touch_nowhere();
        std::hint::black_box(());
    }
    extern "C" fn report(_: i32) {
        let mut frames = [std::ptr::null_mut(); 32];
        // SAFETY: writes at most so many addresses.
        let count = unsafe { libc::backtrace(frames.as_mut_ptr(), 32) } as usize;
        let start = access as *const () as usize;
        // The first is this function's own.
        let found = frames[1..count].iter().any(|frame| (start..start + 256).contains(&frame.addr()));
        eprintln!("the access is {} of {count} frames", if found { "one" } else { "none" });
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    let (signal, said) = in_a_child("a_backtrace_leads_from_a_handler_to_the_access", || {
        set(libc::SIGSEGV, report as *const () as usize, libc::SA_ONSTACK);
        let subject = any_subject();
        assert_eq!(subject.load(1), 0);
        access();
    });
    assert!(signal.is_none() && said.contains("the access is one"), "{signal:?} {said}");
}

/// Handlers that stood there first hand on what they do not know, and are called before Comem's until it notices.
mod forwarder {
    use super::*;
    pub static FOUND: AtomicUsize = AtomicUsize::new(0);
    pub static DONE: AtomicUsize = AtomicUsize::new(0);

    pub extern "C" fn call(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the address of the handler that was found.
        let found: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(FOUND.load(Ordering::Relaxed)) };
        found(signal, info, context);
        DONE.fetch_add(1, Ordering::Relaxed);
    }

    /// As compilers do where nothing is left to do after the call.
    #[cfg(target_arch = "x86_64")]
    #[unsafe(naked)]
    pub extern "C" fn jump(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        std::arch::naked_asm!("jmp qword ptr [rip + {found}]", found = sym FOUND)
    }
    #[cfg(not(target_arch = "x86_64"))]
    pub use call as jump;
}

fn with_forwarder(handler: usize) -> usize {
    let subject = any_subject();
    let found = set(libc::SIGBUS, handler, libc::SA_SIGINFO | libc::SA_ONSTACK);
    forwarder::FOUND.store(found.sa_sigaction, Ordering::Relaxed);
    let done = || forwarder::DONE.load(Ordering::Relaxed);
    for page in 0..4 {
        assert_eq!(subject.load(page), 0);
    }
    // SAFETY: all-zero bytes are a valid set, into which the mask is written.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
        assert_eq!(libc::sigismember(&raw const mask, libc::SIGBUS), 0);
    }
    done()
}

#[test]
fn a_handler_that_calls_comems_is_returned_to() {
    if Detector::best().0 == Detector::Mprotect {
        return println!("SKIP: there is no userfaultfd");
    }
    let (signal, said) = in_a_child("a_handler_that_calls_comems_is_returned_to", || {
        assert_eq!(with_forwarder(forwarder::call as *const () as usize), 4);
        eprintln!("returned each time");
    });
    assert!(signal.is_none() && said.contains("returned each time"), "{signal:?} {said}");
}

#[test]
fn signals_that_an_earlier_handler_blocked_are_unblocked_again() {
    if Detector::best().0 == Detector::Mprotect {
        return println!("SKIP: there is no userfaultfd");
    }
    let (signal, said) = in_a_child("signals_that_an_earlier_handler_blocked_are_unblocked_again", || {
        with_forwarder(forwarder::jump as *const () as usize);
        eprintln!("unblocked");
    });
    assert!(signal.is_none() && said.contains("unblocked"), "{signal:?} {said}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_fault_leaves_registers_and_flags_alone() {
    for s in subjects(2) {
        let (mut word, mut carry, mut numbers) = (s.address(1).addr(), 0_u64, [0_u64; 16]);
        // SAFETY: loads a word of the subject; everything else are registers that are named, saved, or written to
        // `numbers`.
        unsafe {
            std::arch::asm!(
                "push rbx", "push rbp",
                "mov rbx, 101", "mov rbp, 102", "mov r8, 103", "mov r9, 104", "mov r10, 105", "mov r11, 106",
                "mov r12, 107", "mov r13, 108", "mov r14, 109", "mov r15, 110", "mov rcx, 111", "mov rdx, 112",
                "movq xmm0, rbx", "movq xmm7, rbp", "movq xmm8, r8", "movq xmm15, r9",
                "stc",
                "mov rdi, [rdi]",
                "setc al",
                "mov [rsi], rbx", "mov [rsi + 8], rbp", "mov [rsi + 16], r8", "mov [rsi + 24], r9",
                "mov [rsi + 32], r10", "mov [rsi + 40], r11", "mov [rsi + 48], r12", "mov [rsi + 56], r13",
                "mov [rsi + 64], r14", "mov [rsi + 72], r15", "mov [rsi + 80], rcx", "mov [rsi + 88], rdx",
                "movq [rsi + 96], xmm0", "movq [rsi + 104], xmm7", "movq [rsi + 112], xmm8", "movq [rsi + 120], xmm15",
                "pop rbp", "pop rbx",
                inout("rdi") word, inout("rax") carry, in("rsi") numbers.as_mut_ptr(),
                out("r8") _, out("r9") _, out("r10") _, out("r11") _, out("r12") _, out("r13") _, out("r14") _,
                out("r15") _, out("rcx") _, out("rdx") _, out("xmm0") _, out("xmm7") _, out("xmm8") _, out("xmm15") _,
            );
        }
        let expected: Vec<u64> = (101..=112).chain(101..=104).collect();
        assert_eq!((word, carry, &numbers[..]), (0, 1, &expected[..]), "{}", s.name());
    }
}

/// Also where it is small, and the handler has worked on another.
#[test]
fn a_fault_leaves_a_threads_alternate_stack_alone() {
    let alternate = || {
        // SAFETY: all-zero bytes are a valid description, which the call fills.
        unsafe {
            let mut stack: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &raw mut stack);
            (stack.ss_sp.addr(), stack.ss_size, stack.ss_flags)
        }
    };
    for s in subjects(2) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let before = alternate();
                s.store(1, s.load(1) + 1);
                assert_eq!(alternate(), before, "{}", s.name());
            });
        });
    }
}

#[test]
fn faults_are_counted_and_errno_survives_them() {
    for s in subjects(2) {
        let before = fault::counts().ours;
        // SAFETY: errno is this thread's own.
        unsafe { *libc::__errno_location() = 77 };
        let word = s.load(1);
        // SAFETY: as above.
        let errno = unsafe { *libc::__errno_location() };
        assert_eq!((word, errno), (0, 77));
        assert!(fault::counts().ours > before, "{}", s.name());
    }
    assert!(!fault::is_handling());
}

#[test]
fn a_prepared_thread_has_a_large_stack_for_signals_and_both_unblocked() {
    let check = || {
        // SAFETY: all-zero bytes are a valid set; the calls read and write sets of this frame.
        let mask = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
            fault::prepare_thread().unwrap();
            fault::prepare_thread().unwrap();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut all);
            all
        };
        for signal in [libc::SIGBUS, libc::SIGSEGV] {
            // SAFETY: reads one set.
            assert_eq!(unsafe { libc::sigismember(&raw const mask, signal) }, 0);
        }
        // SAFETY: all-zero bytes are a valid description, which the call fills.
        let stack = unsafe {
            let mut stack: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &raw mut stack);
            stack
        };
        assert!(stack.ss_size >= 256 << 10 && stack.ss_flags & libc::SS_DISABLE == 0);
        for detector in detectors() {
            let s = subject(2, Tracking::Guarded, detector);
            s.store(1, 1);
        }
    };
    std::thread::spawn(check).join().unwrap();
}

/// Rust's threads have an alternate stack of a few kilobytes, which would overflow here. Signals that come while the
/// handler works must not be put over what it left on that stack.
#[test]
fn a_thread_that_was_not_prepared_has_room_for_the_handler_too() {
    static CAME: AtomicUsize = AtomicUsize::new(0);
    fn hungry(fault: &fault::Fault) -> Verdict {
        let before = CAME.load(Ordering::Relaxed);
        // SAFETY: sends a signal to this thread, whose handler counts it.
        unsafe { libc::raise(libc::SIGUSR1) };
        assert!(CAME.load(Ordering::Relaxed) > before, "signals come while the handler works");
        let room = std::hint::black_box([1_u8; 100 << 10]);
        assert_eq!(room.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 100 << 10);
        common::on_fault(fault)
    }
    if cfg!(not(target_arch = "x86_64")) {
        return println!("SKIP: only on x86-64");
    }
    let (signal, said) = in_a_child("a_thread_that_was_not_prepared_has_room_for_the_handler_too", || {
        extern "C" fn idle(_: i32) {
            std::hint::black_box([7_u8; 2000]);
            CAME.fetch_add(1, Ordering::Relaxed);
        }
        let subjects: Vec<_> = subjects(8).collect();
        fault::install(hungry).unwrap();
        set(libc::SIGUSR1, idle as *const () as usize, libc::SA_ONSTACK);
        let unprepared = || subjects.iter().for_each(|s| (0..8).for_each(|page| s.store(page, s.load(page) + 1)));
        std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(unprepared))));
        eprintln!("there was room");
    });
    assert!(signal.is_none() && said.contains("there was room"), "{signal:?} {said}");
}

/// Bytes below a stack that nobody may touch.
const BELOW: usize = 256 << 10;

/// Runs `work` in a thread with the least stack that the system allows, and nothing between that and `BELOW` bytes of
/// sevens. Whether these are all there afterwards.
fn on_a_small_stack(work: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void) -> bool {
    // SAFETY: an integer call.
    let least = unsafe { libc::sysconf(libc::_SC_THREAD_STACK_MIN) };
    let least = usize::try_from(least).unwrap_or(0).max(libc::PTHREAD_STACK_MIN).next_multiple_of(4096);
    let mut memory = vec![7_u8; BELOW + least + 4096];
    let start = memory.as_ptr().addr().next_multiple_of(4096) - memory.as_ptr().addr();
    // SAFETY: all-zero bytes are an attribute that is filled; the thread has ended before its stack does.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        let mut thread: libc::pthread_t = 0;
        libc::pthread_attr_init(&raw mut attributes);
        let stack = memory.as_mut_ptr().add(start + BELOW).cast();
        assert_eq!(libc::pthread_attr_setstack(&raw mut attributes, stack, least), 0);
        let argument = std::ptr::null_mut();
        assert_eq!(libc::pthread_create(&raw mut thread, &raw const attributes, work, argument), 0);
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
        libc::pthread_attr_destroy(&raw mut attributes);
    }
    memory[..start + BELOW].iter().all(|byte| *byte == 7)
}

/// The thread is one that C has made, has no alternate stack, and touches shared memory on the last kilobytes of its
/// own.
#[test]
fn a_fault_needs_nothing_of_a_small_stack_and_overwrites_nothing_below_it() {
    static SUBJECTS: std::sync::OnceLock<Vec<&common::Subject>> = std::sync::OnceLock::new();
    fn hungry(fault: &fault::Fault) -> Verdict {
        let room = std::hint::black_box([1_u8; 100 << 10]);
        assert_eq!(room.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 100 << 10);
        common::on_fault(fault)
    }
    extern "C" fn touch(_: *mut libc::c_void) -> *mut libc::c_void {
        let subjects = SUBJECTS.get().unwrap();
        subjects.iter().for_each(|s| (0..50).for_each(|page| s.store(page, s.load(page) + 1)));
        std::ptr::null_mut()
    }
    if cfg!(not(target_arch = "x86_64")) {
        return println!("SKIP: only on x86-64");
    }
    let name = "a_fault_needs_nothing_of_a_small_stack_and_overwrites_nothing_below_it";
    let (signal, said) = in_a_child(name, || {
        let subjects = SUBJECTS.get_or_init(|| subjects(50).collect());
        fault::install(hungry).unwrap();
        let whole = on_a_small_stack(touch);
        let faults = subjects.iter().all(|s| s.faults().0 >= 50);
        let words = subjects.iter().all(|s| (0..50).all(|page| s.load(page) == 1));
        eprintln!("below the stack: {whole}, faults: {faults}, words: {words}");
    });
    assert!(signal.is_none() && said.contains("below the stack: true, faults: true, words: true"), "{signal:?} {said}");
}

/// The frames of a handler on a stack of Comem's are followed by those of the thread whose access it answers, on its
/// own.
#[test]
fn a_backtrace_goes_from_the_handlers_stack_to_the_access() {
    static SUBJECT: std::sync::OnceLock<&common::Subject> = std::sync::OnceLock::new();
    static SEEN: Mutex<String> = Mutex::new(String::new());
    fn look_back(fault: &fault::Fault) -> Verdict {
        *SEEN.lock().unwrap() = std::backtrace::Backtrace::force_capture().to_string();
        common::on_fault(fault)
    }
    #[inline(never)]
    fn the_function_with_the_access() -> u64 {
        SUBJECT.get().unwrap().load(1)
    }
    extern "C" fn touch(_: *mut libc::c_void) -> *mut libc::c_void {
        assert_eq!(the_function_with_the_access(), 0);
        std::ptr::null_mut()
    }
    let name = "a_backtrace_goes_from_the_handlers_stack_to_the_access";
    let (signal, said) = in_a_child(name, || {
        SUBJECT.get_or_init(any_subject);
        fault::install(look_back).unwrap();
        assert!(on_a_small_stack(touch));
        eprintln!("{}", SEEN.lock().unwrap());
    });
    let at = |what: &str| said.find(what);
    assert!(signal.is_none() && at("look_back").is_some(), "{signal:?} {said}");
    assert!(at("the_function_with_the_access") > at("look_back"), "{said}");
}
