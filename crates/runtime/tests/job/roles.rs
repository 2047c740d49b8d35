//! What the nodes of the test jobs do.

use crate::{barriers, callers, cores, cuts, locks, mail, packets, sync_objects};
use comem::{Comem, Engine, FlagId, Home, LockId, NodeId, ObjectOptions, Operator, SemaphoreId, Thread};

pub fn play(role: &str) {
    if role == "never-comes" {
        // The launcher ends it.
        std::thread::sleep(std::time::Duration::from_secs(600));
        return;
    }
    if role == "called-at-barriers" {
        callers::become_an_interpreter();
    }
    let comem = comem::start().unwrap_or_else(|error| {
        eprintln!("comem: {error}");
        std::process::exit(error.exit_code());
    });
    match role {
        role if role.starts_with("locks-") => locks::play(role, &comem),
        role if role.starts_with("barriers-") => barriers::play(role, &comem),
        "stress" => stress(&comem),
        "jacobi" => jacobi(&comem),
        "relock" => relock(&comem),
        "wait-for-ever" => comem.parallel(|t| {
            // Everybody but node 0 waits for a flag that node 0 never raises; node 0 waits at a barrier.
            if t.node() == NodeId(0) {
                t.barrier();
            } else {
                t.flag_wait(FlagId(1), 1);
            }
        }),
        "cut-short" => cut_short(&comem),
        "mismatch" if comem.node() == 0 => comem.parallel(|t| t.barrier()),
        "shapes" => {
            let len = 10 + comem.node();
            match comem.object_array::<u32>(len) {
                Ok(_) => panic!("arrays of different lengths were accepted"),
                Err(error) => {
                    eprintln!("{error}");
                    std::process::exit(error.exit_code());
                }
            }
        }
        "index" => {
            let named = ObjectOptions { label: Some("temperatures".to_string()), ..ObjectOptions::default() };
            let array = comem.object_array_with::<u32>(12, &named).expect("an array");
            comem.parallel(|t| assert_eq!(array.read(t, 12), 0));
        }
        "one-misuses" => comem.parallel(|t| {
            if t.id() == 1
                && let Err(error) = t.raw_unlock(LockId(5))
            {
                comem.end_with(&error);
            }
            t.barrier();
        }),
        "one-panics" => comem.parallel(|t| {
            assert_ne!(t.id(), 1, "thread 1 does not go on");
            t.barrier();
        }),
        "panics-under-a-lock" => comem.parallel(|t| {
            let panics = || t.locked(LockId(3), || panic!("told, and gone on from"));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
            t.barrier();
            t.locked(LockId(3), || ());
        }),
        "tells-all" => crate::multicast::tell_all(&comem),
        "little" => comem.parallel(|t| t.barrier()),
        "no-thread" => {
            forbid_threads();
            comem.parallel(|t| t.barrier());
        }
        "impossible" => impossible(&comem),
        "attacked" => attacked(&comem),
        "talks-to-all" => cuts::talk_to_all(&comem),
        "far-away" => cuts::far_away(&comem),
        "sends-garbled" | "sends-contradiction" | "sends-untagged" => cuts::break_the_protocol(&comem, role),
        "posts" => posts(&comem),
        "said-while-lent" => said_while_lent(&comem),
        "one-inbox-full" => mail::one_inbox_is_full(&comem),
        "posts-before-access" => mail::posts_go_before_an_access(&comem),
        "waits-while-lent" => mail::waits_while_lent(&comem),
        "wide-told" => {
            comem.object_array::<[u64; 16_000]>(2).expect("an array");
            let refusal = comem.object_array::<[u64; 25_600]>(2).map(drop).map_err(|error| error.to_string());
            let why = refusal.expect_err("its elements are too wide");
            assert!(why.contains("an element of 204800 bytes is larger than what broadcast tells at once"), "{why}");
        }
        "nobody-reads" => mail::nobody_reads(&comem),
        "one-reads-nothing" => mail::one_reads_nothing(&comem),
        "crossing" => crossing(&comem),
        "litmus" => litmus(&comem),
        "cores" => cores::play(&comem),
        "stray" => cores::stray(&comem),
        "narrow-way" => packets::narrow_the_way(&comem),
        "desks" => sync_objects::play(&comem),
        "many-said" => sync_objects::say_much(&comem),
        "said-while-one-waits" => sync_objects::say_much_while_a_neighbour_waits(&comem),
        "asked" => sync_objects::ask_where_it_waits(&comem),
        "called-and-joined" => callers::joined(&comem),
        "called-under-a-lock" => callers::holding_a_lock(&comem),
        "within-itself" => comem.parallel(|_| {
            let error = comem
                .checked_parallel(|_| panic!("the same threads run twice"))
                .expect_err("these threads run already");
            assert!(error.to_string().contains("call the function itself"), "{error}");
        }),
        "called-behind-a-scope" => callers::behind_a_scope(&comem),
        "called-behind-the-first" => callers::behind_the_first(&comem),
        "called-at-barriers" => callers::at_barriers(&comem),
        "asked-about-locks" => sync_objects::ask_while_a_lock_is_held(&comem),
        _ => {}
    }
    if let Err(error) = comem.finish() {
        eprintln!("comem: {error}");
        std::process::exit(error.exit_code());
    }
}

