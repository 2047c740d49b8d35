//! `comem report`, `comem compare` and `comem bench`, with small scripts in place of programs.

mod common;

use common::{Held, Scratch, err, finish, out, signal, wait};
use serde_json::{Value, json};
use std::process::{Output, Stdio};

fn comem(scratch: &Scratch, args: &[&str]) -> Output {
    finish(scratch.comem().args(args))
}

/// A stats file of two nodes.
fn stats() -> Value {
    let node = |node: u64| {
        json!({
            "node": node, "host": "a", "threads": 1, "wall_s": 1.0, "engine": "msi", "messages_sent": 1000 * (node + 1),
            "time_us": {"compute": 700_000, "fetch": 100_000, "lock": 0, "barrier": 150_000, "protocol": 50_000,
                        "service": 9},
            "pages": {"read_faults": 5, "signals": 6, "page_requests": 4},
            "regions": [{"label": "grid", "address": 65536, "bytes": 4096, "fetch_us": 77, "faults": 5,
                         "false_sharing": [{"offset": 4096, "nodes": [0, 1]}]}],
        })
    };
    json!({"schema": 1, "command": ["sea"], "wall_s": 1.1, "status": 0, "nodes": [node(0), node(1)]})
}

fn save(scratch: &Scratch, name: &str, value: &Value) -> String {
    std::fs::write(scratch.path(name), value.to_string()).unwrap();
    scratch.text(name)
}

#[test]
fn a_report_shows_tables_and_draws_bars() {
    let scratch = Scratch::new();
    let file = save(&scratch, "run.json", &stats());
    let svg = scratch.text("bars.svg");
    let output = comem(&scratch, &["report", &file, "--svg", &svg]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    for part in ["compute", "70.0", "1,000", "3,000", "read faults", "grid", "false sharing", "4,096", "0 1"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let picture = std::fs::read_to_string(&svg).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("node 1: fetch"), "{picture}");
    let csv = out(&comem(&scratch, &["report", "--csv", &file]));
    assert!(csv.contains("run,1,messages,messages_sent,2000\n"), "{csv}");
    let two = out(&comem(&scratch, &["report", &file, &save(&scratch, "other.json", &stats())]));
    assert!(two.contains("other") && two.contains("pages: requests"), "{two}");
}

#[test]
fn a_picture_does_not_overwrite_what_it_shows() {
    let scratch = Scratch::new();
    let file = save(&scratch, "run.json", &stats());
    for svg in [&file, "./run.json"] {
        let output = comem(&scratch, &["report", &file, "--svg", svg]);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""));
        assert!(err(&output).contains("would overwrite"), "{}", err(&output));
    }
    assert!(std::fs::read_to_string(&file).unwrap().starts_with('{'));
}

#[test]
fn files_that_are_no_stats_are_refused_by_name() {
    let scratch = Scratch::new();
    let mut newer = stats();
    newer["schema"] = json!(9);
    std::fs::write(scratch.path("text.json"), "no json").unwrap();
    for (file, part) in [
        (scratch.text("missing.json"), "cannot read"),
        (scratch.text("text.json"), "is no JSON"),
        (save(&scratch, "newer.json", &newer), "its schema is 9"),
        (save(&scratch, "list.json", &json!([1])), "no schema number"),
        (save(&scratch, "empty.json", &json!({"schema": 1})), "it has no nodes"),
        (scratch.0.display().to_string(), "cannot read"),
    ] {
        let output = comem(&scratch, &["report", &file]);
        let text = err(&output);
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{file}: {text}");
        assert!(text.starts_with("comem: ") && text.contains(part) && text.contains(&file), "{file}: {text}");
    }
}

