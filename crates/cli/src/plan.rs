//! What a command line comes to: which node runs where, and with which variables.

use crate::args::{Launch, NodeArgs, RunArgs, flag_of, slow_factors};
use crate::control::{Job, key_to_hex, var};
use crate::debug;
use crate::failure::{Failure, Outcome};
use crate::hash_seed;
use crate::hosts;
use crate::preload::{self, WRAP};
use crate::program::Program;
use crate::spec::{HostSpec, NodeSpec, StdinFrom};
use crate::sys;
use comem::bind::{self, Bind};
use comem::{capacity, settings};
use comem_net::backbone::{Backbone, BackboneChoice};
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::coherence::pages::choice::Reason;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// How a host's nodes are started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// By this process.
    Here,
    /// By a remote shell.
    Shell,
    /// By the host's daemon.
    Daemon,
}

/// A host's part of the job.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// How to start it.
    pub reach: Reach,
    /// What to start.
    pub spec: HostSpec,
}

impl HostPlan {
    /// Which wrapper library is preloaded on this host, and why none is; nothing where none is wanted or the host is
    /// another.
    fn wrapper_in_words(&self) -> String {
        let wanted = self.spec.env.iter().any(|(name, value)| name == WRAP && value == "on");
        if !wanted || self.reach != Reach::Here {
            return String::new();
        }
        match preload::why_not(&self.spec.program) {
            None => String::new(),
            Some(why) => format!("wrapper    none, system calls on shared memory may fail: {why}\n"),
        }
    }

    /// Which node gets which cores, where that is asked for and this host's cores are the ones; else nothing.
    fn cores_in_words(&self) -> String {
        let given = |node: &NodeSpec| {
            node.cores.as_ref().map(|cores| format!("node {} on {}", node.node, bind::in_words(cores)))
        };
        let given: Vec<String> = self.spec.nodes.iter().filter_map(given).collect();
        if !given.is_empty() {
            return format!("cores      {}\n", given.join("; "));
        }
        let asked = self.spec.env.iter().any(|(name, value)| name == var::BIND && value == Bind::Cores.name());
        if !asked || self.reach != Reach::Here {
            return String::new();
        }
        let (cores, nodes, threads) = (bind::allowed_cores(), self.spec.nodes.len(), self.spec.threads);
        let fits = nodes.saturating_mul(threads) <= capacity::cores();
        let share = |place| bind::share_of(&cores, place, nodes, threads).filter(|_| fits).map(bind::in_words);
        let shares: Option<Vec<String>> = (0..nodes).map(share).collect();
        let words = match shares {
            Some(shares) => {
                self.spec.nodes.iter().zip(shares).map(|(n, s)| format!("node {} on {s}", n.node)).collect()
            }
            None => vec![format!("none of their own: {nodes} nodes of {threads} threads, {} cores", capacity::cores())],
        };
        format!("cores      {}\n", words.join("; "))
    }
}

/// The whole job.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The hosts that have nodes.
    pub hosts: Vec<HostPlan>,
    /// What all nodes are told over their control channels.
    pub job: Job,
    /// The working directory.
    pub cwd: PathBuf,
    /// The program.
    pub program: Program,
    /// How many nodes there are for each that was asked for, because the program's workers are processes.
    pub processes: usize,
    /// What moves the job's datagrams; not settled here where all nodes are on one other host.
    pub backbone: BackboneChoice,
    /// The same in words, with the reason.
    backbone_words: String,
    /// The engine of shared pages that name none; `None` where all nodes are on one other host, and find it out there.
    pub page_engine: Option<PageEngine>,
    /// The same in words, with the reason; nothing for one node.
    engine_words: String,
}

/// A host by name with its number of nodes.
pub type Placement = (String, Reach, usize);