/// Leaves address space for what the program allocates, but not for another thread's stack.
fn forbid_threads() {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("the sizes of this process");
    let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number of pages");
    let least = libc::rlimit { rlim_cur: (pages << 12) + (1 << 20), rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call reads the structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const least) }, 0);
}

/// Node 0 computes and node 1 waits, both for ever; node 2 ends the job.
fn cut_short(comem: &Comem) {
    comem.parallel(|t| match t.node().0 {
        0 => loop {
            std::hint::spin_loop();
        },
        1 => drop(t.flag_wait(FlagId(1), 1)),
        _ => {
            std::thread::sleep(std::time::Duration::from_millis(800));
            std::process::exit(9);
        }
    });
}

fn units(unit_elements: usize) -> ObjectOptions {
    ObjectOptions { unit_elements, ..ObjectOptions::default() }
}

fn impossible(comem: &Comem) {
    let refusal =
        |result: comem::Result<comem::ObjectArray<u64>>| result.err().map(|e| e.to_string()).unwrap_or_default();
    let huge = refusal(comem.object_array(usize::MAX / 4));
    assert!(huge.contains("larger than the address space"), "{huge}");
    let coarse = refusal(comem.object_array_with(1 << 20, &units(1 << 19)));
    assert!(coarse.contains("larger than 262144 bytes; choose fewer elements"), "{coarse}");
    let nowhere =
        refusal(comem.object_array_with(8, &ObjectOptions { home: Home::On(NodeId(7)), ..ObjectOptions::default() }));
    assert!(nowhere.contains("there is no node 7; the job has 1 nodes"), "{nowhere}");
    let wide = comem.object_array::<[u64; 1 << 16]>(1).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(wide.contains("larger than the largest unit"), "{wide}");
}

fn stress(comem: &Comem) {
    let threads = comem.threads();
    let counters = comem.object_array_with::<u32>(4, &units(1)).expect("an array");
    let neighbours = comem.object_array_with::<u64>(threads, &units(4)).expect("an array");
    let wide = comem.object_array::<[u64; 4]>(4).expect("an array");
    comem.parallel(|t| {
        for round in 0..25_usize {
            for lock in 0..4_u64 {
                t.locked(LockId(lock), || counters.write(t, lock as usize, counters.read(t, lock as usize) + 1));
            }
            neighbours.write(t, t.id(), neighbours.read(t, t.id()) + 1);
            wide.write(t, round % 4, [(round * threads + t.id()) as u64; 4]);
            let seen = wide.read(t, (round + 1) % 4);
            assert!(seen.iter().all(|v| *v == seen[0]), "torn: {seen:?}");
            let mut sum = [1.0, t.id() as f64];
            t.reduce_f64(Operator::Sum, &mut sum);
            assert_eq!(sum, [threads as f64, (threads * (threads - 1) / 2) as f64]);
        }
        t.barrier();
        for at in 0..4 {
            assert_eq!(counters.read(t, at), 25 * threads as u32, "counter {at} lost increments");
        }
        assert_eq!(neighbours.read(t, t.id()), 25);
    });
}

