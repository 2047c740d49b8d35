//! `comem run` on several hosts by a remote shell, with a script in place of ssh.

mod common;

use common::{Gate, Held, PATIENCE, Scratch, err, exists, finish, json, out, signal, sorted, wait};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A remote shell for the hosts alpha, beta and gamma, all of them this one; others cannot be reached.
const RSH: &str = "#!/bin/sh
host=$1; shift
case $host in
alpha|beta|gamma) ;;
*) echo \"ssh: Could not resolve hostname $host\" >&2; exit 255;;
esac
export FAKE_HOST=$host
unset COMEM_HOSTS
echo 'Welcome to '$host
cd /
exec sh -c \"$*\"
";

/// The command with the remote shell in place.
fn command(scratch: &Scratch, args: &[&str]) -> Command {
    let rsh = if exists(&scratch.path("rsh")) { scratch.text("rsh") } else { scratch.script("rsh", RSH) };
    let mut command = scratch.comem();
    command.env("COMEM_RSH", rsh).args(["run", "--remote-comem", common::bin()]).args(args);
    command
}

fn run(scratch: &Scratch, args: &[&str]) -> Output {
    finish(&mut command(scratch, args))
}

#[test]
fn nodes_run_on_their_hosts_in_the_same_directory() {
    let scratch = Scratch::new();
    let show = "echo $COMEM_NODE $FAKE_HOST here=$COMEM_HOST_NODES auth=$COMEM_AUTH $(pwd)";
    let output = run(&scratch, &["--hosts", "alpha:2,beta", "--no-prefix", "sh", "-c", show]);
    let cwd = scratch.0.display();
    let wanted = [
        format!("0 alpha here=2 auth=on {cwd}"),
        format!("1 alpha here=2 auth=on {cwd}"),
        format!("2 beta here=1 auth=on {cwd}"),
    ];
    assert_eq!(sorted(&out(&output)), wanted, "{}", err(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_script_for_gdb_lies_on_the_host_of_every_node() {
    let scratch = Scratch::new();
    let name = format!("comem-{}.gdb", env!("CARGO_PKG_VERSION"));
    // The node's own host keeps such files elsewhere than the launcher's.
    scratch.script("rsh", &RSH.replace("cd /\n", "export COMEM_RUNTIME_DIR=$COMEM_RUNTIME_DIR/there\ncd /\n"));
    let output = run(&scratch, &["--hosts", "alpha", "true"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let script = std::fs::read_to_string(scratch.path("run/there").join(name)).unwrap();
    assert!(script.contains("nostop noprint pass"), "{script}");
}

#[test]
fn named_variables_travel_and_others_do_not() {
    let scratch = Scratch::new();
    let args = ["--hosts", "alpha", "--env", "SEA_DATA", "--env", "MODE=deep", "sh", "-c", "echo $SEA_DATA $MODE"];
    let output = finish(command(&scratch, &args).env("SEA_DATA", "warm water"));
    assert_eq!(out(&output), "[0] warm water deep\n", "{}", err(&output));
}

#[test]
fn both_streams_and_large_output_arrive_whole() {
    let scratch = Scratch::new();
    let output = run(&scratch, &["--hosts", "alpha,beta", "sh", "-c", "seq 30000; echo done >&2"]);
    let text = out(&output);
    for node in 0..2 {
        let prefix = format!("[{node}] ");
        let numbers: Vec<usize> = text.lines().filter_map(|l| l.strip_prefix(&prefix)?.parse().ok()).collect();
        assert_eq!(numbers, (1..=30000).collect::<Vec<_>>(), "node {node}");
    }
    assert_eq!(sorted(&err(&output)), ["[0] done", "[1] done"]);
}

#[test]
fn standard_input_reaches_node_zero_elsewhere() {
    let scratch = Scratch::new();
    let mut command = command(&scratch, &["--hosts", "alpha,beta", "wc", "-c"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&vec![b'x'; 3_000_000]).unwrap());
    let output = wait(child);
    writer.join().unwrap();
    assert_eq!(sorted(&out(&output)), ["[0] 3000000", "[1] 0"]);
}

#[test]
fn node_zeros_address_crosses_hosts() {
    let scratch = Scratch::new();
    let body = "read -r job <&$COMEM_CONTROL_FD
        case $COMEM_NODE in
        0) echo '{\"type\":\"address\",\"node\":0,\"addr\":\"10.0.0.7:4711\"}' >&$COMEM_CONTROL_FD;;
        *) read -r zero <&$COMEM_CONTROL_FD; echo \"$zero\";;
        esac";
    let output = run(&scratch, &["--hosts", "alpha,beta,gamma", "--no-prefix", "bash", "-c", body]);
    let line = "{\"type\":\"zero\",\"addr\":\"10.0.0.7:4711\"}";
    assert_eq!(sorted(&out(&output)), [line, line], "{}", err(&output));
}

#[test]
fn a_node_zero_that_others_cannot_reach_is_an_error() {
    let scratch = Scratch::new();
    let body =
        "echo '{\"type\":\"address\",\"node\":0,\"addr\":\"127.0.0.1:4711\"}' >&$COMEM_CONTROL_FD; exec sleep 1000";
    let output = run(&scratch, &["--hosts", "alpha,beta", "bash", "-c", body]);
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains("choose another network with --iface"), "{}", err(&output));
}

#[test]
fn a_status_crosses_hosts_and_ends_the_others() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    let body = format!("exec 9>{fifo}; echo ready >&9; test $COMEM_NODE != 1 || exit 6; sleep 1000 & wait");
    let stats = scratch.text("stats.json");
    let mut command = command(&scratch, &["--hosts", "alpha,beta", "--stats", &stats, "sh", "-c", &body]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let held = Held::open(&fifo);
    let output = wait(child);
    held.expect_all_gone();
    assert_eq!(output.status.code(), Some(6));
    assert!(err(&output).starts_with("comem: node 1 (host beta, pid "), "{}", err(&output));
    let file = json(&scratch.path("stats.json"));
    assert_eq!((&file["hosts"][1]["name"], &file["nodes"][1]["status"]), (&"beta".into(), &6.into()));
    assert!(file["hosts"][1]["cores"].as_u64().unwrap() > 0);
}

#[test]
fn an_unreachable_host_is_named_with_what_to_try() {
    let scratch = Scratch::new();
    let output = run(&scratch, &["--hosts", "alpha,nowhere", "sleep", "1000"]);
    let text = err(&output);
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(text.contains("host nowhere") && text.contains("Could not resolve hostname nowhere"), "{text}");
    assert!(text.contains("works without a question"), "{text}");
}

#[test]
fn a_host_without_comem_is_told_from_an_unreachable_one() {
    let scratch = Scratch::new();
    scratch.script("rsh", RSH);
    let mut command = scratch.comem();
    command.env("COMEM_RSH", scratch.text("rsh"));
    let output = finish(command.args(["run", "--hosts", "alpha", "--remote-comem", "/no/such/comem", "true"]));
    assert_eq!(output.status.code(), Some(7));
    assert!(err(&output).contains("--remote-comem"), "{}", err(&output));
}

#[test]
fn another_version_is_refused() {
    let scratch = Scratch::new();
    // A banner, and one frame: length 3 + payload, kind 1 (hello), node 0, the host as JSON.
    let hello = r#"{"name":"x","kernel":"k","cores":1,"memory_mib":1,"version":"9.9.9"}"#;
    let length = 3 + hello.len();
    let body = format!(
        "#!/bin/sh\nprintf '\\ncomem-agent 1\\n\\000\\000\\000\\{length:o}\\001\\000\\000'\n\
         printf '%s' '{hello}'\ncat >/dev/null\n"
    );
    let old = scratch.script("old", &body);
    scratch.script("rsh", RSH);
    let mut command = scratch.comem();
    command.env("COMEM_RSH", scratch.text("rsh"));
    let output = finish(command.args(["run", "--hosts", "alpha", "--remote-comem", &old, "true"]));
    assert_eq!(output.status.code(), Some(8), "{}", err(&output));
    assert!(err(&output).contains("host alpha has Comem 9.9.9"), "{}", err(&output));
}

#[test]
fn what_is_missing_over_there_is_named() {
    let scratch = Scratch::new();
    let output = run(&scratch, &["--hosts", "alpha", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(3));
    let text = err(&output);
    assert!(text.contains("host alpha") && text.contains("/no/such/program"), "{text}");
}

#[test]
fn ctrl_c_and_a_killed_launcher_end_nodes_elsewhere() {
    for kill in [false, true] {
        let scratch = Scratch::new();
        let fifo = scratch.fifo("held");
        let body = format!("exec 9>{fifo}; sleep 1000 & echo ready >&9; wait");
        let mut command = command(&scratch, &["--hosts", "alpha:2,beta", "sh", "-c", &body]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let held = Held::open(&fifo);
        held.expect_lines(3);
        if kill {
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            signal(child.id(), "INT");
            assert_eq!(wait(child).status.code(), Some(130));
        }
        held.expect_all_gone();
    }
}

#[test]
fn a_lost_connection_ends_the_job_on_both_sides() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    // Each node names the process above it, its agent.
    let body = format!("exec 9>{fifo}; sleep 1000 & echo $COMEM_NODE $PPID >&9; wait");
    let mut command = command(&scratch, &["--hosts", "alpha,beta", "sh", "-c", &body]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let held = Held::open(&fifo);
    let lines = held.expect_lines(2);
    let agent: u32 = lines.iter().find_map(|l| l.strip_prefix("1 ")).unwrap().parse().unwrap();
    signal(agent, "KILL");
    let output = wait(child);
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    assert!(err(&output).contains("host beta: the connection to its agent ended"), "{}", err(&output));
    held.expect_all_gone();
}

/// As when its host has vanished: nothing comes any more, and nothing says so.
#[test]
fn a_launcher_that_is_silent_for_long_is_given_up() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    let body = format!("exec 9>{fifo}; sleep 1000 & while sleep 0.5; do echo tick >&9; done");
    let args = ["--node-timeout", "200ms", "--hosts", "alpha", "-n", "1", "sh", "-c", &body];
    let mut child = command(&scratch, &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let held = Held::open(&fifo);
    // Twelve times as long as a node may be silent, and the launcher has nothing to say.
    held.expect_lines(7);
    signal(child.id(), "STOP");
    held.expect_all_gone();
    signal(child.id(), "CONT");
    assert_ne!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_program_can_be_copied_first_and_leaves_nothing() {
    let scratch = Scratch::new();
    let program = scratch.script("prog", "#!/bin/sh\necho $0 $COMEM_PROGRAM\n# 1\n");
    let tmp = scratch.path("tmp");
    std::fs::create_dir(&tmp).unwrap();
    let output =
        finish(command(&scratch, &["--hosts", "alpha", "--stage", "--no-prefix", &program]).env("TMPDIR", &tmp));
    let text = out(&output);
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words.len(), 2, "{text}{}", err(&output));
    assert!(words[0].starts_with(tmp.to_str().unwrap()) && words[0].ends_with("/prog"), "{text}");
    assert_eq!(words[0], words[1]);
    assert_eq!(std::fs::read_dir(&tmp).unwrap().count(), 0, "the copy is removed");
    let script =
        finish(command(&scratch, &["--hosts", "alpha", "--stage", "--no-prefix", "sh", "prog"]).env("TMPDIR", &tmp));
    assert!(out(&script).starts_with(tmp.to_str().unwrap()), "{}{}", out(&script), err(&script));
}

#[test]
fn a_large_program_is_copied_whole() {
    let scratch = Scratch::new();
    // Larger than any pipe, so that it goes in many pieces.
    let body = format!("#!/bin/sh\nwc -c < $0\nexit 0\n{}", "#".repeat(5_000_000));
    let program = scratch.script("prog", &body);
    let output = run(&scratch, &["--hosts", "alpha,beta", "--stage", "--no-prefix", &program]);
    assert_eq!(out(&output), format!("{0}\n{0}\n", body.len()), "{}", err(&output));
}

#[test]
fn nodes_that_are_there_begin_when_the_program_has_been_copied_to_the_others() {
    let scratch = Scratch::new();
    let (begun, copied) = (scratch.fifo("begun"), scratch.text("copied"));
    // A slow line: only after node 0 has been started does anything arrive on the other host.
    let slow = format!("read -r line <{begun}; sleep 0.3; touch {copied}\ncd /\n");
    scratch.script("rsh", &RSH.replace("cd /\n", &slow));
    let body = format!(
        "#!/bin/bash\ntest $COMEM_NODE != 0 || echo >{begun}; read -r job <&$COMEM_CONTROL_FD; test -e {copied} && \
         echo $COMEM_NODE\n"
    );
    let program = scratch.script("prog", &body);
    let output = run(&scratch, &["--hosts", "localhost,alpha", "--stage", "--no-prefix", &program]);
    assert_eq!(sorted(&out(&output)), ["0", "1"], "{}", err(&output));
}

/// A job that writes more than anybody reads: node 0 says its pid in the pipe `held` and writes without end.
fn clogged(scratch: &Scratch, hosts: &str, others: &str) -> (Child, ChildStdout) {
    let body = format!("test $COMEM_NODE = 0 || {{ {others}; }}; exec 9>held; echo $$ >&9; exec yes");
    let held = scratch.fifo("held");
    let mut command = command(scratch, &["--timeout", "30s", "--hosts", hosts, "bash", "-c", &body]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let unread = child.stdout.take().unwrap();
    let pid = Held::open(&held).next().unwrap();
    let written = || std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let (began, mut seen, mut same) = (Instant::now(), written(), 0);
    // That a writer waits is no event. A look too few makes the test easier, and never wrong.
    while same < 20 {
        assert!(began.elapsed() < PATIENCE, "the node writes on although nobody reads");
        std::thread::sleep(Duration::from_millis(10));
        let now = written();
        same = if now == seen { same + 1 } else { 0 };
        seen = now;
    }
    (child, unread)
}

#[test]
fn what_happens_elsewhere_is_seen_although_nobody_reads_the_output() {
    let scratch = Scratch::new();
    let mut gate = Gate::new(&scratch.fifo("gate"));
    let (mut child, unread) = clogged(&scratch, "alpha,beta", "read -r go <gate; exit 7");
    let mut said = BufReader::new(child.stderr.take().unwrap());
    gate.open(1);
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("comem: node 1 (host beta, pid ") && line.ends_with("ended with status 7\n"), "{line}");
    drop(unread);
    assert_eq!(wait(child).status.code(), Some(7));
}

#[test]
fn hosts_say_that_their_nodes_have_ended_although_nobody_reads_the_output() {
    let scratch = Scratch::new();
    let (child, unread) = clogged(&scratch, "alpha", "exit");
    signal(child.id(), "INT");
    let output = wait(child);
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(err(&output), "comem: ending all nodes after signal 2 (SIGINT)\n");
    drop(unread);
}
