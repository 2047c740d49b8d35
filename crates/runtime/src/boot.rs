//! How a process becomes a node, and how it stops being one.
//!
//! Without a launcher a program is a correct job of one node at once: no sockets, nobody asked, nothing awaited.

mod heap;
mod key;
mod limits;
mod multicast;
mod program;
mod sockets;
mod waits;

use self::heap::make_heap;
pub(crate) use self::key::await_key;
use self::key::{Key, authenticates, is_over_network};
use self::limits::silence;
pub(crate) use self::limits::start_limit;
use crate::config::Config;
use crate::control::{self, ControlReader, ControlWriter, FromNode, Job, ToNode};
use crate::error::{Error, Result};
use crate::guest::attendance::{Attendance, Guest};
use crate::guest::orders::Orders;
use crate::io::{Parts, Wire};
use crate::keys;
use crate::launcher_link::{LauncherLink, next_message, next_message_within};
use crate::locks::LockTables;
use crate::node::Node;
use crate::report;
use crate::service;
use crate::shared::heap::ThreadHeap;
use crate::shared::{Shared, fault};
use crate::thread::Thread;
use comem_net::multicast::DISCOVERY_PORT;
use comem_net::network::NetworkOptions;
use comem_net::select::{self, MTUS, Reach};
use comem_net::{
    Backbone, BackboneChoice, Capture, Clock, Datagrams, Group, Lengths, ListenerHandle, Network, PortChoice, Received,
    Wait, datagrams,
};
use comem_protocol::auth::{JobKey, Receiver, Sealer};
use comem_protocol::coherence::pages::choice;
use comem_protocol::ids::{Channel, NodeId, Seq, Slot, THREADS_MAX};
use comem_protocol::link::LinkConfig;
use comem_protocol::node::identity::{Identity, Layout, PACKETS, VERSION};
use comem_protocol::node::membership::Detector;
use comem_protocol::node::message::Wakeup;
use comem_protocol::node::startup::{self, DISCOVERY_PROG, Event, Mode, Phase, StartError, Startup, To, Transmit};
use comem_protocol::node::table::Membership;
use comem_protocol::selective::Way;
use comem_protocol::time::Span;
use comem_protocol::tuning::Tuning;
use comem_protocol::wire::header::{Flags, HEADER_BYTES, HeaderRepr, LEN_AT, MsgType, Packet};
use comem_protocol::wire::message::Collective;
use std::cell::RefCell;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Datagrams on the loopback need not be small: 240 KiB of pages go in four.
const LOOPBACK_DATAGRAM: usize = 65_507;
/// Datagrams on a network whose other links are not known.
const NETWORK_DATAGRAM: usize = 1472;
/// How long start-up goes without looking whether the launcher has said something.
const LAUNCHER_POLL: Duration = Duration::from_millis(50);
/// How often a node looks whether node zero has left the job's key.
const KEY_LOOK: Duration = Duration::from_millis(10);
/// A node that nobody launched says after this long whom it waits for; after twice as long where nodes first look for
/// each other.
const SILENCE: Span = Span::from_ms(2_000);

static STARTED: AtomicBool = AtomicBool::new(false);

/// Both ends of the line to the launcher.
type Launcher = (ControlReader<ToNode>, Arc<ControlWriter<FromNode>>);

