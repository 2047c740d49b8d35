//! What a node was told to do: environment variables, one for each flag of `comem run`.

use crate::bind::Bind;
use crate::error::Error;
use crate::heap::{HEAP_BYTES, HEAP_BYTES_MIN};
use crate::settings::REHEARSED_MTU;
use comem_memory::pages::Detector;
use comem_net::backbone::Circumstances;
use comem_net::select::MTUS;
use comem_net::{Backbone, BackboneChoice};
use comem_protocol::coherence::Engine;
use comem_protocol::coherence::direct::{LINE_BYTES, UNIT_BYTES};
use comem_protocol::coherence::pages::multicast::history::History;
use comem_protocol::coherence::pages::{PageEngine, UNIT_PAGES_MAX, choice, engine};
use comem_protocol::faults::FaultSpec;
use comem_protocol::ids::{NODES_MAX, NodeId, THREADS_MAX};
use comem_protocol::selective::Choice as MulticastChoice;
use comem_protocol::tuning::{Number, Tuning, TuningError};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How a thread waits for the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WaitPolicy {
    /// Spin briefly while the host has a core to spare, then block.
    #[default]
    Auto,
    /// Spin (for measurements).
    Spin,
    /// Block at once.
    Block,
}

/// How much of other nodes' memory may be kept.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CacheLimit {
    /// So many bytes.
    Bytes(u64),
    /// This part of the memory that is free.
    Part(f64),
}

/// What becomes of the program's global variables when its other processes begin to work (programs for PARMACS).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Globals {
    /// Each process gets a copy of node 0's.
    #[default]
    Copy,
    /// They are shared memory from the start.
    Share,
}

/// What a lock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LockChoice {
    /// A word that all nodes reach, where nothing need be told with it as far as the start knows; else a token.
    #[default]
    Auto,
    /// A token that goes from node to node by messages.
    Tokens,
    /// A word in memory that all nodes reach.
    OneSided,
}

/// A node's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node's number, when a launcher gave one.
    pub node: Option<NodeId>,
    /// How many nodes.
    pub nodes: usize,
    /// Application threads in each.
    pub threads: usize,
    /// Places for threads on this node: as many, or more where they need no sockets.
    pub thread_slots: usize,
    /// The engine of objects that name none.
    pub engine: Engine,
    /// The engine of shared pages that name none. Where nobody has named it, start-up may choose another.
    pub page_engine: PageEngine,
    /// Whether nobody has named it.
    pub chooses_engine: bool,
    /// The one that keeps copies where start-up has chosen one without, and nodes cannot have that.
    pub fallback_engine: Option<PageEngine>,
    /// Whether the program's own code checks accesses to regions that name no engine (the detector `inline`).
    pub inline: bool,
    /// Whether that detector was named, so that code without checks is refused at the start.
    pub checks_code: bool,
    /// Bytes of a unit of memory that is watched so, where an allocation does not say.
    pub unit_bytes: usize,
    /// Whether one-sided operations of the engine `direct` go by UCX.
    pub ucx: bool,
    /// How accesses to shared pages are noticed; `None` takes the best that works here.
    pub detector: Option<Detector>,
    /// What moves datagrams; where nothing is named, what start-up takes stands here afterwards.
    pub backbone: BackboneChoice,
    /// Whether nodes of one host do what they would do between hosts.
    pub rehearse: bool,
    /// Address space of the shared heap, in bytes.
    pub heap: usize,
    /// Most bytes of copies of other nodes' pages; `None` takes a quarter of what is free, divided by the nodes on this
    /// host.
    pub cache: Option<CacheLimit>,
    /// Where diffs stay with their writers: when a node keeps more bytes of diffs, all collect theirs at the next two
    /// barriers; `None` takes an eighth of the cache.
    pub diffs: Option<u64>,
    /// Whether homes notice their own writes only while others hold copies.
    pub write_detection: bool,
    /// Whether homes migrate to a page's only writer.
    pub migration: bool,
    /// Whether pages are fetched ahead.
    pub prefetch: bool,
    /// Whether requests for a lock may wait while this node wants its locks all the time
    /// ([`lock_schedule`](comem_protocol::lock_schedule)).
    pub lock_turns: bool,
    /// What locks are.
    pub locks: LockChoice,
    /// The numbers by which the job tunes itself.
    pub tuning: Tuning,
    /// Pages of a unit where an allocation does not say; 0: one page, or more where mappings have run out
    /// (`shared/cache/map_count_limit.rs`).
    pub unit_pages: u32,
    /// What becomes of the program's global variables.
    pub globals: Globals,
    /// Whether the job's engine wins over an object's own.
    pub force_engine: bool,
    /// Faults to inject into what this node sends.
    pub faults: Option<FaultSpec>,
    /// The network to use.
    pub iface: Option<String>,
    /// The ports to use.
    pub ports: Option<(u16, u16)>,
    /// Whether one datagram goes to many nodes where it can.
    pub multicast: MulticastChoice,
    /// Whether datagrams are authenticated; `None` where nothing was said: they are.
    pub auth: Option<bool>,
    /// How long a node may be silent; `None` for ever.
    pub node_timeout: Option<Duration>,
    /// How much slower than it could this node shall be.
    pub slow: f64,
    /// How threads wait.
    pub wait: WaitPolicy,
    /// Whether to say what was chosen.
    pub verbose: bool,
    /// Where to write statistics when no launcher collects them.
    pub stats: Option<String>,
    /// How many nodes share this host.
    pub host_nodes: usize,
    /// Which of them this node is, where that is known.
    pub host_place: Option<usize>,
    /// Whether the application threads get cores of their own.
    pub bind: Bind,
    /// Whether to look for other nodes on the network.
    pub discover: bool,
    /// The address of node zero, given by hand.
    pub join: Option<String>,
    /// The program whose contents must agree.
    pub program: Option<String>,
    /// The seed of Python's hashes, which the statistics name so that a run can be repeated.
    pub hash_seed: Option<String>,
    /// What earlier runs of the program arrived at, where the job keeps a history: the same on all nodes.
    pub history: Option<Arc<History>>,
    /// The network's MTU, where the interface's own is too large for the way.
    pub mtu: Option<usize>,
    /// Where to record all datagrams.
    pub capture: Option<String>,
    /// Node zero's service address, from `comem exec` or by hand.
    pub zero: Option<String>,
    /// How long the nodes wait for each other at the start: a time, `None` for ever; without either, the usual time.
    pub start_timeout: Option<Option<Duration>>,
    /// The address of the rendezvous by which the nodes have met, where that is on another host than some of them.
    pub rendezvous: Option<IpAddr>,
}

