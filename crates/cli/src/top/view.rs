//! Lines of text from samples. Of two samples the difference is shown, as shares and rates; of one what has been
//! counted since the job began.

use crate::live::sample::{JobInfo, NodeCounters, NodeSample, Region, Sample, State, TimeSplit};
use crate::table::{Table, bytes, counted, grouped, one_line, seconds};

/// Regions that are shown.
const REGIONS_MAX: usize = 8;
/// Lines of threads that wait, of each node.
const WAITS_MAX: usize = 16;
/// Counters that are so old are said to be.
const OLD_MS: u64 = 1000;

/// A job at one moment, or between two.
pub fn lines(job: &JobInfo, sample: &Sample, before: Option<&Sample>) -> Vec<String> {
    let mut lines = vec![head(job, sample), String::new()];
    lines.extend(nodes(sample, before).lines().map(str::to_string));
    let regions = regions(sample, before);
    if !regions.is_empty() {
        lines.push(String::new());
        lines.extend(regions.lines().map(str::to_string));
    }
    let waits = waits(sample);
    if !waits.is_empty() {
        lines.push(String::new());
        lines.extend(waits);
    }
    lines
}

fn head(job: &JobInfo, sample: &Sample) -> String {
    let (nodes, hosts) = (counted(job.nodes() as u64, "node"), counted(job.host_count() as u64, "host"));
    let threads = counted(job.threads as u64, "thread");
    one_line(&format!(
        "job {} ({}): {nodes} on {hosts}, {threads} each, engine {}; {} for {}",
        job.number,
        job.name,
        job.engine,
        sample.state.name(),
        seconds(sample.elapsed_s)
    ))
}

/// A job in one line: where its threads' time went, and what it sends, since an earlier sample.
pub fn in_one_line(name: &str, sample: &Sample, before: Option<&Sample>) -> String {
    let mut all = NodeCounters::default();
    for node in &sample.nodes {
        let earlier = before.and_then(|before| before.nodes.iter().find(|other| other.node == node.node));
        let Some(now) = &node.counters else { continue };
        add(&mut all, &since(now, earlier.and_then(|node| node.counters.as_ref())));
    }
    let nodes = counted(sample.nodes.len() as u64, "node");
    let head = format!("comem: {name}, {nodes}, {} for {:.0} s", sample.state.name(), sample.elapsed_s);
    let busy: u64 = all.time_us.parts().iter().sum();
    if busy == 0 {
        return head;
    }
    let share = |part: u64| 100.0 * part as f64 / busy as f64;
    let waits = all.time_us.fetch + all.time_us.lock + all.time_us.barrier;
    let unit = Unit(Some(before.map_or(sample.elapsed_s, |before| sample.elapsed_s - before.elapsed_s)));
    format!(
        "{head}: {:.0}% computing, {:.0}% waiting; {} faults, {} messages, {} sent a second",
        share(all.time_us.compute),
        share(waits),
        grouped(unit.of(all.faults())),
        grouped(unit.of(all.messages_sent)),
        bytes(unit.of(all.bytes_sent))
    )
}

/// What a node has counted since an earlier sample; all of it where there is none, or it began a new program.
fn since(now: &NodeCounters, before: Option<&NodeCounters>) -> NodeCounters {
    let Some(before) = before.filter(|before| before.wall_s <= now.wall_s) else { return now.clone() };
    let mut difference = now.clone();
    difference.wall_s -= before.wall_s;
    let (t, b) = (&mut difference.time_us, &before.time_us);
    for (to, from) in [
        (&mut t.compute, b.compute),
        (&mut t.fetch, b.fetch),
        (&mut t.lock, b.lock),
        (&mut t.barrier, b.barrier),
        (&mut t.protocol, b.protocol),
        (&mut t.idle, b.idle),
        (&mut difference.messages_sent, before.messages_sent),
        (&mut difference.bytes_sent, before.bytes_sent),
        (&mut difference.bytes_received, before.bytes_received),
        (&mut difference.remote_reads, before.remote_reads),
        (&mut difference.remote_writes, before.remote_writes),
        (&mut difference.pages.read_faults, before.pages.read_faults),
        (&mut difference.pages.write_faults, before.pages.write_faults),
        (&mut difference.pages.pages_fetched, before.pages.pages_fetched),
    ] {
        *to = to.saturating_sub(from);
    }
    difference
}

/// How much of their time threads spent with each part.
fn shares(time: &TimeSplit) -> Vec<String> {
    let parts = time.parts();
    let all: u64 = parts.iter().sum();
    let share = |part: u64| match all {
        0 => String::new(),
        all => format!("{:.0}%", 100.0 * part as f64 / all as f64),
    };
    parts.into_iter().map(share).collect()
}

/// Counts, or rates where seconds are given.
struct Unit(Option<f64>);

impl Unit {
    fn heads(&self, names: &[&str]) -> Vec<String> {
        names.iter().map(|name| if self.0.is_some() { format!("{name}/s") } else { (*name).to_string() }).collect()
    }