/// Joins or founds the job; see [`crate::start`].
pub(crate) fn start(orders: &Orders) -> Result<Arc<Node>> {
    let started = || Error::StartedAlready;
    if STARTED.load(Ordering::Acquire) {
        return Err(started());
    }
    // A launcher has told of its own environment.
    if std::env::var_os(control::var::PROGRAM).is_none() {
        crate::settings::tell_of_misspelt();
    }
    // An environment that makes no sense has started nothing: once it does, the next call may.
    let config = Config::of_variables(&|name| orders.read(name))?;
    let clock = Arc::new(Clock::new());
    let guest = orders.guest(&config, &clock)?;
    let mut config = match &guest {
        Some(guest) => Config::of_variables(&|name| orders.read_as(Some(guest), name))?,
        None => config,
    };
    if STARTED.swap(true, Ordering::AcqRel) {
        return Err(started());
    }
    if orders.spare && config.nodes == 1 {
        config.thread_slots = THREADS_MAX;
    } else if crate::host::host().is_some() {
        config.thread_slots = config.threads.max(crate::host::CALLER_SLOTS) + crate::host::COMMON_SLOTS;
    }
    if guest.is_none()
        && let Some((name, size)) = control::foreign_launcher()
    {
        return Err(Error::Start(format!(
            "{name} started {size} tasks, and each would run alone; start them as `{name} … comem exec PROGRAM`"
        )));
    }
    // As long as the process has one thread, the kernel has nobody to wait for when it asks for this; else it takes
    // some 10 ms.
    comem_memory::guard::membarrier_works();
    let differences = config.tuning.differences();
    if config.verbose && !differences.is_empty() && config.node.unwrap_or_default() == NodeId(0) {
        crate::error::say(format_args!("comem: numbers that differ from their defaults: {differences}"));
    }
    if let Some(note) = clock.note().filter(|_| config.verbose) {
        crate::error::say(format_args!("comem: {note}"));
    }
    let guest = guest.filter(|guest| !guest.is_alone());
    // Nothing has been started where the processes do not meet: the next call may find others.
    let attendance = guest.map(|guest| attend(&guest, &mut config, &clock)).transpose();
    let attendance = attendance.inspect_err(|_| STARTED.store(false, Ordering::Release))?;
    let program = number_of_this_program();
    let launcher = control::launcher_channel(program).map_err(no_place("cannot talk to the launcher"))?;
    let mut launcher = launcher.map(|(reader, writer)| (reader, Arc::new(writer)));
    let result = if let Err(error) = crate::inline::refuse_unchecked(&config) {
        Err(error)
    } else if launcher.is_none() && config.nodes == 1 && !config.discover && config.join.is_none() {
        Ok(alone(config, clock))
    } else {
        // Others may keep this node waiting.
        service::listen_for_questions();
        Boot::new(config, clock, launcher.as_mut(), program, attendance).and_then(|boot| boot.run(launcher))
    };
    match &result {
        Ok(_) => service::listen_for_questions(),
        Err(_) => keys::take_away(),
    }
    result
}

/// Meets the job's other processes, and takes this one's place among them.
fn attend(guest: &Guest, config: &mut Config, clock: &Clock) -> Result<Attendance> {
    let attendance = Attendance::new(guest, start_limit(config), *clock)?;
    let placed = attendance.placed;
    config.node = Some(placed.node);
    config.host_nodes = placed.host_nodes.into();
    config.host_place = Some(placed.host_place.into());
    (config.zero, config.join, config.discover) = (None, None, false);
    config.stats = config.stats.take().map(|path| {
        let of_node = crate::guest::stats_of_node(path.as_ref(), placed.node.index());
        of_node.to_string_lossy().into_owned()
    });
    config.rendezvous = config.several_hosts().then(|| attendance.rendezvous());
    if config.verbose {
        let (node, nodes, here) = (placed.node, config.nodes, placed.host_nodes);
        crate::error::say(format_args!("comem: this process is {node} of {nodes}, {here} of them on this host"));
    }
    Ok(attendance)
}

/// A job of one node.
fn alone(mut config: Config, clock: Arc<Clock>) -> Arc<Node> {
    let started = clock.now();
    let wire = Wire::new(
        Parts {
            me: NodeId(0),
            prog: 1,
            job: 0,
            sealer: Sealer::new(None),
            guarded: true,
            link: LinkConfig { datagram_bytes: NETWORK_DATAGRAM, ..LinkConfig::default() },
            started,
            endpoints: Vec::new(),
            addresses: vec![Vec::new()],
            members: vec![(host_name(), std::process::id())],
            group: None,
            way: Way::Off,
            selective: None,
        },
        config.thread_slots,
    );
    config.backbone = BackboneChoice::Auto;
    let node = Node::new(config, clock, wire, None, None);
    match Shared::new(&node.config, NodeId(0), 1, None) {
        Ok(shared) => node.set_shared(shared),
        Err(error) => crate::error::say(format_args!("comem: there is no shared heap: {error}")),
    }
    let node = Arc::new(node);
    if node.shared().is_some()
        && let Err(error) = fault::guess_at_crashes(&node)
    {
        crate::error::say(format_args!("comem: {error}"));
    }
    node
}

