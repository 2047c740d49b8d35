//! `comem jobs`, `comem kill`, `comem top` and other watchers, with scripts in place of nodes.

mod common;

use common::{Held, Scratch, bin, err, finish, json, out, signal, wait};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;

/// A node that joins, answers who asks for its counters, and counts these answers. It ends when it is told to stop, or
/// after so many answers as its argument says.
const NODE: &str = r#"#!/bin/bash
say() { echo "$1" >&$COMEM_CONTROL_FD; }
# A number that the control channel does not have.
exec {held}>held
say '{"type":"started"}'
echo ready >&$held
n=0
pad=$(printf '%*s' ${PAD:-1} '')
while read -r line <&$COMEM_CONTROL_FD; do case $line in
*'"sample"'*) n=$((n+1))
    say '{"type":"sample","sample":{"wall_s":2.0,"threads":1,"messages_sent":'$((n*100+COMEM_NODE))',
"time_us":{"compute":1500000,"barrier":500000},"pages":{"read_faults":'$((n*7))'},
"regions":[{"label":"grid'"$pad"'","address":"0x10","bytes":8192,"engine":"hlrc","faults":'$((n*7))'}]}}'
    if [ "$n" = "$1" ]; then say '{"type":"finished"}'; exit 0; fi;;
*'"stop"'*) say '{"type":"stats","stats":{"samples":'$n'}}'; exit 5;;
esac; done
"#;

/// A running job.
struct Job {
    scratch: Scratch,
    launcher: Child,
    /// Its nodes hold this open.
    held: Held,
}

impl Job {
    fn start(args: &[&str], node_args: &[&str]) -> Job {
        Job::start_with(args, node_args, "1")
    }

    fn start_with(args: &[&str], node_args: &[&str], pad: &str) -> Job {
        let scratch = Scratch::new();
        // Control lines are lines.
        let node = scratch.script("node", &NODE.replace(",\n\"", ",\""));
        let fifo = scratch.fifo("held");
        let mut command = scratch.comem();
        command.env("PAD", pad).arg("run").args(args).arg(node).args(node_args);
        let launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let job = Job { scratch, launcher, held: Held::open(&fifo) };
        let nodes = args.iter().position(|arg| *arg == "-n").map_or(1, |at| args[at + 1].parse().unwrap());
        assert_eq!(job.held.expect_lines(nodes), vec!["ready"; nodes]);
        job
    }

    fn pid(&self) -> u32 {
        self.launcher.id()
    }

    fn ask(&self, args: &[&str]) -> Output {
        finish(self.scratch.comem().args(args))
    }

    fn listed(&self) -> Vec<Value> {
        let output = self.ask(&["jobs", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        serde_json::from_str::<Value>(&out(&output)).unwrap().as_array().unwrap().clone()
    }

    /// The files of running jobs.
    fn files(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.scratch.path("run/jobs")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| !path.to_str().unwrap().ends_with(".ended")).collect()
    }

    fn connect(&self) -> Watcher {
        let socket = self.files().into_iter().find(|path| path.extension().is_some_and(|ending| ending == "sock"));
        let stream = UnixStream::connect(socket.expect("the launcher listens")).unwrap();
        stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        Watcher { stream, lines }
    }

    /// Ends when the nodes are gone.
    fn end(self) -> (Output, Scratch) {
        self.held.expect_all_gone();
        (wait(self.launcher), self.scratch)
    }
}

/// Whoever has connected to a launcher by hand.
struct Watcher {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Watcher {
    fn say(&mut self, message: &Value) {
        self.stream.write_all((message.to_string() + "\n").as_bytes()).unwrap();
    }

    /// The next that the launcher says, of this type.
    fn next(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).unwrap();
            let said: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line:?}: {e}"));
            if said["type"] == kind {
                return said;
            }
        }
    }

    fn end_comes(&mut self) -> bool {
        let mut line = String::new();
        matches!(self.lines.read_line(&mut line), Ok(0) | Err(_))
    }
}

