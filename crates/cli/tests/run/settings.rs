//! What is chosen on the command line and in the environment, and reaches the nodes.

use super::common::{Scratch, err, finish, out, sorted};
use std::process::Command;

#[test]
fn bad_input_gets_one_clear_line() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("data"), "no program").unwrap();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["-n", "0", "true"], 2, "at least one node"),
        (&["-n", "1025", "true"], 2, "at most 1024 nodes"),
        (&["-t", "257", "true"], 2, "at most 256 threads"),
        (&["--engine", "magic", "true"], 2, "unknown engine"),
        (&["--backbone", "pigeon", "true"], 2, "unknown backbone"),
        (&["--detector", "page", "true"], 2, "unknown detector"),
        (&["--engine", "hlrc", "--detector", "explicit", "true"], 2, "engine hlrc does not go with detector explicit"),
        (&["--cache", "much", "true"], 2, "64M"),
        (&["--heap", "0", "true"], 2, "64M"),
        (&["--heap", "64M", "true"], 2, "from 256M to 16T"),
        (&["--unit-pages", "3", "true"], 2, "power of two"),
        (&["--prefetch", "maybe", "true"], 2, "on or off"),
        (&["--lock-turns", "maybe", "true"], 2, "on or off"),
        (&["--locks", "some", "true"], 2, "auto, tokens or one-sided"),
        (&["--backbone", "shm", "--hosts", "a,b", "true"], 2, "one host"),
        (&["--gdb", "0", "true"], 2, "needs a terminal"),
        (&["--gdb", "2", "-n", "2", "true"], 2, "no node 2"),
        (&["--faults", "drop=200%", "true"], 2, "--faults"),
        (&["--faults", "corrupt=1%", "--auth", "off", "true"], 2, "does not go with --auth off"),
        (&["--ports", "5-3", "true"], 2, "FIRST-LAST"),
        (&["--hosts", "a:0", "true"], 2, "is no number of nodes"),
        (&["--hosts", "a,,b", "true"], 2, "names no host"),
        (&["-n", "5", "--hosts", "a:2,b:2", "true"], 2, "room for 4"),
        (&["--slow", "7=2x", "-n", "2", "true"], 2, "no node 7"),
        (&["--env", "NOT_SET_ANYWHERE", "true"], 2, "not set here"),
        (&["--env", "COMEM_NODE=1", "true"], 2, "cannot be passed on"),
        (&["--env", "COMEM_MTU=1300", "true"], 2, "use --mtu"),
        (&["--mtu", "100", "true"], 2, "from 576 to 65535"),
        (&["no-such-program"], 3, "not found"),
        (&["./no-such-program"], 3, "not found"),
        (&["./data"], 3, "not executable"),
        (&["."], 3, "is not found"),
        (&["./run"], 3, "is a directory"),
        (&[], 2, "required arguments"),
        (&["--no-such-flag"], 2, "unexpected argument"),
    ];
    for (args, code, part) in cases {
        let output = scratch.run(args);
        let text = err(&output);
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {text}");
        assert!(text.starts_with("comem: ") && text.contains(part), "{args:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
        assert_eq!(out(&output), "", "{args:?}");
    }
}

#[test]
fn a_dry_run_shows_what_was_resolved_and_starts_nothing() {
    let scratch = Scratch::new();
    let args = ["--dry-run", "--hosts", "a:2,localhost", "--slow", "2=3x", "touch", "made"];
    let output = scratch.run(&args);
    let text = out(&output);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    for part in
        ["host       a (by remote shell, 2 nodes)", "localhost (this host, 1 node)", "COMEM_SLOW=3x", "touch made"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("datagrams authenticated") && text.contains("COMEM_AUTH=on"), "{text}");
    assert!(!scratch.path("made").exists());
}

