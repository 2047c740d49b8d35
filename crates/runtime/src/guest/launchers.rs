//! Launchers that say in the environment which process this is, and leave it to the processes to meet.
//!
//! | launcher | rank and number | how they meet |
//! |---|---|---|
//! | PMIx (`srun --mpi=pmix`, `prterun`, Open MPI's `mpirun`) | the library's | process 0 leaves the id with it |
//! | torchrun | `RANK`, `WORLD_SIZE` | at `MASTER_ADDR`, port `MASTER_PORT` + 1 |
//! | an Indexed Job of Kubernetes | `JOB_COMPLETION_INDEX`, `COMEM_NODES` | at the pod of index 0 |
//!
//! Where they meet at an address that all know, nobody hands an id on. Process 0 listens there, and the id's secret
//! follows from what all have: the key of `COMEM_KEY` or `COMEM_KEY_FILE`, or on one host a key that process 0 leaves
//! in the user's runtime directory.

use crate::control;
use crate::error::{Error, Result};
use crate::keys;
use comem_protocol::ids::NODES_MAX;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

/// The port where processes meet if nobody names one.
pub(crate) const PORT: u16 = 20_010;
/// How often a name is looked up that may not be known yet.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A launcher, and what it says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Launched {
    /// It offers PMIx, and says how many processes it started as far as the environment does.
    Pmix,
    /// The processes meet at an address.
    At(Meeting),
}

/// Where the processes of a launcher meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Meeting {
    /// Its name, for messages.
    pub(super) launcher: &'static str,
    pub(super) rank: usize,
    pub(super) size: usize,
    /// `HOST:PORT` of process 0.
    pub(super) zero: String,
    /// Whether all are on one host, as far as the launcher says.
    pub(super) one_host: bool,
    /// What tells the job from others of the launcher's.
    pub(super) job: String,
}

fn number<T: std::str::FromStr>(read: Read<'_>, name: &str) -> Option<T> {
    read(name)?.trim().parse().ok()
}

/// The launcher that these variables are of; `None` where somebody has said otherwise how this process joins its job.
///
/// # Errors
/// They contradict each other.
pub(super) fn seen(read: Read<'_>) -> Result<Option<Launched>> {
    let is_set = |name: &str| read(name).is_some_and(|value| !value.is_empty());
    if ["COMEM_NODE", "COMEM_JOIN", "COMEM_DISCOVER"].iter().any(|name| is_set(name)) {
        return Ok(None);
    }
    if read("COMEM_NODES").as_deref() == Some("1") {
        return Ok(None);
    }
    let several = control::foreign(read).is_some_and(|found| found.size != Some(1));
    if several && is_set("PMIX_NAMESPACE") && is_set("PMIX_RANK") {
        return Ok(Some(Launched::Pmix));
    }
    if several {
        return Ok(None);
    }
    let meeting = torchrun(read).or_else(|| kubernetes(read)).filter(|meeting| meeting.size > 1);
    if let Some(Meeting { launcher, rank, size, .. }) = &meeting {
        let wrong = |what: String| Err(Error::Start(format!("{launcher} calls this process number {rank} of {what}")));
        if *size > NODES_MAX {
            return wrong(format!("{size}, and a job has {NODES_MAX} nodes at most"));
        }
        if rank >= size {
            return wrong(format!("{size}; say with COMEM_NODES how many there are"));
        }
        if number::<usize>(read, "COMEM_NODES").is_some_and(|nodes| nodes != *size) {
            return wrong(format!("{size}, and COMEM_NODES names another number; leave it out"));
        }
    }
    Ok(meeting.map(Launched::At))
}

