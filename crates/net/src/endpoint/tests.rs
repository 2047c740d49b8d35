use super::*;
use crate::{RECEIVE_BUFFER_BYTES, counts_as_loss, datagrams};
use comem_protocol::time::Span;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicUsize;

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

fn endpoint() -> Endpoint {
    Endpoint::bind(HOST, PortChoice::Any).unwrap()
}

/// Receives until `count` datagrams have come.
fn collect(endpoint: &Endpoint, count: usize, wait: Wait) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let mut all = Vec::new();
    while all.len() < count {
        match endpoint.recv(&mut buffer, PATIENCE, wait).unwrap() {
            Received::Datagrams { len, segment, .. } => {
                all.extend(datagrams(&buffer[..len], segment).map(<[u8]>::to_vec));
            }
            other => panic!("{other:?} after {} of {count} datagrams", all.len()),
        }
    }
    all
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 / 7) as u8).collect()
}

/// The address of an endpoint that is gone.
fn closed_address() -> SocketAddr {
    endpoint().local_addr()
}

#[test]
fn a_small_datagram_costs_one_system_call_each_way() {
    let (a, b) = (endpoint(), endpoint());
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    for timeout in [None, PATIENCE] {
        assert_eq!(sys::calls_during(|| a.send_to(b"small", 1_472, b.local_addr()).unwrap()), 1);
        let mut received = Received::Timeout;
        let calls = sys::calls_during(|| received = b.recv(&mut buffer, timeout, Wait::Block).unwrap());
        assert_eq!((calls, &buffer[..5]), (1, &b"small"[..]));
        assert_eq!(received, Received::Datagrams { from: a.local_addr(), len: 5, segment: 5 });
    }
    a.send_to(b"small", 1_472, b.local_addr()).unwrap();
    let spin = Wait::Spin(Span::from_ms(1));
    assert_eq!(sys::calls_during(|| assert!(b.recv(&mut buffer, PATIENCE, spin).is_ok())), 1);
    let mut received = b.try_recv(&mut buffer).unwrap();
    let calls = sys::calls_during(|| received = b.recv(&mut buffer, Some(Duration::ZERO), Wait::Block).unwrap());
    assert_eq!((calls, received), (1, Received::Timeout));
}

/// Bytes that say how many of them there are: so many, all told, in bytes 1 and 2.
fn honest(bytes: usize, fill: u8) -> Vec<u8> {
    let mut all = vec![fill; bytes];
    all[1..3].copy_from_slice(&(bytes as u16 - 7).to_be_bytes());
    all
}

#[test]
fn datagrams_that_say_how_long_they_are_are_told_apart_by_that() {
    let (a, b) = (endpoint(), endpoint().with_lengths(Some(Lengths { at: 1, more: 7 })));
    for (bytes, count, last) in [(1_000, 20, 500), (100, 60, 100), (1_472, 40, 30), (60_000, 1, 60_000)] {
        let mut sent: Vec<Vec<u8>> = (1..count).map(|i| honest(bytes, i as u8)).collect();
        sent.push(honest(last, 0xff));
        for wait in [Wait::Block, Wait::Spin(Span::from_ms(5))] {
            a.send_to(&sent.concat(), bytes, b.local_addr()).unwrap();
            assert_eq!(collect(&b, count, wait), sent);
        }
    }
    // One that is too short to say it, one that claims to be longer than it is, and one that claims less: nothing is
    // read beyond what has come.
    let mut buffer = vec![0xee; RECEIVE_BUFFER_BYTES];
    for (bytes, segment) in
        [(&[][..], 1), (&[1, 0][..], 2), (&[9, 0xff, 0xff, 9][..], 4), (&[9, 0, 0, 9, 9, 9, 9, 9, 9][..], 7)]
    {
        a.send_to(bytes, 100, b.local_addr()).unwrap();
        let received = b.recv(&mut buffer, PATIENCE, Wait::Block).unwrap();
        assert_eq!(received, Received::Datagrams { from: a.local_addr(), len: bytes.len(), segment });
        assert!(datagrams(&buffer[..bytes.len()], segment).all(|datagram| datagram.len() <= segment));
    }
}

