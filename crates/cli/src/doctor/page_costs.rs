//! What two operations cost of which shared memory by pages is made: protecting a page, and a fault that a signal
//! handler takes. Table 1 of the Brazos paper (E. Speight, J. K. Bennett, 1997) has the pair for two systems of its
//! time.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The pair, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PageCosts {
    /// Setting the protection of a page that is there.
    pub protect_ns: u64,
    /// A store to a protected page until it is done, without what the handler does to allow it.
    pub fault_ns: u64,
}

/// How often each is measured, and in how many turns, of which the least counts: other work only makes it longer.
const ROUNDS: u32 = 200;
const TURNS: u32 = 8;

/// The page whose faults are ours, and its bytes.
static PAGE: AtomicUsize = AtomicUsize::new(0);
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

impl PageCosts {
    /// Measures them; `None` where no page or no handler can be had.
    pub fn here() -> Option<PageCosts> {
        // The handler of the process is one.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let page = Page::new()?;
        page.protect(libc::PROT_READ | libc::PROT_WRITE)?;
        page.store();
        let pair = least(|| {
            page.protect(libc::PROT_NONE)?;
            page.protect(libc::PROT_READ | libc::PROT_WRITE)
        })?;
        let handler = Handler::install(&page)?;
        let round = least(|| {
            page.protect(libc::PROT_NONE)?;
            page.store();
            Some(())
        })?;
        drop(handler);
        // A round protects the page, and the handler allows it again: what is left is the fault.
        Some(PageCosts { protect_ns: (pair / 2).max(1), fault_ns: round.saturating_sub(pair).max(1) })
    }

    /// In words, beside the paper's.
    pub fn text(self) -> String {
        let us = |ns: u64| format!("{:.2} us", ns as f64 / 1000.0);
        format!(
            "{} to protect one, {} for a fault and its handler (in 1997 Windows NT 7.0 and 20, Solaris 6.57 and 47)",
            us(self.protect_ns),
            us(self.fault_ns)
        )
    }
}

/// The least mean of several turns, in nanoseconds.
fn least(mut act: impl FnMut() -> Option<()>) -> Option<u64> {
    let mut best = u64::MAX;
    for _ in 0..TURNS {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            act()?;
        }
        best = best.min(start.elapsed().as_nanos() as u64 / u64::from(ROUNDS));
    }
    Some(best)
}

/// A page of memory of its own.
struct Page {
    start: *mut libc::c_void,
    bytes: usize,
}

impl Page {
    fn new() -> Option<Page> {
        // SAFETY: asks for a number.
        let bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        (start != libc::MAP_FAILED).then_some(Page { start, bytes })
    }

    fn protect(&self, protection: libc::c_int) -> Option<()> {
        // SAFETY: the page is this value's alone, and nobody has a reference into it.
        (unsafe { libc::mprotect(self.start, self.bytes, protection) } == 0).then_some(())
    }

    /// Stores a byte there; where that faults, the handler allows it.
    fn store(&self) {
        // SAFETY: within the page, which is mapped; a fault comes back once the handler has made it writable.
        unsafe { self.start.cast::<u8>().write_volatile(1) };
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and goes with it.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

/// The handler of faults, for as long as this value lives.
struct Handler {
    before: libc::sigaction,
}

impl Handler {
    fn install(page: &Page) -> Option<Handler> {
        PAGE.store(page.start.expose_provenance(), Ordering::Relaxed);
        PAGE_BYTES.store(page.bytes, Ordering::Relaxed);
        // SAFETY: an all-zero record is a valid value to be filled in or overwritten.
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
        action.sa_sigaction = allow as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both records are ours, and the handler makes async-signal-safe calls alone.
        let installed = unsafe { libc::sigaction(libc::SIGSEGV, &action, &mut before) } == 0;
        installed.then_some(Handler { before })
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        PAGE_BYTES.store(0, Ordering::Relaxed);
        // SAFETY: puts back what was there before.
        unsafe { libc::sigaction(libc::SIGSEGV, &self.before, std::ptr::null_mut()) };
    }
}

/// Makes the page writable. A fault elsewhere is nobody's: it comes again without a handler, and ends the process.
extern "C" fn allow(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let (page, bytes) = (PAGE.load(Ordering::Relaxed), PAGE_BYTES.load(Ordering::Relaxed));
    // SAFETY: the kernel gives a record of the fault.
    let at = unsafe { (*info).si_addr() }.addr();
    if !(page..page + bytes).contains(&at) {
        // SAFETY: sets the signal's default.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    let start = std::ptr::with_exposed_provenance_mut(page);
    // SAFETY: the page of [`Page`], to which only the store that faulted goes.
    unsafe { libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_WRITE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handler_of_faults() -> usize {
        // SAFETY: an all-zero record is a valid value to be overwritten.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: no new action is given; the record is ours.
        unsafe { libc::sigaction(libc::SIGSEGV, std::ptr::null(), &mut action) };
        action.sa_sigaction
    }

    #[test]
    fn both_are_measured_and_the_handler_goes_again() {
        let before = handler_of_faults();
        let costs = PageCosts::here().unwrap();
        assert!(costs.protect_ns > 0 && costs.fault_ns > 0, "{costs:?}");
        assert_eq!(handler_of_faults(), before);
    }

    #[test]
    fn the_pair_stands_beside_the_papers() {
        let text = PageCosts { protect_ns: 650, fault_ns: 1234 }.text();
        assert!(text.starts_with("0.65 us to protect one, 1.23 us for a fault and its handler (in 1997"), "{text}");
    }
}
