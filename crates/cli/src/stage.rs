//! A program that was sent, on the host of its nodes.

use crate::failure::{Failure, Outcome};
use crate::spec::HostSpec;
use crate::sys;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// With what the directories' names begin.
const PREFIX: &str = "comem-stage-";

/// Largest program that is copied.
const STAGE_MAX: u64 = 2 << 30;

/// How often a directory is made anew because somebody who sweeps has taken it for a leftover.
const TRIES_MAX: usize = 64;

/// A private directory with the program that was sent; it goes when the agent goes.
pub struct StageDir {
    directory: PathBuf,
    program: PathBuf,
    /// The program while it comes, and how much has: what is open for writing cannot be run.
    coming: Option<(File, u64)>,
    /// The directory, locked as long as the agent lives.
    _lock: File,
}

fn trouble(spec: &HostSpec, why: &io::Error) -> Failure {
    let advice = "set TMPDIR on that host to a directory with room from which programs may run";
    Failure::start(format!("host {}: cannot keep the program: {why}", spec.host), advice)
}

impl StageDir {
    /// Makes one for a program that comes in pieces, for the nodes of `spec`; removes what agents that were killed have
    /// left.
    pub fn make(spec: &HostSpec) -> Outcome<StageDir> {
        let temporary = std::env::temp_dir();
        sweep(&temporary);
        let name = Path::new(&spec.hashed).file_name().unwrap_or(OsStr::new("program"));
        StageDir::make_in(&temporary, name).map_err(|why| trouble(spec, &why))
    }

    fn make_in(temporary: &Path, name: &OsStr) -> io::Result<StageDir> {
        let unique = u64::from_ne_bytes(sys::random());
        let made = (0..TRIES_MAX).find_map(|turn| {
            StageDir::make_at(temporary.join(format!("{PREFIX}{unique:016x}-{turn}")), name).transpose()
        });
        made.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
    }

    /// `None` where somebody who sweeps has removed the directory before it was locked.
    fn make_at(directory: PathBuf, name: &OsStr) -> io::Result<Option<StageDir>> {
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let lock = match File::open(&directory) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        sys::wait_for_lock(&lock)?;
        if !directory.is_dir() {
            return Ok(None);
        }
        let mut stage = StageDir { program: directory.join(name), directory, coming: None, _lock: lock };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o700).open(&stage.program)?;
        stage.coming = Some((file, 0));
        Ok(Some(stage))
    }

    /// Adds a piece of the program.
    pub fn add(&mut self, spec: &HostSpec, piece: &[u8]) -> Outcome<()> {
        let Some((file, count)) = &mut self.coming else { return Ok(()) };
        *count += piece.len() as u64;
        if *count > STAGE_MAX {
            return Err(Failure::refused("the program is larger than 2 GiB", "install it there, without --stage"));
        }
        file.write_all(piece).map_err(|e| trouble(spec, &e))
    }

    /// The program is there: has `spec` use the copy.
    pub fn complete(&mut self, spec: &mut HostSpec) {
        self.coming = None;
        let original = spec.hashed.clone();
        let copy = self.program.clone().into_os_string();
        for path in std::iter::once(&mut spec.program).chain(&mut spec.args) {
            if *path == original {
                path.clone_from(&copy);
            }
        }
        spec.hashed = copy;
    }
}

impl Drop for StageDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Removes the directories that agents of this user have left because they were killed: those that nobody has locked.
pub fn sweep(temporary: &Path) {
    for entry in std::fs::read_dir(temporary).into_iter().flatten().flatten() {
        let is_ours = |entry: &std::fs::DirEntry| {
            entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == sys::user_id())
        };
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_ours(&entry) {
            let lock = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(entry.path());
            // It is locked until it is gone: an agent that begins in it waits, and then takes another.
            if let Ok(lock) = lock
                && sys::try_lock(&lock).is_ok_and(|free| free)
            {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn agents_that_sweep_at_the_same_time_take_nothing_from_one_that_begins() {
        let temporary =
            std::env::temp_dir().join(format!("comem-stage-test-{:016x}", u64::from_ne_bytes(sys::random())));
        std::fs::create_dir(&temporary).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    sweep(&temporary);
                }
            });
            let made: Vec<_> = (0..300).map(|_| StageDir::make_in(&temporary, OsStr::new("prog"))).collect();
            is_over.store(true, Ordering::Relaxed);
            for stage in made {
                assert!(stage.expect("a directory").program.is_file());
            }
        });
        std::fs::remove_dir(temporary).unwrap();
    }

    #[test]
    fn what_a_killed_agent_left_is_removed_and_nothing_else() {
        let unique = u64::from_ne_bytes(sys::random());
        let temporary = std::env::temp_dir().join(format!("comem-stage-test-{unique:016x}"));
        let make = |name: &str| {
            let path = temporary.join(name);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("program"), b"#!/bin/sh").unwrap();
            File::open(path).unwrap()
        };
        let used = make("comem-stage-1");
        assert!(sys::try_lock(&used).unwrap());
        for name in ["comem-stage-2", "other"] {
            make(name);
        }
        sweep(&temporary);
        let names =
            std::fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        assert_eq!(names, ["comem-stage-1", "other"]);
        std::fs::remove_dir_all(temporary).unwrap();
    }
}
