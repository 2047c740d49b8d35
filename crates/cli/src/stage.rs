//! A program that was sent, on the host of its nodes.

use crate::failure::{Failure, Outcome};
use crate::rundir;
use crate::spec::HostSpec;
use crate::sys;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// With what the directories' names begin.
const PREFIX: &str = "comem-stage-";

/// A private directory with the program that was sent; it goes when the agent goes.
pub struct StageDir {
    directory: PathBuf,
    program: PathBuf,
    /// The directory, locked as long as the agent lives.
    _lock: File,
}

impl StageDir {
    /// Makes one of a program's bytes, for the nodes of `spec`; removes what agents that were killed have left.
    pub fn make(spec: &HostSpec, bytes: &[u8]) -> Outcome<StageDir> {
        let trouble = |e: io::Error| {
            let advice = "set TMPDIR on that host to a directory with room from which programs may run";
            Failure::start(format!("host {}: cannot keep the program: {e}", spec.host), advice)
        };
        let (temporary, unique) = (std::env::temp_dir(), u64::from_ne_bytes(sys::random()));
        sweep(&temporary);
        let directory = temporary.join(format!("{PREFIX}{unique:016x}"));
        std::fs::DirBuilder::new().mode(0o700).create(&directory).map_err(trouble)?;
        let name = Path::new(&spec.hashed).file_name().map_or(OsString::from("program"), OsString::from);
        let lock = File::open(&directory).map_err(trouble)?;
        sys::try_lock(&lock).map_err(trouble)?;
        let stage = StageDir { program: directory.join(name), directory, _lock: lock };
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o700).open(&stage.program).map_err(trouble)?;
        file.write_all(bytes).map_err(trouble)?;
        Ok(stage)
    }

    /// Has `spec` use the copy.
    pub fn redirect(&self, spec: &mut HostSpec) {
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

/// Removes the directories that agents of this user have left because they were killed: old ones that nobody has locked.
fn sweep(temporary: &Path) {
    for entry in std::fs::read_dir(temporary).into_iter().flatten().flatten() {
        let is_ours = |entry: &std::fs::DirEntry| {
            entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == sys::user_id()) && rundir::is_old(entry)
        };
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_ours(&entry) {
            let lock = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(entry.path());
            if lock.is_ok_and(|lock| sys::try_lock(&lock).is_ok_and(|free| free)) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn what_a_killed_agent_left_is_removed_and_nothing_else() {
        let unique = u64::from_ne_bytes(sys::random());
        let temporary = std::env::temp_dir().join(format!("comem-stage-test-{unique:016x}"));
        let make = |name: &str, hours: u64| {
            let path = temporary.join(name);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("program"), b"#!/bin/sh").unwrap();
            let directory = File::open(path).unwrap();
            directory.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
            directory
        };
        let used = make("comem-stage-1", 48);
        assert!(sys::try_lock(&used).unwrap());
        for (name, hours) in [("comem-stage-2", 48), ("comem-stage-3", 0), ("other", 48)] {
            make(name, hours);
        }
        sweep(&temporary);
        let names =
            std::fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        assert_eq!(names, ["comem-stage-1", "comem-stage-3", "other"]);
        std::fs::remove_dir_all(temporary).unwrap();
    }
}
