use super::*;
use std::os::fd::AsFd;

/// Both sides of a lane, and a third look at its memory for those who break the rules.
fn lane() -> (Producer, Consumer, Mapping) {
    let file = super::super::sys::memory_file(c"comem-test", LANE_BYTES).unwrap();
    let file = file.as_fd();
    (Producer::new(file).unwrap(), Consumer::new(file).unwrap(), Mapping::of(file, LANE_BYTES).unwrap())
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 131 + seed * 7 + (i >> 8)) as u8).collect()
}

/// Numbers that look random, the same in every run.
fn numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

fn take(consumer: &mut Consumer) -> Option<(Vec<u8>, Record)> {
    let mut buffer = [0; crate::RECEIVE_BUFFER_BYTES];
    consumer.take(&mut buffer).map(|record| (buffer[..record.len].to_vec(), record))
}

#[test]
fn records_of_every_size_come_out_as_they_went_in() {
    let (mut producer, mut consumer, _) = lane();
    for len in (0..300).chain([1_471, 4_096, 16_383, 65_506, BATCH_BYTES_MAX]).chain((0..BATCH_BYTES_MAX).step_by(997))
    {
        let bytes = pattern(len, len);
        assert!(producer.push(&bytes, 1_472, 4_711));
        let (got, record) = take(&mut consumer).unwrap();
        assert_eq!(record, Record { port: 4_711, len, segment: 1_472.min(len.max(1)), more: false });
        assert_eq!(got, bytes, "{len} bytes");
        assert_eq!(take(&mut consumer), None);
    }
    assert_eq!(consumer.damaged, 0);
}

#[test]
fn a_lane_that_is_never_empty_wraps_round_with_all_sizes() {
    let (mut producer, mut consumer, _) = lane();
    let mut number = numbers(1);
    let mut waiting = std::collections::VecDeque::new();
    let (mut pushed, mut full, mut moved) = (0, 0, 0);
    while moved < 3 * RING_BYTES {
        let len = number() as usize % if number().is_multiple_of(4) { BATCH_BYTES_MAX + 1 } else { 300 };
        let bytes = pattern(len, pushed);
        if producer.push(&bytes, 1_000, 9) {
            waiting.push_back(bytes);
            pushed += 1;
        } else {
            full += 1;
        }
        // Never the last one, so that the producer has no occasion to go back to the start.
        while waiting.len() > 1 && number().is_multiple_of(3) {
            let (got, record) = take(&mut consumer).unwrap();
            assert!(record.more);
            assert!(Some(&got) == waiting.pop_front().as_ref());
            moved += got.len();
        }
    }
    assert!(pushed > 1_000 && full > 10, "{pushed} went in, {full} times it was full");
    assert_eq!(consumer.damaged, 0);
}

#[test]
fn a_full_lane_refuses_and_recovers() {
    let (mut producer, mut consumer, _) = lane();
    let bytes = pattern(60_000, 3);
    let fitting = (0..100).take_while(|_| producer.push(&bytes, 60_000, 1)).count();
    assert_eq!(fitting, RING_BYTES / record_bytes(60_000));
    assert!(!producer.push(&bytes, 60_000, 1));
    assert!(take(&mut consumer).is_some());
    assert!(producer.push(&bytes, 60_000, 1) && !producer.push(&bytes, 60_000, 1));
    assert_eq!(std::iter::from_fn(|| take(&mut consumer)).filter(|(got, _)| *got == bytes).count(), fitting);
    assert!(producer.push(b"again", 5, 1));
    assert_eq!(take(&mut consumer).unwrap().0, b"again");
}

#[test]
fn a_lane_has_all_its_room_wherever_it_begins() {
    for before in 0..40 {
        let (mut producer, mut consumer, _) = lane();
        for _ in 0..before {
            assert!(producer.push(&pattern(3_000, 1), 3_000, 1) && take(&mut consumer).is_some());
        }
        let fitting = (0..2_000).take_while(|_| producer.push(&pattern(4_080, 2), 4_080, 1)).count();
        // Before the first rewinding, one record's room may be lost at the end of the ring.
        assert!(fitting >= RING_BYTES / 4_096 - 1, "{fitting} after {before} others");
        assert_eq!(std::iter::from_fn(|| take(&mut consumer)).count(), fitting);
    }
}

#[test]
fn an_emptied_lane_begins_anew_and_stays_small() {
    let (mut producer, mut consumer, memory) = lane();
    for round in 0..10_000 {
        assert!(producer.push(&pattern(4_096, round), 4_096, 1));
        assert_eq!(take(&mut consumer).unwrap().0, pattern(4_096, round));
    }
    const TOUCHED: usize = 2 * REWIND_FROM;
    let mut rest = vec![0; RING_BYTES - TOUCHED];
    memory.read(RING + TOUCHED, &mut rest);
    assert!(rest.iter().all(|byte| *byte == 0), "40 MB went through, and touched 16 KiB");
}

#[test]
fn what_exceeds_the_buffer_is_cut_off() {
    let (mut producer, mut consumer, _) = lane();
    assert!(producer.push(b"a long record", 4, 1) && producer.push(b"next", 4, 1));
    let mut small = [0; 6];
    let record = consumer.take(&mut small).unwrap();
    assert_eq!((record, &small), (Record { port: 1, len: 6, segment: 4, more: true }, b"a long"));
    assert_eq!(take(&mut consumer).unwrap().0, b"next");
}

