//! The command line. Every flag has one environment variable, and the flag wins.

mod pages;
mod tools;
mod values;
mod watch;

pub use pages::{PageArgs, var as page_var};
pub use tools::{BenchArgs, BenchSubject, BrazosArgs, CompareArgs, NautilusArgs, NetArgs, ReportArgs};
pub use values::ports;
#[cfg(feature = "ui")]
pub use watch::UiArgs;
pub use watch::{HostsArgs, JobsArgs, KillArgs, TopArgs};

use crate::choice::{EngineChoice, backbone_or_auto};
use crate::control::{Job, var};
use crate::cores::BindChoice;
use crate::failure::{Failure, Outcome, exit};
use crate::history::HistoryChoice;
use crate::misspelt;
use crate::sys::outputs::check_writable;
use clap::builder::{BoolishValueParser, PathBufValueParser, TypedValueParser};
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use comem::settings::REHEARSED_MTU;
use comem_net::backbone::{self, Backbone, BackboneChoice, Circumstances};
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::faults::FaultSpec;
use comem_protocol::selective::Choice as MulticastChoice;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
pub use values::time;
use values::{
    faults, job_name, job_number, load, mtu, multicast, node, nodes, or_output, port, switch, threads, time_or_off,
};

/// Comem: the threads of one program on several machines, sharing memory.
#[derive(Parser, Debug)]
#[command(name = "comem", version, about, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start a program as several nodes, on this machine or on several
    Run(Box<RunArgs>),
    /// Take a place in a job that Slurm or mpirun started: srun comem exec PROGRAM
    Exec(Box<ExecArgs>),
    /// Start programs on this machine for callers that prove a shared key
    Daemon(DaemonArgs),
    /// Show this user's jobs that run on this host
    Jobs(JobsArgs),
    /// Watch a running job: where its time goes, faults, messages, hot regions
    Top(TopArgs),
    /// Serve a page in the browser: start jobs, watch and end them, past runs, hosts
    #[cfg(feature = "ui")]
    Ui(Box<UiArgs>),
    /// End jobs, as Ctrl-C does in their terminals: comem kill JOB
    Kill(KillArgs),
    /// Show what hosts with daemons have, and whether they have room: cores, load, memory, slots
    Hosts(HostsArgs),
    /// Check what machines can do, and what a remote access between them will cost
    Doctor(DoctorArgs),
    /// Show where the time of a run went, and what its shared memory cost: comem report run.json
    Report(ReportArgs),
    /// Run a program under every engine that fits, and compare results and costs
    Compare(CompareArgs),
    /// Measure the network, or the programs of a paper
    Bench(BenchArgs),
    /// Compile or link a C program for Comem: comem cc -O2 prog.c -o prog
    #[command(disable_help_flag = true)]
    Cc {
        /// What the compiler is given.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// The same for C++
    #[command(name = "c++", disable_help_flag = true)]
    Cxx {
        /// What the compiler is given.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// The same for Fortran: compiles the module comem where it is needed: comem fc -O2 prog.f90 -o prog
    #[command(disable_help_flag = true)]
    Fc {
        /// What the compiler is given.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Print where headers and libraries are, for makefiles
    Config(ConfigArgs),
    /// Print what completes this command's words in a shell: source <(comem completions bash)
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a page of the manual: comem man run | man -l -
    Man(ManArgs),
    /// Start this machine's nodes for a launcher elsewhere
    #[command(hide = true)]
    Agent {
        /// Orders come from a daemon, on standard input.
        #[arg(long)]
        from_daemon: bool,
    },
}

/// Shells whose words can be completed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shell {
    /// bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
}

/// `comem man`.
#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// The command to describe, as it is called: run, daemon list [default: comem itself]
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write the pages of all commands into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}

