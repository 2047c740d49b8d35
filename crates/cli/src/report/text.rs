//! Reports as tables: one run in detail, several runs side by side, or comma-separated values.

use super::model::{LINE_COUNTERS, MESSAGE_COUNTERS, Node, PAGE_COUNTERS, PARTS, Run, THREAD_PARTS, sum};
use crate::table::{Table, bytes, grouped, one_line, seconds, shortened};
use comem_protocol::coherence::pages::PageEngine;
use std::collections::BTreeMap;

/// Longer names of regions lose their middle.
const LABEL_CHARS: usize = 60;
/// A region without a name.
const UNNAMED: &str = "(unnamed)";

/// Threads' times that exceed threads x wall time by more than this share are pointed out,
const TIME_GAP: f64 = 0.05;
/// when it is more than this many seconds a thread as well.
const GAP_S: f64 = 0.25;

/// One run in detail; at most `rows` regions and pages are shown.
pub fn single(run: &Run, rows: usize) -> String {
    let mut text = head(run);
    text += &times(run);
    text += "\nmessages and synchronisation\n";
    text += &counters(run, &MESSAGE_COUNTERS, |node| Some(&node.messages));
    if run.has_lines() {
        text += "\nchecks that missed, and operations on other nodes' memory (direct)\n";
        text += &counters(run, &LINE_COUNTERS, |node| Some(node.lines.as_slice()));
        text += "\nregions whose accesses are checked, over all nodes\n";
        text += &line_regions(run, rows);
    }
    if run.has_pages() {
        text += "\npages\n";
        text += &counters(run, &PAGE_COUNTERS, |node| node.pages.as_ref().map(|pages| pages.as_slice()));
    }
    if !run.regions.is_empty() {
        text += "\nregions, the dearest first\n";
        text += &regions(run, rows);
        text += &false_sharing(run, rows);
    }
    text + &unobserved(std::slice::from_ref(run))
}

/// What the tables do not show of memory of which there is one copy.
fn unobserved(runs: &[Run]) -> String {
    match runs.iter().any(Run::has_regions_of_one_copy) {
        false => String::new(),
        true => format!(
            "\nUnder {} nobody notices how nodes use pages: comem run --rehearse shows what that would cost between \
             hosts\n",
            PageEngine::Hardware
        ),
    }
}

fn head(run: &Run) -> String {
    let mut text = format!("{}: {}\n", one_line(&run.name), one_line(&run.command));
    let nodes = if run.nodes.len() == 1 { "1 node".to_string() } else { format!("{} nodes", run.nodes.len()) };
    text += &format!("{nodes}, {}, {}, status {}\n", seconds(run.wall_s), one_line(&run.how), run.status);
    if let Some(failure) = &run.failure {
        text += &format!("failed: {}\n", one_line(failure));
    }
    for node in run.nodes.iter().filter(|node| !node.reported) {
        text += &format!("node {} left no statistics\n", node.node);
    }
    text
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_string() } else { format!("{:.1}", 100.0 * part as f64 / whole as f64) }
}

/// The split of the threads' time, node by node, and what does not add up.
fn times(run: &Run) -> String {
    let mut heads = vec!["node", "<host", "threads"];
    PARTS[..THREAD_PARTS].iter().for_each(|part| heads.extend([*part, "%"]));
    heads.extend(["sum", "wall", "| service"]);
    let mut table = Table::new(&heads);
    let line = |name: String, node: &Node| {
        let mut cells = vec![name, node.host.clone(), node.threads.to_string()];
        for part in &node.times_us[..THREAD_PARTS] {
            cells.extend([grouped(*part), share(*part, node.threads_us())]);
        }
        cells.extend([grouped(node.threads_us()), seconds(node.wall_s), grouped(node.times_us[THREAD_PARTS])]);
        cells
    };
    run.nodes.iter().for_each(|node| table.row(line(node.node.to_string(), node)));
    if run.nodes.len() > 1 {
        table.row(line("all".to_string(), &run.total()));
    }
    let heading = "\nwhere the threads' time went (thread-microseconds, threads x wall time in all; idle: before a \
                   thread began and after it had ended; the service thread's own work stands beside)\n";
    let gaps = run.nodes.iter().filter(|node| node.reported).filter_map(gap);
    heading.to_string() + &table.text(2) + &gaps.collect::<String>()
}