/// A node that reports as if it had shared pages.
const WITH_PAGES: &str = "#!/bin/bash
echo \"{\\\"type\\\":\\\"stats\\\",\\\"stats\\\":{\\\"messages_sent\\\":7,\
\\\"detector\\\":\\\"${COMEM_DETECTOR:-uffd-async}\\\",\
\\\"pages\\\":{\\\"read_faults\\\":20,\\\"write_faults\\\":1,\\\"page_requests\\\":9}}}\" >&$COMEM_CONTROL_FD
sum=41
[ $COMEM_ENGINE = scope ] && sum=42
[ \"$COMEM_ENGINE\" = msi ] && exit 3
echo result sum=$sum nodes=$COMEM_NODES time_s=0.$COMEM_NODES
";

fn rows(output: &Output) -> Vec<String> {
    out(output).lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn engines_are_compared_by_what_the_program_prints() {
    let scratch = Scratch::new();
    let program = scratch.script("prog", WITH_PAGES);
    let args = ["compare", "-n", "2", "--repeat", "2", "--detectors", "uffd,mprotect", "--", &program];
    let output = comem(&scratch, &args);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert_eq!(
        rows(&output),
        [
            "(1 node) 100.0 ms 7 0 B 21 9 ok",
            "hlrc uffd 200.0 ms 14 0 B 42 18 ok",
            "hlrc mprotect 200.0 ms 14 0 B 42 18 ok",
            "scope uffd differs",
            "scope mprotect differs",
            "lrc uffd 200.0 ms 14 0 B 42 18 ok",
            "lrc mprotect 200.0 ms 14 0 B 42 18 ok",
            "multicast uffd 200.0 ms 14 0 B 42 18 ok",
            "multicast mprotect 200.0 ms 14 0 B 42 18 ok",
            "msi uffd failed",
            "msi mprotect failed",
            "hardware uffd-async 200.0 ms 14 0 B 42 18 ok",
        ]
    );
    assert!(err(&output).contains("printed \"result sum=42\" instead of \"result sum=41\""), "{}", err(&output));
    let chosen = comem(&scratch, &["compare", "--engines", "hlrc", "--repeat", "1", "--", &program]);
    assert_eq!(chosen.status.code(), Some(0), "{}", err(&chosen));
    assert_eq!(rows(&chosen)[1], "hlrc uffd-async 200.0 ms 14 0 B 42 18 ok");
}

#[test]
fn bytes_that_are_no_text_are_compared_too() {
    let scratch = Scratch::new();
    let body = "#!/bin/bash\necho '{\"type\":\"started\"}' >&$COMEM_CONTROL_FD\n\
                case $COMEM_ENGINE in owner) printf '\\376\\n';; *) printf '\\377\\n';; esac\n";
    let program = scratch.script("prog", body);
    let output = comem(&scratch, &["compare", "--repeat", "1", "--engines", "owner,msi", "--", &program]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert_eq!(rows(&output)[1], "owner explicit differs");
    assert!(rows(&output)[2].ends_with(" ok") && err(&output).contains("xfe"), "{}", err(&output));
}

/// Node 1 writes between the two pieces of a line of node 0, the first of which is shown while the second is waited
/// for.
#[test]
fn a_line_that_comes_in_pieces_is_one_whatever_other_nodes_print() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("said");
    let body = format!(
        "#!/bin/bash
        echo '{{\"type\":\"started\"}}' >&$COMEM_CONTROL_FD
        case $COMEM_NODES$COMEM_NODE in
        10) echo result 42;;
        20) printf 'result '; sleep 0.5; echo go >{fifo}; sleep 0.5; echo 42;;
        21) read -r go <{fifo}; echo hello;;
        esac\n"
    );
    let program = scratch.script("prog", &body);
    for flags in [&[][..], &["--flag=--no-prefix"]] {
        let args = [&["compare", "--repeat", "1", "--engines", "msi"], flags, &["--", &program]].concat();
        let output = comem(&scratch, &args);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    }
}