#[test]
fn damaged_headers_and_positions_cost_records_and_nothing_else() {
    let mut number = numbers(2);
    let mut recovered = 0;
    for round in 0..1_000 {
        let (mut producer, mut consumer, memory) = lane();
        // Somewhere in the ring, also just before its end.
        for _ in 0..number() % 40 {
            assert!(producer.push(&pattern(number() as usize % 60_000, round), 1_000, 1));
            assert!(take(&mut consumer).is_some());
        }
        let count = 1 + number() % 6;
        (0..count).for_each(|_| assert!(producer.push(&pattern(number() as usize % 3_000, round), 1_000, 1)));
        let wild = [number() << 31 ^ number(), number() % (1 << 21), u64::MAX, 0][number() as usize % 4];
        let at = offset(consumer.head, producer.base);
        match number() % 5 {
            0 => memory.word(TAIL).store(wild, Release),
            1 => memory.word(HEAD).store(wild, Release),
            2 => memory.word(BASE).store(wild, Release),
            _ => {
                let header = Header {
                    kind: [RECORD, SKIP, 0, wild as u16][number() as usize % 4],
                    port: 1,
                    len: [u32::MAX, wild as u32, 65_507, 70_000][number() as usize % 4],
                    segment: wild as u32,
                };
                memory.write(RING + at, &header.bytes());
            }
        }
        let came = (0..20).filter(|_| take(&mut consumer).is_some()).count();
        assert!(came < 20, "what was made up must not go on for ever");
        // Two records: the first may be lost in setting a position right.
        for _ in 0..2 {
            producer.push(b"whole again", 11, 1);
            while let Some((got, _)) = take(&mut consumer) {
                recovered += usize::from(got == b"whole again");
            }
        }
    }
    assert!(recovered >= 1_000, "{recovered} of 2000 records after the damage");
}

#[test]
fn a_position_that_the_consumer_cannot_have_is_not_believed() {
    for wild in [u64::MAX, 1 << 40, 8_192 + 64] {
        let (mut producer, mut consumer, memory) = lane();
        for _ in 0..2 {
            assert!(producer.push(&pattern(4_080, 1), 4_080, 1) && take(&mut consumer).is_some());
        }
        memory.word(HEAD).store(wild, Release);
        assert_eq!(take(&mut consumer), None);
        assert_eq!(memory.word(HEAD).load(Acquire), consumer.head, "the consumer has set it right");
        memory.word(HEAD).store(wild, Release);
        assert!(producer.push(b"there is room", 13, 1), "{wild}");
        assert_eq!(take(&mut consumer).unwrap().0, b"there is room");
        assert_eq!(memory.word(HEAD).load(Acquire), consumer.head, "the consumer has set it right");
    }
}

#[test]
fn a_producer_that_dies_before_it_moves_the_tail_leaves_nothing() {
    let (mut producer, mut consumer, memory) = lane();
    assert!(producer.push(b"whole", 5, 1));
    let half = Header { kind: RECORD, port: 1, len: 5_000, segment: 1 };
    memory.write(RING + offset(producer.tail, producer.base), &half.bytes());
    assert_eq!(take(&mut consumer).unwrap().0, b"whole");
    assert!(take(&mut consumer).is_none() && consumer.is_empty());
}

#[test]
fn a_file_that_could_be_shortened_is_not_mapped() {
    let plain = std::fs::File::open("/proc/self/exe").unwrap();
    let error = Producer::new(plain.as_fd()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let short = super::super::sys::memory_file(c"comem-test", RING_BYTES).unwrap();
    assert!(Producer::new(short.as_fd()).is_err());
}

#[test]
fn a_record_that_claims_more_than_was_written_is_not_delivered() {
    let (mut producer, mut consumer, memory) = lane();
    for len in [49, 5_000, BATCH_BYTES_MAX as u32, BATCH_BYTES_MAX as u32 + 1, u32::MAX] {
        assert!(producer.push(b"honest", 6, 1));
        let header = Header { kind: RECORD, port: 1, len, segment: 1 };
        memory.write(RING + offset(consumer.head, producer.base), &header.bytes());
        assert_eq!(take(&mut consumer), None, "{len} bytes");
        assert!(producer.push(b"next", 4, 1));
        assert_eq!(take(&mut consumer).unwrap().0, b"next");
    }
    assert_eq!(consumer.damaged, 5);
    // As much as it claims was written, but not by one send.
    (0..2).for_each(|_| assert!(producer.push(&pattern(40_000, 1), 1_000, 1)));
    let header = Header { kind: RECORD, port: 1, len: BATCH_BYTES_MAX as u32 + 1, segment: 1 };
    memory.write(RING + offset(consumer.head, producer.base), &header.bytes());
    assert_eq!((take(&mut consumer), consumer.damaged), (None, 6));
}

/// A header that began there would reach over the ring's end.
#[test]
fn a_base_or_a_tail_between_two_lines_costs_records_and_nothing_else() {
    for place in [BASE, TAIL] {
        for beside in [8, 56, 63] {
            let (mut producer, mut consumer, memory) = lane();
            assert!(producer.push(b"lost", 4, 1));
            memory.word(place).store(consumer.head.wrapping_add(beside), Release);
            assert_eq!((take(&mut consumer), consumer.damaged), (None, 1));
            // The first may be lost in setting the position right.
            (0..2).for_each(|_| assert!(producer.push(b"whole again", 11, 1)));
            assert_eq!(std::iter::from_fn(|| take(&mut consumer)).last().unwrap().0, b"whole again");
        }
    }
}
