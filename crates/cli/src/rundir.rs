//! The per-user directory for what processes of one host must agree on: the locks of program numbers, and the
//! meeting points of `comem exec`.

use crate::exec::meeting;
use crate::failure::{Failure, Outcome, exit};
use crate::live::registry;
use crate::preload;
use crate::stage;
use crate::sys::{self, process};
use comem::keys;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What lies so long without a lock that would show that it is in use was left by a command that was killed.
const SWEEP_AGE: Duration = Duration::from_secs(24 * 3600);
/// How long a lock may be held for a moment only: by whoever looks whether it was left.
const SWEEP_LIMIT: Duration = Duration::from_millis(500);
/// Most files that one sweep looks at.
const SWEEP_MAX: usize = 4096;

/// The user's own directory; see [`keys::runtime_directory`].
pub fn directory() -> Outcome<PathBuf> {
    keys::runtime_directory().map_err(unfit)
}

/// The user's own directory where nobody names another.
pub fn usual_directory() -> Outcome<PathBuf> {
    keys::usual_directory().map_err(unfit)
}

fn unfit(why: keys::Unfit) -> Failure {
    Failure::start(why.what, why.advice)
}

/// A program number that belongs to one job on this host while this value lives (and no longer than the process). Its
/// file goes with it.
#[derive(Debug)]
pub struct ProgLock {
    file: Option<File>,
    path: PathBuf,
}

impl Drop for ProgLock {
    fn drop(&mut self) {
        // Still locked: whoever has opened the file meanwhile finds that it is not there any more, and opens another.
        if self.file.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// What a lock's holder wrote into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Holder {
    pid: u32,
    job: u64,
}

impl ProgLock {
    /// Keeps the lock for the program that this process becomes; the file stays then.
    pub fn hand_to_program(mut self) -> Outcome<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let fd = std::os::fd::IntoRawFd::into_raw_fd(file);
        process::let_inherit(fd).map_err(|e| Failure::system("the lock of the program number", e))
    }

    /// Takes `prog_id` for `job`. Several launchers and agents of one job may share it.
    ///
    /// # Errors
    /// Names the process of the job that has it.
    pub fn take(prog_id: u16, job: u64) -> Outcome<ProgLock> {
        ProgLock::take_at(directory()?.join(format!("prog-{prog_id}.lock")), prog_id, job)
    }

    fn take_at(path: PathBuf, prog_id: u16, job: u64) -> Outcome<ProgLock> {
        let trouble = |e| {
            let what =
                format!("cannot take a number for the program, for which there is the lock {}: {e}", path.display());
            Failure::new(exit::INTERNAL, what, "make room there, or name another directory in COMEM_RUNTIME_DIR")
        };
        let patience = Instant::now() + SWEEP_LIMIT;
        loop {
            let mut options = OpenOptions::new();
            let mut file =
                options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(trouble)?;
            if !sys::try_lock(&file).map_err(trouble)? {
                match read_holder(&mut file) {
                    Some(holder) if holder.job == job => return Ok(ProgLock { file: None, path }),
                    // Who is gone holds nothing: somebody looks at what it left.
                    Some(holder) if !process::is_there(holder.pid) && Instant::now() < patience => {
                        std::thread::sleep(Duration::from_millis(2));
                        continue;
                    }
                    None if !is_at(&file, &path).map_err(trouble)? => continue,
                    holder => return Err(taken(prog_id, holder)),
                }
            }
            if is_at(&file, &path).map_err(trouble)? {
                let holder = format!("{} {job}\n", std::process::id());
                match file.set_len(0).and_then(|()| file.write_all(holder.as_bytes())) {
                    // Under `ulimit -f 0` nobody can write into it; locked it is all the same.
                    Err(error) if error.kind() != std::io::ErrorKind::FileTooLarge => {
                        let _ = std::fs::remove_file(&path);
                        return Err(trouble(error));
                    }
                    _ => {}
                }
                return Ok(ProgLock { file: Some(file), path });
            }
            // It was removed by its last holder after it was opened here.
        }
    }

