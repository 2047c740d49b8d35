//! `comem exec`: a place in a job that Slurm, mpirun or another process manager started.
//!
//! The environment tells rank and size ([`place`]). What it does not tell is where node zero listens:
//!
//! | the job | node zero's address |
//! |---|---|
//! | `--zero HOST:PORT` | that one |
//! | all on one host | node zero leaves a free loopback port in a file of the user's own directory on this host |
//! | Slurm, several hosts | the first host of the step's list, and a port that follows from job and step |
//! | anything else | node zero leaves it in a file of a directory that all hosts share (`--rendezvous`, `~/.comem`) |
//!
//! Processes on one host take the backbone that node zero left with its address: what it settled on where none was
//! named.
//!
//! The processes of torchrun and Kubernetes meet when the program starts, wherever it is called
//! ([`comem::guest::of_launcher`]): it gets the settings alone.
//!
//! Then the process becomes the program, with the same variables that `comem run` gives and `COMEM_ZERO`. The job's key
//! travels in an inherited memory file. On one host it is a random one out of the meeting file; on several it follows
//! from the user's key file and the job's name.

pub mod meeting;
pub mod place;

use crate::args::{ExecArgs, NodeArgs, slow_factors};
use crate::control::{Job, ToNode, encode, foreign, key_to_hex, var};
use crate::cores;
use crate::daemon::key;
use crate::failure::{Failure, Outcome};
use crate::group::{FOREIGN_VARS, OMP_THREADS};
use crate::hash_seed::{self, HASH_SEED};
use crate::plan::{node_variables, without_launcher};
use crate::preload::{LD_PRELOAD, preload};
use crate::program::{Program, why_not_started};
use crate::rundir::{self, ProgLock};
use crate::stats;
use crate::sys;
use comem_net::backbone::{Backbone, BackboneChoice};
use comem_net::select::{self, Reach};
use meeting::{Meeting, Point};
use place::Place;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;

/// Ports for node zero when `--ports` names none: below those that Linux gives to sockets without a wish.
const ZERO_PORTS: (u16, u16) = (20_000, 31_999);

/// Becomes the program; returns only when that fails.
pub fn main(args: &ExecArgs) -> Outcome<i32> {
    let read = |name: &str| std::env::var(name).ok();
    let Some(found) = foreign(&read) else { return of_others(args, &read) };
    let place = Place::read(&found, args.nodes, &read)?;
    args.node.check(place.one_host)?;
    args.node.check_nodes(place.size)?;
    let cwd = std::env::current_dir().map_err(|e| Failure::system("the working directory", e))?;
    let program = Program::find(&args.command, &cwd, false)?;
    let mut node = args.node.clone();
    // No launcher adds up what the nodes counted: each writes a file.
    node.stats = node.stats.map(|path| stats::of_node(&path, place.rank));
    if args.dry_run {
        return dry_run(args, node, &place, &program);
    }
    node.stats.as_deref().map_or(Ok(()), |path| stats::check(path, &program))?;
    let mut settle = || {
        node.settle_backbone(place.one_host, place.size, place.rank == 0);
        node.backbone.named()
    };
    let mut meeting = meet(args, &place, &mut settle)?;
    let backbone = match (args.node.backbone, meeting.backbone.take()) {
        (BackboneChoice::Auto, Some(settled)) => Some(settled),
        _ => settle(),
    };
    node.backbone = backbone.map_or(node.backbone, BackboneChoice::Named);
    if place.rank == 0 {
        ProgLock::sweep();
    }
    let prog_id = prog_id(args, &place);
    let job = Job {
        key: key_to_hex(&meeting.key),
        job: place.number("job"),
        prog_id,
        auth: args.node.authenticates(),
        hosts: if place.one_host { vec![sys::host::name(); place.size] } else { Vec::new() },
        program: None,
        history: None,
    };
    let variables = variables(args, &node, &place, &job, &program, &meeting.zero.to_string())?;
    if args.node.verbose {
        let (rank, size) = (place.rank, place.size);
        let (zero, backbone) = (meeting.zero, node.backbone);
        let seed = hash_seed::among(&variables).unwrap_or_default();
        crate::say(format_args!(
            "comem: {} made this process node {rank} of {size}; node zero is at {zero}, the backbone is {backbone}, \
             {HASH_SEED}={seed}",
            found.name
        ));
    }
    if let Some((cores, _)) = node.bind.for_node(place.rank as u16) {
        cores::check_here(place.rank as u16, &sys::host::name(), &cores)?;
        comem::bind::stay_on(&cores).map_err(|e| Failure::system("cannot run on the cores that --bind names", e))?;
    }
    ProgLock::take(prog_id, job.job)?.hand_to_program()?;
    become_program(&program, variables, Some(&job))
}