/// What `comem config` is asked.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = true)]
pub struct ConfigArgs {
    /// The file with the macros of PARMACS, for m4: a path as it is
    #[arg(long)]
    parmacs: bool,
    /// The directory of the headers: a path as it is
    #[arg(long)]
    include: bool,
    /// Flags to compile with, quoted for a shell where they need it
    #[arg(long)]
    cflags: bool,
    /// Flags to link with, quoted likewise
    #[arg(long)]
    libs: bool,
    /// Flags to compile a program for PARMACS, or another with workers that are processes: what comem cc adds
    #[arg(long)]
    parmacs_cflags: bool,
    /// Flags to link it with: the linker script that gathers its global variables, too
    #[arg(long)]
    parmacs_libs: bool,
    /// The library that lets system calls use shared memory, for LD_PRELOAD: a path without blanks and colons
    #[arg(long)]
    wrapper: bool,
}

impl ConfigArgs {
    /// The questions, by their names.
    pub fn questions(&self) -> Vec<&'static str> {
        let all = [
            (self.parmacs, "parmacs"),
            (self.include, "include"),
            (self.cflags, "cflags"),
            (self.libs, "libs"),
            (self.parmacs_cflags, "parmacs-cflags"),
            (self.parmacs_libs, "parmacs-libs"),
            (self.wrapper, "wrapper"),
        ];
        all.into_iter().filter(|(asked, _)| *asked).map(|(_, question)| question).collect()
    }
}

/// What every node is told.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// Application threads in each node
    #[arg(short = 't', long, env = "COMEM_THREADS", value_name = "T", default_value_t = 1, value_parser = threads)]
    pub threads: usize,
    /// What keeps copies in step: owner or broadcast (objects), hlrc, scope, lrc or multicast (pages), msi (objects,
    /// pages, lines), direct (objects, and lines of programs built with comem-cc --inline), hardware (pages that all
    /// nodes of one host map: there are no copies)
    #[arg(long, env = "COMEM_ENGINE", value_name = "E", default_value = "", hide_default_value = true,
          value_parser = EngineChoice::parse)]
    pub engine: EngineChoice,
    /// Let --engine win over the engine that a region names
    #[arg(long, env = "COMEM_FORCE_ENGINE", value_parser = BoolishValueParser::new(), action = ArgAction::SetTrue)]
    pub force_engine: bool,
    /// How bytes move: udp, shm (all nodes on one host), or auto: shm where it can be had, else udp
    #[arg(long, env = "COMEM_BACKBONE", value_name = "B", default_value = "auto", value_parser = backbone_or_auto)]
    pub backbone: BackboneChoice,
    /// On one host, run what would run between hosts: pages kept by a protocol, over udp, in packets as on a network
    #[arg(long, env = "COMEM_REHEARSE", value_parser = BoolishValueParser::new(), action = ArgAction::SetTrue)]
    pub rehearse: bool,
    /// How pages are shared.
    #[command(flatten)]
    pub pages: PageArgs,
    /// Faults to inject: drop=5%,dup=1%,reorder=2%,truncate=1%,corrupt=1% (percentages), delay=25us (ns, us, ms or s),
    /// rate=10gbit (bit, kbit, mbit or gbit a second), longest=1400 (bytes), cut=0-2@1s+500ms/0>1 (between two nodes,
    /// from a time on, for a time), seed=7
    #[arg(long, env = "COMEM_FAULTS", value_name = "F", value_parser = faults)]
    pub faults: Option<FaultSpec>,
    /// The network to use: an interface's name, an address, or 10.0.0.0/8
    #[arg(long, env = "COMEM_IFACE", value_name = "NAME|CIDR")]
    pub iface: Option<String>,
    /// The UDP ports to use
    #[arg(long, env = "COMEM_PORTS", value_name = "A-B", value_parser = ports)]
    pub ports: Option<String>,
    /// Packets of at most so many bytes, where the way to a node takes less than the interface: 1400
    #[arg(long, env = "COMEM_MTU", value_name = "BYTES", default_value = "", hide_default_value = true,
          value_parser = mtu)]
    pub mtu: String,
    /// One datagram for many nodes: where the engine sends to many and all of them hear it (auto), whatever the engine,
    /// and no job where a node does not hear it (on), never (off)
    #[arg(long, env = "COMEM_MULTICAST", value_name = "auto|on|off", default_value = "auto", hide_default_value = true,
          value_parser = multicast)]
    pub multicast: MulticastChoice,
    /// Record all datagrams for Wireshark, each node in a file of its own on its host: cap.pcap gives cap.node0.pcap
    #[arg(long, env = "COMEM_CAPTURE", value_name = "FILE", default_value = "", hide_default_value = true)]
    pub capture: OsString,
    /// Take in only datagrams of this job, by a tag on each: on or off [default: on]
    #[arg(long, env = "COMEM_AUTH", value_name = "on|off", value_parser = switch)]
    pub auth: Option<bool>,
    /// How long a node may be silent before the job ends: 10s, or off
    #[arg(long, env = "COMEM_NODE_TIMEOUT", value_name = "TIME", default_value = "10s", value_parser = time_or_off)]
    pub node_timeout: String,
    /// How threads wait: auto, spin or block
    #[arg(long, env = "COMEM_WAIT", value_name = "HOW", default_value = "auto")]
    pub wait: Wait,
    /// Where application threads run, if all fit the host's cores: come back to their node's share (auto), stay on it
    /// (cores), anywhere (off); or which node runs on which cores: 0:0-3,1:4-7
    #[arg(
        long,
        env = "COMEM_BIND",
        value_name = "auto|cores|off|MAP",
        default_value = "auto",
        hide_default_value = true
    )]
    pub bind: BindChoice,
    /// The program number in datagrams [default: a free one]
    #[arg(long, env = "COMEM_PROG_ID", value_name = "NUMBER")]
    pub prog_id: Option<u16>,
    /// Write statistics to this file, - for standard output; under comem exec, each node to one of its own: run.json
    /// gives run.node0.json
    #[arg(long, env = "COMEM_STATS", value_name = "FILE", value_parser = PathBufValueParser::new().map(or_output))]
    pub stats: Option<PathBuf>,
    /// Let system calls use shared memory, by preloading libcomem_wrap.so where it is installed: on or off [default:
    /// on]
    #[arg(long, env = "COMEM_WRAP", value_name = "on|off", value_parser = switch, overrides_with = "no_wrap")]
    pub wrap: Option<bool>,
    /// The same as --wrap off
    #[arg(long, overrides_with = "wrap")]
    pub no_wrap: bool,
    /// At CREATE, report global variables that point to what other nodes do not have
    #[arg(long, env = "COMEM_CHECK_POINTERS", value_parser = BoolishValueParser::new(), action = ArgAction::SetTrue)]
    pub check_pointers: bool,
    /// Say what was chosen
    #[arg(
        short = 'v',
        long,
        env = "COMEM_VERBOSE",
        value_parser = BoolishValueParser::new(),
        action = ArgAction::SetTrue
    )]
    pub verbose: bool,
}