    fn of(&self, count: u64) -> u64 {
        match self.0 {
            None => count,
            Some(seconds) if seconds > 0.0 => (count as f64 / seconds).round() as u64,
            Some(_) => 0,
        }
    }
}

fn nodes(sample: &Sample, before: Option<&Sample>) -> String {
    let rates = before.map(|before| sample.elapsed_s - before.elapsed_s);
    let unit = Unit(rates);
    let mut heads: Vec<String> = ["NODE", "<HOST", "PID", "<STATE"].map(str::to_string).to_vec();
    heads.extend(TimeSplit::NAMES.map(str::to_uppercase));
    heads.extend(unit.heads(&["FAULTS", "PAGES", "MESSAGES", "SENT", "RECEIVED"]));
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    let mut all = NodeCounters::default();
    for node in &sample.nodes {
        let earlier = before.and_then(|before| before.nodes.iter().find(|other| other.node == node.node));
        let counters = node.counters.as_ref().map(|now| since(now, earlier.and_then(|node| node.counters.as_ref())));
        let mut row = vec![
            node.node.to_string(),
            node.host.clone(),
            node.pid.map_or(String::new(), |pid| pid.to_string()),
            state(node),
        ];
        if let Some(counters) = &counters {
            row.extend(cells(counters, &Unit(rates.map(|_| counters.wall_s))));
            add(&mut all, counters);
        }
        table.row(row);
    }
    if sample.nodes.iter().filter(|node| node.counters.is_some()).count() > 1 {
        let mut row = vec!["all".to_string(), String::new(), String::new(), String::new()];
        row.extend(cells(&all, &unit));
        table.row(row);
    }
    table.text(0)
}

fn state(node: &NodeSample) -> String {
    let name = node.state.name();
    let is_silent = node.state == State::Running && node.counters.is_some() && node.age_ms >= OLD_MS;
    if is_silent { format!("{name}, silent for {} s", node.age_ms / 1000) } else { name.to_string() }
}

fn cells(counters: &NodeCounters, unit: &Unit) -> Vec<String> {
    let mut cells = shares(&counters.time_us);
    let counts = [counters.faults(), counters.pages.pages_fetched, counters.messages_sent];
    cells.extend(counts.map(|count| grouped(unit.of(count))));
    cells.extend([counters.bytes_sent, counters.bytes_received].map(|count| bytes(unit.of(count))));
    cells
}

fn add(sum: &mut NodeCounters, one: &NodeCounters) {
    let (t, o) = (&mut sum.time_us, &one.time_us);
    for (to, from) in [
        (&mut t.compute, o.compute),
        (&mut t.fetch, o.fetch),
        (&mut t.lock, o.lock),
        (&mut t.barrier, o.barrier),
        (&mut t.protocol, o.protocol),
        (&mut t.idle, o.idle),
        (&mut sum.messages_sent, one.messages_sent),
        (&mut sum.bytes_sent, one.bytes_sent),
        (&mut sum.bytes_received, one.bytes_received),
        (&mut sum.pages.read_faults, one.faults()),
        (&mut sum.pages.pages_fetched, one.pages.pages_fetched),
    ] {
        *to = to.saturating_add(from);
    }
}

fn regions(sample: &Sample, before: Option<&Sample>) -> String {
    let unit = Unit(before.map(|before| sample.elapsed_s - before.elapsed_s));
    let earlier = before.map(Sample::regions).unwrap_or_default();
    let mut all: Vec<Region> = sample.regions();
    for region in &mut all {
        // One that was not among the dearest before has cost little then.
        let Some(before) = earlier.iter().find(|other| other.address == region.address) else { continue };
        for (to, from) in [
            (&mut region.faults, before.faults),
            (&mut region.fetch_us, before.fetch_us),
            (&mut region.pages_fetched, before.pages_fetched),
            (&mut region.diff_bytes, before.diff_bytes),
            (&mut region.invalidations, before.invalidations),
        ] {
            *to = to.saturating_sub(from);
        }
    }
    if all.is_empty() {
        return String::new();
    }
    all.sort_by_key(|region| std::cmp::Reverse((region.fetch_us, region.pages_fetched, region.faults)));
    let mut heads = ["<REGION", "<ENGINE", "SIZE"].map(str::to_string).to_vec();
    heads.extend(unit.heads(&["WAITED", "FAULTS", "PAGES", "DIFFS", "INVALIDATED"]));
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for region in all.iter().take(REGIONS_MAX) {
        table.row(vec![
            region.label.clone(),
            region.engine.clone(),
            bytes(region.bytes),
            seconds(unit.of(region.fetch_us) as f64 / 1e6),
            grouped(unit.of(region.faults)),
            grouped(unit.of(region.pages_fetched)),
            bytes(unit.of(region.diff_bytes)),
            grouped(unit.of(region.invalidations)),
        ]);
    }
    table.text(0)
}

