//! Variables whose names are almost those of settings: who mistyped one would wonder why it does nothing.

use clap::{Command, CommandFactory};
use std::collections::BTreeSet;

/// What begins the names of all settings.
const PREFIX: &str = "COMEM_";

/// Names that stand for something and are behind no flag.
const OTHERS: [&str; 13] = [
    "COMEM_CC",
    "COMEM_CXX",
    "COMEM_INCLUDE",
    "COMEM_LIB",
    "COMEM_NODE",
    "COMEM_ZERO",
    "COMEM_PROGRAM",
    "COMEM_HOST_NODES",
    "COMEM_HOST_PLACE",
    "COMEM_RUNTIME_DIR",
    "COMEM_JOB_NAME",
    "COMEM_PYTHON",
    "COMEM_REMOTE_PYTHON",
];

/// The settings that these variables were probably meant to be: the name given, and the one that exists.
pub fn settings(given: impl Iterator<Item = String>) -> Vec<(String, String)> {
    let known = known();
    let strange = given.filter(|name| name.starts_with(PREFIX) && !known.contains(name.as_str()));
    strange.filter_map(|name| meant(&name, &known).map(|meant| (name, meant))).collect()
}

fn known() -> BTreeSet<String> {
    let mut known: BTreeSet<String> = OTHERS.iter().map(ToString::to_string).collect();
    gather(&crate::args::Cli::command(), &mut known);
    known
}

fn gather(command: &Command, known: &mut BTreeSet<String>) {
    let variables = command.get_arguments().filter_map(|argument| argument.get_env());
    known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    command.get_subcommands().for_each(|one| gather(one, known));
}

/// The name that differs by a letter or, if it is long, two. Very short ones are somebody's own.
fn meant(name: &str, known: &BTreeSet<String>) -> Option<String> {
    let least = |known: &String| (strsim::osa_distance(name, known), known.len());
    let nearest = known.iter().min_by_key(|known| least(known))?;
    let allowed = match name.len() - PREFIX.len() {
        0..4 => 0,
        4..6 => 1,
        _ => 2,
    };
    (strsim::osa_distance(name, nearest) <= allowed).then(|| nearest.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(name: &str) -> Option<String> {
        settings([name.to_string()].into_iter()).pop().map(|(_, meant)| meant)
    }

    #[test]
    fn what_is_almost_a_setting_is_told_of() {
        for (given, meant) in [
            ("COMEM_THREDS", "COMEM_THREADS"),
            ("COMEM_BACKBNE", "COMEM_BACKBONE"),
            ("COMEM_ENIGNE", "COMEM_ENGINE"),
            ("COMEM_CAHCE", "COMEM_CACHE"),
            ("COMEM_NODE_TIME_OUT", "COMEM_NODE_TIMEOUT"),
        ] {
            assert_eq!(hint(given).as_deref(), Some(meant), "{given}");
        }
    }

    #[test]
    fn settings_and_names_of_ones_own_are_left_alone() {
        for given in
            ["COMEM_THREADS", "COMEM_NODE", "COMEM_NODES", "COMEM_HOME", "COMEM_BIN", "COMEM_X", "COMEM_", "THREADS"]
        {
            assert_eq!(hint(given), None, "{given}");
        }
    }
}
