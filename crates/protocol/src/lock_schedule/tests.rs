//! The schedule's parts by themselves, and what it defers.

use super::*;
use crate::ids::{Channel, NodeId};

const LOCK: LockId = LockId(7);
const WAY: Way = Way { closes_in_slices: true, beside_calls: true };
const TURN_US: u64 = 32_000;
const MEASURED: u32 = 16;
const TURNS_FOR_US: u64 = 100_000;

fn at(us: u64) -> Time {
    Time(1_000_000_000 + us * 1_000)
}

/// A node that is or is not idle, may be at a barrier, and may have much to close.
#[derive(Default)]
struct Around {
    idle: bool,
    beyond: bool,
    long: Option<Vec<PageNo>>,
}

impl DeferralInputs for Around {
    fn is_idle(&mut self) -> bool {
        self.idle
    }

    fn is_beyond_barrier(&mut self, _: &Request<'_>) -> bool {
        self.beyond
    }

    fn long_close(&mut self, _: &LockTuning) -> Option<Vec<PageNo>> {
        self.long.take()
    }
}

fn request(lock: LockId, is_here: bool, needs_close: bool) -> Request<'static> {
    let message = Message::LockRequest { lock, knowledge: &[] };
    Request::of(&message, WAY, |_| TokenState { is_here, needs_close }).expect("a request for a token may be deferred")
}

fn asks(schedule: &mut LockSchedule, lock: LockId, now: u64, node: &mut Around) -> Option<DeferReason> {
    schedule.should_defer(&request(lock, true, false), at(now), node)
}

/// A message that tells itself from others by its type.
fn message(ty: u16) -> Deferred {
    let from = Channel::service(NodeId(1));
    Deferred { origin: Origin { from, ticket: None, caller: None }, ty: MsgType(ty), body: Vec::new() }
}

fn types(taken: Vec<Deferred>) -> Vec<u16> {
    taken.into_iter().map(|message| message.ty.0).collect()
}

/// A node that asks `after` the token has left, and gets it 20 us later, each time.
fn after_returns(times: u64, after: u64) -> (LockSchedule, u64) {
    let mut schedule = LockSchedule::default();
    let mut now = 0;
    for _ in 0..times {
        assert_eq!(schedule.should_defer(&request(LOCK, false, false), at(now), &mut Around::default()), None);
        now += after;
        schedule.token_requested(LOCK, at(now));
        now += 20;
        schedule.token_arrived(LOCK, at(now - 20), at(now), 1);
    }
    (schedule, now)
}

#[test]
fn a_token_stays_where_both_nodes_want_it_all_the_time() {
    let (mut schedule, came) = after_returns(2, 5);
    let reason = asks(&mut schedule, LOCK, came + 10, &mut Around::default());
    assert_eq!(reason, Some(DeferReason::Retained(at(came + 250))));
}

#[test]
fn a_token_leaves_at_once_where_either_node_wants_it_now_and_then() {
    let asks = |(mut schedule, came): (LockSchedule, u64), lock, after| {
        super::tests::asks(&mut schedule, lock, came + after, &mut Around::default())
    };
    assert_eq!(asks(after_returns(1, 5), LOCK, 10), None, "it was asked for again but once");
    assert_eq!(asks(after_returns(5, 60), LOCK, 10), None, "this node can do without it");
    assert_eq!(asks(after_returns(5, 5), LOCK, 60), None, "the other can");
    assert_eq!(asks(after_returns(5, 5), LockId(8), 10), None, "another lock");
}

#[test]
fn a_token_leaves_an_idle_node_at_once_and_one_that_is_not_there_stays_nowhere() {
    let (mut schedule, came) = after_returns(2, 5);
    assert_eq!(schedule.should_defer(&request(LOCK, false, false), at(came), &mut Around::default()), None);
    let (mut schedule, came) = after_returns(2, 5);
    assert_eq!(asks(&mut schedule, LOCK, came, &mut Around { idle: true, ..Around::default() }), None);
}

#[test]
fn nothing_is_deferred_for_the_nodes_own_sake_where_that_is_off() {
    let (mut schedule, came) = after_returns(2, 5);
    schedule.tuning.defers = false;
    assert_eq!(asks(&mut schedule, LOCK, came, &mut Around::default()), None);
}