#[test]
fn a_batch_arrives_as_its_datagrams_however_it_is_sent_and_received() {
    for (bytes, segment) in [(20_500, 1_000), (64 * 100 + 1, 100), (200_000, 1_472), (65_507, 65_507), (3_000, 1_500)] {
        for wait in [Wait::Block, Wait::Spin(Span::from_ms(5))] {
            for offload in [true, false] {
                let (a, b) = (endpoint(), endpoint());
                let offload = offload && a.offload().segment;
                a.segment.store(offload, Relaxed);
                let sent = pattern(bytes);
                let wanted: Vec<&[u8]> = sent.chunks(segment).collect();
                a.send_to(&sent, segment, b.local_addr()).unwrap();
                assert_eq!(collect(&b, wanted.len(), wait), wanted, "{bytes} by {segment}");
                assert_eq!(a.offload().segment, offload, "a batch that works does not end batches");
            }
        }
    }
}

#[test]
fn a_batch_that_fits_is_one_system_call() {
    let (a, b) = (endpoint(), endpoint());
    let calls = sys::calls_during(|| a.send_to(&pattern(40 * 1_472), 1_472, b.local_addr()).unwrap());
    assert_eq!(calls, if a.offload().segment { 1 } else { 40 });
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let received = b.recv(&mut buffer, PATIENCE, Wait::Block).unwrap();
    if a.offload().segment && b.offload().coalesce {
        assert_eq!(received, Received::Datagrams { from: a.local_addr(), len: 40 * 1_472, segment: 1_472 });
    }
}

#[test]
fn a_closed_port_is_reported_to_every_way_of_receiving() {
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let short = Some(Duration::from_millis(7));
    let spin = Wait::Spin(Span::from_ms(10_000));
    for (timeout, wait) in [(PATIENCE, Wait::Block), (None, Wait::Block), (short, Wait::Block), (PATIENCE, spin)] {
        let a = endpoint();
        let gone = closed_address();
        a.send_to(b"anybody?", 100, gone).unwrap();
        assert_eq!(a.recv(&mut buffer, timeout, wait).unwrap(), Received::Unreachable(gone));
        assert_eq!(a.try_recv(&mut buffer).unwrap(), Received::Timeout);
    }
}

#[test]
fn a_report_met_by_a_send_is_kept_and_the_send_succeeds() {
    let (a, b) = (endpoint(), endpoint());
    let (gone, gone_too) = (closed_address(), closed_address());
    for to in [gone, gone_too, b.local_addr()] {
        a.send_to(b"hello", 100, to).unwrap();
    }
    assert_eq!(collect(&b, 1, Wait::Block), [b"hello"]);
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let reports = [(); 2].map(|()| {
        sys::wait(&[a.socket.as_fd()], Readiness::Read, PATIENCE).unwrap();
        a.try_recv(&mut buffer).unwrap()
    });
    assert_eq!(reports, [Received::Unreachable(gone), Received::Unreachable(gone_too)]);
    assert_eq!(a.try_recv(&mut buffer).unwrap(), Received::Timeout);
}

#[test]
fn a_report_does_not_hide_a_datagram() {
    let (a, b) = (endpoint(), endpoint());
    let gone = closed_address();
    a.send_to(b"x", 100, gone).unwrap();
    b.send_to(b"data", 100, a.local_addr()).unwrap();
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let both: Vec<Received> = (0..2).map(|_| a.recv(&mut buffer, PATIENCE, Wait::Block).unwrap()).collect();
    assert!(both.contains(&Received::Unreachable(gone)), "{both:?}");
    assert!(both.contains(&Received::Datagrams { from: b.local_addr(), len: 4, segment: 4 }), "{both:?}");
}

#[test]
fn nothing_comes_and_the_wait_ends_but_not_early() {
    let a = endpoint();
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    for ms in [0, 3, 7, 9, 30] {
        for wait in [Wait::Block, Wait::Spin(Span::from_us(100)), Wait::Spin(Span::from_ms(50))] {
            let timeout = Duration::from_millis(ms);
            let start = Instant::now();
            assert_eq!(a.recv(&mut buffer, Some(timeout), wait).unwrap(), Received::Timeout);
            assert!(start.elapsed() >= timeout, "{wait:?} for {timeout:?} ended after {:?}", start.elapsed());
        }
    }
}

