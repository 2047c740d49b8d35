//! Shared objects under the engine `direct`: what the nodes of the test jobs do. Their code has no checks.

use comem::{Comem, Engine, Home, LockId, NodeId, ObjectOptions, Thread};
use comem_protocol::coherence::direct::MAGIC;

pub fn play(role: &str, comem: Comem) {
    match role {
        "object-cases" => cases(&comem),
        "object-sums" => sums(&comem),
        "object-shapes" => shapes(&comem),
        "object-wide" => wide(&comem),
        "object-killed" => killed(&comem),
        "object-index" => {
            let named = ObjectOptions { label: Some("temperatures".to_string()), ..ObjectOptions::default() };
            let array = comem.object_array_with::<u32>(12, &named).expect("an array");
            comem.parallel(|t| assert_eq!(array.read(t, 12), 0));
        }
        other => panic!("no role {other}"),
    }
    comem.finish().expect("the job ends");
}

fn on(homes: Home, label: &str) -> ObjectOptions {
    ObjectOptions { home: homes, label: Some(label.to_string()), ..ObjectOptions::default() }
}

/// The accesses of `roles::cases`, which come to the operations of `roles::CASES`.
fn cases(comem: &Comem) {
    let words = comem.object_array_with::<u64>(1000, &on(Home::On(NodeId(0)), "words")).expect("an array");
    assert_eq!((words.unit_elements(), comem.engine()), (8, Engine::Direct));
    comem.parallel(|t| {
        let on = |node: usize, act: &dyn Fn()| {
            t.barrier();
            if t.id() == node {
                act();
            }
            t.barrier();
        };
        let line = |n: usize| 8 * n;
        on(1, &|| assert_eq!(words.read(t, line(1)), 0));
        on(1, &|| words.write(t, line(2), 5));
        on(2, &|| assert_eq!(words.read(t, line(2)), 5));
        on(1, &|| words.write(t, line(3), 6));
        on(2, &|| words.write(t, line(3), 7));
        on(0, &|| assert_eq!(words.read(t, line(3)), 7));
        on(0, &|| words.write(t, line(3), 8));
        on(2, &|| assert_eq!(words.read(t, line(4)), 0));
        on(2, &|| words.write(t, line(4), 9));
        let genuine = u64::from(MAGIC) | 3 << 32;
        on(0, &|| words.write(t, line(5), genuine));
        on(1, &|| assert_eq!(words.read(t, line(5)), genuine));
        on(1, &|| assert_eq!(words.read(t, line(5)), genuine));
    });
}

/// Additions to elements of one unit under locks, by reads and writes and in lent ranges.
fn sums(comem: &Comem) {
    let sums = comem.object_array::<u64>(40).expect("an array");
    let each = 400;
    comem.parallel(|t| {
        for round in 0..each {
            let at = (round + t.id()) % 3;
            t.locked(LockId(at as u64), || sums.write(t, at, sums.read(t, at) + 1));
            t.locked(LockId(9), || {
                let range = 3..5;
                // SAFETY: all do this under one lock.
                unsafe { sums.range_mut(t, range, |part| part.iter_mut().for_each(|sum| *sum += 2)) };
            });
            // Nobody else writes this one, but many write its neighbours.
            sums.write(t, 8 + t.id(), round as u64);
            assert_eq!(sums.read(t, 8 + t.id()), round as u64);
        }
        t.barrier();
        let of = |range: std::ops::Range<usize>| range.map(|at| sums.read(t, at)).sum::<u64>();
        let all = (t.threads() * each) as u64;
        assert_eq!((of(0..3), sums.read(t, 3), sums.read(t, 4)), (all, 2 * all, 2 * all));
        assert_eq!(of(8..8 + t.threads()), (t.threads() * (each - 1)) as u64);
    });
}

