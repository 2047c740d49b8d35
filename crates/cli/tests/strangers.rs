//! Another user of the same host against ordinary jobs: it can send to their ports, also as if from one of them, and
//! knows everything about them that the host shows. It may not end them, write to their memory, join them or keep them
//! waiting.
//!
//! It takes another user's number and a network namespace, so it needs root; else it says SKIP. All of it happens in
//! the namespace, where no other job is. `COMEM_TEST_STRANGERS=17` runs each of six kinds of jobs so often.

mod common;

use comem_protocol::auth::Sealer;
use comem_protocol::ids::{Channel, NodeId, Seq, Slot};
use comem_protocol::link::{Class, Dest, LinkConfig, Sender};
use comem_protocol::node::identity::{Identity, Layout, VERSION};
use comem_protocol::node::message::{Intent, Join, StartMessage};
use comem_protocol::node::watch::{LossCause, WatchMessage};
use comem_protocol::time::Time;
use comem_protocol::wire::header::{Flags, HeaderRepr, MsgType};
use comem_protocol::wire::message::types;
use common::{PATIENCE, Scratch, bin};
use std::collections::BTreeMap;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// What this program plays when it is started again.
const ROLE: &str = "COMEM_TEST_STRANGER_ROLE";
/// The user that nobody is.
const NOBODY: u32 = 65_534;
/// The jobs' program number: finding it out takes a stranger some seconds at most.
const PROG: u16 = 4711;
const ROUNDS: u64 = 60;
const WORDS: usize = 4096;

#[test]
fn another_user_of_the_host_cannot_kill_write_join_or_delay() {
    // SAFETY: the call takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIP: strangers: another user's number takes root; sudo cargo test -p comem-cli --test strangers");
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.path("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let open_to_all = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    // The stranger starts from it; what is secret is a directory further.
    [scratch.0.as_path(), &program].into_iter().for_each(open_to_all);
    let mut scene = Command::new(&program);
    scene.args(["--exact", "play", "--nocapture", "--test-threads=1"]).env(ROLE, "scene").env("SCENE", &scratch.0);
    let unshare = || {
        // SAFETY: the call changes which network this process's later sockets belong to, and nothing else.
        match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one system call.
    unsafe { scene.pre_exec(unshare) };
    let child = match scene.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            println!("SKIP: strangers: no network namespace can be made here ({e})");
            return;
        }
        child => child.unwrap(),
    };
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    out.lines().filter(|line| line.contains("SKIP: ") || line.contains("jobs: ")).for_each(|line| println!("{line}"));
    assert!(output.status.success(), "{out}\n{err}");
}

/// Not a test by itself: what this program does when it is started again.
#[test]
fn play() {
    match std::env::var(ROLE).as_deref() {
        Ok("scene") => scene(Path::new(&std::env::var("SCENE").unwrap())),
        Ok("stranger") => stranger(),
        Ok("program") => program(),
        _ => {}
    }
}

// The jobs.

