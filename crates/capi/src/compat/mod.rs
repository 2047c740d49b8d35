//! Interfaces of other systems of shared memory, on Comem's: what `include/compat/jia.h`, `tmk.h` and `quarks.h`
//! declare.
//!
//! Those of JIAJIA, TreadMarks and Quarks are of the kind "all nodes run `main`", with one thread in each process.
//! Names, argument types and meaning follow what was published of each system; `docs/jiajia.md`, `docs/treadmarks.md`
//! and `docs/quarks.md` say what differs.
//!
//! | module | what |
//! |---|---|
//! | `jia`, `placement`, `load` | JIAJIA: the job and synchronisation; allocation; dividing work |
//! | `tagged_messages` | JIAJIA: messages with tags, in order |
//! | `tmk` | TreadMarks |
//! | `quarks` | Quarks |
//! | `splash4` | SPLASH-4's atomic macros, for programs in PARMACS form |
//! | `load_address` | the program's own variables and functions, whose addresses differ from node to node |

mod jia;
mod load;
mod load_address;
mod placement;
mod quarks;
mod splash4;
mod tagged_messages;
mod tmk;

use crate::failure::{Code, Failure, Outcome};
use crate::job::{job, start_under, thread};
use std::time::Instant;

/// When the program joined its job.
static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

/// Joins the job for a program of another system, under `engine` unless the user has chosen one.
///
/// # Safety
/// No other thread runs that might read the environment.
unsafe fn begin(system: &str, engine: &str) -> Outcome<()> {
    // SAFETY: by this function's contract.
    unsafe { start_under(engine) }?;
    BEGAN.get_or_init(Instant::now);
    let threads = job()?.threads_per_node();
    if threads > 1 {
        return Err(Failure::new(
            Code::Misuse,
            format!(
                "a program for {system} has one thread in each process, not {threads}; start it without -t, on more \
                 nodes"
            ),
        ));
    }
    Ok(())
}

/// For interfaces whose letters may be for a call that this process makes much later: they must not keep their sender
/// from coming that
/// far.
fn keep_letters() -> Outcome<()> {
    thread()?.keep_messages();
    Ok(())
}

/// Seconds since the program joined its job; 0 before.
fn elapsed() -> f64 {
    BEGAN.get().map_or(0.0, |began| began.elapsed().as_secs_f64())
}

fn argument(what: impl Into<String>) -> Failure {
    Failure::new(Code::Argument, what)
}

fn misuse(what: impl Into<String>) -> Failure {
    Failure::new(Code::Misuse, what)
}
