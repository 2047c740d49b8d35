//! Lists of hosts: `a:2,b` on the command line, `node[01-04,7]` from Slurm, and which node runs where.

use crate::failure::{Failure, Outcome};
use comem_net::select::{self, Interface, Reach};
use comem_protocol::ids::NODES_MAX;

/// A host and how many nodes it takes, where the user said so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its name, perhaps with a user: `me@b`.
    pub name: String,
    /// How many nodes.
    pub slots: Option<usize>,
}

/// Most hosts that a list may expand to.
const HOSTS_MAX: usize = 4096;

/// Reads `a:2,b,[fe80::1]:3`.
pub fn parse(list: &str) -> Outcome<Vec<Host>> {
    let hosts: Outcome<Vec<Host>> = list.split(',').map(|part| parse_one(part.trim())).collect();
    let hosts = hosts?;
    if let Some(twice) = hosts.iter().enumerate().find_map(|(i, h)| hosts[..i].iter().find(|o| o.name == h.name)) {
        let what = format!("--hosts names {} twice", twice.name);
        return Err(Failure::usage(what, format!("write {}:2 to run two nodes there", twice.name)));
    }
    Ok(hosts)
}

fn parse_one(part: &str) -> Outcome<Host> {
    let wrong = || Failure::usage(format!("--hosts: {part:?} names no host"), "write --hosts a:2,b (name:nodes)");
    let (name, slots) = match part.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']').ok_or_else(wrong)?;
            (name, after.strip_prefix(':').or(if after.is_empty() { None } else { Some("?") }))
        }
        // More than one colon without brackets: an IPv6 address.
        None if part.matches(':').count() > 1 => (part, None),
        None => part.split_once(':').map_or((part, None), |(name, slots)| (name, Some(slots))),
    };
    let ordinary = |c: char| c.is_ascii_alphanumeric() || "._-:@%".contains(c);
    if name.is_empty() || name.starts_with('-') || !name.chars().all(ordinary) {
        return Err(wrong());
    }
    let slots = match slots {
        None => None,
        Some(text) => Some(text.parse().ok().filter(|n| (1..=NODES_MAX).contains(n)).ok_or_else(|| {
            let what = format!("--hosts: {part:?}: {text:?} is no number of nodes from 1 to {NODES_MAX}");
            Failure::usage(what, format!("write {name}:2 for two nodes there, or leave {name} out"))
        })?),
    };
    Ok(Host { name: name.to_string(), slots })
}

/// How many nodes each host gets, and how many there are in all. Without `wanted` each host gets what it takes, one
/// where the list does not say. With it, hosts are filled in order; where the list says nothing at all, evenly.
pub fn distribute(hosts: &[Host], wanted: Option<usize>) -> Outcome<Vec<usize>> {
    let slots: Vec<usize> = hosts.iter().map(|h| h.slots.unwrap_or(1)).collect();
    let room: usize = slots.iter().sum();
    let Some(wanted) = wanted else { return Ok(slots) };
    if hosts.iter().all(|h| h.slots.is_none()) && wanted >= hosts.len() {
        let (each, more) = (wanted / hosts.len(), wanted % hosts.len());
        return Ok((0..hosts.len()).map(|i| each + usize::from(i < more)).collect());
    }
    if wanted > room {
        let what = format!("-n asks for {wanted} nodes, but --hosts has room for {room}");
        return Err(Failure::usage(what, "raise the numbers behind the hosts' names, or lower -n"));
    }
    let mut left = wanted;
    let fill = |slots: usize| {
        let taken = slots.min(left);
        left -= taken;
        taken
    };
    Ok(slots.into_iter().map(fill).collect())
}

/// Whether a name means this very host, so that no remote shell is needed.
pub fn is_here(name: &str) -> bool {
    matches!(name, "localhost" | "127.0.0.1" | "::1") || name == crate::sys::host::name()
}

/// The interface of jobs on this host alone.
///
/// # Errors
/// It is down.
pub fn loopback() -> Outcome<Interface> {
    select::choose(None, Reach::ThisHost).map_err(|_| {
        let what = "the loopback of this host is down, and jobs on this host alone need it";
        Failure::start(what, "bring it up: ip link set lo up")
    })
}

/// Whether a name is an address that only this host can reach.
pub fn is_loopback(name: &str) -> bool {
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|a| a.is_loopback())
}

/// Expands Slurm's `a,node[01-03,7]-ib,c[1-2][1-2]`.
pub fn expand(list: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for part in split_outside_brackets(list) {
        expand_into(part.trim(), &mut all)?;
    }
    (!all.is_empty()).then_some(all)
}

fn split_outside_brackets(list: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    list.split(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    })
    .collect()
}

fn expand_into(part: &str, all: &mut Vec<String>) -> Option<()> {
    let Some((before, rest)) = part.split_once('[') else {
        if part.is_empty() || all.len() >= HOSTS_MAX {
            return None;
        }
        all.push(part.to_string());
        return Some(());
    };
    let (ranges, after) = rest.split_once(']')?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (low, high) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if low > high || high - low >= HOSTS_MAX {
            return None;
        }
        for number in low..=high {
            expand_into(&format!("{before}{number:0width$}{after}", width = first.len()), all)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, slots: Option<usize>) -> Host {
        Host { name: name.to_string(), slots }
    }

    #[test]
    fn a_list_names_hosts_and_their_nodes() {
        let list = parse("a:2,b, me@c.example:3,[fe80::1]:4,::1").unwrap();
        let wanted = [
            host("a", Some(2)),
            host("b", None),
            host("me@c.example", Some(3)),
            host("fe80::1", Some(4)),
            host("::1", None),
        ];
        assert_eq!(list, wanted);
        for wrong in [
            "",
            "a,,b",
            "a:0",
            "a:x",
            "a:18446744073709551615,b:1",
            "-oProxyCommand=x",
            "a b",
            "[::1",
            "[::1]x",
            "a;rm",
            "a,b,a",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_wrong_number_of_nodes_is_not_called_a_wrong_name() {
        for (list, part) in
            [("a:0", "\"0\" is no number of nodes"), ("a:x", "\"x\" is no number"), (":2", "names no host")]
        {
            assert!(parse(list).unwrap_err().what.contains(part), "{list}");
        }
    }

    #[test]
    fn nodes_fill_hosts_in_order_or_evenly() {
        let list = [host("a", Some(2)), host("b", None)];
        assert_eq!(distribute(&list, None).unwrap(), [2, 1]);
        assert_eq!(distribute(&list, Some(2)).unwrap(), [2, 0]);
        assert!(distribute(&list, Some(4)).is_err());
        let bare = [host("a", None), host("b", None), host("c", None)];
        assert_eq!(distribute(&bare, Some(7)).unwrap(), [3, 2, 2]);
        assert_eq!(distribute(&bare, Some(2)).unwrap(), [1, 1, 0]);
    }

    #[test]
    fn slurms_brackets_expand() {
        let expanded = |list: &str| expand(list).unwrap().join(" ");
        assert_eq!(expanded("alone"), "alone");
        assert_eq!(expanded("n[1-3,7]"), "n1 n2 n3 n7");
        assert_eq!(expanded("gpu,n[08-11]-ib"), "gpu n08-ib n09-ib n10-ib n11-ib");
        assert_eq!(expanded("r[1-2]n[1-2]"), "r1n1 r1n2 r2n1 r2n2");
        for wrong in ["", "n[1-", "n[3-1]", "n[a]", "n[0-99999999]", "n[1-4000]m[1-4000]"] {
            assert_eq!(expand(wrong), None, "{wrong:?}");
        }
    }
}