/// Each node writes its part of an array again and again, and everybody checks all of it.
fn program() {
    let comem = comem::start().unwrap_or_else(|error| {
        eprintln!("comem: {error}");
        std::process::exit(error.exit_code());
    });
    let array = comem.page_slice::<u64>(WORDS, &Default::default()).expect("a shared slice");
    comem.parallel(|t| {
        for round in 1..=ROUNDS {
            for at in t.split(WORDS) {
                array.set(at, round * at as u64);
            }
            t.barrier();
            for at in 0..WORDS {
                assert_eq!(array.get(at), round * at as u64, "somebody else has written");
            }
            t.barrier();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    comem.finish().expect("the job ends well");
    // Past the interpreter of tests: what it says to its standard output is not this program's.
    std::process::exit(0);
}

/// How a job is started.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Run,
    Exec,
    ByHand,
}

/// Where the jobs' files are.
struct Scene<'a> {
    root: &'a Path,
}

impl Scene<'_> {
    fn clean(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("COMEM_") {
                command.env_remove(&name);
            }
        }
        command.env("COMEM_RUNTIME_DIR", self.root.join("run")).env("HOME", self.root).current_dir(self.root);
        command.env(ROLE, "program").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn words(&self) -> [String; 4] {
        let program = self.root.join("program").to_string_lossy().into_owned();
        [program, "--exact".into(), "play".into(), "--test-threads=1".into()]
    }

    /// Starts a job of two nodes, and runs it to its end; what its processes came to.
    fn job(&self, way: Way, backbone: &str, more: &[(&str, &str)]) -> Vec<Output> {
        let prog = PROG.to_string();
        // A protocol has most to lose.
        let common = [("COMEM_PROG_ID", prog.as_str()), ("COMEM_BACKBONE", backbone), ("COMEM_ENGINE", "hlrc")];
        let start = |command: &mut Command| command.envs(common).envs(more.iter().copied()).spawn().unwrap();
        let children: Vec<Child> = match way {
            Way::Run => vec![start(self.clean(bin()).args(["run", "-n", "2"]).args(self.words()))],
            Way::Exec => (0..2)
                .map(|rank: usize| {
                    let mut command = self.clean(bin());
                    command.env("SLURM_JOB_ID", "4711").env("SLURM_STEP_ID", "3").env("SLURM_NODELIST", "here");
                    command.env("SLURM_PROCID", rank.to_string()).env("SLURM_NTASKS", "2").arg("exec");
                    start(command.args(self.words()))
                })
                .collect(),
            Way::ByHand => {
                let node = |zero: Option<SocketAddr>| {
                    let mut command = self.clean(&self.words()[0]);
                    command.args(&self.words()[1..]).env("COMEM_NODES", "2");
                    start(command.envs(zero.map(|zero| ("COMEM_JOIN", zero.to_string()))))
                };
                let zero = node(None);
                let at = self.zero_by_hand();
                // The stranger has the first word.
                std::thread::sleep(Duration::from_millis(50));
                vec![zero, node(Some(at))]
            }
        };
        children.into_iter().map(common::wait).collect()
    }

    /// Where the node zero that was just started is: it leaves its key under its address.
    fn zero_by_hand(&self) -> SocketAddr {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let names = std::fs::read_dir(self.root.join("run")).unwrap().flatten().map(|entry| entry.file_name());
            let address = names.filter_map(|name| {
                let (ip, port) = name.to_str()?.strip_prefix("job-")?.strip_suffix(".key")?.split_once('-')?;
                format!("{ip}:{port}").parse().ok()
            });
            if let Some(address) = address.last() {
                return address;
            }
            assert!(Instant::now() < deadline, "node zero leaves no key");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn stranger(&self) -> Child {
        let mut command = self.clean(&self.words()[0]);
        command.args(&self.words()[1..]).arg("--nocapture").env(ROLE, "stranger");
        command.env("RECORDED", self.root.join("recorded")).uid(NOBODY).gid(NOBODY).stdin(Stdio::piped());
        command.spawn().unwrap()
    }
}

/// The second user's whole host.
fn scene(root: &Path) {
    raise_loopback();
    let scene = Scene { root };
    let runs = std::env::var("COMEM_TEST_STRANGERS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    std::thread::spawn(move || {
        std::thread::sleep(PATIENCE * (2 + runs));
        eprintln!("the scene does not end");
        std::process::exit(1);
    });
    // An earlier job, all of whose datagrams somebody has recorded.
    let capture = root.join("cap.pcap").to_string_lossy().into_owned();
    let earlier = scene.job(Way::ByHand, "udp", &[("COMEM_CAPTURE", &capture)]);
    assert!(earlier.iter().all(|output| output.status.success()), "{earlier:#?}");
    let recorded = recordings(root);
    assert!(recorded.len() > 100, "{} datagrams were recorded", recorded.len());
    let text: String = recorded.iter().map(|bytes| hex(bytes) + "\n").collect();
    std::fs::write(root.join("recorded"), text).unwrap();
    std::fs::set_permissions(root.join("recorded"), std::fs::Permissions::from_mode(0o644)).unwrap();

    let mut stranger = match scene.stranger() {
        stranger if may_start_there(root) => stranger,
        mut stranger => {
            let _ = stranger.kill();
            let _ = stranger.wait();
            println!("SKIP: strangers: another user cannot start {}", root.join("program").display());
            return;
        }
    };
    // Without tags the same words end a job: the stranger's methods work.
    let harmed = (0..10).any(|_| {
        let outputs = scene.job(Way::Run, "udp", &[("COMEM_AUTH", "off")]);
        outputs.iter().any(|output| !output.status.success())
    });
    assert!(harmed, "the stranger does nothing, even to jobs that are open to it");

    let mut count = 0;
    for way in [Way::Run, Way::ByHand, Way::Exec] {
        for backbone in ["udp", "shm"] {
            for run in 0..runs {
                let start = Instant::now();
                let outputs = scene.job(way, backbone, &[]);
                let took = start.elapsed();
                let well = outputs.iter().all(|output| output.status.success()) && took < PATIENCE / 2;
                assert!(well, "{way:?} over {backbone}, run {run}, after {took:?}: {outputs:#?}");
                count += 1;
            }
        }
    }
    drop(stranger.stdin.take());
    let output = common::wait(stranger);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !said.contains("GOT"), "{output:#?}");
    let sent = said.lines().find_map(|line| line.strip_prefix("sent ")?.parse::<u64>().ok());
    let sent = sent.unwrap_or_else(|| panic!("{output:#?}"));
    assert!(sent > 1000, "{sent} datagrams are no attack");
    println!("jobs: {count} ended well under {sent} forged and repeated datagrams of another user");
}

