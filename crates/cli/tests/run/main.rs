//! `comem run` on one host, with small scripts in place of nodes.

#[path = "../common/mod.rs"]
mod common;
mod history;
mod settings;

use common::{Held, NOBODY_JOINED, Scratch, bin, err, finish, json, left, out, signal, sorted, wait};
use std::io::Write;
use std::process::{Command, Output, Stdio};

#[test]
fn lines_carry_their_nodes_number_and_keep_their_stream() {
    let scratch = Scratch::new();
    let output = scratch.run(&["-n", "3", "sh", "-c", "echo one; echo oops >&2; printf 'half '; printf 'line'"]);
    assert_eq!(output.status.code(), Some(0));
    let wanted = ["[0] half line", "[0] one", "[1] half line", "[1] one", "[2] half line", "[2] one"];
    assert_eq!(sorted(&out(&output)), wanted);
    assert_eq!(sorted(&err(&output)), ["[0] oops", "[1] oops", "[2] oops"]);
    let bare = scratch.run(&["-n", "1", "--no-prefix", "echo", "plain"]);
    assert_eq!(out(&bare), "plain\n");
}

#[test]
fn a_program_that_takes_no_part_runs_once_for_each_node_and_that_is_said() {
    let scratch = Scratch::new();
    let said = |args: &[&str]| String::from_utf8(scratch.run(args).stderr).unwrap();
    let several = said(&["-n", "3", "true"]);
    assert!(several.starts_with(NOBODY_JOINED) && several.contains("the program ran 3 times"), "{several}");
    assert_eq!(said(&["-n", "1", "true"]), "");
    assert!(!said(&["-n", "2", "false"]).contains(NOBODY_JOINED));
}

#[test]
fn options_behind_the_program_are_said_to_be_the_programs() {
    let scratch = Scratch::new();
    let program = scratch.script("prog", "#!/bin/sh\n");
    let said = |args: &[&str]| err(&scratch.run(args));
    for behind in [&["-n", "4"][..], &["--engine=hlrc"], &["x", "--nodes", "2"]] {
        let text = said(&[&[program.as_str()], behind].concat());
        assert!(text.contains("is an option of the program") && text.lines().count() == 1, "{behind:?}: {text}");
    }
    for quiet in
        [&["-n", "1", &program, "-n", "4"][..], &[&program, "-n", "x"], &["sh", "prog", "-n", "4"], &[&program, "4"]]
    {
        assert_eq!(said(quiet), "", "{quiet:?}");
    }
}

#[test]
fn a_launcher_that_others_start_several_times_refuses() {
    let scratch = Scratch::new();
    let mpirun = |size: &str, node: Option<&str>| {
        let mut command = scratch.comem();
        command.env("OMPI_COMM_WORLD_RANK", "1").env("OMPI_COMM_WORLD_SIZE", size);
        node.map(|node| command.env("COMEM_NODE", node));
        finish(command.args(["run", "echo", "ran"]))
    };
    let several = mpirun("2", None);
    assert_eq!((several.status.code(), out(&several).as_str()), (Some(2), ""));
    assert!(err(&several).contains("use `mpirun comem exec PROGRAM`"), "{}", err(&several));
    for once in [mpirun("1", None), mpirun("2", Some("1"))] {
        assert_eq!(out(&once), "[0] ran\n", "{}", err(&once));
    }
}

#[test]
fn much_output_arrives_whole() {
    let scratch = Scratch::new();
    let output = scratch.run(&["-n", "4", "sh", "-c", "seq 20000"]);
    let text = out(&output);
    for node in 0..4 {
        let prefix = format!("[{node}] ");
        let numbers: Vec<usize> = text.lines().filter_map(|l| l.strip_prefix(&prefix)?.parse().ok()).collect();
        assert_eq!(numbers, (1..=20000).collect::<Vec<_>>(), "node {node}");
    }
}

