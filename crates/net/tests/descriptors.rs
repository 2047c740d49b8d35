//! Processes whose descriptors are few: Comem leaves the program some, and waits without a fuss where there are none.
//!
//! The process with the limit is this test program again, told to run the ignored test `the_other_process` alone.

use comem_net::{Datagrams, Endpoint, PortChoice, ShmHost};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATIENCE: Duration = Duration::from_secs(20);
const ROLE: &str = "COMEM_TEST_ROLE";

/// The process with the limit; killed when it is no longer needed.
struct Other(Child);

impl Other {
    fn start(role: &str) -> (Other, impl Iterator<Item = String> + use<>) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        (Other(child), lines.filter_map(|line| Some(line.rsplit_once("says: ")?.1.to_string())))
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The thread of this name, which it gives itself when it first runs.
    fn thread(&self, name: &str) -> Option<PathBuf> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap().flatten();
        let has_name =
            |path: &PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
        threads.map(|entry| entry.path()).find(has_name)
    }

    /// How long a thread has computed so far.
    fn computed(&self, name: &str) -> Duration {
        let begun = Instant::now();
        let thread = loop {
            match self.thread(name) {
                Some(thread) => break thread,
                None => assert!(begun.elapsed() < PATIENCE, "there is no thread {name}"),
            }
        };
        let times = std::fs::read_to_string(thread.join("schedstat")).unwrap();
        Duration::from_nanos(times.split(' ').next().unwrap().parse().unwrap())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Sets how many descriptors this process may have; gives how many it might before.
fn limit_descriptors(most: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls read and write the record, which is ours.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, most);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}

fn next_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_string()
}

#[test]
#[ignore = "the other process of the tests below"]
fn the_other_process() {
    match std::env::var(ROLE).as_deref() {
        Ok("sender") => send_often(),
        Ok("host") => have_none_left(),
        _ => {}
    }
}

/// Three threads' endpoints that all send often to the same 64 addresses.
fn send_often() {
    limit_descriptors(128);
    let endpoints: Vec<Endpoint> = (0..3).map(|_| Endpoint::bind(HOST, PortChoice::Any).unwrap()).collect();
    let ports: Vec<u16> = next_line().split(' ').map(|port| port.parse().unwrap()).collect();
    for endpoint in &endpoints {
        for to in ports.iter().map(|port| SocketAddr::new(HOST, *port)) {
            (0..70).for_each(|_| endpoint.send_to(b"often", 100, to).unwrap());
        }
    }
    let files: Vec<std::fs::File> = (0..64).map_while(|_| std::fs::File::open("/dev/null").ok()).collect();
    println!("says: {}", files.len());
}

/// An endpoint in shared memory whose process may have no further descriptor, until it is told to have some.
fn have_none_left() {
    let host = ShmHost::open().unwrap();
    let endpoint = host.bind(HOST, PortChoice::Any).unwrap();
    let next = std::fs::File::open("/dev/null").map(|file| std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap();
    let before = limit_descriptors(next as u64);
    assert!(std::fs::File::open("/dev/null").is_err());
    println!("says: {}", endpoint.local_addr());
    next_line();
    limit_descriptors(before);
    next_line();
}

#[test]
fn half_of_the_descriptors_are_left_to_the_program_however_many_addresses_are_sent_to_often() {
    let receivers: Vec<UdpSocket> = (0..64).map(|_| UdpSocket::bind((HOST, 0)).unwrap()).collect();
    let ports = receivers.iter().map(|socket| socket.local_addr().unwrap().port().to_string());
    let (mut sender, mut says) = Other::start("sender");
    sender.tell(&ports.collect::<Vec<_>>().join(" "));
    assert_eq!(says.next().as_deref(), Some("64"));
}

#[test]
fn who_stands_at_the_door_of_a_process_without_descriptors_is_let_in_when_it_has_some_and_costs_nothing_meanwhile() {
    let (mut other, mut says) = Other::start("host");
    let address: SocketAddr = says.next().expect("it says where it is").parse().unwrap();
    let host = ShmHost::open().unwrap();
    let _endpoint = host.bind(HOST, PortChoice::Any).unwrap();
    assert_eq!(host.connect(&[address], Duration::ZERO), 0);
    let (before, start) = (other.computed("comem-porter"), Instant::now());
    // A porter that asks again and again would compute all the while.
    std::thread::sleep(Duration::from_millis(400));
    let (computed, window) = (other.computed("comem-porter") - before, start.elapsed());
    assert!(computed < window / 10, "{computed:?} of {window:?}");
    other.tell("have some");
    assert_eq!(host.connect(&[address], PATIENCE), 1);
}
