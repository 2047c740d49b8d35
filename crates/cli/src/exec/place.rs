//! A process's place in a foreign job, out of the variables that its process manager set.

use crate::control::Foreign;
use crate::failure::{Failure, Outcome};
use crate::hosts;
use comem_protocol::ids::NODES_MAX;

/// Where this process stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// This process's number.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
    /// How many share this host, as far as is known.
    pub on_this_host: usize,
    /// Whether all share it.
    pub one_host: bool,
    /// The hosts in order, where the process manager lists them; the first one has process zero.
    pub hosts: Vec<String>,
    /// A name that all processes of the job know and no other job of the user has.
    pub identity: String,
}

type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Place {
    /// Reads the variables. `nodes` is what the command line says about the size.
    ///
    /// # Errors
    /// They do not add up, or leave the size open.
    pub fn read(found: &Foreign, nodes: Option<usize>, read: Read<'_>) -> Outcome<Place> {
        let name = found.name;
        let size = match (found.size, nodes) {
            (Some(size), Some(nodes)) if size != nodes => {
                let what = format!("{name} started {size} processes, but -n (or COMEM_NODES) says {nodes}");
                return Err(Failure::usage(what, "leave -n out"));
            }
            (size, nodes) => size.or(nodes).ok_or_else(|| {
                Failure::usage(format!("{name} does not say how many processes it started"), "say so with -n N")
            })?,
        };
        let rank = found.rank.unwrap_or(0);
        if size == 0 || size > NODES_MAX {
            return Err(Failure::usage(
                format!("{name} started {size} processes"),
                format!("1 to {NODES_MAX} nodes are possible"),
            ));
        }
        if rank >= size {
            return Err(Failure::usage(
                format!("{name} calls this process number {rank} of {size}"),
                "start the job anew",
            ));
        }
        let mut place =
            Place { rank, size, on_this_host: 1, one_host: size == 1, hosts: Vec::new(), identity: String::new() };
        match name {
            "srun" => place.read_slurm(read)?,
            _ => place.read_mpi(name, read),
        }
        Ok(place)
    }

    fn read_slurm(&mut self, read: Read<'_>) -> Outcome<()> {
        let first = |names: &[&str]| names.iter().find_map(|n| read(n));
        let list = first(&["SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"]);
        if let Some(list) = list {
            self.hosts = hosts::expand(&list).ok_or_else(|| {
                Failure::usage(format!("Slurm's list of hosts makes no sense: {list}"), "give --zero HOST:PORT")
            })?;
        }
        let job = first(&["SLURM_JOB_ID", "SLURM_JOBID"]).unwrap_or_default();
        let step = first(&["SLURM_STEP_ID", "SLURM_STEPID"]).unwrap_or_default();
        let cluster = read("SLURM_CLUSTER_NAME").unwrap_or_default();
        self.identity = format!("slurm {cluster} {job}.{step}");
        self.one_host |= self.hosts.len() == 1;
        let tasks = first(&["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"]);
        let index = read("SLURM_NODEID").and_then(|i| i.parse::<usize>().ok()).unwrap_or(0);
        let here = tasks.and_then(|tasks| tasks_on(&tasks, index));
        self.on_this_host = if self.one_host { self.size } else { here.unwrap_or(1).clamp(1, self.size) };
        Ok(())
    }

    fn read_mpi(&mut self, name: &str, read: Read<'_>) {
        let number = |names: &[&str]| names.iter().find_map(|n| read(n)?.parse::<usize>().ok());
        let local = number(&["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMIX_LOCAL_SIZE"]);
        self.one_host |= local == Some(self.size);
        self.on_this_host = if self.one_host { self.size } else { local.unwrap_or(1).clamp(1, self.size) };
        let names = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid", "PMI_JOBID", "PMI_PORT"];
        let job = names.iter().find_map(|n| read(n).filter(|v| !v.is_empty()));
        // Without a name of the job: on one host, its processes share a parent.
        let job = job.unwrap_or_else(|| format!("parent {}", std::os::unix::process::parent_id()));
        self.identity = format!("{name} {job}");
    }

    /// A number that all processes of the job know, for one purpose.
    pub fn number(&self, purpose: &str) -> u64 {
        let mut hasher = blake3::Hasher::new_derive_key("comem 2026 exec numbers");
        hasher.update(purpose.as_bytes()).update(&[0]).update(self.identity.as_bytes());
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_be_bytes(bytes)
    }

    /// A key for a job that wants no secret.
    pub fn public_key(&self) -> [u8; 32] {
        blake3::derive_key("comem 2026 exec key without a secret", self.identity.as_bytes())
    }
}