#[test]
fn turns_are_taken_at_wider_intervals_where_a_lock_comes_back_that_has_left() {
    for left in [true, false] {
        let (mut schedule, mut came) = (LockSchedule::default(), 0);
        for _ in 0..40 {
            if left {
                schedule.retention.observe(&schedule.tuning, retention::Event::Leaves(LOCK, at(came)));
            }
            schedule.token_arrived(LOCK, at(came + 200), at(came + 550), 1);
            came += 550;
        }
        assert_eq!(turn_end(&mut schedule.batching, came).is_some(), left);
    }
}

#[test]
fn a_thread_polls_that_does_nothing_but_take_a_few_locks_again_and_again() {
    let tuning = LockTuning::default();
    let polls = |locks: u64, every: u64| {
        let mut batching = Batching::default();
        let ns = |call: u64| Time(1_000_000_000 + call * 16 * every);
        (1..10_000).find(|call| batching.polls(&tuning, LockId(1 + call % locks), ns(*call)))
    };
    assert_eq!(polls(1, 50), Some(u64::from(tuning.polling_calls) + 1));
    assert!(polls(3, 50).is_some());
    assert_eq!((polls(1, 1_000), polls(3, 1_000)), (None, None), "it works in between");
    assert_eq!(polls(7, 50), None, "it takes others, too");
}

#[test]
fn what_is_deferred_is_due_in_its_turn_and_all_of_it_when_the_node_waits() {
    let mut schedule = LockSchedule::default();
    let mut defer = |reason, ty| schedule.defer(&request(LOCK, true, false), reason, at(0), message(ty));
    defer(DeferReason::Turn(at(30)), 3);
    defer(DeferReason::Barrier, 4);
    defer(DeferReason::Retained(at(20)), 2);
    assert_eq!(schedule.next_due(), Some(at(20)));
    assert!(types(schedule.take_due(at(10))).is_empty());
    assert_eq!(types(schedule.take_due(at(25))), [2]);
    assert_eq!(schedule.next_due(), Some(at(30)));
    assert_eq!(types(schedule.threads_wait(at(25))), [3]);
    assert_eq!((schedule.next_due(), types(schedule.barrier_opened())), (None, vec![4]));
    assert_eq!(schedule.deferred().count(), 0);
}

#[test]
fn who_looks_after_the_clock_looks_now_and_then_for_a_while_after_a_message_was_deferred() {
    let mut schedule = LockSchedule::default();
    let tick = at(50_000);
    assert_eq!(schedule.next_look(tick, at(0)), tick);
    schedule.defer(&request(LOCK, true, false), DeferReason::Turn(at(3_000)), at(0), message(1));
    assert_eq!(schedule.next_look(tick, at(100)), at(350));
    assert_eq!(schedule.next_look(tick, at(2_900)), at(3_000), "when that is due");
    assert_eq!(schedule.take_due(at(3_000)).len(), 1);
    assert_eq!(schedule.next_look(tick, at(3_000)), tick);
}

#[test]
fn what_tells_of_a_release_beyond_the_barrier_waits_for_it_and_nothing_else_does() {
    let mut schedule = LockSchedule::default();
    let mut node = Around { beyond: true, ..Around::default() };
    let bring = [Message::LockTokens { entries: &[] }, Message::LockGrant { lock: LOCK, payload: &[] }];
    for message in bring {
        let request = Request::of(&message, WAY, |_| unreachable!("no token is asked for")).unwrap();
        assert_eq!(schedule.should_defer(&request, at(0), &mut node), Some(DeferReason::Barrier));
    }
    assert_eq!(schedule.should_defer(&request(LOCK, true, false), at(0), &mut node), None);
    let arrival = Message::Noted { epoch: 1 };
    assert!(Request::of(&arrival, WAY, |_| unreachable!("nor here")).is_none());
    let all_take_part = Way { beside_calls: false, ..WAY };
    let may_wait = bring.map(|message| Request::of(&message, all_take_part, |_| unreachable!("nor here")).is_some());
    assert_eq!(may_wait, [true, false]);
}

