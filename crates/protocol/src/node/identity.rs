//! What must agree before processes may share memory, and what they are told when it does not.
//!
//! Two processes that differ in program, version or layout would read each other's bytes as something else. So every
//! JOIN carries an [`Identity`]; node zero compares it with its own and refuses a stranger with a [`Refusal`] that
//! holds both sides' values and prints as a sentence: what differs, and what to do.

use crate::wire::bytes::{Put, Reader, WireError};
use std::fmt;

/// Version of Comem's protocols. Nodes of different versions do not talk beyond saying so.
pub const VERSION: u16 = 1;

/// What the word in [`Identity::options`] begins with that says how many bytes a packet may have, headers included.
/// Nobody need have asked for it: it comes from the interface.
pub const PACKETS: &str = "packets=";

/// How a process sees memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// Bytes of a pointer.
    pub pointer_bytes: u8,
    /// Bytes of a C `long`.
    pub long_bytes: u8,
    /// Alignment of a 64-bit number inside a structure.
    pub align_bytes: u8,
    /// Whether the most significant byte comes first.
    pub big_endian: bool,
    /// Bytes of a page of memory.
    pub page_bytes: u32,
}

impl Layout {
    /// The layout of this process, whose system says that a page has `page_bytes` bytes.
    pub fn of_this_process(page_bytes: u32) -> Layout {
        Layout {
            pointer_bytes: size_of::<usize>() as u8,
            long_bytes: size_of::<std::ffi::c_long>() as u8,
            align_bytes: align_of::<u64>() as u8,
            big_endian: cfg!(target_endian = "big"),
            page_bytes,
        }
    }

    /// What differs, in words: `pages of 16384 bytes there, 4096 here`. Empty when nothing does.
    pub fn differences(&self, there: &Layout) -> String {
        let mut parts = Vec::new();
        let mut number = |what: &str, there: u32, here: u32| {
            if there != here {
                parts.push(format!("{what} of {there} bytes there, {here} here"));
            }
        };
        number("pointers", there.pointer_bytes.into(), self.pointer_bytes.into());
        number("C longs", there.long_bytes.into(), self.long_bytes.into());
        number("alignment", there.align_bytes.into(), self.align_bytes.into());
        number("pages", there.page_bytes, self.page_bytes);
        if there.big_endian != self.big_endian {
            let order = |big| if big { "big" } else { "little" };
            parts.push(format!("{}-endian there, {}-endian here", order(there.big_endian), order(self.big_endian)));
        }
        parts.join("; ")
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u8(self.pointer_bytes);
        out.put_u8(self.long_bytes);
        out.put_u8(self.align_bytes);
        out.put_u8(u8::from(self.big_endian));
        out.put_u32(self.page_bytes);
    }

    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Layout, WireError> {
        let (pointer_bytes, long_bytes, align_bytes) = (r.u8()?, r.u8()?, r.u8()?);
        let big_endian = match r.u8()? {
            0 => false,
            1 => true,
            _ => return Err(WireError::BadValue("byte order")),
        };
        Ok(Layout { pointer_bytes, long_bytes, align_bytes, big_endian, page_bytes: r.u32()? })
    }
}

/// Everything that must be the same in all processes of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Version of the protocols: [`VERSION`].
    pub version: u16,
    /// The job's name: processes that look for each other on the network find those of the same name.
    pub job_name: String,
    /// The program's name, for messages.
    pub program: String,
    /// Hash of the program.
    pub hash: [u8; 32],
    /// How it sees memory.
    pub layout: Layout,
    /// Nodes in the job.
    pub nodes: u16,
    /// Application threads in each node.
    pub threads: u16,
    /// Options that must agree, as words: `engine=msi auth=on packets=1500`.
    pub options: String,
}