fn jacobi(comem: &Comem) {
    const WIDTH: usize = 40;
    const HEIGHT: usize = 24;
    let field = [0, 1].map(|_| comem.object_array::<i32>(WIDTH * HEIGHT).expect("an array"));
    let warm = |x: usize, y: usize| ((x * 37 + y * 91) % 1000) as i32;
    comem.parallel(|t| {
        let rows = t.split(HEIGHT);
        for y in rows.clone() {
            for x in 0..WIDTH {
                field[0].write(t, y * WIDTH + x, warm(x, y));
                field[1].write(t, y * WIDTH + x, warm(x, y));
            }
        }
        t.barrier();
        for step in 0..10 {
            let (from, to) = (&field[step % 2], &field[(step + 1) % 2]);
            for y in rows.clone().filter(|y| (1..HEIGHT - 1).contains(y)) {
                for x in 1..WIDTH - 1 {
                    let at = y * WIDTH + x;
                    let sum = from.read(t, at - 1)
                        + from.read(t, at + 1)
                        + from.read(t, at - WIDTH)
                        + from.read(t, at + WIDTH);
                    to.write(t, at, sum / 4);
                }
            }
            t.barrier();
        }
        let mut old: Vec<i32> = (0..WIDTH * HEIGHT).map(|i| warm(i % WIDTH, i / WIDTH)).collect();
        for _ in 0..10 {
            let mut new = old.clone();
            for at in (0..old.len())
                .filter(|at| (1..HEIGHT - 1).contains(&(at / WIDTH)) && (1..WIDTH - 1).contains(&(at % WIDTH)))
            {
                new[at] = (old[at - 1] + old[at + 1] + old[at - WIDTH] + old[at + WIDTH]) / 4;
            }
            old = new;
        }
        let mut all = vec![0; WIDTH * HEIGHT];
        field[0].read_into(t, 0, &mut all);
        assert_eq!(all, old);
    });
}

fn relock(comem: &Comem) {
    comem.parallel(|t| {
        if t.id() == 1 {
            for _ in 0..1000 {
                t.locked(LockId(77), || ());
            }
        }
        t.barrier();
    });
}

fn attacked(comem: &Comem) {
    let counters = comem.object_array_with::<u32>(4, &units(1)).expect("an array");
    comem.parallel(|t| {
        // The other threads' ports are near this process's own; a stranger fires at all of them.
        let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut garbage = [0x5a_u8; 200];
        for round in 0..200_u32 {
            garbage[0] = round as u8;
            for port in own_ports() {
                let _ = stranger.send_to(&garbage[..(round as usize % 200).max(2)], ("127.0.0.1", port));
            }
            t.locked(LockId(1), || counters.write(t, 0, counters.read(t, 0) + 1));
        }
        t.barrier();
        assert_eq!(counters.read(t, 0), 400);
    });
}

/// The UDP ports that this process has open.
fn own_ports() -> Vec<u16> {
    let table = std::fs::read_to_string("/proc/self/net/udp").unwrap_or_default();
    let inodes: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .map(|d| {
            d.flatten().filter_map(|e| std::fs::read_link(e.path()).ok()).map(|l| l.display().to_string()).collect()
        })
        .unwrap_or_default();
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let socket = format!("socket:[{}]", fields.get(9)?);
            let port = u16::from_str_radix(fields.get(1)?.rsplit(':').next()?, 16).ok()?;
            inodes.contains(&socket).then_some(port)
        })
        .collect()
}