/// An environment variable holds what it cannot hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name}={value}: {why}")]
pub struct ConfigError {
    name: &'static str,
    value: String,
    why: String,
}

fn parse<T>(
    name: &'static str,
    read: &dyn Fn(&str) -> Option<String>,
    convert: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, ConfigError> {
    match read(name).filter(|v| !v.is_empty()) {
        None => Ok(None),
        Some(value) => convert(&value).map(Some).map_err(|why| ConfigError { name, value: value.clone(), why }),
    }
}

fn number(range: std::ops::RangeInclusive<usize>, what: &str) -> impl FnOnce(&str) -> Result<usize, String> + use<> {
    let what = what.to_string();
    move |text| {
        let wrong = || format!("expected {what} from {} to {}", range.start(), range.end());
        text.parse().ok().filter(|n| range.contains(n)).ok_or_else(wrong)
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "1" | "true" => Ok(true),
        "off" | "0" | "false" => Ok(false),
        _ => Err("expected on or off".to_string()),
    }
}

/// Reads a span such as `10s`, `500ms` or plain seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (digits, scale) = if let Some(ms) = text.strip_suffix("ms") {
        (ms, 0.001)
    } else {
        (text.strip_suffix('s').unwrap_or(text), 1.0)
    };
    let number: f64 = digits.parse().map_err(|_| "expected a time such as 10s or 500ms".to_string())?;
    if number.is_finite() && number > 0.0 && number < 1e7 {
        Ok(Duration::from_secs_f64(number * scale))
    } else {
        Err("expected a positive time".to_string())
    }
}

/// Reads a size: `4096`, `64K`, `64M`, `2G`, `1T`, with or without an `i`, a `B` or both behind the letter.
///
/// # Errors
/// It is no positive number of bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || "expected a size such as 64M, 2G or a number of bytes".to_string();
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let shift = match unit.strip_suffix('B').unwrap_or(unit) {
        "" => 0,
        "K" | "k" | "Ki" | "ki" => 10,
        "M" | "m" | "Mi" | "mi" => 20,
        "G" | "g" | "Gi" | "gi" => 30,
        "T" | "t" | "Ti" | "ti" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|n| *n > 0).ok_or_else(wrong)
}

