//! Which cores the threads of a job may run on.

use crate::launcher::{Outcome, start};
use comem::Comem;
use comem::bind::{allowed_cores, in_words};
use std::collections::BTreeSet;
use std::time::Duration;

/// Names all cores that the host allows.
const ALL: &str = "TEST_ALL_CORES";

/// Each thread says where it may run, and so does the service thread.
pub fn play(comem: &Comem) {
    comem.parallel(|t| {
        // What a thread starts may run where it may.
        let inherited = std::thread::scope(|s| s.spawn(allowed_cores).join());
        assert_eq!(inherited.expect("a thread ends"), allowed_cores());
        println!("cores app {}:{}", t.local_id(), in_words(&allowed_cores()));
        t.barrier();
    });
    // The service thread takes its name and its cores itself, once it has a core to do so.
    let all = std::env::var(ALL).unwrap_or_default();
    let (mut seen, mut named) = (None, 0);
    for _ in 0..2000 {
        seen = of_the_service_thread();
        named += usize::from(seen.is_some());
        // It takes its cores right behind its name, if it takes any.
        if named == 50 || seen.as_ref().is_some_and(|line| *line != all) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    if let Some(line) = seen {
        println!("cores service {line}");
    }
}

/// Each thread is put onto the other node's core, is free to go, and waits.
pub fn stray(comem: &Comem) {
    let all = allowed_cores();
    comem.parallel(|t| {
        for _ in 0..50 {
            place_on(&[all[all.len() - 1 - t.id() % 2 * (all.len() - 1)]]);
            place_on(&all);
            t.barrier();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(allowed_cores(), all, "a thread that came back may go everywhere");
    });
}

fn place_on(cores: &[usize]) {
    // SAFETY: a set of plain numbers; the call reads it, and the numbers are ones that the system named.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cores.iter().for_each(|core| libc::CPU_SET(*core, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    assert_eq!(done, 0, "{:?}", std::io::Error::last_os_error());
}

fn of_the_service_thread() -> Option<String> {
    std::fs::read_dir("/proc/self/task").expect("this process has threads").find_map(|task| {
        let read = |name: &str| std::fs::read_to_string(task.as_ref().expect("a thread").path().join(name));
        let service = read("comm").is_ok_and(|name| name.trim() == "comem-service");
        read("status").ok().filter(|_| service).as_deref().and_then(allowed_line)
    })
}

fn allowed_line(status: &str) -> Option<String> {
    status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).map(|l| l.trim().to_string())
}

/// Where each node's application threads may run; all of a node's must say the same.
fn said(outcome: &Outcome, threads: usize) -> Vec<String> {
    assert!(outcome.statuses.iter().all(|s| *s == Some(0)), "{outcome:#?}");
    let of_node = |text: &String| {
        let all: Vec<&str> =
            text.lines().filter_map(|l| Some(l.split_once("cores app ")?.1.split_once(':')?.1)).collect();
        assert_eq!(all.len(), threads, "{text}");
        assert!(all.windows(2).all(|w| w[0] == w[1]), "{text}");
        all[0].to_string()
    };
    outcome.outputs.iter().map(of_node).collect()
}

fn cores_of(words: &str) -> BTreeSet<usize> {
    let run = |word: &str| {
        let (low, high) = word.split_once('-').unwrap_or((word, word));
        low.parse::<usize>().expect("a core")..=high.parse::<usize>().expect("a core")
    };
    words.split(',').flat_map(run).collect()
}

fn job(nodes: usize, threads: usize, bind: &str) -> Outcome {
    let (threads, all) = (threads.to_string(), in_words(&allowed_cores()));
    start("cores", nodes, &[("COMEM_THREADS", &threads), ("COMEM_BIND", bind), (ALL, &all)], &[]).finish()
}

/// Where each node's service thread may run.
fn said_of_service_threads(outcome: &Outcome) -> Vec<BTreeSet<usize>> {
    let lines = outcome.outputs.iter().flat_map(|text| text.lines().find_map(|l| l.split_once("cores service ")));
    lines.map(|(_, words)| cores_of(words.trim())).collect()
}

#[test]
fn nodes_that_fit_the_host_have_cores_of_their_own() {
    let all = allowed_cores();
    for (nodes, threads) in [(1, 1), (2, 1), (1, 2)].into_iter().filter(|(n, t)| n * t <= all.len()) {
        let outcome = job(nodes, threads, "cores");
        let shares: Vec<BTreeSet<usize>> = said(&outcome, threads).iter().map(|words| cores_of(words)).collect();
        assert!(shares.iter().all(|share| share.len() >= threads), "{shares:?}");
        assert_eq!(shares.iter().map(BTreeSet::len).sum::<usize>(), all.len(), "they share no core: {shares:?}");
        assert_eq!(said_of_service_threads(&outcome), shares, "service threads have the same");
        assert_eq!(shares.into_iter().flatten().collect::<Vec<_>>(), all, "no core is left out");
    }
}

#[test]
fn threads_that_went_astray_come_back_when_they_have_waited() {
    if allowed_cores().len() < 2 {
        eprintln!("skipped: one core has no other");
        return;
    }
    let moves = |bind| {
        let outcome = start("stray", 2, &[("COMEM_BIND", bind)], &[]).finish();
        assert!(outcome.statuses.iter().all(|s| *s == Some(0)), "{outcome:#?}");
        crate::counter(&outcome, "came_back")
    };
    // The system may take some of the hundred back itself, and lead others astray.
    let came_back = moves("auto");
    assert!(came_back > 0, "{came_back}");
    assert_eq!((moves("off"), moves("cores")), (0, 0));
}

#[test]
fn service_threads_stay_where_threads_come_back_to() {
    let all = allowed_cores();
    if all.len() < 2 {
        eprintln!("skipped: one core has no other");
        return;
    }
    let of = |nodes, bind| said_of_service_threads(&job(nodes, 1, bind));
    let (auto, everywhere) = (of(2, "auto"), BTreeSet::from_iter(all.iter().copied()));
    assert!(auto.len() == 2 && auto[0].is_disjoint(&auto[1]), "{auto:?}");
    assert_eq!(auto.iter().flatten().copied().collect::<BTreeSet<_>>(), everywhere);
    assert_eq!(of(2, "off"), vec![everywhere.clone(); 2]);
    assert_eq!(of(all.len() + 1, "auto"), vec![everywhere; all.len() + 1], "they do not fit");
}

#[test]
fn nodes_that_do_not_fit_or_are_not_to_stay_run_everywhere() {
    let all = allowed_cores();
    let everywhere = in_words(&all);
    for (nodes, threads, bind) in [(all.len() + 1, 1, "cores"), (2, all.len(), "cores"), (2, 1, "off"), (2, 1, "auto")]
    {
        let said = said(&job(nodes, threads, bind), threads);
        assert!(said.iter().all(|words| *words == everywhere), "{nodes} nodes of {threads}, {bind}: {said:?}");
    }
}
