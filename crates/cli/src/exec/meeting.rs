//! Where the processes of a foreign job learn node zero's address: a file that node zero leaves for the others.
//!
//! A file left over from an earlier job of the same name must not mislead. So a file counts while the process that
//! wrote it lives (which only processes of the same host can tell), or while it is young by the clock of its own file
//! system; and each process takes part in a meeting once: where the same process manager has `comem exec` run several
//! times, one after the other, it leaves a mark, and waits for the next file. Whoever reads last removes the file,
//! which may hold the job's key, and the marks: then nothing is left of a meeting.

use super::place::Place;
use crate::control::{key_from_hex, key_to_hex};
use crate::failure::{Failure, Outcome};
use crate::sys;
use comem::keys::born;
use comem_net::backbone::Backbone;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the others wait for node zero, where a node may not be silent for longer.
const WAIT_LIMIT: Duration = Duration::from_secs(30);
/// How long they do so without a word.
const SILENCE: Duration = Duration::from_secs(2);
/// How often they look.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// An older file belongs to another job, unless its writer is seen to live.
const AGE_MAX_S: i64 = 120;
/// Files that nobody will look at again.
const SWEEP_AGE_S: i64 = 3600;

/// Most bytes of a file that says it.
const CONTENT_MAX: u64 = 64 << 10;

/// What is agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meeting {
    /// Node zero's service address.
    pub zero: SocketAddr,
    /// The job's key.
    pub key: [u8; 32],
    /// What moves its datagrams, where node zero has settled that for all.
    pub backbone: Option<Backbone>,
}

/// The file where a job meets.
pub struct Point {
    path: PathBuf,
    rank: usize,
    size: usize,
    one_host: bool,
}

#[derive(Serialize, Deserialize)]
struct Content {
    zero: SocketAddr,
    key: String,
    #[serde(default)]
    backbone: Option<String>,
    pid: u32,
    /// When the process was started, in the kernel's ticks: tells it from a later one of the same number.
    born: u64,
    /// Tells one meeting from the next.
    meeting: u64,
}

/// How long the others wait for node zero where a node may be silent for so long, or `off`; `None` for ever.
pub fn limit(node_timeout: &str) -> Option<Duration> {
    (node_timeout != "off").then(|| crate::args::time(node_timeout).map_or(WAIT_LIMIT, |time| time.max(WAIT_LIMIT)))
}

impl Point {
    /// The point of a job on this host alone, in the user's own directory.
    pub fn of_host(directory: PathBuf, place: &Place) -> Point {
        Point { path: directory.join(file_name(place)), rank: place.rank, size: place.size, one_host: true }
    }

