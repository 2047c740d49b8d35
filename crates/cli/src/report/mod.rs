//! `comem report`: where the time of a run went, what went over the network, and what shared pages cost.
//!
//! | module | |
//! |---|---|
//! | [`model`] | reads stats files |
//! | [`text`] | tables for a terminal: one run in detail, or several side by side |
//! | [`chart`] | a stacked bar for each node |

pub mod chart;
pub mod model;
pub mod text;

use crate::args::ReportArgs;
use crate::failure::{Failure, Outcome};
use crate::picture;
use crate::sys;
use model::Run;
use std::path::{Path, PathBuf};

/// Runs the command; its exit code.
pub fn main(args: &ReportArgs) -> Outcome<i32> {
    if let Some(path) = &args.svg {
        refuse_input(path, &args.files)?;
        picture::check_name("--svg", path)?;
    }
    let mut runs = args.files.iter().map(|path| Run::load(path)).collect::<Outcome<Vec<Run>>>()?;
    if runs.len() > 1 {
        tell_apart(&mut runs, &args.files);
    }
    let output = match (args.csv, runs.as_slice()) {
        (true, runs) => text::csv(runs),
        (false, [run]) => text::single(run, args.rows),
        (false, runs) => text::side_by_side(runs, args.rows),
    };
    crate::show(&output)?;
    if let Some(path) = &args.svg {
        write(path, &chart::picture(&runs))?;
    }
    Ok(0)
}

/// A picture must not take the place of what it shows.
fn refuse_input(svg: &Path, files: &[PathBuf]) -> Outcome<()> {
    let same = |file: &&PathBuf| sys::same_file(svg, file);
    let Some(file) = files.iter().find(same) else { return Ok(()) };
    let what = format!("--svg {} would overwrite {}, which is to be shown", svg.display(), file.display());
    Err(Failure::usage(what, "name another file"))
}

/// Files of one name in several directories keep their whole paths.
fn tell_apart(runs: &mut [Run], paths: &[impl AsRef<Path>]) {
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    for (index, run) in runs.iter_mut().enumerate() {
        if names.iter().filter(|name| **name == run.name).count() > 1 {
            run.name = paths[index].as_ref().display().to_string();
        }
    }
}

/// Writes a file that the user named.
///
/// # Errors
/// What the system says, with the file's name.
pub fn write(path: &Path, text: &str) -> Outcome<()> {
    std::fs::write(path, text).map_err(|e| Failure::system(format!("cannot write {}", path.display()), e))
}