fn heap_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("expected a size from {}M to {}T", HEAP_BYTES_MIN >> 20, HEAP_BYTES >> 40);
    size(text).and_then(|bytes| if (HEAP_BYTES_MIN..=HEAP_BYTES).contains(&bytes) { Ok(bytes) } else { Err(wrong()) })
}

fn cache_limit(text: &str) -> Result<CacheLimit, String> {
    match text.strip_suffix('%') {
        Some(part) => match part.parse::<f64>() {
            Ok(part) if part > 0.0 && part <= 100.0 => Ok(CacheLimit::Part(part / 100.0)),
            _ => Err("expected a percentage from 0 to 100".to_string()),
        },
        None => size(text).map(CacheLimit::Bytes),
    }
}

/// Reads an engine's name: for pages, for objects, or for both. What it does not concern keeps its default.
fn engines(text: &str) -> Result<(Engine, PageEngine), String> {
    match (text.parse::<Engine>(), text.parse::<PageEngine>()) {
        (Ok(objects), Ok(pages)) => Ok((objects, pages)),
        (Ok(objects), Err(_)) => Ok((objects, PageEngine::default())),
        (Err(_), Ok(pages)) => Ok((Engine::default(), pages)),
        (Err(_), Err(_)) => Err(format!(
            "there is no engine {text:?}; for objects there are owner, broadcast, msi and direct, {}",
            engine::names_by_memory()
        )),
    }
}

/// Reads the numbers by which a job tunes itself: `name=value,name=value` ([`Tuning::parse`]).
///
/// # Errors
/// Says what is wrong, and which names there are.
pub fn tuning(text: &str) -> Result<Tuning, String> {
    Tuning::parse(text).map_err(|error| match &error {
        TuningError::Unknown(name) => format!("{error}; {}", names_near(name)),
        TuningError::Form(_) => format!("{error}; docs/tuning.md lists the names"),
        _ => error.to_string(),
    })
}

/// What may have been meant by a name that no number has: a similar one, and else those of its subject.
fn names_near(name: &str) -> String {
    let names = || Tuning::NUMBERS.iter().map(|number| number.name);
    if let Some(near) = crate::settings::nearest(name, names()) {
        return format!("was {near} meant?");
    }
    let bare = |number: &Number| number.name.split_once('.').is_some_and(|(_, bare)| bare == name);
    if let Some(number) = Tuning::NUMBERS.iter().find(|number| bare(number)) {
        return format!("was {} meant?", number.name);
    }
    let subject = name.split('.').next().unwrap_or_default();
    let same: Vec<&str> = names().filter(|other| other.split('.').next() == Some(subject)).collect();
    if same.is_empty() {
        let subjects = Tuning::subjects().join(", ");
        return format!("names begin with one of {subjects}, as in pages.push; docs/tuning.md lists them");
    }
    format!("there are {}", same.join(", "))
}

fn unit_pages(text: &str) -> Result<u32, String> {
    let pages = text.parse().ok().filter(|n: &u32| n.is_power_of_two() && *n <= UNIT_PAGES_MAX);
    pages.ok_or_else(|| format!("expected a power of two from 1 to {UNIT_PAGES_MAX}"))
}

/// Whether one-sided operations go by UCX.
fn one_sided(text: &str) -> Result<bool, String> {
    match text {
        "auto" => Ok(false),
        "ucx" => Ok(true),
        _ => Err("expected auto or ucx".to_string()),
    }
}

fn unit_bytes(text: &str) -> Result<usize, String> {
    let bytes = text.parse().ok().filter(|bytes| UNIT_BYTES.contains(bytes));
    bytes.ok_or_else(|| {
        let all: Vec<String> = UNIT_BYTES.iter().map(ToString::to_string).collect();
        format!("expected one of {} bytes", all.join(", "))
    })
}

/// A detector's name: of one for pages, or `inline`.
fn detector(text: &str) -> Result<Option<Detector>, String> {
    if text == INLINE {
        return Ok(None);
    }
    text.parse::<Detector>().map(Some).map_err(|error| format!("{error}, and for checked programs {INLINE}"))
}

/// A heap with this part of its bytes has quarters of whole chunks.
const QUARTERS: usize = !((1 << 23) - 1);

/// The detector of programs whose own code checks its accesses.
pub(crate) const INLINE: &str = "inline";

fn port_range(text: &str) -> Result<(u16, u16), String> {
    let (low, high) = text.split_once('-').ok_or("expected FIRST-LAST")?;
    match (low.parse::<u16>(), high.parse::<u16>()) {
        (Ok(low), Ok(high)) if 0 < low && low <= high => Ok((low, high)),
        _ => Err("expected FIRST-LAST with port numbers".to_string()),
    }
}