/// Becomes a program whose processes meet by themselves, as those of torchrun and Kubernetes do.
fn of_others(args: &ExecArgs, read: &dyn Fn(&str) -> Option<String>) -> Outcome<i32> {
    let seen = comem::guest::of_launcher(read).map_err(|error| Failure::usage(error.to_string(), ""))?;
    let Some(launched) = seen else {
        let what = "no process manager (Slurm, mpirun, PMIx, torchrun, Kubernetes) started this process";
        return Err(Failure::usage(what, "use `srun comem exec PROGRAM`, or `comem run -n N PROGRAM` without one"));
    };
    args.node.check(false)?;
    let cwd = std::env::current_dir().map_err(|e| Failure::system("the working directory", e))?;
    let program = Program::find(&args.command, &cwd, false)?;
    let (rank, size, identity) = (launched.rank, launched.size, launched.job);
    let place = Place { rank, size, on_this_host: 1, one_host: false, hosts: Vec::new(), identity };
    let auth = args.node.authenticates();
    let job = Job { key: String::new(), job: 0, prog_id: 0, auth, hosts: Vec::new(), program: None, history: None };
    let mut variables = variables(args, &args.node, &place, &job, &program, "")?;
    // Who is which node turns out where they meet; where that is, stays as it was said.
    let told = [var::NODE, var::ZERO, var::HOST_NODES, var::PROG_ID].map(OsString::from);
    variables.retain(|(name, _)| !told.contains(name));
    variables.extend(args.zero.as_ref().map(|zero| (var::ZERO.into(), zero.into())));
    if args.dry_run {
        return crate::show(&without_launcher(&program, &variables)).map(|()| 0);
    }
    let stats = args.node.stats.as_deref().map(|path| stats::of_node(path, rank));
    stats.map_or(Ok(()), |path| stats::check(&path, &program))?;
    become_program(&program, variables, None)
}

/// Shows what the program would be told, without meeting the other processes: none need be there.
fn dry_run(args: &ExecArgs, mut node: NodeArgs, place: &Place, program: &Program) -> Outcome<i32> {
    node.settle_backbone(place.one_host, place.size, false);
    let zero = zero_unasked(args, place)?;
    let auth = args.node.authenticates();
    let prog_id = prog_id(args, place);
    let job = Job { key: String::new(), job: 0, prog_id, auth, hosts: Vec::new(), program: None, history: None };
    let variables = variables(args, &node, place, &job, program, &zero)?;
    crate::show(&without_launcher(program, &variables)).map(|()| 0)
}

fn prog_id(args: &ExecArgs, place: &Place) -> u16 {
    args.node.prog_id.unwrap_or((place.number("program number") as u16).max(1))
}

