//! Jobs that the page has started: what they print, and how they end.
//!
//! Each is a process group of its own, so that Ctrl-C in the server's terminal is not meant for it, and goes on without
//! the server.

use crate::failure::exit;
use crate::sys;
use comem_ui::streams::Output;
use std::collections::BTreeMap;
use std::io::{self, PipeReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most jobs of which something is known after their end.
const KEPT_MAX: usize = 64;
/// How long the last words of a job may take that has ended.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);

/// What is known of a job that was started here.
#[derive(Clone)]
pub struct Launched {
    /// Its name.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// When it was started, in seconds since 1970.
    pub started_unix_s: u64,
    /// The name of its run, among the statistics.
    pub run: String,
    /// What it prints.
    pub output: Arc<Output>,
}

/// All of them, by their numbers.
#[derive(Default)]
pub struct AllLaunched(Mutex<BTreeMap<u32, Launched>>);

impl AllLaunched {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Launched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one with this number.
    pub fn get(&self, number: u32) -> Option<Launched> {
        self.lock().get(&number).cloned()
    }

    /// All that are known.
    pub fn all(&self) -> Vec<(u32, Launched)> {
        self.lock().iter().map(|(number, one)| (*number, one.clone())).collect()
    }

    /// Starts a launcher; the job's number.
    ///
    /// # Errors
    /// The system refuses a process, a pipe or a thread.
    pub fn start(&self, command: &mut Command, job: Launched) -> io::Result<u32> {
        let (reader, writer) = io::pipe()?;
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).process_group(0);
        let child = command.spawn()?;
        let number = child.id();
        let output = job.output.clone();
        let mut all = self.lock();
        all.insert(number, job);
        while all.len() > KEPT_MAX {
            let ended = all.iter().filter(|(_, one)| one.output.status().is_some());
            let Some(oldest) = ended.min_by_key(|(_, one)| one.started_unix_s).map(|(number, _)| *number) else {
                break;
            };
            all.remove(&oldest);
        }
        drop(all);
        // Without the thread nobody would see its end.
        sys::start_thread("comem-ui-job", move || follow(child, reader, &output))
            .map(|_| number)
            .map_err(|failure| io::Error::other(failure.what))
    }
}

/// Reads what a job prints, and waits for its end. The pipe may stay open longer: a program may have left a process.
fn follow(mut child: Child, mut reader: PipeReader, output: &Arc<Output>) {
    let (done, all_read) = mpsc::channel::<()>();
    let to = output.clone();
    let read = move || {
        let mut bytes = [0; 16 << 10];
        while let Ok(count @ 1..) = reader.read(&mut bytes) {
            to.add(&bytes[..count]);
        }
        drop(done);
    };
    let reads = sys::start_thread("comem-ui-read", read);
    if let Err(failure) = reads {
        output.add(format!("{failure}\n").as_bytes());
    }
    let status = child.wait();
    let _ = all_read.recv_timeout(LAST_WORDS_LIMIT);
    output.end(status.map_or(exit::INTERNAL, code));
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| exit::SIGNAL + status.signal().unwrap_or(0))
}