/// The numbers that differ from their defaults, as one of the options that must agree. Many of them are summed up in
/// one number: options are short.
fn tuning_in_options(tuning: &Tuning) -> String {
    const SHOWN_MAX: usize = 80;
    let differences = tuning.differences();
    match differences.len() {
        0 => String::new(),
        1..=SHOWN_MAX => format!(" COMEM_TUNING={differences}"),
        _ => {
            let hash: String = program::hash(differences.as_bytes())[..6].iter().map(|b| format!("{b:02x}")).collect();
            format!(" COMEM_TUNING=#{hash}")
        }
    }
}

/// A process on its way to becoming a node of a job of several.
struct Boot {
    config: Config,
    clock: Arc<Clock>,
    job: Option<Job>,
    sealer: Sealer,
    /// Whether datagrams need no tag between endpoints that are connected.
    guarded: bool,
    network: Network,
    endpoints: Vec<Arc<dyn Datagrams>>,
    /// Whether this node finds out who hears the job's group.
    multicast: bool,
    /// Where it is told things, if the job's engine sends to sets of nodes.
    told: Option<Arc<dyn Datagrams>>,
    /// A hold on the socket that hears the job's group.
    asks: RefCell<Option<ListenerHandle>>,
    link: LinkConfig,
    free: AtomicU64,
    /// Where the launcher hears this node, if there is one.
    launcher: Option<Arc<ControlWriter<FromNode>>>,
    /// Datagrams of start-up that came and do not carry the job's key.
    strangers: AtomicU64,
    /// The rendezvous by which this process has its place, if it has it so.
    attendance: RefCell<Option<Attendance>>,
}