/// A line about threads whose times add up to more than there was.
fn gap(node: &Node) -> Option<String> {
    let wall = node.threads_wall_us() as f64;
    let part = node.threads_us() as f64 / wall;
    (wall > 0.0 && part - 1.0 > TIME_GAP && (part - 1.0) * node.wall_s > GAP_S).then(|| {
        let (percent, node_number, threads) = (100.0 * part, node.node, node.threads);
        format!(
            "  node {node_number}: the parts add up to {percent:.0} % of {threads} threads x {}\n",
            seconds(node.wall_s)
        )
    })
}

fn is_bytes(name: &str) -> bool {
    name.contains("bytes")
}

/// A table of counters, without the columns that are zero everywhere.
fn counters<'a>(run: &'a Run, names: &[(&str, &str)], of: impl Fn(&'a Node) -> Option<&'a [u64]>) -> String {
    let of = |node: &'a Node| of(node).map_or_else(|| vec![0; names.len()], <[u64]>::to_vec);
    let rows: Vec<(String, Vec<u64>)> = run.nodes.iter().map(|node| (node.node.to_string(), of(node))).collect();
    let sums: Vec<u64> = (0..names.len()).map(|i| sum(rows.iter().map(|(_, row)| row[i]))).collect();
    let shown: Vec<usize> = (0..names.len()).filter(|i| sums[*i] > 0).collect();
    if shown.is_empty() {
        return "  none\n".to_string();
    }
    let mut heads = vec!["node"];
    heads.extend(shown.iter().map(|i| names[*i].1));
    let mut table = Table::new(&heads);
    let all = (rows.len() > 1).then(|| ("all".to_string(), sums));
    for (name, row) in rows.into_iter().chain(all) {
        let cell = |i: &usize| if is_bytes(names[*i].0) { bytes(row[*i]) } else { grouped(row[*i]) };
        table.row(std::iter::once(name).chain(shown.iter().map(cell)).collect());
    }
    table.text(2)
}

fn regions(run: &Run, rows: usize) -> String {
    let heads =
        ["<label", "<address", "bytes", "<engine", "fault us", "faults", "pages fetched", "diff bytes", "invalidated"];
    let mut table = Table::new(&heads);
    for region in run.regions.iter().take(rows) {
        table.row(vec![
            name_of(&region.label),
            format!("{:#x}", region.address),
            bytes(region.bytes),
            region.engine.clone(),
            grouped(region.fetch_us),
            grouped(region.faults),
            grouped(region.pages_fetched),
            bytes(region.diff_bytes),
            grouped(region.invalidations),
        ]);
    }
    table.text(2) + &left_out(run.regions.len(), rows)
}

/// The regions whose accesses the program checks itself.
fn line_regions(run: &Run, rows: usize) -> String {
    let heads = [
        "<label",
        "<address",
        "bytes",
        "<engine",
        "unit",
        "loads missed",
        "stores missed",
        "genuine magic",
        "retries",
        "operations",
    ];
    let mut table = Table::new(&heads);
    let all: Vec<_> = run.regions.iter().filter(|region| region.unit_bytes > 0).collect();
    for region in all.iter().take(rows) {
        table.row(vec![
            name_of(&region.label),
            format!("{:#x}", region.address),
            bytes(region.bytes),
            region.engine.clone(),
            region.unit_bytes.to_string(),
            grouped(region.load_misses),
            grouped(region.store_misses),
            grouped(region.genuine_magic),
            grouped(region.retries),
            grouped(region.remote_operations),
        ]);
    }
    table.text(2) + &left_out(all.len(), rows)
}

fn name_of(label: &str) -> String {
    if label.is_empty() { UNNAMED.to_string() } else { shortened(label, LABEL_CHARS) }
}

fn left_out(all: usize, shown: usize) -> String {
    if all > shown { format!("  and {} more (--rows {all})\n", all - shown) } else { String::new() }
}

/// Pages that several nodes wrote in one interval at different bytes: what to move apart, the most often written so
/// first.
fn false_sharing(run: &Run, rows: usize) -> String {
    let mut pages: Vec<_> =
        run.regions.iter().flat_map(|r| r.false_sharing.iter().map(move |(offset, page)| (r, *offset, page))).collect();
    pages.sort_by_key(|(_, _, page)| std::cmp::Reverse(page.times));
    let named = pages.iter().any(|(_, _, page)| !page.variables.is_empty());
    let heads = ["<region", "offset", "times", "<address", "<written by nodes", "<variables"];
    let mut table = Table::new(if named { &heads } else { &heads[..5] });
    for (region, offset, page) in pages.iter().take(rows) {
        let list: Vec<String> = page.nodes.iter().map(u64::to_string).collect();
        let address = format!("{:#x}", region.address.saturating_add(*offset));
        let mut row = vec![name_of(&region.label), grouped(*offset), grouped(page.times), address, list.join(" ")];
        row.extend(named.then(|| page.variables.clone()));
        table.row(row);
    }
    let when = match (run.has_regions_under_msi(), run.regions.iter().all(|region| region.engine == "msi")) {
        (false, _) => "in one interval",
        (true, true) => "in turn",
        (true, false) => "in one interval (under msi: in turn)",
    };
    let heading = format!("\nfalse sharing: pages that several nodes wrote {when}, at different bytes\n");
    let seen = match pages.is_empty() {
        true => "  none\n".to_string(),
        false => table.text(2) + &left_out(pages.len(), rows),
    };
    let missed = match run.sharing_unseen {
        0 => String::new(),
        times => format!("  {} writes were not looked at: too many between two barriers\n", grouped(times)),
    };
    heading + &seen + &missed
}