#[test]
fn a_program_with_objects_alone_runs_under_the_engines_of_objects() {
    let scratch = Scratch::new();
    let program = scratch.script(
        "prog",
        "#!/bin/bash\necho '{\"type\":\"started\"}' >&$COMEM_CONTROL_FD\necho checksum=7 engine $COMEM_ENGINE\n",
    );
    let output = comem(&scratch, &["compare", "--repeat", "1", "--", &program]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let engines: Vec<String> = rows(&output)[1..].iter().map(|r| r.split(' ').take(2).collect::<String>()).collect();
    assert_eq!(engines, ["ownerexplicit", "broadcastexplicit", "msiexplicit"]);
}

#[test]
fn detectors_that_nothing_can_use_are_not_passed_over_in_silence() {
    let scratch = Scratch::new();
    let objects =
        scratch.script("objects", "#!/bin/bash\necho '{\"type\":\"started\"}' >&$COMEM_CONTROL_FD\necho checksum=7\n");
    let args = ["compare", "--repeat", "1", "--engines", "hlrc,msi", "--detectors", "uffd,mprotect", "--", &objects];
    let output = comem(&scratch, &args);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(rows(&output).len(), 3, "{}", out(&output));
    assert!(err(&output).contains("shares no pages, so --detectors uffd,mprotect changes nothing"), "{}", err(&output));
    let quiet = comem(&scratch, &["compare", "--repeat", "1", "--detectors", "explicit", "--", &objects]);
    assert!(!err(&quiet).contains("--detectors"), "{}", err(&quiet));
}

/// What lies there under a name that can be guessed may be a link of somebody else's.
#[test]
fn a_comparison_writes_nothing_into_the_directory_that_all_users_share() {
    let scratch = Scratch::new();
    let program =
        scratch.script("prog", "#!/bin/bash\necho '{\"type\":\"started\"}' >&$COMEM_CONTROL_FD\necho sum 7\n");
    let mut command = scratch.comem();
    command.env("TMPDIR", scratch.path("missing"));
    let output = finish(command.args(["compare", "--repeat", "1", "--engines", "msi", "--", &program]));
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let left = std::fs::read_dir(scratch.path("run")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("trial")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_comparison_that_is_ended_ends_the_job_under_way() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("held");
    let program = scratch.script("prog", &format!("#!/bin/bash\nexec 9>{fifo}; echo up >&9; exec sleep 1000\n"));
    let mut command = scratch.comem();
    command.args(["compare", "--", &program]).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let held = Held::open(&fifo);
    held.expect_lines(1);
    signal(child.id(), "TERM");
    wait(child);
    held.expect_all_gone();
}

#[test]
fn a_program_that_takes_no_part_has_no_engines_to_compare() {
    let scratch = Scratch::new();
    let output = comem(&scratch, &["compare", "--repeat", "1", "--", "echo", "7"]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(3), ""));
    assert!(err(&output).contains("the program has not joined the job"), "{}", err(&output));
}

#[test]
fn a_broken_reference_ends_the_comparison() {
    let scratch = Scratch::new();
    let failing = comem(&scratch, &["compare", "--", "false"]);
    assert_eq!(failing.status.code(), Some(3));
    assert!(err(&failing).contains("the reference run on 1 node failed"), "{}", err(&failing));
    let random = scratch.script("random", "#!/bin/bash\necho $RANDOM$RANDOM$RANDOM\n");
    let changing = comem(&scratch, &["compare", "--", &random]);
    assert_eq!(changing.status.code(), Some(3));
    assert!(err(&changing).contains("another time"), "{}", err(&changing));
}

#[test]
fn what_no_run_could_start_with_is_refused_before_the_first_one() {
    let scratch = Scratch::new();
    let program = scratch.script("prog", "#!/bin/sh\ntouch ran\necho sum 7\n");
    for (flags, code, part) in [
        (&["--flag=--cache=much"][..], 2, "invalid value 'much' for '--cache"),
        (&["--engines", "hlrc", "--flag=--engine=msi"], 2, "cannot be used multiple times"),
        (&["--engines", "msi,hlrc", "--detectors", "uffd,explicit"], 2, "does not go with"),
        (&["--flag=--slow=7=2x", "-n", "8"], 2, "no node 7 among 1"),
    ] {
        let output = comem(&scratch, &[&["compare"], flags, &["--", &program]].concat());
        assert_eq!(output.status.code(), Some(code), "{}", err(&output));
        assert!(err(&output).contains(part) && !err(&output).contains("reference"), "{}", err(&output));
        assert!(!scratch.path("ran").exists(), "{flags:?}");
    }
}

#[test]
fn where_node_0_prints_no_result_there_is_nothing_to_compare() {
    let scratch = Scratch::new();
    for body in ["exit 0", "echo result 7 >&2", "echo time_s=0.5 nodes=$COMEM_NODES"] {
        let program = scratch.script("prog", &format!("#!/bin/sh\n{body}\n"));
        let output = comem(&scratch, &["compare", "--repeat", "1", "--", &program]);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(3), ""), "{body}");
        let text = err(&output);
        assert!(text.contains("nothing to compare") && text.contains("node 0") && text.contains("checksum="), "{text}");
    }
}