/// How threads wait for the network.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Spin briefly while the host has a core to spare, then block.
    Auto,
    /// Spin.
    Spin,
    /// Block at once.
    Block,
}

impl Wait {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Wait::Auto => "auto",
            Wait::Spin => "spin",
            Wait::Block => "block",
        }
    }
}

/// How nodes on other hosts are started.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Launch {
    /// By ssh (or what COMEM_RSH names).
    Ssh,
    /// By the hosts' daemons.
    Daemon,
}

/// `comem run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Nodes (processes) in all [default: one, or what --hosts says]
    #[arg(short = 'n', long, env = "COMEM_NODES", value_name = "N", value_parser = nodes)]
    pub nodes: Option<usize>,
    /// What every node is told.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Where to run: a:2,b (host:nodes) [default: here]
    #[arg(long, env = "COMEM_HOSTS", value_name = "LIST")]
    pub hosts: Option<String>,
    /// The job's name, for comem jobs, top and kill [default: the program's]
    #[arg(long, env = "COMEM_JOB_NAME", value_name = "NAME", value_parser = job_name)]
    pub name: Option<String>,
    /// How to start nodes on other hosts
    #[arg(long, env = "COMEM_LAUNCH", value_name = "HOW", default_value = "ssh")]
    pub launch: Launch,
    /// The key shared with daemons [default: ~/.config/comem/key]
    #[arg(long, env = "COMEM_KEY_FILE", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// The daemons' UDP port
    #[arg(long, env = "COMEM_DAEMON_PORT", value_name = "P", default_value_t = crate::daemon::wire::PORT)]
    pub daemon_port: u16,
    /// The path of comem on other hosts
    #[arg(long, env = "COMEM_REMOTE_COMEM", value_name = "PATH", default_value = "comem")]
    pub remote_comem: String,
    /// Make nodes slower than they could be: 2=3x,5=2x
    #[arg(long, env = "COMEM_SLOW", value_name = "NODE=Fx", value_delimiter = ',')]
    pub slow: Vec<String>,
    /// Copy the program to the other hosts first
    #[arg(long, env = "COMEM_STAGE", value_parser = BoolishValueParser::new(), action = ArgAction::SetTrue)]
    pub stage: bool,
    /// Pass this variable (or NAME=VALUE) to nodes on other hosts; commas separate several
    #[arg(long = "env", env = "COMEM_ENV", value_name = "NAME", value_delimiter = ',', action = ArgAction::Append)]
    pub variables: Vec<String>,
    /// Start no nodes: this process looks for the others on the network; run it on each machine
    #[arg(long, env = "COMEM_DISCOVER", value_parser = BoolishValueParser::new(), action = ArgAction::SetTrue)]
    pub discover: bool,
    /// On a terminal, show each second where the job's time goes
    #[arg(long, env = "COMEM_PROGRESS", value_parser = BoolishValueParser::new(), action = ArgAction::SetTrue)]
    pub progress: bool,
    /// Add so much to the nodes' niceness, as nice -n does: 10 lets others go first
    #[arg(long, env = "COMEM_NICE", value_name = "N", default_value_t = 0, hide_default_value = true,
          allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-40..=40))]
    pub nice: i32,
    /// Under --engine multicast, start with what earlier runs of the program arrived at, and keep what this one does:
    /// in a file under ~/.local/state/comem/history (auto), in this file, or nowhere (off)
    #[arg(long, env = "COMEM_HISTORY", value_name = "FILE|off|auto", default_value = "off", hide_default_value = true)]
    pub history: HistoryChoice,
    /// End the job after so long: 90s, 10m
    #[arg(long, env = "COMEM_TIMEOUT", value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
    /// Do not put the nodes' numbers before their lines
    #[arg(long, env = "COMEM_NO_PREFIX", value_parser = BoolishValueParser::new(), action = ArgAction::SetTrue)]
    pub no_prefix: bool,
    /// For `comem compare` and `comem bench`: of the nodes' standard outputs node 0's alone, as it is
    #[arg(long, hide = true)]
    pub only_node_zero: bool,
    /// Show what would be started, and start nothing
    #[arg(long, env = "COMEM_DRY_RUN", value_parser = BoolishValueParser::new(), action = ArgAction::SetTrue)]
    pub dry_run: bool,
    /// Run this node under gdb, in this terminal
    #[arg(long, env = "COMEM_GDB", value_name = "NODE", value_parser = node)]
    pub gdb: Option<u16>,
    /// With --gdb: let gdbserver wait for a debugger on this TCP port of the node's host
    #[arg(long, env = "COMEM_GDB_SERVER", value_name = "PORT", requires = "gdb", value_parser = port)]
    pub gdb_server: Option<u16>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
    /// Processes for each node that is asked for: -t where workers are processes (see `workers`).
    #[arg(skip = 1_usize)]
    pub processes: usize,
}