fn variables(
    args: &ExecArgs,
    node: &NodeArgs,
    place: &Place,
    job: &Job,
    program: &Program,
    zero: &str,
) -> Outcome<Vec<(OsString, OsString)>> {
    let slow = slow_factors(&args.slow, place.size)?[place.rank];
    let mut variables = node_variables(node, job, place.size, place.on_this_host);
    node.bind.check(place.size)?;
    variables.extend(node.bind.for_node(place.rank as u16).map(|(_, told)| (var::BIND.into(), told.into())));
    variables.push((var::NODE.into(), place.rank.to_string().into()));
    variables.push((var::SLOW.into(), format!("{slow}x").into()));
    variables.push((var::PROGRAM.into(), program.hashed.clone()));
    variables.push((var::ZERO.into(), zero.into()));
    variables.push((HASH_SEED.into(), hash_seed::agreed(Some(place))));
    if std::env::var_os(OMP_THREADS).is_none() {
        variables.push((OMP_THREADS.into(), args.node.threads.to_string().into()));
    }
    if let Some(value) = preload(&program.path, &variables) {
        variables.push((LD_PRELOAD.into(), value));
    }
    Ok(variables)
}

fn become_program(program: &Program, variables: Vec<(OsString, OsString)>, job: Option<&Job>) -> Outcome<i32> {
    let file = |job: &Job| sys::inherited_memory_file(&encode(&ToNode::Job(job.clone())));
    let file = job.map(file).transpose().map_err(|e| Failure::system("a memory file for the job", e))?;
    let mut command = std::process::Command::new(&program.path);
    FOREIGN_VARS.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.args(&program.args).envs(variables);
    // From here on the file belongs to the program.
    let fd = file.map(IntoRawFd::into_raw_fd);
    if let Some(fd) = fd {
        command.env(var::JOB_FD, fd.to_string());
    }
    sys::signals::give_file_limit_back();
    let why = command.exec();
    let (why, advice) = why_not_started(&why, "check that it is a program for this machine");
    let with = fd.map_or(String::new(), |fd| format!(" (with descriptor {fd})"));
    Err(Failure::start(format!("cannot start {}{with}: {why}", program.path.to_string_lossy()), advice))
}

/// Node zero's address, the job's key, and what node zero `settle`s for all on one host.
fn meet(args: &ExecArgs, place: &Place, settle: &mut dyn FnMut() -> Option<Backbone>) -> Outcome<Meeting> {
    let key = job_key(args, place)?;
    let named = args.zero.as_ref().map(|zero| resolve(zero, args)).transpose()?;
    let zero_here = place.rank == 0;
    let limit = meeting::limit(&args.node.node_timeout);
    if place.one_host {
        let point = Point::of_host(rundir::directory()?, place);
        if !zero_here {
            return point.wait(limit).map(|found| Meeting { zero: named.unwrap_or(found.zero), ..found });
        }
        if let Some(zero) = named {
            return point.announce(&Meeting { zero, key: sys::random(), backbone: settle() });
        }
        let address = match &args.node.iface {
            Some(_) => own_address(args)?,
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let zero = free_port(address, ports(args), place)?;
        return point.announce(&Meeting { zero, key: sys::random(), backbone: settle() });
    }
    let key = key.unwrap_or_else(|| place.public_key());
    if let Some(zero) = named {
        return Ok(Meeting { zero, key, backbone: None });
    }
    if let Some(first) = place.hosts.first() {
        return slurm_zero(args, place, first).map(|zero| Meeting { zero, key, backbone: None });
    }
    let point = Point::of_job(args.rendezvous.as_deref(), place)?;
    if zero_here {
        let zero = free_port(own_address(args)?, ports(args), place)?;
        // The key stays out of a file that other hosts may keep.
        point.announce(&Meeting { zero, key: [0; 32], backbone: None })?;
        return Ok(Meeting { zero, key, backbone: None });
    }
    point.wait(limit).map(|found| Meeting { key, ..found })
}

/// Node zero's address, as far as it is known without the other processes.
fn zero_unasked(args: &ExecArgs, place: &Place) -> Outcome<String> {
    job_key(args, place)?;
    let known = match (&args.zero, place.hosts.first()) {
        (Some(zero), _) => Some(resolve(zero, args)?),
        (None, Some(first)) if !place.one_host => Some(slurm_address(args, place, first)?),
        _ => None,
    };
    Ok(known.map_or("(where node zero will listen)".to_string(), |zero| zero.to_string()))
}

/// The key of a job on several hosts; `None` where no secret is needed.
fn job_key(args: &ExecArgs, place: &Place) -> Outcome<Option<[u8; 32]>> {
    // On one host node zero leaves a random key with its address.
    if place.one_host || !args.node.authenticates() {
        return Ok(None);
    }
    let shared = key::named_or_default(args.key_file.as_deref()).map_err(|failure| Failure {
        what: format!("a job that authenticates needs a key: {}", failure.what),
        advice: format!("{}; or trust the network with --auth off", failure.advice),
        ..failure
    })?;
    Ok(Some(shared.derive("comem 2026 exec job key", place.identity.as_bytes())))
}

fn ports(args: &ExecArgs) -> (u16, u16) {
    let range = args.node.ports.as_deref().and_then(|text| text.split_once('-'));
    range.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?))).unwrap_or(ZERO_PORTS)
}

