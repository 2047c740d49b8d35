//! Networks that are cut in places.

use comem_protocol::rules::{Rule, without};
use comem_protocol::time::Span;
use comem_sim::partition::{Kind, Partition, far_away};

/// Between every pair of 4 and 5 nodes, both ways and one way, for ever and for a while.
#[test]
fn a_job_whose_network_is_cut_between_two_nodes_ends_and_names_both_or_comes_through() {
    for nodes in [2, 4, 5] {
        for (index, partition) in Partition::all(nodes).into_iter().enumerate() {
            let seed = index as u64;
            assert_eq!(partition.run(seed), Vec::<String>::new(), "{partition:?}, seed {seed}");
        }
    }
}

#[test]
fn the_rules_of_cut_networks_are_not_superfluous() {
    // Where there are only two nodes, nobody tells them who is to blame.
    let partitions = [2, 4].map(Partition::all).concat();
    let partitions: Vec<Partition> = partitions.into_iter().filter(|p| p.kind == Kind::Permanent).collect();
    for rule in Rule::CUTS {
        let fails = without(rule, || partitions.iter().any(|partition| !partition.run(1).is_empty()));
        assert!(fails, "without {rule:?} every cut is found as well");
    }
    assert!(partitions.iter().all(|partition| partition.run(1).is_empty()));
}

/// Without what the link learns, every message is sent three times. Some requests wait for others, and are repeated
/// for that.
#[test]
fn round_trips_of_400_ms_cost_few_repetitions() {
    let (found, (datagrams, repetitions)) = far_away(3, Span::from_ms(200), 1);
    assert_eq!(found, Vec::<String>::new());
    assert!(datagrams > 500 && 5 * repetitions < datagrams, "{repetitions} of {datagrams} datagrams");
}