/// Whether the other user can execute the program.
fn may_start_there(root: &Path) -> bool {
    root.ancestors().skip(1).all(|above| std::fs::metadata(above).is_ok_and(|meta| meta.permissions().mode() & 1 != 0))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).filter_map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()).collect()
}

/// The UDP payloads in a directory's captures.
fn recordings(root: &Path) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(root).unwrap().flatten().map(|entry| entry.path());
    let captures: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "pcap")).collect();
    captures.iter().flat_map(|path| payloads(&std::fs::read(path).unwrap())).collect()
}

fn payloads(mut pcap: &[u8]) -> Vec<Vec<u8>> {
    const FILE_HEADER: usize = 24;
    const HEADERS: usize = 20 + 8;
    let mut found = Vec::new();
    pcap = pcap.get(FILE_HEADER..).unwrap_or_default();
    while let Some((head, rest)) = pcap.split_first_chunk::<16>() {
        let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let Some((packet, rest)) = rest.split_at_checked(len) else { break };
        found.extend(packet.get(HEADERS..).map(<[u8]>::to_vec));
        pcap = rest;
    }
    found
}

fn raise_loopback() {
    let status = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(status.is_ok_and(|status| status.success()), "ip link set lo up");
}

// The stranger.

/// Bothers whatever root runs in this network until its standard input ends.
fn stranger() {
    let over = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let recorded = std::fs::read_to_string(std::env::var("RECORDED").unwrap()).unwrap();
    let recorded: Vec<Vec<u8>> = recorded.lines().map(from_hex).collect();
    let mut stranger =
        Stranger { sockets: BTreeMap::new(), recorded, at: 0, sent: 0, doors: Vec::new(), lines: Vec::new() };
    while !over.is_finished() {
        stranger.bother();
        std::thread::sleep(Duration::from_millis(2));
    }
    println!("\nsent {}", stranger.sent);
}

struct Stranger {
    /// By the ports that datagrams seem to come from and go to.
    sockets: BTreeMap<(u16, u16), UdpSocket>,
    /// What was said in another job.
    recorded: Vec<Vec<u8>>,
    at: usize,
    sent: u64,
    doors: Vec<std::os::unix::net::UnixListener>,
    lines: Vec<OwnedFd>,
}

