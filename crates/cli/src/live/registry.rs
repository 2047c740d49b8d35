//! Where running jobs of this user on this host are found: a directory that nobody else can look into.
//!
//! | file | |
//! |---|---|
//! | `ID.job` | what the job is ([`JobInfo`]), for as long as it runs |
//! | `ID.sock` | the launcher listens there |
//! | `ID.ended` | what a job was that has ended lately, and with which status: for who asks for it a second time |
//!
//! A launcher listens before it writes `ID.job`. So a job whose socket nobody listens at is over: its launcher was
//! killed, and whoever finds that takes its files away. Names of files are used once.

use super::VERSION;
use super::sample::JobInfo;
use crate::failure::{Failure, Outcome};
use crate::plan::Plan;
use crate::rundir;
use crate::sys::{self, process};
use comem_protocol::coherence::pages::PageEngine;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The directory's name within the user's runtime directory.
const DIRECTORY: &str = "jobs";
/// Most bytes of a file that is read here.
const FILE_MAX: u64 = 1 << 20;
/// Most jobs that are looked at.
const JOBS_MAX: usize = 4096;
/// How long a job that has ended is known, in seconds.
const ENDED_KNOWN_S: u64 = 3600;
/// Most jobs that are known after their end.
const ENDED_MAX: usize = 64;
/// Most words of a command that are shown.
const WORDS_MAX: usize = 256;
/// Longest path of a socket.
const SOCKET_PATH_MAX: usize = 107;

/// A job that has ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EndedJob {
    /// What it was.
    pub job: JobInfo,
    /// Its exit code.
    pub status: i32,
    /// When it ended, in seconds since 1970.
    pub ended_unix_s: u64,
}

/// A job's place in the directory, while this value lives.
pub struct Registration {
    directory: PathBuf,
    id: String,
    /// What the job is.
    pub job: JobInfo,
}

impl Registration {
    /// Says that a job runs. The socket is there when others find the job.
    ///
    /// # Errors
    /// The directory cannot be used. The job is none the worse for it.
    pub fn new(job: JobInfo) -> Outcome<(Registration, UnixListener)> {
        let directory = directory()?;
        sweep_ended(&directory, unix_s());
        let id = format!("{}-{:08x}", job.number, u32::from_ne_bytes(sys::random()));
        let trouble = |e| Failure::system(format!("others cannot see this job, by {}", directory.display()), e);
        let listener = with_socket_path(&directory, &format!("{id}.sock"), UnixListener::bind).map_err(trouble)?;
        let registration = Registration { directory: directory.clone(), id, job };
        listener.set_nonblocking(true).map_err(trouble)?;
        write(&registration.path("job"), &registration.job).map_err(trouble)?;
        Ok((registration, listener))
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", self.id))
    }

    /// The job is over.
    pub fn end(self, status: i32) {
        let ended = EndedJob { job: self.job.clone(), status, ended_unix_s: unix_s() };
        // Whoever asks for the job once more would like to know it; no more than that.
        let _ = write(&self.path("ended"), &ended);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path("job"));
        let _ = std::fs::remove_file(self.path("sock"));
    }
}

/// What a launcher says of its job.
pub fn describe(plan: &Plan, name: Option<&str>, threads: usize, command: &[std::ffi::OsString]) -> JobInfo {
    let program = Path::new(&plan.program.hashed).file_name().unwrap_or_default().to_string_lossy();
    JobInfo {
        version: VERSION,
        number: std::process::id(),
        name: name.map_or_else(|| program.into_owned(), str::to_string),
        started_unix_s: unix_s(),
        command: command.iter().take(WORDS_MAX).map(|word| word.to_string_lossy().into_owned()).collect(),
        directory: plan.cwd.to_string_lossy().into_owned(),
        hosts: plan.job.hosts.clone(),
        threads,
        engine: plan.page_engine.map_or("auto", PageEngine::name).to_string(),
    }
}

/// A running job, and the way to it.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    directory: PathBuf,
    id: String,
    /// What it is.
    pub job: JobInfo,
}