impl Config {
    /// Whether this job's datagrams go over a network.
    pub(crate) fn is_over_udp(&self) -> bool {
        self.backbone.named() == Some(comem_net::Backbone::Udp)
    }

    /// The name of what moves this job's datagrams; `none` where there are none to move.
    pub(crate) fn backbone_name(&self) -> &'static str {
        self.backbone.named().map_or("none", comem_net::Backbone::name)
    }

    /// Whether the heap has a part whose accesses the program checks itself.
    pub fn has_lines(&self) -> bool {
        self.inline
    }

    /// Whether the job's engine sends to many nodes at once: updates of `broadcast` go to all.
    pub(crate) fn multicasts(&self) -> bool {
        self.engine == Engine::Broadcast || self.sends_to_sets()
    }

    /// Whether the job's engine asks and tells sets of nodes.
    pub(crate) fn sends_to_sets(&self) -> bool {
        self.page_engine.tells_sets()
    }

    /// Whether one-sided operations go by UCX: there are some, and it is asked for.
    pub(crate) fn uses_ucx(&self) -> bool {
        self.ucx && self.nodes > 1 && self.has_lines()
    }

    /// How many of this node's places for threads have a socket: all, but a job of one node needs none.
    pub(crate) fn sockets(&self) -> usize {
        if self.nodes == 1 { self.threads } else { self.thread_slots }
    }

    /// What the choice of a backbone depends on, as far as a node knows it.
    pub(crate) fn circumstances(&self) -> Circumstances {
        let network = [
            ("COMEM_REHEARSE", self.rehearse),
            ("COMEM_FAULTS", self.faults.is_some()),
            ("COMEM_IFACE", self.iface.is_some()),
            ("COMEM_PORTS", self.ports.is_some()),
            ("COMEM_MTU", self.mtu.is_some()),
            ("COMEM_CAPTURE", self.capture.is_some()),
            ("COMEM_MULTICAST", self.multicast == MulticastChoice::On),
            ("COMEM_JOIN", self.joins_elsewhere().is_some()),
        ];
        Circumstances {
            one_host: !self.several_hosts(),
            nodes: self.nodes,
            endpoints: self.sockets() + 1,
            descriptors: comem_net::backbone::descriptors_max(),
            network: network.into_iter().find(|(_, asked)| *asked).map(|(name, _)| name),
        }
    }

    /// What the choice of an engine of pages depends on; call it when the backbone is certain.
    pub fn engine_circumstances(&self) -> choice::Circumstances {
        let protocol = [
            ("COMEM_REHEARSE", self.rehearse),
            ("COMEM_DETECTOR", self.detector.is_some()),
            ("COMEM_CACHE", self.cache.is_some()),
            ("COMEM_UNIT_PAGES", self.unit_pages != 0),
            ("COMEM_WRITE_DETECTION", !self.write_detection),
            ("COMEM_MIGRATION", !self.migration),
            ("COMEM_PREFETCH", !self.prefetch),
            ("COMEM_TUNING", !self.tuning.differences().is_empty()),
        ];
        choice::Circumstances {
            one_host: !self.several_hosts(),
            nodes: self.nodes,
            shares_memory: self.backbone.named() == Some(Backbone::Shm),
            asked: protocol.into_iter().find(|(_, asked)| *asked).map(|(name, _)| name),
        }
    }

    /// The engine of pages, and why: the one that was named, or the one that fits; call it when the backbone is
    /// certain.
    pub fn chosen_engine(&self) -> (PageEngine, choice::Reason) {
        match self.chooses_engine {
            true => self.engine_circumstances().choose(self.page_engine),
            false => (self.page_engine, choice::Reason::Named),
        }
    }

    /// Takes the engine of pages that fits, where nobody has named one, and says why; call it when the backbone is
    /// certain.
    ///
    /// # Errors
    /// The engine that was named cannot keep pages of nodes on several hosts.
    pub(crate) fn settle_engine(&mut self) -> Result<choice::Reason, Error> {
        let (engine, reason) = self.chosen_engine();
        if self.rehearse && engine.has_one_copy() && self.nodes > 1 {
            return Err(Error::Start(format!(
                "COMEM_REHEARSE has the job run as between hosts, where there is no engine {engine}; leave one of the \
                 two out"
            )));
        }
        if engine.has_one_copy() && self.several_hosts() {
            return Err(Error::Start(format!(
                "the engine {engine} has all nodes map one memory, and nodes may be on several hosts; start them all \
                 on one host, or take another engine"
            )));
        }
        if reason == choice::Reason::OneHost {
            self.fallback_engine = Some(self.page_engine);
            self.heap &= QUARTERS;
        }
        self.page_engine = engine;
        Ok(reason)
    }

    /// The address of node zero, where this one is to join it on another host.
    pub(crate) fn joins_elsewhere(&self) -> Option<IpAddr> {
        let zero = self.join.as_ref()?.parse::<SocketAddr>().ok()?.ip();
        let own = || comem_net::select::interfaces().is_ok_and(|all| all.iter().any(|i| i.address == zero));
        (!zero.is_loopback() && !own()).then_some(zero)
    }

    /// Whether nodes may be on other hosts.
    pub(crate) fn several_hosts(&self) -> bool {
        self.host_nodes < self.nodes || self.discover
    }

    /// Reads the process's environment.
    ///
    /// # Errors
    /// Names the variable that makes no sense.
    #[cfg(test)]
    pub fn from_env() -> Result<Config, ConfigError> {
        Config::read(&|name| std::env::var(name).ok())
    }

    /// Reads what `env` gives for each variable.
    ///
    /// # Errors
    /// Names the variable that makes no sense.
    pub(crate) fn of_variables(env: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        Config::read(env)
    }

    fn read(env: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        let nodes = parse("COMEM_NODES", env, number(1..=NODES_MAX, "a number of nodes"))?;
        // Who joins others without a word about how many there are would run alone.
        let beside_nodes = nodes.map(|_| ()).ok_or("a job of how many nodes? set COMEM_NODES too");
        let nodes = nodes.unwrap_or(1);
        let node = parse("COMEM_NODE", env, number(0..=nodes - 1, "a node's number"))?;
        let engine = parse("COMEM_ENGINE", env, engines)?;
        // The interface of another system knows which protocol its programs are written for.
        let usual = parse("COMEM_USUAL_ENGINE", env, engines)?;
        let chooses_engine = engine.is_none();
        let detector = parse("COMEM_DETECTOR", env, detector)?;
        let inline = detector == Some(None);
        // Of the two engines that keep lines, `msi` is at home over every backbone.
        let engine = engine.unwrap_or(if inline { (Engine::Msi, PageEngine::Msi) } else { usual.unwrap_or_default() });
        if inline && !engine.1.keeps_lines() {
            parse("COMEM_DETECTOR", env, |_| {
                Err::<(), _>(format!("the engine {} keeps pages; choose direct or msi with this detector", engine.1))
            })?;
        }
        let has_lines = inline || !engine.1.keeps_pages();
        let has_quarters = has_lines || engine.1.has_one_copy();
        let threads = parse("COMEM_THREADS", env, number(1..=THREADS_MAX, "a number of threads"))?.unwrap_or(1);
        let heap = parse("COMEM_HEAP", env, heap_size)?.unwrap_or(HEAP_BYTES) as usize;
        let host_nodes = parse("COMEM_HOST_NODES", env, number(1..=NODES_MAX, "a number of nodes"))?.unwrap_or(nodes);
        let host_place = parse("COMEM_HOST_PLACE", env, number(0..=host_nodes - 1, "a node's place on its host"))?;
        let rehearse = parse("COMEM_REHEARSE", env, switch)?.unwrap_or(false);
        let rehearsed_mtu = (rehearse && host_nodes == nodes).then_some(REHEARSED_MTU);
        let timeout = |text: &str| if text == "off" { Ok(None) } else { duration(text).map(Some) };
        Ok(Config {
            node: node.map(|n| NodeId(n as u16)),
            nodes,
            threads,
            thread_slots: threads,
            engine: engine.0,
            page_engine: engine.1,
            chooses_engine: chooses_engine && !has_lines,
            fallback_engine: None,
            inline: has_lines,
            checks_code: inline,
            unit_bytes: parse("COMEM_UNIT_BYTES", env, unit_bytes)?.unwrap_or(LINE_BYTES),
            ucx: parse("COMEM_ONE_SIDED", env, one_sided)?.unwrap_or(false),
            detector: detector.flatten(),
            backbone: parse("COMEM_BACKBONE", env, |t| t.parse::<BackboneChoice>().map_err(|e| e.to_string()))?
                .unwrap_or_default(),
            rehearse,
            // Whole chunks in each half, or in each quarter.
            heap: heap & if has_quarters { QUARTERS } else { !((1 << 22) - 1) },
            cache: parse("COMEM_CACHE", env, cache_limit)?,
            diffs: parse("COMEM_DIFFS", env, size)?,
            write_detection: parse("COMEM_WRITE_DETECTION", env, switch)?.unwrap_or(true),
            migration: parse("COMEM_MIGRATION", env, switch)?.unwrap_or(true),
            prefetch: parse("COMEM_PREFETCH", env, switch)?.unwrap_or(true),
            lock_turns: parse("COMEM_LOCK_TURNS", env, switch)?.unwrap_or(true),
            locks: parse("COMEM_LOCKS", env, |t| match t {
                "auto" => Ok(LockChoice::Auto),
                "tokens" => Ok(LockChoice::Tokens),
                "one-sided" => Ok(LockChoice::OneSided),
                _ => Err("expected auto, tokens or one-sided".to_string()),
            })?
            .unwrap_or_default(),
            tuning: parse("COMEM_TUNING", env, tuning)?.unwrap_or_default(),
            unit_pages: parse("COMEM_UNIT_PAGES", env, unit_pages)?.unwrap_or(0),
            globals: parse("COMEM_GLOBALS", env, |t| match t {
                "copy" => Ok(Globals::Copy),
                "share" => Ok(Globals::Share),
                _ => Err("expected copy or share".to_string()),
            })?
            .unwrap_or_default(),
            force_engine: parse("COMEM_FORCE_ENGINE", env, switch)?.unwrap_or(false),
            faults: parse("COMEM_FAULTS", env, |t| t.parse::<FaultSpec>().map_err(|e| e.to_string()))?,
            iface: env("COMEM_IFACE").filter(|v| !v.is_empty()),
            ports: parse("COMEM_PORTS", env, port_range)?,
            multicast: parse("COMEM_MULTICAST", env, |t| t.parse::<MulticastChoice>().map_err(|e| e.to_string()))?
                .unwrap_or_default(),
            auth: parse("COMEM_AUTH", env, switch)?,
            node_timeout: parse("COMEM_NODE_TIMEOUT", env, timeout)?.unwrap_or(Some(Duration::from_secs(10))),
            slow: parse("COMEM_SLOW", env, |t| {
                let factor = t.trim_end_matches('x').parse::<f64>().ok().filter(|f| (1.0..=1000.0).contains(f));
                factor.ok_or_else(|| "expected a factor from 1x to 1000x".to_string())
            })?
            .unwrap_or(1.0),
            wait: parse("COMEM_WAIT", env, |t| match t {
                "auto" => Ok(WaitPolicy::Auto),
                "spin" => Ok(WaitPolicy::Spin),
                "block" => Ok(WaitPolicy::Block),
                _ => Err("expected auto, spin or block".to_string()),
            })?
            .unwrap_or_default(),
            verbose: parse("COMEM_VERBOSE", env, switch)?.unwrap_or(false),
            stats: env("COMEM_STATS").filter(|v| !v.is_empty()),
            host_nodes,
            host_place: host_place.or_else(|| node.filter(|_| host_nodes == nodes)),
            bind: parse("COMEM_BIND", env, str::parse)?.unwrap_or_default(),
            discover: parse("COMEM_DISCOVER", env, |text| match switch(text)? {
                true => Ok(beside_nodes.map(|()| true)?),
                false => Ok(false),
            })?
            .unwrap_or(false),
            join: parse("COMEM_JOIN", env, |text| Ok(beside_nodes.map(|()| text.to_string())?))?,
            program: env("COMEM_PROGRAM").filter(|v| !v.is_empty()),
            hash_seed: env("PYTHONHASHSEED").filter(|v| !v.is_empty()),
            history: None,
            mtu: parse("COMEM_MTU", env, number(MTUS, "an MTU in bytes"))?.or(rehearsed_mtu),
            capture: env("COMEM_CAPTURE").filter(|v| !v.is_empty()),
            zero: env("COMEM_ZERO"),
            start_timeout: parse("COMEM_START_TIMEOUT", env, timeout)?,
            rendezvous: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let pairs: Vec<(String, String)> = pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        Config::read(&move |name| pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()))
    }

    #[test]
    fn a_program_without_a_launcher_is_one_node_with_one_thread() {
        let config = read(&[]).unwrap();
        assert_eq!((config.nodes, config.threads, config.engine, config.node), (1, 1, Engine::Msi, None));
        assert_eq!(config.node_timeout, Some(Duration::from_secs(10)));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (name, value, part) in [
            ("COMEM_NODES", "0", "from 1 to 1024"),
            ("COMEM_THREADS", "300", "from 1 to 256"),
            ("COMEM_ENGINE", "magic", "hlrc, scope, lrc, multicast, msi and hardware"),
            ("COMEM_DETECTOR", "magic", "mprotect"),
            ("COMEM_CACHE", "lots", "64M"),
            ("COMEM_DIFFS", "lots", "64M"),
            ("COMEM_DIFFS", "0", "64M"),
            ("COMEM_HEAP", "17T", "to 16T"),
            ("COMEM_HEAP", "4K", "from 256M"),
            ("COMEM_CACHE", "120%", "percentage"),
            ("COMEM_UNIT_PAGES", "3", "power of two"),
            ("COMEM_UNIT_BYTES", "96", "64, 128, 256"),
            ("COMEM_GLOBALS", "both", "copy or share"),
            ("COMEM_LOCKS", "some", "tokens or one-sided"),
            ("COMEM_MULTICAST", "maybe", "auto, on or off"),
            ("COMEM_BACKBONE", "pigeon", "auto, udp, or shm"),
            ("COMEM_TUNING", "pages.pusch=off", "was pages.push meant?"),
            ("COMEM_TUNING", "push=off", "was pages.push meant?"),
            ("COMEM_TUNING", "turns=off", "was locks.turns meant?"),
            ("COMEM_TUNING", "msi.magic=1", "there are msi.residency_us, msi.residency_doublings_max"),
            ("COMEM_TUNING", "magic=1", "names begin with one of pages, homes"),
            ("COMEM_TUNING", "pages.push", "name=value"),
            ("COMEM_TUNING", "pages.push=off,pages.push=on", "twice"),
            ("COMEM_TUNING", "wait.spin_us=-1", "may be 0 to 1000000"),
            ("COMEM_BIND", "core", "auto, off or cores"),
            ("COMEM_ENGINE", "pigeon", "there is no engine \"pigeon\""),
            ("COMEM_HOST_PLACE", "1", "from 0 to 0"),
            ("COMEM_PORTS", "9-3", "port numbers"),
            ("COMEM_SLOW", "0.5x", "from 1x"),
            ("COMEM_NODE_TIMEOUT", "-3s", "positive"),
            ("COMEM_START_TIMEOUT", "soon", "a time such as 10s"),
        ] {
            let error = read(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(part), "{error}");
        }
    }

    #[test]
    fn lines_are_kept_where_a_detector_or_an_engine_says_so() {
        let kept = |pairs: &[(&str, &str)]| read(pairs).map(|config| (config.has_lines(), config.page_engine));
        let (detector, engine) = (|name| ("COMEM_DETECTOR", name), |name| ("COMEM_ENGINE", name));
        assert_eq!(kept(&[]).unwrap(), (false, PageEngine::Hlrc));
        assert_eq!(kept(&[engine("msi"), detector("uffd")]).unwrap(), (false, PageEngine::Msi));
        assert_eq!(kept(&[detector("inline")]).unwrap(), (true, PageEngine::Msi));
        assert_eq!(kept(&[engine("msi"), detector("inline")]).unwrap(), (true, PageEngine::Msi));
        assert_eq!(kept(&[engine("direct")]).unwrap(), (true, PageEngine::Direct));
        assert_eq!(kept(&[engine("direct"), detector("mprotect")]).unwrap(), (true, PageEngine::Direct));
        for pages in ["hlrc", "scope", "owner"] {
            let refused = kept(&[engine(pages), detector("inline")]).unwrap_err().to_string();
            assert!(refused.contains("COMEM_DETECTOR=inline") && refused.contains("direct or msi"), "{refused}");
        }
    }

    #[test]
    fn sizes_have_binary_units() {
        for text in ["2G", "2g", "2GB", "2GiB", "2Gi", "2147483648", "2147483648B", "2097152k", "2048Mi"] {
            assert_eq!(size(text), Ok(2 << 30), "{text}");
        }
        for wrong in ["", "0", "M", "-1", "1.5G", "64X", "99999999T", "µ", "2GBiB", "2GBB", "2Giii", "2iB", "2BG"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn questions_about_a_network_are_seen() {
        let asks = |pairs: &[(&str, &str)]| read(pairs).unwrap().circumstances().network;
        assert_eq!(asks(&[("COMEM_FAULTS", ""), ("COMEM_AUTH", "off"), ("COMEM_PORTS", "")]), None);
        for (name, value) in [
            ("COMEM_REHEARSE", "on"),
            ("COMEM_FAULTS", "delay=25us"),
            ("COMEM_IFACE", "lo"),
            ("COMEM_PORTS", "9000-9100"),
            ("COMEM_MTU", "1500"),
            ("COMEM_CAPTURE", "job.pcap"),
            ("COMEM_MULTICAST", "on"),
        ] {
            assert_eq!(asks(&[(name, value)]), Some(name));
        }
        assert_eq!([asks(&[("COMEM_MULTICAST", "auto")]), asks(&[("COMEM_MULTICAST", "off")])], [None, None]);
        assert_eq!(asks(&[("COMEM_AUTH", "on")]), None, "datagrams have tags over every backbone");
    }

    #[test]
    fn jobs_on_one_host_take_one_memory_unless_something_asks_for_a_protocol() {
        let chosen = |pairs: &[(&str, &str)]| {
            let here = [("COMEM_NODES", "2"), ("COMEM_BACKBONE", "shm")];
            read(&[&here[..], pairs].concat()).unwrap().chosen_engine().0
        };
        assert_eq!(chosen(&[]), PageEngine::Hardware);
        assert_eq!(chosen(&[("COMEM_ENGINE", ""), ("COMEM_LOCKS", "tokens")]), PageEngine::Hardware);
        assert_eq!(chosen(&[("COMEM_USUAL_ENGINE", "scope")]), PageEngine::Hardware);
        assert_eq!(chosen(&[("COMEM_USUAL_ENGINE", "scope"), ("COMEM_CACHE", "1M")]), PageEngine::Scope);
        for (name, value) in [
            ("COMEM_ENGINE", "hlrc"),
            ("COMEM_ENGINE", "owner"),
            ("COMEM_REHEARSE", "on"),
            ("COMEM_DETECTOR", "mprotect"),
            ("COMEM_CACHE", "1M"),
            ("COMEM_UNIT_PAGES", "2"),
            ("COMEM_PREFETCH", "off"),
            ("COMEM_MIGRATION", "off"),
            ("COMEM_WRITE_DETECTION", "off"),
            ("COMEM_TUNING", "pages.push=off"),
            ("COMEM_HOST_NODES", "1"),
        ] {
            assert_eq!(chosen(&[(name, value)]), PageEngine::Hlrc, "{name}={value}");
        }
        assert_eq!(
            read(&[("COMEM_NODES", "2"), ("COMEM_BACKBONE", "udp")]).unwrap().chosen_engine().0,
            PageEngine::Hlrc
        );
        assert_eq!(read(&[]).unwrap().chosen_engine().0, PageEngine::Hlrc, "a job of one node");
    }

    #[test]
    fn a_rehearsal_has_packets_as_on_a_network_and_a_protocol() {
        let rehearsed = |pairs: &[(&str, &str)]| {
            let here = [("COMEM_NODES", "2"), ("COMEM_REHEARSE", "on")];
            read(&[&here[..], pairs].concat()).unwrap()
        };
        assert_eq!(rehearsed(&[]).mtu, Some(REHEARSED_MTU));
        assert_eq!(rehearsed(&[("COMEM_MTU", "1400")]).mtu, Some(1400));
        assert_eq!(rehearsed(&[("COMEM_HOST_NODES", "1")]).mtu, None, "no rehearsal between hosts");
        assert!(rehearsed(&[]).settle_engine().is_ok());
        let refused = rehearsed(&[("COMEM_ENGINE", "hardware")]).settle_engine().unwrap_err().to_string();
        assert!(refused.contains("COMEM_REHEARSE") && refused.contains("no engine hardware"), "{refused}");
    }

    #[test]
    fn nodes_elsewhere_are_seen() {
        let here = |pairs: &[(&str, &str)]| read(pairs).unwrap().circumstances().one_host;
        assert!(here(&[("COMEM_NODES", "3")]) && here(&[("COMEM_NODES", "3"), ("COMEM_HOST_NODES", "3")]));
        assert!(!here(&[("COMEM_NODES", "3"), ("COMEM_HOST_NODES", "2")]));
        assert!(!here(&[("COMEM_NODES", "3"), ("COMEM_DISCOVER", "on")]));
    }

    #[test]
    fn a_debugger_may_switch_the_silence_limit_off() {
        assert_eq!(read(&[("COMEM_NODE_TIMEOUT", "off")]).unwrap().node_timeout, None);
    }
}
