//! A history's file: what is read with care, and how another takes its place.
//!
//! A file is read if it is a regular one, belongs to the user, others cannot write to it, and it has at most 1 MiB. A
//! symbolic link is not followed. The new one is written aside and renamed, so whoever reads sees the old one or the
//! new. A lock beside it lets jobs of one program do so in turn: each adds to what the one before has left.

use crate::sys;
use comem_protocol::coherence::pages::multicast::history::{HISTORY_BYTES_MAX, History, Identity, check_size};
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Others hold the lock for a moment. So long is waited for it.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
const LOCK_STEP: Duration = Duration::from_millis(20);

/// Bits of a file's mode.
const OTHERS_WRITE: u32 = 0o022;
const ANYBODY_WRITES: u32 = 0o222;
const OWNER_ALONE: u32 = 0o600;
const OWNER_ALONE_ENTERS: u32 = 0o700;

/// The history in a file; `None` where there is no file.
///
/// # Errors
/// Why the file is not fit, as a clause.
pub fn read(path: &Path, job: &Identity) -> Result<Option<History>, String> {
    let Some(file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(HISTORY_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(|why| why.to_string())?;
    History::decode(&bytes, job).map(Some).map_err(|why| why.to_string())
}

/// Opens a file that is fit to be read.
fn open(path: &Path) -> Result<Option<File>, String> {
    // One that is a pipe or a device is not waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
        Err(why) if why.raw_os_error() == Some(libc::ELOOP) => return Err("it is a symbolic link".to_string()),
        Err(why) => return Err(why.to_string()),
    };
    check_owner(&file)?;
    check_size(file.metadata().map_err(|why| why.to_string())?.len()).map_err(|why| why.to_string())?;
    Ok(Some(file))
}

/// Whether the file is a regular one that this user alone can have written.
fn check_owner(file: &File) -> Result<(), String> {
    let about = file.metadata().map_err(|why| why.to_string())?;
    match about.mode() & 0o7777 {
        _ if !about.is_file() => Err("it is no regular file".to_string()),
        _ if about.uid() != sys::user_id() => Err(format!("it belongs to another user ({})", about.uid())),
        mode if mode & OTHERS_WRITE != 0 => Err(format!("others may write to it (mode {mode:03o}); let them not")),
        _ => Ok(()),
    }
}

/// Puts a history in the place of what is there, whose values it takes over by half. `makes_directory`: where there is
/// none yet.
///
/// # Errors
/// Why that cannot be, as a clause. What was there is still there.
pub fn write(path: &Path, history: History, job: &Identity, makes_directory: bool) -> Result<(), String> {
    let (directory, name) = (directory_of(path), path.file_name().ok_or("it has no name")?);
    if makes_directory {
        let made = DirBuilder::new().recursive(true).mode(OWNER_ALONE_ENTERS).create(directory);
        made.map_err(|why| format!("{}: {why}", directory.display()))?;
    }
    refuse_read_only(directory, "its directory is read-only")?;
    let _lock = lock(&beside(directory, name, "lock"))?;
    if path.symlink_metadata().is_ok() {
        refuse_read_only(path, "it is read-only")?;
    }
    let text = match read(path, job)? {
        Some(earlier) => history.after(earlier).encode(),
        None => history.encode(),
    };
    let aside = beside(directory, name, "new");
    let written = write_aside(&aside, &text).and_then(|()| std::fs::rename(&aside, path));
    written.map_err(|why| {
        let _ = std::fs::remove_file(&aside);
        why.to_string()
    })
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A hidden file beside another.
fn beside(directory: &Path, name: &OsStr, what: &str) -> PathBuf {
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".");
    hidden.push(what);
    directory.join(hidden)
}

/// Whoever took away the right to write meant it, even where the system would let this process write all the same.
fn refuse_read_only(path: &Path, what: &str) -> Result<(), String> {
    let about = path.symlink_metadata().map_err(|why| why.to_string())?;
    if about.mode() & ANYBODY_WRITES == 0 { Err(what.to_string()) } else { Ok(()) }
}

/// Takes the lock, which goes with the value.
fn lock(path: &Path) -> Result<File, String> {
    let mut options = OpenOptions::new();
    options
        .create(true)
        .truncate(false)
        .write(true)
        .mode(OWNER_ALONE)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(|why| format!("its lock {}: {why}", path.display()))?;
    check_owner(&file).map_err(|why| format!("its lock {}: {why}", path.display()))?;
    let start = Instant::now();
    loop {
        match sys::try_lock(&file) {
            Ok(true) => return Ok(file),
            Ok(false) if start.elapsed() < LOCK_LIMIT => std::thread::sleep(LOCK_STEP),
            Ok(false) => return Err("another job is writing it".to_string()),
            Err(why) => return Err(format!("its lock {}: {why}", path.display())),
        }
    }
}

/// Writes a new file; one that a job has left which was killed is gone then. The lock is held.
fn write_aside(path: &Path, text: &str) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(why) if why.kind() != ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.create_new(true).write(true).mode(OWNER_ALONE).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    // A name must not come to stand for a file whose bytes are lost.
    file.sync_data()
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