    /// The point of a job on several hosts.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn of_job(named: Option<&Path>, place: &Place) -> Outcome<Point> {
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".comem"));
        let directory = named.map(Path::to_path_buf).or_else(home).ok_or_else(|| {
            Failure::usage("the processes have no place to meet", "give --rendezvous DIR, or --zero HOST:PORT")
        })?;
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                let what = format!("cannot make the directory {}: {e}", directory.display());
                Err(Failure::start(what, "give --rendezvous DIR on a file system that all hosts share"))
            }
            _ => {
                let path = directory.join(file_name(place));
                Ok(Point { path, rank: place.rank, size: place.size, one_host: false })
            }
        }
    }

    /// Node zero leaves its address.
    pub fn announce(&self, meeting: &Meeting) -> Outcome<Meeting> {
        let trouble = |e| Failure::system(format!("cannot leave node zero's address in {}", self.path.display()), e);
        self.sweep();
        if self.size == 1 {
            // Nobody will read it.
            return Ok(*meeting);
        }
        let pid = std::process::id();
        let content = Content {
            zero: meeting.zero,
            key: key_to_hex(&meeting.key),
            backbone: meeting.backbone.map(|backbone| backbone.to_string()),
            pid,
            born: born(pid).unwrap_or(0),
            meeting: u64::from_ne_bytes(sys::random()),
        };
        let text = serde_json::to_vec(&content).expect("the content has a JSON form");
        let beside = self.path.with_extension(format!("part{pid}"));
        let _alone = self.lock();
        let left = write_private(&beside, &text).and_then(|()| std::fs::rename(&beside, &self.path));
        left.inspect_err(|_| drop(std::fs::remove_file(&beside))).map_err(trouble)?;
        Ok(*meeting)
    }

    /// The others wait for it; for ever without a `limit`.
    pub fn wait(&self, limit: Option<Duration>) -> Outcome<Meeting> {
        let (rank, path) = (self.rank, self.path.display());
        let start = Instant::now();
        let now_there = self.clock_there();
        let mut has_spoken = false;
        while limit.is_none_or(|limit| start.elapsed() < limit) {
            if let Some(meeting) = self.look(now_there) {
                return Ok(meeting);
            }
            if start.elapsed() >= SILENCE && !std::mem::replace(&mut has_spoken, true) {
                let most = limit.map_or(String::new(), |limit| format!("; gives up after {} s", limit.as_secs()));
                crate::say(format_args!(
                    "comem: node {rank} waits for node 0, which is to leave its address in {path}{most}"
                ));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let seconds = limit.unwrap_or_default().as_secs();
        let what = format!("node {rank}: node zero did not leave its address in {path} within {seconds} s");
        let advice = match self.one_host {
            true => "see whether process 0 failed",
            false => "give --rendezvous DIR on a file system that all hosts share, or --zero HOST:PORT",
        };
        Err(Failure::start(what, advice))
    }

    /// Reads the file, if it is there and meant for this job.
    fn look(&self, now_there: Option<i64>) -> Option<Meeting> {
        // On a file system that hosts share, it may have been put there by somebody else, and be anything.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&self.path).ok()?;
        let meta = file.metadata().ok()?;
        if !meta.is_file() || meta.uid() != sys::user_id() || meta.mode() & 0o022 != 0 {
            return None;
        }
        let mut text = Vec::new();
        file.take(CONTENT_MAX).read_to_end(&mut text).ok()?;
        let content: Content = serde_json::from_slice(&text).ok()?;
        let alive = self.one_host && born(content.pid) == Some(content.born);
        let young = now_there.is_none_or(|now| now - meta.mtime() <= AGE_MAX_S);
        if !(alive || young) || self.was_at(content.meeting) {
            return None;
        }
        let key = key_from_hex(&content.key)?;
        let backbone = content.backbone.and_then(|name| name.parse().ok());
        self.mark(content.meeting);
        self.clear(content.meeting);
        Some(Meeting { zero: content.zero, key, backbone })
    }

    /// Where a process's number notes its last meeting.
    fn mark_path(&self, rank: usize) -> PathBuf {
        self.path.with_extension(format!("mark{rank}"))
    }

    fn was_at(&self, meeting: u64) -> bool {
        self.has_been_at(self.rank, meeting)
    }

    fn has_been_at(&self, rank: usize, meeting: u64) -> bool {
        std::fs::read_to_string(self.mark_path(rank)).is_ok_and(|text| text == meeting.to_string())
    }

    /// Removes the file and the marks of a meeting that all have been at.
    fn clear(&self, meeting: u64) {
        // Node zero may leave the next file at the same time.
        let Some(_alone) = self.lock() else { return };
        let content = std::fs::read(&self.path).ok().and_then(|text| serde_json::from_slice::<Content>(&text).ok());
        let is_this = content.is_some_and(|content| content.meeting == meeting);
        if is_this && (1..self.size).all(|rank| self.has_been_at(rank, meeting)) {
            let _ = std::fs::remove_file(&self.path);
            (1..self.size).for_each(|rank| drop(std::fs::remove_file(self.mark_path(rank))));
        }
    }

    /// Keeps others from changing the file, where the file system can; it ends with the value.
    fn lock(&self) -> Option<File> {
        let directory = File::open(self.path.parent()?).ok()?;
        sys::wait_for_lock(&directory).ok().map(|()| directory)
    }

    fn mark(&self, meeting: u64) {
        // Without the mark only a second meeting of the same processes could go wrong.
        let _ = write_private(&self.mark_path(self.rank), meeting.to_string().as_bytes());
    }

    /// The time by the clock of the file system.
    fn clock_there(&self) -> Option<i64> {
        let probe = self.path.with_extension(format!("probe{}-{}", self.rank, std::process::id()));
        write_private(&probe, b"").ok()?;
        let time = std::fs::metadata(&probe).ok().map(|meta| meta.mtime());
        let _ = std::fs::remove_file(&probe);
        time
    }

    /// Removes what earlier jobs left.
    fn sweep(&self) {
        if let (Some(now), Some(directory)) = (self.clock_there(), self.path.parent()) {
            sweep_at(directory, now, self.one_host);
        }
    }
}

/// Removes what earlier jobs of this host alone left in the user's own directory: keys are in it.
pub fn sweep_host(directory: &Path) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    sweep_at(directory, now as i64, true);
}