/// `comem exec`.
#[derive(Args, Debug)]
pub struct ExecArgs {
    /// What the node is told.
    #[command(flatten)]
    pub node: NodeArgs,
    /// How many processes there are, where the launcher does not say
    #[arg(short = 'n', long, env = "COMEM_NODES", value_name = "N", value_parser = nodes)]
    pub nodes: Option<usize>,
    /// Node zero's address, the same for all: HOST:PORT
    #[arg(long, env = "COMEM_ZERO", value_name = "HOST:PORT")]
    pub zero: Option<String>,
    /// A directory that all hosts share, where node zero leaves its address [default: ~/.comem]
    #[arg(long, env = "COMEM_RENDEZVOUS", value_name = "DIR")]
    pub rendezvous: Option<PathBuf>,
    /// The key file from which a job on several hosts derives its key [default: ~/.config/comem/key]
    #[arg(long, env = "COMEM_KEY_FILE", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Make nodes slower than they could be: 2=3x,5=2x
    #[arg(long, env = "COMEM_SLOW", value_name = "NODE=Fx", value_delimiter = ',')]
    pub slow: Vec<String>,
    /// Show what would be started, and start nothing
    #[arg(long, env = "COMEM_DRY_RUN", value_parser = BoolishValueParser::new(), action = ArgAction::SetTrue)]
    pub dry_run: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// `comem daemon`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DaemonArgs {
    /// Serve, or ask one that serves.
    #[command(subcommand)]
    pub command: Option<DaemonCommand>,
    /// How to serve.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// How a daemon serves.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// The shared key: a file that its owner alone can read [default: ~/.config/comem/key]
    #[arg(long, env = "COMEM_KEY_FILE", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Start programs under this directory (may be repeated)
    #[arg(long, env = "COMEM_ALLOW", value_name = "DIR", value_delimiter = ':', action = ArgAction::Append)]
    pub allow: Vec<PathBuf>,
    /// Let callers set this variable (may be repeated)
    #[arg(long, env = "COMEM_ALLOW_ENV", value_name = "NAME", value_delimiter = ',', action = ArgAction::Append)]
    pub allow_env: Vec<String>,
    /// The UDP port to listen on
    #[arg(long, env = "COMEM_DAEMON_PORT", value_name = "P", default_value_t = crate::daemon::wire::PORT)]
    pub port: u16,
    /// The address to listen on [default: all]
    #[arg(long, env = "COMEM_DAEMON_BIND", value_name = "ADDR")]
    pub bind: Option<std::net::IpAddr>,
    /// The interface whose address to listen on
    #[arg(long, env = "COMEM_IFACE", value_name = "NAME|CIDR", conflicts_with = "bind")]
    pub iface: Option<String>,
    /// Start so many nodes at a time at most [default: any number]
    #[arg(long, env = "COMEM_SLOTS", value_name = "N", value_parser = nodes)]
    pub slots: Option<usize>,
    /// Start nodes only while the load of this host (the average of a minute) is at most so much
    #[arg(long, env = "COMEM_MAX_LOAD", value_name = "L", value_parser = load)]
    pub max_load: Option<f64>,
    /// Say what is started and what is dropped
    #[arg(
        short = 'v',
        long,
        env = "COMEM_VERBOSE",
        value_parser = BoolishValueParser::new(),
        action = ArgAction::SetTrue
    )]
    pub verbose: bool,
}