#[test]
fn what_is_too_long_for_a_datagram_is_an_error_and_no_loss() {
    let (a, b) = (endpoint(), endpoint());
    let error = a.send_to(&pattern(65_508), 65_508, b.local_addr()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    assert!(!counts_as_loss(&error));
    assert_eq!(a.send_to(b"x", 0, b.local_addr()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    a.send_to(b"still works", 100, b.local_addr()).unwrap();
    assert_eq!(collect(&b, 1, Wait::Block), [b"still works"]);
}

#[test]
fn several_threads_send_through_one_endpoint() {
    let (a, b) = (endpoint(), endpoint());
    let to = b.local_addr();
    let mut received: Vec<Vec<u8>> = std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let a = &a;
            scope.spawn(move || (0..50u8).for_each(|i| a.send_to(&[thread, i], 100, to).unwrap()));
        }
        collect(&b, 200, Wait::Block)
    });
    received.sort();
    let wanted: Vec<Vec<u8>> = (0..4u8).flat_map(|thread| (0..50u8).map(move |i| vec![thread, i])).collect();
    assert_eq!(received, wanted);
}

#[test]
fn an_empty_datagram_is_received_and_carries_nothing() {
    let b = endpoint();
    let stranger = UdpSocket::bind((HOST, 0)).unwrap();
    stranger.send_to(&[], b.local_addr()).unwrap();
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    let from = stranger.local_addr().unwrap();
    let received = b.recv(&mut buffer, PATIENCE, Wait::Block).unwrap();
    assert_eq!(received, Received::Datagrams { from, len: 0, segment: 1 });
    assert_eq!(datagrams(&buffer[..0], 1).count(), 0);
}

#[test]
fn what_exceeds_the_buffer_is_cut_off() {
    let (a, b) = (endpoint(), endpoint());
    a.send_to(&pattern(1_000), 1_000, b.local_addr()).unwrap();
    let mut small = [0; 10];
    let received = b.recv(&mut small, PATIENCE, Wait::Block).unwrap();
    assert_eq!(received, Received::Datagrams { from: a.local_addr(), len: 10, segment: 10 });
    assert_eq!(small, pattern(10)[..]);
}

#[test]
#[allow(clippy::explicit_write, reason = "seen even when the test passes")]
fn ipv6_works_the_same() {
    let host = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let bind = || Endpoint::bind(host, PortChoice::Any);
    let (Ok(a), Ok(b)) = (bind(), bind()) else {
        use std::io::Write;
        writeln!(io::stderr(), "SKIP: ipv6_works_the_same: this host has no ::1").unwrap();
        return;
    };
    let sent = pattern(30_000);
    a.send_to(&sent, 1_452, b.local_addr()).unwrap();
    assert_eq!(collect(&b, 21, Wait::Block), sent.chunks(1_452).collect::<Vec<_>>());
    let gone = bind().unwrap().local_addr();
    a.send_to(b"x", 100, gone).unwrap();
    let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
    assert_eq!(a.recv(&mut buffer, PATIENCE, Wait::Block).unwrap(), Received::Unreachable(gone));
}

/// Two endpoints of a host that have sent each other so much that they have sockets for it; `None` where the kernel
/// lets them have none.
fn often_in_touch(host: IpAddr) -> Option<[Endpoint; 2]> {
    let bind = || Endpoint::bind(host, PortChoice::Any).ok();
    let (a, b) = (bind()?, bind()?);
    for (from, to) in [(&a, &b), (&b, &a)] {
        for i in 0..200u8 {
            from.send_to(&[i], 100, to.local_addr()).unwrap();
        }
        assert_eq!(collect(to, 200, Wait::Block), (0..200u8).map(|i| vec![i]).collect::<Vec<_>>());
    }
    let have_ways = |a: &Endpoint, b: &Endpoint| a.ways.socket(a.local, b.local).is_some();
    (have_ways(&a, &b) && have_ways(&b, &a)).then_some([a, b])
}

#[test]
#[allow(clippy::explicit_write, reason = "seen even when the test passes")]
fn who_sends_often_is_still_heard_as_the_same_sender_and_hears_all() {
    for host in [HOST, IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let Some([a, b]) = often_in_touch(host) else {
            use std::io::Write;
            writeln!(io::stderr(), "SKIP: who_sends_often: no connected sockets at {host}").unwrap();
            continue;
        };
        let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
        for (from, to) in [(&a, &b), (&b, &a)] {
            assert_eq!(sys::calls_during(|| from.send_to(b"small", 1_472, to.local_addr()).unwrap()), 1);
            let received = to.recv(&mut buffer, PATIENCE, Wait::Block).unwrap();
            assert_eq!(received, Received::Datagrams { from: from.local_addr(), len: 5, segment: 5 });
            let sent = pattern(30_000);
            from.send_to(&sent, 1_452, to.local_addr()).unwrap();
            assert_eq!(collect(to, 21, Wait::Block), sent.chunks(1_452).collect::<Vec<_>>());
        }
        let gone = b.local_addr();
        drop(b);
        a.send_to(b"anybody?", 100, gone).unwrap();
        assert_eq!(a.recv(&mut buffer, PATIENCE, Wait::Block).unwrap(), Received::Unreachable(gone));
        let error = a.send_to(&pattern(65_508), 65_508, gone).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }
}