impl Stranger {
    fn bother(&mut self) {
        let ports = ports_of_root();
        self.sockets.retain(|(from, to), _| ports.contains(from) && (ports.contains(to) || *to == 9));
        for &from in ports.iter().take(8) {
            for &to in ports.iter().filter(|to| **to != from).take(8) {
                self.say_all(from, to);
            }
        }
        // What bounces off a closed port comes back to whose port it seems to have come from.
        for &from in ports.iter().take(8) {
            if let Some(socket) = self.socket(from, 9) {
                self.sent += u64::from(socket.send(b"bounce").is_ok());
            }
        }
        self.take_doors();
        for pid in processes_of_root() {
            for file in ["environ", "mem"] {
                if std::fs::File::open(format!("/proc/{pid}/{file}")).is_ok() {
                    println!("\nGOT /proc/{pid}/{file}");
                }
            }
        }
        let runtime = std::env::var("COMEM_RUNTIME_DIR").unwrap();
        if std::fs::read_dir(&runtime).is_ok() {
            println!("\nGOT {runtime}");
        }
    }

    /// Everything that can be said to a port as if from another.
    fn say_all(&mut self, from: u16, to: u16) {
        let mut words: Vec<Vec<u8>> = Vec::new();
        for node in [0, 1] {
            words.extend(losses(node));
            words.extend(diffs(node));
        }
        words.push(join());
        words.push(vec![0]);
        for _ in 0..8.min(self.recorded.len()) {
            self.at = (self.at + 1) % self.recorded.len();
            words.push(self.recorded[self.at].clone());
        }
        let untagged = words.clone();
        // The same with something where a tag would be.
        words.extend(untagged.into_iter().map(|bytes| [&bytes[..], &[0x5a; 16]].concat()));
        let Some(socket) = self.socket(from, to) else { return };
        self.sent += words.iter().filter(|bytes| socket.send(bytes).is_ok()).count() as u64;
    }

    /// A socket whose datagrams come from a port of somebody else's: bound to a group's address, it may share the
    /// port, and once connected it sends from the host's own address.
    fn socket(&mut self, from: u16, to: u16) -> Option<UdpSocket> {
        if let Some(socket) = self.sockets.get(&(from, to)) {
            return socket.try_clone().ok();
        }
        let socket = reusable()?;
        bind(&socket, SocketAddr::from((Ipv4Addr::new(224, 0, 0, 251), from)))?;
        socket.connect((Ipv4Addr::LOCALHOST, to)).ok()?;
        let copy = socket.try_clone().ok();
        self.sockets.insert((from, to), socket);
        copy
    }

    /// Local sockets: knocks at every one that is there, and takes names that jobs may want.
    fn take_doors(&mut self) {
        let text = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        for name in text.lines().filter_map(|line| line.split_whitespace().last()?.strip_prefix("@comem")) {
            let name = format!("comem{name}");
            // A line is kept open, and nothing said there.
            self.lines.extend(knock(&name));
        }
        self.lines.drain(..self.lines.len().saturating_sub(64));
        for port in ports_of_root().into_iter().flat_map(|port| port..port.saturating_add(8)).take(64) {
            let name = format!("comem-shm-127.0.0.1-{port}");
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
            self.doors.extend(std::os::unix::net::UnixListener::bind_addr(&address));
        }
    }
}

/// A line to a local socket with this name in the abstract name space, if it takes one at once.
fn knock(name: &str) -> Option<OwnedFd> {
    // SAFETY: makes a descriptor; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the descriptor is new and nobody else's.
    let line = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    let room = address.sun_path.get_mut(1..=name.len())?;
    room.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte as libc::c_char);
    let len = (size_of::<libc::sa_family_t>() + 1 + name.len()) as libc::socklen_t;
    // SAFETY: the address and its length outlive the call.
    let connected = unsafe { libc::connect(fd, (&raw const address).cast(), len) };
    (connected == 0).then_some(line)
}