/// Several runs, a column each: totals over their nodes.
pub fn side_by_side(runs: &[Run], rows: usize) -> String {
    let mut heads = vec!["<"];
    heads.extend(runs.iter().map(|run| run.name.as_str()));
    let mut text = runs
        .iter()
        .map(|run| one_line(&format!("{}: {} ({})", run.name, run.command, run.how)) + "\n")
        .collect::<String>();
    let totals: Vec<Node> = runs.iter().map(Run::total).collect();
    let mut table = Table::new(&heads);
    let mut line = |name: &str, cells: Vec<String>| table.row([vec![name.to_string()], cells].concat());
    line("nodes", runs.iter().map(|run| run.nodes.len().to_string()).collect());
    line("status", runs.iter().map(|run| run.status.to_string()).collect());
    line("wall time", runs.iter().map(|run| seconds(run.wall_s)).collect());
    for (index, part) in PARTS.iter().enumerate() {
        let cell = |node: &Node| match index < THREAD_PARTS {
            true => {
                format!("{} us  {:>5} %", grouped(node.times_us[index]), share(node.times_us[index], node.threads_us()))
            }
            false => format!("{} us         ", grouped(node.times_us[index])),
        };
        line(part, totals.iter().map(cell).collect());
    }
    let mut count = |head: &str, name: &str, values: Vec<u64>| {
        if values.iter().any(|value| *value > 0) {
            let show = |value: u64| if is_bytes(name) { bytes(value) } else { grouped(value) };
            line(head, values.into_iter().map(show).collect());
        }
    };
    for (index, (name, head)) in MESSAGE_COUNTERS.iter().enumerate() {
        count(head, name, totals.iter().map(|node| node.messages[index]).collect());
    }
    for (index, (name, head)) in PAGE_COUNTERS.iter().enumerate() {
        let of = |node: &Node| node.pages.map_or(0, |pages| pages[index]);
        count(&format!("pages: {head}"), name, totals.iter().map(of).collect());
    }
    text += "\n";
    text += &table.text(0);
    text += &regions_side_by_side(runs, rows);
    text + &unobserved(runs)
}

/// The regions' fetch times, a column for each run.
fn regions_side_by_side(runs: &[Run], rows: usize) -> String {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (index, run) in runs.iter().enumerate() {
        for region in &run.regions {
            let times = all.entry(name_of(&region.label)).or_insert_with(|| vec![0; runs.len()]);
            times[index] = times[index].saturating_add(region.fetch_us);
        }
    }
    if all.is_empty() {
        return String::new();
    }
    let mut list: Vec<_> = all.into_iter().collect();
    list.sort_by_key(|(_, times)| std::cmp::Reverse(times.iter().copied().max()));
    let mut heads = vec!["<region"];
    heads.extend(runs.iter().map(|run| run.name.as_str()));
    let mut table = Table::new(&heads);
    for (name, times) in list.iter().take(rows) {
        table.row([vec![name.clone()], times.iter().map(|us| grouped(*us)).collect()].concat());
    }
    "\nfetch time of regions, thread-microseconds\n".to_string() + &table.text(2) + &left_out(list.len(), rows)
}