#[test]
fn nodes_get_their_orders_as_variables() {
    let scratch = Scratch::new();
    let show = "echo $COMEM_NODE/$COMEM_NODES t=$COMEM_THREADS $OMP_NUM_THREADS e=$COMEM_ENGINE s=$COMEM_SLOW \
                f=$COMEM_FAULTS h=$COMEM_HOST_NODES p=$COMEM_PROG_ID a=$COMEM_AUTH i=$COMEM_NODE_TIMEOUT \
                z=$COMEM_ZERO.";
    let mut command = scratch.comem();
    // A flag wins over its variable, and an outer job does not shine through.
    command
        .env("COMEM_ENGINE", "owner")
        .env("COMEM_THREADS", "5")
        .env("COMEM_ZERO", "1.2.3.4:5")
        .env("COMEM_NODE", "9");
    let args = ["run", "-n", "2", "-t", "3", "--slow", "1=2.5x", "--faults", "drop=5%,seed=7", "--prog-id", "77"];
    let output = finish(command.args(args).args(["--node-timeout", "off", "--no-prefix", "sh", "-c", show]));
    let common = "t=3 3 e=owner s=1x f=drop=5%,seed=7 h=2 p=77 a=on i=off z=.";
    assert_eq!(sorted(&out(&output)), [format!("0/2 {common}"), format!("1/2 {}", common.replace("s=1x", "s=2.5x"))]);
    let kept = finish(scratch.comem().env("OMP_NUM_THREADS", "8").args([
        "run",
        "-t",
        "3",
        "sh",
        "-c",
        "echo $OMP_NUM_THREADS",
    ]));
    assert_eq!(out(&kept), "[0] 8\n");
}

#[test]
fn a_job_may_be_started_within_a_node_of_another() {
    let scratch = Scratch::new();
    let show = "echo $COMEM_NODE/$COMEM_NODES t=$COMEM_THREADS s=$COMEM_STATS c=$COMEM_CAPTURE b=$COMEM_BACKBONE \
                a=$COMEM_AUTH.";
    let outer = "-n 1 -t 2 --prog-id 78 --stats outer.json --capture outer.pcap --auth off --no-prefix";
    let outer: Vec<&str> = outer.split(' ').collect();
    let (one, two) = ("0/1 t=1 s= c= b=shm a=on.\n", "0/2 t=1 s= c= b=shm a=on.\n1/2 t=1 s= c= b=shm a=on.\n");
    for (nodes, wanted) in [("", one), ("-n 2", two)] {
        let inner = format!("{} run {nodes} --no-prefix sh -c '{show}' | sort", bin());
        let output = scratch.run(&[&outer[..], &["sh", "-c", &inner]].concat());
        assert_eq!((out(&output).as_str(), err(&output).as_str()), (wanted, ""), "{nodes}");
    }
}

#[test]
fn a_script_counts_as_itself_whoever_runs_it() {
    let scratch = Scratch::new();
    let script = scratch.script("prog.sh", "#!/bin/sh\necho $COMEM_PROGRAM\n");
    assert_eq!(out(&scratch.run(&["./prog.sh"])).trim_end(), format!("[0] {}/./prog.sh", scratch.0.display()));
    assert_eq!(out(&scratch.run(&["sh", "prog.sh"])).trim_end(), format!("[0] {script}"));
}

#[test]
fn the_first_failing_status_is_the_jobs() {
    let scratch = Scratch::new();
    let output = scratch.run(&["-n", "3", "sh", "-c", "test $COMEM_NODE != 1 || exit 7; sleep 1000"]);
    assert_eq!(output.status.code(), Some(7));
    let text = err(&output);
    assert_eq!(text.lines().count(), 1, "one sentence a failure: {text}");
    assert!(text.starts_with("comem: node 1 (host ") && text.ends_with("): ended with status 7\n"), "{text}");
    let killed = scratch.run(&["-n", "2", "sh", "-c", "test $COMEM_NODE != 1 || kill -9 $$; sleep 1000"]);
    assert_eq!(killed.status.code(), Some(137));
    assert!(err(&killed).contains("was killed by signal 9 (SIGKILL)"));
}