impl Boot {
    fn new(
        mut config: Config,
        clock: Arc<Clock>,
        launcher: Option<&mut Launcher>,
        program: u64,
        attendance: Option<Attendance>,
    ) -> Result<Boot> {
        let writer = launcher.as_ref().map(|(_, writer)| writer.clone());
        if let Some(writer) = &writer {
            // Where the launcher is gone, its line says so.
            let _ = writer.send(&FromNode::Joining);
        }
        let job = match launcher {
            Some((reader, _)) => Some(job_of(program, reader)?),
            None if let Some(attendance) = &attendance => Some(attendance.job()),
            None => control::exec_job().map_err(no_place("cannot read the job from comem exec"))?,
        };
        let auth = authenticates(&config, job.as_ref())?;
        let key = match job.as_ref().and_then(Job::key_bytes) {
            Some(key) => Some(Key::Given(key)),
            None if auth => Some(Key::find(&config, &clock)?),
            None => None,
        };
        if !auth && is_over_network(&config) {
            crate::error::say(format_args!(
                "comem: host {}, pid {}: COMEM_AUTH is off: whoever can send to this host's ports can change this \
                 job's memory, or end it",
                host_name(),
                std::process::id()
            ));
        }
        let sealer = Sealer::new(key.as_ref().filter(|_| auth).map(|key| JobKey::new(key.bytes())));
        config.backbone.check(config.nodes).map_err(|error| Error::Start(format!("{error}; take udp, or auto")))?;
        let resolved = config.backbone.resolve(&config.circumstances());
        // All nodes come to the same; one says so.
        if let Some(warning) = resolved.warning().filter(|_| config.node.unwrap_or_default() == NodeId(0)) {
            crate::error::say(format_args!("{warning}"));
        }
        config.backbone = BackboneChoice::Named(resolved.backbone);
        let reason = config.settle_engine()?;
        if config.verbose && reason != choice::Reason::Named && config.node.unwrap_or_default() == NodeId(0) {
            crate::error::say(format_args!("comem: pages {} ({reason})", config.page_engine));
        }
        config.check_locks()?;
        config.history = program::history(job.as_ref(), &config)?;
        self::multicast::check(&config, resolved.backbone)?;
        let reach = match config.joins_elsewhere().or(config.rendezvous) {
            Some(zero) => Reach::Peer(zero),
            None if config.several_hosts() => Reach::Network,
            None => Reach::ThisHost,
        };
        let options = NetworkOptions {
            iface: config.iface.clone(),
            ports: config.ports.map_or(PortChoice::Any, |(low, high)| PortChoice::Range(low, high)),
            reach,
            faults: config.faults,
            fault_stream: u64::from(config.node.unwrap_or_default().0),
            capture: config.capture.as_deref().map(|p| Capture::path_for(p.as_ref(), &tag(&config))),
            sealer: sealer.clone(),
        };
        let mut network =
            Network::open_over(resolved.backbone, &options, *clock).map_err(|e| Error::Start(e.to_string()))?;
        let interface = network.interface().clone();
        if network.backbone() == Backbone::Udp {
            sockets::check_mtu(&interface)?;
        }
        let usual = if interface.loopback { LOOPBACK_DATAGRAM } else { NETWORK_DATAGRAM };
        let datagram_bytes = config.mtu.map_or(usual, |mtu| select::udp_payload_max(mtu, interface.address));
        let datagram_bytes = datagram_bytes.min(network.datagram_bytes_max());
        network.cut_beyond(datagram_bytes);
        // In shared memory, only what was damaged on purpose needs a tag of its own; what takes UDP gets one there.
        let guarded = network.backbone() == Backbone::Shm && !config.faults.is_some_and(|faults| faults.damages());
        if network.backbone() == Backbone::Udp {
            network.expect_lengths(Lengths { at: LEN_AT, more: HEADER_BYTES + sealer.tag_len() });
        }
        let endpoints = sockets::open_endpoints(&config, &network)?;
        if let Some(Key::New(key)) = key {
            let left = keys::leave(endpoints[0].local_addr(), &key);
            left.map_err(|unfit| Error::Start(format!("{}; {}", unfit.what, unfit.advice)))?;
        }
        let multicast = self::multicast::probes(&config, &network);
        let told = self::multicast::told(&config, &network)?;
        if config.verbose {
            crate::error::say(format_args!(
                "comem: backbone {resolved}: {network}; service port {}, datagrams of up to {datagram_bytes} bytes, \
                 authentication {}",
                endpoints[0].local_addr().port(),
                if auth { "on" } else { "off" },
            ));
        }
        // Shared memory rouses nobody for acknowledgements that do not press.
        let acks_may_lie = network.backbone() == Backbone::Shm;
        let link = LinkConfig { datagram_bytes, acks_may_lie, ..patience(&config) };
        Ok(Boot {
            config,
            clock,
            job,
            sealer,
            guarded,
            network,
            endpoints,
            multicast,
            told,
            asks: RefCell::new(None),
            link,
            free: AtomicU64::new(0),
            strangers: AtomicU64::new(0),
            launcher: writer,
            attendance: RefCell::new(attendance),
        })
    }

    /// The ports of this node's slots, and behind them, over networks, where it is sent what may wait.
    fn ports(&self) -> Vec<u16> {
        let slots = self.config.sockets() + 1;
        let mut ports: Vec<u16> = self.endpoints.iter().map(|e| e.local_addr().port()).collect();
        if self.network.backbone() == Backbone::Udp && ports.len() == slots {
            // The first thread's socket takes it.
            ports.push(ports[Slot::thread(0).index()]);
        }
        ports.extend(self.told.as_ref().map(|told| told.local_addr().port()));
        ports
    }

    fn mode(&self, zero: Option<SocketAddr>) -> Result<Mode> {
        if let Some(join) = &self.config.join {
            let zero =
                join.parse().map_err(|_| Error::Start(format!("COMEM_JOIN={join} is no address; use IP:PORT")))?;
            return Ok(Mode::Join { zero });
        }
        Ok(match self.config.node {
            Some(node) => Mode::Launched { node, zero },
            None if self.config.discover => Mode::Discover,
            None => Mode::Serve,
        })
    }