/// What to ask a daemon.
#[derive(Subcommand, Debug)]
pub enum DaemonCommand {
    /// Show what daemons have started (all that answer a broadcast, without --host)
    List(AskArgs),
    /// End a job that a daemon has started
    Kill {
        /// Its number in the list
        #[arg(value_parser = job_number)]
        id: u64,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Make a new key file
    MakeKey {
        /// Where
        file: PathBuf,
    },
}

/// Whom to ask.
#[derive(Args, Debug)]
pub struct AskArgs {
    /// The daemon's host
    #[arg(long, env = "COMEM_HOST", value_name = "H")]
    pub host: Option<String>,
    #[command(flatten)]
    pub way: DaemonWay,
}

/// How daemons are reached.
#[derive(Args, Debug)]
pub struct DaemonWay {
    /// The key shared with daemons [default: ~/.config/comem/key]
    #[arg(long, env = "COMEM_KEY_FILE", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// The daemons' UDP port
    #[arg(long, env = "COMEM_DAEMON_PORT", value_name = "P", default_value_t = crate::daemon::wire::PORT)]
    pub port: u16,
    /// The network to use
    #[arg(long, env = "COMEM_IFACE", value_name = "NAME|CIDR")]
    pub iface: Option<String>,
}

/// `comem doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// The hosts to check [default: this one]
    #[arg(long, env = "COMEM_HOSTS", value_name = "LIST")]
    pub hosts: Option<String>,
    /// The path of comem on other hosts
    #[arg(long, env = "COMEM_REMOTE_COMEM", value_name = "PATH", default_value = "comem")]
    pub remote_comem: String,
    /// The network to use
    #[arg(long, env = "COMEM_IFACE", value_name = "NAME|CIDR")]
    pub iface: Option<String>,
    /// The UDP ports to use
    #[arg(long, env = "COMEM_PORTS", value_name = "A-B", value_parser = ports)]
    pub ports: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Be the other end of a measurement; orders come on standard input.
    #[arg(long, hide = true)]
    pub peer: bool,
}

