//! `comem run`: from the command line to the exit code.

use crate::args::{Launch, NodeArgs, RunArgs};
use crate::control::{self, Job};
use crate::daemon::client::Caller;
use crate::daemon::key;
use crate::debug;
use crate::failure::{Failure, Outcome, exit};
use crate::group::Group;
use crate::guardian::Guardian;
use crate::hash_seed;
use crate::history;
use crate::job::{Host, JobOrders, JobResult, Line, Running, Watched};
use crate::live::registry::{self, Registration};
use crate::live::watchers::Watchers;
use crate::output::Output;
use crate::plan::{self, HostPlan, Plan, Reach};
use crate::program;
use crate::remote::{Remote, ShellCommand};
use crate::rundir::ProgLock;
use crate::spec::{Event, StdinFrom};
use crate::stats::{self, Began, JobReport};
use crate::sys;
use crate::sys::process::{self, FdLimit};
use crate::sys::signals::{self, Signals};
use crate::workers;
use comem_net::backbone::BackboneChoice;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Signals that the launcher takes in one by one.
const SIGNALS: [i32; 6] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGTSTP];

/// Runs the command; its exit code.
pub fn main(args: &RunArgs) -> Outcome<i32> {
    refuse_foreign(args)?;
    if let Some(note) = note_on_options(args) {
        crate::say(format_args!("comem: {note}"));
    }
    let args = &workers::spread(args);
    if args.dry_run {
        return dry_run(args);
    }
    let guardian = Guardian::start().map_err(|e| Failure::no_process("fork the guardian", &e))?;
    let signals = Signals::block(&SIGNALS).map_err(|e| Failure::system("cannot block signals", e))?;
    signals::ignore(libc::SIGTTIN);
    let began = Began::now();
    ProgLock::sweep();
    let job_number = u64::from_ne_bytes(sys::random());
    let (prog_id, lock) = match args.node.prog_id {
        Some(prog_id) => (prog_id, ProgLock::take(prog_id, job_number)?),
        None => ProgLock::take_any(job_number)?,
    };
    let caller = caller(args, &signals)?;
    let placements = plan::placements(args, &found_hosts(args, caller.as_ref())?)?;
    let plan = Plan::new(args, &placements, job_number, prog_id)?;
    args.node.stats.as_deref().map_or(Ok(()), |path| stats::check(path, &plan.program))?;
    // What nodes may have open, which the plan looks at, is not what this process may.
    let limit = process::raise_fd_limit();
    let mut output = match args.only_node_zero {
        true => Output::of_node_zero(),
        false => Output::new(!args.no_prefix),
    }?;
    if args.node.verbose {
        plan.describe().lines().for_each(|line| output.say(&format!("comem: {line}")));
    }
    if let Some(note) = debug::prepare(args, &plan)? {
        output.say(&format!("comem: {note}"));
    }
    let history = history::Kept::open(args, &plan, &mut |line| output.say(line));
    let mut watched = watched(args, &plan, &mut output);
    let mut started = Started { hosts: Vec::new(), events: Vec::new() };
    let resources = Resources { lock, guardian, limit };
    let result = start_hosts(args, &plan, caller.as_ref(), resources, &mut started);
    let result = result.and_then(|()| {
        let orders = orders(args, &plan, history.as_ref());
        let running = Running::new(orders, started.hosts, &signals, &mut output);
        running.watched_by(&mut watched).run(started.events)
    });
    // Nobody looks for signals any more: from here on they end a launcher that waits for who reads its output.
    sys::signals::ignore(libc::SIGUSR1);
    sys::signals::unblock_all();
    if let (Some(history), Some(arrived_at)) = (&history, result.as_ref().ok().and_then(JobResult::good_history)) {
        history.write(arrived_at, &mut |line| output.say(line));
    }
    let outcome = report(args, &plan, began, result);
    if let Err(failure) = &outcome {
        output.say(&failure.to_string());
    }
    let code = outcome.as_ref().map_or_else(|failure| failure.code, |(code, _)| *code);
    watched.end(code);
    output.finish(!outcome.is_ok_and(|(_, interrupted)| interrupted));
    // The last lines may be what could not be written.
    match output.broken().and_then(Failure::of_output).filter(|_| code == exit::SUCCESS) {
        Some(failure) => Err(failure),
        None => Ok(code),
    }
}

