//! `comem run` amid what its caller gives it: processes that are not its nodes', ignored signals, outputs that take
//! nothing, a terminal.

mod common;

use common::{Gate, Held, PATIENCE, Scratch, bin, err, exists, finish, on_signals, out, signal, wait};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

/// A remote shell for the host alpha, which is this one, with something that it does before and after.
fn rsh(scratch: &Scratch, before: &str, after: &str) -> String {
    scratch.script("rsh", &format!("#!/bin/bash\nshift\n{before}\n(cd /; sh -c \"$*\")\n{after}\n"))
}

/// Runs a line of bash in which `$0` is the command.
fn bash(scratch: &Scratch, line: &str) -> Command {
    let mut command = scratch.command("bash");
    command.args(["-c", line, bin()]).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn who_reads_the_output_of_a_job_gets_its_last_lines_though_it_is_a_child_of_the_launcher() {
    let scratch = Scratch::new();
    let (held, gate) = (scratch.fifo("held"), scratch.fifo("gate"));
    let mut gate = Gate::new(&gate);
    let line = "\"$0\" run -n 1 --no-prefix seq 1000 > >(exec 9>held; read -r go <gate; cat >log; echo done >&9)";
    let child = bash(&scratch, line).spawn().unwrap();
    let held = Held::open(&held);
    assert_eq!(wait(child).status.code(), Some(0));
    gate.open(1);
    assert_eq!(held.next().as_deref(), Some("done"), "the reader was killed");
    assert_eq!(std::fs::read_to_string(scratch.path("log")).unwrap().lines().count(), 1000);
}

#[test]
fn processes_that_no_node_started_outlive_the_job() {
    let scratch = Scratch::new();
    let (held, gate) = (scratch.fifo("held"), scratch.fifo("gate"));
    let mut gate = Gate::new(&gate);
    let (begin, begun) = (scratch.fifo("begin"), scratch.fifo("begun"));
    // One that is there before the launcher, and its own child, which becomes the launcher's while the job runs.
    let stay = "exec 9>held; echo up >&9; echo up >begun; read -r go <gate; echo alive >&9";
    let line = format!(
        "( read -r go <{begin}; ( {stay} ) & {stay} ) & exec \"$0\" run sh -c 'echo go >{begin}; read -r x <{begun}; \
         read -r x <{begun}'"
    );
    let begun = Gate::new(&begun);
    let child = bash(&scratch, &line).spawn().unwrap();
    let held = Held::open(&held);
    assert_eq!(wait(child).status.code(), Some(0));
    gate.open(2);
    let said: Vec<String> = std::iter::from_fn(|| held.next()).collect();
    assert_eq!(said, ["up", "up", "alive", "alive"]);
    drop(begun);
}

#[test]
fn the_launcher_waits_for_the_end_of_other_hosts_although_its_own_nodes_have_ended() {
    let scratch = Scratch::new();
    let rsh = rsh(&scratch, "", "echo ended >ended");
    let args = ["run", "--remote-comem", bin(), "--hosts", "localhost,alpha", "true"];
    let output = finish(scratch.comem().env("COMEM_RSH", rsh).args(args));
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
    assert!(exists(&scratch.path("ended")), "the remote shell was killed");
}

/// As ssh does with `ControlPersist`.
#[test]
fn what_a_remote_shell_leaves_for_the_next_one_stays() {
    let scratch = Scratch::new();
    let (held, gate) = (scratch.fifo("held"), scratch.fifo("gate"));
    let mut gate = Gate::new(&gate);
    let begun = scratch.fifo("begun");
    let master = "exec 9>held; echo up >&9; echo up >begun; read -r go <gate; echo alive >&9";
    let rsh = rsh(&scratch, &format!("(setsid sh -c '{master}' </dev/null >/dev/null 2>&1 &); read -r x <begun"), "");
    let args = ["run", "--remote-comem", bin(), "--hosts", "localhost,alpha", "true"];
    let mut command = scratch.comem();
    command.env("COMEM_RSH", rsh).args(args).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Gate::new(&begun);
    let child = command.spawn().unwrap();
    let held = Held::open(&held);
    assert_eq!(wait(child).status.code(), Some(0));
    gate.open(1);
    assert_eq!(held.expect_lines(2), ["up", "alive"]);
    drop(begun);
}

#[test]
fn signals_that_are_ignored_from_the_start_stay_ignored() {
    const IGNORED: &[i32] = &[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT];
    for name in ["HUP", "INT", "QUIT"] {
        let scratch = Scratch::new();
        let (held, gate) = (scratch.fifo("held"), scratch.fifo("gate"));
        let mut gate = Gate::new(&gate);
        let mut command = scratch.comem();
        on_signals(&mut command, IGNORED, libc::SIG_IGN);
        command.args(["run", "-n", "2", "sh", "-c", "exec 9>held; echo ready >&9; read -r go <gate"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let held = Held::open(&held);
        held.expect_lines(2);
        signal(child.id(), name);
        gate.open(2);
        let output = wait(child);
        assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""), "{name}");
    }
}

#[test]
fn a_job_goes_well_though_the_caller_ignores_the_ends_of_its_children() {
    let scratch = Scratch::new();
    let mut command = scratch.comem();
    on_signals(&mut command, &[libc::SIGCHLD], libc::SIG_IGN);
    let output = finish(command.args(["run", "-n", "2", "sh", "-c", "echo $COMEM_NODE; exit $((COMEM_NODE * 3))"]));
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    assert!(err(&output).contains("ended with status 3"), "{}", err(&output));
}

/// A terminal that closes sends it, and its shell once more.
#[test]
fn a_signal_that_comes_twice_at_once_leaves_nodes_their_time() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    // A node that listens is told to stop before it gets SIGTERM.
    let body = "trap 'echo saved >saved; exit 0' TERM
        echo '{\"type\":\"started\"}' >&$COMEM_CONTROL_FD; exec 9>held; echo ready >&9; sleep 1000 & wait";
    for name in ["HUP", "TERM"] {
        let mut command = scratch.comem();
        command.args(["run", "bash", "-c", body]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let held = Held::open(&fifo);
        held.expect_lines(1);
        let mut said = BufReader::new(child.stderr.take().unwrap());
        signal(child.id(), name);
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains(&format!("(SIG{name})")), "{line}");
        signal(child.id(), name);
        wait(child);
        assert!(exists(&scratch.path("saved")), "{name}: the node was killed at once");
        std::fs::remove_file(scratch.path("saved")).unwrap();
    }
}

