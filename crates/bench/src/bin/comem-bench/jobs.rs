//! The measurements that need jobs: each starts `comem run` and turns what it prints into findings.

use crate::report;
use comem_bench::job::{Job, Outcome, Programs};
use comem_bench::sample::{Comparison, Finding, median};
use comem_bench::sea::{self, Sea};
use serde_json::Value;
use std::path::Path;

/// How often two jobs are run in turn.
pub const PAIRS: usize = 7;

/// A way of waiting: its name for `--wait`, and in words.
pub type Way = (&'static str, &'static str);
/// Both ways.
pub const BOTH: [Way; 2] = [("spin", "spinning"), ("block", "blocking")];

/// An operation between two nodes that is compared with plain sockets.
struct Case<'a> {
    task: &'a str,
    what: &'a str,
    ways: &'a [Way],
    /// The largest ratio to an exchange of small datagrams that is still good.
    limit: f64,
    /// What does the same by less than an exchange, where the node has measured that too.
    alike: &'a str,
}

/// Where programs are.
pub struct Bench {
    /// The programs.
    pub programs: Programs,
    own: String,
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

impl Bench {
    /// Finds the programs.
    ///
    /// # Errors
    /// A sentence that says how to build what is missing.
    pub fn new(workloads: &Path) -> Result<Bench, String> {
        let own = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
        Ok(Bench { programs: Programs::find(workloads)?, own: own.display().to_string() })
    }

    /// A command that starts this program.
    pub fn own_words(&self, arguments: &[&str]) -> Vec<String> {
        std::iter::once(self.own.clone()).chain(arguments.iter().map(|a| a.to_string())).collect()
    }

    /// Finds the line of blocks that a node printed.
    ///
    /// # Errors
    /// A sentence with what was printed instead.
    pub fn comparison(&self, printed: &str) -> Result<Comparison, String> {
        parse_comparison(printed).ok_or_else(|| format!("no measurement in what was printed: {printed}"))
    }

    /// As [`Bench::comparison`], but all that stands in that line.
    ///
    /// # Errors
    /// A sentence with what was printed instead.
    pub fn value(&self, printed: &str) -> Result<Value, String> {
        parse_value(printed).ok_or_else(|| format!("no measurement in what was printed: {printed}"))
    }

    fn node_job(&self, what: &str, wait: &str, flags: &[&str]) -> Job {
        let mut all = words(&["--backbone", "udp", "--wait", wait]);
        all.extend(flags.iter().map(|f| f.to_string()));
        Job { nodes: 2, engine: None, flags: all, program: self.own_words(&["node", what]) }
    }

    /// The whole command line of a job, its program included.
    pub fn whole_command(&self, job: &Job) -> Vec<String> {
        let mut words = self.programs.command_line(job);
        words.push("--".to_string());
        words.extend(job.program.iter().cloned());
        words
    }

