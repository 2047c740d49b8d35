use super::*;

const A: Channel = Channel { node: NodeId(0), slot: Slot(1) };
const B: Channel = Channel { node: NodeId(62), slot: Slot(256) };

/// Carries out a compare-and-swap.
fn swap(word: &mut LockWord, step: Step) -> Reply {
    let Step::CompareAndSwap { expected, new } = step else { panic!("{step:?}") };
    let before = *word;
    if before == expected {
        *word = new;
    }
    Reply::Word(before)
}

fn release(word: &mut LockWord, me: Channel, held: LockWord) -> Vec<ReleaseStep> {
    let (mut machine, mut reply, mut steps) = (Release::new(me, held), Reply::Begin, Vec::new());
    loop {
        let step = machine.next(reply);
        steps.push(step);
        match step {
            ReleaseStep::CompareAndSwap { expected, new } => {
                reply = swap(word, Step::CompareAndSwap { expected, new });
            }
            ReleaseStep::Wake { .. } => reply = Reply::Done,
            ReleaseStep::Released | ReleaseStep::NotHeld => return steps,
        }
    }
}

#[test]
fn a_free_lock_costs_one_operation_to_take_and_one_to_let_go() {
    let mut word = LockWord::FREE;
    for me in [A, B] {
        let mut acquire = Acquire::new(me, true);
        let step = acquire.next(Reply::Begin);
        let reply = swap(&mut word, step);
        let held = acquire.next(reply);
        assert_eq!(held, Step::Held(word));
        assert_eq!(word.holder(), Some(me));
        let now = word;
        assert_eq!(release(&mut word, me, now).len(), 2, "one operation, and the end");
        assert_eq!(word, LockWord::FREE);
    }
}

#[test]
fn who_finds_it_held_waits_is_woken_and_bypassed_a_few_times_only() {
    let mut word = LockWord::FREE;
    let mut first = Acquire::new(A, true);
    let step = first.next(Reply::Begin);
    let reply = swap(&mut word, step);
    assert_eq!(first.next(reply), Step::Held(word));
    let (mut held, mut second, mut third) = (word, Acquire::new(B, true), Acquire::new(B, false));
    let step = second.next(Reply::Begin);
    let reply = swap(&mut word, step);
    assert_eq!(second.next(reply), Step::Look);
    assert_eq!(third.next(reply), Step::Busy);
    let step = second.next(Reply::Tired(word));
    let reply = swap(&mut word, step);
    let step = second.next(reply);
    let reply = swap(&mut word, step);
    let asleep = second.next(reply);
    assert_eq!(asleep, Step::Sleep { seen: word.seen(), ticket: 0 });
    let bypasses_max = LockTuning::DEFAULT.bypasses_max;
    for bypasses in 0..=bypasses_max {
        let steps = release(&mut word, A, held);
        assert_eq!(steps.contains(&ReleaseStep::Wake { ticket: 0 }), bypasses == 0, "{steps:?}: it is woken once");
        let mut again = Acquire::new(A, true);
        let step = again.next(Reply::Begin);
        let reply = swap(&mut word, step);
        let step = again.next(reply);
        if bypasses == bypasses_max {
            assert_eq!(step, Step::Look, "the lock is for whoever has waited");
            break;
        }
        let reply = swap(&mut word, step);
        assert_eq!(again.next(reply), Step::Held(word));
        held = word;
    }
    let step = second.next(Reply::Word(word));
    let reply = swap(&mut word, step);
    assert_eq!((second.next(reply), word.holder(), word.waiting()), (Step::Held(word), Some(B), 0));
    assert_eq!(release(&mut word, A, held).last(), Some(&ReleaseStep::NotHeld));
    let before = word;
    assert_eq!(Acquire::new(B, true).next(Reply::Word(word)), Step::HeldAlready);
    release(&mut word, B, before);
    assert_eq!(word, LockWord::FREE, "nobody waits: tickets begin again");
}

fn find(names: &mut [u64], lock: LockId) -> Option<usize> {
    let (mut find, mut reply) = (Find::new(lock, names.len()), None);
    loop {
        match find.next(reply) {
            FindStep::Get(at) => reply = Some(names[at]),
            FindStep::Claim(at, name) => {
                reply = Some(names[at]);
                if names[at] == 0 {
                    names[at] = name;
                }
            }
            FindStep::Found(at) => return Some(at),
            FindStep::Full => return None,
        }
    }
}

#[test]
fn every_lock_has_a_place_of_its_own_until_the_table_is_full() {
    let mut names = vec![0; 256];
    let locks: Vec<u64> = (0..100).chain((0..155).map(|n| n * 0x1_0000_0001 + 7_000_000)).collect();
    let places: Vec<usize> = locks.iter().map(|lock| find(&mut names, LockId(*lock)).unwrap()).collect();
    assert_eq!(find(&mut names, LockId(u64::MAX)), Some(255), "the one without a name has the last");
    let again: Vec<usize> = locks.iter().map(|lock| find(&mut names, LockId(*lock)).unwrap()).collect();
    assert_eq!(places, again);
    let mut sorted = places.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..255).collect::<Vec<_>>());
    assert_eq!(find(&mut names, LockId(12_345_678)), None);
    let mut large = vec![0; PLACES];
    let block: Vec<usize> = (127..191).map(|lock| find(&mut large, LockId(lock)).unwrap()).collect();
    assert_eq!(block[63] - block[0], 63, "neighbours lie side by side");
}
