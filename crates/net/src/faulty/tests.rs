use super::*;

/// Records what is sent through it, and when.
#[derive(Default)]
struct Recorder {
    sent: Mutex<Vec<(Time, Vec<u8>, usize)>>,
    more: Condvar,
    clock: Option<Clock>,
}

impl Recorder {
    fn new(clock: Clock) -> Arc<Recorder> {
        Arc::new(Recorder { clock: Some(clock), ..Recorder::default() })
    }
    /// All datagrams sent, once there are `count`, and when each left.
    fn wait_for(&self, count: usize) -> Vec<(Time, Vec<u8>)> {
        let mut sent = lock(&self.sent);
        loop {
            let single: Vec<(Time, Vec<u8>)> = sent
                .iter()
                .flat_map(|(at, bytes, segment)| datagrams(bytes, *segment).map(|d| (*at, d.to_vec())))
                .collect();
            if single.len() >= count {
                return single;
            }
            let (next, late) = self.more.wait_timeout(sent, Duration::from_secs(20)).unwrap();
            assert!(!late.timed_out(), "{} of {count} datagrams were sent", single.len());
            sent = next;
        }
    }
    fn calls(&self) -> usize {
        lock(&self.sent).len()
    }
}

impl Datagrams for Recorder {
    fn local_addr(&self) -> SocketAddr {
        ([127, 0, 0, 1], 1).into()
    }
    fn send_to(&self, bytes: &[u8], segment: usize, _: SocketAddr) -> io::Result<()> {
        let at = self.clock.map_or(Time(0), |clock| clock.now());
        lock(&self.sent).push((at, bytes.to_vec(), segment));
        self.more.notify_all();
        Ok(())
    }
    fn recv(&self, _: &mut [u8], _: Option<Duration>, _: Wait) -> io::Result<Received> {
        Ok(Received::Timeout)
    }
    fn try_recv(&self, _: &mut [u8]) -> io::Result<Received> {
        Ok(Received::Timeout)
    }
    fn attend(&self, _: Listener) -> io::Result<()> {
        Ok(())
    }
}

fn to() -> SocketAddr {
    ([127, 0, 0, 1], 9).into()
}

fn faulty(spec: &str) -> (Arc<Recorder>, Faulty, Clock) {
    let clock = Clock::system();
    let recorder = Recorder::new(clock);
    let faults = Faults::new(&spec.parse().unwrap(), 5, clock).unwrap();
    (Arc::clone(&recorder), Faulty::new(recorder, faults), clock)
}

fn numbered(count: usize, len: usize) -> Vec<u8> {
    (0..count).flat_map(|i| vec![i as u8; len]).collect()
}

#[test]
fn a_batch_is_harmed_datagram_by_datagram_as_the_plan_decides() {
    let spec = "drop=20%,dup=20%,truncate=10%,corrupt=10%,seed=3";
    let (recorder, faulty, _) = faulty(spec);
    let batch = numbered(200, 50);
    faulty.send_to(&batch, 50, to()).unwrap();
    let mut plan = FaultPlan::new(&spec.parse().unwrap(), 5);
    let mut wanted: Vec<Vec<u8>> = Vec::new();
    for datagram in batch.chunks(50) {
        wanted.extend(plan.decide(Time(0), 50).deliveries().iter().map(|d| d.apply(datagram)));
    }
    // One cut short to nothing leaves as an empty datagram, which the recorder's batches do not show.
    wanted.retain(|datagram| !datagram.is_empty());
    let sent: Vec<Vec<u8>> = recorder.wait_for(wanted.len()).into_iter().map(|(_, d)| d).collect();
    assert_eq!(sent, wanted);
    assert!(faulty.faults.holder.is_none(), "nothing is held back, so no thread is needed");
}

#[test]
fn what_stays_unharmed_leaves_in_batches() {
    let (recorder, clean, _) = faulty("seed=1");
    clean.send_to(&numbered(60, 100), 100, to()).unwrap();
    assert_eq!(recorder.calls(), 1);
    let (recorder, lossy, _) = faulty("drop=5%,seed=1");
    lossy.send_to(&numbered(60, 100), 100, to()).unwrap();
    let lost = 60 - recorder.wait_for(1).len();
    assert!(lost > 0 && recorder.calls() <= lost + 1, "{lost} lost, {} calls", recorder.calls());
}

#[test]
fn certain_loss_loses_all_and_certain_duplication_doubles_all() {
    let (recorder, lossy, _) = faulty("drop=100%");
    lossy.send_to(&numbered(10, 10), 10, to()).unwrap();
    assert_eq!(recorder.calls(), 0);
    let (recorder, doubling, _) = faulty("dup=100%");
    doubling.send_to(b"ab", 1, to()).unwrap();
    let sent: Vec<Vec<u8>> = recorder.wait_for(4).into_iter().map(|(_, d)| d).collect();
    assert_eq!(sent, [b"a", b"a", b"b", b"b"]);
}

#[test]
fn delayed_datagrams_leave_in_order_and_not_early() {
    let (recorder, slow, clock) = faulty("delay=2ms");
    let mut given = Vec::new();
    for i in 0..50u8 {
        given.push(clock.now());
        slow.send_to(&[i], 1, to()).unwrap();
    }
    let sent = recorder.wait_for(50);
    for (i, ((left, bytes), given)) in sent.iter().zip(given).enumerate() {
        assert_eq!(bytes, &[i as u8]);
        assert!(*left >= given + comem_protocol::time::Span::from_ms(2), "datagram {i} left early");
    }
}

