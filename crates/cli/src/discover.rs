//! `comem run --discover`: no launcher. This process becomes the program, which looks for the other nodes on the network
//! itself (JOIN, WAKEUP; DSM/IP, section 3.2.1.2).

use crate::args::RunArgs;
use crate::control::{Job, var};
use crate::failure::{Failure, Outcome};
use crate::plan::node_variables;
use crate::program::Program;
use std::os::unix::process::CommandExt;

/// Becomes the program; returns only when that fails.
pub fn main(args: &RunArgs) -> Outcome<i32> {
    let Some(nodes) = args.nodes.filter(|_| args.hosts.is_none()) else {
        return Err(Failure::usage("--discover needs to know how many nodes to wait for", "add -n N, and no --hosts"));
    };
    let cwd = std::env::current_dir().map_err(|e| Failure::system("the working directory", e))?;
    let program = Program::find(&args.command, &cwd, false)?;
    let auth = args.node.authenticates(args.key_file.is_some());
    let job = Job { key: String::new(), job: 0, prog_id: args.node.prog_id.unwrap_or(0), auth, hosts: Vec::new() };
    let mut node = args.node.clone();
    node.check(false)?;
    node.settle_backbone(false, nodes, true);
    let mut command = std::process::Command::new(&program.path);
    command.args(&program.args).envs(node_variables(&node, &job, nodes, 1));
    command.env("COMEM_DISCOVER", "on").env(var::PROGRAM, &program.hashed);
    command.env_remove(var::CONTROL_FD).env_remove(var::NODE);
    if let Some(key) = &args.key_file {
        command.env("COMEM_KEY_FILE", key);
    }
    let why = command.exec();
    let what = format!("cannot start {}: {why}", program.path.to_string_lossy());
    Err(Failure::start(what, "check that it is a program for this machine"))
}