/// Objects of all shapes hold what was written, wherever that was.
fn shapes(comem: &Comem) {
    shape::<u8>(comem, |i| (i * 37) as u8);
    shape::<i16>(comem, |i| (i * 211) as i16);
    // Some are the value of an invalid unit.
    shape::<u32>(comem, |i| if i % 5 == 0 { MAGIC } else { i as u32 });
    shape::<f64>(comem, |i| i as f64 / 3.0);
    shape::<[u32; 3]>(comem, |i| [i as u32, MAGIC, 7]);
    shape::<[u64; 8]>(comem, |i| [i as u64; 8]);
    shape::<[u64; 300]>(comem, |i| [i as u64; 300]);
    let none = comem.object_array::<u32>(0).expect("an array of nothing");
    comem.parallel(|t| none.read_into(t, 0, &mut []));
}

fn shape<T: comem::Element + PartialEq + std::fmt::Debug>(comem: &Comem, value: impl Fn(usize) -> T + Sync) {
    let placements = [Home::Block, Home::Cyclic(2), Home::On(NodeId(1))];
    for (homes, unit_elements) in placements.into_iter().zip([0, 3, 1000]) {
        let len = 103;
        let options = ObjectOptions { home: homes, unit_elements, ..ObjectOptions::default() };
        let array = comem.object_array_with::<T>(len, &options).expect("an array");
        comem.parallel(|t: &Thread| {
            let other = |by: usize| (t.id() + by) % t.threads();
            let mine = |by: usize| (0..len).filter(move |i| i % t.threads() == other(by));
            mine(0).for_each(|i| array.write(t, i, value(i)));
            t.barrier();
            mine(1).for_each(|i| assert_eq!(array.read(t, i), value(i)));
            let mut all = vec![value(0); len - 2];
            array.read_into(t, 1, &mut all);
            assert!((1..len - 1).all(|i| all[i - 1] == value(i)), "{all:?}");
            t.barrier();
            let part = comem::split(len, other(1), t.threads());
            let values: Vec<T> = part.clone().map(|i| value(i + 1)).collect();
            if t.id().is_multiple_of(2) {
                array.write_from(t, part.start, &values);
            } else {
                // SAFETY: each thread has a part of its own.
                unsafe { array.range_mut(t, part, |lent| lent.copy_from_slice(&values)) };
            }
            t.barrier();
            let is_right = |lent: &[T]| lent.iter().enumerate().all(|(i, found)| *found == value(i + 1));
            // SAFETY: nobody writes.
            let are_right = unsafe { array.range(t, 0..len, is_right) };
            assert!(are_right);
            t.barrier();
        });
    }
}

/// Elements of any size are read and written whole, though all write them at once.
fn wide(comem: &Comem) {
    whole::<3>(comem);
    whole::<30>(comem);
    whole::<400>(comem);
}

fn whole<const N: usize>(comem: &Comem) {
    let array = comem.object_array::<[u64; N]>(6).expect("an array");
    comem.parallel(|t| {
        for round in 0..150 {
            let value = (t.id() * 1000 + round + 1) as u64;
            array.write(t, round % 6, [value; N]);
            let found = array.read(t, (round + t.id()) % 6);
            assert!(found.iter().all(|word| *word == found[0]), "{found:?}");
        }
        t.barrier();
        (0..6).for_each(|at| assert_ne!(array.read(t, at)[N - 1], 0));
    });
}

/// Node 1 dies while a range is lent to it. Nothing is locked meanwhile: the others go on until they hear of it.
fn killed(comem: &Comem) {
    let array = comem.object_array_with::<u64>(64, &on(Home::On(NodeId(0)), "a field")).expect("an array");
    comem.parallel(|t| {
        array.write(t, t.id(), 1);
        t.barrier();
        if t.id() == 1 {
            // SAFETY: the others access other elements.
            unsafe {
                array.range_mut(t, 8..16, |_| {
                    libc::kill(libc::getpid(), libc::SIGKILL);
                });
            }
        }
        loop {
            array.write(t, 16 + t.id(), 1 + array.read(t, 17));
        }
    });
}
