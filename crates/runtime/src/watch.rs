//! The watch over the other nodes, and how this node ends when one of them is lost.

use crate::boot::plain_datagram;
use crate::config::Config;
use crate::control::FromNode;
use crate::error::Error;
use crate::io::Wire;
use crate::keys;
use crate::mutex::Mutex;
use crate::node::{Node, SyncState};
use crate::report;
use comem_net::counts_as_loss;
use comem_net::select::{MTUS, path_mtu, udp_payload_max};
use comem_protocol::auth::{Receiver, Sealer};
use comem_protocol::ids::{Channel, NodeId, Seq, Slot};
use comem_protocol::node::membership::{Detector, Event, Transmit, WatchConfig};
use comem_protocol::node::message::types;
use comem_protocol::node::repeated::RepeatedReplies;
use comem_protocol::node::startup::{DISCOVERY_PROG, Startup, To};
use comem_protocol::node::watch::LossCause;
use comem_protocol::outbox::Outbox;
use comem_protocol::time::{Span, Time};
use comem_protocol::wire::header::{HEADER_BYTES, MsgType, Packet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The machines that live on after start-up, behind their locks.
///
/// The lock of start-up is held while its datagrams are sent. That of the detector is held for one step; what it finds
/// is acted on without it. The barrier's lock is taken beside them, never within.
#[derive(Debug)]
pub(crate) struct Watch {
    startup: Mutex<Option<Startup>>,
    detector: Mutex<Option<Detector>>,
    /// What has not been answered for so long is told to the detector.
    ask_after: Span,
    /// Replies of this node that do not arrive.
    replies: Mutex<RepeatedReplies>,
    free: AtomicU64,
    over: AtomicBool,
}

impl Watch {
    /// The watch over the job's other nodes. Long packets get through where no network is between the nodes.
    pub(crate) fn new(config: &Config, wire: &Wire, now: Time, startup: Option<Startup>) -> Watch {
        let fatal = config.node_timeout.map(|t| Span(t.as_nanos() as u64));
        let longest = wire.datagram_bytes() - HEADER_BYTES - wire.sealer().tag_len();
        let drops_long = config.faults.is_some_and(|faults| faults.longest_bytes > 0);
        let longest = if wire.is_on_one_host() && !drops_long { 0 } else { longest };
        let watch = WatchConfig { fatal, longest, ..WatchConfig::default() };
        Watch {
            startup: Mutex::new(startup),
            ask_after: watch.ask_after(),
            replies: Mutex::default(),
            detector: Mutex::new((wire.nodes() > 1).then(|| Detector::new(wire.me(), wire.nodes(), watch, now))),
            // Start-up has used the first numbers.
            free: AtomicU64::new(1 << 20),
            over: AtomicBool::new(false),
        }
    }

    /// Any sign of life of a node.
    pub(crate) fn heard_from(&self, node: NodeId, now: Time) {
        // When the lock is taken, somebody hears the node or looks after it just now.
        if let Some(mut detector) = self.detector.try_lock()
            && let Some(detector) = detector.as_mut()
        {
            detector.heard(now, node);
        }
    }

    /// Nodes that owe this one an answer for long: to what its threads have sent, to its arrival at a barrier, or by
    /// taking a reply.
    fn unanswered(&self, now: Time, wire: &Wire, sync: &SyncState) -> Vec<(NodeId, Time)> {
        let mut waiting = Vec::new();
        if wire.nodes() > 1 {
            let before = Time(now.0.saturating_sub(self.ask_after.0));
            wire.unanswered(before, &mut waiting);
            sync.with_barrier(|barrier| waiting.extend(barrier.unanswered(before)));
            waiting.extend(self.replies.lock().unanswered(now, before));
        }
        waiting
    }

    /// A datagram of start-up or of the watch, under the next number of such.
    fn datagram(&self, me: NodeId, kind: (u16, MsgType), body: &[u8], sealer: &Sealer, receiver: Receiver) -> Vec<u8> {
        let seq = Seq::free(Channel::service(me), self.free.fetch_add(1, Ordering::Relaxed));
        plain_datagram(kind, body, seq, sealer, receiver)
    }

    /// Steps the detector; what it wants sent, and what it found.
    fn step(&self, step: impl FnOnce(&mut Detector)) -> (Vec<Transmit>, Vec<Event>) {
        let mut detector = self.detector.lock();
        let Some(detector) = detector.as_mut() else { return (Vec::new(), Vec::new()) };
        step(detector);
        let sends = std::iter::from_fn(|| detector.poll_transmit()).collect();
        (sends, std::iter::from_fn(|| detector.poll_event()).collect())
    }

    /// Whether another node has said farewell.
    fn someone_left(&self) -> bool {
        self.detector.lock().as_ref().is_some_and(Detector::someone_left)
    }

    /// `node` has asked once more for the reply to its request `seq`, which was sent before.
    pub(crate) fn note_repeated(&self, now: Time, node: NodeId, seq: Seq) {
        self.replies.lock().note(now, node, seq);
    }
}

/// Whether a message type belongs to the watch.
pub(crate) fn is_of_watch(ty: MsgType) -> bool {
    (types::PING.0..=types::LOST.0).contains(&ty.0)
}

impl Wire {
    /// Whether the program has left this node the socket at which others reach it.
    fn has_its_socket(&self) -> bool {
        self.nodes() == 1 || self.endpoint(Slot::SERVICE).is_open()
    }

    /// The most bytes of this job's packets, headers included.
    fn packet_bytes(&self, to: IpAddr) -> usize {
        let headers = MTUS.end() - udp_payload_max(*MTUS.end(), to);
        self.datagram_bytes() + headers
    }

    /// The same, of packets to a node.
    fn packet_bytes_to(&self, node: NodeId) -> usize {
        self.address(Channel::service(node)).map_or(0, |address| self.packet_bytes(address.ip()))
    }

    /// Why the job ends where packets are too long for the way, as far as its MTU is known, and what to do.
    fn too_long(&self, to: IpAddr, mtu: Option<usize>) -> Error {
        let (used, least) = (self.packet_bytes(to), MTUS.start());
        let why = match mtu {
            Some(mtu) if MTUS.contains(&mtu) => {
                format!("packets of {used} bytes are too long, {mtu} are possible; start the job with --mtu {mtu}")
            }
            Some(mtu) => {
                format!("packets of {mtu} bytes are possible, Comem needs {least}; choose a network with --iface")
            }
            None => format!("packets of {used} bytes are too long; start the job with a smaller --mtu"),
        };
        Error::System { what: format!("cannot send to {to}"), source: io::Error::other(why) }
    }

    /// Why two nodes do not reach each other, as the end of a sentence that begins with the one that is lost.
    fn why_parted(&self, lost: NodeId, other: NodeId, why: &LossCause, by_several: bool) -> String {
        let other_name = self.name_of(other);
        match why {
            LossCause::OnlyShort => {
                let bytes = self.packet_bytes_to(if lost == self.me() { other } else { lost });
                format!(
                    "and {other_name} reach each other by short packets only, those of {bytes} bytes are lost: start \
                     the job with a smaller --mtu, comem doctor --hosts tells what fits"
                )
            }
            _ if by_several && lost == self.me() => {
                format!("and {other_name}, and others, do not reach each other: its network is cut, or it was stopped")
            }
            _ if by_several => format!("{why}, as {other_name} and others have found"),
            _ => format!("{why} towards {other_name}: it is stopped, or the network between the two is cut"),
        }
    }

    fn node_at(&self, address: SocketAddr) -> Option<NodeId> {
        NodeId::all(self.nodes()).find(|n| self.address(Channel::service(*n)) == Some(address))
    }

    /// Whether all nodes have one address.
    fn is_on_one_host(&self) -> bool {
        let mut hosts = NodeId::all(self.nodes()).map(|n| self.address(Channel::service(n)).map(|a| a.ip()));
        let first = hosts.next();
        hosts.all(|host| Some(host) == first)
    }
}

impl Node {
    /// Runs the watch's timers and does what they ask for.
    pub(crate) fn watch(&self, now: Time) {
        if let Some(startup) = self.watch.startup.lock().as_mut() {
            startup.on_timeout(now);
            self.send_start_up(startup);
        }
        let waiting = self.watch.unanswered(now, &self.wire, &self.sync);
        self.with_detector(|detector| {
            detector.unanswered(now, &waiting);
            detector.on_timeout(now);
        });
        self.depart_with_others();
        if let Err(error) = self.life.check_use() {
            self.end_with(&error);
        }
    }

    /// Somebody's farewell means that all have arrived at the closing barrier.
    fn depart_with_others(&self) {
        if self.watch.someone_left() {
            self.depart();
        }
    }

    /// Another node has gone: if this one waits at the closing barrier, it need not wait any longer. Tells whether it
    /// did.
    fn depart(&self) -> bool {
        let mut out = Outbox::new();
        let waited = self.sync.with_barrier(|b| b.on_departure(None, &mut out));
        self.flush(Slot::SERVICE, &mut out);
        if waited {
            self.with_detector(Detector::closed);
        }
        waited
    }

    /// A datagram of start-up. It precedes the job, so that what another job of the same key has said may come once
    /// more.
    pub(crate) fn on_start_datagram(&self, slot: Slot, from: SocketAddr, packet: &Packet<'_>) {
        let ty = packet.header.ty;
        if !(types::JOIN.0..types::PING.0).contains(&ty.0) {
            return self.reject(slot, from, &"it is no message of start-up");
        }
        if let Some(startup) = self.watch.startup.lock().as_mut() {
            // What cannot be parsed has no effect; its sender repeats what matters.
            let _ = startup.on_datagram(self.now(), from, ty, packet.payload);
            self.send_start_up(startup);
        }
    }

    /// A datagram of the watch, of another node of this job.
    pub(crate) fn on_watch_datagram(&self, slot: Slot, from: SocketAddr, packet: &Packet<'_>) {
        let (node, ty) = (packet.channel.node, packet.header.ty);
        let mut read = Ok(());
        self.with_detector(|detector| read = detector.on_datagram(self.now(), node, ty, packet.payload));
        if let Err(error) = read {
            self.on_bad_packet(slot, node, from, &error.into());
        }
        if ty == types::LOST {
            self.depart_with_others();
        }
    }

    fn send_start_up(&self, startup: &mut Startup) {
        while let Some(transmit) = startup.poll_transmit() {
            if let To::Address(to) = transmit.to {
                let (kind, sealer) = ((DISCOVERY_PROG, transmit.ty), self.wire.start_sealer());
                let bytes = self.watch.datagram(self.me(), kind, &transmit.body, sealer, Receiver::Anybody);
                self.put_on_wire(Slot::SERVICE, &bytes, bytes.len(), to);
            }
        }
        while startup.poll_event().is_some() {}
    }

    /// Steps the detector, sends what it wants sent, and acts on what it found.
    pub(crate) fn with_detector(&self, step: impl FnOnce(&mut Detector)) {
        let (sends, events) = self.watch.step(step);
        for send in sends {
            if let Some(address) = self.wire.address(Channel::service(send.to)) {
                let (kind, to) = ((self.wire.prog(), send.ty), Receiver::Node(send.to));
                let bytes = self.watch.datagram(self.me(), kind, &send.body, self.wire.sealer(), to);
                self.put_on_wire(Slot::SERVICE, &bytes, bytes.len(), address);
            }
        }
        for event in events {
            self.on_watch_event(event);
        }
    }

    fn on_watch_event(&self, event: Event) {
        match event {
            Event::Warn { node, silent } => {
                let limit = match self.config.node_timeout {
                    Some(limit) => format!("this node gives up after {} s", limit.as_secs_f64()),
                    None => "this node waits".to_string(),
                };
                let seconds = silent.0 as f64 / 1e9;
                crate::error::say(format_args!(
                    "comem: {}: {} has been silent for {seconds:.1} s; {limit} (is it stopped, or in a debugger?)",
                    self.name_of(self.me()),
                    self.name_of(node)
                ));
            }
            Event::Back { node } => {
                crate::error::say(format_args!("comem: {}: {} is back", self.name_of(self.me()), self.name_of(node)));
            }
            // The other one finds the same.
            Event::OnlyShort { node } if node < self.me() => {}
            Event::OnlyShort { node } => {
                let bytes = self.wire.packet_bytes_to(node);
                crate::error::say(format_args!(
                    "comem: {}: packets of {bytes} bytes to {} and back are lost, short ones get through: what needs \
                     them waits in vain. Start the job with a smaller --mtu; comem doctor --hosts tells what fits",
                    self.name_of(self.me()),
                    self.name_of(node)
                ));
            }
            Event::Lost { node, why, reporter, mutual, by_several }
                if why.parts_two() && (node != self.me() || mutual) =>
            {
                let why = self.wire.why_parted(node, reporter, &why, by_several);
                self.end_with(&Error::NodeLost { node, why });
            }
            Event::Lost { node, why, .. } if node == self.me() => {
                self.end_with(&Error::Stopped(format!("the other nodes gave this node up: it {why}")));
            }
            // At the closing barrier a closed port without a farewell most likely means that the farewell got lost; a
            // node that crashed there is reported by whoever started it.
            Event::Lost { why: LossCause::PortClosed, .. } if self.depart() => {}
            Event::Lost { node, why, .. } => self.end_with(&Error::NodeLost { node, why: why.to_string() }),
        }
    }

    /// A send bounced: nothing listens there.
    pub(crate) fn on_unreachable(&self, address: SocketAddr) {
        if let Some(node) = self.wire.node_at(address) {
            self.with_detector(|d| d.evidence(self.now(), node, LossCause::PortClosed));
        } else if let Some(startup) = self.watch.startup.lock().as_mut() {
            startup.on_refused(self.now(), address);
        }
    }

    /// What the way to an address takes has become known: longer packets are lost, however often they are sent.
    pub(crate) fn on_path_mtu(&self, to: IpAddr, mtu: usize) {
        if self.config.is_over_udp() && mtu < self.wire.packet_bytes(to) {
            self.end_with(&self.wire.too_long(to, Some(mtu)));
        }
    }

    pub(crate) fn on_send_error(&self, to: SocketAddr, error: &io::Error) {
        if self.config.is_over_udp() && error.raw_os_error() == Some(libc::EMSGSIZE) {
            let local = self.wire.endpoint(Slot::SERVICE).local_addr().ip();
            let known = path_mtu(local, to).ok().filter(|mtu| *mtu < self.wire.packet_bytes(to.ip()));
            self.end_with(&self.wire.too_long(to.ip(), known));
        } else if !counts_as_loss(error) {
            self.on_socket_error(&format!("cannot send to {to}"), error);
        }
    }

    /// A socket of this node's fails in a way that no network explains.
    pub(crate) fn on_socket_error(&self, what: &str, error: &io::Error) {
        match error.raw_os_error() {
            Some(code @ (libc::EBADF | libc::ENOTSOCK)) => self.end_with(&closed_descriptors(what, code)),
            _ if counts_as_loss(error) => {}
            // Others wait for what this node cannot say or hear.
            _ => self.end_with(&Error::System {
                what: what.to_string(),
                source: io::Error::new(error.kind(), error.to_string()),
            }),
        }
    }

    /// Says farewell; not where all nodes are known to have passed the closing barrier. Through shared memory each
    /// farewell takes a ring that nothing else went through.
    pub(crate) fn leave(&self, all_have_finished: bool) {
        self.with_detector(|d| if all_have_finished { d.leave_without_a_word() } else { d.leave(self.now()) });
    }

    /// Ends this process with one sentence, where there is no host to outlive its job.
    pub(crate) fn end_for(&self, error: &Error) -> ! {
        self.end_with(error);
        if self.life.is_ending() {
            crate::error::say(format_args!("{}", self.sentence(error)));
            end_at_once(error)
        }
        loop {
            // Another thread is at it.
            std::thread::park();
        }
    }

    /// Ends this process with one sentence.
    pub(crate) fn end_with(&self, error: &Error) {
        if let Some(host) = crate::host::host().filter(|_| self.life.began().is_some()) {
            if !self.life.is_ending() {
                self.outlive(host, error);
            }
            return;
        }
        if self.life.is_ending() || self.watch.over.swap(true, Ordering::AcqRel) {
            return;
        }
        // Through shared memory a node goes on without its descriptors until others miss it: that they do is no loss
        // of theirs.
        let own = (matches!(error, Error::NodeLost { .. } | Error::Stopped(_)) && !self.wire.has_its_socket())
            .then(|| closed_descriptors("cannot hear other nodes", libc::EBADF));
        let error = own.as_ref().unwrap_or(error);
        let told = self.launcher.tell(&FromNode::Failed { message: self.words(error) });
        if !told {
            crate::error::say(format_args!("{}", self.sentence(error)));
        }
        let stats = report::stats(self, Some(error));
        if !self.launcher.tell(&FromNode::Stats { stats: stats.clone() })
            && let Some(path) = &self.config.stats
        {
            let _ = report::write_file(self, path, stats);
        }
        end_at_once(error)
    }
}

/// The program has closed what it has not opened.
fn closed_descriptors(what: &str, code: i32) -> Error {
    Error::System {
        what: format!(
            "{what}: the program has closed descriptors that Comem needs, as closefrom and loops over all descriptors \
             do; let it close what it has opened itself"
        ),
        source: io::Error::from_raw_os_error(code),
    }
}

/// Ends the process, which may be in the middle of anything, with what it has printed.
fn end_at_once(error: &Error) -> ! {
    keys::take_away();
    flush_standard_output();
    // SAFETY: nothing of the process is used afterwards.
    unsafe { libc::_exit(error.exit_code()) }
}

/// Lets out what the program has printed so far, unless one of its threads is in the middle of printing.
fn flush_standard_output() {
    let (done, wait) = std::sync::mpsc::channel();
    let flush = move || {
        // SAFETY: flushes every C stream; the streams live as long as the process.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        let _ = std::io::Write::flush(&mut std::io::stdout());
        let _ = done.send(());
    };
    if comem_net::threads::start("comem-flush", flush).is_ok() {
        let _ = wait.recv_timeout(std::time::Duration::from_millis(100));
    }
}
