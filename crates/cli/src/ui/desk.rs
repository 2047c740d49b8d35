//! Answers for the page: jobs, hosts, what a job counts.

use super::launch::{Launch, Wanted};
use super::launched::{AllLaunched, Launched};
use super::runs::Runs;
use crate::args::{DaemonWay, UiArgs};
use crate::choice::EngineChoice;
use crate::daemon::allow::Limits;
use crate::failure::{Failure, Outcome, exit};
use crate::jobs;
use crate::live::client::{Client, HELLO_LIMIT, Heard};
use crate::live::registry::{self, Found};
use crate::live::sample::{Sample, SharedPage, State};
use crate::live::{FromJob, ToJob};
use crate::sys::host::{self, HostInfo};
use crate::{hosts, willing};
use comem_ui::streams::{Feed, Output};
use comem_ui::{Answer, Desk, Refusal};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time between two samples.
const EVERY_MS: u64 = 250;
/// How long one sample may take that the page asks for.
const SAMPLE_LIMIT: Duration = Duration::from_secs(3);
/// How long a launcher that was started here may take until others find its job.
const START_LIMIT: Duration = Duration::from_secs(5);
/// How often that is looked after.
const START_LOOK: Duration = Duration::from_millis(20);
/// How often a watcher looks whether the page is still there, where its job says nothing.
const READER_LOOK: Duration = Duration::from_millis(500);
/// Most pages of a region that are told.
const PAGES_MAX: usize = 256;

/// Whoever answers the page.
pub struct UiDesk {
    limits: Option<Limits>,
    way: DaemonWay,
    launched: AllLaunched,
    runs: Runs,
}

impl UiDesk {
    /// As the command line says; `limits` names the programs that may be started.
    ///
    /// # Errors
    /// There is no directory for runs.
    pub fn new(args: &UiArgs, limits: Option<Limits>) -> Outcome<UiDesk> {
        let (key_file, iface) = (args.key_file.clone(), args.iface.clone());
        let way = DaemonWay { key_file, port: args.daemon_port, iface };
        let runs = Runs::new(args.runs.as_deref())?;
        Ok(UiDesk { limits, way, launched: AllLaunched::default(), runs })
    }

    /// How many jobs that were started here go on. Of one that is just being ended the registry knows already.
    pub fn running(&self) -> usize {
        let found = registry::running().unwrap_or_default();
        let goes_on = |number: u32| found.iter().any(|found| found.job.number == number);
        self.launched.all().iter().filter(|(number, _)| goes_on(*number)).count()
    }

    /// A running job. One that was just started here is waited for.
    fn find(&self, number: u32) -> Result<Found, Refusal> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let found = registry::running().map_err(refusal)?.into_iter().find(|found| found.job.number == number);
            if let Some(found) = found {
                return Ok(found);
            }
            let starts = self.launched.get(number).is_some_and(|job| job.output.status().is_none());
            if !starts || Instant::now() >= deadline {
                return Err(no_job(number));
            }
            std::thread::sleep(START_LOOK);
        }
    }

    /// One sample of a job, with more than the usual.
    fn sample(&self, number: u32, waits: bool, pages: bool) -> Result<Sample, Refusal> {
        let found = self.find(number)?;
        let mut client = Client::of(&found).map_err(refusal)?.ok_or_else(|| no_job(number))?;
        client.say(&ToJob::Watch { every_ms: EVERY_MS, count: Some(1), waits, pages });
        let deadline = Instant::now() + SAMPLE_LIMIT;
        loop {
            match client.next(deadline).map_err(refusal)? {
                Heard::Message(FromJob::Sample(sample)) => return Ok(*sample),
                Heard::Message(FromJob::Ended { .. }) | Heard::End => return Err(no_job(number)),
                Heard::Message(_) => {}
                Heard::NothingYet => {
                    return Err(Refusal::new(503, "the job's launcher does not answer; it may be stopped", ""));
                }
            }
        }
    }

    /// Jobs that were started here and that the registry does not know: they start, or have ended.
    fn only_here(&self, known: &[Value]) -> Vec<Value> {
        let is_known = |number: u32| known.iter().any(|job| job["number"] == json!(number));
        let others = self.launched.all().into_iter().filter(|(number, _)| !is_known(*number));
        others.map(|(number, job)| of_launched(number, &job)).collect()
    }
}

