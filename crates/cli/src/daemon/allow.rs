//! What a daemon starts: programs under the directories it was given, with harmless variables.
//!
//! A path is resolved first, so that neither `..` nor a symbolic link leads out of the directories. What it resolves to
//! cannot change between the check and the start by anyone but root and the daemon's own user, because every directory
//! from the allowed one down, and the program itself, must be writable by nobody else.

use crate::args::{flag_of, page_var as pages};
use crate::control::var;
use crate::failure::{Failure, Outcome};
use crate::preload::WRAP;
use crate::spec::HostSpec;
use crate::sys;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What may be started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// The directories, resolved.
    pub directories: Vec<PathBuf>,
    /// Variables that a caller may set besides Comem's own.
    pub variables: Vec<String>,
}

/// Variables that a caller may always set. Not among them: those that name files to write.
const HARMLESS: &[&str] = &[
    var::NODE,
    var::NODES,
    var::THREADS,
    var::ENGINE,
    var::FORCE_ENGINE,
    var::BACKBONE,
    var::REHEARSE,
    var::DETECTOR,
    pages::CACHE,
    pages::DIFFS,
    pages::HEAP,
    pages::UNIT_PAGES,
    pages::UNIT_BYTES,
    pages::ONE_SIDED,
    pages::WRITE_DETECTION,
    pages::MIGRATION,
    pages::PREFETCH,
    pages::LOCK_TURNS,
    pages::LOCKS,
    pages::GLOBALS,
    pages::CHECK_POINTERS,
    var::FAULTS,
    var::IFACE,
    var::PORTS,
    var::MTU,
    var::MULTICAST,
    var::AUTH,
    var::NODE_TIMEOUT,
    var::SLOW,
    var::WAIT,
    var::TUNING,
    var::BIND,
    WRAP,
    var::VERBOSE,
    var::PROG_ID,
    var::HOST_NODES,
    var::HOST_PLACE,
    "OMP_NUM_THREADS",
    crate::hash_seed::HASH_SEED,
    "LANG",
    "TZ",
    "TERM",
];

impl Limits {
    /// Resolves the directories that the user named.
    ///
    /// # Errors
    /// One does not exist, or somebody else could put programs there.
    pub fn new(directories: &[PathBuf], variables: &[String]) -> Outcome<Limits> {
        let mut limits = Limits { directories: Vec::new(), variables: variables.to_vec() };
        for named in directories {
            let trouble = |why: &dyn std::fmt::Display| {
                let what = format!("--allow {}: {why}", named.display());
                Failure::usage(what, "name a directory that only its owner (or root) can change")
            };
            let resolved = named.canonicalize().map_err(|e| trouble(&e))?;
            if !resolved.is_dir() {
                return Err(trouble(&"is no directory"));
            }
            check_owner(&resolved).map_err(|why| trouble(&why))?;
            limits.directories.push(resolved);
        }
        Ok(limits)
    }

    /// The program that `path` leads to, if the daemon may start it.
    pub fn resolve(&self, path: &Path) -> Outcome<PathBuf> {
        self.resolve_for(&format!("the daemon on host {}", sys::host::name()), path)
    }

    /// The program that `path` leads to, if it may be started by whom `who` names.
    pub fn resolve_for(&self, who: &str, path: &Path) -> Outcome<PathBuf> {
        let refused = |why: String, advice: &str| {
            Failure::refused(format!("{who} does not start {}: {why}", path.display()), advice)
        };
        if !path.is_absolute() {
            return Err(refused("the path is not absolute".to_string(), "give the program's whole path"));
        }
        let outside = "start a program under a directory that is allowed (--allow)";
        let resolved = path.canonicalize().map_err(|e| refused(e.to_string(), "install it on that host"))?;
        let Some(top) = self.directories.iter().find(|d| resolved.starts_with(d) && resolved != **d) else {
            return Err(refused("it lies outside the directories it was given".to_string(), outside));
        };
        let below = resolved.ancestors().take_while(|a| *a != top.as_path());
        for part in below.chain([top.as_path()]) {
            check_owner(part).map_err(|why| refused(why, "let only its owner (or root) change it: chmod go-w"))?;
        }
        let meta = resolved.metadata().map_err(|e| refused(e.to_string(), outside))?;
        if !meta.is_file() || meta.mode() & 0o111 == 0 {
            return Err(refused("it is no program".to_string(), "make it executable: chmod +x"));
        }
        Ok(resolved)
    }
}