/// One line for each node and number: `run,node,what,name,value`.
pub fn csv(runs: &[Run]) -> String {
    let mut text = "run,node,kind,name,value\n".to_string();
    for run in runs {
        let name = quoted(&run.name);
        for node in run.nodes.iter().filter(|node| node.reported) {
            let mut line = |kind: &str, what: &str, value: u64| {
                text += &format!("{name},{},{kind},{what},{value}\n", node.node);
            };
            PARTS.iter().zip(node.times_us).for_each(|(part, us)| line("time_us", part, us));
            MESSAGE_COUNTERS.iter().zip(node.messages).for_each(|((what, _), value)| line("messages", what, value));
            let pages = node.pages.unwrap_or_default();
            PAGE_COUNTERS.iter().zip(pages).for_each(|((what, _), value)| line("pages", what, value));
            if run.has_lines() {
                LINE_COUNTERS.iter().zip(node.lines).for_each(|((what, _), value)| line("lines", what, value));
            }
        }
        for region in &run.regions {
            // Whole: programs read this, and names that differ in the middle only stay apart.
            let label = quoted(if region.label.is_empty() { UNNAMED } else { &region.label });
            for (kind, value) in [
                ("region_fetch_us", region.fetch_us),
                ("region_faults", region.faults),
                ("region_pages_fetched", region.pages_fetched),
                ("region_diff_bytes", region.diff_bytes),
                ("region_invalidations", region.invalidations),
                ("region_false_sharing_pages", region.false_sharing.len() as u64),
            ] {
                text += &format!("{name},all,{kind},{label},{value}\n");
            }
        }
    }
    text
}

