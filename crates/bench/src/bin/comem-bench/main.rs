//! Comem's benchmarks: each compares one thing with its baseline, in turn within one run, and reports the ratio.
//!
//! `comem-bench SUBJECT` starts itself as the nodes of a job (`comem run … comem-bench node …`) or starts workloads,
//! and prints a Markdown table: medians, ratio with quartiles, how often, and the aim.

mod access;
mod companions;
mod echo;
mod jobs;
mod node;
mod objects;
mod pick;
mod report;
mod shared;

use clap::{Parser, Subcommand};
use pick::Choice;
use shared::cached_barrier::Sizes;
use shared::kernels::Selection;
use shared::subjects::{Copies, Effort};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures Comem against plain memory, plain sockets and itself; prints ratios.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    /// Where the compiled workloads are
    #[arg(long, default_value = "out/workloads", global = true)]
    workloads: PathBuf,
    #[command(subcommand)]
    subject: Subject,
}

/// What to measure.
#[derive(Subcommand, Debug)]
enum Subject {
    /// Everything, in this order
    All,
    /// Accesses that hit, against plain memory
    Access,
    /// A small request and its reply between two nodes, against plain sockets
    Ping,
    /// A barrier of two nodes, against plain sockets
    Barrier,
    /// A lock that changes nodes every time, against plain sockets
    Lock,
    /// Accesses to shared objects under direct, against msi
    Objects,
    /// A request and its reply with authenticated datagrams, against one without
    Auth,
    /// The workload sea on 8 nodes, against 2 nodes, on this machine's cores
    Oversubscribe,
    /// A flood of messages through loss, duplication and reordering
    Messages {
        /// Messages that each of the four threads sends
        #[arg(long, default_value_t = 1_000_000)]
        count: u64,
    },
    /// Messages of the workload sea under msi, against owner
    Ratio,
    /// Shared pages between two nodes: all of the following but the programs
    Shared(Effort),
    /// A page fetched by a scattered fault, against plain sockets
    Pages(Effort),
    /// Pages fetched in order, against plain sockets
    Stream(Effort),
    /// Pages that a barrier invalidated, by one request against a fault each
    Refetch(Effort),
    /// A lock last held here
    Relock(Effort),
    /// Closing an interval with some of a thousand cached pages written
    Release(Effort),
    /// Memory that a node has never seen: pages in order, and arrays, against plain sockets and MPI
    FirstTouch(Effort),
    /// A barrier with much cached and nothing written, against one with nothing cached
    CachedBarrier(Sizes),
    /// Memory for a cached byte that is read or written, and for a large allocation that is hardly touched
    Memory(Copies),
    /// What a user would pick: the same heat and k-means in threads, MPI, multiprocessing, Dask and Comem
    Pick(Choice),
    /// The programs on shared pages, against plain threads
    Kernels(Selection),
    /// Their requests, messages, signals and bytes
    Counts(Selection),
    /// The tables and figures of the DSZOOM paper, from what bench/dszoom.sh has measured
    Dszoom(Dszoom),
    /// Takes part as a node of a job (for this program's own use)
    #[command(hide = true)]
    Node(node::Task),
}

/// What bench/dszoom.sh passes on.
#[derive(clap::Args, Debug)]
struct Dszoom {
    /// The folder with runs.csv, checks.csv and latency.csv; it gets the figures
    folder: PathBuf,
    /// The unit of coherence in bytes of all tables but Table 4
    #[arg(long, default_value_t = comem_bench::dszoom::paper::UNIT)]
    unit: usize,
}

impl Dszoom {
    fn run(&self) -> Result<bool, String> {
        use comem_bench::dszoom::{Shown, figures, runs::Measured, tables};
        let shown = Shown::new(Measured::load(&self.folder)?, self.unit);
        println!("\n{}", tables::text(&shown));
        for (name, picture) in figures::pictures(&shown) {
            let path = self.folder.join(name);
            std::fs::write(&path, picture).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
            println!("Drawn: {}", path.display());
        }
        Ok(true)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("comem-bench: an aim was missed; see the table");
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("comem-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Measures; tells whether every aim was reached.
fn run(arguments: &Arguments) -> Result<bool, String> {
    if let Subject::Node(task) = &arguments.subject {
        return node::run(task).map(|()| true);
    }
    if let Subject::Dszoom(dszoom) = &arguments.subject {
        report::print_machine();
        return dszoom.run();
    }
    let bench = jobs::Bench::new(&arguments.workloads)?;
    report::print_machine();
    match &arguments.subject {
        Subject::All => {
            let mut good = access::run(&bench)?;
            good &= bench.ping()? & bench.barrier()? & bench.lock()? & bench.objects()? & bench.auth()?;
            good &= bench.oversubscribe()? & bench.ratio()? & bench.messages(1_000_000)?;
            good &= bench.shared_pages(Effort::default())? & bench.pick(&Choice::default())?;
            Ok(good & bench.kernels(&Selection::default())? & bench.counts(&Selection::default())?)
        }
        Subject::Access => access::run(&bench),
        Subject::Ping => bench.ping(),
        Subject::Barrier => bench.barrier(),
        Subject::Lock => bench.lock(),
        Subject::Objects => bench.objects(),
        Subject::Auth => bench.auth(),
        Subject::Oversubscribe => bench.oversubscribe(),
        Subject::Messages { count } => bench.messages(*count),
        Subject::Ratio => bench.ratio(),
        Subject::Shared(effort) => bench.shared_pages(*effort),
        Subject::Pages(effort) => bench.pages(*effort),
        Subject::Stream(effort) => bench.stream(*effort),
        Subject::Refetch(effort) => bench.refetch(*effort),
        Subject::Relock(effort) => bench.relock(*effort),
        Subject::Release(effort) => bench.release(*effort),
        Subject::FirstTouch(effort) => bench.first_touch(*effort),
        Subject::CachedBarrier(sizes) => bench.cached_barrier(sizes),
        Subject::Memory(copies) => bench.memory(copies),
        Subject::Pick(choice) => bench.pick(choice),
        Subject::Kernels(selection) => bench.kernels(selection),
        Subject::Counts(selection) => bench.counts(selection),
        Subject::Dszoom(_) | Subject::Node(_) => unreachable!("handled above"),
    }
}
