//! `comem daemon`: who may start what, and what strangers get (nothing).

mod common;

use common::{Held, Scratch, err, finish, on_signals, out, signal, sorted, wait};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A daemon on a port of its own, with a directory of programs.
struct Daemon {
    scratch: Scratch,
    child: Child,
    address: SocketAddr,
    /// What it says.
    lines: mpsc::Receiver<String>,
}

impl Daemon {
    fn start(more: &[&str]) -> Daemon {
        Daemon::start_after(|_| (), more)
    }

    /// One whose start is prepared in some way.
    fn start_after(prepare: impl Fn(&mut Command), more: &[&str]) -> Daemon {
        let scratch = Scratch::new();
        assert!(scratch.comem().args(["daemon", "make-key", "key"]).status().unwrap().success());
        let programs = scratch.path("programs");
        std::fs::create_dir(&programs).unwrap();
        std::fs::set_permissions(&programs, std::fs::Permissions::from_mode(0o755)).unwrap();
        scratch.script("programs/show", "#!/bin/sh\necho $COMEM_NODE of $COMEM_NODES in $(pwd) mode=$MODE\n");
        scratch.script("programs/hold", "#!/bin/sh\nexec 9>$1; sleep 1000 & echo $COMEM_NODE $PPID >&9; wait\n");
        scratch.script("outside", "#!/bin/sh\necho outside\n");
        let mut command = scratch.comem();
        command.args(["daemon", "-v", "--key-file", "key", "--allow", "programs", "--port", "0"]).args(more);
        prepare(&mut command);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        // Its log is read no faster than a test looks at it.
        let (sender, lines) = mpsc::sync_channel(0);
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let first = lines.recv_timeout(common::PATIENCE).unwrap();
        let address = first.split("listening on ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
        Daemon { scratch, child, address, lines }
    }

    fn local() -> Daemon {
        Daemon::start(&["--bind", "127.0.0.1"])
    }

    fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// Waits for the daemon to say something with `part` in it.
    fn expect(&self, part: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(common::PATIENCE).unwrap_or_else(|_| panic!("no word of {part:?}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    fn run_command(&self, args: &[&str]) -> Command {
        let mut command = self.scratch.comem();
        let port = self.port();
        command.args(["run", "--launch", "daemon", "--key-file", "key", "--daemon-port", &port]).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        finish(&mut self.run_command(args))
    }

    fn ask(&self, args: &[&str]) -> Output {
        let port = self.port();
        finish(self.scratch.comem().arg("daemon").args(args).args(["--key-file", "key", "--port", &port]))
    }

    fn list(&self) -> Vec<String> {
        let output = self.ask(&["list", "--host", "127.0.0.1"]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output).lines().skip(1).map(str::to_string).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const HERE: &str = "127.0.0.1";

#[test]
fn a_caller_with_the_key_starts_programs_of_the_allowed_directory() {
    let daemon = Daemon::local();
    let program = daemon.scratch.text("programs/show");
    let output = daemon.run(&["--hosts", "127.0.0.1:2", "--no-prefix", &program]);
    let cwd = daemon.scratch.0.display();
    let wanted = [format!("0 of 2 in {cwd} mode="), format!("1 of 2 in {cwd} mode=")];
    assert_eq!(sorted(&out(&output)), wanted, "{}", err(&output));
    assert_eq!(output.status.code(), Some(0));
}

/// The daemon and its nodes have the variable from nobody but the launcher.
#[test]
fn what_is_said_about_packets_reaches_nodes_behind_a_daemon() {
    let daemon = Daemon::start(&["--bind", HERE, "--allow-env", "COMEM_CAPTURE"]);
    daemon.scratch.script("programs/packets", "#!/bin/sh\necho \"<$COMEM_MTU> <$COMEM_CAPTURE>\"\n");
    let program = daemon.scratch.text("programs/packets");
    let shown = |flags: &[&str], variables: &[(&str, &str)]| {
        let mut command = daemon.run_command(&["--hosts", "127.0.0.1:2", "--no-prefix"]);
        let output = finish(command.args(flags).arg(&program).envs(variables.iter().copied()));
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output)
    };
    assert_eq!(shown(&[], &[]), "<> <>\n".repeat(2));
    assert_eq!(shown(&["--mtu", "1300", "--capture", "a.pcap"], &[]), "<1300> <a.pcap>\n".repeat(2));
    assert_eq!(shown(&[], &[("COMEM_MTU", "1300")]), "<1300> <>\n".repeat(2));
    let both = [("COMEM_MTU", "1400"), ("COMEM_CAPTURE", "b.pcap")];
    assert_eq!(shown(&["--mtu", "1300"], &both), "<1300> <b.pcap>\n".repeat(2));
}

#[test]
fn daemons_are_found_by_broadcast() {
    let daemon = Daemon::start(&["--bind", "0.0.0.0"]);
    let program = daemon.scratch.text("programs/show");
    let output = daemon.run(&["--iface", "lo", "-n", "3", "--no-prefix", &program]);
    assert_eq!(out(&output).lines().count(), 3, "{}", err(&output));
    let listed = daemon.ask(&["list", "--iface", "lo"]);
    assert_eq!(listed.status.code(), Some(0));
    assert_eq!(err(&listed), "");
}

#[test]
fn a_list_without_answers_says_how_daemons_at_one_address_are_asked() {
    let daemon = Daemon::local();
    let listed = daemon.ask(&["list", "--iface", "lo"]);
    let text = err(&listed);
    assert!(text.starts_with("comem: no daemon answers a broadcast") && text.contains("with --host"), "{text}");
    assert_eq!((listed.status.code(), out(&listed).lines().count(), text.lines().count()), (Some(7), 0, 1));
    let empty = daemon.ask(&["list", "--host", HERE]);
    let wanted = "comem: no job runs that a daemon has started (asked: 127.0.0.1)\n";
    assert_eq!((empty.status.code(), out(&empty).as_str(), err(&empty).as_str()), (Some(0), wanted, ""));
}

#[test]
fn programs_elsewhere_copies_and_dangerous_variables_are_refused() {
    let daemon = Daemon::local();
    let outside = daemon.scratch.text("outside");
    let allowed = daemon.scratch.text("programs/show");
    let detour = daemon.scratch.text("programs/../outside");
    std::os::unix::fs::symlink(&outside, daemon.scratch.path("programs/link")).unwrap();
    let link = daemon.scratch.text("programs/link");
    let cases: &[(&[&str], &str)] = &[
        (&[&outside], "outside the directories"),
        (&[&detour], "outside the directories"),
        (&[&link], "outside the directories"),
        (&["sh", "-c", "echo got in"], "outside the directories"),
        (&["--stage", &allowed], "no program that is sent"),
        (&["--env", "LD_PRELOAD=/tmp/x.so", &allowed], "no variable LD_PRELOAD"),
        (&["--env", "MODE=1", &allowed], "--allow-env MODE, or leave out --env MODE"),
        (&["--capture", "job.pcap", &allowed], "--allow-env COMEM_CAPTURE, or leave out --capture"),
    ];
    for (args, part) in cases {
        let output = daemon.run(&[&["--hosts", HERE], *args].concat());
        let text = err(&output);
        assert_eq!(output.status.code(), Some(8), "{args:?}: {text}");
        assert!(text.contains(part), "{args:?}: {text}");
        assert_eq!(out(&output), "", "{args:?}");
    }
}

#[test]
fn variables_that_the_daemon_was_told_to_take_travel() {
    let daemon = Daemon::start(&["--bind", HERE, "--allow-env", "MODE"]);
    let program = daemon.scratch.text("programs/show");
    let output = daemon.run(&["--hosts", HERE, "--env", "MODE=deep", &program]);
    assert!(out(&output).contains("mode=deep"), "{}{}", out(&output), err(&output));
}

#[test]
fn a_wrong_key_gets_no_answer_at_all() {
    let daemon = Daemon::local();
    let program = daemon.scratch.text("programs/show");
    assert!(daemon.scratch.comem().args(["daemon", "make-key", "other"]).status().unwrap().success());
    let port = daemon.port();
    let mut command = daemon.scratch.comem();
    command.args([
        "run",
        "--launch",
        "daemon",
        "--key-file",
        "other",
        "--daemon-port",
        &port,
        "--hosts",
        HERE,
        &program,
    ]);
    let output = finish(&mut command);
    assert_eq!(output.status.code(), Some(7));
    assert!(err(&output).contains("no daemon answers on host 127.0.0.1"), "{}", err(&output));
    daemon.expect("wrong key");
    assert_eq!(out(&daemon.run(&["--hosts", HERE, &program])).lines().count(), 1, "the daemon serves on");
}

#[test]
fn garbage_is_dropped_in_silence_and_harms_nobody() {
    let daemon = Daemon::local();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut seed = 7_u64;
    for length in 0..300 {
        let mut bytes: Vec<u8> = (0..length)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 56) as u8
            })
            .collect();
        if length > 5 && length % 2 == 0 {
            bytes[..5].copy_from_slice(&[b'C', b'M', b'D', b'1', (length % 6) as u8]);
        }
        stranger.send_to(&bytes, daemon.address).unwrap();
    }
    daemon.expect("dropped a datagram");
    let program = daemon.scratch.text("programs/show");
    assert_eq!(daemon.run(&["--hosts", HERE, &program]).status.code(), Some(0));
    // The daemon has served a later request, so it would have answered the stranger by now.
    assert!(stranger.recv(&mut [0; 100]).is_err(), "a stranger is never answered");
}

/// Passes datagrams between a caller and the daemon, and keeps a copy of what the caller sends.
struct Spy {
    port: u16,
    seen: mpsc::Receiver<(SocketAddr, Vec<u8>)>,
}

impl Spy {
    /// Everything the caller sends goes to the daemon from one socket of the spy's, which it also returns.
    fn between(daemon: SocketAddr) -> (Spy, UdpSocket) {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let back = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = front.local_addr().unwrap().port();
        let (sender, seen) = mpsc::channel();
        let (answers, later) = (back.try_clone().unwrap(), back.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok((length, caller)) = front.recv_from(&mut buffer) {
                back.send_to(&buffer[..length], daemon).unwrap();
                if sender.send((caller, buffer[..length].to_vec())).is_err() {
                    return;
                }
                let length = answers.recv(&mut buffer).unwrap();
                front.send_to(&buffer[..length], caller).unwrap();
            }
        });
        (Spy { port, seen }, later)
    }
}