/// Options behind the program's name are the program's. Somebody who wanted a job of several nodes may not know, and
/// gets one of one.
fn note_on_options(args: &RunArgs) -> Option<String> {
    const LONG: [&str; 7] = ["--nodes", "--threads", "--hosts", "--engine", "--detector", "--backbone", "--stats"];
    let (program, behind) = args.command.split_first()?;
    if args.nodes.is_some() || args.hosts.is_some() || args.only_node_zero || program::is_interpreter(program) {
        return None;
    }
    let words: Vec<&str> = behind.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str()).collect();
    let is_number = |word: Option<&&str>| word.is_some_and(|word| word.parse::<u16>().is_ok());
    let like_ours = |(index, word): (usize, &&str)| match *word {
        "-n" | "-t" => is_number(words.get(index + 1)),
        word => LONG.contains(&word.split_once('=').map_or(word, |(name, _)| name)),
    };
    let found = (0..words.len()).find(|index| like_ours((*index, &words[*index])))?;
    let program = program.to_string_lossy();
    Some(format!(
        "{} stands behind the program's name and so is an option of the program; options of comem run stand in front \
         of it: comem run -n N {program}",
        words[found]
    ))
}

/// mpirun and srun start a command several times: each would be a launcher with a whole job of its own.
fn refuse_foreign(args: &RunArgs) -> Outcome<()> {
    let Some((name, count)) = control::foreign_launcher().filter(|_| !args.dry_run) else { return Ok(()) };
    let what = format!("{name} started comem run {count} times, and each would run a whole job");
    Err(Failure::usage(what, format!("use `{name} comem exec PROGRAM`, or comem run without {name}")))
}

/// Shows the job to whoever asks for it. Where that cannot be, it runs all the same.
fn watched(args: &RunArgs, plan: &Plan, output: &mut Output) -> Watched {
    let job = registry::describe(plan, args.name.as_deref(), args.node.threads, &args.command);
    let lent_to_debugger = args.gdb.is_some() && args.gdb_server.is_none();
    let line = Line::new(job.name.clone(), output.has_status_line() && !lent_to_debugger, args.progress);
    let watchers = match Registration::new(job) {
        Ok((registration, listener)) => Some(Watchers::new(registration, listener)),
        Err(failure) => {
            if args.node.verbose {
                output.say(&failure.to_string());
            }
            None
        }
    };
    Watched::new(watchers, line)
}

/// Somebody who asks daemons, when daemons are to be asked.
fn caller<'a>(args: &RunArgs, signals: &'a Signals) -> Outcome<Option<Caller<'a>>> {
    if args.launch == Launch::Ssh {
        return Ok(None);
    }
    let key = key::named_or_default(args.key_file.as_deref())?;
    Ok(Some(Caller::new(&key, args.node.iface.as_deref(), Some(signals))))
}

/// Hosts whose daemons answer a broadcast, when the user named none.
fn found_hosts(args: &RunArgs, caller: Option<&Caller<'_>>) -> Outcome<Vec<String>> {
    let Some(caller) = caller.filter(|_| args.hosts.is_none()) else { return Ok(Vec::new()) };
    let found = caller.find(args.daemon_port)?;
    if found.is_empty() {
        let what = format!("no daemon on this network answers on port {}", args.daemon_port);
        return Err(Failure::unreachable(what, "start `comem daemon` on the hosts, or name them with --hosts"));
    }
    Ok(found.iter().map(|address| address.ip().to_string()).collect())
}

fn dry_run(args: &RunArgs) -> Outcome<i32> {
    let placements = plan::placements(args, &["(whoever answers)".to_string()])?;
    let plan = Plan::new(args, &placements, 0, args.node.prog_id.unwrap_or(0))?;
    let free = if args.node.prog_id.is_none() { "(the program number will be a free one)\n" } else { "" };
    crate::show(&(plan.describe() + free)).map(|()| 0)
}

/// What this host's group takes over.
struct Resources {
    lock: ProgLock,
    guardian: Guardian,
    limit: FdLimit,
}

/// Hosts that were ordered to start their nodes, and what they said meanwhile.
struct Started {
    hosts: Vec<Host>,
    events: Vec<(usize, Event)>,
}