/// Where the nodes go. `found` are hosts whose daemons answered a broadcast, where the user named none.
pub fn placements(args: &RunArgs, found: &[String]) -> Outcome<Vec<Placement>> {
    let (list, reach): (Vec<hosts::Host>, Reach) = match (&args.hosts, args.launch) {
        (Some(list), Launch::Ssh) => (hosts::parse(list)?, Reach::Shell),
        (Some(list), Launch::Daemon) => (hosts::parse(list)?, Reach::Daemon),
        (None, Launch::Daemon) => {
            (found.iter().map(|name| hosts::Host { name: name.clone(), slots: None }).collect(), Reach::Daemon)
        }
        (None, Launch::Ssh) => {
            let nodes = args.nodes.unwrap_or(1) * args.processes;
            check_total(nodes)?;
            return Ok(vec![(sys::host::name(), Reach::Here, nodes)]);
        }
    };
    let counts: Vec<usize> = hosts::distribute(&list, args.nodes)?.iter().map(|n| n * args.processes).collect();
    check_total(counts.iter().sum())?;
    let reach_of = |name: &str| if reach == Reach::Shell && hosts::is_here(name) { Reach::Here } else { reach };
    let placed = list.into_iter().zip(counts).filter(|(_, count)| *count > 0);
    Ok(placed.map(|(host, count)| (host.name.clone(), reach_of(&host.name), count)).collect())
}

fn check_total(total: usize) -> Outcome<()> {
    if total <= comem_protocol::ids::NODES_MAX {
        return Ok(());
    }
    let what = format!("the job would have {total} nodes, and a job has at most {}", comem_protocol::ids::NODES_MAX);
    Err(Failure::usage(what, "lower -n or -t, or the numbers behind the hosts' names"))
}

/// Each node has a port for each application thread and one for itself.
fn check_ports(args: &RunArgs, backbone: BackboneChoice, placements: &[Placement]) -> Outcome<()> {
    let Some((low, high)) = args.node.ports.as_deref().and_then(|range| range.split_once('-')) else { return Ok(()) };
    let (Ok(low), Ok(high)) = (low.parse::<usize>(), high.parse::<usize>()) else { return Ok(()) };
    let needed = |(_, _, nodes): &Placement| nodes * (args.node.threads + 1);
    let all: usize = placements.iter().map(|(_, _, nodes)| nodes).sum();
    let most = placements.iter().map(needed).max().unwrap_or(0);
    if all < 2 || backbone == BackboneChoice::Named(Backbone::Shm) || high - low + 1 >= most {
        return Ok(());
    }
    let what = format!("--ports {low}-{high} has too few ports: the nodes of one host need {most}");
    Err(Failure::usage(what, format!("give --ports {low}-{}, or a larger range", low + most - 1)))
}

impl Plan {
    /// Works out the job.
    ///
    /// # Errors
    /// The command line asks for what cannot be.
    pub fn new(args: &RunArgs, placements: &[Placement], job_number: u64, prog_id: u16) -> Outcome<Plan> {
        args.node.check(placements.len() == 1)?;
        args.node.check_nodes(placements.iter().map(|(_, _, nodes)| nodes).sum())?;
        let cwd = std::env::current_dir().map_err(|e| Failure::system("the working directory", e))?;
        let elsewhere = placements.iter().all(|(_, reach, _)| *reach != Reach::Here) && !args.stage;
        let mut program = Program::find(&args.command, &cwd, elsewhere)?;
        if args.stage {
            program.name_script_fully(&cwd);
        }
        let node_hosts: Vec<String> =
            placements.iter().flat_map(|(name, _, count)| vec![name.clone(); *count]).collect();
        let job = Job {
            key: key_to_hex(&sys::random()),
            job: job_number,
            prog_id,
            auth: args.node.authenticates(),
            hosts: node_hosts,
            program: None,
            history: None,
        };
        let reaches: Vec<Reach> = placements.iter().flat_map(|(_, reach, count)| vec![*reach; *count]).collect();
        let debugged = debug::debugger(args, &reaches)?;
        let (backbone, backbone_words) = settle_backbone(args, placements);
        check_ports(args, backbone, placements)?;
        if reaches.len() > 1 && placements.len() == 1 && reaches[0] == Reach::Here && args.node.iface.is_none() {
            hosts::loopback()?;
        }
        let (hosts, processes) = (Vec::new(), args.processes);
        let (page_engine, engine_words) = (Some(args.node.engine.pages), String::new());
        let mut plan =
            Plan { hosts, job, cwd, program, processes, backbone, backbone_words, page_engine, engine_words };
        let slow = slow_factors(&args.slow, plan.job.hosts.len())?;
        args.node.bind.check(plan.job.hosts.len())?;
        let mut named = named_variables(&args.variables)?;
        hash_seed::complete(&mut named, args.dry_run);
        let mut first = 0;
        for (name, reach, count) in placements {
            let mut spec = plan.host_spec(args, name, *reach, first..first + count, &slow, &named);
            for node in &mut spec.nodes {
                node.debugger = debugged.as_ref().filter(|(number, _)| *number == node.node).map(|(_, d)| d.clone());
            }
            plan.hosts.push(HostPlan { reach: *reach, spec });
            first += count;
        }
        (plan.page_engine, plan.engine_words) = plan.settled_engine(args);
        Ok(plan)
    }

