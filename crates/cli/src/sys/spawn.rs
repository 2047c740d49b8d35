//! Starting a program without a copy of this process.
//!
//! `fork` copies the page tables of the launcher, which are used for some system calls and thrown away; and the
//! launcher then takes a fault for each of its pages that it writes to again. Both count for every node. Here the new
//! process borrows the launcher's memory until its program begins, as `posix_spawn` does, and the calling thread waits
//! until then. What `posix_spawn` cannot do, the caller does in between, in the new process.

use super::{check, signals};
use std::ffi::{CString, OsStr, c_char, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI32, Ordering};

/// What the new process needs of its stack before the program begins, beside the words of a script's command line.
const STACK_BYTES: usize = 64 << 10;

/// Strings that the system takes as a list: the words of a command line, or the variables of an environment.
pub struct Words {
    words: Vec<CString>,
}

impl Words {
    /// A list of these.
    ///
    /// # Errors
    /// One has a zero byte within.
    pub fn new<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> io::Result<Words> {
        let word = |word: W| CString::new(word.as_ref().as_bytes()).map_err(io::Error::from);
        Ok(Words { words: words.into_iter().map(word).collect::<io::Result<_>>()? })
    }

    /// The list that the system takes, which ends with a null pointer. The words must outlive it.
    fn pointers(&self) -> Vec<*const c_char> {
        self.words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect()
    }
}

/// What the new process is told by the thread that waits for it.
struct Order<'a> {
    words: &'a [*const c_char],
    environment: &'a [*const c_char],
    prepare: &'a dyn Fn() -> io::Result<()>,
    /// Why no program has begun; 0 where one has.
    error: AtomicI32,
}

/// Starts the program that the first of `words` names, which is looked for in `PATH` where it has no slash; its process
/// number. `prepare` is called in the new process before.
///
/// # Errors
/// There can be no process, `prepare` fails, or the program cannot be run.
///
/// # Safety
/// `prepare` must make async-signal-safe calls alone, allocate nothing, take no locks and not panic. What it writes to
/// memory stays written in this process.
pub unsafe fn spawn(words: &Words, environment: &Words, prepare: &dyn Fn() -> io::Result<()>) -> io::Result<u32> {
    let (words, environment) = (words.pointers(), environment.pointers());
    let order = Order { words: &words, environment: &environment, prepare, error: AtomicI32::new(0) };
    // A script without an interpreter's name is given to a shell, with a list of its words made on the stack.
    let mut stack = vec![0_u128; STACK_BYTES / size_of::<u128>() + words.len()];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let argument = (&raw const order).cast_mut().cast::<c_void>();
    let mut pid = Ok(0);
    // A handler that ran in the new process would find this one's memory.
    signals::with_all_blocked(|| {
        // SAFETY: the stack, the order and what it points to outlive the call, which returns when the new process uses
        // this one's memory no more; nobody else uses the stack.
        pid = check(unsafe { libc::clone(become_program, top, flags, argument) });
    });
    let pid = pid? as u32;
    match order.error.load(Ordering::Relaxed) {
        0 => Ok(pid),
        why => {
            super::process::reap(pid);
            Err(io::Error::from_raw_os_error(why))
        }
    }
}

/// The new process, until its program begins.
extern "C" fn become_program(order: *mut c_void) -> libc::c_int {
    // SAFETY: `spawn` passes an order that outlives this process's use of it.
    let order = unsafe { &*order.cast::<Order<'_>>() };
    let why = (order.prepare)().err().unwrap_or_else(|| {
        // SAFETY: both lists end with a null pointer, and their strings with a zero byte.
        unsafe { libc::execvpe(order.words[0], order.words.as_ptr(), order.environment.as_ptr()) };
        io::Error::last_os_error()
    });
    order.error.store(why.raw_os_error().unwrap_or(libc::EINVAL), Ordering::Relaxed);
    // SAFETY: ends the process at once; nothing of the launcher's may be flushed.
    unsafe { libc::_exit(127) }
}

#[cfg(test)]
mod tests {
    use super::super::process::{Ended, open_pidfd, peek_end, reap};
    use super::*;
    use crate::sys::poll::PollSet;

    /// How a program ended that was started with these words.
    fn ended(words: &[&str], environment: &[&str], prepare: &dyn Fn() -> io::Result<()>) -> io::Result<Ended> {
        let (words, environment) = (Words::new(words)?, Words::new(environment)?);
        // SAFETY: the tests' closures do nothing that a process on borrowed memory must not.
        let pid = unsafe { spawn(&words, &environment, prepare) }?;
        let pidfd = open_pidfd(pid)?;
        let mut polls = PollSet::default();
        polls.readable(&pidfd);
        polls.wait(None)?;
        let ended = peek_end(&pidfd).expect("its end was told");
        reap(pid);
        Ok(ended)
    }

    #[test]
    fn a_program_gets_its_words_its_variables_and_what_was_prepared() {
        let script = r#"[ "$1" = "two words" ] && [ "$A" = 1 ] && [ -z "$HOME" ] && [ "$(umask)" = 0123 ] && exit 7"#;
        let prepare = || {
            // SAFETY: the call takes a number and touches no memory.
            unsafe { libc::umask(0o123) };
            Ok(())
        };
        let found = ended(&["/bin/sh", "-c", script, "sh", "two words"], &["A=1"], &prepare);
        assert_eq!(found.unwrap(), Ended::Status(7));
    }

    #[test]
    fn what_cannot_be_run_or_prepared_is_told_and_leaves_no_child() {
        let nothing = || Ok(());
        let kind = |why: io::Result<Ended>| why.unwrap_err().kind();
        assert_eq!(kind(ended(&["/no/such/program"], &[], &nothing)), io::ErrorKind::NotFound);
        assert_eq!(kind(ended(&["/etc/passwd"], &[], &nothing)), io::ErrorKind::PermissionDenied);
        let refused = || Err(io::Error::from_raw_os_error(libc::EMFILE));
        let why = ended(&["/bin/true"], &[], &refused).unwrap_err();
        assert_eq!(why.raw_os_error(), Some(libc::EMFILE));
        assert_eq!(kind(ended(&["/bin/true", "a\0b"], &[], &nothing)), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_script_without_an_interpreters_name_is_given_to_a_shell_however_many_words_it_has() {
        let path = std::env::temp_dir().join(format!("comem-spawn-{}", std::process::id()));
        std::fs::write(&path, "exit $(($# / 1000))\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let mut words = vec![path.to_str().unwrap()];
        words.extend(std::iter::repeat_n("x", 60_000));
        assert_eq!(ended(&words, &[], &|| Ok(())).unwrap(), Ended::Status(60));
        std::fs::remove_file(path).unwrap();
    }
}