#[test]
fn requests_wait_for_a_long_close_and_those_that_come_meanwhile_for_the_same() {
    let mut schedule = LockSchedule::default();
    let needs = request(LOCK, true, true);
    let mut long = Around { long: Some(vec![512, 1024]), ..Around::default() };
    assert_eq!(schedule.should_defer(&needs, at(0), &mut Around::default()), None, "a short one");
    assert_eq!(schedule.should_defer(&needs, at(1), &mut long), Some(DeferReason::Close));
    schedule.defer(&needs, DeferReason::Close, at(1), message(1));
    assert!(matches!(schedule.next_slice(), Slice::Close(1024)) && schedule.is_closing());
    assert_eq!(schedule.should_defer(&request(LOCK, true, false), at(2), &mut long), None, "it is closed");
    assert!(matches!(schedule.next_slice(), Slice::Close(512)));
    assert_eq!(schedule.should_defer(&needs, at(4), &mut Around::default()), Some(DeferReason::Close));
    schedule.defer(&needs, DeferReason::Close, at(4), message(2));
    assert!(matches!(schedule.next_slice(), Slice::Over(waited) if types(waited.clone()) == [1, 2]));
    assert!(matches!(schedule.next_slice(), Slice::None) && !schedule.is_closing());
}

#[test]
fn only_the_service_thread_closes_in_slices() {
    let state = |_| TokenState { is_here: true, needs_close: true };
    for message in
        [Message::LockRequest { lock: LOCK, knowledge: &[] }, Message::CatchUp { lock: LOCK, knowledge: &[] }]
    {
        for slices in [true, false] {
            let mut node = Around { long: Some(vec![0]), ..Around::default() };
            let request = Request::of(&message, Way { closes_in_slices: slices, ..WAY }, state).unwrap();
            let deferred = LockSchedule::default().should_defer(&request, at(0), &mut node).is_some();
            assert_eq!(deferred, slices);
        }
    }
}

#[test]
fn a_close_is_long_where_much_was_written_since_the_last_one() {
    let tuning = LockTuning::default();
    let is_long = |after, written| incremental_close::is_long(&tuning, at(0), at(after), || written);
    assert!(!is_long(999, (Some(u32::MAX), 99)), "so soon nobody looks");
    assert!(is_long(1_000, (Some(256), 1)) && !is_long(1_000, (Some(255), 99)));
    assert!(is_long(1_000, (None, 4)) && !is_long(1_000, (None, 3)));
}

/// A token comes that a thread has asked for.
fn arrives(batching: &mut Batching, asked: u64, now: u64, comes_back: bool) {
    let event = batching::Event::Arrived { asked: at(asked), now: at(now), comes_back, threads: 1 };
    batching.observe(&LockTuning::DEFAULT, event);
}

fn turn_end(batching: &mut Batching, now: u64) -> Option<Time> {
    batching.predict(&LockTuning::DEFAULT, at(now))
}

/// A node that waits `waits` for each of so many tokens, and then computes for `computes`, all in us. Gives the time.
fn acquire(batching: &mut Batching, times: u32, waits: u64, computes: u64) -> u64 {
    acquire_of(batching, times, waits, computes, false)
}

fn acquire_of(batching: &mut Batching, times: u32, waits: u64, computes: u64, same: bool) -> u64 {
    (0..times).fold(0, |now, _| {
        arrives(batching, now, now + waits, same);
        now + waits + computes
    })
}

#[test]
fn turns_are_taken_where_threads_mostly_wait_for_tokens() {
    let mut batching = Batching::default();
    let now = acquire(&mut batching, 2 * MEASURED + 1, 40, 10);
    assert_eq!(turn_end(&mut batching, now), Some(at(now - 10 + TURN_US)), "it began when the token came");
    assert_eq!(turn_end(&mut batching, now + TURN_US), None);
}

#[test]
fn no_turns_are_taken_where_threads_mostly_compute() {
    let mut batching = Batching::default();
    let now = acquire(&mut batching, 10 * MEASURED, 40, 60);
    assert_eq!(turn_end(&mut batching, now), None);
}

#[test]
fn no_turns_are_taken_where_locks_seldom_move() {
    let mut batching = Batching::default();
    let now = acquire(&mut batching, 10 * MEASURED, 390, 10);
    assert_eq!(turn_end(&mut batching, now), None);
}

#[test]
fn turns_are_taken_where_one_lock_goes_to_and_fro_whose_token_stays_at_either_node() {
    for (same, taken) in [(true, true), (false, false)] {
        let mut batching = Batching::default();
        let now = acquire_of(&mut batching, 2 * MEASURED + 1, 350, 200, same);
        assert_eq!(turn_end(&mut batching, now).is_some(), taken);
    }
}

