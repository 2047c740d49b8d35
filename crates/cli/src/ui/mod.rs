//! `comem ui`: running jobs, new ones, past runs and hosts, as a page in a browser.
//!
//! The server is a crate of its own (`comem-ui`). Here is what it asks:
//!
//! | module | |
//! |---|---|
//! | [`desk`] | answers: jobs, hosts, what a job counts |
//! | [`launch`] | a form's words as the arguments of `comem run`, which is this very command |
//! | [`launched`] | the jobs that were started so: what they print, how they end |
//! | [`runs`] | the statistics of past runs |

mod desk;
mod launch;
mod launched;
mod runs;

use crate::args::UiArgs;
use crate::daemon::allow::Limits;
use crate::failure::{Failure, Outcome, exit};
use crate::show;
use crate::sys::poll::PollSet;
use crate::sys::signals::Signals;
use crate::sys::{self, host};
use crate::table::counted;
use comem_ui::{Settings, Tls, Trouble};
use desk::UiDesk;
use std::net::SocketAddr;
use std::sync::Arc;

/// Serves until a signal ends it; its exit code.
///
/// # Errors
/// Others could reach the server and it would not be safe, or it cannot listen.
pub fn main(args: &UiArgs) -> Outcome<i32> {
    let limits = limits(args)?;
    let settings = settings(args)?;
    // Before any thread starts, so that the signals come here.
    let wanted = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    let signals = Signals::block(&wanted).map_err(|e| Failure::system("cannot block signals", e))?;
    let desk = Arc::new(UiDesk::new(args, limits)?);
    let address = comem_ui::start(settings, desk.clone()).map_err(|trouble| failure(&trouble))?;
    show(&format!("comem: open {}\ncomem: Ctrl-C ends this server; jobs go on\n", address.url))?;
    let mut polls = PollSet::default();
    polls.readable(&signals);
    let caught = loop {
        polls.wait(None).map_err(|e| Failure::system("waiting", e))?;
        if let Some(caught) = signals.take().first() {
            break caught.number;
        }
    };
    let running = desk.running();
    if running > 0 {
        let jobs = counted(running as u64, "job");
        crate::say(format_args!("comem: {jobs} that the page has started will go on; see `comem jobs`"));
    }
    Ok(if caught == libc::SIGTERM { exit::SUCCESS } else { exit::SIGNAL + caught })
}

/// Which programs the page may start; `None` where it may start any.
fn limits(args: &UiArgs) -> Outcome<Option<Limits>> {
    if args.allow.is_empty() {
        return Ok(None);
    }
    Limits::new(&args.allow, &args.allow_env).map(Some)
}

/// How the server is to be. Where other hosts reach it, all doors have to be there.
fn settings(args: &UiArgs) -> Outcome<Settings> {
    let tls = args.tls_cert.clone().zip(args.tls_key.clone()).map(|(certificate, key)| Tls { certificate, key });
    if !args.listen.is_loopback() && (tls.is_none() || args.allow.is_empty()) {
        let what = format!("other hosts reach {}: whoever listens along could start programs here", args.listen);
        let advice = "give --tls-cert, --tls-key and --allow DIR, or listen on 127.0.0.1 and come through ssh -L";
        return Err(Failure::usage(what, advice));
    }
    let mut names = args.host_name.clone();
    if !args.listen.is_loopback() {
        names.push(host::name());
    }
    let random = sys::random::<16>;
    Ok(Settings { listen: SocketAddr::new(args.listen, args.port), names, tls, random })
}

fn failure(trouble: &Trouble) -> Failure {
    let what = trouble.to_string();
    match trouble {
        Trouble::Listen(..) => Failure::start(what, "choose another --port, or leave it out for a free one"),
        Trouble::Tls(..) => Failure::usage(what, "name files in PEM with --tls-cert and --tls-key"),
        Trouble::System(_) => Failure::new(exit::INTERNAL, what, ""),
    }
}
