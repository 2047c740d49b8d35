//! The `comem` command.
//!
//! | command | module | |
//! |---|---|---|
//! | `run` | [`run`] | starts a program as several nodes and stays with it |
//! | `exec` | [`exec`] | takes a place in a job that Slurm or mpirun started |
//! | `daemon` | [`daemon`] | starts programs for callers that prove a shared key |
//! | `jobs`, `kill` | [`jobs`] | shows running jobs, and ends one |
//! | `top` | [`top`] | shows what a running job counts |
//! | `ui` | [`ui`] | the same and more as a page in a browser |
//! | `hosts` | [`willing`] | shows what hosts with daemons have |
//! | `doctor` | [`doctor`] | checks hosts and measures between them |
//! | `report` | [`report`] | shows where the time of a run went |
//! | `compare` | [`compare`] | runs a program under every engine that fits |
//! | `bench` | [`bench`] | measures the network, and the programs of a paper |
//! | `fc` | [`fc`] | the same for Fortran |
//! | `cc`, `c++`, `config` | [`cc`] | compiles programs, and says where headers and libraries are |
//! | `man`, `completions` | [`manual`] | the manual's pages and shells' completions, from the command line's
//! definitions |
//! | `cc --inline`, `c++ --inline` | [`inline`] | compiles programs with checks in their own code |
//! | `agent` | [`agent`] | the launcher's hand on another host |
//!
//! A job goes through these modules: [`args`] reads the command line, [`plan`] makes it into one [`spec`] a host; a
//! [`group`] is the nodes of this host, a [`remote`] those of another, behind an [`agent`] and a [`link`] of
//! [`frames`]; [`job`] stays with all of them, [`output`] joins their lines and [`stats`] their counters. While it
//! runs, [`live`] shows it to whoever asks. What looks at
//! jobs runs them by this very command ([`trial`]) and reads their stats files, and [`progress`] tells who waits;
//! [`table`] and [`picture`] show numbers. What belongs to this command is found by [`installation`].

mod agent;
mod args;
mod bench;
mod cc;
mod choice;
mod compare;
mod cores;
mod daemon;
mod debug;
mod discover;
mod doctor;
mod exec;
mod failure;
mod fc;
mod frames;
mod group;
mod guardian;
mod hash_seed;
mod history;
mod hosts;
mod inline;
mod installation;
mod job;
mod jobs;
mod link;
mod live;
mod manual;
mod misspelt;
mod output;
mod picture;
mod plan;
mod preload;
mod program;
mod progress;
mod remote;
mod report;
mod run;
mod rundir;
mod spec;
mod stage;
mod stats;
mod sys;
mod table;
mod top;
mod trial;
#[cfg(feature = "ui")]
mod ui;
mod willing;
mod workers;

use args::{AskArgs, Cli, Command, DaemonArgs, DaemonCommand, ServeArgs};
use comem::control;
use comem::error::say;
use daemon::client::{self, Caller};
use daemon::key;
use daemon::wire::JobLine;
use failure::{Failure, Outcome};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

fn main() {
    // A caller that ignores the ends of its children hands that on, and then nobody learns how ours end.
    sys::signals::restore_default(libc::SIGCHLD);
    sys::signals::survive_file_limit();
    // SAFETY: the process has one thread so far.
    unsafe { sys::remove_variables(&args::not_meant(std::env::vars_os())) };
    let result = args::parse().and_then(|cli| dispatch(&cli));
    let code = result.unwrap_or_else(|failure| {
        say(format_args!("{failure}"));
        failure.code
    });
    std::process::exit(code);
}

fn dispatch(cli: &Cli) -> Outcome<i32> {
    if is_for_a_person(&cli.command) {
        comem::settings::tell_of_misspelt();
    }
    match &cli.command {
        Command::Run(args) if args.discover => discover::main(args),
        Command::Run(args) => run::main(args),
        Command::Exec(args) => exec::main(args),
        Command::Daemon(args) => daemon_command(args),
        Command::Jobs(args) => jobs::list(args),
        Command::Top(args) => top::main(args),
        #[cfg(feature = "ui")]
        Command::Ui(args) => ui::main(args),
        Command::Hosts(args) => willing::main(args),
        Command::Kill(args) => jobs::kill(args),
        Command::Doctor(args) => doctor::main(args),
        Command::Report(args) => report::main(args),
        Command::Compare(args) => compare::main(args),
        Command::Bench(args) => bench::main(args),
        Command::Cc { arguments } => cc::compile(cc::Language::C, arguments),
        Command::Cxx { arguments } => cc::compile(cc::Language::Cxx, arguments),
        Command::Fc { arguments } => fc::compile(arguments),
        Command::Config(args) => cc::config(&args.questions()),
        Command::Completions { shell } => show(&manual::completions(*shell)).map(|()| 0),
        Command::Man(args) => manual::main(args),
        Command::Agent { from_daemon } => agent::main(*from_daemon).or_else(|failure| {
            // An agent's standard error may be the daemon's log, which perhaps nobody reads.
            match daemon::log::Log::to(std::io::stderr(), "") {
                Ok(log) => {
                    log.say(format_args!("{failure}"));
                    log.finish(agent::LAST_WORDS_LIMIT);
                }
                Err(_) => say(format_args!("{failure}")),
            }
            Ok(failure.code)
        }),
    }
}