#[test]
fn a_job_is_shown_while_it_runs_and_is_ended_by_its_name() {
    let job = Job::start(&["-n", "2", "-t", "3", "--name", "first try"], &["0", "a\u{1b}[31m"]);
    let pid = job.pid().to_string();
    let listed = job.listed();
    assert_eq!(listed.len(), 1);
    let one = &listed[0];
    assert_eq!((&one["name"], &one["number"], &one["threads"]), (&json!("first try"), &json!(job.pid()), &json!(3)));
    assert_eq!((&one["state"], &one["version"]), (&json!("running"), &json!(1)));
    assert_eq!(one["hosts"].as_array().unwrap().len(), 2);
    assert_eq!(one["command"][2], "a\u{1b}[31m");
    let table = out(&job.ask(&["jobs"]));
    assert!(table.lines().count() == 2 && table.contains(&pid) && table.contains("first try"), "{table}");
    assert!(table.contains("a\\u{1b}[31m"), "nothing steers the terminal: {table:?}");
    let killed = job.ask(&["kill", "first"]);
    let text = out(&killed);
    assert_eq!((killed.status.code(), err(&killed).as_str()), (Some(0), ""));
    let name = format!("comem: job {pid} (first try, 2 nodes on 1 host)");
    assert!(text.starts_with(&format!("{name} has been ended after ")) && text.ends_with("status 130\n"), "{text}");
    assert_eq!((job.listed(), job.files()), (vec![], vec![]));
    assert_eq!(out(&job.ask(&["jobs"])), "comem: no job of this user runs on this host\n");
    // A second time is no error, and says what it was.
    for wanted in [&pid, "first try"] {
        let again = job.ask(&["kill", wanted]);
        assert_eq!((again.status.code(), err(&again).as_str()), (Some(0), ""));
        assert!(out(&again).starts_with(&format!("{name} had ended before, ")), "{}", out(&again));
    }
    let (output, _scratch) = job.end();
    assert_eq!(output.status.code(), Some(130), "as after Ctrl-C");
    assert!(err(&output).contains("comem: ending all nodes as comem kill asks\n"), "{}", err(&output));
}

#[test]
fn what_names_no_job_or_several_ends_none() {
    let job = Job::start(&["--name", "sor1"], &[]);
    let other = finish(job.scratch.comem().args(["run", "--name", "4711", "true"]));
    assert_eq!(other.status.code(), Some(2), "{}", err(&other));
    let node = job.scratch.text("node");
    let mut second = job.scratch.comem();
    second.args(["run", "--name", "sor2", &node]).stdout(Stdio::null()).stderr(Stdio::null());
    let second = second.spawn().unwrap();
    assert_eq!(job.held.expect_lines(1), ["ready"]);
    for (wanted, why) in [("water", "no job water runs here; see `comem jobs`"), ("sor", "sor may be any of 2 jobs: ")]
    {
        // The first is a job: it is not ended where the second is none.
        let output = job.ask(&["kill", "sor1", wanted]);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""));
        assert!(err(&output).contains(why), "{}", err(&output));
    }
    assert_eq!(job.listed().len(), 2);
    let output = job.ask(&["kill", "sor2", "sor1", "sor1"]);
    assert_eq!((output.status.code(), out(&output).lines().count()), (Some(0), 2), "{}", err(&output));
    assert_eq!(wait(second).status.code(), Some(130));
    assert_eq!(job.end().0.status.code(), Some(130));
}