#[test]
fn a_log_that_nobody_reads_keeps_no_caller_waiting() {
    let mut daemon = Daemon::local();
    let stranger = UdpSocket::bind((HERE, 0)).unwrap();
    // A line each, in all more than a pipe takes; the daemon's socket takes so many at a time.
    for _ in 0..40 {
        (0..50).for_each(|_| drop(stranger.send_to(b"garbage", daemon.address)));
        assert_eq!(daemon.list(), [""; 0]);
    }
    signal(daemon.child.id(), "TERM");
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_replayed_wake_up_starts_nothing() {
    let daemon = Daemon::local();
    let (spy, same_address) = Spy::between(daemon.address);
    let program = daemon.scratch.text("programs/show");
    let port = spy.port.to_string();
    let mut command = daemon.scratch.comem();
    command.args(["run", "--launch", "daemon", "--key-file", "key", "--daemon-port", &port, "--hosts", HERE, &program]);
    let output = finish(&mut command);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    daemon.expect("job 1 for");
    let sent: Vec<Vec<u8>> = spy.seen.try_iter().map(|(_, bytes)| bytes).collect();
    let request = sent.iter().find(|bytes| bytes[4] == 3).expect("a sealed wake-up was seen");

    // From another address, and damaged from the same: dropped.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(request, daemon.address).unwrap();
    daemon.expect("stale or foreign challenge");
    let mut damaged = request.clone();
    *damaged.last_mut().unwrap() ^= 1;
    same_address.send_to(&damaged, daemon.address).unwrap();
    daemon.expect("replay");
    // The very same once more: at most the sealed answer again, and no second start.
    same_address.send_to(request, daemon.address).unwrap();
    assert_eq!(daemon.run(&["--hosts", HERE, &program]).status.code(), Some(0));
    let next = daemon.expect(" for ");
    let replayer = same_address.local_addr().unwrap().to_string();
    assert!(next.contains("job 2 for") && !next.contains(&replayer), "the replay became a job of its own: {next}");
}

#[test]
fn jobs_are_listed_and_killed() {
    let daemon = Daemon::local();
    let fifo = daemon.scratch.fifo("held");
    let hold = daemon.scratch.text("programs/hold");
    let mut command = daemon.run_command(&["--hosts", "127.0.0.1:2", &hold, &fifo]);
    let job = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let held = Held::open(&fifo);
    held.expect_lines(2);
    let listed = daemon.list();
    assert_eq!(listed.len(), 1);
    assert!(listed[0].contains(&hold) && listed[0].contains(HERE), "{listed:?}");
    let wrong = daemon.ask(&["kill", "999", "--host", HERE]);
    assert_eq!(wrong.status.code(), Some(8));
    assert!(err(&wrong).contains("no job 999"), "{}", err(&wrong));
    let killed = daemon.ask(&["kill", "1", "--host", HERE]);
    assert_eq!(killed.status.code(), Some(0), "{}", err(&killed));
    held.expect_all_gone();
    let output = wait(job);
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    assert!(err(&output).contains("host 127.0.0.1: the agent was ended by signal 15"), "{}", err(&output));
}

#[test]
fn the_end_of_the_caller_or_of_the_daemon_ends_the_nodes() {
    for end_daemon in [false, true] {
        let mut daemon = Daemon::local();
        let fifo = daemon.scratch.fifo("held");
        let hold = daemon.scratch.text("programs/hold");
        let mut command = daemon.run_command(&["--hosts", "127.0.0.1:2", &hold, &fifo]);
        let mut job = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let held = Held::open(&fifo);
        held.expect_lines(2);
        if end_daemon {
            signal(daemon.child.id(), "TERM");
            assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
        } else {
            job.kill().unwrap();
        }
        held.expect_all_gone();
        wait(job);
    }
}

#[test]
fn a_daemon_started_with_nohup_outlives_the_logout() {
    let daemon = Daemon::start_after(|c| on_signals(c, &[libc::SIGHUP], libc::SIG_IGN), &["--bind", HERE]);
    signal(daemon.child.id(), "HUP");
    let program = daemon.scratch.text("programs/show");
    let output = daemon.run(&["--hosts", HERE, &program]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
}

#[test]
fn a_key_that_others_can_read_is_refused_on_both_sides() {
    let scratch = Scratch::new();
    assert!(scratch.comem().args(["daemon", "make-key", "key"]).status().unwrap().success());
    std::fs::set_permissions(scratch.path("key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    for args in [
        &["daemon", "--key-file", "key", "--allow", ".", "--port", "0"][..],
        &["daemon", "list", "--key-file", "key", "--host", HERE],
        &["run", "--launch", "daemon", "--key-file", "key", "--hosts", HERE, "true"],
    ] {
        let output = finish(scratch.comem().args(args));
        assert_eq!(output.status.code(), Some(3), "{args:?}");
        assert!(err(&output).contains("chmod 600"), "{}", err(&output));
    }
    let missing = finish(scratch.comem().args(["daemon", "--key-file", "none", "--allow", ".", "--port", "0"]));
    assert!(err(&missing).contains("comem daemon make-key"), "{}", err(&missing));
}

#[test]
fn a_daemon_needs_directories_and_a_free_port() {
    let daemon = Daemon::local();
    let scratch = &daemon.scratch;
    let nothing = finish(scratch.comem().args(["daemon", "--key-file", "key", "--port", "0"]));
    assert_eq!(nothing.status.code(), Some(2));
    let port = daemon.port();
    let args = ["daemon", "--key-file", "key", "--allow", "programs", "--bind", HERE, "--port", &port];
    let taken = finish(scratch.comem().args(args));
    assert_eq!(taken.status.code(), Some(3));
    assert!(err(&taken).contains("another daemon may run there"), "{}", err(&taken));
    std::fs::set_permissions(scratch.path("programs"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let args = ["daemon", "--key-file", "key", "--allow", "programs", "--port", "0"];
    let open = finish(scratch.comem().args(args));
    assert!(err(&open).contains("writable by others"), "{}", err(&open));
}

#[test]
fn hosts_are_shown_with_their_room_and_those_without_an_answer_are_named() {
    let daemon = Daemon::start(&["--bind", HERE, "--slots", "3"]);
    let fifo = daemon.scratch.fifo("held");
    let program = daemon.scratch.text("programs/hold");
    let port = daemon.port();
    let ask = |args: &[&str]| {
        let key = ["--key-file", "key", "--port", port.as_str()];
        finish(daemon.scratch.comem().arg("hosts").args(args).args(key))
    };
    let state = || {
        let output = ask(&["--json", HERE]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        serde_json::from_str::<serde_json::Value>(&out(&output)).unwrap()[0].clone()
    };
    let idle = state();
    assert_eq!((&idle["version"], &idle["name"], &idle["slots"]), (&1.into(), &HERE.into(), &3.into()));
    assert_eq!((&idle["jobs"], &idle["nodes"], &idle["free_slots"]), (&0.into(), &0.into(), &3.into()));
    assert!(idle["host"]["cores"].as_u64().unwrap() > 0 && idle["memory_free_mib"].as_u64().unwrap() > 0);
    let mut job = daemon.run_command(&["--hosts", "127.0.0.1:2", &program, &fifo]);
    let mut job = job.stderr(Stdio::null()).spawn().unwrap();
    let held = Held::open(&fifo);
    held.expect_lines(2);
    let busy = state();
    assert_eq!((&busy["jobs"], &busy["nodes"], &busy["free_slots"]), (&1.into(), &2.into(), &1.into()));
    let refused = daemon.run(&["--hosts", "127.0.0.1:2", &daemon.scratch.text("programs/show")]);
    assert_eq!(refused.status.code(), Some(8));
    assert!(err(&refused).contains("has 1 of 3 slots free, and the job wants 2"), "{}", err(&refused));
    // A host that does not answer does not hide the others.
    let table = ask(&[HERE, "127.0.0.77"]);
    assert_eq!(table.status.code(), Some(7));
    assert!(out(&table).lines().count() == 2 && out(&table).contains("FREE SLOTS"), "{}", out(&table));
    assert!(err(&table).contains("no daemon answers on host 127.0.0.77"), "{}", err(&table));
    // Jobs there are shown with those of this host.
    let jobs = |more: &[&str]| {
        let ask = ["jobs", "--host", HERE, "--key-file", "key", "--port", port.as_str()];
        out(&finish(daemon.scratch.comem().args(ask).args(more)))
    };
    let both = jobs(&[]);
    assert!(both.contains("JOB  NAME") && both.contains("SECONDS  CALLER"), "{both}");
    let both: serde_json::Value = serde_json::from_str(&jobs(&["--json"])).unwrap();
    assert_eq!((&both[0]["name"], &both[1]["daemon"], &both[1]["id"]), (&"hold".into(), &HERE.into(), &1.into()));
    signal(job.id(), "TERM");
    job.wait().unwrap();
    held.expect_all_gone();
}

#[test]
fn a_loaded_host_starts_nothing_more() {
    let daemon = Daemon::start(&["--bind", HERE, "--max-load", "0.000001"]);
    let load = || std::fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap().parse::<f64>().unwrap();
    if load() == 0.0 {
        println!("SKIP: nothing runs on this host");
        return;
    }
    let refused = daemon.run(&["--hosts", HERE, &daemon.scratch.text("programs/show")]);
    assert_eq!(refused.status.code(), Some(8), "{}", err(&refused));
    assert!(err(&refused).contains("and its daemon starts nodes up to 0.000001"), "{}", err(&refused));
}