    /// The engine of pages, and that in words.
    fn settled_engine(&self, args: &RunArgs) -> (Option<PageEngine>, String) {
        let named = args.node.engine;
        let Some(host) = self.hosts.first().filter(|_| self.job.hosts.len() > 1) else {
            return (Some(named.pages), String::new());
        };
        if self.backbone == BackboneChoice::Auto && named.name.is_empty() {
            return (None, format!("auto (found out on host {})", host.spec.host));
        }
        let value = |wanted: &str| {
            let found = host.spec.env.iter().find(|(name, _)| name == wanted);
            found.and_then(|(_, value)| value.to_str()).map(str::to_string)
        };
        let (engine, words) = match settings::page_engine(&value) {
            None | Some((_, Reason::Named)) if named.name.is_empty() => (named.pages, String::new()),
            None | Some((_, Reason::Named)) => (named.pages, format!("{} (as it was named)", named.pages)),
            Some((engine, Reason::Asked(variable))) => {
                (engine, format!("{engine} ({} asks for a protocol)", flag_of(variable).as_deref().unwrap_or(variable)))
            }
            Some((engine, reason)) => (engine, format!("{engine} ({reason})")),
        };
        (Some(engine), words)
    }

    fn host_spec(
        &self,
        args: &RunArgs,
        host: &str,
        reach: Reach,
        nodes: std::ops::Range<usize>,
        slow: &[f64],
        named: &[(OsString, OsString)],
    ) -> HostSpec {
        let mut node_args = args.node.clone();
        node_args.backbone = self.backbone;
        if args.gdb.is_some() {
            // Who stands at a breakpoint is silent.
            node_args.node_timeout = "off".to_string();
        }
        let mut env = node_variables(&node_args, &self.job, self.job.hosts.len(), nodes.len());
        env.extend(named.iter().cloned());
        let first = nodes.start;
        let node_spec = |node: usize| {
            let bound = args.node.bind.for_node(node as u16);
            let mut env: Vec<(OsString, OsString)> = vec![
                (var::NODE.into(), node.to_string().into()),
                (var::HOST_PLACE.into(), (node - first).to_string().into()),
                (var::SLOW.into(), format!("{}x", slow[node]).into()),
            ];
            env.extend(bound.as_ref().map(|(_, told)| (var::BIND.into(), (*told).into())));
            NodeSpec { node: node as u16, env, debugger: None, cores: bound.map(|(cores, _)| cores) }
        };
        HostSpec {
            version: env!("CARGO_PKG_VERSION").to_string(),
            host: host.to_string(),
            job: self.job.job,
            prog_id: self.job.prog_id,
            threads: args.node.threads,
            program: self.program.path.clone(),
            args: self.program.args.clone(),
            hashed: self.program.hashed.clone(),
            cwd: self.cwd.clone().into_os_string(),
            env,
            nodes: nodes.map(node_spec).collect(),
            stdin: stdin_from(reach, args.gdb.is_some() && args.gdb_server.is_none()),
            nice: args.nice,
            staged: args.stage && reach != Reach::Here,
            patience_ms: agents_patience_ms(&node_args.node_timeout),
        }
    }

