//! Where a job's key comes from when no launcher gives one: a file that its owner alone can read.
//!
//! | the job | its key |
//! |---|---|
//! | nodes of one host, started by hand | node zero makes a new one, and leaves it where the others find it |
//! | nodes of several hosts | follows from a key file that all hosts have |
//!
//! Node zero leaves the key in the user's runtime directory, under its address, which the others know. The key file is
//! `COMEM_KEY_FILE`, or `~/.config/comem/key`; `COMEM_KEY` holds what it would.
//!
//! Every file that is read here may have been put there by somebody else, or be none at all: it is opened without
//! waiting for a writer, and counts only if it is an ordinary file of this user's that nobody else can read.

use crate::control::{key_from_hex, key_to_hex};
use crate::error::Error;
use crate::mutex::Mutex;
use comem_protocol::auth::JobKey;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Names the key file that all hosts of a job have.
pub const KEY_FILE_VARIABLE: &str = "COMEM_KEY_FILE";
/// Holds the key itself, where a file cannot be had.
pub const KEY_VARIABLE: &str = "COMEM_KEY";
/// Least number of characters that count as a key.
const TEXT_MIN: usize = 32;
/// Most bytes of a key file.
const FILE_MAX: u64 = 64 << 10;

/// Why a file or a directory cannot serve, and what to do. What happened is a clause without its subject: `can be read
/// by others`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfit {
    /// What is wrong.
    pub what: String,
    /// What to do; may be empty.
    pub advice: String,
}

fn unfit(what: impl Into<String>, advice: impl Into<String>) -> Unfit {
    Unfit { what: what.into(), advice: advice.into() }
}

/// The text of a key file, without the blanks around it.
///
/// # Errors
/// It is missing, no ordinary file, another user's, readable by others, too long or too short.
pub fn read_key_file(path: &Path) -> Result<Vec<u8>, Unfit> {
    let make = || format!("make one: comem daemon make-key {}", path.display());
    // Where nobody writes into a FIFO, opening it waits for ever; a socket and some devices cannot be opened at all.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let file = opened.map_err(|e| unfit(format!("cannot be read: {e}"), make()))?;
    let meta = file.metadata().map_err(|e| unfit(format!("cannot be examined: {e}"), ""))?;
    if !meta.is_file() {
        return Err(unfit(format!("is {}, and no file", kind_of(&meta)), make()));
    }
    if meta.uid() != user_id() {
        return Err(unfit(format!("belongs to another user ({})", meta.uid()), make()));
    }
    if meta.mode() & 0o077 != 0 {
        let what = format!("can be read by others than its owner (mode {:o})", meta.mode() & 0o7777);
        return Err(unfit(what, format!("chmod 600 {}", path.display())));
    }
    if meta.len() > FILE_MAX {
        return Err(unfit(format!("has {} bytes, and a key at most {FILE_MAX}", meta.len()), make()));
    }
    let mut text = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut text).map_err(|e| unfit(format!("cannot be read: {e}"), ""))?;
    let text = text.trim_ascii();
    if text.len() < TEXT_MIN {
        return Err(unfit(format!("holds only {} characters", text.len()), make()));
    }
    Ok(text.to_vec())
}

/// The key of what all processes of a job have: what `COMEM_KEY` holds, or the file that `COMEM_KEY_FILE` names, or
/// with `usual` the default file. `None` where there is none.
///
/// # Errors
/// The one that is named cannot be used.
pub(crate) fn shared_key(usual: bool) -> Result<Option<[u8; 32]>, Error> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let of = |secret: &[u8]| *JobKey::new(*blake3::hash(secret).as_bytes()).derive("comem discover").as_bytes();
    if let Some(text) = named(KEY_VARIABLE) {
        let text = text.as_encoded_bytes().trim_ascii();
        if text.len() < TEXT_MIN {
            let what = format!("{KEY_VARIABLE} holds only {} characters; take {TEXT_MIN} or more", text.len());
            return Err(Error::Start(what));
        }
        return Ok(Some(of(text)));
    }
    let default = || default_key_file().filter(|path| usual && path.exists());
    let Some(path) = named(KEY_FILE_VARIABLE).map(PathBuf::from).or_else(default) else { return Ok(None) };
    let why = |unfit: Unfit| {
        let advice = if unfit.advice.is_empty() { String::new() } else { format!("; {}", unfit.advice) };
        Error::Start(format!("the key file {} {}{advice}", path.display(), unfit.what))
    };
    read_key_file(&path).map(|secret| Some(of(&secret))).map_err(why)
}

