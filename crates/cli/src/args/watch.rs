//! Command lines of what looks at running jobs and at hosts: `jobs`, `kill`.

use clap::Args;

/// `comem jobs`.
#[derive(Args, Debug)]
pub struct JobsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `comem kill`.
#[derive(Args, Debug)]
pub struct KillArgs {
    /// The jobs, each by its number, its name, or what it alone begins with, as `comem jobs` shows them
    #[arg(value_name = "JOB", required = true)]
    pub jobs: Vec<String>,
}