/// A job that was started here and of which nothing else is known.
fn of_launched(number: u32, job: &Launched) -> Value {
    let status = job.output.status();
    json!({
        "number": number,
        "name": job.name,
        "command": job.command,
        "started_unix_s": job.started_unix_s,
        "state": if status.is_some() { "ended" } else { "starting" },
        "status": status,
        "here": true,
        "run": job.run,
    })
}

fn no_job(number: u32) -> Refusal {
    Refusal::new(404, format!("no job {number} of this user runs on this host"), "it may have ended")
}

/// A failure of the command, as HTTP says it.
fn refusal(failure: Failure) -> Refusal {
    let status = match failure.code {
        exit::USAGE | exit::START => 400,
        exit::REFUSED => 403,
        exit::UNREACHABLE => 502,
        _ => 500,
    };
    Refusal::new(status, failure.what, failure.advice)
}

impl Desk for UiDesk {
    fn about(&self) -> Answer {
        let engines: Vec<&str> = EngineChoice::listed().iter().map(|choice| choice.name).collect();
        let allowed = self.limits.as_ref().map(|limits| &limits.directories);
        let directory = std::env::current_dir().unwrap_or_default();
        Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "host": host::name(),
            "cores": HostInfo::here().cores,
            "directory": directory.to_string_lossy(),
            "engines": engines,
            "backbones": ["udp", "shm"],
            "allowed": allowed,
        }))
    }

    fn hosts(&self, names: &[String]) -> Answer {
        if !names.is_empty() {
            hosts::parse(&names.join(",")).map_err(refusal)?;
        }
        let here = json!({
            "host": HostInfo::here(),
            "load": host::load(),
            "memory_free_mib": comem::capacity::memory_free_bytes() >> 20,
        });
        Ok(match willing::ask(names, &self.way) {
            Ok(asked) => json!({ "here": here, "daemons": asked.iter().map(willing::value).collect::<Vec<_>>() }),
            Err(failure) => {
                let trouble = json!({ "what": failure.what, "advice": failure.advice });
                json!({ "here": here, "daemons": [], "trouble": trouble })
            }
        })
    }

    fn jobs(&self) -> Answer {
        let mut jobs: Vec<Value> = Vec::new();
        for found in registry::running().map_err(refusal)? {
            let mut job = json!(found.job);
            job["state"] = json!(jobs::state_of(&found).map_or("stopped", State::name));
            jobs.push(job);
        }
        for ended in registry::ended().map_err(refusal)? {
            if jobs.iter().any(|job| job["number"] == json!(ended.job.number)) {
                continue;
            }
            let mut job = json!(ended.job);
            job["state"] = json!("ended");
            job["status"] = json!(ended.status);
            job["ended_unix_s"] = json!(ended.ended_unix_s);
            jobs.push(job);
        }
        for job in &mut jobs {
            let launched = job["number"].as_u64().and_then(|number| self.launched.get(number as u32));
            let is_the_same = |one: &Launched| job["started_unix_s"].as_u64() >= Some(one.started_unix_s);
            let launched = launched.filter(is_the_same);
            job["here"] = json!(launched.is_some());
            job["run"] = json!(launched.map(|one| one.run));
        }
        jobs.extend(self.only_here(&jobs));
        Ok(json!(jobs))
    }

    fn job(&self, number: u32) -> Answer {
        let Value::Array(jobs) = self.jobs()? else { return Err(no_job(number)) };
        jobs.into_iter().find(|job| job["number"] == json!(number)).ok_or_else(|| no_job(number))
    }

    fn launch(&self, wanted: Value) -> Answer {
        let wanted: Wanted =
            serde_json::from_value(wanted).map_err(|why| Refusal::new(400, format!("the form: {why}"), ""))?;
        let mut launch = Launch::new(&wanted, self.limits.as_ref()).map_err(refusal)?;
        if wanted.launch == "daemon" {
            launch.ask_daemons(&self.way).map_err(refusal)?;
        }
        launch.rehearse().map_err(refusal)?;
        let name = if wanted.name.is_empty() { launch.usual_name() } else { wanted.name.clone() };
        let (run, stats) = self.runs.new_file(&name).map_err(refusal)?;
        let mut launcher = launch.launcher(&stats).map_err(refusal)?;
        let job = Launched {
            name,
            command: launch.words.clone(),
            started_unix_s: registry::unix_s(),
            run,
            output: Arc::new(Output::default()),
        };
        let started = self.launched.start(&mut launcher, job.clone());
        let number = started.map_err(|why| refusal(Failure::no_process("start comem run", &why)))?;
        Ok(of_launched(number, &job))
    }

    fn kill(&self, number: u32) -> Answer {
        match self.find(number) {
            Ok(found) => jobs::end(&found).map(|said| json!({ "said": said })).map_err(refusal),
            Err(none) => {
                let ended = registry::ended().map_err(refusal)?.into_iter().find(|ended| ended.job.number == number);
                let said = ended.map(|ended| jobs::had_ended(&ended));
                // One that was started here may have ended before anybody else could know it.
                let status = self.launched.get(number).and_then(|job| job.output.status());
                let never_known =
                    || status.map(|status| format!("job {number} had ended before, with status {status}"));
                said.or_else(never_known).map(|said| json!({ "said": said })).ok_or(none)
            }
        }
    }

    fn waits(&self, number: u32) -> Answer {
        let sample = self.sample(number, true, false)?;
        let one = |node: &crate::live::sample::NodeSample| {
            let waits = node.counters.as_ref().map(|counters| &counters.waits);
            json!({ "node": node.node, "host": node.host, "state": node.state, "waits": waits })
        };
        Ok(json!({ "elapsed_s": sample.elapsed_s, "nodes": sample.nodes.iter().map(one).collect::<Vec<_>>() }))
    }

    fn pages(&self, number: u32, region: &str) -> Answer {
        let sample = self.sample(number, false, true)?;
        pages_of(&sample, region).ok_or_else(|| {
            let advice = "nodes tell of the regions that cost most";
            Refusal::new(404, format!("no node tells of a region at {region}"), advice)
        })
    }

    fn runs(&self) -> Answer {
        Ok(self.runs.list())
    }

    fn run(&self, name: &str) -> Answer {
        self.runs.one(name).map_err(|failure| Refusal { status: 404, ..refusal(failure) })
    }

    fn watch(&self, number: u32, feed: &Feed) {
        if let Err(trouble) = self.follow(number, feed) {
            feed.tell("trouble", &json!({ "what": trouble.what, "advice": trouble.advice }));
        }
    }

    fn output(&self, number: u32) -> Result<Arc<Output>, Refusal> {
        let job = self.launched.get(number).ok_or_else(|| {
            Refusal::new(404, "the output of this job goes to the terminal that it was started from", "")
        })?;
        Ok(job.output)
    }
}