fn reusable() -> Option<UdpSocket> {
    // SAFETY: makes a descriptor; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the descriptor is new and nobody else's.
    let socket = unsafe { UdpSocket::from_raw_fd(fd) };
    let one: libc::c_int = 1;
    // SAFETY: the option's value outlives the call.
    let set = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            (&raw const one).cast(),
            size_of::<libc::c_int>() as u32,
        )
    };
    (set == 0).then_some(socket)
}

fn bind(socket: &UdpSocket, address: SocketAddr) -> Option<()> {
    let SocketAddr::V4(address) = address else { return None };
    let name = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    };
    // SAFETY: the name and its length outlive the call.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), size_of_val(&name) as u32) };
    (bound == 0).then_some(())
}

/// The UDP ports that root's processes have open on this host.
fn ports_of_root() -> Vec<u16> {
    let text = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
    let port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, user) = (fields.get(1)?, fields.get(7)?);
        (*user == "0").then(|| u16::from_str_radix(local.split_once(':')?.1, 16).ok())?
    };
    let mut ports: Vec<u16> = text.lines().skip(1).filter_map(port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// The processes of the jobs: root's, in whose arguments this test's name stands.
fn processes_of_root() -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ours = |pid: &u32| {
        use std::os::unix::fs::MetadataExt;
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let root = std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == 0);
        root && words.windows(7).any(|part| part == b"--exact")
    };
    number.filter(ours).take(16).collect()
}

fn datagram(prog: u16, ty: MsgType, node: u16, counter: u64, body: &[u8]) -> Vec<u8> {
    let seq = Seq::free(Channel::service(NodeId(node)), counter);
    let header = HeaderRepr { prog, ty, flags: Flags::default(), len: body.len() as u16, retrans: 0, frag: 0, seq };
    let mut bytes = Vec::new();
    header.emit(&mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

/// "A node is gone", as an earlier version said it and as this one does.
fn losses(from: u16) -> Vec<Vec<u8>> {
    let lost = |node: u16| WatchMessage::Lost {
        node: NodeId(node),
        reporter: NodeId(from),
        why: LossCause::Killed { signal: 9 },
    };
    let words = [0, 1].map(lost);
    let both =
        |message: &WatchMessage| [0, PROG].map(|prog| datagram(prog, message.ty(), from, 1 << 30, &message.emit()));
    words.iter().flat_map(both).collect()
}

/// Changes to pages, whatever they mean.
fn diffs(from: u16) -> Vec<Vec<u8>> {
    let me = Channel { node: NodeId(from), slot: Slot::thread(0) };
    let mut sender = Sender::new(me, PROG, LinkConfig::default(), Sealer::default());
    let mut all = Vec::new();
    for ty in [types::DIFFS, types::PUSH, types::LOCK_TOKENS, types::ARRIVE] {
        let _ = sender.send(Dest::Node(NodeId(1 - from), Slot::SERVICE), Class::Post, ty, &[0x11; 64]);
    }
    let mut batch = Vec::new();
    while let Some(transmit) = sender.poll_transmit(Time(1), &mut batch) {
        all.extend(batch.chunks(transmit.segment.max(1)).map(<[u8]>::to_vec));
    }
    all
}

/// "Let me in", to whatever job it is.
fn join() -> Vec<u8> {
    let identity = Identity {
        version: VERSION,
        job_name: "comem".to_string(),
        program: "program".to_string(),
        hash: [0; 32],
        layout: Layout::of_this_process(4096),
        nodes: 2,
        threads: 1,
        options: String::new(),
    };
    let join = Join {
        nonce: 77,
        discover: false,
        intent: Intent::Ask,
        requested: Some(NodeId(1)),
        job: 0,
        age_ms: 0,
        identity,
        pid: 1,
        host: "elsewhere".to_string(),
        ports: vec![9, 9, 9],
    };
    let message = StartMessage::Join(Box::new(join));
    datagram(0, comem_protocol::node::message::types::JOIN, 1, 1, &message.emit(VERSION))
}