    /// The program's arguments. Where other nodes are started with them they must be text; else they are only shown.
    fn arguments(&self) -> Result<Vec<String>> {
        let others_get_them = self.config.node.is_none() && self.config.join.is_none();
        let text = |word: OsString| match word.into_string() {
            Ok(word) => Ok(word),
            Err(word) if others_get_them => Err(Error::Start(format!(
                "the argument {word:?} is no UTF-8, and so cannot be sent to the nodes that are started with it; name \
                 it differently, or start the job with comem run"
            ))),
            Err(word) => Ok(word.to_string_lossy().into_owned()),
        };
        std::env::args_os().skip(1).map(text).collect()
    }

    fn identity(&self) -> Result<Identity> {
        let (path, hash) = program::file(&self.config)?;
        // SAFETY: sysconf takes a number and touches no memory of ours.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let headers = MTUS.end() - select::udp_payload_max(*MTUS.end(), self.network.interface().address);
        Ok(Identity {
            version: VERSION,
            job_name: std::env::var("COMEM_JOB_NAME").unwrap_or_else(|_| "comem".to_string()),
            program: path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
            hash,
            layout: Layout::of_this_process(page as u32),
            nodes: self.config.nodes as u16,
            threads: self.config.sockets() as u16,
            options: format!(
                "engine={}/{} lines={} one-sided={} force={} backbone={} {PACKETS}{} heap={} unit={} wd={} migrate={} \
                 globals={:?} locks={}{}",
                self.config.engine,
                self.config.page_engine,
                if self.config.has_lines() { self.config.unit_bytes } else { 0 },
                if self.config.uses_ucx() { "ucx" } else { "auto" },
                self.config.force_engine,
                self.config.backbone,
                self.link.datagram_bytes + headers,
                self.config.heap,
                self.config.unit_pages,
                self.config.write_detection,
                self.config.migration,
                self.config.globals,
                if self.config.locks_are_one_sided() { "one-sided" } else { "tokens" },
                tuning_in_options(&self.config.tuning),
            ),
        })
    }

    fn run(self, mut launcher: Option<Launcher>) -> Result<Arc<Node>> {
        let zero = self.zero_address(launcher.as_mut())?;
        let config = startup::Config {
            mode: self.mode(zero)?,
            identity: self.identity()?,
            arguments: self.arguments()?,
            pid: std::process::id(),
            host: host_name(),
            ip: self.network.interface().address,
            ports: self.ports(),
            job: self.job.as_ref().map(|j| j.job.max(1)),
            prog: self.job.as_ref().map(|j| j.prog_id.max(1)),
            multicast: self.multicast,
            introduces: self.network.backbone() != Backbone::Shm,
            deadline: start_limit(&self.config),
        };
        let seed = u64::from(std::process::id()) << 32 ^ wall_clock_ns();
        let mut machine = Startup::new(config, self.clock.now(), seed).map_err(|e| Error::Start(e.to_string()))?;
        let launcher_link = Arc::new(LauncherLink::default());
        let writer = launcher.as_ref().map(|(_, writer)| writer.clone());
        if let Some((reader, _)) = launcher {
            launcher_link.listen(reader)?;
        }
        let membership = self.meet(&mut machine, &launcher_link, silence(&self.config, writer.is_some()))?;
        let job = membership.job;
        let node = self.into_node(machine, membership, writer)?;
        let one_sided = node.config.locks_are_one_sided();
        let tables = one_sided.then(|| LockTables::new(node.me(), node.nodes(), job)).transpose()?;
        if one_sided {
            node.arrival_words.make_at_home(&node, job);
        }
        launcher_link.hand_over(&node);
        service::start(&node)?;
        let main = Thread::new(node.clone(), Slot::thread(0));
        make_heap(&node, &main, job)?;
        // Where nodes cannot map one memory, locks have to tell what was written.
        if let Some(tables) = tables.filter(|_| node.config.locks_are_one_sided_under(node.page_engine())) {
            node.sync.set_lock_tables(tables);
        }
        node.prepare_ucx()?;
        node.arrival_words.agree(&main, job)?;
        // Nobody goes on before every node has its heap.
        main.collective(Collective::create(0), &[], |_| ())?;
        node.reach.meet_line_peers(&node)?;
        node.reach.ucx().map_or(Ok(()), |reached| reached.meet(&main))?;
        node.launcher.tell(&FromNode::Started);
        if crate::host::host().is_some() {
            node.launcher.tell(&FromNode::Outlives);
        }
        Ok(node)
    }

