//! The receiving side of an endpoint: its lanes, its bell, and the UDP socket that strangers and groups reach.

use super::doorbell::{Doorbell, LANES_MAX};
use super::lane;
use super::outside::{Came, Outside};
use crate::Received;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a spinning receiver looks between two looks at the clock.
const POLLS_BETWEEN_CLOCKS: usize = 16;

#[derive(Debug)]
struct Lane {
    consumer: lane::Consumer,
    /// The producer is gone: what it left is still delivered.
    closing: bool,
}

#[derive(Debug)]
struct Lanes {
    lanes: [Option<Lane>; LANES_MAX],
    /// Whose turn it is first.
    next: u32,
}

/// What an endpoint receives from.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) outside: Outside,
    pub(super) address: SocketAddr,
    bell: Doorbell,
    bell_file: OwnedFd,
    lanes: Mutex<Lanes>,
    /// Lanes that have rung and may still have something; changed under the lock of `lanes` alone.
    rung: AtomicU64,
    /// The UDP socket, or a listener, may have something.
    udp_ready: AtomicBool,
    kicked: AtomicBool,
    sleepers: AtomicU32,
}

impl Inbox {
    pub(super) fn new(outside: Outside, address: SocketAddr, bell_file: OwnedFd) -> io::Result<Inbox> {
        Ok(Inbox {
            outside,
            address,
            bell: Doorbell::new(bell_file.as_fd())?,
            bell_file,
            lanes: Mutex::new(Lanes { lanes: [const { None }; LANES_MAX], next: 0 }),
            rung: AtomicU64::new(0),
            udp_ready: AtomicBool::new(false),
            kicked: AtomicBool::new(false),
            sleepers: AtomicU32::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bell_file(&self) -> BorrowedFd<'_> {
        self.bell_file.as_fd()
    }

    /// Gives a lane its place; `None` when all are taken.
    pub(super) fn add_lane(&self, consumer: lane::Consumer) -> Option<usize> {
        let mut lanes = self.lock();
        let free = lanes.lanes.iter().position(Option::is_none)?;
        lanes.lanes[free] = Some(Lane { consumer, closing: false });
        Some(free)
    }

    /// Takes note that a lane's producer is gone.
    pub(super) fn close_lane(&self, index: usize) {
        let mut lanes = self.lock();
        let Some(lane) = &mut lanes.lanes[index] else { return };
        if lane.consumer.is_empty() {
            lanes.lanes[index] = None;
            return;
        }
        // It may have died between filling the lane and ringing.
        lane.closing = true;
        self.rung.fetch_or(1 << index, Release);
        drop(lanes);
        self.rouse_sleepers();
    }

    /// Takes note that the UDP socket or a listener has something.
    pub(super) fn hear_udp(&self) {
        self.udp_ready.store(true, SeqCst);
        self.rouse_sleepers();
    }

    #[cfg(test)]
    pub(super) fn somebody_sleeps(&self) -> bool {
        self.bell.somebody_sleeps()
    }

    /// Ends the present wait, or the next one.
    pub(super) fn kick(&self) {
        self.kicked.store(true, SeqCst);
        self.rouse_sleepers();
    }

    fn rouse_sleepers(&self) {
        if self.sleepers.load(SeqCst) > 0 {
            self.bell.rouse();
        }
    }

    /// Takes what is there.
    #[inline]
    pub(super) fn take(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        if self.udp_ready.load(Acquire)
            && let Some(received) = self.take_udp(buffer)?
        {
            return Ok(Some(received));
        }
        Ok(self.take_record(buffer))
    }

    #[cold]
    fn take_udp(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        // Before the look, so that what comes after it is not forgotten.
        self.udp_ready.store(false, SeqCst);
        let came = self.outside.take_ready(buffer)?;
        if !matches!(came, Came::Nothing) {
            self.hear_udp();
        }
        // After a stranger's datagram the lanes have their turn: a flood of such does not keep them from it.
        Ok(if let Came::Received(received) = came { Some(received) } else { None })
    }

    #[inline]
    fn lanes_have_rung(&self) -> bool {
        self.rung.load(Relaxed) != 0 || self.bell.has_rung()
    }

    #[inline]
    fn take_record(&self, buffer: &mut [u8]) -> Option<Received> {
        if !self.lanes_have_rung() {
            return None;
        }
        let mut lanes = self.lock();
        let mut rung = self.rung.load(Relaxed) | self.bell.answer();
        let received = loop {
            if rung == 0 {
                break None;
            }
            // The first that has rung from `next` on, and round.
            let index = ((rung.rotate_right(lanes.next).trailing_zeros() + lanes.next) % u64::BITS) as usize;
            match lanes.take(index, buffer) {
                Some(record) => {
                    if !record.more {
                        rung &= !(1 << index);
                    }
                    lanes.next = (index as u32 + 1) % u64::BITS;
                    let from = SocketAddr::new(self.address.ip(), record.port);
                    break Some(Received::Datagrams { from, len: record.len, segment: record.segment });
                }
                None => rung &= !(1 << index),
            }
        };
        self.rung.store(rung, Release);
        drop(lanes);
        if rung != 0 {
            self.leave_the_rest();
        }
        received
    }

    /// One thread takes one thing; another that sleeps here may take the next, unless somebody looks anyway.
    fn leave_the_rest(&self) {
        // Who stops watching looks once more after that.
        std::sync::atomic::fence(SeqCst);
        if !self.bell.is_watched() {
            self.rouse_sleepers();
        }
    }

    /// Whether something may be there; counts as a look.
    #[inline]
    pub(super) fn glance(&self) -> bool {
        self.bell.glance();
        self.lanes_have_rung() || self.udp_ready.load(Relaxed)
    }

    /// A thread looks again and again from now on, or no longer.
    pub(super) fn watch(&self, watching: bool) {
        self.bell.watch(watching);
        if !watching {
            // The last look, which is relaxed like all others, must not come before this.
            std::sync::atomic::fence(SeqCst);
        }
    }

    #[inline]
    fn has_something(&self) -> bool {
        self.lanes_have_rung() || self.udp_ready.load(Relaxed) || self.kicked.load(Relaxed)
    }

    /// Looks again and again for so long; `None` when nothing came.
    pub(super) fn spin(&self, buffer: &mut [u8], start: Instant, limit: Duration) -> io::Result<Option<Received>> {
        loop {
            for _ in 0..POLLS_BETWEEN_CLOCKS {
                if self.has_something() {
                    if let Some(received) = self.take(buffer)? {
                        return Ok(Some(received));
                    }
                    if self.was_kicked() {
                        return Ok(Some(Received::Timeout));
                    }
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= limit {
                return Ok(None);
            }
        }
    }

    fn was_kicked(&self) -> bool {
        self.kicked.load(Relaxed) && self.kicked.swap(false, AcqRel)
    }

    /// Sleeps until something comes or until `deadline`.
    pub(super) fn block(&self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<Received> {
        loop {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let sleeper = Sleeper::new(&self.sleepers);
            let moment = self.bell.moment();
            if let Some(received) = self.take(buffer)? {
                return Ok(received);
            }
            if left == Some(Duration::ZERO) || self.kicked.swap(false, SeqCst) {
                return Ok(Received::Timeout);
            }
            self.bell.sleep(moment, left);
            drop(sleeper);
        }
    }
}

impl Lanes {
    #[inline]
    fn take(&mut self, index: usize, buffer: &mut [u8]) -> Option<lane::Record> {
        let lane = self.lanes.get_mut(index)?.as_mut()?;
        let record = lane.consumer.take(buffer);
        if lane.closing && record.is_none_or(|r| !r.more) {
            self.lanes[index] = None;
        }
        record
    }
}

/// A thread that sleeps, or is about to; counted as long as this lives.
struct Sleeper<'a>(&'a AtomicU32);

impl<'a> Sleeper<'a> {
    fn new(count: &'a AtomicU32) -> Sleeper<'a> {
        count.fetch_add(1, SeqCst);
        // Before the looks that follow; a locked instruction is one on x86.
        #[cfg(not(target_arch = "x86_64"))]
        std::sync::atomic::fence(SeqCst);
        Sleeper(count)
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ShmHost;
    use super::*;
    use crate::{Datagrams, PortChoice, RECEIVE_BUFFER_BYTES};

    /// The other one may have looked just before the sender rang, and sleep just after this one answered.
    #[test]
    fn who_leaves_something_rouses_another_receiver() {
        let host = ShmHost::open().unwrap();
        let [a, b] = [(); 2].map(|()| host.bind(std::net::Ipv4Addr::LOCALHOST.into(), PortChoice::Any).unwrap());
        assert_eq!(host.connect(&[b.local_addr()], Duration::from_secs(20)), 1);
        for _ in 0..2 {
            a.send_to(b"something", 9, b.local_addr()).unwrap();
        }
        let inbox = &b.inbox;
        let sleeper = Sleeper::new(&inbox.sleepers);
        let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
        let moments = [(); 3].map(|()| {
            let before = inbox.bell.moment();
            let received = inbox.take(&mut buffer).unwrap();
            (received.is_some(), inbox.bell.moment() != before)
        });
        assert_eq!(moments, [(true, true), (true, false), (false, false)], "what came, and whether it roused");
        drop(sleeper);
    }
}