    /// The host of each node, as an index.
    pub fn host_of_nodes(&self) -> BTreeMap<u16, usize> {
        let of_host = |(index, host): (usize, &HostPlan)| -> Vec<(u16, usize)> {
            host.spec.nodes.iter().map(|n| (n.node, index)).collect()
        };
        self.hosts.iter().enumerate().flat_map(of_host).collect()
    }

    /// The plan in words, for `--dry-run` and `-v`.
    pub fn describe(&self) -> String {
        let mut text = format!("program    {}", self.program.path.to_string_lossy());
        self.program.args.iter().for_each(|arg| text += &format!(" {}", arg.to_string_lossy()));
        text += &format!("\nhashed     {}", self.program.hashed.to_string_lossy());
        text += &format!("\ndirectory  {}", self.cwd.display());
        let auth = if self.job.auth { "datagrams authenticated" } else { "datagrams not authenticated" };
        text += &format!("\njob        program number {}, {auth}\n", self.job.prog_id);
        text += &format!("backbone   {}\n", self.backbone_words);
        if !self.engine_words.is_empty() {
            text += &format!("pages      {}\n", self.engine_words);
        }
        if self.processes > 1 {
            text += &format!("workers    processes, {} for each node that was asked for\n", self.processes);
        }
        for host in &self.hosts {
            let how = match host.reach {
                Reach::Here => "this host",
                Reach::Shell => "by remote shell",
                Reach::Daemon => "by its daemon",
            };
            let count = host.spec.nodes.len();
            let nodes = if count == 1 { "node" } else { "nodes" };
            text += &format!("host       {} ({how}, {count} {nodes})\n", host.spec.host);
            text += &host.cores_in_words();
            text += &host.wrapper_in_words();
            let show = |(name, value): &(OsString, OsString)| {
                format!(" {}={}", name.to_string_lossy(), value.to_string_lossy())
            };
            text += &format!("           {}\n", host.spec.env.iter().map(show).collect::<String>().trim_start());
            for node in &host.spec.nodes {
                text += &format!("  node {:<4}{}\n", node.node, node.env.iter().map(show).collect::<String>());
                if let Some(debugger) = &node.debugger {
                    let words: Vec<_> = debugger.words.iter().map(|word| word.to_string_lossy()).collect();
                    text += &format!("            under {}\n", words.join(" "));
                }
            }
        }
        text
    }
}

/// The backbone, and that in words. Nodes that are all on one other host find out there whether they can share memory.
fn settle_backbone(args: &RunArgs, placements: &[Placement]) -> (BackboneChoice, String) {
    let mut node = args.node.clone();
    let nodes = placements.iter().map(|(_, _, count)| count).sum();
    match placements {
        [(host, reach, _)] if *reach != Reach::Here && node.backbone == BackboneChoice::Auto && !node.rehearse => {
            (node.backbone, format!("auto (found out on host {host})"))
        }
        _ => {
            let words = node.settle_backbone(placements.len() == 1, nodes, !args.dry_run);
            (node.backbone, words)
        }
    }
}

/// For how long a launcher may be silent, of whose end an agent may hear nothing: far longer than a node, since a job
/// can go on without it for a while.
fn agents_patience_ms(node_timeout: &str) -> u64 {
    const TIMES: f64 = 12.0;
    // Without a limit for nodes there is none for the launcher.
    crate::args::time(node_timeout).map_or(0, |span| (span.as_secs_f64() * TIMES * 1e3) as u64)
}

/// Node zero reads what we read: our own standard input where it is a file or a pipe, and what we pass on where it is
/// a terminal (which only the foreground may read) or node zero is elsewhere. A debugger has the terminal for itself.
fn stdin_from(reach: Reach, lent_to_debugger: bool) -> StdinFrom {
    use std::io::IsTerminal;
    let terminal = std::io::stdin().is_terminal();
    if lent_to_debugger || terminal && !sys::process::owns_terminal(0) {
        StdinFrom::Nothing
    } else if terminal || reach != Reach::Here {
        StdinFrom::Pipe
    } else {
        StdinFrom::Inherited
    }
}

