//! `comem top`: what a running job counts, on a terminal that is drawn anew with each sample, or once as text.
//!
//! [`view`] makes lines of samples, and [`screen`] puts them on the terminal.

mod screen;
pub mod view;

use crate::args::TopArgs;
use crate::failure::{Failure, Outcome, exit};
use crate::jobs::in_words;
use crate::live::client::{Client, HELLO_LIMIT, Heard};
use crate::live::registry;
use crate::live::sample::{JobInfo, Sample, Snapshot};
use crate::live::{FromJob, ToJob, VERSION};
use crate::show;
use crate::sys::poll::PollSet;
use crate::sys::signals::{self, Signals};
use crate::table::{one_line, plain_json};
use screen::{Key, Screen};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// The time between two samples.
const EVERY_MS: u64 = 250;
/// How long the first sample may take.
const SAMPLE_LIMIT: Duration = Duration::from_secs(5);

/// Watches a job.
///
/// # Errors
/// There is no such job, or its launcher does not answer.
pub fn main(args: &TopArgs) -> Outcome<i32> {
    let jobs = registry::running()?;
    let found = match &args.job {
        Some(wanted) => registry::choose(&jobs, wanted)?,
        None => registry::only(&jobs)?,
    };
    let over = || Failure::usage(format!("{} has just ended", in_words(&found.job)), "see `comem jobs`");
    let mut client = Client::of(found)?.ok_or_else(over)?;
    let silent = || {
        let what = format!("{}: its launcher does not answer; it may be stopped", in_words(&found.job));
        Failure::unreachable(what, format!("continue it: kill -CONT {}", found.job.number))
    };
    let (job, _) = client.hello(Instant::now() + HELLO_LIMIT)?.ok_or_else(silent)?;
    if args.once || args.json || !io::stdout().is_terminal() {
        client.say(&ToJob::Watch { every_ms: EVERY_MS, count: Some(1), waits: args.waits, pages: false });
        let sample = first_sample(&mut client)?.ok_or_else(silent)?.ok_or_else(over)?;
        return show(&once(args, job, sample)).map(|()| 0);
    }
    let terminal = Terminal { client, job, last: None, before: None, waits: args.waits, asks: false };
    let said = terminal.watch()?;
    show(&(one_line(&said) + "\n")).map(|()| 0)
}

/// The first sample; within, `None` where the job has ended before; `None` where nothing comes.
fn first_sample(client: &mut Client) -> Outcome<Option<Option<Sample>>> {
    let deadline = Instant::now() + SAMPLE_LIMIT;
    loop {
        match client.next(deadline)? {
            Heard::Message(FromJob::Sample(sample)) => return Ok(Some(Some(*sample))),
            Heard::Message(FromJob::Ended { .. }) | Heard::End => return Ok(Some(None)),
            Heard::Message(_) => {}
            Heard::NothingYet => return Ok(None),
        }
    }
}

/// One sample, as text or as JSON.
fn once(args: &TopArgs, job: JobInfo, sample: Sample) -> String {
    if !args.json {
        return view::lines(&job, &sample, None).join("\n") + "\n";
    }
    let snapshot = Snapshot { version: VERSION, job, sample };
    plain_json(&serde_json::to_string_pretty(&snapshot).expect("a sample has a JSON form")) + "\n"
}

/// A job that is watched on a terminal.
struct Terminal {
    client: Client,
    job: JobInfo,
    last: Option<Sample>,
    before: Option<Sample>,
    /// Whether what threads wait for is shown.
    waits: bool,
    /// Whether the user is asked if the job is to end.
    asks: bool,
}

impl Terminal {
    /// Draws until the user has seen enough, or the job has ended; what is said then.
    fn watch(mut self) -> Outcome<String> {
        let wanted = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGTSTP, libc::SIGWINCH];
        let signals = Signals::block(&wanted).map_err(|e| Failure::system("cannot block signals", e))?;
        let trouble = |e| Failure::system("the terminal", e);
        let mut screen = Screen::open().map_err(trouble)?;
        self.ask();
        let mut polls = PollSet::default();
        loop {
            polls.clear();
            polls.readable(&signals);
            polls.readable(&self.client);
            screen.register(&mut polls);
            polls.wait(None).map_err(|e| Failure::system("waiting", e))?;
            for signal in signals.take() {
                match signal.number {
                    libc::SIGWINCH => {}
                    libc::SIGTSTP => {
                        screen.close();
                        signals::stop_self();
                        screen = Screen::open().map_err(trouble)?;
                    }
                    number => {
                        screen.close();
                        return Err(Failure::new(exit::SIGNAL + number, "the job goes on, unwatched", ""));
                    }
                }
            }
            for key in screen.keys(&polls) {
                if !self.obey(key) {
                    screen.close();
                    return Ok(format!("comem: {} goes on", in_words(&self.job)));
                }
            }
            while let Some(heard) = self.client.next_of_what_is_here()? {
                match heard {
                    Heard::Message(FromJob::Sample(sample)) => self.before = self.last.replace(*sample),
                    Heard::Message(FromJob::Ended { status }) => {
                        screen.close();
                        return Ok(format!("comem: {} has ended, with status {status}", in_words(&self.job)));
                    }
                    Heard::Message(_) => {}
                    Heard::NothingYet => break,
                    Heard::End => {
                        screen.close();
                        return Ok(format!("comem: {} is over, and its launcher with it", in_words(&self.job)));
                    }
                }
            }
            screen.draw(&self.lines()).map_err(trouble)?;
        }
    }

    /// Asks the launcher for samples.
    fn ask(&mut self) {
        self.client.say(&ToJob::Watch { every_ms: EVERY_MS, count: None, waits: self.waits, pages: false });
    }

    /// Does what a key says; `false` for the end.
    fn obey(&mut self, key: Key) -> bool {
        let asks = std::mem::take(&mut self.asks);
        match key {
            Key::Char('y' | 'Y') if asks => self.client.say(&ToJob::Kill),
            _ if asks => {}
            Key::Char('q' | 'Q') | Key::Escape => return false,
            Key::Char('k' | 'K') => self.asks = true,
            Key::Char('w' | 'W') => {
                self.waits = !self.waits;
                self.ask();
            }
            Key::Char(_) => {}
        }
        true
    }

    fn lines(&self) -> Vec<String> {
        let keys = match (self.asks, self.waits) {
            (true, _) => "end the job? y: yes; any other key: no",
            (false, false) => "q: quit   k: end the job   w: show who waits for what",
            (false, true) => "q: quit   k: end the job   w: hide who waits for what",
        };
        let mut lines = vec![keys.to_string(), String::new()];
        match &self.last {
            Some(sample) => lines.extend(view::lines(&self.job, sample, self.before.as_ref())),
            None => lines.push(format!("{}: waiting for its first counters", in_words(&self.job))),
        }
        lines
    }
}