#[test]
fn a_turn_is_over_when_threads_wait_and_another_begins_with_the_next_token() {
    let mut batching = Batching::default();
    let now = acquire(&mut batching, 2 * MEASURED + 1, 40, 10);
    batching.observe(&LockTuning::DEFAULT, batching::Event::Waits(at(now)));
    assert_eq!(turn_end(&mut batching, now), None);
    arrives(&mut batching, now, now + 500, false);
    assert_eq!(turn_end(&mut batching, now + 500), Some(at(now + 500 + TURN_US)));
}

#[test]
fn tokens_are_expensive_where_most_that_came_in_turns_took_long() {
    let (mut batching, tuning) = (Batching::default(), LockTuning::default());
    let now = acquire(&mut batching, 2 * MEASURED + 1, 40, 10);
    assert!(!batching.tokens_are_expensive(&tuning), "only those in turns count");
    let ten_came = |batching: &mut Batching, waits: u64| {
        for _ in 0..10 {
            arrives(batching, now, now + waits, false);
        }
    };
    ten_came(&mut batching, 12);
    assert!(batching.tokens_are_expensive(&tuning));
    ten_came(&mut batching, 3);
    assert!(!batching.tokens_are_expensive(&tuning));
}

#[test]
fn tokens_that_have_left_are_requested_when_they_are_many_and_expensive() {
    let (mut schedule, now) = (LockSchedule::default(), 2_000);
    (0..8).for_each(|lock| schedule.token_left(LockId(lock)));
    assert_eq!(schedule.tokens_to_request(), None, "they are cheap");
    schedule.batching.turn_ends_for_test(at(now));
    schedule.token_arrived(LOCK, at(now - 100), at(now - 1), 1);
    assert_eq!(schedule.tokens_to_request(), Some((0..8).map(LockId).collect()));
    assert_eq!(schedule.tokens_to_request(), None, "they are under way");
}

#[test]
fn turns_are_measured_again_after_a_while() {
    let mut batching = Batching::default();
    let later = acquire(&mut batching, 2 * MEASURED + 1, 40, 10) + TURNS_FOR_US;
    arrives(&mut batching, later, later + 40, false);
    assert_eq!(turn_end(&mut batching, later + 40), None);
}

/// Releases a lock so many times, every so many us, and publishes its token where that may be; the node wants it again
/// (`back`), or another does. Gives how often it was published.
fn published(tokens: &mut PublishedTokens, times: u64, every: u64, back: bool) -> u64 {
    let mut count = 0;
    for now in (1..=times).map(|n| at(n * every)) {
        if tokens.predict(&LockTuning::DEFAULT, now) {
            tokens.observe(&LockTuning::DEFAULT, published_tokens::Event::Published(now));
            count += 1;
            if back {
                tokens.observe(&LockTuning::DEFAULT, published_tokens::Event::Retracted);
            }
        }
    }
    count
}

#[test]
fn tokens_are_published_where_they_are_released_now_and_then() {
    assert_eq!(published(&mut PublishedTokens::default(), 200, 500, false), 200);
}

#[test]
fn tokens_that_are_released_in_short_succession_or_taken_back_are_published_ever_more_seldom() {
    for (times, every, back) in [(100_000, 10, false), (1_000, 1_000, true)] {
        let few = published(&mut PublishedTokens::default(), times, every, back);
        assert!((48..=128).contains(&few), "{few} of {times}");
    }
}

#[test]
fn a_pause_is_short_again_after_tokens_that_others_took() {
    let (mut tokens, tuning) = (PublishedTokens::default(), LockTuning::default());
    published(&mut tokens, 40_000, 10, false);
    assert!(tokens.pause().as_us() > tuning.pause_min_us);
    for n in 1..=2 * u64::from(tuning.published_judged) {
        tokens.observe(&tuning, published_tokens::Event::Published(at(10_000_000 + n * 1_000)));
    }
    assert_eq!(tokens.pause().as_us(), tuning.pause_min_us);
}

#[test]
fn nothing_is_published_in_a_turn() {
    let mut schedule = LockSchedule::default();
    assert!(schedule.publishes(at(0)) && schedule.may_publish(at(0)));
    schedule.batching.turn_ends_for_test(at(10));
    assert!(schedule.publishes(at(0)) && !schedule.may_publish(at(0)) && schedule.may_publish(at(10)));
}
