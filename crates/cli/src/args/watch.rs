//! Command lines of what looks at running jobs and at hosts: `jobs`, `kill`, `top`, `hosts`.

use super::{AskArgs, DaemonWay};
use clap::Args;

/// `comem jobs`.
#[derive(Args, Debug)]
pub struct JobsArgs {
    /// Show what daemons have started, too: all that answer a broadcast, or that of --host
    #[arg(long)]
    pub daemons: bool,
    /// Whom to ask.
    #[command(flatten)]
    pub ask: AskArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `comem top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// The job, by its number, its name, or what it alone begins with [default: the only one]
    #[arg(value_name = "JOB")]
    pub job: Option<String>,
    /// Print what was counted since the job began, once; so it is where standard output is no terminal
    #[arg(long)]
    pub once: bool,
    /// Print the same as JSON
    #[arg(long)]
    pub json: bool,
    /// Show what threads wait for, and which locks they hold
    #[arg(long)]
    pub waits: bool,
}

/// `comem kill`.
#[derive(Args, Debug)]
pub struct KillArgs {
    /// The jobs, each by its number, its name, or what it alone begins with, as `comem jobs` shows them
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
}

/// `comem hosts`.
#[derive(Args, Debug)]
pub struct HostsArgs {
    /// The hosts to ask [default: all whose daemons answer a broadcast]
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
    #[command(flatten)]
    pub way: DaemonWay,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
