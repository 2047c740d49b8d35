//! What the command line means, and what it refuses.

use super::*;
use comem_memory::pages::Detector;

fn refused(arguments: &[&str]) -> String {
    Cli::try_parse_from(arguments).unwrap_err().to_string()
}

#[test]
fn the_help_that_is_named_is_that_of_the_command() {
    for (first, due) in [(None, "comem"), (Some("--foo"), "comem"), (Some("report"), "comem report")] {
        assert_eq!(command_named(first.map(str::to_string)), due);
    }
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn the_backbone_is_said_to_emulate_what_it_lacks() {
    for (engine, backbone, nodes, emulated) in
        [("direct", "udp", 2, true), ("direct", "shm", 2, false), ("msi", "udp", 2, false), ("direct", "udp", 1, false)]
    {
        let arguments = ["comem", "run", "--engine", engine, "--backbone", backbone, "prog"];
        let Command::Run(run) = Cli::try_parse_from(arguments).unwrap().command else { panic!("run") };
        let mut node = run.node.clone();
        let words = node.settle_backbone(true, nodes, false);
        assert_eq!(words.contains("one-sided operations of the engine direct are emulated"), emulated, "{words}");
    }
}

#[test]
fn multicast_that_is_insisted_on_asks_for_a_network() {
    let node = |flags: &[&str]| {
        let arguments = [&["comem", "run"], flags, &["prog"]].concat();
        let Command::Run(run) = Cli::try_parse_from(arguments).unwrap().command else { panic!("run") };
        run.node
    };
    let insists = node(&["--multicast", "on"]);
    assert_eq!(insists.circumstances(true, 3, 1024).network, Some("--multicast on"));
    assert!(insists.check(true).is_ok());
    for mode in ["auto", "off", ""] {
        assert_eq!(node(&["--multicast", mode]).circumstances(true, 3, 1024).network, None);
        assert!(node(&["--multicast", mode, "--backbone", "shm"]).check(true).is_ok());
    }
    let refused = node(&["--multicast", "on", "--backbone", "shm"]).check(true).unwrap_err().to_string();
    assert!(refused.contains("--multicast on does not go with --backbone shm"), "{refused}");
}

#[test]
fn a_rehearsal_on_one_host_takes_what_runs_between_hosts() {
    let parse = |flags: &[&str]| {
        let words = ["comem", "run", "--rehearse"].iter().chain(flags).chain(&["prog"]);
        let Command::Run(run) = Cli::try_parse_from(words).unwrap().command else { panic!("run") };
        run.node
    };
    let mut node = parse(&[]);
    let words = node.settle_backbone(true, 2, false);
    assert_eq!(
        (words.as_str(), node.backbone),
        ("udp (--rehearse: as between hosts)", BackboneChoice::Named(Backbone::Udp))
    );
    assert_eq!([true, false].map(|one_host| node.mtu_told(one_host)), ["1500", ""]);
    assert_eq!(parse(&["--mtu", "9000"]).mtu_told(true), "9000");
    for (flags, other) in
        [(["--engine", "hardware"], "no --engine hardware"), (["--backbone", "shm"], "no --backbone shm")]
    {
        let refused = parse(&flags).check(true).unwrap_err().to_string();
        assert!(refused.contains(other), "{refused}");
    }
    assert!(parse(&["--engine", "msi"]).check(true).is_ok());
}

#[test]
fn one_memory_for_all_nodes_is_refused_between_hosts() {
    let Command::Run(run) = Cli::try_parse_from(["comem", "run", "--engine", "hardware", "prog"]).unwrap().command
    else {
        panic!("run")
    };
    assert!(run.node.check(true).is_ok());
    assert!(run.node.check(false).unwrap_err().to_string().contains("processes of one host alone"));
}

#[test]
fn a_program_keeps_its_own_flags() {
    let cli = Cli::try_parse_from(["comem", "run", "-n", "4", "prog", "-n", "7", "--engine"]).unwrap();
    let Command::Run(run) = cli.command else { panic!("run") };
    assert_eq!(run.nodes, Some(4));
    assert_eq!(run.command, ["prog", "-n", "7", "--engine"].map(OsString::from));
}

#[test]
fn the_wrapper_is_on_unless_a_flag_turns_it_off() {
    for (flags, on) in [
        (&[][..], true),
        (&["--no-wrap"][..], false),
        (&["--wrap", "off"][..], false),
        (&["--no-wrap", "--wrap", "on"][..], true),
    ] {
        let words = ["comem", "run"].iter().chain(flags).chain(&["prog"]);
        let Command::Run(run) = Cli::try_parse_from(words).unwrap().command else { panic!("run") };
        assert_eq!(run.node.wrap(), on, "{flags:?}");
    }
}

#[test]
fn numbers_and_names_out_of_range_are_refused_with_the_range() {
    for (flag, value, part) in [
        ("-n", "0", "at least one node"),
        ("-n", "1025", "at most 1024 nodes"),
        ("-n", "x", "from 1 to 1024"),
        ("-t", "257", "at most 256 threads"),
        ("--engine", "magic", "owner, broadcast, msi and direct"),
        ("--backbone", "ucx", "this version has udp and shm; --one-sided ucx"),
        ("--detector", "page", "uffd-async, uffd and mprotect"),
        ("--cache", "much", "64M"),
        ("--diffs", "few", "64M"),
        ("--diffs", "0", "64M"),
        ("--cache", "120%", "100%"),
        ("--heap", "50%", "expected a size"),
        ("--unit-pages", "3", "power of two"),
        ("--migration", "yes", "on or off"),
        ("--globals", "both", "copy or share"),
        ("--tuning", "pages.pusch=off", "was pages.push meant?"),
        ("--gdb-server", "1234", "--gdb"),
        ("--gdb-server", "0", "from 1 to 65535"),
        ("--gdb", "x", "the number of a node, from 0 to 1023"),
        ("--cache", "0", "a positive size, such as 64M, or a share such as 50%"),
        ("--ports", "9-3", "FIRST-LAST"),
        ("--mtu", "575", "from 576 to 65535"),
        ("--mtu", "small", "from 576 to 65535"),
        ("--auth", "maybe", "on or off"),
        ("--multicast", "maybe", "auto, on or off"),
        ("--node-timeout", "0s", "positive time"),
        ("--prog-id", "70000", "70000"),
    ] {
        let text = refused(&["comem", "run", flag, value, "prog"]);
        assert!(text.contains(part), "{flag} {value}: {text}");
    }
}

#[test]
fn the_help_names_every_engine_and_detector_and_has_no_broken_lines() {
    let cli = Cli::command();
    let run = cli.find_subcommand("run").unwrap();
    let help = |id: &str| {
        let argument = run.get_arguments().find(|argument| argument.get_id() == id).unwrap();
        argument.get_help().unwrap().to_string()
    };
    for engine in EngineChoice::listed() {
        assert!(help("engine").contains(engine.name), "{}: {}", engine.name, help("engine"));
    }
    for detector in
        Detector::ALL.map(Detector::name).into_iter().chain([crate::choice::INLINE, crate::choice::EXPLICIT])
    {
        assert!(help("detector").contains(detector), "{detector}: {}", help("detector"));
    }
    for argument in run.get_arguments() {
        let text = argument.get_help().map(ToString::to_string).unwrap_or_default();
        assert!(!text.contains('\n'), "a line of its own: {text}");
    }
}

#[test]
fn every_flag_and_variable_of_run_is_described() {
    let page = include_str!("../../docs/running.md");
    let cli = Cli::command();
    for argument in cli.find_subcommand("run").unwrap().get_arguments().filter(|argument| !argument.is_hide_set()) {
        let (flag, variable) = (argument.get_long(), argument.get_env().and_then(|name| name.to_str()));
        assert_eq!(variable.is_some(), flag.is_some() && flag != Some("no-wrap"), "{flag:?} has {variable:?}");
        let (Some(flag), Some(variable)) = (flag, variable) else { continue };
        // `-n` and `-t` are known by their letters.
        let named = page.contains(&format!("`--{flag}")) || argument.get_short().is_some();
        assert!(named && page.contains(&format!("`{variable}`")), "--{flag}, {variable}: not in docs/running.md");
    }
}

#[test]
fn within_a_node_its_jobs_own_variables_are_nobodys_choice() {
    let names = |list: &[(&str, &str)]| {
        let names = not_meant(list.iter().map(|(name, value)| (name.into(), value.into())));
        names.into_iter().map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    let job = [("COMEM_NODES", "4"), ("COMEM_PROG_ID", "7"), ("COMEM_ENGINE", "msi"), ("COMEM_PORTS", ""), ("X", "")];
    assert_eq!(names(&job), ["COMEM_PORTS"], "somebody's own choices");
    let node = [&job[..], &[("COMEM_NODE", "0"), ("COMEM_STATS", "f"), ("COMEM_BACKBONE", "shm")]].concat();
    assert_eq!(names(&node), ["COMEM_NODES", "COMEM_PROG_ID", "COMEM_PORTS", "COMEM_STATS", "COMEM_BACKBONE"]);
}

#[test]
fn slow_nodes_are_named() {
    let entries = |list: &[&str]| list.iter().map(|e| e.to_string()).collect::<Vec<_>>();
    assert_eq!(slow_factors(&entries(&["2=3x", "0=1.5"]), 3).unwrap(), [1.5, 1.0, 3.0]);
    assert_eq!(slow_factors(&entries(&["2x"]), 2).unwrap(), [2.0, 2.0]);
    for wrong in ["3=2x", "0=0.5x", "0=x", "a=2x"] {
        assert!(slow_factors(&entries(&[wrong]), 3).is_err(), "{wrong}");
    }
}