fn sweep_at(directory: &Path, now: i64, one_host: bool) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|e| e.file_name().as_encoded_bytes().starts_with(b"exec-")) {
        let Ok(meta) = entry.metadata() else { continue };
        let age_s = now - meta.mtime();
        if age_s > SWEEP_AGE_S || age_s > AGE_MAX_S && one_host && is_over(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Whether a file is that of a meeting on this host whose writer is gone.
fn is_over(path: &Path) -> bool {
    let content = std::fs::read(path).ok().and_then(|text| serde_json::from_slice::<Content>(&text).ok());
    content.is_some_and(|content| born(content.pid) != Some(content.born))
}

fn file_name(place: &Place) -> String {
    format!("exec-{:016x}.json", place.number("meeting"))
}

fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    let _ = std::fs::remove_file(path);
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Scratch {
            let path = std::env::temp_dir().join(format!("comem-meeting-{:016x}", u64::from_ne_bytes(sys::random())));
            std::fs::create_dir(&path).unwrap();
            Scratch(path)
        }
        fn point(&self, rank: usize) -> Point {
            let place = Place {
                rank,
                size: 3,
                on_this_host: 3,
                one_host: true,
                hosts: Vec::new(),
                identity: "test".to_string(),
            };
            Point::of_host(self.0.clone(), &place)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn meeting() -> Meeting {
        Meeting { zero: "127.0.0.1:20005".parse().unwrap(), key: [5; 32], backbone: Some(Backbone::Shm) }
    }

    /// Leaves a file as another process would have.
    fn leave(point: &Point, born: u64, age_s: u64) {
        let content = Content {
            zero: meeting().zero,
            key: key_to_hex(&meeting().key),
            backbone: None,
            pid: std::process::id(),
            born,
            meeting: u64::from_ne_bytes(sys::random()),
        };
        write_private(&point.path, &serde_json::to_vec(&content).unwrap()).unwrap();
        let file = OpenOptions::new().write(true).open(&point.path).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(age_s)).unwrap();
    }

    #[test]
    fn who_comes_first_waits_for_node_zero() {
        let scratch = Scratch::new();
        let point = scratch.point(1);
        let early = std::thread::spawn(move || point.wait(limit("10s")));
        scratch.point(0).announce(&meeting()).unwrap();
        assert_eq!(early.join().unwrap().unwrap(), meeting());
        assert_eq!(scratch.point(2).wait(limit("10s")).unwrap(), meeting());
    }

    #[test]
    fn node_zero_is_waited_for_as_long_as_a_node_may_be_silent() {
        assert_eq!(["10000ms", "300000ms", "off"].map(limit), [Some(WAIT_LIMIT), Some(10 * WAIT_LIMIT), None]);
        let error = Scratch::new().point(1).wait(Some(Duration::from_millis(20))).unwrap_err();
        assert!(error.to_string().contains("node 1: node zero did not leave its address"), "{error}");
    }

    #[test]
    fn nobody_takes_part_in_the_same_meeting_twice() {
        let scratch = Scratch::new();
        scratch.point(0).announce(&meeting()).unwrap();
        let now = scratch.point(1).clock_there();
        assert_eq!(scratch.point(1).look(now), Some(meeting()));
        assert_eq!(scratch.point(1).look(now), None, "this one waits for the next");
        assert_eq!(scratch.point(2).look(now), Some(meeting()), "that one has not been there");
        let left = || std::fs::read_dir(&scratch.0).unwrap().count();
        assert_eq!(left(), 0, "all have been there");
        let next = Meeting { key: [6; 32], ..meeting() };
        scratch.point(0).announce(&next).unwrap();
        assert_eq!(scratch.point(1).look(now), Some(next));
        assert_eq!(left(), 2, "the file, and a mark");
    }

    #[test]
    fn a_writer_may_be_gone_while_the_file_is_young_and_the_file_old_while_the_writer_lives() {
        let scratch = Scratch::new();
        let (gone, alive) = (1, born(std::process::id()).unwrap());
        let old = AGE_MAX_S as u64 + 30;
        for (born, age_s, counts) in [(gone, 5, true), (alive, old, true), (gone, old, false)] {
            leave(&scratch.point(0), born, age_s);
            let point = scratch.point(1);
            assert_eq!(point.look(point.clock_there()).is_some(), counts, "{born} {age_s}");
        }
        let mut elsewhere = scratch.point(1);
        elsewhere.one_host = false;
        leave(&elsewhere, alive, old);
        assert_eq!(elsewhere.look(elsewhere.clock_there()), None, "processes of other hosts cannot be seen");
    }

    #[test]
    fn nonsense_does_not_count_and_old_files_are_swept() {
        let scratch = Scratch::new();
        let point = scratch.point(0);
        write_private(&point.path, b"{ nonsense").unwrap();
        assert_eq!(point.look(point.clock_there()), None);
        leave(&point, 1, SWEEP_AGE_S as u64 + 60);
        point.sweep();
        assert!(!point.path.exists());
        let (gone, alive) = (1, born(std::process::id()).unwrap());
        let old = AGE_MAX_S as u64 + 30;
        for (born, age_s, stays) in [(gone, 5, true), (gone, old, false), (alive, old, true)] {
            leave(&point, born, age_s);
            sweep_host(&scratch.0);
            assert_eq!(point.path.exists(), stays, "{born} {age_s}");
        }
    }
}