#[test]
fn all_nodes_have_one_seed_of_pythons_hashes_which_the_statistics_keep() {
    let scratch = Scratch::new();
    let show = ["--no-prefix", "-n", "3", "--stats", "stats.json", "sh", "-c", "echo $PYTHONHASHSEED"];
    let seeds = |command: &mut Command| {
        let output = finish(command);
        let (lines, stats) = (sorted(&out(&output)), std::fs::read(scratch.path("stats.json")).unwrap());
        let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
        assert!(lines.len() == 3 && lines[0] == lines[2], "{lines:?} {}", err(&output));
        assert_eq!(stats["python_hash_seed"], lines[0].as_str());
        lines[0].clone()
    };
    let job = || seeds(scratch.comem().env_remove("PYTHONHASHSEED").arg("run").args(show));
    let (first, second) = (job(), job());
    assert!(first.parse::<u32>().is_ok() && second.parse::<u32>().is_ok(), "{first} {second}");
    assert_ne!(first, second, "another one in each job");
    for wish in ["7", "random"] {
        assert_eq!(seeds(scratch.comem().env("PYTHONHASHSEED", wish).arg("run").args(show)), wish);
    }
    let mut named = scratch.comem();
    named.env("PYTHONHASHSEED", "7").args(["run", "--env", "PYTHONHASHSEED=8"]).args(show);
    assert_eq!(seeds(&mut named), "8");
    let dry = |command: &mut Command| out(&finish(command.args(["run", "--dry-run", "--hosts", "a,b", "true"])));
    let drawn = dry(scratch.comem().env("PYTHONHASHSEED", ""));
    assert_eq!(drawn.matches("PYTHONHASHSEED=(a random number)").count(), 2, "{drawn}");
    assert_eq!(dry(scratch.comem().env("PYTHONHASHSEED", "9")).matches("PYTHONHASHSEED=9").count(), 2);
}

#[test]
fn every_job_is_authenticated_unless_somebody_says_otherwise() {
    let scratch = Scratch::new();
    let shown = |more: &[&str], variables: &[(&str, &str)]| {
        let mut command = scratch.comem();
        command.args(["run", "-n", "2", "--dry-run"]).args(more).arg("true").envs(variables.iter().copied());
        let text = out(&finish(&mut command));
        assert_eq!(text.contains("datagrams authenticated"), text.contains("COMEM_AUTH=on "), "{text}");
        text.contains("COMEM_AUTH=on ")
    };
    assert!(shown(&[], &[]) && shown(&["--backbone", "udp"], &[]) && shown(&["--hosts", "a,b"], &[]));
    assert!(shown(&["--faults", "truncate=1%"], &[]) && shown(&[], &[("COMEM_FAULTS", "drop=5%")]));
    assert!(!shown(&["--auth", "off"], &[]) && !shown(&[], &[("COMEM_AUTH", "off")]));
    assert!(shown(&["--auth", "on"], &[("COMEM_AUTH", "off")]), "the flag wins");
}

#[test]
fn nodes_that_find_each_other_need_a_key_that_all_have() {
    let scratch = Scratch::new();
    let discover = |more: &[&str]| scratch.run(&[&["--discover", "-n", "2", "--dry-run"], more, &["true"]].concat());
    let without = discover(&[]);
    assert_eq!(without.status.code(), Some(3));
    let said = err(&without);
    assert!(
        said.contains("--discover needs a key") && said.contains("--auth off") && said.lines().count() == 1,
        "{said}"
    );
    assert!(out(&discover(&["--auth", "off"])).contains("COMEM_AUTH=off"));
    assert!(scratch.comem().args(["daemon", "make-key", "named"]).status().unwrap().success());
    assert!(out(&discover(&["--key-file", "named"])).contains("COMEM_AUTH=on"));
    assert!(scratch.comem().args(["daemon", "make-key", ".config/comem/key"]).status().unwrap().success());
    assert!(out(&discover(&[])).contains("COMEM_AUTH=on"), "the usual file serves too");
}