/// Checks that only root and this user can change `path`.
fn check_owner(path: &Path) -> Result<(), String> {
    let meta = path.metadata().map_err(|e| format!("{}: {e}", path.display()))?;
    if meta.uid() != 0 && meta.uid() != sys::user_id() {
        return Err(format!("{} belongs to another user ({})", path.display(), meta.uid()));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(format!("{} is writable by others (mode {:o})", path.display(), meta.mode() & 0o7777));
    }
    Ok(())
}

/// Checks what a caller wants started, and puts the resolved path in place of the one it gave.
pub fn check_spec(limits: &Limits, spec: &mut HostSpec) -> Outcome<()> {
    let given = spec.program.clone();
    let resolved = limits.resolve(Path::new(&given))?.into_os_string();
    if spec.hashed == given {
        spec.hashed.clone_from(&resolved);
    } else if !spec.staged && !Path::new(&spec.hashed).is_file() {
        // Nodes read it to its end.
        let what = format!("the daemon on host {} compares no {}", spec.host, spec.hashed.to_string_lossy());
        return Err(Failure::refused(what, "name a file that is on that host"));
    }
    spec.program = resolved;
    if spec.nodes.iter().any(|node| node.debugger.is_some()) {
        let what = format!("the daemon on host {} starts no debugger", spec.host);
        return Err(Failure::refused(what, "use --launch ssh, or attach to the node on its host"));
    }
    if spec.nice < 0 {
        let what = format!("the daemon on host {} gives no priority over others (--nice {})", spec.host, spec.nice);
        return Err(Failure::refused(what, "leave --nice out, or give a positive number"));
    }
    let per_node = spec.nodes.iter_mut().map(|node| &mut node.env);
    for env in per_node.chain([&mut spec.env]) {
        // The launcher writes the statistics; a node behind a daemon has no business with that file.
        env.retain(|(name, _)| name != var::STATS);
        if let Some((name, _)) = env.iter().find(|(name, _)| !limits.may_set(name)) {
            let name = name.to_string_lossy();
            let what = format!("the daemon on host {} takes no variable {name}", spec.host);
            let given = flag_of(&name).unwrap_or_else(|| format!("--env {name}"));
            return Err(Failure::refused(what, format!("start it with --allow-env {name}, or leave out {given}")));
        }
    }
    Ok(())
}