#[test]
fn two_that_end_one_job_at_once_both_succeed() {
    let job = Job::start(&["-n", "2", "--name", "twice"], &[]);
    let kill = || job.scratch.comem().args(["kill", "twice"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let both = [kill().unwrap(), kill().unwrap()].map(wait);
    for output in &both {
        assert_eq!((output.status.code(), err(output).as_str()), (Some(0), ""));
        assert!(out(output).starts_with("comem: job "), "{}", out(output));
    }
    assert_eq!(job.end().0.status.code(), Some(130));
}

#[test]
fn what_a_killed_launcher_has_left_is_taken_away() {
    let mut job = Job::start(&["--name", "lost"], &[]);
    assert_eq!(job.files().len(), 2);
    job.launcher.kill().unwrap();
    job.launcher.wait().unwrap();
    assert_eq!(job.files().len(), 2, "nobody was there to do it");
    assert_eq!((job.listed(), job.files()), (vec![], vec![]));
    assert_eq!(job.ask(&["kill", "lost"]).status.code(), Some(2));
    job.held.expect_all_gone();
}

#[test]
fn a_stopped_job_is_shown_as_such_and_ended_all_the_same() {
    let job = Job::start(&["--name", "asleep"], &[]);
    signal(job.pid(), "STOP");
    assert_eq!(job.listed()[0]["state"], "stopped");
    let killed = job.ask(&["kill", "asleep"]);
    assert_eq!(killed.status.code(), Some(0), "{}", err(&killed));
    assert_eq!(job.end().0.status.code(), Some(130));
}

#[test]
fn nodes_are_asked_exactly_as_often_as_somebody_wants_to_know() {
    let samples = |wanted: u64| {
        let job = Job::start(&["-n", "2", "--stats", "run.json", "--name", "counted"], &[]);
        assert_eq!(job.listed().len(), 1, "who lists jobs asks no node");
        if wanted > 0 {
            let mut watcher = job.connect();
            assert_eq!(watcher.next("hello")["version"], 1);
            watcher.say(&json!({"type": "watch", "every_ms": 50, "count": wanted}));
            for number in 1..=wanted {
                let sample = watcher.next("sample");
                assert_eq!((&sample["number"], &sample["state"]), (&json!(number), &json!("running")));
                let counted: Vec<u64> =
                    (0..2).map(|n| sample["nodes"][n]["counters"]["messages_sent"].as_u64().unwrap()).collect();
                assert_eq!(counted, [100 * number, 100 * number + 1]);
            }
        }
        assert_eq!(job.ask(&["kill", "counted"]).status.code(), Some(0));
        let (_, scratch) = job.end();
        json(&scratch.path("run.json"))["totals"]["samples"].as_u64().unwrap()
    };
    assert_eq!([0, 1, 3].map(samples), [0, 2, 6], "two nodes, each asked once for a sample");
}

#[test]
fn a_watcher_that_does_not_read_keeps_neither_the_job_nor_others_waiting() {
    // More than a socket holds.
    let job = Job::start_with(&["-n", "2"], &["12"], "200000");
    let mut stalled = job.connect();
    stalled.say(&json!({"type": "watch", "every_ms": 50}));
    let mut rude = job.connect();
    rude.stream.write_all(&[b'x'; 8192]).unwrap();
    assert!(rude.lines.read_line(&mut String::new()).unwrap() > 0 && rude.end_comes(), "no line is so long");
    let mut garbled = job.connect();
    garbled.stream.write_all(b"{]\n").unwrap();
    garbled.next("hello");
    assert!(garbled.end_comes());
    let mut watcher = job.connect();
    watcher.say(&json!({"type": "watch", "every_ms": 50}));
    let mut seen = 0;
    let mut last = 0;
    // The node ends after so many answers; the stalled one may have caused some of them.
    while last < 1100 {
        let sample = watcher.next("sample");
        seen += 1;
        last = sample["nodes"][0]["counters"]["messages_sent"].as_u64().unwrap_or(0);
    }
    assert!(seen >= 8, "{seen}");
    assert_eq!(watcher.next("ended")["status"], 0, "the job ends while it is watched");
    assert!(watcher.end_comes());
    assert_eq!(job.end().0.status.code(), Some(0));
}

/// Needs root, to be two users.
#[test]
fn a_job_of_another_user_is_neither_seen_nor_ended() {
    const NOBODY: u32 = 65534;
    let job = Job::start(&["--name", "mine"], &[]);
    let as_nobody = |args: &[&str], directory: &str| {
        let mut command = job.scratch.comem();
        command.args(args).env("COMEM_RUNTIME_DIR", directory).current_dir("/").uid(NOBODY).gid(NOBODY);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map(wait)
    };
    // SAFETY: the call takes nothing and touches no memory.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root || as_nobody(&["--version"], "").is_err() {
        println!("SKIP: only root can be another user, for whom {} can be run", bin());
    } else {
        let own = format!("/tmp/comem-test-nobody-{}", std::process::id());
        let listed = as_nobody(&["jobs"], &own).unwrap();
        assert_eq!(out(&listed), "comem: no job of this user runs on this host\n", "{}", err(&listed));
        let pid = job.pid().to_string();
        assert_eq!(as_nobody(&["kill", &pid], &own).unwrap().status.code(), Some(2));
        let theirs = job.scratch.text("run");
        for args in [&["jobs"][..], &["kill", &pid]] {
            let refused = as_nobody(args, &theirs).unwrap();
            assert_eq!((refused.status.code(), out(&refused).as_str()), (Some(3), ""), "{}", err(&refused));
        }
        // Root gets past the directory's mode, but not past the launcher.
        let mut command = job.scratch.comem();
        std::os::unix::fs::chown(job.scratch.path("run"), Some(NOBODY), Some(NOBODY)).unwrap();
        assert_eq!(finish(command.arg("jobs")).status.code(), Some(3));
        std::os::unix::fs::chown(job.scratch.path("run"), Some(0), Some(0)).unwrap();
        let mut started = job.scratch.comem();
        started.args(["run", "sleep", "1000"]).env("COMEM_RUNTIME_DIR", &own).current_dir("/").uid(NOBODY).gid(NOBODY);
        let mut theirs = started.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let socket = loop {
            let files = std::fs::read_dir(format!("{own}/jobs")).into_iter().flatten().flatten();
            let mut paths = files.map(|entry| entry.path()).collect::<Vec<_>>();
            if paths.iter().any(|path| path.extension().is_some_and(|ending| ending == "job")) {
                paths.retain(|path| path.extension().is_some_and(|ending| ending == "sock"));
                break paths.remove(0);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        let stream = UnixStream::connect(socket).unwrap();
        let mut root = Watcher { lines: BufReader::new(stream.try_clone().unwrap()), stream };
        let _ = root.stream.write_all(b"{\"type\":\"kill\"}\n");
        assert!(root.end_comes(), "it is not even greeted");
        assert!(theirs.try_wait().unwrap().is_none(), "it goes on");
        signal(theirs.id(), "TERM");
        theirs.wait().unwrap();
        std::fs::remove_dir_all(&own).unwrap();
    }
    assert_eq!(job.ask(&["kill", "mine"]).status.code(), Some(0));
    assert_eq!(job.end().0.status.code(), Some(130));
}

#[test]
fn where_no_terminal_is_top_shows_one_sample_as_text_or_as_json() {
    let job = Job::start(&["-n", "2", "--name", "seen"], &[]);
    let text = out(&job.ask(&["top"]));
    assert!(
        text.starts_with(&format!("job {} (seen): 2 nodes on 1 host, 1 thread each, engine ", job.pid())),
        "{text}"
    );
    let words = |start: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(start));
        line.unwrap_or_else(|| panic!("{text}")).split_whitespace().map(str::to_string).collect()
    };
    let row = words("1");
    assert_eq!(row[3..10], ["running", "75%", "0%", "0%", "25%", "0%", "0%"]);
    assert_eq!((row[10].as_str(), row[12].as_str()), ("7", "101"));
    assert_eq!(words("all")[9], "201", "{text}");
    assert_eq!(words("grid")[..4], ["grid", "hlrc", "8.0", "KiB"]);
    let told: Value = serde_json::from_str(&out(&job.ask(&["top", "se", "--json"]))).unwrap();
    assert_eq!((&told["version"], &told["job"]["name"]), (&json!(1), &json!("seen")));
    // The second time that the nodes were asked.
    assert_eq!(told["sample"]["nodes"][1]["counters"]["messages_sent"], 201);
    for wrong in [&["top", "other"][..], &["top", "other", "--json"]] {
        assert_eq!(job.ask(wrong).status.code(), Some(2));
    }
    signal(job.pid(), "STOP");
    let silent = job.ask(&["top", "--once"]);
    assert_eq!((silent.status.code(), out(&silent).as_str()), (Some(7), ""));
    assert!(err(&silent).contains("kill -CONT"), "{}", err(&silent));
    signal(job.pid(), "CONT");
    assert_eq!(job.ask(&["kill", "seen"]).status.code(), Some(0));
    let scratch = job.end().1;
    let nothing = finish(scratch.comem().arg("top"));
    assert_eq!(nothing.status.code(), Some(2));
    assert!(err(&nothing).contains("no job of this user runs"), "{}", err(&nothing));
}

/// A terminal, with somebody before it.
struct Terminal {
    keys: File,
    shown: mpsc::Receiver<Vec<u8>>,
    text: String,
    device: OwnedFd,
}

impl Terminal {
    fn new() -> Terminal {
        let (mut near, mut far) = (0, 0);
        let size = libc::winsize { ws_row: 40, ws_col: 160, ws_xpixel: 0, ws_ypixel: 0 };
        let (name, settings) = (std::ptr::null_mut(), std::ptr::null());
        // SAFETY: both numbers and the size are ours and outlive the call; no name and no settings are given.
        let opened = unsafe { libc::openpty(&raw mut near, &raw mut far, name, settings, &raw const size) };
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the system has just made both descriptors for us alone.
        let (near, device) = unsafe { (File::from_raw_fd(near), OwnedFd::from_raw_fd(far)) };
        let (sender, shown) = mpsc::channel();
        let mut reader = near.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                let _ = sender.send(bytes[..count].to_vec());
            }
        });
        Terminal { keys: near, shown, text: String::new(), device }
    }

    fn start(&self, command: &mut Command) -> Child {
        let end = || Stdio::from(self.device.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm").spawn().unwrap()
    }

    fn hit(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until something is shown, and forgets what came before it.
    fn expect(&mut self, part: &str) {
        loop {
            if let Some(at) = self.text.find(part) {
                self.text.drain(..at + part.len());
                return;
            }
            let bytes = self.shown.recv_timeout(common::PATIENCE);
            let bytes = bytes.unwrap_or_else(|_| panic!("no {part:?} in {:?}", self.text));
            self.text.push_str(&String::from_utf8_lossy(&bytes));
        }
    }

    /// Whether the terminal shows what is typed, and hands on whole lines, as it does for a shell.
    fn is_as_before(&self) -> bool {
        // SAFETY: all zeros are a value of this plain type.
        let mut found: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: the record is ours and outlives the call.
        assert_eq!(unsafe { libc::tcgetattr(self.device.as_raw_fd(), &raw mut found) }, 0);
        found.c_lflag & (libc::ICANON | libc::ECHO) == libc::ICANON | libc::ECHO
    }
}

#[test]
fn on_a_terminal_top_draws_again_and_again_and_obeys_keys() {
    let job = Job::start(&["-n", "2", "--name", "drawn"], &[]);
    let mut terminal = Terminal::new();
    let mut top = terminal.start(job.scratch.comem().args(["top", "drawn"]));
    for _ in 0..3 {
        terminal.expect("MESSAGES/s");
    }
    assert!(!terminal.is_as_before(), "keys come one by one");
    terminal.hit("w");
    terminal.expect("w: hide who waits for what");
    terminal.hit("k");
    terminal.expect("end the job? y: yes; any other key: no");
    terminal.hit("n");
    terminal.expect("q: quit");
    terminal.hit("q");
    terminal.expect("\u{1b}[?1049l");
    terminal.expect("(drawn, 2 nodes on 1 host) goes on");
    assert_eq!((top.wait().unwrap().code(), terminal.is_as_before()), (Some(0), true));
    assert_eq!(job.listed().len(), 1, "it was not ended");
    let mut top = terminal.start(job.scratch.comem().arg("top"));
    terminal.expect("MESSAGES");
    terminal.hit("k");
    terminal.expect("end the job?");
    terminal.hit("y");
    terminal.expect("(drawn, 2 nodes on 1 host) has ended, with status 130");
    assert_eq!((top.wait().unwrap().code(), terminal.is_as_before()), (Some(0), true));
    assert_eq!(job.end().0.status.code(), Some(130));
}

#[test]
fn progress_is_a_line_below_the_output_that_goes_at_the_end() {
    let scratch = Scratch::new();
    let node = scratch.script("node", &NODE.replace(",\n\"", ",\"").replace("n=0", "n=0; echo hello"));
    let fifo = scratch.fifo("held");
    let mut terminal = Terminal::new();
    let args = ["run", "-n", "2", "--name", "shown", "--progress", &node, "2"];
    let mut run = terminal.start(scratch.comem().args(args));
    let held = Held::open(&fifo);
    terminal.expect("hello");
    terminal.expect("comem: shown, 2 nodes, running for ");
    terminal.expect("75% computing, 25% waiting; ");
    terminal.expect("\r\u{1b}[K");
    held.expect_all_gone();
    assert_eq!(run.wait().unwrap().code(), Some(0));
    // Elsewhere than on a terminal there is none, and nobody is asked for it.
    let mut run = scratch.comem();
    run.args(["run", "--progress", "--stats", "run.json", &node]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = run.spawn().unwrap();
    assert_eq!(Held::open(&fifo).expect_lines(1), ["ready"]);
    assert_eq!(finish(scratch.comem().args(["kill", "node"])).status.code(), Some(0));
    let output = wait(run);
    assert_eq!((out(&output).as_str(), output.status.code()), ("[0] hello\n", Some(130)));
    assert!(!err(&output).contains("running for"), "{}", err(&output));
    assert_eq!(json(&scratch.path("run.json"))["totals"]["samples"], 0);
}

#[test]
fn a_start_that_takes_long_is_told_on_a_terminal() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("gate");
    // Node 1 calls Comem late.
    let body = "#!/bin/bash\n[ $COMEM_NODE = 0 ] || read line < gate\n\
                echo '{\"type\":\"joining\"}' >&$COMEM_CONTROL_FD\n[ $COMEM_NODE = 0 ] && read line < gate\n\
                echo '{\"type\":\"started\"}' >&$COMEM_CONTROL_FD\n\
                echo '{\"type\":\"finished\"}' >&$COMEM_CONTROL_FD\n";
    let node = scratch.script("late", body);
    let mut gate = common::Gate::new(&fifo);
    let mut terminal = Terminal::new();
    let mut run = terminal.start(scratch.comem().args(["run", "-n", "2", &node]));
    terminal.expect("comem: late, starting for ");
    terminal.expect("of 2 nodes 2 run, 1 have called Comem, 0 have met");
    gate.open(2);
    terminal.expect("\r\u{1b}[K");
    assert_eq!(run.wait().unwrap().code(), Some(0));
}
