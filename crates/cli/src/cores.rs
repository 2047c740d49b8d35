//! Where nodes run: `--bind auto`, `cores`, `off`, or which node on which cores, `0:0-3,1:4-7`.

use crate::failure::{Failure, Outcome};
use comem::bind::{self, Bind};
use comem_protocol::ids::NODES_MAX;
use std::collections::BTreeMap;
use std::fmt;

/// Cores have smaller numbers than this.
const CORES_MAX: usize = libc::CPU_SETSIZE as usize;

/// What `--bind` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BindChoice {
    /// Application threads find cores by this rule.
    Rule(Bind),
    /// These nodes run on these cores, others anywhere.
    Map(BTreeMap<u16, Vec<usize>>),
}

impl std::str::FromStr for BindChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<BindChoice, String> {
        if text.contains(':') {
            return map(text).map(BindChoice::Map);
        }
        match text.parse() {
            Ok(Bind::Given) | Err(_) => {
                Err("expected auto, off or cores, or cores for each node, such as 0:0-3,1:4-7".to_string())
            }
            Ok(rule) => Ok(BindChoice::Rule(rule)),
        }
    }
}

/// Reads `NODE:CORES,...`. Cores are numbers and ranges; one without a node in front is its left neighbour's.
fn map(text: &str) -> Result<BTreeMap<u16, Vec<usize>>, String> {
    let mut map: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    let mut node = None;
    for part in text.split(',') {
        let cores = match part.split_once(':') {
            None => part,
            Some((number, cores)) => {
                let number: Option<u16> = number.trim().parse().ok().filter(|n| usize::from(*n) < NODES_MAX);
                let number = number.ok_or_else(|| format!("{part}: expected the number of a node before the colon"))?;
                if map.contains_key(&number) {
                    return Err(format!("node {number} is named twice"));
                }
                node = Some(number);
                cores
            }
        };
        let node = node.ok_or_else(|| format!("{part}: expected the number of a node and a colon before it"))?;
        map.entry(node).or_default().extend(range(cores.trim())?);
    }
    for cores in map.values_mut() {
        cores.sort_unstable();
        cores.dedup();
    }
    Ok(map)
}

/// Reads `3` or `0-3`.
fn range(text: &str) -> Result<std::ops::RangeInclusive<usize>, String> {
    let number = |text: &str| text.trim().parse().ok().filter(|core| *core < CORES_MAX);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(format!("{text}: expected a core or a range of cores, such as 0-3, below {CORES_MAX}")),
    }
}

impl BindChoice {
    /// What all nodes are told. Those that the map names are told otherwise ([`BindChoice::for_node`]).
    pub fn for_all(&self) -> &'static str {
        match self {
            BindChoice::Rule(rule) => rule.name(),
            BindChoice::Map(_) => Bind::Off.name(),
        }
    }

    /// The cores of a node, where it has some of its own, and what it is told then.
    pub fn for_node(&self, node: u16) -> Option<(Vec<usize>, &'static str)> {
        match self {
            BindChoice::Rule(_) => None,
            BindChoice::Map(map) => map.get(&node).map(|cores| (cores.clone(), Bind::Given.name())),
        }
    }

    /// Refuses a map with nodes that the job does not have.
    ///
    /// # Errors
    /// Names such a node.
    pub fn check(&self, nodes: usize) -> Outcome<()> {
        let BindChoice::Map(map) = self else { return Ok(()) };
        match map.keys().find(|node| usize::from(**node) >= nodes) {
            None => Ok(()),
            Some(node) => Err(Failure::usage(
                format!("--bind {self} names node {node}, and the job has {nodes} (from 0)"),
                "name nodes of the job",
            )),
        }
    }

    /// Refuses a map where nobody knows yet which node this is.
    ///
    /// # Errors
    /// It is a map.
    pub fn check_without_launcher(&self) -> Outcome<()> {
        match self {
            BindChoice::Rule(_) => Ok(()),
            BindChoice::Map(_) => Err(Failure::usage(
                format!("--bind {self} does not go with --discover, where nodes get their numbers late"),
                "start each with taskset -c, or name the hosts with --hosts",
            )),
        }
    }
}

impl fmt::Display for BindChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindChoice::Rule(rule) => f.write_str(rule.name()),
            BindChoice::Map(map) => {
                let one = |(node, cores): (&u16, &Vec<usize>)| format!("{node}:{}", bind::in_words(cores));
                f.write_str(&map.iter().map(one).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// Refuses cores on which this process may not run.
///
/// # Errors
/// Names one of them, and those that it may use.
pub fn check_here(node: u16, host: &str, cores: &[usize]) -> Outcome<()> {
    let allowed = bind::allowed_cores();
    // Where the system does not say, it will.
    match cores.iter().find(|core| !allowed.is_empty() && allowed.binary_search(core).is_err()) {
        None => Ok(()),
        Some(core) => Err(Failure::start(
            format!("node {node} (host {host}): core {core}, which --bind names, is none that this job may use there"),
            format!("choose among {}", bind::in_words(&allowed)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(text: &str, node: u16) -> Option<Vec<usize>> {
        text.parse::<BindChoice>().unwrap().for_node(node).map(|(cores, _)| cores)
    }

    #[test]
    fn a_map_names_cores_and_ranges_for_each_node() {
        assert_eq!(
            (cores("0:0-3,1:4-7", 0), cores("0:0-3,1:4-7", 1)),
            (Some(vec![0, 1, 2, 3]), Some(vec![4, 5, 6, 7]))
        );
        assert_eq!(cores("1:6,0-1,1,2:5", 1), Some(vec![0, 1, 6]), "a part without a node belongs to the last");
        assert_eq!((cores("1:6", 0), "1:6".parse::<BindChoice>().unwrap().for_all()), (None, "off"));
        assert_eq!("2:5,0:1,0,3".parse::<BindChoice>().unwrap().to_string(), "0:0-1,3,2:5");
        for rule in ["auto", "cores", "off"] {
            assert_eq!(rule.parse::<BindChoice>().unwrap().to_string(), rule);
            assert_eq!(cores(rule, 0), None);
        }
    }

    #[test]
    fn what_is_no_map_is_refused_with_the_reason() {
        let why = |text: &str| text.parse::<BindChoice>().unwrap_err();
        assert_eq!(why("0:1,0:2"), "node 0 is named twice");
        for wrong in
            ["", "given", "x", "0:", ":0", "0:3-1", "0:a", "a:0", "0:1,", "1,0:2", "0:99999", "70000:1", "0:-1"]
        {
            assert!(wrong.parse::<BindChoice>().is_err(), "{wrong}");
        }
        let map: BindChoice = "0:0,2:1".parse().unwrap();
        assert!(map.check(3).is_ok() && map.check(2).unwrap_err().what.contains("names node 2"));
    }

    #[test]
    fn cores_that_may_not_be_used_are_named() {
        let allowed = bind::allowed_cores();
        assert_eq!(check_here(0, "a", &allowed), Ok(()));
        let why = check_here(3, "a", &[allowed[0], CORES_MAX - 1]).unwrap_err();
        assert!(why.what.starts_with("node 3 (host a): core 1023,"), "{}", why.what);
    }
}
