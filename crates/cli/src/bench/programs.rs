//! The compiled workloads: where they are, and how one is run with Comem and without.

use crate::failure::{Failure, Outcome};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folder of compiled workloads: the one named, or one of the usual ones.
///
/// # Errors
/// There is none.
pub fn folder(named: Option<&Path>) -> Outcome<PathBuf> {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.parent().unwrap_or(Path::new("."));
    let candidates = match named {
        Some(folder) => vec![folder.to_path_buf()],
        None => usual_folders(beside),
    };
    let found = candidates.iter().find(|folder| folder.is_dir());
    found.cloned().ok_or_else(|| {
        let list: Vec<String> = candidates.iter().map(|folder| folder.display().to_string()).collect();
        Failure::start(
            format!("no workloads in {}", list.join(", ")),
            "build them with `make`, or name --workloads DIR",
        )
    })
}

/// Where workloads are, seen from the folder of `comem`: installed with it, built with it, or built in the working
/// directory.
fn usual_folders(beside: &Path) -> Vec<PathBuf> {
    let around = ["workloads", "../workloads", "../../out/workloads"].map(|folder| beside.join(folder));
    around.into_iter().chain([PathBuf::from("out/workloads")]).collect()
}

/// How one program is run.
#[derive(Clone, Debug)]
pub struct Commands {
    /// With Comem.
    pub shared: Vec<OsString>,
    /// The build for one thread without any call to Comem; `None` where it is missing: then one node with Comem stands
    /// in.
    pub sequential: Option<Vec<OsString>>,
}

impl Commands {
    /// A program of the folder, with a problem size.
    ///
    /// # Errors
    /// The program cannot be used.
    pub fn of(folder: &Path, program: &str, preset: &str) -> Outcome<Commands> {
        let words = |name: &str| -> std::io::Result<Vec<OsString>> {
            let path = folder.join(name).canonicalize()?;
            Ok(vec![path.into_os_string(), "--preset".into(), preset.into()])
        };
        let shared = words(program).map_err(|e| {
            let what = format!("the workload {} cannot be used: {e}", folder.join(program).display());
            Failure::start(what, "build it, or leave it out with --programs")
        })?;
        Ok(Commands { shared, sequential: words(&format!("{program}-sequential")).ok() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_found_from_any_folder() {
        let folders = usual_folders(Path::new("/tree/target/release"));
        assert!(folders.contains(&PathBuf::from("/tree/target/release/../../out/workloads")), "{folders:?}");
        assert!(folders.iter().filter(|folder| folder.is_relative()).eq(folders.last()), "{folders:?}");
    }
}