    /// Node zero tells the launcher where it is; the others wait for the launcher to tell them.
    fn zero_address(&self, launcher: Option<&mut Launcher>) -> Result<Option<SocketAddr>> {
        let me = self.config.node.unwrap_or_default();
        if let Some(attendance) = self.attendance.borrow_mut().as_mut() {
            return match me {
                NodeId(0) => attendance.tell_address(self.endpoints[0].local_addr()).map(|()| None),
                _ => attendance.zero().map(Some),
            };
        }
        if let Some(text) = &self.config.zero {
            return text.parse().map(Some).map_err(|_| Error::Start(format!("COMEM_ZERO={text} is no address")));
        }
        let Some((reader, writer)) = launcher else { return Ok(None) };
        if me == NodeId(0) {
            let addr = self.endpoints[0].local_addr().to_string();
            let said = writer.send(&FromNode::Address { node: me.0, addr });
            said.map_err(Error::system("cannot tell the launcher this node's address"))?;
            return Ok(None);
        }
        let until = start_limit(&self.config).map(|limit| self.clock.now() + limit);
        loop {
            let Some(message) = next_message_within(reader, LAUNCHER_POLL)? else {
                if service::was_asked() {
                    self.say_it_waits(
                        &me.to_string(),
                        "node 0",
                        "which has not called Comem yet, or not told the launcher where it is",
                    );
                }
                if until.is_some_and(|until| until <= self.clock.now()) {
                    let zero = startup::Missing { node: NodeId(0), process: None, unheard: Vec::new() };
                    return Err(self.failed(&StartError::TimedOut { phase: Phase::Address, missing: vec![zero] }));
                }
                continue;
            };
            match message {
                ToNode::Zero { addr } => {
                    let parsed = addr.parse();
                    return parsed
                        .map(Some)
                        .map_err(|_| Error::Start(format!("the launcher said {addr}, which is no address")));
                }
                ToNode::PeerEnded { node, how } => {
                    return Err(Error::NodeLost { node: NodeId(node), why: how });
                }
                ToNode::Stop { reason } => return Err(Error::Stopped(reason)),
                _ => {}
            }
        }
    }

    /// Runs start-up until all nodes know each other. Says once whom it waits for, if that takes longer than
    /// `patience`.
    fn meet(&self, machine: &mut Startup, launcher_link: &LauncherLink, patience: Option<Span>) -> Result<Membership> {
        let mut tell_at = patience.map(|patience| self.clock.now() + patience);
        let mut buffer = vec![0; comem_net::RECEIVE_BUFFER_BYTES];
        let service = &self.endpoints[0];
        let discovery = Group::discovery(self.network.interface(), DISCOVERY_PORT).ok();
        if let Some(group) = discovery.filter(|_| self.config.discover) {
            self.network.join(&**service, &group).map_err(Error::system("cannot hear other nodes"))?;
        }
        let mut group = None;
        loop {
            let heard = launcher_link.heard();
            if let Some(error) = &heard {
                machine.abandon(self.clock.now(), &error.to_string());
            }
            self.send_all(machine, discovery, group);
            if let Some(error) = heard {
                return Err(error);
            }
            while let Some(event) = machine.poll_event() {
                if let Some(outcome) = self.on_event(event, &mut group) {
                    self.send_all(machine, discovery, group);
                    return outcome;
                }
            }
            let now = self.clock.now();
            if tell_at.take_if(|at| *at <= now).is_some() || service::was_asked() {
                self.tell_whom_it_waits_for(machine, now);
            }
            let wait = machine
                .next_timeout()
                .map_or(LAUNCHER_POLL, |at| Duration::from_nanos((at - now).0).min(LAUNCHER_POLL));
            match service.recv(&mut buffer, Some(wait.max(Duration::from_micros(10))), Wait::Block) {
                Ok(Received::Datagrams { from, len, segment }) => {
                    for datagram in datagrams(&buffer[..len], segment) {
                        self.on_datagram(machine, from, datagram);
                    }
                }
                Ok(Received::Unreachable(address)) => machine.on_refused(self.clock.now(), address),
                Ok(_) => {}
                Err(error) => return Err(Error::system("cannot receive")(error)),
            }
            machine.on_timeout(self.clock.now());
        }
    }