impl UiDesk {
    /// Tells a page what a job counts, until one of the two is gone. Only while this runs are nodes asked.
    fn follow(&self, number: u32, feed: &Feed) -> Result<(), Refusal> {
        let found = self.find(number)?;
        let Some(mut client) = Client::of(&found).map_err(refusal)? else { return Err(no_job(number)) };
        client.say(&ToJob::Watch { every_ms: EVERY_MS, count: None, waits: false, pages: false });
        let begun = Instant::now();
        let mut heard_any = false;
        while !feed.is_gone() {
            match client.next(Instant::now() + READER_LOOK).map_err(refusal)? {
                Heard::Message(FromJob::Hello { job, state, .. }) => {
                    feed.tell("job", &json!({ "job": job, "state": state }));
                }
                Heard::Message(FromJob::Sample(sample)) => feed.sample(&told(&sample)),
                Heard::Message(FromJob::Ended { status }) => {
                    feed.tell("ended", &json!({ "status": status }));
                    return Ok(());
                }
                Heard::Message(FromJob::Refused { what }) => return Err(Refusal::new(503, what, "try again")),
                Heard::Message(_) => {}
                Heard::End => {
                    feed.tell("ended", &json!({ "status": null }));
                    return Ok(());
                }
                Heard::NothingYet if !heard_any && begun.elapsed() >= HELLO_LIMIT => {
                    feed.tell("silent", &json!({ "pid": number }));
                }
                Heard::NothingYet => continue,
            }
            heard_any = true;
        }
        Ok(())
    }
}

