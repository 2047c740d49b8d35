//! The variables by which somebody chooses settings, and what a mistyped one was meant to be: it does nothing, and
//! who set it would
//! wonder why.

use crate::config::Config;
pub use crate::config::tuning;
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::coherence::pages::choice::Reason;

/// What begins the names of all settings.
const PREFIX: &str = "COMEM_";

/// The settings that the documents name, with what comes beside the command's flags.
pub const SETTINGS: [&str; 62] = [
    "COMEM_ALLOW",
    "COMEM_ALLOW_ENV",
    "COMEM_AUTH",
    "COMEM_BACKBONE",
    "COMEM_BIND",
    "COMEM_CACHE",
    "COMEM_CAPTURE",
    "COMEM_CC",
    "COMEM_CHECK_POINTERS",
    "COMEM_DAEMON_BIND",
    "COMEM_DAEMON_PORT",
    "COMEM_DETECTOR",
    "COMEM_DIFFS",
    "COMEM_DISCOVER",
    "COMEM_DRY_RUN",
    "COMEM_ENGINE",
    "COMEM_ENV",
    "COMEM_FAULTS",
    "COMEM_FORCE_ENGINE",
    "COMEM_GDB",
    "COMEM_GDB_SERVER",
    "COMEM_GLOBALS",
    "COMEM_HEAP",
    "COMEM_HISTORY",
    "COMEM_HOST",
    "COMEM_HOSTS",
    "COMEM_ID",
    "COMEM_IFACE",
    "COMEM_JOIN",
    "COMEM_KEY",
    "COMEM_KEY_FILE",
    "COMEM_LAUNCH",
    "COMEM_LOCKS",
    "COMEM_LOCK_TURNS",
    "COMEM_MIGRATION",
    "COMEM_MTU",
    "COMEM_MULTICAST",
    "COMEM_NODES",
    "COMEM_NODE_TIMEOUT",
    "COMEM_NO_PREFIX",
    "COMEM_ONE_SIDED",
    "COMEM_PORTS",
    "COMEM_PREFETCH",
    "COMEM_PROG_ID",
    "COMEM_REHEARSE",
    "COMEM_REMOTE_COMEM",
    "COMEM_REMOTE_PYTHON",
    "COMEM_RENDEZVOUS",
    "COMEM_RSH",
    "COMEM_RUNTIME_DIR",
    "COMEM_SERVICE",
    "COMEM_SLOW",
    "COMEM_STAGE",
    "COMEM_START_TIMEOUT",
    "COMEM_STATS",
    "COMEM_THREADS",
    "COMEM_TIMEOUT",
    "COMEM_TUNING",
    "COMEM_UNIT_BYTES",
    "COMEM_UNIT_PAGES",
    "COMEM_VERBOSE",
    "COMEM_WAIT",
];

/// More of them, of names so near to others' that they are never suggested, and the names that launchers and nodes use.
const OTHERS: [&str; 19] = [
    "COMEM_CLANG",
    "COMEM_COMMAND",
    "COMEM_CONTROL_FD",
    "COMEM_CXX",
    "COMEM_FC",
    "COMEM_HOST_NODES",
    "COMEM_HOST_PLACE",
    "COMEM_INCLUDE",
    "COMEM_INLINE_PLUGIN",
    "COMEM_JOB_FD",
    "COMEM_JOB_NAME",
    "COMEM_LIB",
    "COMEM_NODE",
    "COMEM_PROGRAM",
    "COMEM_PYTHON",
    "COMEM_USUAL_ENGINE",
    "COMEM_WRAP",
    "COMEM_WRITE_DETECTION",
    "COMEM_ZERO",
];

/// The settings that concern a node and may be given by a program: `heap` for `COMEM_HEAP`, and so on.
pub const OPTIONS: [&str; 35] = [
    "auth",
    "backbone",
    "bind",
    "cache",
    "capture",
    "detector",
    "diffs",
    "discover",
    "engine",
    "faults",
    "force-engine",
    "heap",
    "iface",
    "join",
    "lock-turns",
    "locks",
    "migration",
    "mtu",
    "multicast",
    "node-timeout",
    "nodes",
    "one-sided",
    "ports",
    "prefetch",
    "rehearse",
    "slow",
    "start-timeout",
    "stats",
    "threads",
    "tuning",
    "unit-bytes",
    "unit-pages",
    "verbose",
    "wait",
    "write-detection",
];

/// The environment variable of a setting of these; `None` where there is none. Words may be parted by `_` as well.
pub fn variable_of(option: &str) -> Option<String> {
    let option = option.replace('_', "-");
    let known = OPTIONS.contains(&option.as_str());
    known.then(|| format!("{PREFIX}{}", option.replace('-', "_").to_uppercase()))
}

