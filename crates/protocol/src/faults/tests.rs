use super::*;

fn spec(text: &str) -> FaultSpec {
    text.parse().unwrap()
}

fn decisions(plan: &mut FaultPlan, count: usize) -> Vec<Decision> {
    (0..count).map(|i| plan.decide(Time(i as u64 * 1_000), 1_000)).collect()
}

#[test]
fn every_fault_is_read_and_written() {
    let text = "drop=5%,dup=1%,reorder=2%,delay=25us,truncate=1%,corrupt=0.1%,rate=10gbit,seed=7";
    let read = spec(text);
    assert_eq!(read.drop, Chance(50_000_000));
    assert_eq!(read.corrupt, Chance(1_000_000));
    assert_eq!(read.delay, Span::from_us(25));
    assert_eq!((read.rate_bits, read.seed), (10_000_000_000, 7));
    assert_eq!(read.to_string(), text);
}

#[test]
fn cuts_take_what_goes_between_two_nodes_for_a_while() {
    let text = "cut=0-2@1s+500ms/3>1@2s/1>0,longest=1400";
    let read = spec(text);
    assert_eq!(read.to_string(), text);
    assert!(read.has_cuts() && !spec("drop=1%").has_cuts());
    let cut = |ms: u64, from: u16, to: u16| read.cuts_off(Span::from_ms(ms), NodeId(from), NodeId(to));
    assert_eq!([999, 1_000, 1_499, 1_500].map(|ms| cut(ms, 2, 0)), [false, true, true, false]);
    assert_eq!([999, 1_000, 1_499, 1_500].map(|ms| cut(ms, 0, 2)), [false, true, true, false]);
    assert_eq!([(3, 1), (1, 3), (0, 1), (1, 0)].map(|(from, to)| cut(9_000, from, to)), [true, false, false, true]);
    assert_eq!([(3, 1), (1, 0)].map(|(from, to)| cut(0, from, to)), [false, true]);
    let mut plan = FaultPlan::new(&read, 0);
    assert_eq!([1_400, 1_401].map(|len| plan.decide(Time(0), len).is_lost()), [false, true]);
}

#[test]
fn what_is_written_reads_back_the_same() {
    for text in
        ["", "drop=100%", "drop=0.0000001%,seed=18446744073709551615", "delay=1500ns,rate=2500mbit", "dup=12.5%"]
    {
        assert_eq!(spec(text).to_string(), text);
    }
    assert_eq!(spec(" delay = 0.5ms , drop=05.50% ,").to_string(), "drop=5.5%,delay=500us");
}

