//! What Rust programs see of slices in shared memory: values, places, iterators, plain structs, atomic operations. A
//! job of one node.

use comem::heap::{PageSlice, Plain, RegionOptions};

#[derive(Clone, Copy, PartialEq, Debug, Plain)]
struct Body {
    place: [f64; 3],
    mass: f64,
    kind: u32,
    flags: [u16; 2],
}

#[derive(Clone, Copy, PartialEq, Debug, Plain)]
struct Pair(Body, Body);

#[derive(Clone, Copy, Plain)]
struct Nothing;

#[test]
fn slices_are_read_and_written_as_rust_programs_expect() {
    let comem = comem::start().expect("a job of one node");
    let options = RegionOptions::default();
    let numbers: PageSlice<i64> = comem.page_slice(10, &options).unwrap();
    numbers.copy_from_slice(&[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]);
    assert_eq!(numbers.iter().sum::<i64>(), 39);
    assert_eq!(numbers.iter().rev().take(2).collect::<Vec<_>>(), [3, 5]);
    assert_eq!((numbers.iter().len(), numbers.into_iter().max()), (10, Some(9)));
    let mut seen = Vec::new();
    for number in &numbers {
        seen.push(number);
    }
    assert_eq!(seen, numbers.to_vec());
    // A place is no value: what others store is seen.
    let place = &numbers[2];
    numbers.set(2, 7);
    assert_eq!(place.get(), 7);
    numbers[3].set(numbers[2].get() + 1);
    numbers[3].update(|n| n * 2);
    assert_eq!((numbers.get(3), format!("{:?}", numbers[3])), (16, "16".to_string()));
    let part = numbers.part(8..10);
    part.fill(-1);
    assert_eq!((part.len(), numbers.get(8), numbers.get(9)), (2, -1, -1));
    assert!(numbers.part(10..10).is_empty());
    let outside = std::panic::catch_unwind(|| numbers[10].get());
    assert!(outside.is_err());
    assert!(std::panic::catch_unwind(|| numbers.part(9..11)).is_err());
    assert!(std::panic::catch_unwind(|| part.copy_from_slice(&[1])).is_err());

    let bodies: PageSlice<Body> = comem.page_slice(3, &options).unwrap();
    let body = Body { place: [1.0, 2.0, 3.0], mass: 4.5, kind: 6, flags: [7, 8] };
    bodies.set(1, body);
    assert_eq!(bodies[1].get(), body);
    assert_eq!(bodies.get(0).mass, 0.0, "new memory is zero");
    let pairs = comem.page_slice::<Pair>(1, &options).unwrap();
    pairs.set(0, Pair(body, body));
    assert_eq!(pairs.get(0).1, body);
    // Elements of shared arrays are plain, too.
    let array = comem.object_array::<Body>(2).unwrap();
    comem.parallel(|t| {
        array.write(t, 1, body);
        assert_eq!(array.read(t, 1), body);
        t.node_barrier();
        let counts = comem.page_slice::<u32>(2, &options).unwrap();
        assert_eq!((counts.fetch_add(t, 0, 5), counts.fetch_sub_relaxed(t, 0, 7)), (0, 5));
        assert_eq!((counts.get(0), counts.get(1)), (u32::MAX - 1, 0));
        assert_eq!(counts.compare_exchange(t, 0, u32::MAX - 1, 3), u32::MAX - 1);
        assert_eq!(
            (counts.fetch_max(t, 0, 9), counts.fetch_min_relaxed(t, 0, 4), counts.load_relaxed(t, 0)),
            (3, 9, 4)
        );
        let mut got = Vec::new();
        t.for_dynamic(10, 4, |items| got.extend(items));
        assert_eq!(got, (0..10).collect::<Vec<_>>());
        t.for_dynamic(10, 0, |items| got.extend(items));
        assert_eq!(got.len(), 20);
        let within = std::cell::Cell::new(false);
        t.for_dynamic(1, 1, |_| within.set(t.checked_for_dynamic(1, 1, |_| ()).is_err()));
        assert!(within.get(), "a loop within a loop is refused");
    });
    let _ = Nothing;
    comem.finish().unwrap();
}
