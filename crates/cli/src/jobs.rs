//! `comem jobs` and `comem kill`: which jobs of this user run on this host, and the end of one.

use crate::args::{JobsArgs, KillArgs};
use crate::failure::{Failure, Outcome, exit};
use crate::live::client::{Client, HELLO_LIMIT, Heard};
use crate::live::registry::{self, EndedJob, Found};
use crate::live::sample::{JobInfo, State};
use crate::live::{FromJob, ToJob};
use crate::show;
use crate::sys::process;
use crate::table::{self, Table, counted, plain_json};
use serde_json::json;
use std::time::{Duration, Instant};

/// A launcher that was told to end its job and has not answered for so long is stopped, and is continued.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// How long a job may take to end.
const END_LIMIT: Duration = Duration::from_secs(20);

/// `comem jobs`.
///
/// # Errors
/// The directory of jobs cannot be used, or a daemon does not answer.
pub fn list(args: &JobsArgs) -> Outcome<i32> {
    let jobs: Vec<(JobInfo, Option<State>)> =
        registry::running()?.into_iter().map(|found| (found.job.clone(), state_of(&found))).collect();
    if args.json {
        let line = |(job, state): &(JobInfo, Option<State>)| {
            let mut line = json!(job);
            line["state"] = json!(state.map_or("stopped", State::name));
            line
        };
        let mut lines: Vec<_> = jobs.iter().map(line).collect();
        if asks_daemons(args) {
            lines.extend(crate::started_by_daemons(&args.ask)?.0.into_iter().map(|(host, job)| {
                let mut line = json!(job);
                line["daemon"] = json!(host);
                line
            }));
        }
        let text = serde_json::to_string_pretty(&lines).expect("jobs have a JSON form");
        return show(&(plain_json(&text) + "\n")).map(|()| 0);
    }
    show(&as_text(&jobs))?;
    if asks_daemons(args) { crate::list(&args.ask) } else { Ok(0) }
}

/// Whether daemons are asked, too: it takes a moment, and a key.
fn asks_daemons(args: &JobsArgs) -> bool {
    args.daemons || args.ask.host.is_some()
}

fn as_text(jobs: &[(JobInfo, Option<State>)]) -> String {
    if jobs.is_empty() {
        return "comem: no job of this user runs on this host\n".to_string();
    }
    let mut table = Table::new(&["JOB", "<NAME", "<STATE", "NODES", "HOSTS", "TIME", "<COMMAND"]);
    for (job, state) in jobs {
        table.row(vec![
            job.number.to_string(),
            job.name.clone(),
            state.map_or("stopped", State::name).to_string(),
            job.nodes().to_string(),
            job.host_count().to_string(),
            time_since(job.started_unix_s),
            job.command.join(" "),
        ]);
    }
    table.text(0)
}

/// How far a job is; `None` where its launcher says nothing, since it is stopped.
pub fn state_of(found: &Found) -> Option<State> {
    let mut client = Client::of(found).ok()??;
    client.hello(Instant::now() + HELLO_LIMIT).ok()?.map(|(_, state)| state)
}

/// The time since a moment, as people read it.
fn time_since(unix_s: u64) -> String {
    let seconds = registry::unix_s().saturating_sub(unix_s);
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// `comem kill`.
///
/// # Errors
/// There is no such job, or it does not end. The others are ended all the same.
pub fn kill(args: &KillArgs) -> Outcome<i32> {
    let running = registry::running()?;
    let mut chosen: Vec<Result<&Found, EndedJob>> = Vec::new();
    // All words are understood before any job is ended.
    for wanted in &args.jobs {
        let one = match registry::choose(&running, wanted) {
            Ok(found) => Ok(found),
            Err(failure) => Err(ended_before(wanted)?.ok_or(failure)?),
        };
        if !chosen.contains(&one) {
            chosen.push(one);
        }
    }
    let mut first_failure = None;
    for one in chosen {
        let said = match one {
            Ok(found) => end(found),
            Err(ended) => Ok(had_ended(&ended)),
        };
        match said {
            Ok(said) => show(&(table::one_line(&format!("comem: {said}")) + "\n"))?,
            Err(failure) if first_failure.is_none() => first_failure = Some(failure),
            Err(failure) => crate::say(format_args!("{failure}")),
        }
    }
    first_failure.map_or(Ok(0), Err)
}

/// That a job had ended before somebody wanted to end it.
pub fn had_ended(ended: &EndedJob) -> String {
    let ago = registry::unix_s().saturating_sub(ended.ended_unix_s);
    format!("{} had ended before, {ago} s ago, with status {}", in_words(&ended.job), ended.status)
}

/// A job that has ended lately, by its number or its name.
fn ended_before(wanted: &str) -> Outcome<Option<EndedJob>> {
    let is_meant = |ended: &EndedJob| ended.job.number.to_string() == wanted || ended.job.name == wanted;
    Ok(registry::ended()?.into_iter().find(is_meant))
}

/// A job by its number and its name, with its size.
pub fn in_words(job: &JobInfo) -> String {
    let (nodes, hosts) = (counted(job.nodes() as u64, "node"), counted(job.host_count() as u64, "host"));
    format!("job {} ({}, {nodes} on {hosts})", job.number, job.name)
}

/// Ends a job and waits until it is over; what became of it, in words.
///
/// # Errors
/// Its launcher refuses, or it does not end.
pub fn end(found: &Found) -> Outcome<String> {
    let name = in_words(&found.job);
    let Some(mut client) = Client::of(found)? else { return Ok(format!("{name} has just ended by itself")) };
    client.say(&ToJob::Kill);
    let begun = Instant::now();
    let (mut already, mut answered, mut continued) = (false, false, false);
    loop {
        let waits_for_answer = !answered && !continued;
        let limit = if waits_for_answer { ANSWER_LIMIT } else { END_LIMIT };
        match client.next(begun + limit)? {
            Heard::Message(FromJob::Ending { already: before }) => (already, answered) = (before, true),
            Heard::Message(FromJob::Ended { status }) if answered => {
                let how = if already { "was being ended already, and has ended" } else { "has been ended" };
                let after = time_since(found.job.started_unix_s);
                return Ok(format!("{name} {how} after {after}, with status {status}"));
            }
            Heard::Message(FromJob::Ended { status }) => {
                return Ok(format!("{name} has just ended by itself, with status {status}"));
            }
            Heard::Message(FromJob::Refused { what }) => {
                return Err(Failure::refused(format!("{name}: its launcher refuses: {what}"), "try again"));
            }
            Heard::Message(_) => {}
            // Its launcher was killed, which ends its nodes too.
            Heard::End => return Ok(format!("{name} is over, and its launcher with it")),
            Heard::NothingYet if waits_for_answer => {
                continued = true;
                process::kill(client.peer.pid, libc::SIGCONT);
            }
            Heard::NothingYet => {
                let advice = format!("kill -9 {}", client.peer.pid);
                return Err(Failure::new(exit::INTERNAL, format!("{name} does not end"), advice));
            }
        }
    }
}
