//! `comem run --gdb N`: one node of a job under a debugger.
//!
//! The node's process is then gdb (in this terminal) or gdbserver (waiting on a port), which starts the program with
//! the node's variables and its control channel. Every node's `--node-timeout` is off: a node that stands at a
//! breakpoint is silent.

use crate::args::RunArgs;
use crate::failure::{Failure, Outcome};
use crate::plan::{HostPlan, Plan, Reach};
use crate::program::locate;
use crate::rundir;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::TcpListener;
use std::path::PathBuf;

/// Settings and helpers for gdb.
const SCRIPT: &str = include_str!("comem.gdb");

/// What starts a node's program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Debugger {
    /// The words before the program and its arguments.
    pub words: Vec<OsString>,
    /// Whether it talks to the user in the launcher's terminal.
    pub terminal: bool,
}

/// Where the script for gdb goes on this host.
fn script_path() -> Outcome<PathBuf> {
    Ok(rundir::directory()?.join(format!("comem-{}.gdb", env!("CARGO_PKG_VERSION"))))
}

/// Writes the script for whoever attaches to a node of this host; where it goes.
///
/// # Errors
/// It cannot be written.
pub fn leave_script() -> Outcome<PathBuf> {
    let path = script_path()?;
    if std::fs::read(&path).is_ok_and(|there| there == SCRIPT.as_bytes()) {
        return Ok(path);
    }
    let beside = path.with_extension(format!("{}.part", std::process::id()));
    let written = std::fs::write(&beside, SCRIPT).and_then(|()| std::fs::rename(&beside, &path));
    written.map_err(|e| Failure::system(format!("cannot write {}", path.display()), e))?;
    Ok(path)
}

/// The debugger for node `args.gdb`, if any, which is reached in this way.
///
/// # Errors
/// There is no such node, no terminal for gdb, or no gdb.
pub fn debugger(args: &RunArgs, nodes: &[Reach]) -> Outcome<Option<(u16, Debugger)>> {
    let Some(node) = args.gdb else { return Ok(None) };
    let Some(reach) = nodes.get(usize::from(node)) else {
        let what = format!("--gdb {node}: there is no node {node} among {}", nodes.len());
        return Err(Failure::usage(what, "nodes are numbered from 0"));
    };
    if *reach == Reach::Daemon {
        return Err(Failure::usage("daemons start no debugger", "use --launch ssh, or attach to the node on its host"));
    }
    let here = *reach == Reach::Here;
    let debugger = match args.gdb_server {
        Some(port) => server(port),
        None => in_terminal(node, here)?,
    };
    if here {
        let cwd = std::env::current_dir().map_err(|e| Failure::system("the working directory", e))?;
        let name = &debugger.words[0];
        locate(name, &cwd).map_err(|failure| {
            let advice = format!("install {}, or leave --gdb out", name.to_string_lossy());
            Failure { advice, ..failure }
        })?;
    }
    Ok(Some((node, debugger)))
}

/// Only this host can connect: gdbserver asks nobody for a password.
fn server(port: u16) -> Debugger {
    let words = ["gdbserver".to_string(), "--once".to_string(), "--no-startup-with-shell".to_string()];
    let words = words.into_iter().chain([format!("localhost:{port}")]);
    Debugger { words: words.map(OsString::from).collect(), terminal: false }
}

fn in_terminal(node: u16, here: bool) -> Outcome<Debugger> {
    if !here {
        let what = format!("--gdb {node}: node {node} is on another host, whose terminal this is not");
        return Err(Failure::usage(what, "add --gdb-server PORT"));
    }
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !terminal || !crate::sys::process::owns_terminal(0) {
        let what = format!("--gdb {node}: gdb needs a terminal, and this command has none");
        return Err(Failure::usage(what, "add --gdb-server PORT, and connect from another terminal"));
    }
    let words = ["gdb", "-q", "-x"].map(OsString::from).into_iter();
    let words = words.chain([script_path()?.into_os_string(), "--args".into()]);
    Ok(Debugger { words: words.collect(), terminal: true })
}

/// gdbserver would end with a status of its own.
fn check_port(port: u16) -> Outcome<()> {
    let taken = TcpListener::bind(("localhost", port)).err();
    let failure =
        |why| Failure::start(format!("--gdb-server {port}: the port cannot be had: {why}"), "choose another one");
    taken.map_or(Ok(()), |why| Err(failure(why)))
}

/// Writes the script and says how to go on; before the nodes start.
///
/// # Errors
/// The script cannot be written, or gdbserver's port is in use.
pub fn prepare(args: &RunArgs, plan: &Plan) -> Outcome<Option<String>> {
    let Some(node) = args.gdb else { return Ok(None) };
    let on_this_host = |host: &HostPlan| host.reach == Reach::Here && host.spec.nodes.iter().any(|n| n.node == node);
    if let Some(port) = args.gdb_server.filter(|_| plan.hosts.iter().any(on_this_host)) {
        check_port(port)?;
    }
    let path = leave_script()?;
    let program = plan.program.path.to_string_lossy();
    Ok(Some(match args.gdb_server {
        Some(port) => format!(
            "node {node} waits for a debugger on its host: gdb -x {} -ex 'target remote localhost:{port}' {program}",
            path.display()
        ),
        None => format!("node {node} runs under gdb: `run` starts it, and the other nodes wait for it"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_leaves_faults_to_the_runtime() {
        assert!(SCRIPT.lines().any(|line| line == "handle SIGBUS SIGSEGV nostop noprint pass"));
    }

    #[test]
    fn a_server_listens_for_this_host_alone() {
        let words = server(1234).words;
        assert_eq!(words.last().unwrap(), "localhost:1234");
    }
}
