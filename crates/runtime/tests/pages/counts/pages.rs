//! What faults, fetches and diffs cost.

use super::*;

#[test]
fn a_write_to_a_valid_page_raises_no_signal_where_the_kernel_notes_writes() {
    if !works("uffd-async", "a_write_to_a_valid_page_raises_no_signal_where_the_kernel_notes_writes") {
        return;
    }
    for engine in ["hlrc", "scope"] {
        let settings = [("COMEM_ENGINE", engine), ("COMEM_DETECTOR", "uffd-async")];
        let signals = |steps: &str| {
            counted(&job("writes-to-valid-pages", 2, &[&settings[..], &[(STEPS, steps)]].concat()), "signals")
        };
        assert_eq!(signals("0"), signals("50"), "{engine}");
    }
}

#[test]
fn pages_that_nobody_uses_for_long_are_laid_aside_where_the_kernel_notes_writes() {
    for backbone in ["shm", "udp"] {
        for detector in detectors() {
            let settings = [("COMEM_BACKBONE", backbone), ("COMEM_DETECTOR", detector)];
            let laid = counted(&job("idle-for-long", 2, &settings), "laid_aside");
            // Two pages, each with a copy.
            let expected = if detector == "uffd-async" { 4 } else { 0 };
            assert_eq!(laid, expected, "{backbone} {detector}");
        }
    }
}

#[test]
fn copies_that_nobody_writes_have_no_twins_and_stores_to_them_are_forbidden() {
    const NAME: &str = "copies_that_nobody_writes_have_no_twins_and_stores_to_them_are_forbidden";
    if !works("uffd-async", NAME) {
        return;
    }
    for backbone in ["udp", "shm"] {
        for engine in ["hlrc", "scope"] {
            let settings = |steps| {
                [
                    ("COMEM_BACKBONE", backbone),
                    ("COMEM_DETECTOR", "uffd-async"),
                    ("COMEM_ENGINE", engine),
                    (STEPS, steps),
                ]
            };
            let read = job("quiet", 2, &settings("0"));
            // The first table has twins of what came before its first long run.
            let (twins, fetched) = (counted(&read, "twins_made"), counted(&read, "pages_fetched"));
            assert!(fetched == 3 * 512 && twins <= 512, "{twins} twins of {fetched} pages, {backbone} {engine}");
            let written = job("quiet", 2, &settings("1"));
            assert!(counted(&written, "twins_made") >= 3 * 512, "{backbone} {engine}");
        }
    }
}

