//! What a user may have beside Comem: an MPI and its programs, and an interpreter of Python with packages. What is not
//! there is named in a line that begins with `SKIP`, and its rows are left out.

use crate::jobs::Bench;
use crate::shared::kernels::Level;
use comem_bench::job;
use std::path::Path;

/// Open MPI refuses to start anything for root unless it is told twice.
const AS_ROOT: [&str; 2] = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"];

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| word.to_string()).collect()
}

/// Says that something is left out, and why.
pub fn skip(what: &str, why: &str) {
    println!("\nSKIP: {what}: {why}");
}

/// How bytes go between the processes of an MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As it chooses: on one host, through memory.
    Chosen,
    /// Through sockets, as between hosts.
    Sockets,
}

/// An MPI's launcher.
#[derive(Clone, Debug)]
pub struct Mpi {
    launcher: &'static str,
    /// Whether it is Open MPI's, whose options are its own.
    is_open: bool,
}

impl Mpi {
    /// The launcher that is installed.
    pub fn find() -> Option<Mpi> {
        ["mpirun", "mpiexec"].into_iter().find_map(|launcher| {
            let about = job::run(&words(&[launcher, "--version"])).ok()?;
            Some(Mpi { launcher, is_open: about.contains("Open MPI") || about.contains("OpenRTE") })
        })
    }

    /// The command that runs a program in so many processes, each with a hardware thread of its own while there are
    /// enough.
    pub fn words(&self, processes: usize, way: Way, program: &[String]) -> Vec<String> {
        let mut all = words(&["env"]);
        all.extend(words(if self.is_open { &AS_ROOT } else { &[] }));
        all.extend(words(if !self.is_open && way == Way::Sockets { &["MPIR_CVAR_NOLOCAL=1"] } else { &[] }));
        all.extend(words(&[self.launcher, "-n", &processes.to_string()]));
        if self.is_open {
            all.extend(words(&["--use-hwthread-cpus", "--oversubscribe"]));
            all.extend(words(if way == Way::Sockets { &["--mca", "btl", "tcp,self"] } else { &[] }));
        }
        all.extend(program.iter().cloned());
        all
    }
}

/// An interpreter of Python.
#[derive(Clone, Debug)]
pub struct Python {
    interpreter: String,
}

impl Python {
    /// The one that `COMEM_PYTHON` names, that of `make python`, or the system's.
    pub fn find() -> Python {
        let named = std::env::var("COMEM_PYTHON").ok();
        let made = "out/python/venv/bin/python";
        let made = Path::new(made).is_file().then(|| made.to_string());
        Python { interpreter: named.or(made).unwrap_or_else(|| "python3".to_string()) }
    }

    /// Whether it has all of these modules; a line says so if not.
    pub fn has(&self, what: &str, modules: &str) -> bool {
        let found = job::run(&words(&[&self.interpreter, "-c", &format!("import {modules}")])).is_ok();
        if !found {
            skip(what, &format!("{} has not all of {modules}; make python, pip install", self.interpreter));
        }
        found
    }

    /// The command that runs a script of `bench/python`. Libraries beside it start no threads of their own, for the
    /// workers are what is compared.
    pub fn script(&self, script: &str, arguments: &[&str]) -> Vec<String> {
        let mut all = words(&["env", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", &self.interpreter]);
        all.push(format!("bench/python/{script}"));
        all.extend(words(arguments));
        all
    }

    /// The command that runs it as the nodes of a job, with the package's own command.
    pub fn job(&self, nodes: usize, flags: &[&str], script: &[String]) -> Vec<String> {
        let mut all = words(&[&self.interpreter, "-m", "comem", "run", "--no-prefix", "-n", &nodes.to_string()]);
        all.extend(words(flags));
        all.push("--".to_string());
        all.extend(script.iter().cloned());
        all
    }
}

impl Bench {
    /// A workload as a user would compile it: with the most optimisation that there is a build of.
    pub fn best_workload(&self, program: &str) -> Result<String, String> {
        let of = |level: Level| self.programs.workload(&level.path(program));
        of(Level::O3).or_else(|_| of(Level::O2))
    }

    /// The command of a program for MPI, in so many processes; a line says why there is none.
    pub fn mpi_words(&self, program: &str, processes: usize, way: Way, arguments: &[&str]) -> Option<Vec<String>> {
        let Some(mpi) = Mpi::find() else {
            skip(program, "there is no mpirun; sudo apt-get install openmpi-bin libopenmpi-dev");
            return None;
        };
        match self.best_workload(program) {
            Ok(path) => {
                let mut all = vec![path];
                all.extend(words(arguments));
                Some(mpi.words(processes, way, &all))
            }
            Err(why) => {
                skip(program, &format!("{why}, with an MPI's compiler (libopenmpi-dev)"));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mpi_goes_through_sockets_in_its_own_words() {
        let program = words(&["prog"]);
        let line = |is_open, way| Mpi { launcher: "mpirun", is_open }.words(2, way, &program).join(" ");
        assert_eq!(line(false, Way::Chosen), "env mpirun -n 2 prog");
        assert_eq!(line(false, Way::Sockets), "env MPIR_CVAR_NOLOCAL=1 mpirun -n 2 prog");
        let open = "mpirun -n 2 --use-hwthread-cpus --oversubscribe";
        let root = AS_ROOT.join(" ");
        assert_eq!(line(true, Way::Chosen), format!("env {root} {open} prog"));
        assert_eq!(line(true, Way::Sockets), format!("env {root} {open} --mca btl tcp,self prog"));
    }
}