/// A text from elsewhere as one field (RFC 4180). What would steer a terminal is written out, but for ends of lines,
/// which a field may
/// have. A spreadsheet takes what begins like a formula for one; behind an apostrophe it is a text.
fn quoted(text: &str) -> String {
    let formula = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    let lines: Vec<String> = text.split('\n').map(one_line).collect();
    let text = format!("{formula}{}", lines.join("\n"));
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::file;
    use super::*;
    use serde_json::json;

    fn run(name: &str) -> Run {
        Run::parse(name, &file()).unwrap()
    }

    #[test]
    fn checks_that_missed_are_shown_by_node_and_by_region() {
        let region = json!({"label": "grid", "named_by": "label", "address": "0x1000", "bytes": 640, "engine": "direct",
            "unit_bytes": 128, "load_misses": 7, "store_misses": 5, "genuine_magic": 3, "retries": 2,
            "remote_operations": 41});
        let node = |node: u64| {
            json!({"node": node, "threads": 1, "wall_s": 1.0, "time_us": {}, "regions": [region],
            "inline": {"load_misses": 11, "store_misses": 12, "genuine_magic": 13},
            "direct": {"remote_gets": 14, "dir_retries": 15}})
        };
        let file = json!({"schema": 1, "nodes": [node(0), node(1)]});
        let run = Run::parse("lines", &file).unwrap();
        assert_eq!(run.total().lines[..3], [22, 24, 26]);
        let text = single(&run, 10);
        for words in ["loads missed", "grid", "0x1000", "genuine magic", "gets"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let row = text.lines().find(|line| line.contains("0x1000") && line.contains(" 82")).expect("the region");
        assert!([" 128 ", " 14 ", " 10 ", " 6 ", " 4 "].iter().all(|cell| row.contains(cell)), "{row}");
        assert!(csv(&[run]).contains("lines,0,lines,remote_gets,14\n"));
    }

    #[test]
    fn one_run_shows_the_split_the_counters_the_regions_and_false_sharing() {
        let text = single(&run("run"), 20);
        let row = |start: &str| {
            let found = text.lines().find(|line| line.trim_start().starts_with(start));
            found.unwrap_or_else(|| panic!("{start}: {text}")).split_whitespace().collect::<Vec<_>>()
        };
        let parts = "1,000,000 50.0 400,000 20.0 300,000 15.0 200,000 10.0 100,000 5.0 0 0.0";
        assert_eq!(row("0  a")[3..15].join(" "), parts);
        assert_eq!(row("0  a")[15], "2,000,000", "the sum of the six parts");
        assert_eq!(row("all ")[2], "2,000,000", "all nodes' computing");
        assert_eq!(row("sums")[..4], ["sums", "0x10000", "4.0", "KiB"]);
        assert!(text.find("  sums").unwrap() < text.find("  grid").unwrap(), "{text}");
        let shared = text.split("false sharing").nth(1).unwrap();
        assert!(shared.contains("sums") && shared.contains("0x10000") && shared.contains("0 1 5"), "{text}");
        assert!(shared.contains("total best"), "the variables on the page: {text}");
        assert!(!text.contains("add up to"), "these parts do add up: {text}");
        assert!(!text.contains("evicted"), "columns of zeros are left out: {text}");
    }

    #[test]
    fn a_regions_long_name_makes_no_wide_table() {
        let mut run = run("run");
        run.regions[0].label = format!("begin{}end", "x".repeat(70_000));
        let text = single(&run, 20);
        assert!(text.contains("  beginxxx") && text.contains("xxxend "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 250), "{text}");
    }

    #[test]
    fn parts_that_do_not_add_up_are_pointed_out() {
        let mut run = run("run");
        run.nodes[1].times_us[0] *= 2;
        let text = single(&run, 20);
        assert!(text.contains("node 1: the parts add up to 150 % of 2 threads x 1.00 s"), "{text}");
    }

    #[test]
    fn under_msi_false_sharing_is_that_of_nodes_that_write_in_turn() {
        let mut run = run("run");
        assert!(single(&run, 20).contains("several nodes wrote in one interval, at"));
        run.regions[1].engine = "msi".to_string();
        let some = single(&run, 20);
        assert!(some.contains("0 1 5") && some.contains("in one interval (under msi: in turn)"), "{some}");
        for region in &mut run.regions {
            (region.engine, region.false_sharing) = ("msi".to_string(), Default::default());
        }
        let none = single(&run, 20);
        assert!(none.contains("several nodes wrote in turn, at different bytes\n  none\n"), "{none}");
    }

    #[test]
    fn under_hardware_one_sentence_says_that_nothing_is_noticed() {
        let mut run = run("run");
        assert!(!single(&run, 20).contains("nobody notices"));
        run.regions[0].engine = "hardware".to_string();
        let text = single(&run, 20);
        assert!(
            text.ends_with("between hosts\n") && text.matches("Under hardware nobody notices").count() == 1,
            "{text}"
        );
        assert!(text.contains("comem run --rehearse"), "{text}");
        assert!(side_by_side(&[run, Run::parse("other", &file()).unwrap()], 20).contains("nobody notices"));
    }

    #[test]
    fn where_not_all_writes_were_looked_at_that_is_said() {
        let mut file = file();
        assert!(!single(&Run::parse("run", &file).unwrap(), 20).contains("not looked at"));
        for node in file["nodes"].as_array_mut().unwrap() {
            node["pages"]["sharing_unseen"] = 600.into();
        }
        let text = single(&Run::parse("run", &file).unwrap(), 20);
        assert!(text.contains("1,200 writes were not looked at"), "{text}");
    }

    #[test]
    fn the_pages_that_are_shared_falsely_most_often_come_first() {
        let mut file = file();
        let page = |offset: u64, times: u64| json!({"offset": offset, "nodes": [0, 1], "times": times});
        file["nodes"][0]["regions"][0]["false_sharing"] = json!([page(0x1000, 3), page(0x3000, 400)]);
        file["nodes"][1]["regions"][0]["false_sharing"] = json!([page(0x2000, 50), page(0x1000, 48)]);
        let text = single(&Run::parse("run", &file).unwrap(), 3);
        let shared = text.split("false sharing").nth(1).unwrap();
        let rows =
            shared.lines().skip(2).take(3).map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" "));
        assert_eq!(rows.collect::<Vec<_>>(), ["grid 12,288 400", "grid 4,096 51", "grid 8,192 50"], "{text}");
    }

    #[test]
    fn what_is_left_out_is_said() {
        assert!(single(&run("run"), 1).contains("and 1 more (--rows 2)"));
    }

    #[test]
    fn several_runs_stand_side_by_side() {
        let text = side_by_side(&[run("one"), run("two")], 20);
        let line = text.lines().find(|line| line.starts_with("pages: requests")).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["pages:", "requests", "15", "15"]);
        assert!(text.contains("12.5 %"), "{text}");
        assert!(text.lines().any(|line| line.split_whitespace().eq(["sums", "1,800", "1,800"])), "{text}");
    }

    #[test]
    fn spreadsheets_get_one_number_a_line() {
        let mut odd = run("a,b");
        odd.regions[0].label = "say \"x\"".to_string();
        let text = csv(&[odd]);
        assert!(text.contains("\"a,b\",1,time_us,fetch,100000\n"), "{text}");
        assert!(text.contains("\"a,b\",0,pages,page_requests,7\n"), "{text}");
        assert!(text.contains("\"a,b\",all,region_fetch_us,\"say \"\"x\"\"\",1800\n"), "{text}");
    }

    #[test]
    fn spreadsheets_get_labels_whole() {
        let mut odd = run("run");
        let long = format!("grid{}.c:12\nrows", "x".repeat(500));
        (odd.regions[0].label, odd.regions[1].label) = (long.clone(), String::new());
        let text = csv(&[odd]);
        assert!(text.contains(&format!("run,all,region_fetch_us,\"{long}\",1800\n")), "{text}");
        assert!(text.contains("run,all,region_fetch_us,(unnamed),"), "{text}");
    }
}