#[test]
fn all_diffs_for_one_home_travel_in_one_message_or_in_none() {
    for (nodes, backbone) in [(2, "udp"), (4, "shm")] {
        let writers = nodes as u64 - 1;
        for detector in detectors() {
            let settings = [("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone)];
            let of_diffs = if (backbone, detector) == ("shm", "uffd-async") { 0 } else { writers };
            let diffs = 20 * writers;
            let expected = [("messages_sent", 2 * writers + of_diffs), ("diffs_sent", diffs), ("diffs_applied", diffs)];
            costs("diffs-for-one-home", nodes, &settings, &expected);
        }
    }
}

#[test]
fn threads_of_a_node_that_fault_on_one_page_fetch_it_once() {
    for detector in detectors() {
        for backbone in ["udp", "shm"] {
            let settings = [
                ("COMEM_DETECTOR", detector),
                ("COMEM_BACKBONE", backbone),
                ("COMEM_THREADS", "2"),
                ("COMEM_PREFETCH", "off"),
            ];
            let outcome = job("threads-that-fault-together", 2, &settings);
            assert_eq!(counted(&outcome, "pages_fetched"), 64, "{detector}, {backbone}");
            // Under shm most are taken without being asked for.
            if backbone == "udp" {
                assert_eq!(counted(&outcome, "page_requests"), 64, "{detector}");
            }
        }
    }
}

#[test]
fn under_shm_a_page_that_was_asked_for_once_is_taken_without_asking_from_then_on() {
    if !works("uffd-async", "under_shm_a_page_that_was_asked_for_once_is_taken_without_asking_from_then_on") {
        return;
    }
    for engine in ["hlrc", "scope"] {
        let settings = [
            ("COMEM_ENGINE", engine),
            ("COMEM_BACKBONE", "shm"),
            ("COMEM_DETECTOR", "uffd-async"),
            ("COMEM_PREFETCH", "off"),
        ];
        let expected = [("pages_taken", 64 + 1), ("page_requests", 0), ("pages_fetched", 64 + 1)];
        costs("read-in-turn", 2, &settings, &expected);
    }
    let outcome = job("read-in-turn", 2, &[("COMEM_BACKBONE", "udp"), (STEPS, "3")]);
    assert_eq!(counted(&outcome, "pages_taken"), 0, "there is no table of offers");
}

#[test]
fn over_a_network_pages_that_are_read_whenever_their_home_has_written_them_come_without_being_asked_for() {
    for engine in ["hlrc", "scope"] {
        for detector in detectors() {
            let settings =
                [("COMEM_ENGINE", engine), ("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", "udp"), (STEPS, "20")];
            // What they hold is checked by who reads them. A node that loses its processor for long may find that they
            // are late.
            let (mut used, mut sent) = (0, 0);
            let mostly = (0..40).any(|_| {
                let outcome = job("read-in-turn", 2, &settings);
                (used, sent) = (counted(&outcome, "pages_pushed_used"), counted(&outcome, "pages_pushed"));
                used >= 12 * 60 && used * 4 >= sent * 3
            });
            assert!(mostly, "{engine}, {detector}: {used} of {sent} sent were used");
        }
        // Who sleeps has a socket of its own for them, unless the ports are counted.
        for extra in [("COMEM_WAIT", "spin"), ("COMEM_WAIT", "block"), ("COMEM_PORTS", "20000-32000")] {
            let settings =
                [("COMEM_ENGINE", engine), ("COMEM_BACKBONE", "udp"), ("COMEM_WAIT", "block"), (STEPS, "20"), extra];
            let mut used = 0;
            let mostly = (0..20).any(|_| {
                used = counted(&job("read-in-turn", 2, &settings), "pages_pushed_used");
                used >= 12 * 60
            });
            assert!(mostly, "{engine}, {extra:?}: {used} were used");
        }
        for wait in ["spin", "block"] {
            let harmed = [
                ("COMEM_ENGINE", engine),
                ("COMEM_BACKBONE", "udp"),
                ("COMEM_FAULTS", "drop=5%,dup=5%,reorder=10%"),
                ("COMEM_WAIT", wait),
                (STEPS, "20"),
            ];
            let outcome = job("read-in-turn", 2, &harmed);
            let (used, sent) = (counted(&outcome, "pages_pushed_used"), counted(&outcome, "pages_pushed"));
            assert!(used > 0 && used < sent, "{engine}, {wait}: {used} of {sent}, of which some were lost");
        }
        let outcome = job("read-in-turn", 2, &[("COMEM_ENGINE", engine), ("COMEM_BACKBONE", "shm"), (STEPS, "20")]);
        assert_eq!(counted(&outcome, "pages_pushed"), 0, "{engine}: nodes of one host take pages themselves");
    }
}

#[test]
fn over_a_network_the_pages_of_a_critical_section_come_with_its_lock() {
    // One page, homed at node 0, in the sections of nodes 0, 1 and 2 in turn. What two of three steps cost is a
    // request, until the page comes with the token.
    for (engine, asked) in [("hlrc", 0), ("scope", 20)] {
        for detector in detectors() {
            let requests = |steps: &str| {
                let fixed = [("COMEM_ENGINE", engine), ("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", "udp")];
                let outcome = job("lock-in-turn", 3, &[&fixed[..], &[(STEPS, steps)]].concat());
                counted(&outcome, "page_requests")
            };
            // A node that loses its processor for long asks again.
            let (mut few, mut many) = (u64::MAX, u64::MAX);
            let exact = (0..10).any(|_| {
                (few, many) = (few.min(requests("30")), many.min(requests("60")));
                many == few + asked
            });
            assert!(exact, "{engine}, {detector}: {few} requests in 30 steps, {many} in 60");
        }
    }
    let harmed = [("COMEM_BACKBONE", "udp"), ("COMEM_FAULTS", "drop=5%,dup=5%,reorder=10%"), (STEPS, "60")];
    let outcome = job("lock-in-turn", 3, &harmed);
    assert!(counted(&outcome, "pages_pushed_used") > 0, "{:?}", outcome.stats);
}

#[test]
fn a_home_page_that_nobody_else_holds_costs_nothing_when_it_is_written() {
    for detector in detectors() {
        let settings = [("COMEM_DETECTOR", detector)];
        let expected = ["signals", "write_notices", "diffs_sent", "twins_made"].map(|name| (name, 0));
        costs("private-pages", 2, &settings, &expected);
    }
}

#[test]
fn no_home_moves_to_who_has_written_a_page_to_set_it_up_for_others() {
    for detector in detectors() {
        let settings = [("COMEM_DETECTOR", detector), ("COMEM_THREADS", "1")];
        let moved =
            |steps: &str| counted(&job("set-up", 2, &[&settings[..], &[(STEPS, steps)]].concat()), "migrations");
        assert_eq!((moved("0"), moved("1")), (4, 0), "{detector}");
    }
}

#[test]
fn what_a_region_under_msi_costs_is_booked() {
    for backbone in ["udp", "shm"] {
        let settings = [("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "1"), (STEPS, "20")];
        let outcome = job("written-in-turn", 2, &settings);
        for (node, stats) in &outcome.stats {
            let regions = stats["regions"].as_array().expect("regions");
            let region = regions.iter().find(|region| region["engine"] == "msi").expect("the region");
            let count = |name: &str| region[name].as_u64().unwrap_or(0);
            // The home has the page at first, and node 1 has it in the end.
            let expected = if *node == 0 { [9, 10] } else { [10, 9] };
            assert_eq!([count("pages_fetched"), count("invalidations")], expected, "{backbone}, node {node}: {region}");
            assert!(count("fetch_us") > 0, "{backbone}, node {node}: {region}");
        }
    }
}

#[test]
fn untouched_pages_are_their_first_writers_own_some_of_them_once_workers_have_begun() {
    for (detector, backbone) in detectors().into_iter().flat_map(|d| [(d, "udp"), (d, "shm")]) {
        for nodes in [2, 4] {
            let settings = [("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "1")];
            let counts = |outcome: &Outcome| ["pages_fetched", "diffs_sent"].map(|name| counted(outcome, name));
            let pages = 16 * nodes as u64;
            for role in ["untouched", "untouched-automatic"] {
                let run = |steps: &str| job(role, nodes, &[&settings[..], &[(STEPS, steps)]].concat());
                let late = role == "untouched";
                assert_eq!(counts(&run("0"))[1], if late { pages } else { 0 }, "{detector}, {backbone}, {role}");
                let own = run("1");
                assert_eq!(counts(&own), [0, 0], "{detector}, {backbone}, {role}");
                assert_eq!(counted(&own, "claimed"), pages, "{detector}, {backbone}, {role}");
                let tables = backbone == "shm" && detector == "uffd-async";
                let asks = counted(&own, "page_requests");
                assert_eq!(asks == 0, tables, "{detector}, {backbone}, {role}: who claims asks nobody");
                assert_eq!(counts(&run("2")), [pages * (nodes as u64 - 1), 0], "{detector}, {backbone}, {role}");
            }
        }
    }
}

#[test]
fn who_goes_through_memory_in_order_asks_in_long_runs_whoever_has_it() {
    for backbone in ["udp", "shm"] {
        let settings = [("COMEM_BACKBONE", backbone), ("COMEM_THREADS", "1")];
        let outcome = job("in-order", 2, &settings);
        // In growing runs up to 60 pages, first of its own and then of the other node's, in chunks of 512; twice 512
        // pages each.
        let faults = counted(&outcome, "signals");
        assert!(faults <= 2 * (4 + 2 * 512_u64.div_ceil(60) + 2), "{backbone}: {faults} signals");
    }
}

#[test]
fn who_asks_for_a_page_during_a_long_close_need_not_wait_for_its_end() {
    for engine in ["hlrc", "scope"] {
        let settings = [("COMEM_ENGINE", engine), ("COMEM_THREADS", "2"), ("COMEM_PREFETCH", "off")];
        // On a busy host the reader may not get a processor while the close lasts.
        let answered = (0..40).any(|_| {
            let outcome = job("long-close", 2, &settings);
            let of_node_0 = |name: &str| outcome.stats[&0]["pages"][name].as_u64().unwrap_or(0);
            assert!(of_node_0("slices") >= 24, "{engine}: {:?}", outcome.stats[&0]);
            of_node_0("between_slices") > 0
        });
        assert!(answered, "{engine}: no request was ever answered between two slices");
    }
}

#[test]
fn false_sharing_is_found_to_the_byte_and_true_sharing_is_none() {
    for (detector, backbone) in detectors().into_iter().flat_map(|d| [(d, "udp"), (d, "shm")]) {
        let settings = [("COMEM_DETECTOR", detector), ("COMEM_BACKBONE", backbone), (STEPS, "12")];
        let outcome = job("shared-falsely", 4, &settings);
        let found = &outcome.stats[&0]["regions"][0]["false_sharing"];
        let often = |page: &&serde_json::Value| page["times"].as_u64() > Some(6);
        let often: Vec<_> = found.as_array().unwrap().iter().filter(often).collect();
        let mut pages: Vec<_> = often.iter().map(|page| page["offset"].as_u64().unwrap() / 4096).collect();
        pages.sort_unstable();
        assert_eq!(pages, [0, 1, 2, 3, 4], "{detector}, {backbone}: {found}");
        for page in often {
            let nodes = page["nodes"].as_array().unwrap();
            assert!([1, 2, 3].iter().all(|node| nodes.contains(&(*node).into())), "{detector}, {backbone}: {found}");
        }
    }
}

#[test]
fn under_msi_false_sharing_is_found_by_those_who_write_in_turn() {
    for backbone in ["udp", "shm"] {
        let settings = [("COMEM_ENGINE", "msi"), ("COMEM_BACKBONE", backbone), (STEPS, "60")];
        let outcome = job("to-and-fro", 2, &settings);
        let found: Vec<(u64, u64)> = (outcome.stats.values())
            .flat_map(|stats| stats["regions"][0]["false_sharing"].as_array().unwrap().clone())
            .map(|page| (page["offset"].as_u64().unwrap(), page["nodes"][0].as_u64().unwrap()))
            .collect();
        assert!(!found.is_empty() && found.iter().all(|(offset, _)| *offset == 0), "{backbone}: {found:?}");
        let nodes: std::collections::BTreeSet<u64> = found.iter().map(|(_, node)| *node).collect();
        assert_eq!(nodes, [0, 1].into(), "{backbone}");
    }
}

#[test]
fn writes_that_are_not_looked_at_for_false_sharing_are_counted() {
    if !works("uffd-async", "writes_that_are_not_looked_at_for_false_sharing_are_counted") {
        return;
    }
    // A home keeps notes of so many pages that others have put into its memory.
    const NOTES: usize = 1 << 14;
    for (pages, unseen) in [(NOTES, 0), (NOTES + 216, 216)] {
        let place = [("COMEM_DETECTOR", "uffd-async"), ("COMEM_BACKBONE", "shm")];
        let outcome = job("many-puts", 2, &[&place[..], &[(STEPS, pages.to_string().as_str())]].concat());
        assert_eq!(outcome.stats[&0]["pages"]["sharing_unseen"], unseen, "{pages} pages");
    }
}