fn kind_of(meta: &std::fs::Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = meta.file_type();
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

/// The key file that is meant when none is named: `~/.config/comem/key`.
pub fn default_key_file() -> Option<PathBuf> {
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let config = config.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")))?;
    Some(config.join("comem/key"))
}

/// This user's number.
pub fn user_id() -> u32 {
    // SAFETY: the call takes nothing, touches no memory of ours and cannot fail.
    unsafe { libc::geteuid() }
}

/// The directory for what processes of one host must agree on: what `COMEM_RUNTIME_DIR` says, or `/tmp/comem-UID`.
/// Made if need be, refused if others could write there. It is not below `XDG_RUNTIME_DIR`, which a login shell has
/// and an ssh command may not: all must meet in one place.
///
/// Where another user has made `/tmp/comem-UID`, it is `/run/user/UID/comem`, or `~/.comem/run-HOST`.
///
/// # Errors
/// None of them can be used; the text names the first.
pub fn runtime_directory() -> Result<PathBuf, Unfit> {
    if let Some(named) = std::env::var_os("COMEM_RUNTIME_DIR") {
        return private_directory(PathBuf::from(named));
    }
    usual_directory()
}

/// The user's runtime directory where `COMEM_RUNTIME_DIR` names no other.
///
/// # Errors
/// As [`runtime_directory`].
pub fn usual_directory() -> Result<PathBuf, Unfit> {
    let user = user_id();
    private_directory(PathBuf::from(format!("/tmp/comem-{user}"))).or_else(|first| {
        let session = PathBuf::from(format!("/run/user/{user}/comem"));
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".comem"));
        let home = home.map(|home| home.join(format!("run-{}", crate::boot::host_name())));
        let others = [Some(session), home];
        others.into_iter().flatten().find_map(|path| private_directory(path).ok()).ok_or(first)
    })
}

/// A directory of this user's in which nobody else can write, made if need be. A link to one does not count.
///
/// # Errors
/// It cannot be made, or is something else.
pub fn private_directory(path: PathBuf) -> Result<PathBuf, Unfit> {
    let shown = path.display();
    let instead = "remove it, or name another directory in COMEM_RUNTIME_DIR";
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            let what = format!("the directory {shown} cannot be made: {e}");
            return Err(unfit(what, "name one in COMEM_RUNTIME_DIR that can be made"));
        }
        _ => {}
    }
    let meta = std::fs::symlink_metadata(&path)
        .map_err(|e| unfit(format!("the directory {shown} cannot be examined: {e}"), instead))?;
    if !meta.is_dir() || meta.uid() != user_id() || meta.mode() & 0o022 != 0 {
        return Err(unfit(format!("the directory {shown} is not a directory of this user alone"), instead));
    }
    Ok(path)
}

/// Random bytes from the kernel: a new key, for instance.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer and the length describe `rest`, which outlives the call.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        if got > 0 {
            filled += got as usize;
        } else {
            let why = io::Error::last_os_error();
            assert!(why.kind() == io::ErrorKind::Interrupted, "the kernel gives no random bytes: {why}");
        }
    }
    bytes
}

/// The file in which the node zero at an address leaves its job's key.
fn job_key_path(directory: &Path, zero: SocketAddr) -> PathBuf {
    directory.join(format!("job-{}-{}.key", zero.ip(), zero.port()))
}

/// What this process has left, to be taken away when it ends.
static LEFT: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Leaves the key of this process's job for the other nodes of this host.
///
/// # Errors
/// The runtime directory cannot be used.
pub(crate) fn leave(zero: SocketAddr, key: &[u8; 32]) -> Result<(), Unfit> {
    let directory = runtime_directory()?;
    let path = leave_in(&directory, zero, key)?;
    *LEFT.lock() = Some(path);
    Ok(())
}

fn leave_in(directory: &Path, zero: SocketAddr, key: &[u8; 32]) -> Result<PathBuf, Unfit> {
    sweep(directory);
    let (path, pid) = (job_key_path(directory, zero), std::process::id());
    let beside = path.with_extension(format!("part{pid}"));
    let trouble = |e: io::Error| {
        let what = format!("cannot leave the job's key for the other nodes in {}: {e}", path.display());
        unfit(what, "make room there, or name another directory in COMEM_RUNTIME_DIR")
    };
    let text = format!("{} {pid} {}\n", key_to_hex(key), born(pid).unwrap_or(0));
    let _ = std::fs::remove_file(&beside);
    let write = |mut file: File| file.write_all(text.as_bytes());
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside).and_then(write);
    made.and_then(|()| std::fs::rename(&beside, &path)).map_err(|e| {
        let _ = std::fs::remove_file(&beside);
        trouble(e)
    })?;
    Ok(path)
}

/// Takes away what this process has left.
pub(crate) fn take_away() {
    if let Some(mut left) = LEFT.try_lock()
        && let Some(path) = left.take()
    {
        let _ = std::fs::remove_file(path);
    }
}

