//! One seed for Python's hashes on all nodes of a job.
//!
//! Each Python process draws a seed for `hash()` of strings and bytes, and for the order of sets of them. Nodes of
//! one program that deal words out by `hash(word) % comem.size`, or allocate arrays in the order of a set, would each
//! do something else. So all nodes get one seed: what the user has set, else a number that differs from job to job.
//! Programs in other languages ignore it.

use crate::exec::place::Place;
use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;

/// Where Python looks for the seed: a number below 2^32, or `random` for one of each process's own.
pub const HASH_SEED: &str = "PYTHONHASHSEED";

/// What stands for the seed in the plan of a job that is not started.
const TO_BE_DRAWN: &str = "(a random number)";

/// What the environment says, unless it says nothing: Python takes an empty value for none.
fn set_here() -> Option<OsString> {
    std::env::var_os(HASH_SEED).filter(|seed| !seed.is_empty())
}

/// Adds the seed to what all nodes get, unless it is among that. Other hosts do not see this environment.
pub fn complete(variables: &mut Vec<(OsString, OsString)>, dry_run: bool) {
    if variables.iter().any(|(name, _)| name == HASH_SEED) {
        return;
    }
    let drawn = || if dry_run { TO_BE_DRAWN.to_string() } else { u32::from_ne_bytes(crate::sys::random()).to_string() };
    variables.push((HASH_SEED.into(), set_here().unwrap_or_else(|| drawn().into())));
}

/// The seed where each node is started by itself and has no launcher that could draw one: it follows from what all of
/// them know.
pub fn agreed(place: Option<&Place>) -> OsString {
    let follows = || match place {
        Some(place) => place.number("seed of Python's hashes") as u32,
        None => {
            let name = std::env::var("COMEM_JOB_NAME").unwrap_or_default();
            let hash = blake3::derive_key("comem 2026 seed of Python's hashes", name.as_bytes());
            u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
        }
    };
    set_here().unwrap_or_else(|| follows().to_string().into())
}

/// The seed of all jobs that this command starts one after the other to compare them.
pub fn of_trials() -> &'static OsStr {
    static SEED: OnceLock<OsString> = OnceLock::new();
    SEED.get_or_init(|| set_here().unwrap_or_else(|| u32::from_ne_bytes(crate::sys::random()).to_string().into()))
}

/// The seed among these variables, for the statistics.
pub fn among(variables: &[(OsString, OsString)]) -> Option<String> {
    variables.iter().find(|(name, _)| name == HASH_SEED).map(|(_, seed)| seed.to_string_lossy().into_owned())
}