/// Whether somebody reads what the command says, and not a makefile, a shell or a launcher.
fn is_for_a_person(command: &Command) -> bool {
    let for_programs = matches!(
        command,
        Command::Cc { .. }
            | Command::Cxx { .. }
            | Command::Config(_)
            | Command::Completions { .. }
            | Command::Man(_)
            | Command::Agent { .. }
    );
    !for_programs
}

/// Prints a text; a reader who has heard enough is no failure.
fn show(text: &(impl AsRef<[u8]> + ?Sized)) -> Outcome<()> {
    let mut out = std::io::stdout();
    let written = sys::outputs::check_writable(&out).and_then(|()| out.write_all(text.as_ref()));
    let written = written.and_then(|()| out.flush());
    written.or_else(|why| Failure::of_output(&why).map_or(Ok(()), Err))
}

fn daemon_command(args: &DaemonArgs) -> Outcome<i32> {
    match &args.command {
        None => serve(&args.serve),
        Some(DaemonCommand::List(ask)) => list(ask),
        Some(DaemonCommand::Kill { id, ask }) => kill(*id, ask),
        Some(DaemonCommand::MakeKey { file }) => key::make(file).map(|()| 0),
    }
}

fn serve(args: &ServeArgs) -> Outcome<i32> {
    if args.allow.is_empty() {
        return Err(Failure::usage("the daemon may start nothing", "name directories of programs with --allow DIR"));
    }
    let key = key::named_or_default(args.key_file.as_deref())?;
    let limits = daemon::allow::Limits::new(&args.allow, &args.allow_env)?;
    let address = match (&args.iface, args.bind) {
        (Some(wanted), _) => {
            let chosen = comem_net::select::choose(Some(wanted), comem_net::select::Reach::Network);
            chosen.map_err(|e| Failure::usage(e.to_string(), ""))?.address
        }
        (None, bind) => bind.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
    };
    let listen = SocketAddr::new(address, args.port);
    let (slots, max_load) = (args.slots, args.max_load);
    daemon::server::serve(daemon::server::Settings { listen, key, limits, slots, max_load, verbose: args.verbose })
}

/// The daemons to ask, by name and address.
fn daemons(ask: &AskArgs, caller: &Caller<'_>) -> Outcome<Vec<(String, SocketAddr)>> {
    match &ask.host {
        Some(host) => Ok(vec![(host.clone(), client::resolve(host, ask.way.port)?)]),
        None => Ok(caller.find(ask.way.port)?.into_iter().map(|addr| (addr.ip().to_string(), addr)).collect()),
    }
}

/// A host by the name that the user gave, and something of it.
type OfHost<T> = (String, T);

/// What daemons have started; and the hosts that were asked.
fn started_by_daemons(ask: &AskArgs) -> Outcome<(Vec<OfHost<JobLine>>, Vec<String>)> {
    let key = key::named_or_default(ask.way.key_file.as_deref())?;
    let caller = Caller::new(&key, ask.way.iface.as_deref(), None);
    let asked = daemons(ask, &caller)?;
    if asked.is_empty() {
        return Err(client::nobody_answers(ask.way.port, "with --host"));
    }
    let mut started = Vec::new();
    for (name, address) in &asked {
        started.extend(caller.list(name, *address)?.into_iter().map(|job| (name.clone(), job)));
    }
    Ok((started, asked.into_iter().map(|(name, _)| name).collect()))
}

fn list(ask: &AskArgs) -> Outcome<i32> {
    let (started, asked) = started_by_daemons(ask)?;
    if started.is_empty() {
        show(&format!("comem: no job runs that a daemon has started (asked: {})\n", asked.join(", ")))?;
    } else {
        show(&format!("{:<24} {:>5} {:>8} {:>8}  {:<15} PROGRAM\n", "HOST", "ID", "PID", "SECONDS", "CALLER"))?;
    }
    for (name, job) in started {
        let program = job.program.display();
        let (id, pid, seconds, caller) = (job.id, job.pid, job.seconds, job.caller);
        let line = format!("{name:<24} {id:>5} {pid:>8} {seconds:>8}  {caller:<15} {program}");
        show(&(table::one_line(&line) + "\n"))?;
    }
    Ok(0)
}

fn kill(id: u64, ask: &AskArgs) -> Outcome<i32> {
    let Some(host) = &ask.host else {
        return Err(Failure::usage("job numbers belong to one daemon", "name its host with --host"));
    };
    let key = key::named_or_default(ask.way.key_file.as_deref())?;
    let caller = Caller::new(&key, ask.way.iface.as_deref(), None);
    caller.kill(host, client::resolve(host, ask.way.port)?, id)?;
    show(&format!("comem: host {host} ends job {id}\n")).map(|()| 0)
}