/// The number of tasks on the host at `index`, from Slurm's `2(x3),1`.
fn tasks_on(tasks: &str, index: usize) -> Option<usize> {
    let mut passed = 0;
    for part in tasks.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.trim_end_matches(')').parse::<usize>().ok()?),
            None => (part, 1),
        };
        passed += times;
        if index < passed {
            return count.trim().parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::foreign;

    fn place(pairs: &[(&str, &str)], nodes: Option<usize>) -> Outcome<Place> {
        let read = |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string());
        Place::read(&foreign(&read).expect("a process manager is seen"), nodes, &read)
    }

    const SLURM: [(&str, &str); 8] = [
        ("SLURM_JOB_ID", "123"),
        ("SLURM_STEP_ID", "4"),
        ("SLURM_PROCID", "5"),
        ("SLURM_NTASKS", "64"),
        ("SLURM_STEP_NUM_TASKS", "7"),
        ("SLURM_NODELIST", "n[01-03]"),
        ("SLURM_TASKS_PER_NODE", "3(x2),1"),
        ("SLURM_NODEID", "1"),
    ];

    #[test]
    fn slurm_tells_rank_size_hosts_and_neighbours() {
        let place = place(&SLURM, None).unwrap();
        assert_eq!((place.rank, place.size, place.on_this_host, place.one_host), (5, 7, 3, false));
        assert_eq!(place.hosts, ["n01", "n02", "n03"]);
        assert_eq!(place.identity, "slurm  123.4");
    }

    #[test]
    fn open_mpi_tells_who_is_on_this_host() {
        let variables = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
            ("PMIX_NAMESPACE", "2534211585"),
            ("PMIX_RANK", "1"),
        ];
        let all_here = place(&variables, None).unwrap();
        assert_eq!((all_here.rank, all_here.size, all_here.one_host), (1, 4, true));
        assert_eq!(all_here.identity, "mpirun 2534211585");
        let mut spread = variables;
        spread[2].1 = "2";
        let spread = place(&spread, None).unwrap();
        assert_eq!((spread.on_this_host, spread.one_host), (2, false));
    }

    #[test]
    fn pmix_alone_leaves_the_size_to_the_user() {
        let variables = [("PMIX_RANK", "2"), ("PMIX_NAMESPACE", "x@1")];
        assert!(place(&variables, None).unwrap_err().advice.contains("-n N"));
        assert_eq!(place(&variables, Some(3)).unwrap().size, 3);
    }

    #[test]
    fn variables_that_do_not_add_up_are_refused() {
        assert!(place(&[("PMI_RANK", "3"), ("PMI_SIZE", "3")], None).is_err());
        assert!(place(&[("PMI_RANK", "0"), ("PMI_SIZE", "0")], None).is_err());
        assert!(place(&[("PMI_RANK", "0"), ("PMI_SIZE", "2000")], None).is_err());
        assert!(place(&[("PMI_RANK", "0"), ("PMI_SIZE", "3")], Some(4)).is_err());
        let mut broken = SLURM;
        broken[5].1 = "n[01-";
        assert!(place(&broken, None).is_err());
    }

    #[test]
    fn slurms_counts_are_read_by_host() {
        let counts: Vec<_> = (0..5).map(|i| tasks_on("2(x3),1", i)).collect();
        assert_eq!(counts, [Some(2), Some(2), Some(2), Some(1), None]);
        assert_eq!(tasks_on("x", 0), None);
    }

    #[test]
    fn jobs_have_numbers_of_their_own() {
        let one = place(&SLURM, None).unwrap();
        let mut other = SLURM;
        other[1].1 = "5";
        let other = place(&other, None).unwrap();
        assert_ne!(one.number("job"), other.number("job"));
        assert_ne!(one.number("job"), one.number("port"));
    }
}