fn waits(sample: &Sample) -> Vec<String> {
    let told = sample.nodes.iter().filter_map(|node| Some((node.node, node.counters.as_ref()?)));
    let lines = told.flat_map(|(node, counters)| {
        let waits = counters.waits.iter().take(WAITS_MAX);
        waits.map(move |wait| one_line(&format!("node {node}: {wait}")))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(elapsed_s: f64, messages: u64, compute: u64, barrier: u64) -> Sample {
        let counters = NodeCounters {
            wall_s: elapsed_s,
            messages_sent: messages,
            bytes_sent: messages * 1024,
            time_us: TimeSplit { compute, barrier, ..TimeSplit::default() },
            regions: vec![Region { label: "grid".into(), fetch_us: messages, faults: messages, ..Region::default() }],
            ..NodeCounters::default()
        };
        let node =
            |node, counters| NodeSample { node, host: "a".into(), pid: Some(7), counters, ..NodeSample::default() };
        let nodes = vec![node(0, Some(counters.clone())), node(1, Some(counters)), node(2, None)];
        Sample { elapsed_s, state: State::Running, nodes, ..Sample::default() }
    }

    fn job() -> JobInfo {
        let hosts = vec!["a".to_string(); 3];
        JobInfo {
            number: 5,
            name: "sor\u{1b}[2J".into(),
            hosts,
            threads: 1,
            engine: "hlrc".into(),
            ..JobInfo::default()
        }
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    #[test]
    fn one_sample_shows_what_was_counted_since_the_job_began() {
        let lines = lines(&job(), &sample(2.0, 3000, 75, 25), None);
        assert_eq!(
            lines[0],
            "job 5 (sor\\u{1b}[2J): 3 nodes on 1 host, 1 thread each, engine hlrc; running for 2.00 s"
        );
        let row = words(&lines[3]);
        assert_eq!(row[..4], ["0", "a", "7", "starting"]);
        assert_eq!(row[4..10], ["75%", "0%", "0%", "25%", "0%", "0%"]);
        assert_eq!(row[10..], ["0", "0", "3,000", "2.9", "MiB", "0", "B"]);
        assert_eq!(words(&lines[5]), ["2", "a", "7", "starting"], "nothing is known of it");
        assert_eq!(words(&lines[6])[9], "6,000", "{}", lines[6]);
        assert!(lines[8].contains("WAITED") && !lines[8].contains("/s"));
        assert_eq!(words(&lines[9])[..1], ["grid"]);
    }

    #[test]
    fn two_samples_show_shares_and_rates_between_them() {
        let lines = lines(&job(), &sample(2.5, 3500, 75, 75), Some(&sample(2.0, 3000, 75, 25)));
        let row = words(&lines[3]);
        assert_eq!(row[4..10], ["0%", "0%", "0%", "100%", "0%", "0%"]);
        assert_eq!(row[12], "1,000", "500 in half a second");
        assert!(lines[2].contains("MESSAGES/s"), "{}", lines[2]);
        let grid = lines.iter().find(|line| line.starts_with("grid")).unwrap();
        assert!(grid.contains("2,000"), "{grid}: of both nodes");
    }

    #[test]
    fn a_line_says_where_the_time_went() {
        let (before, now) = (sample(2.0, 3000, 75, 25), sample(2.5, 3500, 100, 100));
        assert_eq!(
            in_one_line("sor", &now, Some(&before)),
            "comem: sor, 3 nodes, running for 2 s: 25% computing, 75% waiting; 0 faults, 2,000 messages, 2.0 MiB sent \
             a second"
        );
        let nothing = Sample { state: State::Starting, elapsed_s: 3.2, ..Sample::default() };
        assert_eq!(in_one_line("sor", &nothing, None), "comem: sor, 0 nodes, starting for 3 s");
    }

    #[test]
    fn a_node_that_began_a_new_program_is_counted_from_there() {
        let now = NodeCounters { wall_s: 0.5, messages_sent: 9, ..NodeCounters::default() };
        let before = NodeCounters { wall_s: 8.0, messages_sent: 1000, ..NodeCounters::default() };
        assert_eq!(since(&now, Some(&before)).messages_sent, 9);
    }

    #[test]
    fn threads_that_wait_are_told_node_by_node() {
        let mut now = sample(1.0, 1, 1, 0);
        now.nodes[1].counters.as_mut().unwrap().waits = vec!["thread 1 has waited 2.0 s for a barrier".into()];
        let lines = lines(&job(), &now, None);
        assert_eq!(lines.last().unwrap(), "node 1: thread 1 has waited 2.0 s for a barrier");
    }

    #[test]
    fn a_node_that_has_not_answered_for_long_is_said_to_be_silent() {
        let node = NodeSample {
            state: State::Running,
            counters: Some(NodeCounters::default()),
            age_ms: 3400,
            ..NodeSample::default()
        };
        assert_eq!(state(&node), "running, silent for 3 s");
    }
}