#[test]
fn what_is_no_file_hangs_nobody_where_a_key_file_is_meant() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("fifo");
    std::fs::create_dir(scratch.path("directory")).unwrap();
    std::fs::write(scratch.path("huge"), vec![b'k'; 100_000]).unwrap();
    std::fs::set_permissions(scratch.path("huge"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let directory = scratch.text("directory");
    let huge = scratch.text("huge");
    let commands: [&[&str]; 4] = [
        &["run", "--launch", "daemon", "--hosts", "127.0.0.1", "--key-file"],
        &["run", "--discover", "-n", "2", "--key-file"],
        &["daemon", "--allow", ".", "--port", "0", "--key-file"],
        &["daemon", "list", "--key-file"],
    ];
    let files = [
        (fifo.as_str(), "is a FIFO, and no file"),
        (&directory, "is a directory, and no file"),
        ("/dev/zero", "is a device, and no file"),
        (&huge, "has 100000 bytes"),
    ];
    for words in commands {
        for (file, why) in files {
            let mut command = scratch.comem();
            command.args(words).arg(file);
            if words[0] == "run" {
                command.arg("true");
            }
            let output = finish(&mut command);
            assert_eq!(output.status.code(), Some(3), "{words:?} {file}: {}", err(&output));
            assert!(err(&output).contains(&format!("the key file {file} {why}")), "{words:?}: {}", err(&output));
        }
    }
}

#[test]
fn cores_of_their_own_are_shown_and_reach_the_nodes() {
    let scratch = Scratch::new();
    let too_many = (comem::capacity::cores() * 2 + 1).to_string();
    let one = scratch.run(&["--dry-run", "--bind", "cores", "true"]);
    assert!(out(&one).contains("\ncores      node 0 on ") && out(&one).contains("COMEM_BIND=cores"), "{}", out(&one));
    let many = scratch.run(&["--dry-run", "-n", &too_many, "--bind", "cores", "true"]);
    assert!(
        out(&many).contains(&format!("\ncores      none of their own: {too_many} nodes of 1 threads")),
        "{}",
        out(&many)
    );
    assert!(!out(&scratch.run(&["--dry-run", "true"])).contains("\ncores"));
    let show = "echo $COMEM_BIND $COMEM_HOST_PLACE";
    let mut command = scratch.comem();
    let output = finish(command.env("COMEM_BIND", "cores").args(["run", "-n", "2", "--no-prefix", "sh", "-c", show]));
    assert_eq!(sorted(&out(&output)), ["cores 0", "cores 1"]);
    let output = scratch.run(&["-n", "2", "--no-prefix", "sh", "-c", show]);
    assert_eq!(sorted(&out(&output)), ["auto 0", "auto 1"]);
    let wrong = scratch.run(&["--bind", "core", "true"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", err(&wrong));
    assert!(err(&wrong).contains("expected auto, off or cores"), "{}", err(&wrong));
}

#[test]
fn choices_about_pages_reach_the_nodes() {
    let scratch = Scratch::new();
    let show = "echo e=$COMEM_ENGINE d=$COMEM_DETECTOR c=$COMEM_CACHE f=$COMEM_DIFFS h=$COMEM_HEAP u=$COMEM_UNIT_PAGES \
                w=$COMEM_WRITE_DETECTION m=$COMEM_MIGRATION p=$COMEM_PREFETCH l=$COMEM_LOCK_TURNS k=$COMEM_LOCKS \
                g=$COMEM_GLOBALS b=$COMEM_BACKBONE";
    let flags = ["--engine", "scope", "--detector", "uffd", "--cache", "50%", "--heap", "2G", "--unit-pages", "4"];
    let more = [
        "--diffs",
        "16M",
        "--write-detection",
        "off",
        "--migration",
        "on",
        "--prefetch",
        "off",
        "--lock-turns",
        "off",
        "--locks",
        "tokens",
        "--globals",
        "share",
        "--backbone",
        "shm",
    ];
    let chosen = scratch.run(&[&flags[..], &more, &["--no-prefix", "sh", "-c", show]].concat());
    assert_eq!(
        out(&chosen),
        "e=scope d=uffd c=50% f=16M h=2G u=4 w=off m=on p=off l=off k=tokens g=share b=shm\n",
        "{}",
        err(&chosen)
    );
    // A flag wins over its variable, a variable over nothing.
    let mut command = scratch.comem();
    command.env("COMEM_CACHE", "1G").env("COMEM_HEAP", "3G").env("COMEM_ENGINE", "");
    let mixed = finish(command.args(["run", "--cache", "64M", "--no-prefix", "sh", "-c", show]));
    assert_eq!(out(&mixed), "e= d= c=64M f= h=3G u= w= m= p= l= k= g= b=shm\n", "{}", err(&mixed));
    let dry = scratch.run(&[&["--dry-run"], &flags[..], &more, &["true"]].concat());
    assert!(out(&dry).contains("COMEM_UNIT_PAGES=4") && out(&dry).contains("COMEM_GLOBALS=share"), "{}", out(&dry));
    assert!(out(&dry).contains("COMEM_DETECTOR=uffd"), "{}", out(&dry));
}

#[test]
fn numbers_reach_all_nodes_and_nonsense_is_refused() {
    let scratch = Scratch::new();
    let show = ["-n", "2", "--no-prefix", "sh", "-c", "echo $COMEM_TUNING"];
    let with = |value: &str| finish(scratch.comem().env("COMEM_TUNING", value).arg("run").args(show));
    let chosen = with("pages.push=off,locks.turn_us=7");
    assert_eq!(out(&chosen), "pages.push=off,locks.turn_us=7\n".repeat(2), "{}", err(&chosen));
    for (value, words) in [
        ("pages.pusch=off", "there is no number pages.pusch; was pages.push meant?"),
        ("magic=1", "names begin with one of pages, homes"),
        ("pages.push_after=99", "pages.push_after may be 1 to 31, not"),
        ("pages.push=off,pages.push=off", "stands there twice"),
        ("rubbish", "is not of the form name=value"),
    ] {
        let refused = with(value);
        assert_eq!((refused.status.code(), out(&refused).as_str()), (Some(2), ""), "{}", err(&refused));
        assert!(err(&refused).contains(words) && err(&refused).lines().count() == 1, "{}", err(&refused));
    }
}

/// What a job that was told this takes, in the words of a dry run, and what it says on standard error.
fn backbone_taken(shell: &str, variables: &[(&str, &str)]) -> (String, String) {
    taken("backbone", shell, variables)
}

/// As [`backbone_taken`], of the line that begins with this word.
fn taken(what: &str, shell: &str, variables: &[(&str, &str)]) -> (String, String) {
    let scratch = Scratch::new();
    let mut command = Command::new("sh");
    let own = scratch.comem();
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.envs(variables.iter().copied());
    let output = finish(command.args(["-c", shell, "sh"]).arg(own.get_program()).current_dir(&scratch.0));
    let words = |line: &str| line.strip_prefix(what)?.strip_prefix(' ').map(|rest| rest.trim().to_string());
    let line = |text: &str| text.lines().find_map(words);
    (line(&out(&output)).unwrap_or_else(|| out(&output)), err(&output))
}

#[test]
fn the_nodes_of_one_host_share_memory_unless_a_network_is_asked_for() {
    let taken = |flags: &str, variables: &[_]| {
        backbone_taken(&format!("\"$1\" run -n 3 {flags} --dry-run -- /bin/true"), variables).0
    };
    assert_eq!(taken("", &[]), "shm (all nodes are on this host)");
    assert_eq!(taken("--hosts localhost:3", &[]), "shm (all nodes are on this host)");
    assert_eq!(taken("--backbone auto", &[("COMEM_BACKBONE", "udp")]), "shm (all nodes are on this host)");
    assert_eq!(taken("", &[("COMEM_BACKBONE", "udp")]), "udp (as it was named)");
    assert_eq!(taken("--backbone shm --faults drop=1%", &[]), "shm (as it was named)");
    // Tags are no wish for a network: datagrams have them over both.
    assert_eq!(taken("--auth on", &[]), "shm (all nodes are on this host)");
    for flags in ["--faults drop=1%", "--iface lo", "--ports 9000-9100"] {
        assert!(taken(flags, &[]).starts_with("udp (--"), "{flags}: {}", taken(flags, &[]));
    }
    for (name, flag, value) in [("COMEM_CAPTURE", "--capture", "job.pcap"), ("COMEM_MTU", "--mtu", "1500")] {
        assert_eq!(taken("", &[(name, value)]), format!("udp ({flag} asks for a network)"));
        assert_eq!(taken(&format!("{flag} {value}"), &[]), format!("udp ({flag} asks for a network)"));
    }
    assert_eq!(taken("--hosts localhost:2,b:1", &[]), "udp (nodes may be on several hosts)");
    assert_eq!(taken("--hosts b:3", &[]), "auto (found out on host b)");
}

#[test]
fn the_nodes_of_one_host_map_one_memory_unless_a_protocol_is_asked_for() {
    let pages = |flags: &str, variables: &[_]| {
        taken("pages", &format!("\"$1\" run -n 3 {flags} --dry-run -- /bin/true"), variables).0
    };
    let one_memory = "hardware (all nodes are on one host and map one memory)";
    for flags in ["", "--backbone shm", "--hosts localhost:3", "--locks tokens", "--heap 1G", "--globals share", "-t 2"]
    {
        assert_eq!(pages(flags, &[]), one_memory, "{flags}");
    }
    assert_eq!(pages("", &[("COMEM_ENGINE", ""), ("COMEM_REHEARSE", "off")]), one_memory);
    for engine in ["hlrc", "scope", "lrc", "msi", "hardware"] {
        let named = format!("{engine} (as it was named)");
        assert_eq!(pages(&format!("--engine {engine}"), &[]), named);
        assert_eq!(pages("", &[("COMEM_ENGINE", engine)]), named);
    }
    assert_eq!(pages("--engine owner", &[]), "hlrc (as it was named)");
    for (flags, asks) in [
        ("--rehearse", "--rehearse"),
        ("--detector mprotect", "--detector"),
        ("--cache 64M", "--cache"),
        ("--unit-pages 2", "--unit-pages"),
        ("--write-detection off", "--write-detection"),
        ("--migration off", "--migration"),
        ("--prefetch off", "--prefetch"),
        ("--tuning pages.push=off", "--tuning"),
    ] {
        assert_eq!(pages(flags, &[]), format!("hlrc ({asks} asks for a protocol)"));
    }
    assert_eq!(pages("", &[("COMEM_REHEARSE", "yes")]), "hlrc (--rehearse asks for a protocol)");
    for flags in ["--backbone udp", "--faults drop=1%", "--iface lo", "--ports 9000-9100", "--mtu 1500"] {
        assert_eq!(pages(flags, &[]), "hlrc (the backbone is a network)", "{flags}");
    }
    assert_eq!(pages("--hosts localhost:2,b:1", &[]), "hlrc (nodes may be on several hosts)");
    assert_eq!(pages("--hosts b:3", &[]), "auto (found out on host b)");
    assert_eq!(pages("--rehearse --hosts b:3", &[]), "hlrc (--rehearse asks for a protocol)");
    let alone = taken("pages", "\"$1\" run -n 1 --dry-run -- /bin/true", &[]).0;
    assert!(!alone.contains("asks for") && !alone.contains("hardware"), "nothing is to be chosen: {alone}");
}

#[test]
fn a_rehearsal_chooses_on_one_host_what_two_hosts_would_have() {
    let scratch = Scratch::new();
    let shown = |flags: &[&str]| {
        let text = out(&scratch.run(&[flags, &["-n", "2", "--dry-run", "true"]].concat()));
        let first = |what: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(what)).expect("it is shown");
            line.split_whitespace().next().expect("a name").to_string()
        };
        (first("backbone"), first("pages"), text.contains("COMEM_REHEARSE=on"))
    };
    let (between, rehearsed) = (shown(&["--hosts", "localhost,b"]), shown(&["--rehearse"]));
    assert_eq!((between.0.as_str(), between.1.as_str()), ("udp", "hlrc"));
    assert_eq!(between, (rehearsed.0, rehearsed.1, !rehearsed.2));
    let show = "echo $COMEM_REHEARSE $COMEM_BACKBONE $COMEM_MTU";
    let output = scratch.run(&["-n", "2", "--rehearse", "--stats", "s.json", "--no-prefix", "sh", "-c", show]);
    assert_eq!(out(&output), "on udp 1500\n".repeat(2), "{}", err(&output));
    let stats = super::common::json(&scratch.path("s.json"));
    assert_eq!((&stats["rehearse"], &stats["page_engine"]), (&true.into(), &"hlrc".into()));
    let output = scratch.run(&["-n", "2", "--stats", "s.json", "true"]);
    assert!(output.status.success(), "{}", err(&output));
    let stats = super::common::json(&scratch.path("s.json"));
    assert_eq!((&stats["rehearse"], &stats["page_engine"]), (&serde_json::Value::Null, &"hardware".into()));
}

#[test]
fn where_memory_cannot_be_shared_the_job_runs_over_udp_and_says_why() {
    let show = "run -n 2 --no-prefix -- sh -c 'echo backbone $COMEM_BACKBONE'";
    for (limit, why) in [("ulimit -f 100", "ulimit -f"), ("ulimit -Sn 120", "descriptors")] {
        let (backbone, said) = backbone_taken(&format!("{limit}; \"$1\" {show}"), &[]);
        assert_eq!(backbone, "udp", "{limit}: {said}");
        let expected = said.lines().count() == 1 && said.contains("shared memory cannot be had") && said.contains(why);
        assert!(expected, "{limit}: {said}");
    }
    let (backbone, said) = backbone_taken(&format!("\"$1\" {show}"), &[]);
    assert_eq!((backbone.as_str(), said.as_str()), ("shm", ""));
}

/// What a node is told about its cores, those that it may use, and its niceness.
const PLACED: &str = "echo $COMEM_NODE $COMEM_BIND $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status) \
                      $(nice)";

#[test]
fn nodes_run_on_the_cores_that_the_map_gives_them() {
    let scratch = Scratch::new();
    let all = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let all = all.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_string();
    let last = all.rsplit([',', '-']).next().unwrap();
    let placed = |args: &[&str]| scratch.run(&[args, &["--no-prefix", "sh", "-c", PLACED]].concat());
    let shown = |args: &[&str]| {
        let output = placed(args);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let text = out(&output);
        sorted(&text).iter().map(|line| line.rsplit_once(' ').unwrap().0.to_string()).collect::<Vec<_>>()
    };
    let map = format!("1:{last}");
    assert_eq!(shown(&["-n", "2", "--bind", &map]), [format!("0 off {all}"), format!("1 given {last}")]);
    assert_eq!(shown(&["-n", "1", "--bind", "auto"]), [format!("0 auto {all}")]);
    let dry = scratch.run(&["-n", "2", "--bind", &map, "--dry-run", "true"]);
    assert!(out(&dry).contains(&format!("cores      node 1 on {last}\n")), "{}", out(&dry));
    // A job within a node has the node's cores, and no map of its own.
    let inner = format!("{} run --no-prefix sh -c '{}'", super::bin(), PLACED.replace('\'', "'\\''"));
    let within = scratch.run(&["-n", "1", "--bind", &format!("0:{last}"), "--no-prefix", "sh", "-c", &inner]);
    assert!(out(&within).starts_with(&format!("0 auto {last} ")), "{} {}", out(&within), err(&within));
    for (map, status, why) in [
        ("2:0", 2, "names node 2, and the job has 2"),
        ("0:x", 2, "expected a core"),
        ("0:1023", 3, "core 1023, which --bind names, is none that this job may use"),
    ] {
        let refused = placed(&["-n", "2", "--bind", map]);
        assert_eq!(refused.status.code(), Some(status), "{}", err(&refused));
        assert!(err(&refused).contains(why) && out(&refused).is_empty(), "{}", err(&refused));
    }
}

#[test]
fn nodes_are_as_nice_as_is_asked_for_once() {
    let scratch = Scratch::new();
    let niceness = |command: &mut Command| -> i32 {
        let output = finish(command);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output).trim().parse().unwrap()
    };
    let own = niceness(&mut scratch.command("nice"));
    let asked = |args: &[&str]| niceness(scratch.comem().arg("run").args(args));
    assert_eq!(asked(&["--no-prefix", "nice"]), own);
    assert_eq!(asked(&["--nice", "7", "--no-prefix", "nice"]), (own + 7).min(19));
    assert_eq!(asked(&["--nice", "40", "--no-prefix", "nice"]), 19);
    let inner = [super::bin(), "run", "--no-prefix", "nice"];
    let mut outer = scratch.comem();
    outer.args(["run", "--no-prefix"]).args(inner).env("COMEM_NICE", "3");
    assert_eq!(niceness(&mut outer), (own + 3).min(19), "a job within a node adds nothing of its own");
    // SAFETY: the call takes nothing and touches no memory.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIP: only root can be somebody who may not be less nice");
        return;
    }
    let own_directory = format!("/tmp/comem-test-nice-{}", std::process::id());
    let mut command = scratch.comem();
    command.args(["run", "--nice", "-5", "true"]).env("COMEM_RUNTIME_DIR", &own_directory).current_dir("/");
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    match command.spawn().map(super::wait) {
        Err(why) => println!("SKIP: another user cannot run the command: {why}"),
        Ok(refused) => {
            assert_eq!(refused.status.code(), Some(3), "{}", err(&refused));
            assert!(err(&refused).contains("priority over others (--nice -5)"), "{}", err(&refused));
            std::fs::remove_dir_all(own_directory).unwrap();
        }
    }
}