#[test]
fn of_a_node_that_was_killed_is_said_what_to_look_at() {
    let scratch = Scratch::new();
    for (signal, advice) in [
        ("KILL", "was killed by signal 9 (SIGKILL); the kernel's log (dmesg) says whether memory ran out"),
        (
            "SEGV",
            "was killed by signal 11 (SIGSEGV); see where, with comem run --gdb 1; if this node has said nothing of \
             it before: a pointer to what another node",
        ),
        ("TERM", "was killed by signal 15 (SIGTERM)\n"),
    ] {
        let end = format!("test $COMEM_NODE != 1 || kill -{signal} $$; sleep 1000");
        let text = err(&scratch.run(&["-n", "2", "sh", "-c", &end]));
        assert!(text.contains(advice) && text.lines().count() == 1, "{signal}: {text}");
    }
}

#[test]
fn a_node_may_end_well_before_the_others() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("gate");
    // Node 1 waits for what node 0 writes on its way out.
    let body = format!("case $COMEM_NODE in 0) echo done >{fifo};; 1) cat {fifo};; esac");
    let output = scratch.run(&["-n", "2", "sh", "-c", &body]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(0), "[1] done\n"));
}

#[test]
fn what_a_failed_node_leaves_to_others_is_told_at_once() {
    let scratch = Scratch::new();
    let body = "case $COMEM_NODE in
        1) exit 3;;
        *) while read -r line <&$COMEM_CONTROL_FD; do case $line in *peer_ended*) echo \"$line\"; exit 4;; esac; done;;
    esac";
    let output = scratch.run(&["-n", "2", "bash", "-c", body]);
    assert_eq!(out(&output), "[0] {\"type\":\"peer_ended\",\"node\":1,\"how\":\"ended with status 3\"}\n");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn the_job_comes_first_and_node_zeros_address_reaches_all() {
    let scratch = Scratch::new();
    let body = "read -r job <&$COMEM_CONTROL_FD
        echo \"$job\"
        case $COMEM_NODE in
        0) echo '{\"type\":\"address\",\"node\":0,\"addr\":\"127.0.0.1:4711\"}' >&$COMEM_CONTROL_FD;;
        *) read -r zero <&$COMEM_CONTROL_FD; echo \"$zero\";;
        esac";
    let output = scratch.run(&["-n", "3", "--prog-id", "9", "--no-prefix", "bash", "-c", body]);
    let lines = sorted(&out(&output));
    assert_eq!(lines.len(), 5);
    let jobs: Vec<&String> = lines.iter().filter(|l| l.starts_with("{\"type\":\"job\"")).collect();
    assert_eq!(jobs.len(), 3);
    assert!(jobs.iter().all(|j| *j == jobs[0] && j.contains("\"prog_id\":9,\"auth\":true")), "{jobs:?}");
    assert_eq!(lines[3..], vec!["{\"type\":\"zero\",\"addr\":\"127.0.0.1:4711\"}"; 2]);
    let key =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["key"].as_str().unwrap().to_string();
    assert_eq!(key(jobs[0]).len(), 64);
    let second = scratch.run(&["--no-prefix", "bash", "-c", "read -r job <&$COMEM_CONTROL_FD; echo \"$job\""]);
    assert_ne!(key(jobs[0]), key(out(&second).trim()), "each job has a key of its own");
}