/// The key that the node zero at an address has left, if it is there; it does not count once that process is gone.
///
/// # Errors
/// The runtime directory cannot be used.
pub(crate) fn look(zero: SocketAddr) -> Result<Option<[u8; 32]>, Unfit> {
    runtime_directory().map(|directory| read_left(&job_key_path(&directory, zero)))
}

fn read_left(path: &Path) -> Option<[u8; 32]> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.uid() != user_id() || meta.mode() & 0o077 != 0 {
        return None;
    }
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok()?;
    let [key, pid, at] = text.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
    let lives = born(pid.parse().ok()?).is_some_and(|born| at.parse() == Ok(born));
    key_from_hex(key).filter(|_| lives)
}

/// Removes the keys of jobs whose node zero is gone.
pub fn sweep(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("job-") && name.ends_with(".key") && read_left(&entry.path()).is_none() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// When the process was started, in the kernel's ticks: tells it from a later one of the same number. `None` when
/// there is none.
pub fn born(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything; the start time is the 20th field after it.
    let after = stat.rsplit_once(')')?.1;
    after.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("comem-keys-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_no_key_file_is_refused_at_once_with_what_it_is() {
        let scratch = Scratch::new("kinds");
        let at = |name: &str| scratch.0.join(name);
        let fifo = std::ffi::CString::new(at("fifo").into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: the name is a string of C that outlives the call.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        std::fs::write(at("huge"), vec![b'k'; FILE_MAX as usize + 1]).unwrap();
        std::fs::write(at("short"), "short").unwrap();
        std::fs::write(at("open"), [b'k'; 64]).unwrap();
        for name in ["huge", "short"] {
            set_mode(&at(name), 0o600);
        }
        set_mode(&at("open"), 0o640);
        let cases = [
            ("missing", "cannot be read"),
            ("fifo", "is a FIFO, and no file"),
            ("socket", "cannot be read"),
            ("directory", "is a directory, and no file"),
            ("huge", "has 65537 bytes"),
            ("short", "holds only 5 characters"),
            ("open", "can be read by others"),
        ];
        for (name, why) in cases {
            let unfit = read_key_file(&at(name)).unwrap_err();
            assert!(unfit.what.starts_with(why), "{name}: {unfit:?}");
        }
        assert!(read_key_file(Path::new("/dev/null")).unwrap_err().what.starts_with("is a device"));
        std::fs::write(at("good"), [b'k'; 64]).unwrap();
        set_mode(&at("good"), 0o600);
        assert_eq!(read_key_file(&at("good")), Ok(vec![b'k'; 64]));
    }

    #[test]
    fn a_directory_serves_only_if_it_is_this_users_alone() {
        let scratch = Scratch::new("directory");
        let made = private_directory(scratch.0.join("made")).unwrap();
        assert_eq!(std::fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
        assert_eq!(private_directory(made.clone()), Ok(made.clone()));
        set_mode(&made, 0o770);
        assert!(private_directory(made.clone()).is_err(), "a group can write there");
        set_mode(&made, 0o700);
        symlink(&made, scratch.0.join("link")).unwrap();
        assert!(private_directory(scratch.0.join("link")).is_err(), "somebody may lead it elsewhere");
        std::fs::write(scratch.0.join("file"), "").unwrap();
        assert!(private_directory(scratch.0.join("file")).is_err());
    }

    #[test]
    fn a_key_that_was_left_counts_while_its_node_zero_lives_and_nobody_else_can_have_made_it() {
        let scratch = Scratch::new("left");
        let zero: SocketAddr = "127.0.0.1:4711".parse().unwrap();
        let path = leave_in(&scratch.0, zero, &[7; 32]).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read_left(&path), Some([7; 32]));
        leave_in(&scratch.0, zero, &[8; 32]).unwrap();
        assert_eq!(read_left(&path), Some([8; 32]), "a later job's key takes its place");
        set_mode(&path, 0o640);
        assert_eq!(read_left(&path), None);
        set_mode(&path, 0o600);
        let link = scratch.0.join("job-link.key");
        symlink(&path, &link).unwrap();
        assert_eq!(read_left(&link), None);
        // A process of another time.
        std::fs::write(&path, format!("{} {} 1\n", key_to_hex(&[9; 32]), std::process::id())).unwrap();
        assert_eq!(read_left(&path), None);
        sweep(&scratch.0);
        assert!(!path.exists() && std::fs::read_dir(&scratch.0).unwrap().next().is_none());
    }

    #[test]
    fn keys_are_new_each_time() {
        assert_ne!(random::<32>(), random());
    }
}
