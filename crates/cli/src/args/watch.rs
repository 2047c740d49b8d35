//! Command lines of what looks at running jobs and at hosts: `jobs`, `kill`, `top`, `hosts`, `ui`.

use super::{AskArgs, DaemonWay};
#[cfg(feature = "ui")]
use clap::ArgAction;
use clap::Args;
#[cfg(feature = "ui")]
use std::net::{IpAddr, Ipv4Addr};
#[cfg(feature = "ui")]
use std::path::PathBuf;

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

/// What `comem ui --help` says below the flags.
#[cfg(feature = "ui")]
const UI_DOORS: &str = "\
The command prints an address with a token behind #. Whoever opens it may start programs as this user, so
give it to nobody. The server ends with Ctrl-C. Jobs that it has started go on; comem jobs shows them.

Statistics of jobs that the page starts are kept, by default in ~/.local/state/comem/runs.";

/// `comem ui`.
#[cfg(feature = "ui")]
#[derive(Args, Debug)]
#[command(after_help = UI_DOORS)]
pub struct UiArgs {
    /// The TCP port to listen on [default: a free one]
    #[arg(long, value_name = "P", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// The address to listen on. One that other hosts reach needs --tls-cert, --tls-key and --allow
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub listen: IpAddr,
    /// Encrypt connections: the certificate, with those that vouch for it, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// A name of this host by which browsers ask for it, as the certificate says (may be repeated)
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    pub host_name: Vec<String>,
    /// Start programs under this directory alone (may be repeated)
    #[arg(long, env = "COMEM_ALLOW", value_name = "DIR", value_delimiter = ':', action = ArgAction::Append)]
    pub allow: Vec<PathBuf>,
    /// With --allow: let the page set this variable (may be repeated)
    #[arg(long, env = "COMEM_ALLOW_ENV", value_name = "NAME", value_delimiter = ',', action = ArgAction::Append)]
    pub allow_env: Vec<String>,
    /// Where the statistics of runs are, and where those of new jobs go [default: ~/.local/state/comem/runs]
    #[arg(long, value_name = "DIR")]
    pub runs: Option<PathBuf>,
    /// The key shared with daemons [default: ~/.config/comem/key]
    #[arg(long, env = "COMEM_KEY_FILE", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// The daemons' UDP port
    #[arg(long, env = "COMEM_DAEMON_PORT", value_name = "P", default_value_t = crate::daemon::wire::PORT)]
    pub daemon_port: u16,
    /// The network on which daemons are looked for
    #[arg(long, env = "COMEM_IFACE", value_name = "NAME|CIDR")]
    pub iface: Option<String>,
}