/// torchrun: its own store listens at the port that it names.
fn torchrun(read: Read<'_>) -> Option<Meeting> {
    let (rank, size) = (number(read, "RANK")?, number(read, "WORLD_SIZE")?);
    let (host, port) = (read("MASTER_ADDR")?, number::<u16>(read, "MASTER_PORT")?);
    let port = port.checked_add(1).unwrap_or(PORT);
    let job = read("TORCHELASTIC_RUN_ID").unwrap_or_default();
    let restart = read("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
    Some(Meeting {
        launcher: "torchrun",
        rank,
        size,
        zero: zero_of(read).unwrap_or_else(|| with_port(&host, port)),
        one_host: number::<usize>(read, "LOCAL_WORLD_SIZE") == Some(size),
        job: format!("torchrun {job} {restart}"),
    })
}

/// An Indexed Job: its pods' host names end with their index, and a headless service gives them addresses.
fn kubernetes(read: Read<'_>) -> Option<Meeting> {
    let (rank, size) = (number::<usize>(read, "JOB_COMPLETION_INDEX")?, number(read, "COMEM_NODES")?);
    let of_service = || {
        let host = read("HOSTNAME")?;
        let job = host.strip_suffix(&format!("-{rank}"))?;
        Some(with_port(&format!("{job}-0.{}", read("COMEM_SERVICE")?), PORT))
    };
    let zero = zero_of(read).or_else(of_service)?;
    let job = format!("kubernetes {}", read("COMEM_JOB_NAME").unwrap_or_default());
    Some(Meeting { launcher: "Kubernetes", rank, size, zero, one_host: false, job })
}

/// The address in `COMEM_ZERO`, whose port may be left out.
fn zero_of(read: Read<'_>) -> Option<String> {
    let zero = read(control::var::ZERO).filter(|zero| !zero.is_empty())?;
    Some(with_port(&zero, PORT))
}

/// `HOST:PORT`, where no port stands there already.
fn with_port(host: &str, port: u16) -> String {
    let is_v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
    match host.rsplit_once(':') {
        _ if is_v6 => format!("[{host}]:{port}"),
        Some((_, digits)) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => host.to_string(),
        _ => format!("{host}:{port}"),
    }
}

impl Meeting {
    /// Process 0's address. Where a job's processes have only just been started, its name may not be known yet.
    pub(super) fn address(&self, limit: Option<Duration>) -> Result<SocketAddr> {
        let start = Instant::now();
        loop {
            let why = match self.zero.to_socket_addrs() {
                Ok(found) => match found.min_by_key(SocketAddr::is_ipv6) {
                    Some(address) => return Ok(address),
                    None => "the name leads nowhere".to_string(),
                },
                Err(error) => error.to_string(),
            };
            if limit.is_some_and(|limit| start.elapsed() >= limit) {
                return Err(Error::Start(format!(
                    "the processes that {} started cannot meet: the address of process 0, {}, cannot be found: {why}; \
                     name it with COMEM_ZERO=HOST:PORT",
                    self.launcher, self.zero
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The id's secret, where a key is known that all have.
    pub(super) fn secret(&self, key: &[u8; 32]) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_derive_key("comem 2026 secret of a launcher's job");
        hasher.update(key).update(self.job.as_bytes()).update(&[0]).update(self.zero.as_bytes());
        let mut secret = [0; 16];
        secret.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        secret
    }

    /// The key that all have; `None` where process 0 is to leave one for the others of its host.
    pub(super) fn key(&self, address: SocketAddr, auth: bool) -> Result<Option<[u8; 32]>> {
        if !auth {
            return Ok(Some([0; 32]));
        }
        let here = self.one_host || address.ip().is_loopback();
        if let Some(key) = keys::shared_key(!here)? {
            return Ok(Some(key));
        }
        if here {
            return Ok(None);
        }
        Err(Error::Start(format!(
            "the processes that {} started need a key that all have: put one into COMEM_KEY, or name its file in \
             COMEM_KEY_FILE (comem daemon make-key FILE makes one); or trust the network with COMEM_AUTH=off",
            self.launcher
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Option<Launched>> {
        seen(&|name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string()))
    }

    fn meeting(pairs: &[(&str, &str)]) -> Meeting {
        match of(pairs) {
            Ok(Some(Launched::At(meeting))) => meeting,
            other => panic!("{other:?}"),
        }
    }

    const TORCH: [(&str, &str); 5] = [
        ("RANK", "2"),
        ("WORLD_SIZE", "4"),
        ("MASTER_ADDR", "n1"),
        ("MASTER_PORT", "29500"),
        ("LOCAL_WORLD_SIZE", "2"),
    ];
    const POD: [(&str, &str); 4] =
        [("JOB_COMPLETION_INDEX", "3"), ("COMEM_NODES", "4"), ("HOSTNAME", "sea-3"), ("COMEM_SERVICE", "sea")];

    #[test]
    fn torchruns_processes_meet_beside_its_store() {
        let found = meeting(&TORCH);
        assert_eq!((found.rank, found.size, found.zero.as_str(), found.one_host), (2, 4, "n1:29501", false));
        let here = [&TORCH[..4], &[("LOCAL_WORLD_SIZE", "4")]].concat();
        assert!(meeting(&here).one_host);
        let named = [&TORCH[..], &[("COMEM_ZERO", "n2:9000")]].concat();
        assert_eq!(meeting(&named).zero, "n2:9000");
        let v6 = [&[("MASTER_ADDR", "2001:db8::1")][..], &TORCH].concat();
        assert_eq!(meeting(&v6).zero, "[2001:db8::1]:29501");
    }

    #[test]
    fn pods_of_an_indexed_job_meet_at_the_one_of_index_0() {
        let found = meeting(&POD);
        assert_eq!((found.rank, found.size, found.zero.as_str()), (3, 4, "sea-0.sea:20010"));
        let named = [&POD[..], &[("COMEM_ZERO", "sea-0.sea.default.svc")]].concat();
        assert_eq!(meeting(&named).zero, "sea-0.sea.default.svc:20010");
        assert_eq!(of(&POD[..3]).unwrap(), None, "nobody says where");
        assert_eq!(of(&[POD[0], POD[2], POD[3]]).unwrap(), None, "nor how many");
    }

    #[test]
    fn whoever_says_how_a_process_joins_is_believed() {
        for pair in [("COMEM_NODE", "0"), ("COMEM_NODES", "1"), ("COMEM_JOIN", "127.0.0.1:9"), ("WORLD_SIZE", "1")] {
            assert_eq!(of(&[&[pair][..], &TORCH].concat()).unwrap(), None, "{pair:?}");
        }
        assert_eq!(of(&[]).unwrap(), None);
        assert_eq!(of(&TORCH[..3]).unwrap(), None, "half of torchrun's variables may be anybody's");
    }

    #[test]
    fn pmix_counts_before_others_and_only_where_it_is_offered() {
        let mpirun = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        assert_eq!(of(&mpirun).unwrap(), None);
        let offered = [&mpirun[..], &[("PMIX_NAMESPACE", "x@1"), ("PMIX_RANK", "1")], &TORCH].concat();
        assert_eq!(of(&offered).unwrap(), Some(Launched::Pmix));
        let one =
            [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_NAMESPACE", "x"), ("PMIX_RANK", "0")];
        assert_eq!(of(&one).unwrap(), None);
    }

    #[test]
    fn numbers_that_do_not_add_up_are_refused() {
        for (pair, part) in [
            (("RANK", "4"), "number 4 of 4"),
            (("WORLD_SIZE", "2000"), "1024 nodes at most"),
            (("COMEM_NODES", "3"), "leave it out"),
        ] {
            let text = of(&[&[pair][..], &TORCH].concat()).unwrap_err().to_string();
            assert!(text.contains("torchrun calls") && text.contains(part), "{text}");
        }
    }

    #[test]
    fn jobs_have_secrets_of_their_own() {
        let (one, other) = (meeting(&TORCH), meeting(&[&[("TORCHELASTIC_RUN_ID", "7")][..], &TORCH].concat()));
        assert_ne!(one.secret(&[1; 32]), other.secret(&[1; 32]));
        assert_ne!(one.secret(&[1; 32]), one.secret(&[2; 32]));
    }

    /// The value on the first line with this key at or behind the one with `from`.
    fn value<'a>(manifest: &'a str, from: &str, key: &str) -> &'a str {
        let behind = manifest.split_once(from).unwrap_or_else(|| panic!("{from} stands nowhere")).1;
        let line = behind.lines().map(str::trim).find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("{key} does not stand behind {from}")).trim_matches('"')
    }

    #[test]
    fn the_manifests_give_each_pod_what_it_needs() {
        for (file, job) in [("indexed-job.yaml", "sea"), ("jobset.yaml", "sea-nodes-0")] {
            let path = format!("{}/../../deploy/kubernetes/{file}", env!("CARGO_MANIFEST_DIR"));
            let manifest = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let of = |name: &str| value(&manifest, &format!("- name: {name}\n"), "value").to_string();
            let (nodes, service) = (of("COMEM_NODES"), of("COMEM_SERVICE"));
            assert_eq!(nodes, value(&manifest, "kind: Job", "completions"), "{file}");
            assert_eq!(nodes, value(&manifest, "kind: Job", "parallelism"), "{file}: all run at once");
            assert_eq!(service, value(&manifest, "kind: Job", "subdomain"), "{file}: pods have names there");
            assert!(manifest.contains("publishNotReadyAddresses: true"), "{file}: at once");
            assert!(manifest.contains("- name: COMEM_KEY\n"), "{file}");
            let index = (nodes.parse::<usize>().unwrap() - 1).to_string();
            let host = format!("{job}-{index}");
            let pod = [
                ("JOB_COMPLETION_INDEX", &*index),
                ("COMEM_NODES", &nodes),
                ("COMEM_SERVICE", &service),
                ("HOSTNAME", &host),
            ];
            let found = meeting(&pod);
            assert_eq!(found.zero, format!("{job}-0.sea:{PORT}"), "{file}");
        }
    }
}
