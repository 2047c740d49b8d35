//! Memory that a node has never seen: pages in order, beside plain datagrams or a copy into fresh memory, and beside
//! MPI_Bcast; and an array that node 0 has made, until each node has read its part, beside MPI's Scatter from Python.

use super::subjects::{Case, Effort, Report, stream_baseline};
use crate::companions::{Mpi, Python, Way, skip};
use crate::jobs::{Bench, numbers};
use comem_bench::job;
use comem_bench::sample::{Comparison, Finding, median};

/// How often two jobs are run in turn.
const TURNS: usize = 3;
/// Nodes that read parts of an array.
const READERS: usize = 4;
/// Most of what a first touch may take, in relation to plain datagrams, to MPI_Bcast and to Scatter.
const LIMITS: [f64; 3] = [1.5, 1.3, 1.5];

impl Bench {
    /// First touches of pages and of arrays.
    ///
    /// # Errors
    /// A sentence about what went wrong.
    pub fn first_touch(&self, effort: Effort) -> Result<bool, String> {
        let mut all = Report::default();
        for backbone in effort.backbones.names() {
            self.pages_never_here(&mut all, effort, backbone)?;
        }
        self.parts_of_an_array(&mut all, effort)?;
        Ok(all.print("Memory that a node has never seen"))
    }

    /// 64 MiB in order; MPI goes through sockets beside `udp`, and through memory beside `shm`.
    fn pages_never_here(&self, all: &mut Report, effort: Effort, backbone: &str) -> Result<(), String> {
        let blocks = effort.blocks.unwrap_or(5);
        let way = if backbone == "udp" { Way::Sockets } else { Way::Chosen };
        let mpi = self.mpi_words("first-touch-mpi", 2, way, &["--rounds", &blocks.to_string()]);
        let flags = vec!["--wait", "spin", "--backbone", backbone, "--auth", "off"];
        let case = Case { what: "first-touch", flags, task: effort.words(5, 1) };
        let mut bare = Comparison::default();
        let mut beside_mpi = Comparison { per_block: blocks, ..Comparison::default() };
        for turn in 0..TURNS {
            let got = self.measure(&case)?;
            let fresh = got.comparison("fresh", backbone)?;
            if let Some(words) = &mpi {
                let printed = self.value(&job::run(words)?)?;
                let base = numbers(&printed, "base").ok_or("MPI's program printed no times")?;
                beside_mpi.push(median(&fresh.ours), median(&base));
            }
            bare.per_block = fresh.per_block;
            bare.ours.extend(fresh.ours);
            bare.base.extend(fresh.base);
            if turn == 0 {
                all.commands.push(got.command);
            }
        }
        let name = format!("64 MiB in order, a page that never was here, {backbone}, spinning");
        let limit = |most| (backbone == "udp").then_some(most);
        let what = format!("{name}, against {}, into memory never touched", stream_baseline(backbone));
        all.findings.push(Finding { what, unit: "us", comparison: bare, limit: limit(LIMITS[0]) });
        if let Some(words) = mpi {
            let how = if way == Way::Sockets { "through sockets" } else { "through memory" };
            let what = format!("{name}, against MPI_Bcast {how} and a read");
            all.findings.push(Finding { what, unit: "us", comparison: beside_mpi, limit: limit(LIMITS[1]) });
            all.commands.push(words);
        }
        Ok(())
    }

    /// `comem.array` of 32 MB, with and without a protocol.
    fn parts_of_an_array(&self, all: &mut Report, effort: Effort) -> Result<(), String> {
        let python = Python::find();
        let what = "comem.array against mpi4py's Scatter";
        let Some(mpi) = Mpi::find() else {
            skip(what, "there is no mpirun; sudo apt-get install openmpi-bin");
            return Ok(());
        };
        if !python.has(what, "numpy, mpi4py.MPI, comem") {
            return Ok(());
        }
        let repeat = effort.blocks.unwrap_or(5).to_string();
        let script = |way: &str, home: &str| python.script("scatter.py", &[way, "--repeat", &repeat, "--home", home]);
        for (flags, how, way) in [(&[][..], "one host", Way::Chosen), (&["--rehearse"], "--rehearse", Way::Sockets)] {
            let scatter = mpi.words(READERS, way, &script("mpi4py", "automatic"));
            for home in ["automatic", "block"] {
                let array = python.job(READERS, flags, &script("comem", home));
                let mut comparison = Comparison { per_block: effort.blocks.unwrap_or(5), ..Comparison::default() };
                for _ in 0..TURNS {
                    comparison.push(self.milliseconds(&array)?, self.milliseconds(&scatter)?);
                }
                let what = format!("{what}: 32 MB, read in parts by {READERS} processes, {how}, home={home}");
                all.findings.push(Finding { what, unit: "ms", comparison, limit: Some(LIMITS[2]) });
                all.commands.push(array);
            }
            all.commands.push(scatter);
        }
        Ok(())
    }

    /// The median of what a script printed.
    fn milliseconds(&self, words: &[String]) -> Result<f64, String> {
        let printed = self.value(&job::run(words)?)?;
        let seconds = numbers(&printed, "seconds").ok_or("the script printed no seconds")?;
        Ok(1e3 * median(&seconds))
    }
}