    /// Removes what earlier jobs left: locks of launchers that were killed, which nobody holds, their jobs' entries,
    /// copies of programs, the files of meetings, links to libraries that are gone, and statistics that a comparison
    /// did not come to read.
    pub fn sweep() {
        let Ok(directory) = directory() else { return };
        meeting::sweep_host(&directory);
        keys::sweep(&directory);
        preload::sweep(&directory);
        registry::sweep();
        stage::sweep(&std::env::temp_dir());
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten().take(SWEEP_MAX) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let _ = match name.split_once('-') {
                Some(("prog", rest)) if rest.ends_with(".lock") => sweep_lock(&entry.path()),
                Some(("trial", rest)) if rest.ends_with(".json") && is_old(&entry) => {
                    std::fs::remove_file(entry.path())
                }
                _ => Ok(()),
            };
        }
    }

    /// Takes a program number that is free.
    pub fn take_any(job: u64) -> Outcome<(u16, ProgLock)> {
        let mut last = None;
        for _attempt in 0..64 {
            let prog_id = u16::from_ne_bytes(sys::random()).max(1);
            match ProgLock::take(prog_id, job) {
                Ok(lock) => return Ok((prog_id, lock)),
                // Another number would not be better.
                Err(failure) if failure.code == exit::INTERNAL => return Err(failure),
                Err(failure) => last = Some(failure),
            }
        }
        Err(last.expect("64 attempts were made"))
    }
}

/// Whether what stands there is so old that nobody uses it who has not locked it.
pub fn is_old(entry: &std::fs::DirEntry) -> bool {
    let age = entry.metadata().and_then(|meta| meta.modified()).map(|at| at.elapsed().unwrap_or_default());
    age.is_ok_and(|age| age > SWEEP_AGE)
}

/// Removes a lock that nobody holds, as its holder would: while it is locked.
fn sweep_lock(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    if sys::try_lock(&file)? && is_at(&file, path)? {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Whether this is the file that has this name now.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let own = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(named) => Ok((own.dev(), own.ino()) == (named.dev(), named.ino())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

fn taken(prog_id: u16, holder: Option<Holder>) -> Failure {
    let who = holder.map_or("another job".to_string(), |h| format!("the job of pid {}", h.pid));
    Failure::start(
        format!("program number {prog_id} is in use by {who} on host {}", sys::host::name()),
        "wait for that job, or leave --prog-id out to get a free number",
    )
}

/// Reads who holds a lock. The holder writes right after locking, so an empty file is read again for a moment.
fn read_holder(file: &mut File) -> Option<Holder> {
    let deadline = Instant::now() + Duration::from_millis(200);
    loop {
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
        if let Some((pid, job)) = text.trim().split_once(' ').filter(|_| text.ends_with('\n')) {
            return Some(Holder { pid: pid.parse().ok()?, job: job.parse().ok()? });
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_swept_away_only_when_nobody_holds_it() {
        let path = std::env::temp_dir().join(format!("comem-sweep-{}", std::process::id()));
        let lock = ProgLock::take_at(path.clone(), 1, 1).unwrap();
        sweep_lock(&path).unwrap();
        assert!(path.exists(), "it is held");
        drop(lock);
        File::create(&path).unwrap();
        sweep_lock(&path).unwrap();
        assert!(!path.exists());
    }
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn one_job_at_a_time_has_a_number_although_its_file_comes_and_goes() {
        let path = std::env::temp_dir().join(format!("comem-lock-{}", std::process::id()));
        let (holders, taken) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for job in 0..4 {
                let (path, holders, taken) = (&path, &holders, &taken);
                scope.spawn(move || {
                    for _ in 0..500 {
                        let Ok(lock) = ProgLock::take_at(path.clone(), 1, job) else { continue };
                        assert!(lock.file.is_some(), "each job asks once");
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two have it");
                        taken.fetch_add(1, Ordering::SeqCst);
                        holders.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(taken.into_inner() > 0 && !path.exists());
    }
}