#[test]
fn an_output_that_takes_nothing_is_an_error_that_says_why() {
    let scratch = Scratch::new();
    for args in [&["-n", "2", "yes"][..], &["-n", "1", "echo", "hello"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = scratch.comem();
        command.arg("run").args(args).stdout(full).stderr(Stdio::piped());
        let output = wait(command.spawn().unwrap());
        let text = err(&output);
        assert_eq!(output.status.code(), Some(6), "{args:?}: {text}");
        assert!(text.starts_with("comem: cannot write standard output: No space left on device"), "{args:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    }
}

#[test]
fn a_program_that_is_still_being_written_is_said_to_be() {
    let scratch = Scratch::new();
    std::fs::copy("/bin/true", scratch.path("prog")).unwrap();
    let _writer = std::fs::OpenOptions::new().append(true).open(scratch.path("prog")).unwrap();
    let mut exec = scratch.comem();
    exec.envs([("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("PMI_JOBID", "7")]).args(["exec", "./prog"]);
    for output in [scratch.run(&["-n", "2", "./prog"]), finish(&mut exec)] {
        assert_eq!(output.status.code(), Some(3));
        let text = err(&output);
        assert!(text.contains("its file is open for writing") && text.contains("; start again when"), "{text}");
    }
}

#[test]
fn so_it_is_for_what_the_other_commands_print_and_who_reads_no_more_is_none() {
    let scratch = Scratch::new();
    let run = r#"{"schema": 1, "command": ["prog"], "wall_s": 1.0, "nodes": [{"node": 0, "time_us": {}}]}"#;
    std::fs::write(scratch.path("run.json"), run).unwrap();
    scratch.script("prog", "#!/bin/bash\necho '{\"type\":\"started\"}' >&$COMEM_CONTROL_FD\necho 7\n");
    let commands: &[&[&str]] = &[
        &["run", "--dry-run", "true"],
        &["report", "run.json"],
        &["report", "--csv", "run.json"],
        &["compare", "--repeat", "1", "--engines", "msi", "./prog"],
        &["doctor"],
        &["jobs"],
        &["jobs", "--json"],
        &["config", "--cflags"],
        &["--version"],
        &["--help"],
        &["run", "--help"],
    ];
    for args in commands {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = scratch.comem();
        let output = wait(command.args(*args).stdout(full).stderr(Stdio::piped()).spawn().unwrap());
        let said = err(&output);
        assert_eq!(output.status.code(), Some(6), "{args:?}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with("comem: cannot write standard output: No space left on device"), "{args:?}: {said}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = scratch.comem();
        let output = wait(command.args(*args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap());
        // 3: the doctor found something else.
        let right: &[i32] = if args[0] == "doctor" { &[0, 3] } else { &[0] };
        assert!(output.status.code().is_some_and(|status| right.contains(&status)), "{args:?}: {}", err(&output));
    }
}

/// Rust opens `/dev/null` in place of a closed output, where all of this would be lost with status 0.
#[test]
fn what_is_written_to_a_closed_output_is_an_error_and_nothing_to_write_is_none() {
    let scratch = Scratch::new();
    let run = r#"{"schema": 1, "command": ["prog"], "wall_s": 1.0, "nodes": [{"node": 0, "time_us": {}}]}"#;
    std::fs::write(scratch.path("run.json"), run).unwrap();
    let with_closed = |arguments: &str, closed: &str| {
        let mut command = bash(&scratch, &format!("exec \"$0\" {arguments} {closed}"));
        let output = wait(command.stderr(Stdio::piped()).spawn().unwrap());
        (output.status.code(), err(&output))
    };
    for arguments in ["run -n 2 echo hello", "run --dry-run true", "report run.json", "doctor", "--version", "--help"] {
        for closed in [">&-", "<&- >&-"] {
            let (status, said) = with_closed(arguments, closed);
            assert_eq!(status, Some(6), "{arguments} {closed}: {said}");
            let last = said.lines().last().unwrap_or_default();
            let words =
                ["comem: cannot write standard output: Bad file descriptor", "it is closed: send the output to"];
            assert!(words.iter().all(|words| last.contains(words)), "{arguments} {closed}: {said}");
        }
    }
    let (status, said) = with_closed("run --stats - echo hello", ">&-");
    assert_eq!(status, Some(6), "{said}");
    assert!(said.contains("comem: cannot write the statistics to /dev/stdout"), "{said}");
    for (arguments, closed) in [("run true", ">&-"), ("run echo hello", ">/dev/null"), ("report run.json", "<&-")] {
        let (status, said) = with_closed(arguments, closed);
        assert_eq!(status, Some(0), "{arguments} {closed}: {said}");
    }
}

#[test]
fn an_error_that_nobody_can_be_told_of_has_its_status() {
    let scratch = Scratch::new();
    for (args, status) in [(&["run", "nowhere"][..], 3), (&["report", "nowhere.json"], 2), (&["run", "false"], 1)] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = scratch.comem();
        let output = wait(command.args(args).stdout(Stdio::null()).stderr(full).spawn().unwrap());
        assert_eq!(output.status.code(), Some(status), "{args:?}");
    }
}

#[test]
fn an_output_that_does_not_wait_loses_nothing() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    let (mut reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the call changes the flags of an open descriptor and touches no memory.
    assert_eq!(unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    let body = "exec 9>held; seq 30000; echo done >&9";
    let mut command = scratch.comem();
    command.args(["run", "--no-prefix", "sh", "-c", body]).stdout(writer).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    drop(command);
    // More than a pipe takes is on its way before anything is read.
    assert_eq!(Held::open(&fifo).next().as_deref(), Some("done"));
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let output = wait(child);
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
    assert_eq!(text.lines().count(), 30000);
}

/// A node that waits for the others says at most where it is; others are those of programs that know nothing of Comem.
#[test]
fn who_ends_well_before_the_job_has_begun_is_told_to_those_who_wait() {
    let scratch = Scratch::new();
    let waits = "test $COMEM_NODE != 0 ||
            echo '{\"type\":\"address\",\"node\":0,\"addr\":\"127.0.0.1:4711\"}' >&$COMEM_CONTROL_FD
        while read -r line <&$COMEM_CONTROL_FD; do case $line in *peer_ended*)
            echo \"$line\"; echo '{\"type\":\"failed\",\"message\":\"lost\"}' >&$COMEM_CONTROL_FD; exit 4;; esac; done";
    for leaves in [0, 1] {
        let body = format!("test $COMEM_NODE != {leaves} || exit 0\n{waits}");
        let output = scratch.run(&["-n", "2", "--no-prefix", "--timeout", "20s", "bash", "-c", &body]);
        let told = format!(
            "{{\"type\":\"peer_ended\",\"node\":{leaves},\"how\":\"ended before the job had begun, with status 0\"}}\n"
        );
        assert_eq!((output.status.code(), out(&output)), (Some(4), told), "{}", err(&output));
    }
    let fifo = scratch.fifo("gate");
    let body = format!("case $COMEM_NODE in 0) echo done >{fifo};; 1) cat {fifo};; esac");
    let output = scratch.run(&["-n", "2", "sh", "-c", &body]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(0), "[1] done\n"));
}

/// Nodes that have passed the closing barrier stay for those who may have missed them, until all have.
#[test]
fn who_is_done_is_told_when_all_are() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("gate");
    // Node 0 has said nothing of its end when node 1 is done; then whoever asks is told.
    let body = format!(
        "say() {{ echo \"{{\\\"type\\\":\\\"$1\\\"}}\" >&$COMEM_CONTROL_FD; }}
        say started
        case $COMEM_NODE in 0) cat {fifo};; 1) say finished; echo one is done >{fifo};; esac
        test $COMEM_NODE = 1 || say finished
        while read -r line <&$COMEM_CONTROL_FD; do case $line in *all_finished*) echo \"$line\"; exit;; esac; done"
    );
    let output = scratch.run(&["-n", "2", "--no-prefix", "--timeout", "20s", "bash", "-c", &body]);
    let all = "{\"type\":\"all_finished\"}\n";
    assert_eq!((output.status.code(), out(&output)), (Some(0), format!("one is done\n{all}{all}")), "{}", err(&output));
}

/// A shell in the terminal of `script`, which stops the job and lets it go on in the background.
#[test]
fn a_job_that_was_in_the_background_reads_the_terminal_again() {
    let scratch = Scratch::new();
    let mut command = scratch.command("script");
    command.args(["-qec", "exec env PS1='ready> ' bash --norc --noprofile -i", "/dev/null"]).env("TERM", "dumb");
    let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keyboard = shell.stdin.take().unwrap();
    let mut screen = shell.stdout.take().unwrap();
    let (sender, pieces) = mpsc::channel();
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Some(count) = screen.read(&mut chunk).ok().filter(|count| *count > 0) {
            let _ = sender.send(String::from_utf8_lossy(&chunk[..count]).into_owned());
        }
    });
    let mut shown = String::new();
    let mut type_and_see = |typed: &str, part: &str| {
        keyboard.write_all(typed.as_bytes()).unwrap();
        while !shown.contains(part) {
            let piece = pieces.recv_timeout(PATIENCE);
            shown += &piece.unwrap_or_else(|_| panic!("no {part:?} after {typed:?}: {shown}"));
        }
        shown.clear();
    };
    type_and_see("", "ready> ");
    type_and_see(&format!("{} run -n 1 cat\n", bin()), "cat");
    type_and_see("one\n", "[0] one");
    type_and_see("\x1a", "Stopped");
    type_and_see("bg\n", "&");
    type_and_see("echo sum $((40 + 2))\n", "sum 42");
    type_and_see("fg\n", "run");
    type_and_see("two\n", "[0] two");
    type_and_see("\x04", "ready> ");
    type_and_see("exit\n", "exit");
    wait(shell);
}

