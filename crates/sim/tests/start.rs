//! Whole jobs: start, barriers, stop.

use comem_sim::startup::start_pass_stop;

#[test]
fn a_hundred_and_twenty_eight_nodes_start_pass_a_hundred_barriers_and_stop() {
    let faults = "drop=20%,dup=10%,reorder=10%".parse().unwrap();
    let (violations, outcome) = start_pass_stop(128, 100, faults, 1);
    assert_eq!(violations, Vec::<String>::new());
    assert_eq!(outcome.records.len(), 128 * 100, "every node passed every barrier");
}

#[test]
fn jobs_of_every_small_size_start_and_stop_over_a_bad_network() {
    let faults = "drop=20%,dup=10%,reorder=10%,corrupt=2%,truncate=2%".parse().unwrap();
    for nodes in 1..=12 {
        for seed in 0..5 {
            let (violations, _) = start_pass_stop(nodes, 10, faults, seed);
            assert_eq!(violations, Vec::<String>::new(), "{nodes} nodes, seed {seed}");
        }
    }
}