impl Found {
    /// Connects to its launcher; `None` when the job is over.
    ///
    /// # Errors
    /// Its launcher cannot be reached, or belongs to another user.
    pub fn connect(&self) -> Outcome<Option<UnixStream>> {
        match with_socket_path(&self.directory, &format!("{}.sock", self.id), connect_at_once) {
            Ok(stream) => {
                let peer = sys::peer_of(&stream).map_err(|e| self.unreachable(e))?;
                if peer.user != sys::user_id() {
                    let what = format!("job {} belongs to another user ({})", self.job.number, peer.user);
                    return Err(Failure::refused(what, "ask that user"));
                }
                Ok(Some(stream))
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
                self.remove();
                Ok(None)
            }
            Err(e) => Err(self.unreachable(e)),
        }
    }

    fn unreachable(&self, why: io::Error) -> Failure {
        Failure::system(format!("cannot reach the launcher of job {}", self.job.number), why)
    }

    /// Takes away what a launcher has left that was killed.
    fn remove(&self) {
        for ending in ["job", "sock"] {
            let _ = std::fs::remove_file(self.directory.join(format!("{}.{ending}", self.id)));
        }
    }
}

/// The jobs of this user that run on this host, the oldest first. What jobs have left that were killed is taken away.
///
/// # Errors
/// The directory cannot be used.
pub fn running() -> Outcome<Vec<Found>> {
    let directory = directory()?;
    let mut jobs: Vec<Found> = Vec::new();
    for (id, path) in files(&directory, "job") {
        let Some(job) = read::<JobInfo>(&path) else { continue };
        let found = Found { directory: directory.clone(), id, job };
        // One that cannot be reached just now is there.
        if !matches!(found.connect(), Ok(None)) {
            jobs.push(found);
        }
    }
    jobs.sort_by_key(|found| (found.job.started_unix_s, found.job.number));
    Ok(jobs)
}

/// Takes away what jobs have left whose launchers are gone. Those that are there are not asked.
pub fn sweep() {
    // Where no job has ever been, there is no directory, and need not be one.
    if !rundir::directory().is_ok_and(|base| base.join(DIRECTORY).is_dir()) {
        return;
    }
    let Ok(directory) = directory() else { return };
    for (id, path) in files(&directory, "job") {
        let gone = read::<JobInfo>(&path).filter(|job| !process::is_there(job.number));
        if let Some(job) = gone {
            let _ = Found { directory: directory.clone(), id, job }.connect();
        }
    }
}

/// The jobs that have ended lately, the latest first.
///
/// # Errors
/// The directory cannot be used.
pub fn ended() -> Outcome<Vec<EndedJob>> {
    let mut jobs: Vec<EndedJob> = files(&directory()?, "ended").filter_map(|(_, path)| read(&path)).collect();
    jobs.sort_by_key(|ended| std::cmp::Reverse(ended.ended_unix_s));
    Ok(jobs)
}

/// Which of several jobs a word means: the one with this number, or this name, or the only one whose number or name
/// begins with it.
///
/// # Errors
/// There is none, or there are several.
pub fn choose<'a>(jobs: &'a [Found], wanted: &str) -> Outcome<&'a Found> {
    let number = |found: &&Found| found.job.number.to_string();
    let tests: [&dyn Fn(&&Found) -> bool; 3] =
        [&|found| number(found) == wanted, &|found| found.job.name == wanted, &|found| {
            !wanted.is_empty() && (number(found).starts_with(wanted) || found.job.name.starts_with(wanted))
        }];
    for test in tests {
        match jobs.iter().filter(|found| test(found)).collect::<Vec<_>>()[..] {
            [] => {}
            [one] => return Ok(one),
            ref several => return Err(ambiguous(&format!("{wanted} may be any of {} jobs", several.len()), several)),
        }
    }
    Err(Failure::usage(format!("no job {wanted} runs here"), "see `comem jobs`"))
}