#[test]
fn a_node_says_its_last_sentence_through_the_launcher() {
    let scratch = Scratch::new();
    let body = "test $COMEM_NODE = 0 || exec sleep 1000
        echo '{\"type\":\"failed\",\"message\":\"port 9 is in use; choose others with --ports\"}' >&$COMEM_CONTROL_FD
        exit 3";
    let output = scratch.run(&["-n", "2", "bash", "-c", body]);
    assert_eq!(output.status.code(), Some(3));
    let text = err(&output);
    assert!(text.starts_with("comem: node 0 (host "), "{text}");
    assert!(text.ends_with("): port 9 is in use; choose others with --ports\n"), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn who_leaves_in_the_middle_is_reported_even_with_status_zero() {
    let scratch = Scratch::new();
    let body = "echo '{\"type\":\"started\"}' >&$COMEM_CONTROL_FD
        case $COMEM_NODE in
        0) exit 0;;
        *) while read -r line <&$COMEM_CONTROL_FD; do case $line in *peer_ended*) echo \"$line\"; break;; esac; done
           echo '{\"type\":\"failed\",\"message\":\"node 0 is lost\"}' >&$COMEM_CONTROL_FD; exit 4;;
        esac";
    let output = scratch.run(&["-n", "2", "bash", "-c", body]);
    assert!(out(&output).contains("left before the end of the job"), "{}", out(&output));
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn the_cause_counts_and_not_what_follows_from_it() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("gate");
    // Node 1 gives up because of node 0, and ends before node 0's own end is seen.
    let body = format!(
        "case $COMEM_NODE in
        0) exec 9<{fifo}; read -r go <&9; exit 42;;
        1) echo '{{\"type\":\"failed\",\"message\":\"node 0 is lost\"}}' >&$COMEM_CONTROL_FD; exit 4;;
        2) while read -r line <&$COMEM_CONTROL_FD; do case $line in *peer_ended*)
               echo go >{fifo}; echo '{{\"type\":\"failed\",\"message\":\"node 1 is lost\"}}' >&$COMEM_CONTROL_FD
               exit 4;; esac; done;;
        esac"
    );
    let output = scratch.run(&["-n", "3", "bash", "-c", &body]);
    assert_eq!(output.status.code(), Some(42), "{}", err(&output));
}

/// A node that holds a pipe open in itself and in a process that it starts.
fn holding(fifo: &str) -> String {
    format!("exec 9>{fifo}; sleep 1000 & echo ready >&9; wait")
}

#[test]
fn a_place_where_no_statistics_can_be_written_is_refused_before_the_job_runs() {
    let scratch = Scratch::new();
    for place in ["/", "/proc/none/run.json", "/dev/null/run.json", "none/"] {
        let output = scratch.run(&["-n", "2", "--stats", place, "sh", "-c", "echo ran"]);
        assert_ne!(output.status.code(), Some(0), "{place}");
        assert!(err(&output).contains(&format!("cannot write the statistics to {place}")), "{}", err(&output));
        assert!(!out(&output).contains("ran"), "{place}: {}", out(&output));
    }
}

#[test]
fn a_port_for_a_debugger_that_is_in_use_is_said_before_anybody_waits_there() {
    if Command::new("gdbserver").arg("--version").output().is_err() {
        println!("SKIP: gdbserver is not installed (apt-get install gdbserver)");
        return;
    }
    let scratch = Scratch::new();
    let taken = std::net::TcpListener::bind("localhost:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = scratch.run(&["--gdb", "0", "--gdb-server", &port, "true"]);
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    assert!(err(&output).contains("the port cannot be had") && !err(&output).contains("waits"), "{}", err(&output));
}

#[test]
fn too_few_ports_are_said_before_the_job_runs() {
    let scratch = Scratch::new();
    let output = scratch.run(&["-n", "2", "--ports", "5000-5002", "echo", "ran"]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""));
    assert!(err(&output).contains("need 4; give --ports 5000-5003"), "{}", err(&output));
}

#[test]
fn datagrams_are_not_recorded_beside_a_directory() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("dir")).unwrap();
    for place in ["dir", "dir/", "none/"] {
        let output = scratch.run(&["-n", "2", "--capture", place, "echo", "ran"]);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{place}");
        assert!(err(&output).contains("name a file: --capture"), "{place}: {}", err(&output));
    }
}

/// A job where no file may have more than so many KiB.
#[track_caller]
fn in_short_files(scratch: &Scratch, kib: &str, args: &str) -> Output {
    let line = format!("ulimit -f {kib}; exec \"$0\" run {args}");
    finish(scratch.command("bash").args(["-c", &line, bin()]))
}