/// A sample, with its regions added up.
fn told(sample: &Sample) -> Value {
    let mut value = json!(sample);
    value["regions"] = json!(sample.regions());
    value
}

/// What nodes tell of one region's pages, added up; `None` where none tells of it.
fn pages_of(sample: &Sample, address: &str) -> Option<Value> {
    let told = sample.nodes.iter().filter_map(|node| node.counters.as_ref());
    let regions: Vec<_> = told.flat_map(|node| &node.regions).filter(|region| region.address == address).collect();
    let first = regions.first()?;
    let shared = united(regions.iter().flat_map(|region| &region.false_sharing));
    let keeps_account = regions.iter().any(|region| region.copysets.is_some());
    let copysets = united(regions.iter().flat_map(|region| region.copysets.iter().flatten()));
    Some(json!({
        "label": first.label,
        "address": first.address,
        "bytes": first.bytes,
        "engine": first.engine,
        "false_sharing": shared,
        "copysets": keeps_account.then_some(copysets),
    }))
}

/// What several nodes say of pages, each page once, in order.
fn united<'a>(told: impl Iterator<Item = &'a SharedPage>) -> Vec<SharedPage> {
    let mut all = std::collections::BTreeMap::<u64, SharedPage>::new();
    for page in told {
        let sum = all.entry(page.offset).or_insert_with(|| SharedPage { offset: page.offset, ..SharedPage::default() });
        sum.times = sum.times.saturating_add(page.times);
        sum.nodes.extend(&page.nodes);
        sum.nodes.sort_unstable();
        sum.nodes.dedup();
        if sum.variables.is_empty() {
            sum.variables.clone_from(&page.variables);
        }
    }
    all.into_values().take(PAGES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::sample::{NodeCounters, NodeSample, Region};

    fn page(offset: u64, nodes: &[u16], times: u64) -> SharedPage {
        SharedPage { offset, nodes: nodes.to_vec(), times, variables: Vec::new() }
    }

    #[test]
    fn what_nodes_say_of_a_page_is_added_up() {
        let node = |false_sharing, copysets| {
            let region = Region { address: "0x10".into(), false_sharing, copysets, ..Region::default() };
            let counters = Some(NodeCounters { regions: vec![region], ..NodeCounters::default() });
            NodeSample { counters, ..NodeSample::default() }
        };
        let nodes = vec![
            node(vec![page(4096, &[1], 2), page(0, &[0, 1], 1)], None),
            node(vec![page(4096, &[0], 3)], Some(vec![page(0, &[0, 2], 0)])),
            NodeSample::default(),
        ];
        let sample = Sample { nodes, ..Sample::default() };
        let told = pages_of(&sample, "0x10").unwrap();
        assert_eq!(told["false_sharing"], json!([page(0, &[0, 1], 1), page(4096, &[0, 1], 5)]));
        assert_eq!(told["copysets"], json!([page(0, &[0, 2], 0)]));
        assert!(pages_of(&sample, "0x20").is_none());
    }
}