    /// Compares operations between two nodes with plain sockets.
    fn against_sockets(&self, title: &str, cases: &[Case<'_>]) -> Result<bool, String> {
        let (mut findings, mut commands) = (Vec::new(), Vec::new());
        for case in cases {
            for (wait, how) in case.ways {
                let job = self.node_job(case.task, wait, &["--auth", "off"]);
                commands.push(self.whole_command(&job));
                let value = self.value(&self.programs.run(&job)?.output)?;
                let exchange = comparison_in(&value).ok_or_else(|| format!("no measurement in {value}"))?;
                let alike = numbers(&value, "same").filter(|same| same.len() == exchange.ours.len());
                let what = |base: &str| format!("{} against {base}, {how}", case.what);
                let row = |base: &str, comparison, limit| Finding { what: what(base), unit: "us", comparison, limit };
                let closer = alike.map(|base| Comparison { base, ..exchange.clone() });
                findings.push(row("a bare UDP exchange", exchange, Some(case.limit)));
                findings.extend(closer.map(|comparison| row(case.alike, comparison, None)));
            }
        }
        Ok(report::print(title, &commands, &findings))
    }

    pub fn ping(&self) -> Result<bool, String> {
        let read = Case { task: "ping", what: "read of an element at its owner", ways: &BOTH, limit: 1.3, alike: "" };
        self.against_sockets("Request and reply", &[read])
    }

    pub fn barrier(&self) -> Result<bool, String> {
        let alike = "a barrier by bare datagrams, one each way";
        let barrier = Case { task: "barrier", what: "barrier", ways: &BOTH, limit: 1.5, alike };
        self.against_sockets("Barrier of two nodes", &[barrier])
    }

    pub fn lock(&self) -> Result<bool, String> {
        // Where both nodes compute, their service threads would have to spin beside them: blocking only.
        let alike = "a token by bare datagrams, one a hand-over";
        let fetched = "lock fetched from the node where it rests";
        let handed = "lock handed to the node that waits for it";
        let cases = [
            Case { task: "lock", what: fetched, ways: &BOTH, limit: 2.0, alike },
            Case { task: "queue", what: handed, ways: &BOTH[1..], limit: 2.0, alike },
        ];
        self.against_sockets("Strict hand-over of a lock between two nodes", &cases)
    }

    pub fn auth(&self) -> Result<bool, String> {
        let (mut findings, mut commands) = (Vec::new(), Vec::new());
        for (wait, how) in BOTH {
            let on = self.node_job("ping", wait, &["--auth", "on"]);
            let off = self.node_job("ping", wait, &["--auth", "off"]);
            commands.extend([self.whole_command(&on), self.whole_command(&off)]);
            let mut comparison = Comparison { per_block: 12_000, ..Comparison::default() };
            for _ in 0..PAIRS {
                let middle = |job: &Job| -> Result<f64, String> {
                    Ok(median(&self.comparison(&self.programs.run(job)?.output)?.ours))
                };
                comparison.push(middle(&on)?, middle(&off)?);
            }
            let what = format!("read at the owner with keyed tags against without, {how}");
            findings.push(Finding { what, unit: "us", comparison, limit: None });
        }
        Ok(report::print("Cost of authenticated datagrams", &commands, &findings))
    }

    fn sea(&self, nodes: usize, engine: &str, size: Sea) -> Result<Job, String> {
        let mut program = vec![self.programs.workload("sea")?];
        program.extend(size.arguments(None));
        Ok(Job { nodes, engine: Some(engine.to_string()), flags: words(&["--backbone", "udp"]), program })
    }

    pub fn oversubscribe(&self) -> Result<bool, String> {
        let size = Sea { rows: 1024, columns: 1024, iterations: 400 };
        let (many, few) = (self.sea(8, "msi", size)?, self.sea(2, "msi", size)?);
        let mut comparison = Comparison { per_block: 1, ..Comparison::default() };
        for _ in 0..PAIRS {
            let seconds = |job: &Job| sea::seconds(&self.programs.run(job)?.output);
            comparison.push(seconds(&many)?, seconds(&few)?);
        }
        let what = "sea under msi on 8 nodes against 2 nodes, this machine's cores".to_string();
        let finding = Finding { what, unit: "s", comparison, limit: Some(1.5) };
        let commands = [self.whole_command(&many), self.whole_command(&few)];
        Ok(report::print("More nodes than cores", &commands, &[finding]))
    }

    pub fn ratio(&self) -> Result<bool, String> {
        let size = Sea { rows: 384, columns: 576, iterations: 100 };
        let (mut findings, mut commands) = (Vec::new(), Vec::new());
        for nodes in [2, 4] {
            let (msi, owner) = (self.sea(nodes, "msi", size)?, self.sea(nodes, "owner", size)?);
            let messages = |job: &Job| -> Result<f64, String> { Ok(self.programs.run(job)?.totals.messages as f64) };
            let comparison = Comparison { ours: vec![messages(&msi)?], base: vec![messages(&owner)?], per_block: 1 };
            let what = format!("messages of sea on {nodes} nodes, msi against owner");
            findings.push(Finding { what, unit: "messages", comparison, limit: Some(0.02) });
            commands.extend([self.whole_command(&msi), self.whole_command(&owner)]);
        }
        Ok(report::print("Messages of sea", &commands, &findings))
    }

    pub fn messages(&self, count: u64) -> Result<bool, String> {
        let job = |count: u64| -> Result<Job, String> {
            let faults = "drop=5%,dup=5%,reorder=5%,seed=7".to_string();
            let program = vec![self.programs.workload("message-test")?, "--count".to_string(), count.to_string()];
            Ok(Job { nodes: 4, engine: None, flags: vec!["--faults".to_string(), faults], program })
        };
        // A tenth first: memory must not grow with the number of messages (a bit each to check them off).
        let (small, large) = (job(count / 10)?, job(count)?);
        let before = self.programs.run(&small)?.peak_kib;
        let Outcome { output, totals, peak_kib: after, .. } = self.programs.run(&large)?;
        report::heading("A flood through loss, duplication and reordering", &[self.whole_command(&large)]);
        let seconds = sea::seconds(&output)?;
        println!("    {}\n", output.trim());
        println!("| messages | per second | repeated | largest process, a tenth | largest process, all |");
        println!("|---:|---:|---:|---:|---:|");
        let rate = 4.0 * count as f64 / seconds;
        println!("| {} | {rate:.0} | {} | {before} KiB | {after} KiB |", 4 * count, totals.retransmissions);
        let most = before + before / 2 + count / 8 / 1024;
        if after > most {
            println!("\nmemory grows with the number of messages: {after} KiB, {most} at most");
        }
        Ok(output.trim_end().ends_with("ok") && after <= most)
    }
}

/// The last line of JSON in what was printed.
fn parse_value(printed: &str) -> Option<Value> {
    printed.lines().filter_map(|line| serde_json::from_str(line.trim()).ok()).next_back()
}

/// The numbers in a list of a measurement.
pub fn numbers(value: &Value, name: &str) -> Option<Vec<f64>> {
    value[name].as_array()?.iter().map(Value::as_f64).collect()
}

fn parse_comparison(printed: &str) -> Option<Comparison> {
    comparison_in(&parse_value(printed)?)
}

/// The blocks of a measurement.
fn comparison_in(value: &Value) -> Option<Comparison> {
    let comparison = Comparison {
        ours: numbers(value, "ours")?,
        base: numbers(value, "base")?,
        per_block: usize::try_from(value["per_block"].as_u64()?).ok()?,
    };
    (!comparison.ours.is_empty() && comparison.ours.len() == comparison.base.len()).then_some(comparison)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_found_among_other_lines() {
        let found = parse_comparison("hello\n{\"ours\":[2.0,3],\"base\":[1.0,1.5],\"per_block\":10}\nbye").unwrap();
        assert_eq!((found.ratio(), found.per_block), (2.0, 10));
        for wrong in [
            "",
            "null",
            "{}",
            "{\"ours\":[],\"base\":[],\"per_block\":1}",
            "{\"ours\":[1],\"base\":[],\"per_block\":1}",
        ] {
            assert!(parse_comparison(wrong).is_none(), "{wrong}");
        }
    }
}
