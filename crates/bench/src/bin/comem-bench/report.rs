//! The printed report: on which machine, by which command, and a table of findings.

use comem_bench::sample::{FINDING_HEAD, Finding, number};

/// Says on what machine the following was measured.
pub fn print_machine() {
    let cores = comem::capacity::cores();
    let first_value = |file: &str, name: &str| -> String {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_string();
        line.split_once(':').map_or(line.clone(), |(_, value)| value.to_string()).trim().to_string()
    };
    println!(
        "Machine: {}, {cores} cores, Linux {}. Comem {}.",
        first_value("/proc/cpuinfo", "model name"),
        first_value("/proc/sys/kernel/osrelease", ""),
        env!("CARGO_PKG_VERSION")
    );
}

/// Prints a heading, the commands and a table; tells whether all aims were reached.
pub fn print(title: &str, commands: &[Vec<String>], findings: &[Finding]) -> bool {
    heading(title, commands);
    table(findings)
}

/// Prints findings as a table; tells whether all aims were reached.
pub fn table(findings: &[Finding]) -> bool {
    println!("{FINDING_HEAD}");
    for finding in findings {
        println!("{}", finding.row());
    }
    findings.iter().all(Finding::is_good)
}

/// Prints a heading and the commands behind what follows.
pub fn heading(title: &str, commands: &[Vec<String>]) {
    println!("\n## {title}\n");
    for command in commands {
        println!("    {}", command.join(" "));
    }
    println!();
}

/// A number with an aim of its own, not in relation to another.
pub struct Figure {
    /// What it is.
    pub what: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The largest that is still good; `None` where none was set.
    pub most: Option<f64>,
}

/// Prints figures as a table; tells whether all aims were reached.
pub fn figures(figures: &[Figure]) -> bool {
    println!("| what | | unit | aim | |\n|---|---:|---|---:|---|");
    for Figure { what, value, unit, most } in figures {
        let (aim, verdict) = match most {
            Some(most) => (format!("≤ {most}"), if value <= most { "reached" } else { "missed" }),
            None => ("–".to_string(), ""),
        };
        println!("| {what} | {} | {unit} | {aim} | {verdict} |", number(*value));
    }
    figures.iter().all(|f| f.most.is_none_or(|most| f.value <= most))
}