/// Which job is meant where none is named: the only one.
///
/// # Errors
/// There is none, or there are several.
pub fn only(jobs: &[Found]) -> Outcome<&Found> {
    match jobs {
        [one] => Ok(one),
        [] => Err(Failure::usage("no job of this user runs on this host", "start one with `comem run`")),
        several => Err(ambiguous(&format!("{} jobs run here", several.len()), &several.iter().collect::<Vec<_>>())),
    }
}

fn ambiguous(what: &str, several: &[&Found]) -> Failure {
    const FEW: usize = 8;
    let one = |found: &&Found| format!("{} ({})", found.job.number, found.job.name);
    let mut named: Vec<String> = several.iter().take(FEW).map(one).collect();
    if several.len() > FEW {
        named.push("...".to_string());
    }
    Failure::usage(format!("{what}: {}", named.join(", ")), "give a job's number")
}

/// The directory, made if need be.
fn directory() -> Outcome<PathBuf> {
    let path = rundir::directory()?.join(DIRECTORY);
    let unfit = |why: comem::keys::Unfit| Failure::start(why.what, why.advice);
    let path = comem::keys::private_directory(path).map_err(unfit)?;
    let open = path.symlink_metadata().is_ok_and(|meta| meta.mode() & 0o077 != 0);
    if open {
        let closed = std::fs::set_permissions(&path, Permissions::from_mode(0o700));
        closed.map_err(|e| Failure::system(format!("the directory {}", path.display()), e))?;
    }
    Ok(path)
}

/// The files with this ending, by the names before it.
fn files(directory: &Path, ending: &'static str) -> impl Iterator<Item = (String, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().take(JOBS_MAX * 3);
    let named = entries.filter_map(move |entry| {
        let name = entry.file_name().into_string().ok()?;
        let (id, found) = name.rsplit_once('.')?;
        (found == ending && !id.starts_with('.')).then(|| (id.to_string(), entry.path()))
    });
    named.take(JOBS_MAX)
}

/// Reads a file of this user's; `None` for anything else.
fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.uid() != sys::user_id() {
        return None;
    }
    let mut text = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Writes a file beside its place, then into it: a reader never sees half of it.
fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}"));
    let text = serde_json::to_vec(value).expect("our own values have a JSON form");
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
    let written = made.and_then(|mut file| file.write_all(&text)).and_then(|()| std::fs::rename(&beside, path));
    written.inspect_err(|_| drop(std::fs::remove_file(&beside)))
}

/// Takes away what is known of jobs that ended long ago, and of all but the latest.
fn sweep_ended(directory: &Path, now_unix_s: u64) {
    let mut ended: Vec<(u64, PathBuf)> = files(directory, "ended")
        .map(|(_, path)| (read::<EndedJob>(&path).map_or(0, |ended| ended.ended_unix_s), path))
        .collect();
    ended.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let is_old = |at: u64| at.saturating_add(ENDED_KNOWN_S) < now_unix_s;
    let old = ended.iter().enumerate().filter(|(index, (at, _))| *index >= ENDED_MAX || is_old(*at));
    old.for_each(|(_, (_, path))| drop(std::fs::remove_file(path)));
}

/// Does something with the path of a socket in `directory`. Such a path has 107 bytes at most: a longer one is
/// shortened by a descriptor of the directory.
fn with_socket_path<T>(directory: &Path, name: &str, act: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
    let path = directory.join(name);
    if path.as_os_str().len() <= SOCKET_PATH_MAX {
        return act(path);
    }
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let opened: File = OpenOptions::new().read(true).custom_flags(flags).open(directory)?;
    act(PathBuf::from(format!("/proc/self/fd/{}/{name}", opened.as_raw_fd())))
}

/// Connects without waiting for a launcher that is stopped and has too many callers already.
fn connect_at_once(path: PathBuf) -> io::Result<UnixStream> {
    sys::connect_at_once(&path)
}