fn posts(comem: &Comem) {
    const MESSAGES: u64 = 2_000;
    comem.parallel(|t| {
        let next = (t.id() + 1) % t.threads();
        let mut seen = vec![false; MESSAGES as usize];
        let mut missing = MESSAGES;
        let mut take = |(_, bytes): (NodeId, Vec<u8>)| {
            let number = u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
            assert!(!std::mem::replace(&mut seen[number as usize], true), "message {number} came twice");
            missing -= 1;
            missing
        };
        for number in 0..MESSAGES {
            t.post(next, &number.to_be_bytes()).expect("a message can be posted");
            while let Some(message) = t.try_receive() {
                take(message);
            }
        }
        while take_left(t, &mut take) > 0 {}
        t.barrier();
    });
}

fn take_left(t: &Thread, take: &mut impl FnMut((NodeId, Vec<u8>)) -> u64) -> u64 {
    take(t.receive())
}

/// Threads say more than can leave while they use elements of a unit that all others want meanwhile.
fn said_while_lent(comem: &Comem) {
    const ROUNDS: u64 = 2;
    let array = comem.object_array_with::<u64>(16, &units(16)).expect("an array");
    comem.parallel(|t| {
        let mine = t.split(16);
        for round in 0..ROUNDS {
            // SAFETY: the elements of `mine` belong to this thread alone.
            unsafe {
                array.range_mut(t, mine.clone(), |mine| {
                    mine.iter_mut().for_each(|a| *a += 1);
                    (0..80_000).for_each(|name| t.sem_post(SemaphoreId(round * 64 + name % 64)));
                    mine.iter_mut().for_each(|a| *a += 1);
                });
            }
        }
        t.barrier();
        (0..16).for_each(|i| assert_eq!(array.read(t, i), 2 * ROUNDS, "element {i}"));
        t.barrier();
    });
}

/// Threads lend themselves ranges of two arrays in opposite orders, and units hold elements of several threads.
fn crossing(comem: &Comem) {
    let arrays = [0, 1].map(|_| comem.object_array_with::<u64>(24, &units(7)).expect("an array"));
    comem.parallel(|t| {
        let mine = t.split(24);
        for round in 0..200 {
            let (first, second) = if (round + t.id()) % 2 == 0 { (0, 1) } else { (1, 0) };
            // SAFETY: the elements of `mine` belong to this thread alone.
            unsafe {
                arrays[first].range_mut(t, mine.clone(), |a| {
                    arrays[second].range_mut(t, mine.clone(), |b| {
                        a.iter_mut().zip(b.iter_mut()).for_each(|(a, b)| {
                            *a = a.wrapping_add(1);
                            *b = b.wrapping_add(*a);
                        });
                    });
                });
            }
        }
        t.barrier();
        let mut expected = [0_u64; 2];
        for round in 0..200 {
            let first = (round + t.id()) % 2;
            expected[first] = expected[first].wrapping_add(1);
            expected[1 - first] = expected[1 - first].wrapping_add(expected[first]);
        }
        for i in mine {
            assert_eq!([arrays[0].read(t, i), arrays[1].read(t, i)], expected, "element {i}");
        }
    });
}

/// Store buffering and message passing: what sequential consistency forbids must not be seen.
fn litmus(comem: &Comem) {
    const ROUNDS: usize = 300;
    let cells = comem
        .object_array_with::<u32>(
            2 * ROUNDS,
            &ObjectOptions { engine: Some(Engine::Msi), home: Home::Cyclic(1), ..units(1) },
        )
        .expect("an array");
    let seen = comem.object_array_with::<u32>(2 * ROUNDS, &units(1)).expect("an array");
    comem.parallel(|t| {
        let actor = [0, t.threads() - 1].iter().position(|id| *id == t.id());
        for round in 0..ROUNDS {
            if let Some(me) = actor {
                cells.write(t, 2 * round + me, 1);
                seen.write(t, 2 * round + me, cells.read(t, 2 * round + 1 - me));
            }
            if round % 10 == 0 {
                t.barrier();
            }
        }
        t.barrier();
        for round in 0..ROUNDS {
            let both = seen.read(t, 2 * round) + seen.read(t, 2 * round + 1);
            assert!(both > 0, "round {round}: each store was missed by the other thread's load");
        }
    });
}
