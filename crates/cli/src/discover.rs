//! `comem run --discover`: no launcher. This process becomes the program, which looks for the other nodes on the
//! network itself (JOIN, WAKEUP; DSM/IP, section 3.2.1.2).

use crate::args::RunArgs;
use crate::control::{Job, var};
use crate::daemon::key;
use crate::failure::{Failure, Outcome};
use crate::group::{FOREIGN_VARS, OMP_THREADS};
use crate::hash_seed::{self, HASH_SEED};
use crate::plan::{node_variables, without_launcher};
use crate::preload::{LD_PRELOAD, preload};
use crate::program::{Program, why_not_started};
use crate::stats;
use comem::keys::{self, KEY_FILE_VARIABLE};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// What a launcher does while its nodes run, nobody does here.
fn refuse_a_launchers_options(args: &RunArgs) -> Outcome<()> {
    let given = [
        ("--timeout", args.timeout.is_some()),
        ("--gdb", args.gdb.is_some()),
        ("--gdb-server", args.gdb_server.is_some()),
        ("--stage", args.stage),
        ("--slow", !args.slow.is_empty()),
        ("--nice", args.nice != 0),
    ];
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => {
            let what = format!("{option} does not go with --discover, where no launcher runs");
            Err(Failure::usage(what, "leave it out, or name the hosts with --hosts"))
        }
    }
}

/// The key file that all hosts have: anybody on the network could take part in a job without one.
fn key_file(named: Option<&Path>) -> Outcome<PathBuf> {
    let Some(path) = named.map(Path::to_path_buf).or_else(keys::default_key_file) else {
        return Err(Failure::usage("--discover needs a key file", "give --key-file FILE, or --auth off"));
    };
    key::SharedKey::read(&path).map(|_| path).map_err(|failure| Failure {
        what: format!("--discover needs a key that all hosts have: {}", failure.what),
        advice: format!("{}, and copy it to every host; or trust the network with --auth off", failure.advice),
        ..failure
    })
}

/// Becomes the program; returns only when that fails.
pub fn main(args: &RunArgs) -> Outcome<i32> {
    let Some(nodes) = args.nodes.filter(|_| args.hosts.is_none()) else {
        return Err(Failure::usage("--discover needs to know how many nodes to wait for", "add -n N, and no --hosts"));
    };
    refuse_a_launchers_options(args)?;
    args.node.bind.check_without_launcher()?;
    let cwd = std::env::current_dir().map_err(|e| Failure::system("the working directory", e))?;
    let program = Program::find(&args.command, &cwd, false)?;
    let auth = args.node.authenticates();
    let key_file = match auth {
        true => Some(key_file(args.key_file.as_deref())?),
        false => None,
    };
    let prog_id = args.node.prog_id.unwrap_or(0);
    let job = Job { key: String::new(), job: 0, prog_id, auth, hosts: Vec::new(), program: None, history: None };
    let mut node = args.node.clone();
    node.check(false)?;
    node.check_nodes(nodes)?;
    node.settle_backbone(false, nodes, true);
    let mut variables = node_variables(&node, &job, nodes, 1);
    variables.push(("COMEM_DISCOVER".into(), "on".into()));
    variables.push((HASH_SEED.into(), hash_seed::agreed(None)));
    if args.dry_run {
        return crate::show(&without_launcher(&program, &variables)).map(|()| 0);
    }
    node.stats.as_deref().map_or(Ok(()), |path| stats::check(path, &program))?;
    let preloaded = preload(&program.path, &variables);
    let mut command = std::process::Command::new(&program.path);
    FOREIGN_VARS.iter().chain(&[var::NODE]).for_each(|name| {
        command.env_remove(name);
    });
    if std::env::var_os(OMP_THREADS).is_none() {
        command.env(OMP_THREADS, args.node.threads.to_string());
    }
    command.args(&program.args).envs(variables).envs(preloaded.map(|value| (LD_PRELOAD, value)));
    command.env(var::PROGRAM, &program.hashed);
    command.env_remove(KEY_FILE_VARIABLE).envs(key_file.map(|path| (KEY_FILE_VARIABLE, path)));
    crate::sys::signals::give_file_limit_back();
    let why = command.exec();
    let (why, advice) = why_not_started(&why, "check that it is a program for this machine");
    let what = format!("cannot start {}: {why}", program.path.to_string_lossy());
    Err(Failure::start(what, advice))
}
