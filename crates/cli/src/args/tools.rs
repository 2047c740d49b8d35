//! Command lines of what looks at jobs: `report`, `compare`, `bench`.

use super::values::{nodes, threads};
use crate::choice::{self, EngineChoice};
use clap::{Args, Subcommand};
use comem_net::network::Backbone;
use std::ffi::OsString;
use std::path::PathBuf;

/// `comem report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Files that comem run --stats wrote; several are shown side by side
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Draw where the time went into this file: a stacked bar for each node
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print one line for each node and number, for spreadsheets
    #[arg(long)]
    pub csv: bool,
    /// Show so many regions and pages at most
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,
}

/// What `comem compare --help` says below the flags.
const COMPARE_RULE: &str = "\
Results: the reference is a run on one node. What node 0 prints is compared with it, word by word and line by line,
after dropping empty lines and every word NAME=VALUE whose NAME is threads or nodes, or ends in time, seconds, _s, _ms,
_us or _ns. Where the reference prints checksum=VALUE (or a NAME that ends in checksum; blanks may follow
the =), these words alone decide.

Verdicts: ok; differs (ended well, printed something else); failed (ended with a status other than 0). Only runs that
are ok have a time: what the program says in time_s=, else the job's wall time, the median of --repeat runs. Messages,
bytes, faults and page requests are those of all nodes in that run. The status is 0 when every run is ok, 1 when one
is not, and 3 when the reference failed, prints nothing that can be compared, or each time something else.
Jobs use the backbone udp, so that bytes are those that a network carries; --flag=--backbone=shm chooses the other.";

/// `comem compare`.
#[derive(Args, Debug)]
#[command(after_help = COMPARE_RULE)]
pub struct CompareArgs {
    /// Nodes
    #[arg(short = 'n', long, env = "COMEM_NODES", value_name = "N", default_value_t = 2, value_parser = nodes)]
    pub nodes: usize,
    /// Application threads in each node
    #[arg(short = 't', long, env = "COMEM_THREADS", value_name = "T", default_value_t = 1, value_parser = threads)]
    pub threads: usize,
    /// The engines [default: hlrc,scope,lrc,multicast,msi for a program with shared pages, else
    /// owner,broadcast,msi]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = EngineChoice::parse)]
    pub engines: Vec<EngineChoice>,
    /// Detectors under which each engine of pages runs [default: the best of this host]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = choice::detector)]
    pub detectors: Vec<String>,
    /// Runs of each pair, of which the median counts
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Flags for every `comem run`: --flag=--auth=on
    #[arg(long = "flag", value_name = "FLAG", allow_hyphen_values = true)]
    pub flags: Vec<String>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// `comem bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub subject: BenchSubject,
}

/// What `comem bench` measures.
#[derive(Subcommand, Debug)]
pub enum BenchSubject {
    /// Latency and bandwidth over the size of messages, for each backbone and way of waiting
    Net(NetArgs),
    /// Table 1 of the Nautilus paper: ep, lu, water and sor, with and without write detection, units of 1 and 2 pages
    Nautilus(NautilusArgs),
    /// Figure 4 of the Brazos paper: sor, ilink, barnes, water and rays under each engine, and the paper's reductions
    Brazos(BrazosArgs),
}

/// `comem bench net`.
#[derive(Args, Debug)]
pub struct NetArgs {
    /// Exchanges for each size
    #[arg(long, value_name = "K", default_value_t = 400, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub rounds: u32,
    /// The backbones [default: all of this version]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = choice::backbone)]
    pub backbones: Vec<Backbone>,
    /// Measure requests of 20 bytes with replies of each size (Figure 1 of the Brazos paper)
    #[arg(long)]
    pub reply: bool,
    /// Draw latency and bandwidth into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// `comem bench nautilus`.
#[derive(Args, Debug)]
pub struct NautilusArgs {
    /// Nodes
    #[arg(short = 'n', long, value_name = "N", default_value_t = 8, value_parser = nodes)]
    pub nodes: usize,
    /// Where the compiled workloads are [default: workloads beside this command or above it, or out/workloads]
    #[arg(long, value_name = "DIR")]
    pub workloads: Option<PathBuf>,
    /// The programs
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "ep,lu,water,sor")]
    pub programs: Vec<String>,
    /// The size of the problems, passed to each program as --preset (tiny: a quick look)
    #[arg(long, value_name = "NAME", default_value = "nautilus")]
    pub preset: String,
    /// Runs of each variant, of which the median counts
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// How accesses are noticed; the paper's systems used mprotect
    #[arg(long, value_name = "D", default_value = "mprotect", value_parser = choice::detector)]
    pub detector: String,
}

/// `comem bench brazos`.
#[derive(Args, Debug)]
pub struct BrazosArgs {
    /// Nodes
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4, value_parser = nodes)]
    pub nodes: usize,
    /// Application threads in each node
    #[arg(short = 't', long, value_name = "T", default_value_t = 2, value_parser = threads)]
    pub threads: usize,
    /// Where the compiled workloads are [default: workloads beside this command or above it, or out/workloads]
    #[arg(long, value_name = "DIR")]
    pub workloads: Option<PathBuf>,
    /// The programs
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "sor,ilink,barnes,water,rays")]
    pub programs: Vec<String>,
    /// Run SPLASH's own barnes, raytrace and water too: a checkout of SPLASH-3 whose programs comem-cc has built
    #[arg(long, value_name = "DIR")]
    pub splash: Option<PathBuf>,
    /// The size of the problems, passed to each program as --preset (tiny: a quick look)
    #[arg(long, value_name = "NAME", default_value = "brazos")]
    pub preset: String,
    /// Runs of each configuration, of which the median counts
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Flags for every `comem run`: --flag=--detector=mprotect
    #[arg(long = "flag", value_name = "FLAG", allow_hyphen_values = true)]
    pub flags: Vec<String>,
}