#[test]
fn bad_input_gets_one_clear_line() {
    let scratch = Scratch::new();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["compare", "--engines", "hlrc,magic", "true"], 2, "unknown engine"),
        (&["compare", "--engines", "scope", "--detectors", "explicit", "true"], 2, "does not go with"),
        (&["compare", "--detectors", "page", "true"], 2, "unknown detector"),
        (&["compare", "--repeat", "0", "true"], 2, "--repeat"),
        (&["compare"], 2, "required"),
        (&["report"], 2, "required"),
        (&["bench", "net", "--backbones", "pigeon"], 2, "unknown backbone"),
        (&["bench", "net", "--reply", "--rounds", "9"], 2, "--rounds"),
        (&["bench", "brazos", "--programs", "fft"], 2, "sor, ilink, barnes, water, rays"),
        (&["bench", "brazos", "--workloads", "/nowhere"], 3, "no workloads"),
        (&["bench", "brazos", "--workloads", "run"], 3, "run/sor cannot be used"),
        (&["bench", "brazos", "-n", "0"], 2, "-n"),
        (&["bench", "nautilus", "--programs", "fft"], 2, "ep, lu, water, sor"),
        (&["bench", "nautilus", "--detector", "magic"], 2, "unknown detector"),
        (&["bench", "nautilus", "--workloads", "/nowhere"], 3, "no workloads"),
        (&["bench", "nautilus", "--workloads", "run"], 3, "run/ep cannot be used"),
    ];
    for (args, code, part) in cases {
        let output = comem(&scratch, args);
        let text = err(&output);
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {text}");
        assert!(text.starts_with("comem: ") && text.contains(part), "{args:?}: {text}");
        assert_eq!((text.lines().count(), out(&output).as_str()), (1, ""), "{args:?}: {text}");
    }
}

#[test]
fn the_network_is_measured_and_drawn() {
    let scratch = Scratch::new();
    let svg = scratch.text("net.svg");
    let output = comem(&scratch, &["bench", "net", "--rounds", "10", "--backbones", "udp", "--svg", &svg]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    assert!(text.contains("udp, block: us") && text.contains("udp, spin: us") && text.contains("64.0 KiB"), "{text}");
    assert_eq!(std::fs::read_to_string(&svg).unwrap().matches("<polyline").count(), 4);
}

#[test]
fn replies_of_each_size_are_measured() {
    let scratch = Scratch::new();
    let svg = scratch.text("reply.svg");
    let args = ["bench", "net", "--reply", "--rounds", "10", "--backbones", "udp,shm", "--svg", &svg];
    let output = comem(&scratch, &args);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("reply bytes") && lines[0].contains("shm, spin: us"), "{text}");
    let size = |line: &&str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let sizes: Vec<String> = lines[1..13].iter().map(size).collect();
    assert_eq!((sizes[0].as_str(), sizes[6].as_str(), sizes[11].as_str()), ("4 B", "4.0 KiB", "64.0 KiB"), "{text}");
    for line in &lines[1..13] {
        let numbers = line.split_whitespace().skip(2).map(|number| number.parse::<f64>().unwrap());
        assert!(numbers.clone().count() == 8 && numbers.clone().all(|number| number >= 0.0), "{line}");
    }
    assert!(lines[13].starts_with("us: a request of 20 bytes and its reply"), "{text}");
    assert_eq!(
        lines[14..18].iter().filter(|line| line.contains("half of the best throughput from")).count(),
        4,
        "{text}"
    );
    let picture = std::fs::read_to_string(&svg).unwrap();
    assert!(picture.matches("<polyline").count() == 8 && picture.contains("bytes of a reply"), "{picture}");
}

/// A program that says how many messages it sent by engine and threads, in place of a workload.
const COUNTS_BY_ENGINE: &str = r#"#!/bin/bash
case $COMEM_ENGINE in scope) m=10 ;; *) m=30 ;; esac
[ "$COMEM_THREADS" = 1 ] && m=60
stats='{"messages_sent":%d,"acks_sent":1,"bytes_sent":1%d}'
printf '{"type":"stats","stats":'"$stats"'}\n' $m $m >&$COMEM_CONTROL_FD
echo checksum=$2 $1 time_s=4
"#;