    /// Takes note of what start-up has come to. What ends it is given.
    fn on_event(&self, event: Event, group: &mut Option<Group>) -> Option<Result<Membership>> {
        match event {
            Event::Ready(membership) => return Some(Ok(membership)),
            Event::Failed(error) => return Some(Err(self.failed(&error))),
            Event::Zero(Wakeup { job, .. }) | Event::Joined { job, .. } if self.multicast => self.hear(job, group),
            Event::Surplus => {
                crate::error::say(format_args!(
                    "comem: enough other processes joined the job; this one is not needed and ends"
                ));
                std::process::exit(0);
            }
            Event::TurnedAway { from, reason, .. } => {
                crate::error::say(format_args!("comem: node 0 turned away a process at {from}: {reason}"));
            }
            Event::Deaf(nodes) => {
                if let Err(error) = self.on_deaf(&nodes, group.as_ref()) {
                    return Some(Err(error));
                }
            }
            Event::Zero(_) | Event::Joined { .. } => {}
        }
        None
    }

    /// Start-up has failed. A launcher says more of those for want of which it did.
    fn failed(&self, error: &StartError) -> Error {
        let missing = error.missing();
        let told = !missing.is_empty()
            && self.launcher.as_ref().is_some_and(|launcher| {
                launcher.send(&FromNode::Missing { nodes: missing.iter().map(|node| node.0).collect() }).is_ok()
            });
        Error::Start(if told { error.what() } else { error.to_string() })
    }

    fn send_all(&self, machine: &mut Startup, discovery: Option<Group>, group: Option<Group>) {
        while let Some(transmit) = machine.poll_transmit() {
            self.send(&transmit, discovery, group);
        }
    }

    fn on_datagram(&self, machine: &mut Startup, from: SocketAddr, datagram: &[u8]) {
        let Some(bytes) = self.sealer.open(datagram, Receiver::Anybody) else {
            // What else comes early is of the job itself, and sealed with its own key.
            let of_start_up = Packet::prog_of(datagram) == Some(DISCOVERY_PROG);
            self.strangers.fetch_add(u64::from(of_start_up), Ordering::Relaxed);
            return;
        };
        let Ok(packet) = Packet::new_checked(bytes) else { return };
        if packet.header.prog == DISCOVERY_PROG {
            // What cannot be parsed has no effect; whoever sent it will send it again if it matters.
            let _ = machine.on_datagram(self.clock.now(), from, packet.header.ty, packet.payload);
        }
    }

    fn send(&self, transmit: &Transmit, discovery: Option<Group>, group: Option<Group>) {
        let to = match transmit.to {
            To::Address(address) => Some(address),
            To::Broadcast => discovery.map(|d| d.address()),
            To::Multicast => group.map(|g| g.address()),
        };
        let Some(to) = to else { return };
        let seq = Seq::free(
            Channel::service(self.config.node.unwrap_or_default()),
            self.free.fetch_add(1, Ordering::Relaxed),
        );
        let kind = (DISCOVERY_PROG, transmit.ty);
        let bytes = plain_datagram(kind, &transmit.body, seq, &self.sealer, Receiver::Anybody);
        // A send that fails counts as lost: start-up repeats what matters.
        let _ = self.endpoints[0].send_to(&bytes, bytes.len(), to);
    }

    fn into_node(
        self,
        machine: Startup,
        membership: Membership,
        launcher: Option<Arc<ControlWriter<FromNode>>>,
    ) -> Result<Arc<Node>> {
        let addresses: Vec<Vec<SocketAddr>> =
            membership.nodes.iter().map(|m| m.ports.iter().map(|p| SocketAddr::new(m.ip, *p)).collect()).collect();
        self.network.begin(membership.me, &addresses);
        let members = membership.nodes.iter().map(|m| (m.host.clone(), m.pid)).collect();
        let way = self.way(&membership)?;
        let group = (way == Way::Ip).then(|| self.network.group_of_job(membership.job));
        let selective = self.selective(&membership, &addresses, group)?;
        let group = group.filter(|_| selective.is_none()).map(|group| group.address());
        let thread_slots = self.config.thread_slots;
        let wire = Wire::new(
            Parts {
                me: membership.me,
                prog: membership.prog,
                job: membership.job,
                sealer: self.sealer,
                guarded: self.guarded,
                link: self.link,
                started: self.clock.now(),
                endpoints: self.endpoints,
                addresses,
                members,
                group,
                way,
                selective,
            },
            thread_slots,
        );
        Ok(Arc::new(Node::new(self.config, self.clock, wire, Some(machine), launcher)))
    }
}