/// What `--dry-run` shows where no launcher runs: the program and what its environment gets.
pub fn without_launcher(program: &Program, variables: &[(OsString, OsString)]) -> String {
    let line =
        |(name, value): &(OsString, OsString)| format!("{}={}\n", name.to_string_lossy(), value.to_string_lossy());
    let lines: String = variables.iter().map(line).collect();
    format!("program    {}\n{lines}", program.path.to_string_lossy())
}

/// The variables that all nodes of a host share. Each is set, so that nothing of an outer job shines through.
pub fn node_variables(args: &NodeArgs, job: &Job, nodes: usize, host_nodes: usize) -> Vec<(OsString, OsString)> {
    let switch = |on: bool| if on { "on" } else { "off" }.to_string();
    let mut variables = vec![
        (var::NODES, nodes.to_string()),
        (var::THREADS, args.threads.to_string()),
        (var::ENGINE, args.engine.name.to_string()),
        (var::FORCE_ENGINE, switch(args.force_engine)),
        (var::BACKBONE, args.backbone.to_string()),
        (var::REHEARSE, switch(args.rehearse)),
        (var::FAULTS, args.faults.map_or(String::new(), |f| f.to_string())),
        (var::IFACE, args.iface.clone().unwrap_or_default()),
        (var::PORTS, args.ports.clone().unwrap_or_default()),
        (var::MTU, args.mtu_told(host_nodes == nodes)),
        (var::MULTICAST, args.multicast.name().to_string()),
        (var::AUTH, switch(job.auth)),
        (var::NODE_TIMEOUT, args.node_timeout.clone()),
        (var::WAIT, args.wait.name().to_string()),
        (var::BIND, args.bind.for_all().to_string()),
        (WRAP, switch(args.wrap())),
        (crate::args::page_var::CHECK_POINTERS, switch(args.check_pointers)),
        (var::VERBOSE, switch(args.verbose)),
        (var::PROG_ID, job.prog_id.to_string()),
        (var::HOST_NODES, host_nodes.to_string()),
    ];
    variables.extend(args.pages.variables());
    let mut variables: Vec<(OsString, OsString)> =
        variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    // Files to write: a daemon takes the variables only where it was told to.
    variables.extend(args.stats.as_ref().map(|path| (var::STATS.into(), path.into())));
    variables.extend((!args.capture.is_empty()).then(|| (var::CAPTURE.into(), args.capture.clone())));
    variables
}

/// Reads `--env NAME` and `--env NAME=VALUE`.
fn named_variables(names: &[String]) -> Outcome<Vec<(OsString, OsString)>> {
    let mut named = Vec::new();
    for entry in names.iter().filter(|n| !n.is_empty()) {
        let (name, value) = match entry.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (entry.as_str(), std::env::var_os(entry)),
        };
        if name.is_empty() || name.starts_with("COMEM_") {
            let what = format!("--env {entry} names a variable that cannot be passed on");
            let advice = match flag_of(name) {
                Some(flag) => format!("use {flag} instead"),
                None => "leave it out: launchers and nodes set Comem's own variables".to_string(),
            };
            return Err(Failure::usage(what, advice));
        }
        match value {
            Some(value) => named.push((name.into(), value)),
            None => {
                return Err(Failure::usage(
                    format!("--env {name}: it is not set here"),
                    format!("set it, or write --env {name}=VALUE"),
                ));
            }
        }
    }
    Ok(named)
}

/// The bytes of the program for hosts that get a copy.
pub fn staged_bytes(path: &Path) -> Outcome<Vec<u8>> {
    std::fs::read(path)
        .map_err(|e| Failure::start(format!("cannot read {}: {e}", path.display()), "--stage needs it here"))
}