#[test]
fn the_programs_of_the_brazos_paper_stand_beside_its_figures() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("w")).unwrap();
    for program in ["sor", "rays"] {
        scratch.script(&format!("w/{program}"), COUNTS_BY_ENGINE);
        scratch.script(&format!("w/{program}-sequential"), "#!/bin/sh\necho checksum=small nodes=1 time_s=8\n");
    }
    let args =
        ["bench", "brazos", "-n", "2", "-t", "2", "--workloads", "w", "--programs", "sor,rays", "--preset", "small"];
    let output = comem(&scratch, &args);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let rows: Vec<String> = rows(&output);
    for row in [
        "sor sequential 8.00 s | 2048 x 2048",
        "sor hlrc 4.00 s 2.00 60 62 260 B",
        "sor lrc 4.00 s 2.00 60 62 260 B",
        "sor lrc, 1 thread 4.00 s 2.00 240 244 640 B",
        "sor scope 4.00 s 2.00 20 22 220 B",
        "sor | threads of one machine halve communication",
        "rays sequential 8.00 s | balls4",
        "rays hlrc 4.00 s 2.00 60 62 260 B",
        "rays scope 4.00 s 2.00 20 22 220 B",
        "rays | speed-up 1.64",
        "sor lrc, 1 thread lrc 4.00 2.46 | 2 (by half) 2 (by half)",
        "rays lrc hlrc 1.00 1.00 | 3.02 (202 %) 7.14 (614 %)",
        "rays lrc scope 3.00 1.18 | 3.02 (202 %) 7.14 (614 %)",
    ] {
        assert!(rows.iter().any(|line| line == row), "{row}: {rows:#?}");
    }
    assert!(!rows.iter().any(|row| row.starts_with("rays lrc, 1 thread")), "{rows:#?}");
}

#[test]
fn a_program_of_the_brazos_paper_that_says_something_else_is_an_error() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("w")).unwrap();
    scratch.script("w/rays", COUNTS_BY_ENGINE);
    scratch.script("w/rays-sequential", "#!/bin/sh\necho checksum=other time_s=8\n");
    let args = ["bench", "brazos", "-n", "2", "--workloads", "w", "--programs", "rays", "--preset", "small"];
    let output = comem(&scratch, &args);
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    assert!(err(&output).contains("rays scope: printed"), "{}", err(&output));
    assert!(rows(&output).iter().any(|row| row.starts_with("rays scope failed")), "{}", out(&output));
}

#[test]
fn programs_of_splash_that_are_not_built_are_named() {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.path("w")).unwrap();
    std::fs::create_dir_all(scratch.path("s/codes/apps/barnes")).unwrap();
    scratch.script("w/barnes", COUNTS_BY_ENGINE);
    scratch.script("w/barnes-sequential", "#!/bin/sh\necho checksum=small time_s=8\n");
    let args = [
        "bench",
        "brazos",
        "-n",
        "2",
        "-t",
        "2",
        "--workloads",
        "w",
        "--programs",
        "barnes",
        "--preset",
        "small",
        "--splash",
        "s",
    ];
    let output = comem(&scratch, &args);
    assert_eq!(output.status.code(), Some(3), "{}", out(&output));
    let text = err(&output);
    assert!(text.contains("s/codes/apps/barnes/./BARNES cannot be used") && text.contains("CC=comem-cc"), "{text}");
    // What it reads is the paper's number of bodies, and as many workers as there are threads.
    let barnes = "#!/bin/bash\n[ \"${COMEM_NODE:-0}\" = 0 ] && cat >read.${COMEM_NODES:-alone}\necho time_s=2\n";
    scratch.script("s/codes/apps/barnes/BARNES", barnes);
    let output = comem(&scratch, &args);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(rows(&output).iter().any(|row| row.starts_with("SPLASH barnes sequential 2.00 s")), "{}", out(&output));
    assert!(out(&output).contains("what SPLASH's own programs print is not compared"), "{}", out(&output));
    let read = |name: &str| std::fs::read_to_string(scratch.path(&format!("s/codes/apps/barnes/read.{name}"))).unwrap();
    assert!(read("2").starts_with("\n32768\n") && read("2").ends_with("\n4\n"), "{}", read("2"));
    assert!(read("alone").ends_with("\n1\n"), "{}", read("alone"));
}