#[test]
fn there_are_ways_to_some_and_others_are_reached_all_the_same() {
    let a = endpoint();
    let others: Vec<Endpoint> = (0..90).map(|_| endpoint()).collect();
    for round in 0..80u8 {
        others.iter().for_each(|other| a.send_to(&[round], 100, other.local_addr()).unwrap());
    }
    for other in &others {
        assert_eq!(collect(other, 80, Wait::Block), (0..80u8).map(|i| vec![i]).collect::<Vec<_>>());
    }
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Relaxed);
}

fn count_signals() {
    // SAFETY: the structure consists of integers and a pointer that may be null.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count_signal as *const () as libc::sighandler_t;
    // SAFETY: the handler only counts, and only tests that call this use the signal.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()) }, 0);
}

#[test]
fn a_wait_ends_in_time_however_often_signals_come() {
    count_signals();
    let a = endpoint();
    // Many ticks long, as the first wait is where ticks are short.
    a.socket.set_read_timeout(Some(Duration::from_millis(40))).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            // SAFETY: asks for this thread's own handle.
            tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
            let start = Instant::now();
            let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
            let received = a.recv(&mut buffer, Some(Duration::from_millis(20)), Wait::Block).unwrap();
            (received, start.elapsed())
        });
        let (thread, start) = (told.recv().unwrap(), Instant::now());
        while !receiver.is_finished() && start.elapsed() < Duration::from_secs(20) {
            // SAFETY: the thread is joined below, and its handle lives until then.
            unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGUSR2) };
            std::thread::sleep(Duration::from_millis(1));
        }
        let (received, took) = receiver.join().unwrap();
        assert_eq!(received, Received::Timeout);
        assert!(took < Duration::from_secs(10), "{took:?}");
    });
}

#[test]
fn signals_neither_end_a_wait_nor_lose_what_comes() {
    count_signals();
    let (a, b) = (endpoint(), endpoint());
    for (timeout, wait) in [(None, Wait::Block), (Some(Duration::from_secs(19)), Wait::Block)] {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                // SAFETY: asks for this thread's own handle.
                tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
                let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
                b.recv(&mut buffer, timeout, wait).unwrap()
            });
            let thread = told.recv().unwrap();
            let enough = SIGNALS.load(Relaxed) + 50;
            while SIGNALS.load(Relaxed) < enough {
                // SAFETY: the thread lives until it has received the datagram that is sent below.
                assert_eq!(unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGUSR2) }, 0);
                std::thread::yield_now();
            }
            a.send_to(b"at last", 100, b.local_addr()).unwrap();
            assert_eq!(receiver.join().unwrap(), Received::Datagrams { from: a.local_addr(), len: 7, segment: 7 });
        });
    }
}

#[test]
fn what_comes_fills_one_buffer_and_goes_on_in_the_next() {
    let (a, b) = (endpoint(), endpoint());
    assert!(b.receives_in_two());
    let (mut first, mut rest) = ([0; 10], [0; 100]);
    assert_eq!(b.try_recv_in_two(&mut first, &mut rest).unwrap(), None);
    for bytes in [4, 10, 60] {
        let sent = pattern(bytes);
        a.send_to(&sent, 1_472, b.local_addr()).unwrap();
        let received = b.try_recv_in_two(&mut first, &mut rest).unwrap();
        assert_eq!(received, Some(Received::Datagrams { from: a.local_addr(), len: bytes, segment: bytes }));
        assert_eq!([&first[..], &rest[..]].concat()[..bytes], sent);
    }
    // Nobody receives there: the report is left to the next call.
    b.send_to(b"x", 1_472, closed_address()).unwrap();
    assert!(matches!(b.try_recv_in_two(&mut first, &mut rest), Ok(None)));
    let reported = b.recv(&mut [0; RECEIVE_BUFFER_BYTES], PATIENCE, Wait::Block).unwrap();
    assert!(matches!(reported, Received::Unreachable(_)), "{reported:?}");
}