#[test]
fn nonsense_is_refused_with_a_sentence() {
    for (text, part) in [
        ("drop", "has no value"),
        ("loss=5%", "no fault is called `loss`"),
        ("drop=5", "percentage"),
        ("drop=-1%", "percentage"),
        ("drop=101%", "0% to 100%"),
        ("drop=.5%", "percentage"),
        ("drop=5.%", "percentage"),
        ("drop=0.00000001%", "percentage"),
        ("drop=1%,drop=2%", "twice"),
        ("delay=25", "a time"),
        ("delay=0.5ns", "a time"),
        ("delay=99999999999999999999s", "a time"),
        ("rate=10", "a speed"),
        ("rate=0gbit", "a speed"),
        ("seed=x", "a whole number"),
        ("cut=0", "0-2 (both ways)"),
        ("cut=1-1", "0-2 (both ways)"),
        ("cut=0-1@5", "0-2 (both ways)"),
        ("cut=0-1+", "0-2 (both ways)"),
        ("cut=0-1/1-2/2-3/3-4/4-5", "up to four"),
        ("longest=63", "from 64"),
    ] {
        let error = text.parse::<FaultSpec>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn the_generator_gives_its_published_numbers() {
    let mut rng = Rng([1, 2, 3, 4]);
    let first: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
    assert_eq!(first, [11520, 0, 1509978240, 1215971899390074240]);
    let mut state = 1234567;
    assert_eq!([splitmix(&mut state), splitmix(&mut state)], [6457827717110365317, 3203168211198807973]);
}

/// A change here means that recorded seeds no longer reproduce what they recorded.
#[test]
fn a_seed_gives_the_same_faults_for_ever() {
    let mut plan = FaultPlan::new(&spec("drop=20%,dup=20%,reorder=20%,delay=3us,truncate=20%,corrupt=20%,seed=7"), 3);
    let told: Vec<String> = decisions(&mut plan, 8)
        .iter()
        .map(|d| {
            let each = |c: &Delivery| format!("{}+{}{:?}", c.bytes, c.delay.0, c.flipped_bits());
            d.deliveries().iter().map(each).collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(told, GOLDEN);
}

const GOLDEN: [&str; 8] = [
    "1000+3000[2552]",
    "1000+3000[1351, 6873]",
    "1000+3000[] 305+574827[]",
    "945+3000[94]",
    "1000+3000[] 677+3000[]",
    "1000+3000[2545, 1425]",
    "",
    "",
];

#[test]
fn faults_come_as_often_as_they_were_ordered() {
    let count = 100_000;
    let mut plan = FaultPlan::new(&spec("drop=5%,dup=10%,reorder=20%,truncate=1%,corrupt=2%,seed=1"), 0);
    let all = decisions(&mut plan, count);
    let share = |n: usize, of: usize| n as f64 / of as f64;
    let near = |measured: f64, wanted: f64| (measured / wanted - 1.0).abs() < 0.1;
    let arrivals: Vec<Delivery> = all.iter().flat_map(|d| d.deliveries().to_vec()).collect();
    let of_arrivals = |test: &dyn Fn(&&Delivery) -> bool| share(arrivals.iter().filter(test).count(), arrivals.len());
    assert!(near(share(all.iter().filter(|d| d.is_lost()).count(), count), 0.05));
    assert!(near(share(all.iter().filter(|d| d.deliveries().len() == 2).count(), count), 0.095));
    assert!(near(of_arrivals(&|c| c.delay > Span(0)), 0.2));
    assert!(near(of_arrivals(&|c| c.bytes < 1_000), 0.01));
    assert!(near(of_arrivals(&|c| !c.flipped_bits().is_empty()), 0.02));
}

#[test]
fn kinds_of_fault_do_not_disturb_each_other_and_streams_differ() {
    let lost = |text: &str, stream: u64| -> Vec<bool> {
        decisions(&mut FaultPlan::new(&spec(text), stream), 1_000).iter().map(Decision::is_lost).collect()
    };
    assert_eq!(lost("drop=5%,seed=9", 0), lost("drop=5%,dup=50%,reorder=50%,corrupt=50%,seed=9", 0));
    assert_ne!(lost("drop=5%,seed=9", 0), lost("drop=5%,seed=9", 1));
    assert_ne!(lost("drop=5%,seed=9", 0), lost("drop=5%,seed=10", 0));
}

#[test]
fn a_clean_network_changes_nothing() {
    let clean = spec("seed=5");
    assert!(clean.is_clean() && !clean.holds_datagrams() && !spec("drop=1%").holds_datagrams());
    for held in ["delay=1us", "reorder=1%", "rate=1gbit"] {
        assert!(spec(held).holds_datagrams());
    }
    let mut plan = FaultPlan::new(&clean, 0);
    assert!(decisions(&mut plan, 100).iter().all(|d| d.is_harmless(&[0; 1_000])));
}

#[test]
fn damage_cuts_and_flips_and_an_empty_datagram_survives_it() {
    let mut plan = FaultPlan::new(&spec("truncate=100%,corrupt=100%,seed=2"), 0);
    let datagram = [0u8; 64];
    for _ in 0..1_000 {
        let decision = plan.decide(Time(0), datagram.len());
        let delivery = decision.deliveries()[0];
        let arrived = delivery.apply(&datagram);
        let ones: u32 = arrived.iter().map(|b| b.count_ones()).sum();
        assert!(arrived.len() < datagram.len());
        assert_eq!(ones as usize, delivery.flipped_bits().len());
        assert_eq!(arrived.is_empty(), delivery.flipped_bits().is_empty());
    }
    assert_eq!(plan.decide(Time(0), 0).deliveries()[0].apply(&[]), Vec::<u8>::new());
}

#[test]
fn a_slow_line_sends_one_after_another_and_loses_what_it_cannot_queue() {
    let mut plan = FaultPlan::new(&spec("rate=8mbit"), 0);
    let delay = |d: Decision| d.deliveries().first().map(|c| c.delay.as_us());
    assert_eq!(delay(plan.decide(Time(0), 1_000)), Some(1_000));
    assert_eq!(delay(plan.decide(Time(0), 1_000)), Some(2_000));
    assert_eq!(delay(plan.decide(Time(500_000), 1_000)), Some(2_500));
    assert_eq!(delay(plan.decide(Time(10_000_000), 500)), Some(500));
    let mut plan = FaultPlan::new(&spec("rate=8mbit"), 0);
    let taken = (0..2_000).filter(|_| !plan.decide(Time(0), 1_000).is_lost()).count();
    assert_eq!(taken as u64, LINE_QUEUE_BYTES_MAX / 1_000);
}