#[test]
fn statistics_that_find_no_room_leave_no_half_of_a_file() {
    let scratch = Scratch::new();
    let output = in_short_files(&scratch, "1", "-n 16 --stats run.json true");
    assert_eq!(output.status.code(), Some(6), "{}", err(&output));
    assert!(err(&output).contains("cannot write the statistics to run.json: File too large"), "{}", err(&output));
    let names = std::fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["run"], "the runtime directory alone");
}

/// Each failed start left 64 empty files behind.
#[test]
fn where_a_programs_number_cannot_be_noted_the_job_has_it_and_nothing_stays() {
    let scratch = Scratch::new();
    let output = in_short_files(&scratch, "0", "-n 2 true");
    let said = err(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let names = std::fs::read_dir(scratch.path("run")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with("prog-")), "{said}");
}

#[test]
fn ctrl_c_ends_every_node_and_what_it_started() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let scratch = Scratch::new();
        let fifo = scratch.fifo("held");
        let mut command = scratch.comem();
        command.args(["run", "-n", "3", "sh", "-c", &holding(&fifo)]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let held = Held::open(&fifo);
        held.expect_lines(3);
        signal(child.id(), name);
        let output = wait(child);
        assert_eq!(output.status.code(), Some(code), "{}", err(&output));
        assert!(err(&output).contains(&format!("(SIG{name})")), "{}", err(&output));
        held.expect_all_gone();
    }
}

#[test]
fn nodes_that_ignore_signals_are_killed() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    let body = format!("trap '' TERM INT; {}", holding(&fifo));
    let child = scratch.comem().args(["run", "-n", "2", "sh", "-c", &body]).stderr(Stdio::piped()).spawn().unwrap();
    let held = Held::open(&fifo);
    held.expect_lines(2);
    signal(child.id(), "INT");
    assert_eq!(wait(child).status.code(), Some(130));
    held.expect_all_gone();
}

#[test]
fn nothing_outlives_a_launcher_that_is_killed() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    let body = format!("trap '' TERM INT HUP; {}", holding(&fifo));
    let mut child = scratch.comem().args(["run", "-n", "3", "sh", "-c", &body]).stdout(Stdio::null()).spawn().unwrap();
    let held = Held::open(&fifo);
    held.expect_lines(3);
    child.kill().unwrap();
    child.wait().unwrap();
    held.expect_all_gone();
}

#[test]
fn processes_that_leave_their_group_do_not_escape() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    let body = format!("exec 9>{fifo}; setsid sh -c 'echo ready >&9; sleep 1000' & echo ready >&9; exit 0");
    let child = scratch.comem().args(["run", "-n", "2", "sh", "-c", &body]).stdout(Stdio::piped()).spawn().unwrap();
    let held = Held::open(&fifo);
    assert_eq!(wait(child).status.code(), Some(0));
    held.expect_all_gone();
}

#[test]
fn a_job_may_have_a_time_limit() {
    let scratch = Scratch::new();
    let output = scratch.run(&["-n", "2", "--timeout", "200ms", "sleep", "1000"]);
    assert_eq!(output.status.code(), Some(124));
    assert!(err(&output).contains("longer than 200ms (--timeout)"), "{}", err(&output));
}