impl Limits {
    /// Whether a caller may set a variable.
    pub fn may_set(&self, name: &OsStr) -> bool {
        let Some(name) = name.to_str() else { return false };
        HARMLESS.contains(&name) || name.starts_with("LC_") || self.variables.iter().any(|v| v == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debug::Debugger;
    use crate::spec::{NodeSpec, StdinFrom};
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Place(PathBuf);

    impl Place {
        /// A directory `allowed` with a program, beside a program outside it.
        fn new() -> Place {
            let unique = u64::from_ne_bytes(sys::random());
            let place = Place(std::env::temp_dir().join(format!("comem-allow-{unique:016x}")));
            std::fs::create_dir_all(place.0.join("allowed/deep")).unwrap();
            for program in ["allowed/prog", "allowed/deep/prog", "outside"] {
                std::fs::write(place.0.join(program), "#!/bin/sh\n").unwrap();
                place.chmod(program, 0o755);
            }
            ["", "allowed", "allowed/deep"].iter().for_each(|d| place.chmod(d, 0o755));
            place
        }
        fn chmod(&self, path: &str, mode: u32) {
            std::fs::set_permissions(self.0.join(path), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        fn limits(&self) -> Limits {
            Limits::new(&[self.0.join("allowed")], &[]).unwrap()
        }
        fn refusal(&self, path: &str) -> String {
            self.limits().resolve(&self.0.join(path)).unwrap_err().what
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn programs_under_an_allowed_directory_may_start() {
        let place = Place::new();
        for program in ["allowed/prog", "allowed/deep/prog", "allowed/deep/../prog"] {
            assert!(place.limits().resolve(&place.0.join(program)).is_ok(), "{program}");
        }
    }

    #[test]
    fn neither_dots_nor_links_lead_out() {
        let place = Place::new();
        symlink(place.0.join("outside"), place.0.join("allowed/link")).unwrap();
        symlink(&place.0, place.0.join("allowed/up")).unwrap();
        for program in ["outside", "allowed/../outside", "allowed/link", "allowed/up/outside"] {
            assert!(place.refusal(program).contains("outside the directories"), "{program}");
        }
        std::fs::create_dir(place.0.join("allowed-too")).unwrap();
        std::fs::copy(place.0.join("outside"), place.0.join("allowed-too/prog")).unwrap();
        assert!(place.refusal("allowed-too/prog").contains("outside the directories"));
        assert!(place.limits().resolve(Path::new("allowed/prog")).is_err());
    }

    #[test]
    fn what_others_can_change_does_not_start() {
        let place = Place::new();
        place.chmod("allowed/deep", 0o777);
        assert!(place.refusal("allowed/deep/prog").contains("writable by others"));
        place.chmod("allowed/prog", 0o775);
        assert!(place.refusal("allowed/prog").contains("writable by others"));
        place.chmod("allowed/prog", 0o644);
        assert!(place.refusal("allowed/prog").contains("no program"));
        place.chmod("allowed", 0o777);
        assert!(Limits::new(&[place.0.join("allowed")], &[]).is_err());
    }

    #[test]
    fn a_debugger_could_run_anything_and_is_refused() {
        let place = Place::new();
        let program = place.0.join("allowed/prog").into_os_string();
        let debugger = Debugger { words: vec!["sh".into(), "-c".into(), "id".into()], terminal: false };
        let node = NodeSpec { node: 0, env: Vec::new(), debugger: Some(debugger), cores: None };
        let mut spec = HostSpec {
            version: String::new(),
            host: "a".to_string(),
            job: 0,
            prog_id: 1,
            threads: 1,
            hashed: program.clone(),
            program,
            args: Vec::new(),
            cwd: "/".into(),
            env: Vec::new(),
            nodes: vec![node],
            stdin: StdinFrom::Nothing,
            nice: 0,
            staged: false,
            patience_ms: 0,
        };
        assert!(check_spec(&place.limits(), &mut spec).unwrap_err().what.contains("starts no debugger"));
        spec.nodes[0].debugger = None;
        assert!(check_spec(&place.limits(), &mut spec).is_ok());
        spec.hashed = "/dev/zero".into();
        assert!(check_spec(&place.limits(), &mut spec).unwrap_err().what.contains("compares no /dev/zero"));
    }

    #[test]
    fn variables_that_could_load_code_need_permission() {
        let limits = Limits { directories: Vec::new(), variables: vec!["SEA_DATA".to_string()] };
        for name in ["COMEM_NODE", "COMEM_MTU", "OMP_NUM_THREADS", "PYTHONHASHSEED", "LC_ALL", "SEA_DATA"] {
            assert!(limits.may_set(OsStr::new(name)), "{name}");
        }
        for name in ["LD_PRELOAD", "PATH", "BASH_ENV", "COMEM_CAPTURE", "COMEM_STATS", "PYTHONPATH"] {
            assert!(!limits.may_set(OsStr::new(name)), "{name}");
        }
    }
}