/// Seconds since 1970.
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(number: u32, name: &str) -> Found {
        let job = JobInfo { number, name: name.to_string(), ..JobInfo::default() };
        Found { directory: PathBuf::new(), id: number.to_string(), job }
    }

    #[test]
    fn a_job_is_meant_by_its_number_its_name_or_what_it_alone_begins_with() {
        let jobs = [found(100, "sor"), found(101, "sor2"), found(20, "water"), found(2, "100x")];
        let number = |wanted: &str| choose(&jobs, wanted).map(|found| found.job.number).map_err(|f| f.what);
        assert_eq!(number("100"), Ok(100), "a number wins over a name that begins with it");
        assert_eq!(number("sor"), Ok(100), "a whole name wins over one that is longer");
        assert_eq!((number("wat"), number("101"), number("2")), (Ok(20), Ok(101), Ok(2)));
        assert_eq!(number("so"), Err("so may be any of 2 jobs: 100 (sor), 101 (sor2)".to_string()));
        assert_eq!(number("10").unwrap_err(), "10 may be any of 3 jobs: 100 (sor), 101 (sor2), 2 (100x)");
        for nothing in ["x", "", "sor3"] {
            assert_eq!(number(nothing), Err(format!("no job {nothing} runs here")));
        }
        let twins = [found(1, "sor"), found(2, "sor")];
        assert!(choose(&twins, "sor").unwrap_err().what.contains("1 (sor), 2 (sor)"));
        assert!(only(&twins).is_err() && only(&twins[..1]).is_ok() && only(&[]).is_err());
    }

    #[test]
    fn only_the_latest_of_the_jobs_that_have_ended_are_known_and_for_an_hour() {
        let directory = std::env::temp_dir().join(format!("comem-ended-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let now = 1_000_000;
        for index in 0..ENDED_MAX as u64 + 5 {
            let ended = EndedJob { job: JobInfo::default(), status: 0, ended_unix_s: now - index };
            write(&directory.join(format!("{index}.ended")), &ended).unwrap();
        }
        let old = EndedJob { job: JobInfo::default(), status: 0, ended_unix_s: now - ENDED_KNOWN_S - 1 };
        write(&directory.join("old.ended"), &old).unwrap();
        std::fs::write(directory.join("garbage.ended"), "{").unwrap();
        sweep_ended(&directory, now);
        let mut left: Vec<u64> = files(&directory, "ended").map(|(id, _)| id.parse().unwrap()).collect();
        left.sort_unstable();
        assert_eq!(left, (0..ENDED_MAX as u64).collect::<Vec<_>>());
        sweep_ended(&directory, now + 2 * ENDED_KNOWN_S);
        assert_eq!(files(&directory, "ended").count(), 0);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn links_and_what_is_no_file_are_not_read() {
        let directory = std::env::temp_dir().join(format!("comem-links-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let real = directory.join("real.job");
        write(&real, &JobInfo { number: 5, ..JobInfo::default() }).unwrap();
        std::os::unix::fs::symlink(&real, directory.join("link.job")).unwrap();
        std::fs::create_dir(directory.join("folder.job")).unwrap();
        let read_ones: Vec<u32> =
            files(&directory, "job").filter_map(|(_, path)| read::<JobInfo>(&path)).map(|job| job.number).collect();
        assert_eq!((files(&directory, "job").count(), read_ones), (3, vec![5]));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn sockets_may_lie_deep() {
        let base = std::env::temp_dir().join(format!("comem-deep-{}", std::process::id()));
        let deep = base.join("x".repeat(SOCKET_PATH_MAX));
        std::fs::create_dir_all(&deep).unwrap();
        let listener = with_socket_path(&deep, "a.sock", UnixListener::bind).unwrap();
        assert!(deep.join("a.sock").exists());
        with_socket_path(&deep, "a.sock", connect_at_once).unwrap();
        listener.accept().unwrap();
        drop(listener);
        let why = with_socket_path(&deep, "a.sock", connect_at_once).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::ConnectionRefused);
        std::fs::remove_dir_all(&base).unwrap();
    }
}