impl Identity {
    /// Why a process with the identity `there` may not join the job of this one; `None` when it may.
    pub fn objection(&self, there: &Identity) -> Option<Refusal> {
        let (zero, joiner) = (self, there);
        Some(if zero.version != joiner.version {
            Refusal::Version { zero: zero.version, joiner: joiner.version }
        } else if zero.job_name != joiner.job_name {
            Refusal::OtherJob { zero: zero.job_name.clone() }
        } else if zero.layout != joiner.layout {
            Refusal::Layout { zero: zero.layout, joiner: joiner.layout }
        } else if zero.hash != joiner.hash {
            Refusal::Program { zero: short(&zero.hash), joiner: short(&joiner.hash), program: zero.program.clone() }
        } else if zero.nodes != joiner.nodes {
            Refusal::Nodes { zero: zero.nodes, joiner: joiner.nodes }
        } else if zero.threads != joiner.threads {
            Refusal::Threads { zero: zero.threads, joiner: joiner.threads }
        } else if zero.options != joiner.options {
            Refusal::Options { zero: zero.options.clone(), joiner: joiner.options.clone() }
        } else {
            return None;
        })
    }
}

/// The first bytes of a program's hash, enough for a person to compare.
fn short(hash: &[u8; 32]) -> [u8; 6] {
    let mut head = [0; 6];
    head.copy_from_slice(&hash[..6]);
    head
}

/// Why node zero does not take a process, or no longer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Versions of the protocols differ.
    Version {
        /// Node zero's version.
        zero: u16,
        /// The joiner's.
        joiner: u16,
    },
    /// A job of another name runs at this address.
    OtherJob {
        /// That job's name.
        zero: String,
    },
    /// Memory looks different.
    Layout {
        /// To node zero.
        zero: Layout,
        /// To the joiner.
        joiner: Layout,
    },
    /// The programs differ.
    Program {
        /// Beginning of the hash of node zero's program.
        zero: [u8; 6],
        /// Beginning of the hash of the joiner's.
        joiner: [u8; 6],
        /// Name of node zero's program.
        program: String,
    },
    /// The numbers of nodes differ.
    Nodes {
        /// Node zero's.
        zero: u16,
        /// The joiner's.
        joiner: u16,
    },
    /// The numbers of threads in a node differ.
    Threads {
        /// Node zero's.
        zero: u16,
        /// The joiner's.
        joiner: u16,
    },
    /// Options that must agree do not.
    Options {
        /// Node zero's.
        zero: String,
        /// The joiner's.
        joiner: String,
    },
    /// The job is complete.
    Full {
        /// How many nodes it has.
        nodes: u16,
    },
    /// A job of this name is running already.
    AlreadyRunning {
        /// Its name.
        job: String,
    },
    /// Another process has this node number.
    NumberTaken {
        /// The host it runs on.
        host: String,
        /// Its process number there.
        pid: u32,
    },
    /// The job has no node of this number.
    NoSuchNode {
        /// How many nodes it has.
        nodes: u16,
    },
    /// Node zero waited long enough.
    TooFew {
        /// Nodes that came, node zero included.
        came: u16,
        /// Nodes wanted.
        wanted: u16,
    },
    /// Node zero gave the start up.
    GivenUp(String),
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The words of `one` that `other` lacks.
fn lacking<'a>(one: &'a str, other: &str) -> Vec<&'a str> {
    one.split_whitespace().filter(|w| !other.split_whitespace().any(|o| o == *w)).collect()
}

/// The bytes of a packet, where these words say that and nothing else.
fn packets_alone(words: &[&str]) -> Option<usize> {
    let [word] = words else { return None };
    word.strip_prefix(PACKETS)?.parse().ok()
}