/// Reads the command line.
///
/// # Errors
/// What is wrong with it, in one line. Help and version are printed, and end the process, but where they cannot be
/// printed.
pub fn parse() -> Result<Cli, Failure> {
    Cli::try_parse().map_err(|error| {
        if error.exit_code() == 0 {
            let mut out = std::io::stdout();
            let printed = check_writable(&out).and_then(|()| error.print()).and_then(|()| out.flush());
            let trouble = printed.err().and_then(|why| Failure::of_output(&why));
            return trouble.unwrap_or_else(|| std::process::exit(exit::SUCCESS));
        }
        let text = error.to_string();
        // The first paragraph: a line, and perhaps indented details.
        let first: Vec<&str> = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
        let what = first.join(" ").trim_start_matches("error: ").trim_end_matches(':').to_string();
        if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Failure::usage("no command is given", "see `comem --help`");
        }
        let named = command_named(std::env::args_os().nth(1).map(|word| word.to_string_lossy().into_owned()));
        let meant = misspelt::suggested(&error).map_or(String::new(), |word| format!("was {word} meant? "));
        Failure::usage(what, format!("{meant}see `{named} --help`"))
    })
}

/// The command whose help says more: the one that the first argument names.
fn command_named(first: Option<String>) -> String {
    let named = first.filter(|name| Cli::command().find_subcommand(name).is_some());
    named.map_or_else(|| "comem".to_string(), |name| format!("comem {name}"))
}