#[test]
fn the_end_of_the_reader_is_the_end_of_the_job() {
    let scratch = Scratch::new();
    let mut child = scratch.comem().args(["run", "-n", "2", "yes"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(wait(child).status.code(), Some(141));
}

#[test]
fn standard_input_goes_to_node_zero_alone() {
    let scratch = Scratch::new();
    let mut child =
        scratch.comem().args(["run", "-n", "2", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"over to you\n").unwrap();
    assert_eq!(out(&wait(child)), "[0] over to you\n");
}

#[test]
fn statistics_are_gathered_added_and_written_also_after_a_failure() {
    let scratch = Scratch::new();
    let report = "echo \"{\\\"type\\\":\\\"stats\\\",\\\"stats\\\":{\\\"barriers\\\":$((COMEM_NODE+1)),\
                  \\\"time_us\\\":{\\\"lock\\\":10},\\\"wall_s\\\":0.$COMEM_NODE}}\" >&$COMEM_CONTROL_FD";
    let stats = scratch.text("stats.json");
    let output = scratch.run(&[
        "-n",
        "3",
        "--stats",
        &stats,
        "--engine",
        "owner",
        "--faults",
        "drop=1%,seed=5",
        "bash",
        "-c",
        report,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let file = json(&scratch.path("stats.json"));
    assert_eq!(file["totals"], serde_json::json!({"barriers": 6, "time_us": {"lock": 30}, "wall_s": 0.2}));
    // Faults ask for a network.
    for (field, value) in [("engine", "owner"), ("page_engine", "hlrc"), ("backbone", "udp"), ("version", "0.1.0")] {
        assert_eq!(file[field], value);
    }
    assert_eq!((&file["schema"], &file["seed"], &file["status"]), (&1.into(), &5.into(), &0.into()));
    assert_eq!(file["command"][0], "bash");
    assert!(!file["hosts"][0]["kernel"].as_str().unwrap().is_empty());

    let failing = format!("{report}; test $COMEM_NODE != 2 || exit 9");
    let output = scratch.run(&["-n", "3", "--stats", &stats, "bash", "-c", &failing]);
    assert_eq!(output.status.code(), Some(9));
    let file = json(&scratch.path("stats.json"));
    assert_eq!(file["backbone"], "shm");
    assert_eq!((&file["status"], &file["totals"]["barriers"]), (&9.into(), &6.into()));
    assert!(file["failure"].as_str().unwrap().contains("ended with status 9"), "{file}");
    assert_eq!(file["nodes"][2]["status"], 9);
}

#[test]
fn nodes_that_listen_are_told_to_stop_and_may_still_report() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    let body = format!(
        "echo '{{\"type\":\"started\"}}' >&$COMEM_CONTROL_FD; echo ready >{fifo}
        while read -r line <&$COMEM_CONTROL_FD; do case $line in *stop*)
            echo '{{\"type\":\"failed\",\"message\":\"stopped\"}}' >&$COMEM_CONTROL_FD
            echo '{{\"type\":\"stats\",\"stats\":{{\"barriers\":1}}}}' >&$COMEM_CONTROL_FD; exit 5;; esac; done"
    );
    let stats = scratch.text("stats.json");
    let mut command = scratch.comem();
    command.args(["run", "-n", "2", "--stats", &stats, "bash", "-c", &body]).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let held = Held::open(&fifo);
    held.expect_lines(1);
    signal(child.id(), "INT");
    let output = wait(child);
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(err(&output), "comem: ending all nodes after signal 2 (SIGINT)\n");
    let file = json(&scratch.path("stats.json"));
    assert_eq!(file["status"], 130);
    assert_ne!(file["nodes"].as_array().unwrap().iter().filter(|n| n["barriers"] == 1).count(), 0, "{file}");
}

#[test]
fn who_does_not_listen_is_not_ended_by_being_asked() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    // The shell around the program, and what the program has started, catch nothing.
    let program = scratch.script(
        "prog",
        &format!(
            "#!/bin/sh\ntrap 'echo heard; exit 0' USR1\nexec 9>{fifo}\nsleep 1000 & echo ready >&9\n\
         while :; do wait; done\n"
        ),
    );
    let body = format!("{program}; echo around");
    let child = scratch.comem().args(["run", "-n", "2", "sh", "-c", &body]).stdout(Stdio::piped()).spawn().unwrap();
    let held = Held::open(&fifo);
    held.expect_lines(2);
    signal(child.id(), "USR1");
    let output = wait(child);
    assert_eq!(sorted(&out(&output)), ["[0] around", "[0] heard", "[1] around", "[1] heard"]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_program_number_belongs_to_one_job_at_a_time() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    let mut first = scratch.comem();
    let child =
        first.args(["run", "--prog-id", "77", "sh", "-c", &holding(&fifo)]).stderr(Stdio::null()).spawn().unwrap();
    let held = Held::open(&fifo);
    held.expect_lines(1);
    let second = scratch.run(&["--prog-id", "77", "true"]);
    assert_eq!(second.status.code(), Some(3));
    let wanted = format!("comem: program number 77 is in use by the job of pid {}", child.id());
    assert!(err(&second).starts_with(&wanted), "{}", err(&second));
    signal(child.id(), "TERM");
    wait(child);
    assert_eq!(scratch.run(&["--prog-id", "77", "true"]).status.code(), Some(0));
    assert_eq!(left(&scratch), [""; 0], "the locks go with their jobs");
}

#[test]
fn the_script_for_gdb_is_there_for_whoever_attaches_to_a_node() {
    let scratch = Scratch::new();
    let script = scratch.path("run").join(format!("comem-{}.gdb", env!("CARGO_PKG_VERSION")));
    for before in [None, Some("of another build")] {
        before.iter().for_each(|text| std::fs::write(&script, text).unwrap());
        let output = scratch.run(&["-n", "1", "true"]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(std::fs::read_to_string(&script).unwrap().contains("nostop noprint pass"), "{before:?}");
    }
}

/// A script in place of gdbserver shows what it is given, and runs the program.
#[test]
fn a_node_is_started_by_the_debugger_that_was_asked_for() {
    let scratch = Scratch::new();
    let path = format!("{}:{}", scratch.0.display(), std::env::var("PATH").unwrap());
    scratch.script("gdbserver", "#!/bin/sh\necho \"$1 $2 $3\"; shift 3; exec \"$@\"\n");
    let show = "echo node $COMEM_NODE timeout=$COMEM_NODE_TIMEOUT; { true >&$COMEM_CONTROL_FD; } || echo closed";
    let args = ["run", "-n", "2", "--gdb", "1", "--gdb-server", "4711"];
    let output = finish(scratch.comem().env("PATH", &path).args(args).args(["bash", "-c", show]));
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let wanted =
        ["[0] node 0 timeout=off", "[1] --once --no-startup-with-shell localhost:4711", "[1] node 1 timeout=off"];
    assert_eq!(sorted(&out(&output)), wanted);
    let said = err(&output);
    assert!(said.contains("target remote localhost:4711"), "{said}");
    let script = said.split("gdb -x ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(std::fs::read_to_string(script).unwrap().contains("nostop noprint pass"));
    let dry = finish(scratch.comem().env("PATH", &path).args(args).args(["--dry-run", "true"]));
    assert!(out(&dry).contains("under gdbserver --once"), "{}", out(&dry));
    let missing = finish(scratch.comem().env("PATH", "/nowhere").args(args).arg("/bin/true"));
    assert_eq!(missing.status.code(), Some(3));
    assert!(err(&missing).contains("install gdbserver"), "{}", err(&missing));
}

/// The terminal is that of `script`; a script in place of gdb reads from it, which only the foreground may.
#[test]
fn a_debugger_gets_the_terminal_and_gives_it_back() {
    let scratch = Scratch::new();
    let path = format!("{}:{}", scratch.0.display(), std::env::var("PATH").unwrap());
    scratch.script("gdb", "#!/bin/bash\nread -r line; echo \"gdb $line $1 $2 $4\"; shift 4; exec \"$@\"\n");
    let job = format!("{} run -n 2 --gdb 1 bash -c 'echo node $COMEM_NODE'; read -r line; echo shell $line", bin());
    let mut command = scratch.comem();
    let environment: Vec<(std::ffi::OsString, std::ffi::OsString)> =
        command.get_envs().filter_map(|(name, value)| Some((name.into(), value?.into()))).collect();
    command = std::process::Command::new("script");
    command.args(["-qec", &job, "/dev/null"]).envs(environment).env("PATH", path).current_dir(&scratch.0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keyboard = child.stdin.take().unwrap();
    keyboard.write_all(b"first\nsecond\n").unwrap();
    let text = out(&wait(child)).replace('\r', "");
    for line in ["gdb first -q -x --args\n", "node 1\n", "shell second\n"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    drop(keyboard);
}

#[test]
fn help_is_no_failure() {
    let scratch = Scratch::new();
    let output = scratch.run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(out(&output).contains("--engine") && out(&output).contains("COMEM_ENGINE"));
}

/// A control group whose processes may use little memory; `None` where none can be made.
struct Tight(std::path::PathBuf);

impl Tight {
    fn new(bytes: u64) -> Option<Tight> {
        let name = format!("comem-test-{}", std::process::id());
        let kinds = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        kinds.into_iter().find_map(|(root, limit)| {
            let group = Tight(std::path::Path::new(root).join(&name));
            std::fs::create_dir(&group.0).ok()?;
            std::fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Tight {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_node_that_is_killed_for_want_of_memory_is_said_to_be() {
    let scratch = Scratch::new();
    let Some(group) = Tight::new(40 << 20) else {
        println!("SKIP: want of memory: no control group can be made here");
        return;
    };
    let hungry = "exec tail -c 200M < <(head -c 300M /dev/zero)";
    let inside = format!("echo $$ > {}/cgroup.procs && exec \"$0\" run bash -c '{hungry}'", group.0.display());
    let mut command = std::process::Command::new("bash");
    let output = finish(command.current_dir(&scratch.0).args(["-c", &inside]).arg(bin()));
    assert_eq!(output.status.code(), Some(137));
    let text = err(&output);
    let said = "): was killed by signal 9 (SIGKILL), probably because memory ran out (lower --cache";
    assert!(text.starts_with("comem: node 0 (host ") && text.contains(said) && text.lines().count() == 1, "{text}");
}

/// Nodes 0 and 2 have called Comem; node 1 has not, and nobody needs to guess: the launcher has started it, and sees
/// it.
#[test]
fn whom_the_start_waits_for_is_told_soon_and_what_is_known_of_it_in_the_end() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("goes-on");
    let joins = r#"printf '{"type":"joining"}\n' >&$COMEM_CONTROL_FD"#;
    let gives_up = r#"printf '{"type":"missing","nodes":[1]}\n' >&$COMEM_CONTROL_FD"#;
    let program = scratch.script(
        "prog",
        &format!(
            "#!/bin/bash\n[ $COMEM_NODE = 1 ] && exec sleep 1000\n{joins}\n[ $COMEM_NODE = 0 ] || exec sleep 1000\n\
             read line <{fifo}\n{gives_up}\nexit 3\n"
        ),
    );
    let mut child = scratch.comem().args(["run", "-n", "3", &program]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let soon = lines.next().unwrap().unwrap();
    assert!(soon.starts_with("comem: nodes wait: node 1 (host ") && soon.contains(", pid "), "{soon}");
    assert!(soon.contains("runs, but has not called Comem yet") && soon.contains("longer --node-timeout"), "{soon}");
    std::fs::write(&fifo, "on\n").unwrap();
    let end = lines.next().unwrap().unwrap();
    assert!(end.starts_with("comem: the nodes have not met in time: node 1 (host "), "{end}");
    assert!(end.contains("runs, but has not called Comem yet") && !end.contains("firewall"), "{end}");
    lines.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn where_all_have_called_comem_the_network_is_to_blame() {
    let scratch = Scratch::new();
    let joins = r#"printf '{"type":"joining"}\n' >&$COMEM_CONTROL_FD"#;
    let address =
        r#"[ $COMEM_NODE = 0 ] && printf '{"type":"address","node":0,"addr":"127.0.0.1:9"}\n' >&$COMEM_CONTROL_FD"#;
    let program = scratch.script("prog", &format!("#!/bin/bash\n{joins}\n{address}\nexec sleep 1000\n"));
    let mut child = scratch.comem().args(["run", "-n", "2", &program]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let soon = lines.next().unwrap().unwrap();
    signal(child.id(), "TERM");
    assert!(
        soon.contains("all nodes have called Comem, and have not met yet") && soon.contains("127.0.0.1:9"),
        "{soon}"
    );
    lines.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