/// How the options of node zero and of a joiner differ, and what to do. Where packets differ and something else as
/// well, that comes first: they may differ for it.
fn different_options(zero: &str, joiner: &str) -> String {
    let (there, here) = (lacking(zero, joiner), lacking(joiner, zero));
    if let (Some(there), Some(here)) = (packets_alone(&there), packets_alone(&here)) {
        let less = there.min(here);
        return format!("packets of {there} bytes are possible there, of {here} here; start the job with --mtu {less}");
    }
    let listed = |words: Vec<&str>| {
        let words: Vec<&str> = words.into_iter().filter(|word| !word.starts_with(PACKETS)).collect();
        if words.is_empty() { "none of them".to_string() } else { words.join(" ") }
    };
    format!("options differ: {} there, {} here; start all with the same options", listed(there), listed(here))
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Version { zero, joiner } => write!(
                f,
                "node zero speaks version {zero} of Comem's protocol, this process version {joiner}; install the same \
                 Comem on every host"
            ),
            Refusal::OtherJob { zero } => {
                write!(f, "the job there is called \"{zero}\"; check the address, or give this process that job's name")
            }
            Refusal::Layout { zero, joiner } => {
                write!(f, "memory layout differs: {}; use hosts of one kind", joiner.differences(zero))
            }
            Refusal::Program { zero, joiner, program } => write!(
                f,
                "node zero runs another program ({program}, hash {}…, here {}…); copy the same program to every host",
                hex(zero),
                hex(joiner)
            ),
            Refusal::Nodes { zero, joiner } => write!(
                f,
                "node zero was told of {zero} nodes, this process of {joiner}; start all with the same number of nodes"
            ),
            Refusal::Threads { zero, joiner } => write!(
                f,
                "node zero has {zero} threads, this process {joiner}; start all with the same number of threads"
            ),
            Refusal::Options { zero, joiner } => f.write_str(&different_options(zero, joiner)),
            Refusal::Full { nodes } => {
                write!(f, "the job has its {nodes} nodes; start fewer processes, or a job with more nodes")
            }
            Refusal::AlreadyRunning { job } => write!(
                f,
                "a job called \"{job}\" is running already; wait for its end, or give the new job another name"
            ),
            Refusal::NumberTaken { host, pid } => write!(
                f,
                "another process (host {host}, pid {pid}) has this node's number; give every node a number of its own"
            ),
            Refusal::NoSuchNode { nodes } => {
                write!(f, "the job has nodes 0 to {}; correct this node's number", nodes.saturating_sub(1))
            }
            Refusal::TooFew { came, wanted } => {
                write!(f, "{came} of {wanted} nodes came in time; start the others, or ask for fewer nodes")
            }
            Refusal::GivenUp(why) => write!(f, "node zero gave the start up: {why}"),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::node) fn identity(nodes: u16) -> Identity {
        Identity {
            version: VERSION,
            job_name: "sea".into(),
            program: "sea".into(),
            hash: [7; 32],
            layout: Layout::of_this_process(4096),
            nodes,
            threads: 2,
            options: "engine=msi auth=off".into(),
        }
    }

    #[test]
    fn the_same_identity_meets_no_objection() {
        assert_eq!(identity(4).objection(&identity(4)), None);
    }

    #[test]
    fn every_difference_is_named_with_both_values_and_a_remedy() {
        let other = |change: &dyn Fn(&mut Identity)| {
            let mut there = identity(4);
            change(&mut there);
            identity(4).objection(&there).expect("a difference").to_string()
        };
        for (text, parts) in [
            (other(&|i| i.version = 9), ["version 1", "version 9", "install the same"]),
            (other(&|i| i.hash = [0xab; 32]), ["070707070707", "abababababab", "copy the same"]),
            (other(&|i| i.layout.page_bytes = 16384), ["pages of 4096 bytes there", "16384 here", "hosts of one kind"]),
            (other(&|i| i.layout.big_endian ^= true), ["little-endian", "big-endian", "hosts of one kind"]),
            (other(&|i| i.nodes = 5), ["4 nodes", "of 5", "same number of nodes"]),
            (other(&|i| i.threads = 3), ["2 threads", "process 3", "same number of threads"]),
            (other(&|i| i.options = "engine=owner auth=off".into()), ["engine=msi there", "engine=owner here", "same"]),
            (other(&|i| i.job_name = "lake".into()), ["\"sea\"", "address", "name"]),
        ] {
            for part in parts {
                assert!(text.contains(part), "{text}: {part}");
            }
        }
    }

    #[test]
    fn packets_that_differ_are_no_options_of_the_user() {
        let said = |zero: &str, joiner: &str| {
            let of = |options: &str| Identity { options: options.into(), ..identity(4) };
            of(zero).objection(&of(joiner)).expect("a difference").to_string()
        };
        let wanted = "packets of 1500 bytes are possible there, of 1400 here; start the job with --mtu 1400";
        assert_eq!(said("engine=msi packets=1500 unit=1", "engine=msi packets=1400 unit=1"), wanted);
        let wanted = "packets of 1280 bytes are possible there, of 9000 here; start the job with --mtu 1280";
        assert_eq!(said("packets=1280", "packets=9000"), wanted);
        let wanted = "options differ: engine=msi there, engine=owner here; start all with the same options";
        assert_eq!(said("engine=msi packets=1500", "engine=owner packets=1400"), wanted);
        assert_eq!(said("engine=msi packets=1500", "engine=owner packets=1500"), wanted);
    }
}