fn start_hosts(
    args: &RunArgs,
    plan: &Plan,
    caller: Option<&Caller<'_>>,
    resources: Resources,
    started: &mut Started,
) -> Outcome<()> {
    let rsh = std::env::var("COMEM_RSH").ok();
    let shell = ShellCommand::new(rsh.as_deref(), &args.remote_comem);
    let staged = match plan.hosts.iter().any(|host| host.spec.staged) {
        true => Some(Arc::new(plan::staged_bytes(Path::new(&plan.program.hashed))?)),
        false => None,
    };
    let mut resources = Some(resources);
    for (index, HostPlan { reach, spec }) in plan.hosts.iter().enumerate() {
        let host = match reach {
            Reach::Here => {
                let Resources { lock, guardian, limit } = resources.take().ok_or_else(here_twice)?;
                let mut events = Vec::new();
                let group = Group::start(spec, lock, guardian, limit, &mut events)?;
                started.events.extend(events.into_iter().map(|event| (index, event)));
                Host::Here(Box::new(group))
            }
            Reach::Shell => {
                let mut remote = Remote::by_shell(&shell, &spec.host)?;
                remote.order(spec, staged.as_ref());
                Host::There(Box::new(remote))
            }
            Reach::Daemon => {
                let caller = caller.ok_or_else(|| Failure::usage("daemons need a key", "give --key-file"))?;
                let (_, link) =
                    caller.wake(&spec.host, args.daemon_port, Path::new(&spec.program), spec.nodes.len())?;
                let mut remote = Remote::by_daemon(&spec.host, link);
                remote.order(spec, staged.as_ref());
                Host::There(Box::new(remote))
            }
        };
        started.hosts.push(host);
    }
    Ok(())
}

fn here_twice() -> Failure {
    Failure::usage("--hosts names this host twice", "write its name once, with the number of nodes behind a colon")
}

fn orders(args: &RunArgs, plan: &Plan, history: Option<&history::Kept>) -> JobOrders {
    let zero = plan.hosts.first().map_or(StdinFrom::Nothing, |host| host.spec.stdin);
    JobOrders {
        job: Job { history: history.map(|kept| kept.earlier().to_string()), ..plan.job.clone() },
        host_names: plan.hosts.iter().map(|host| host.spec.host.clone()).collect(),
        host_of: plan.host_of_nodes(),
        staged: plan.hosts.iter().any(|host| host.spec.staged),
        stdin: zero,
        deadline: args.timeout.map(|limit| (Instant::now() + limit, limit)),
    }
}

/// Writes the statistics; the exit code, and whether the user wanted the end.
fn report(args: &RunArgs, plan: &Plan, began: Began, result: Outcome<JobResult>) -> Outcome<(i32, bool)> {
    let Some(path) = &args.node.stats else {
        return result.map(|result| (result.code, result.interrupted));
    };
    let mut report = JobReport {
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        settings: NodeArgs { backbone: plan.backbone, ..args.node.clone() }.settings(&plan.job, plan.page_engine),
        ..JobReport::default()
    };
    let seed = plan.hosts.first().and_then(|host| hash_seed::among(&host.spec.env));
    report.settings.extend(seed.map(|seed| ("python_hash_seed".to_string(), seed.into())));
    match result {
        Ok(result) => {
            if plan.backbone == BackboneChoice::Auto {
                let found = result.nodes.iter().find_map(|node| node.stats.as_ref()?.get("backbone").cloned());
                report.settings.extend(found.map(|backbone| ("backbone".to_string(), backbone)));
            }
            report.status = result.code;
            report.failure = result.failure;
            report.nobody_joined = result.nobody_joined;
            report.hosts = result.hosts;
            let written = stats::write(path, &stats::build(began, &report, &result.nodes));
            match written {
                Err(failure) if result.code == exit::SUCCESS => Err(failure),
                Err(failure) => {
                    crate::say(format_args!("{failure}"));
                    Ok((result.code, result.interrupted))
                }
                Ok(()) => Ok((result.code, result.interrupted)),
            }
        }
        Err(failure) => {
            report.status = failure.code;
            report.failure = Some(failure.what.clone());
            report.hosts = plan.hosts.iter().map(|host| (host.spec.host.clone(), None)).collect();
            // The failure that ended the job matters more than a second one.
            let _ = stats::write(path, &stats::build(began, &report, &[]));
            Err(failure)
        }
    }
}