#[test]
fn a_batch_that_is_delayed_leaves_in_its_order() {
    let (recorder, slow, _) = faulty("delay=2ms");
    slow.send_to(&numbered(100, 1), 1, to()).unwrap();
    let sent: Vec<u8> = recorder.wait_for(100).into_iter().map(|(_, d)| d[0]).collect();
    assert_eq!(sent, numbered(100, 1));
}

#[test]
fn what_is_only_late_leaves_in_batches_and_a_slow_line_spaces_it() {
    let bytes = numbered(32, 100);
    let (recorder, faulty_network, _) = faulty("delay=1ms");
    faulty_network.send_to(&bytes, 100, to()).unwrap();
    recorder.wait_for(32);
    assert_eq!(recorder.calls(), 1);
    // A datagram takes this line 80 us.
    let (recorder, faulty_network, _) = faulty("rate=10mbit");
    faulty_network.send_to(&bytes, 100, to()).unwrap();
    recorder.wait_for(32);
    assert_eq!(recorder.calls(), 32);
}

#[test]
fn reordered_datagrams_are_overtaken() {
    let (recorder, faulty, _) = faulty("reorder=50%,seed=4");
    faulty.send_to(&numbered(100, 1), 1, to()).unwrap();
    let sent: Vec<u8> = recorder.wait_for(100).into_iter().map(|(_, d)| d[0]).collect();
    let mut sorted = sent.clone();
    sorted.sort_unstable();
    assert_ne!(sent, sorted);
    assert_eq!(sorted, numbered(100, 1), "none is lost or doubled");
}

#[test]
fn a_slow_line_loses_what_it_cannot_queue() {
    let (recorder, slow, _) = faulty("rate=100mbit");
    slow.send_to(&numbered(250, 10_000), 10_000, to()).unwrap();
    drop(slow);
    // A batch is given to the line at one moment: it queues 1 MiB, and the rest is lost.
    assert_eq!(recorder.wait_for(1).len(), (1 << 20) / 10_000);
}

#[test]
fn the_end_of_a_job_does_not_wait_for_its_network() {
    let (recorder, slow, _) = faulty("delay=10s");
    let start = std::time::Instant::now();
    slow.send_to(b"goodbye", 100, to()).unwrap();
    assert_eq!(recorder.calls(), 0);
    drop(slow);
    assert_eq!(recorder.wait_for(1)[0].1, b"goodbye");
    assert!(start.elapsed() < Duration::from_secs(9));
}

#[test]
fn an_endpoint_that_retires_sends_what_is_held_back() {
    let (recorder, slow, _) = faulty("delay=10s");
    let start = std::time::Instant::now();
    slow.send_to(b"goodbye", 100, to()).unwrap();
    slow.retire();
    assert_eq!(recorder.wait_for(1)[0].1, b"goodbye");
    assert!(start.elapsed() < Duration::from_secs(9));
}

#[test]
fn a_holder_that_has_nothing_hears_of_the_next_and_keeps_no_count_of_what_has_left() {
    let (recorder, slow, _) = faulty("delay=100us");
    for count in 1..50 {
        slow.send_to(&[7; 100], 100, to()).unwrap();
        assert_eq!(recorder.wait_for(count).len(), count);
        // Time to fall asleep.
        (0..100).for_each(|_| std::thread::yield_now());
    }
    assert_eq!(lock(&slow.faults.holder.as_ref().unwrap().shared.queue).bytes, 0);
}

#[test]
fn what_is_due_at_one_time_leaves_in_the_order_in_which_it_came() {
    let (recorder, ..) = faulty("seed=1");
    let mut held: BinaryHeap<Held> = [(5, 1), (7, 2), (5, 3), (5, 4), (3, 5)]
        .map(|(due, number)| {
            let through: Arc<dyn Datagrams> = recorder.clone();
            Held { due: Time(due), number, bytes: Vec::new(), segment: 1, to: to(), through }
        })
        .into();
    let order: Vec<u64> = std::iter::from_fn(|| held.pop()).map(|held| held.number).collect();
    assert_eq!(order, [5, 1, 3, 4, 2]);
}

#[test]
fn a_cut_takes_what_is_sent_to_one_node_from_the_jobs_start_on() {
    let spec: FaultSpec = "cut=0-2,seed=1".parse().unwrap();
    let faults = Faults::new(&spec, 0, Clock::system()).unwrap();
    let recorder = Recorder::new(Clock::system());
    let faulty = Faulty::new(recorder.clone(), Arc::clone(&faults));
    let [near, cut]: [SocketAddr; 2] = ["127.0.0.1:1001", "127.0.0.1:1002"].map(|address| address.parse().unwrap());
    let sent = || {
        [near, cut].iter().for_each(|to| faulty.send_to(&[7; 40], 40, *to).unwrap());
        lock(&recorder.sent).len()
    };
    assert_eq!(sent(), 2, "nothing is cut before the start");
    faults.begin(NodeId(0), &[vec![], vec![near], vec![cut]]);
    assert_eq!(sent(), 3);
}