/// The variables that are no choices of whoever calls this command: empty ones (a launcher sets each of its nodes'
/// variables, so that nothing of an outer job shines through), and within a node what is of its own job alone: what was
/// settled for it, and its names.
pub fn not_meant(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<OsString> {
    const SETTLED: [&str; 6] = [var::NODES, var::THREADS, var::SLOW, var::BACKBONE, var::AUTH, "COMEM_NICE"];
    const NAMES: [&str; 4] = [var::PROG_ID, var::STATS, var::CAPTURE, "COMEM_JOB_NAME"];
    let ours: Vec<_> = variables.filter(|(name, _)| name.to_string_lossy().starts_with("COMEM_")).collect();
    let within_a_node = ours.iter().any(|(name, value)| name == var::NODE && !value.is_empty());
    let of_that_node = |name: &OsString| within_a_node && SETTLED.iter().chain(&NAMES).any(|one| name == one);
    // A launcher has put the node on cores.
    let of_its_cores = |name: &OsString, value: &OsString| name == var::BIND && value == comem::bind::GIVEN;
    let not_meant =
        ours.into_iter().filter(|(name, value)| value.is_empty() || of_that_node(name) || of_its_cores(name, value));
    not_meant.map(|(name, _)| name).collect()
}

/// The flag of `comem run` behind which a variable stands.
pub fn flag_of(variable: &str) -> Option<String> {
    let cli = Cli::command();
    let run = cli.find_subcommand("run")?;
    let flag = run.get_arguments().find(|argument| argument.get_env().is_some_and(|name| name == variable))?;
    flag.get_long().map(|name| format!("--{name}"))
}

/// Reads `2=3x` entries: each node's factor. A lone `3x` is meant for every node.
pub fn slow_factors(entries: &[String], nodes: usize) -> Result<Vec<f64>, Failure> {
    let mut factors = vec![1.0; nodes];
    for entry in entries.iter().filter(|e| !e.trim().is_empty()) {
        let wrong = |why: String| Failure::usage(format!("--slow {entry}: {why}"), "write --slow 2=3x (node=factor)");
        let (node, factor) =
            entry.split_once('=').map_or((None, entry.as_str()), |(node, factor)| (Some(node), factor));
        let factor = factor.trim_end_matches('x').parse().ok().filter(|f| (1.0..=1000.0).contains(f));
        let factor: f64 = factor.ok_or_else(|| wrong("the factor goes from 1x to 1000x".to_string()))?;
        match node {
            None => factors.fill(factor),
            Some(node) => {
                let slot = node.trim().parse::<usize>().ok().and_then(|n| factors.get_mut(n));
                *slot.ok_or_else(|| wrong(format!("there is no node {node} among {nodes}")))? = factor;
            }
        }
    }
    Ok(factors)
}

impl NodeArgs {
    /// Refuses choices that do not go together; `one_host` says whether all nodes share a host.
    ///
    /// # Errors
    /// An engine and a detector that are no pair, shared memory between hosts, or damage that nobody would notice.
    pub fn check(&self, one_host: bool) -> Outcome<()> {
        self.engine.check_with(&self.pages.detector)?;
        if self.auth == Some(false) && self.damages() {
            let what = "--faults with truncate or corrupt does not go with --auth off: damage would go unnoticed";
            return Err(Failure::usage(what, "leave --auth off out"));
        }
        if self.backbone == BackboneChoice::Named(Backbone::Shm) && !one_host {
            return Err(Failure::usage("--backbone shm works between the processes of one host alone", "use udp"));
        }
        if self.backbone == BackboneChoice::Named(Backbone::Shm) && self.multicast == MulticastChoice::On {
            let what = "--multicast on does not go with --backbone shm: nodes that share memory send no datagrams";
            return Err(Failure::usage(what, "leave one of them out"));
        }
        if self.engine.pages.has_one_copy() && !one_host {
            let what = format!("--engine {} works between the processes of one host alone", self.engine.name);
            return Err(Failure::usage(what, "leave --engine out, or name another"));
        }
        let of_one_host = match () {
            () if !self.rehearse => None,
            () if self.engine.pages.has_one_copy() => Some(format!("--engine {}", self.engine.name)),
            () if self.backbone == BackboneChoice::Named(Backbone::Shm) => Some("--backbone shm".to_string()),
            () => None,
        };
        if let Some(option) = of_one_host {
            let what = format!("--rehearse runs what would run between hosts, where there is no {option}");
            return Err(Failure::usage(what, "leave one of the two out"));
        }
        self.check_capture()
    }

    /// A directory gives no names to files: they would lie beside it.
    fn check_capture(&self) -> Outcome<()> {
        if !self.capture.as_encoded_bytes().ends_with(b"/") && !Path::new(&self.capture).is_dir() {
            return Ok(());
        }
        let path = Path::new(&self.capture);
        let what = format!("--capture {}: this is a directory", path.display());
        Err(Failure::usage(what, format!("name a file: --capture {}", path.join("cap.pcap").display())))
    }

    /// Whether datagrams are authenticated.
    pub fn authenticates(&self) -> bool {
        self.auth.unwrap_or(true)
    }

    fn damages(&self) -> bool {
        self.faults.is_some_and(|faults| faults.damages())
    }

    /// What the backbone of a job of so many nodes depends on, `descriptors` being the limit for each.
    pub fn circumstances(&self, one_host: bool, nodes: usize, descriptors: usize) -> Circumstances {
        let network = [
            ("--faults", self.faults.is_some()),
            ("--iface", self.iface.as_ref().is_some_and(|name| !name.is_empty())),
            ("--ports", self.ports.as_ref().is_some_and(|range| !range.is_empty())),
            ("--mtu", !self.mtu.is_empty()),
            ("--capture", !self.capture.is_empty()),
            ("--multicast on", self.multicast == MulticastChoice::On),
        ];
        let network = network.into_iter().find(|(_, asked)| *asked).map(|(option, _)| option);
        Circumstances { one_host, nodes, endpoints: self.threads + 1, descriptors, network }
    }

    /// Refuses a backbone that does not join so many nodes.
    ///
    /// # Errors
    /// It was named, and joins fewer.
    pub fn check_nodes(&self, nodes: usize) -> Outcome<()> {
        let advice = "take --backbone udp, or leave the choice to auto";
        self.backbone.check(nodes).map_err(|error| Failure::usage(error.to_string(), advice))
    }

    /// Takes the backbone that fits where none was named, and warns where shared memory would fit and cannot be had;
    /// gives it in words.
    pub fn settle_backbone(&mut self, one_host: bool, nodes: usize, warn: bool) -> String {
        let rehearses = self.rehearse && one_host && self.backbone == BackboneChoice::Auto;
        if rehearses {
            self.backbone = BackboneChoice::Named(Backbone::Udp);
        }
        let resolved = self.backbone.resolve(&self.circumstances(one_host, nodes, backbone::descriptors_max()));
        if let Some(warning) = resolved.warning().filter(|_| warn) {
            crate::say(format_args!("{warning}"));
        }
        self.backbone = BackboneChoice::Named(resolved.backbone);
        let operations = match () {
            () if nodes == 1 || !self.engine.pages.is_one_sided() => String::new(),
            () if self.pages.one_sided == "ucx" => {
                format!("; one-sided operations of the engine direct go by {}", comem_net::ucx::in_words())
            }
            () if resolved.backbone == Backbone::Shm => String::new(),
            () => "; one-sided operations of the engine direct are emulated".to_string(),
        };
        match rehearses {
            true => format!("{} (--rehearse: as between hosts){operations}", resolved.backbone),
            false => format!("{resolved}{operations}"),
        }
    }

    /// Most bytes of a packet, as nodes are told: those of a network where one is rehearsed.
    pub fn mtu_told(&self, one_host: bool) -> String {
        let rehearses = self.rehearse && one_host && self.mtu.is_empty();
        if rehearses { REHEARSED_MTU.to_string() } else { self.mtu.clone() }
    }

    /// Whether the wrapper library is preloaded.
    pub fn wrap(&self) -> bool {
        !self.no_wrap && self.wrap.unwrap_or(true)
    }

    /// The settings by their flags' names, for the statistics.
    ///
    /// `page_engine` is the engine of pages; `None` where only the nodes' host knows it.
    pub fn settings(&self, job: &Job, page_engine: Option<PageEngine>) -> serde_json::Map<String, serde_json::Value> {
        let chosen = |text: &str| (!text.is_empty()).then(|| text.to_string());
        let pages = &self.pages;
        let settings = serde_json::json!({
            "engine": self.engine.objects.name(),
            "page_engine": page_engine.map(PageEngine::name),
            "rehearse": self.rehearse.then_some(true),
            "force_engine": self.force_engine,
            "detector": chosen(&pages.detector),
            "backbone": self.backbone.name(),
            "cache": chosen(&pages.cache),
            "diffs": chosen(&pages.diffs),
            "heap": chosen(&pages.heap),
            "unit_pages": pages.unit_pages.parse::<u32>().ok(),
            "unit_bytes": pages.unit_bytes.parse::<u32>().ok(),
            "one_sided": chosen(&pages.one_sided),
            "write_detection": chosen(&pages.write_detection),
            "migration": chosen(&pages.migration),
            "prefetch": chosen(&pages.prefetch),
            "lock_turns": chosen(&pages.lock_turns),
            "locks": chosen(&pages.locks),
            "globals": chosen(&pages.globals),
            "tuning": chosen(&pages.tuning),
            "threads": self.threads,
            "faults": self.faults.map(|f| f.to_string()),
            "seed": self.faults.map(|f| f.seed),
            "mtu": self.mtu.parse::<u32>().ok(),
            "multicast": self.multicast.name(),
            "auth": job.auth,
            "wait": self.wait.name(),
            "bind": self.bind.to_string(),
            "prog_id": job.prog_id,
        });
        settings.as_object().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