#[test]
fn variables_that_are_almost_settings_are_told_of_and_a_dash_stands_for_standard_output() {
    let scratch = Scratch::new();
    let mut command = scratch.command(bin());
    command.env("COMEM_THREDS", "2").env("COMEM_OF_MINE", "1").args(["run", "-n", "1", "--stats", "-", "true"]);
    let output = finish(&mut command);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(err(&output), "comem: COMEM_THREDS is no setting; was COMEM_THREADS meant?\n");
    let file: serde_json::Value = serde_json::from_str(&out(&output)).expect("JSON on standard output");
    assert_eq!((&file["nodes"][0]["status"], &file["status"]), (&0.into(), &0.into()));
}

#[test]
fn what_a_loader_or_a_shell_did_not_find_is_told_of_with_what_to_do() {
    let output = Scratch::new().run(&["-n", "1", "sh", "-c", "exit 127"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(err(&output).contains("ended with status 127; something was not found"), "{}", err(&output));
}

#[test]
fn a_launcher_that_waits_for_a_reader_can_be_ended() {
    let scratch = Scratch::new();
    let mut command = scratch.command(bin());
    command.args(["run", "-n", "1", "--no-prefix", "head", "-c", "4000000", "/dev/zero"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    // The node has written all it has once it can be waited for: so much is read that the rest fits the launcher, and
    // no pipe.
    let mut some = vec![0; 3_000_000];
    output.read_exact(&mut some).unwrap();
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let until = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(&children).unwrap().is_empty() {
        assert!(Instant::now() < until, "the node does not end");
        std::thread::yield_now();
    }
    signal(child.id(), "TERM");
    wait(child);
    drop(output);
}

#[test]
fn without_a_launcher_a_dry_run_runs_nothing_and_what_launchers_do_is_refused() {
    let scratch = Scratch::new();
    assert!(scratch.comem().args(["daemon", "make-key", ".config/comem/key"]).status().unwrap().success());
    let output = scratch.run(&["--discover", "--dry-run", "-n", "2", "sh", "-c", "echo ran"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).starts_with("program ") && out(&output).contains("COMEM_NODES=2"), "{}", out(&output));
    assert!(!out(&output).contains("\nran"), "{}", out(&output));
    let output = scratch.run(&["--discover", "--timeout", "1s", "-n", "2", "sh", "-c", "echo ran"]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""));
    assert!(err(&output).contains("--timeout does not go with --discover"), "{}", err(&output));
}