/// The engine of pages that nodes with these variables take, and why; where the backbone is named, and as far as the
/// launcher's part goes: the interface of another system may name another protocol. `None` where they make no sense.
pub fn page_engine(read: &dyn Fn(&str) -> Option<String>) -> Option<(PageEngine, Reason)> {
    Config::of_variables(read).ok().map(|config| config.chosen_engine())
}

/// Most bytes of a packet where a network is rehearsed on one host, and nothing else is said: those of an Ethernet.
pub const REHEARSED_MTU: usize = 1500;

/// The settings that these variables were probably meant to be: the name given, and the one that exists.
pub fn misspelt(given: impl Iterator<Item = String>) -> Vec<(String, &'static str)> {
    given.filter_map(|name| meant(&name).map(|meant| (name, meant))).collect()
}

/// Says of variables in this process's environment that are almost settings.
pub fn tell_of_misspelt() {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for (name, meant) in misspelt(names) {
        crate::error::say(format_args!("comem: {name} is no setting; was {meant} meant?"));
    }
}

/// The name that differs by a letter or, if it is long, two, or by capitals. Very short ones are somebody's own.
fn meant(name: &str) -> Option<&'static str> {
    let capitals = name.to_ascii_uppercase();
    let known = |name: &str| SETTINGS.iter().chain(&OTHERS).any(|known| *known == name);
    let front = capitals.get(..PREFIX.len()).filter(|front| strsim::osa_distance(front, PREFIX) <= 1)?;
    if known(name) {
        return None;
    }
    let nearest = *SETTINGS.iter().min_by_key(|known| (strsim::osa_distance(&capitals, known), known.len()))?;
    let allowed = match capitals.len() - PREFIX.len() {
        _ if capitals == nearest => 0,
        0..4 => return None,
        4..6 => 1,
        _ if front != PREFIX => 1,
        _ => 2,
    };
    (strsim::osa_distance(&capitals, nearest) <= allowed).then_some(nearest)
}

/// Of these words, the one that was probably meant by another: it differs by a letter, two neighbours that changed
/// places, or, if
/// it is long, two letters.
pub fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let allowed = if word.chars().count() < 6 { 1 } else { 2 };
    let best = words.into_iter().min_by_key(|known| strsim::osa_distance(&word, known))?;
    (strsim::osa_distance(&word, best) <= allowed).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_almost_a_setting_is_told_of() {
        for (given, right) in [
            ("COMEM_THREDS", "COMEM_THREADS"),
            ("COMEM_BACKBNE", "COMEM_BACKBONE"),
            ("COMEM_ENIGNE", "COMEM_ENGINE"),
            ("COMEM_CAHCE", "COMEM_CACHE"),
            ("COMEM_NODE_TIME_OUT", "COMEM_NODE_TIMEOUT"),
            ("COMEM_NODS", "COMEM_NODES"),
            ("COMEM_NDOES", "COMEM_NODES"),
            ("comem_nodes", "COMEM_NODES"),
            ("COMEN_NODES", "COMEM_NODES"),
            ("COMEMNODES", "COMEM_NODES"),
        ] {
            assert_eq!(meant(given), Some(right), "{given}");
        }
    }

    #[test]
    fn settings_and_names_of_ones_own_are_left_alone() {
        for given in [
            "COMEM_THREADS",
            "COMEM_NODE",
            "COMEM_NODES",
            "COMEM_ZERO",
            "COMEM_WRAP",
            "COMEM_HOME",
            "COMEM_BIN",
            "COMEM_X",
            "COMEM_",
            "THREADS",
            "COMET_MODES_OF_MINE",
            "é",
        ] {
            assert_eq!(meant(given), None, "{given}");
        }
    }

    #[test]
    fn no_name_that_nobody_documents_is_suggested() {
        let documents = concat!(
            include_str!("../docs/running.md"),
            include_str!("../docs/fortran.md"),
            include_str!("../docs/python-cluster.md")
        );
        let missing: Vec<_> = SETTINGS.iter().filter(|name| !documents.contains(&format!("`{name}"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn words_that_are_almost_right_lead_to_the_right_ones() {
        let engines = ["hlrc", "scope", "msi", "owner", "broadcast"];
        for (given, right) in
            [("hlcr", Some("hlrc")), ("broadcats", Some("broadcast")), ("magic", None), ("MSI", Some("msi"))]
        {
            assert_eq!(nearest(given, engines), right, "{given}");
        }
    }
}