#[test]
fn the_programs_of_the_nautilus_paper_stand_beside_its_figures() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("w")).unwrap();
    let body = "#!/bin/bash\n\
                echo \"{\\\"type\\\":\\\"stats\\\",\\\"stats\\\":{\\\"pages\\\":{\
                \\\"signals\\\":${COMEM_UNIT_PAGES}$COMEM_NODE,\\\"page_requests\\\":1$COMEM_NODE}}}\" \
                >&$COMEM_CONTROL_FD\n\
                echo checksum=$2 $1 time_s=4\n";
    scratch.script("w/sor", body);
    scratch.script("w/sor-sequential", "#!/bin/sh\necho checksum=small nodes=1 time_s=8\n");
    let args = ["bench", "nautilus", "-n", "2", "--workloads", "w", "--programs", "sor", "--preset", "small"];
    let output = comem(&scratch, &args);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let rows: Vec<String> = rows(&output);
    let sor = |variant: &str| rows.iter().find(|row| row.starts_with(&format!("sor {variant}"))).unwrap().clone();
    assert_eq!(sor("V4k"), "sor V4k 8.00 s 4.00 s 2.00 11 11 | 29.10 s 7.66 s 3.80 12,425 118");
    assert_eq!(sor("WD8k"), "sor WD8k 8.00 s 4.00 s 2.00 21 11 | 29.10 s 4.14 s 7.03 458 33");
    let footnote = out(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(footnote.contains("SG: page-fault signals, gp: page requests, of the node with the most"), "{footnote}");
}

#[test]
fn a_program_of_the_paper_that_prints_nothing_is_not_called_right() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("w")).unwrap();
    scratch.script("w/sor", "#!/bin/sh\nexit 0\n");
    scratch.script("w/sor-sequential", "#!/bin/sh\necho time_s=8\n");
    let output = comem(&scratch, &["bench", "nautilus", "-n", "2", "--workloads", "w", "--programs", "sor"]);
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    assert!(err(&output).contains("nothing to compare"), "{}", err(&output));
}

#[test]
fn what_comes_from_elsewhere_steers_neither_a_terminal_nor_a_spreadsheet() {
    let scratch = Scratch::new();
    let mut stats = stats();
    let evil = "\u{1b}]0;x\u{7}\u{9b}2J\u{202e}b\r\nc";
    for node in stats["nodes"].as_array_mut().unwrap() {
        node["host"] = json!(evil);
        let label = format!("=cmd|{evil}");
        node["regions"] = json!([{"label": label, "address": "0x10000", "bytes": 4096, "engine": evil, "faults": 1}]);
    }
    stats["command"] = json!([evil]);
    stats["failure"] = json!(evil);
    stats["backbone"] = json!(evil);
    stats["detector"] = json!(evil);
    let file = save(&scratch, "run.json", &stats);
    let svg = scratch.text("run.svg");
    for args in [&["report", &file][..], &["report", &file, &file], &["report", "--csv", &file, "--svg", &svg]] {
        let output = comem(&scratch, args);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let text = out(&output);
        assert!(!text.chars().any(|c| c != '\n' && comem::error::steers(c)), "{args:?}: {text:?}");
    }
    let csv = out(&comem(&scratch, &["report", "--csv", &file]));
    assert!(csv.contains(",region_faults,\"'=cmd|\\u{1b}]0;x"), "{csv}");
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(!drawn.chars().any(|c| c != '\n' && comem::error::steers(c)), "{drawn}");
    let missing = comem(&scratch, &["report", "no\u{1b}[31m\u{202e}where.json"]);
    assert!(!err(&missing).contains(['\u{1b}', '\u{202e}']), "{}", err(&missing));
}

#[test]
fn a_picture_gets_no_name_of_another_kind() {
    let scratch = Scratch::new();
    let file = save(&scratch, "run.json", &stats());
    for args in
        [&["report", file.as_str(), "--svg", "x.png"][..], &["bench", "net", "--rounds", "10", "--svg", "x.PDF"]]
    {
        let output = comem(&scratch, args);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{args:?}");
        assert!(err(&output).contains("is an SVG picture"), "{}", err(&output));
    }
    assert!(!scratch.path("x.png").exists() && !scratch.path("x.PDF").exists());
}