/// A datagram of start-up or of the watch: the program number in its header and its type, its body, and whom it is for.
pub(crate) fn plain_datagram(
    (prog, ty): (u16, MsgType),
    body: &[u8],
    seq: Seq,
    sealer: &Sealer,
    to: Receiver,
) -> Vec<u8> {
    let header = HeaderRepr { prog, ty, flags: Flags::default(), len: body.len() as u16, retrans: 0, frag: 0, seq };
    let mut bytes = Vec::with_capacity(body.len() + 32);
    header.emit(&mut bytes);
    bytes.extend_from_slice(body);
    sealer.seal(&mut bytes, 0, to);
    bytes
}

pub(crate) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".to_string(), |n| n.trim().to_string())
}

fn wall_clock_ns() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64)
}

/// Tells this program from others that the same node runs.
fn number_of_this_program() -> u64 {
    wall_clock_ns().rotate_left(32) ^ u64::from(std::process::id())
}

/// Why this process gets no place in the job. One that has another program of its node beside it is used wrongly.
fn no_place(what: &str) -> impl FnOnce(std::io::Error) -> Error {
    move |why| match why.kind() {
        std::io::ErrorKind::ResourceBusy => Error::NodeTaken(why.to_string()),
        _ => Error::system(what)(why),
    }
}

/// Waits for the job of this program: the first that comes, unless it is for a later program than that which read it.
fn job_of(program: u64, reader: &mut ControlReader<ToNode>) -> Result<Job> {
    loop {
        match next_message(reader)? {
            ToNode::Job(job) if job.program.is_none_or(|one| one == program) => return Ok(job),
            ToNode::Stop { reason } => return Err(Error::Stopped(reason)),
            _ => {}
        }
    }
}

/// See [`crate::Comem::finish`].
pub(crate) fn finish(node: &Arc<Node>, main: &Thread) -> Result<()> {
    main.flush_posts()?;
    node.inboxes.take_all();
    if let Some(shared) = node.shared() {
        ThreadHeap::new(main, shared).bring_globals_home()?;
    }
    node.with_detector(Detector::closing);
    main.collective(Collective::EXIT, &[], |_| ())?;
    node.life.check_use()?;
    node.with_detector(Detector::closed);
    if let Some(shared) = node.shared() {
        shared.give_globals_back();
        shared.views.iter().for_each(|views| views.end_one_copy());
    }
    node.launcher.tell(&FromNode::Finished);
    // Others may have missed this node's arrival; the service thread reminds them meanwhile.
    let all_have_finished = node.nodes() == 1 || node.life.shutdown.answer_others();
    node.leave(all_have_finished);
    node.wire.retire();
    // The main thread may live on.
    crate::end_current_life();
    node.life.end(main.slot(), node.now());
    keys::take_away();
    node.life.outlive_finish();
    crate::shared::heap::history::tell(node);
    let stats = report::stats(node, None);
    if node.launcher.tell(&FromNode::Stats { stats: stats.clone() }) {
        return Ok(());
    }
    match &node.config.stats {
        Some(path) => report::write_file(node, path, stats),
        None => Ok(()),
    }
}

/// A thread that blocks wakes late, so answers to it take longer; and short waits cost another system call.
fn patience(config: &Config) -> LinkConfig {
    LinkConfig::tuned(&config.tuning.link, !service::may_spin(config))
}

/// What tells this process's capture file from those of others.
fn tag(config: &Config) -> String {
    config.node.map_or_else(|| std::process::id().to_string(), |node| format!("node{}", node.0))
}