/// This host's address on the job's network.
fn own_address(args: &ExecArgs) -> Outcome<IpAddr> {
    let chosen = select::choose(args.node.iface.as_deref(), Reach::Network);
    chosen.map(|interface| interface.address).map_err(|e| Failure::start(e.to_string(), ""))
}

/// Under Slurm everybody works out the same address.
fn slurm_address(args: &ExecArgs, place: &Place, first: &str) -> Outcome<SocketAddr> {
    let (low, high) = ports(args);
    let port = low + (place.number("port of node zero") % (u64::from(high - low) + 1)) as u16;
    resolve(&format!("{first}:{port}"), args)
}

/// That address, at which node zero can listen.
fn slurm_zero(args: &ExecArgs, place: &Place, first: &str) -> Outcome<SocketAddr> {
    let zero = slurm_address(args, place, first)?;
    if place.rank == 0 {
        let port = zero.port();
        let any = if zero.is_ipv4() { "0.0.0.0" } else { "::" };
        UdpSocket::bind((any, port)).map_err(|e| {
            let what = format!(
                "node zero cannot listen on port {port} of host {first}, which this job's number leads to: {e}"
            );
            Failure::start(what, "start the step again, or choose others with --ports A-B")
        })?;
    }
    Ok(zero)
}

/// The address of `HOST:PORT`, as other hosts see it: a host's own name may lead to its loopback.
fn resolve(zero: &str, args: &ExecArgs) -> Outcome<SocketAddr> {
    let trouble = |why: &dyn std::fmt::Display| {
        Failure::start(format!("node zero's address {zero} cannot be used: {why}"), "give --zero HOST:PORT")
    };
    let all: Vec<SocketAddr> = zero.to_socket_addrs().map_err(|e| trouble(&e))?.collect();
    let literal = zero.parse::<SocketAddr>().is_ok();
    let usable = |a: &&SocketAddr| literal || !a.ip().is_loopback();
    match all.iter().filter(usable).min_by_key(|a| a.is_ipv6()) {
        Some(found) => Ok(*found),
        None => {
            let port = all.first().map(SocketAddr::port).ok_or_else(|| trouble(&"the name leads nowhere"))?;
            Ok(SocketAddr::new(own_address(args)?, port))
        }
    }
}

/// A port that is free at the moment; the search begins where the job's number leads.
fn free_port(address: IpAddr, (low, high): (u16, u16), place: &Place) -> Outcome<SocketAddr> {
    let count = u64::from(high - low) + 1;
    let start = place.number("port of node zero") % count;
    let candidates = (0..count).map(|step| low + ((start + step) % count) as u16);
    let mut ports = candidates.filter(|port| UdpSocket::bind((address, *port)).is_ok());
    ports.next().map(|port| SocketAddr::new(address, port)).ok_or_else(|| {
        let what = format!("no port from {low} to {high} is free at {address}");
        Failure::start(what, "choose others with --ports A-B")
    })
}
