//! `comem run --history`, with scripts in place of nodes: what they are told, what is written, and what is not.

use crate::common::{Scratch, err, finish, out, sorted};
use comem_protocol::coherence::node_set::NodeSet;
use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::coherence::pages::multicast::history::{Choice, History, Identity, Variable};
use comem_protocol::coherence::pages::multicast::placement::Placement;
use comem_protocol::ids::NodeId;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Output;

/// A node that prints what it is told of earlier runs. Node 0 tells what the job has arrived at.
const NODE: &str = r#"#!/bin/bash
say() { echo "$1" >&$COMEM_CONTROL_FD; }
say '{"type":"started"}'
read -r line <&$COMEM_CONTROL_FD
case $line in
*'"history":'*) echo "told ${line##*\"history\":}";;
*) echo "told nothing";;
esac
if [ $COMEM_NODE = 0 ]; then say '{"type":"history","text":'"$TOLD"'}'; fi
say '{"type":"finished"}'
exit ${STATUS:-0}
"#;

/// A history of one variable.
fn history(name: &str, epochs: u32) -> History {
    let identity = Identity { program: [7; 32], nodes: 2, threads: 1, engine: PageEngine::Multicast };
    let placement = Placement { manager: NodeId(1), is_homed: true };
    let choice = Choice { placement, is_early: true, members: NodeSet::new(), epochs };
    let variable = Variable { name: name.to_string(), region_pages: 8, offset: 0, pages: 8, unit_pages: 1, choice };
    History { identity, variables: vec![variable] }
}

fn json(history: &History) -> String {
    serde_json::to_string(&history.encode()).unwrap()
}

/// Runs a job of two nodes, which arrives at this.
fn run(scratch: &Scratch, args: &[&str], arrives_at: &History, status: &str) -> Output {
    let node = scratch.script("node", NODE);
    let mut command = scratch.comem();
    command.env("TOLD", json(arrives_at)).env("STATUS", status).env("XDG_STATE_HOME", scratch.path("state"));
    finish(command.args(["run", "-n", "2", "--no-prefix"]).args(args).arg(node))
}

const MULTICAST: [&str; 2] = ["--engine", "multicast"];

fn in_file(scratch: &Scratch, arrives_at: &History) -> Output {
    run(scratch, &[&MULTICAST[..], &["--history", "file"]].concat(), arrives_at, "0")
}

/// What stands in the file.
fn kept(scratch: &Scratch) -> String {
    std::fs::read_to_string(scratch.path("file")).unwrap()
}

#[test]
fn every_node_is_told_what_the_last_run_arrived_at() {
    let scratch = Scratch::new();
    let first = in_file(&scratch, &history("grid", 4));
    assert_eq!((first.status.code(), &*err(&first)), (Some(0), ""));
    assert_eq!(sorted(&out(&first)), ["told \"\"}"; 2], "nothing is known yet");
    assert_eq!(kept(&scratch), history("grid", 4).encode());
    let second = in_file(&scratch, &history("rows", 8));
    assert_eq!((second.status.code(), &*err(&second)), (Some(0), ""));
    assert_eq!(sorted(&out(&second)), vec![format!("told {}}}", json(&history("grid", 4))); 2]);
    let both = history("rows", 8).after(history("grid", 4));
    assert_eq!(kept(&scratch), both.encode());
    // A job that fails has arrived at nothing.
    let third = run(&scratch, &[&MULTICAST[..], &["--history", "file"]].concat(), &history("late", 8), "3");
    assert_eq!(third.status.code(), Some(3));
    assert_eq!(kept(&scratch), both.encode());
}

#[test]
fn a_history_has_a_place_of_its_own_where_the_user_asks_for_one() {
    let scratch = Scratch::new();
    for (args, told) in [
        (&["--engine", "multicast"][..], "told nothing"),
        (&["--engine", "multicast", "--history", "off"], "told nothing"),
        (&["--engine", "hlrc", "--history", "auto"], "told nothing"),
        (&["--engine", "multicast", "--history", "auto"], "told \"\"}"),
    ] {
        let output = run(&scratch, args, &history("grid", 4), "0");
        assert_eq!((output.status.code(), &*err(&output)), (Some(0), ""), "{args:?}");
        assert_eq!(sorted(&out(&output)), [told; 2], "{args:?}");
        assert_eq!(scratch.path("state").exists(), told != "told nothing", "{args:?}");
    }
    let entries = std::fs::read_dir(scratch.path("state/comem/history")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.starts_with('.'));
    let [name] = &names[..] else { panic!("{names:?}") };
    assert!(name.starts_with("node-") && name.ends_with(".history"), "{name}");
    let again = run(&scratch, &["--engine", "multicast", "--history", "auto"], &history("grid", 4), "0");
    assert_eq!(sorted(&out(&again)), vec![format!("told {}}}", json(&history("grid", 4))); 2]);
}

/// One sentence, and the job goes as without one.
#[test]
fn a_history_that_is_not_fit_costs_a_warning_and_stays_as_it_is() {
    let fine = history("grid", 4).encode();
    let nested = "[".repeat(1 << 19);
    for (bytes, why) in [
        (&fine[..fine.len() - 9], "it is damaged or was cut short"),
        (&nested, "it is no history of a job"),
        (&fine.replacen("comem-history 1", "comem-history 2", 1), "it has version 2 of the format"),
    ] {
        let scratch = Scratch::new();
        std::fs::write(scratch.path("file"), bytes).unwrap();
        std::fs::set_permissions(scratch.path("file"), std::fs::Permissions::from_mode(0o600)).unwrap();
        expect_a_warning(&scratch, &format!("comem: the history file is not used, and stays as it is: {why}"));
        assert!(kept(&scratch) == bytes, "{why}");
    }
    let scratch = Scratch::new();
    std::fs::write(scratch.path("other"), &fine).unwrap();
    symlink("other", scratch.path("file")).unwrap();
    expect_a_warning(&scratch, "comem: the history file is not used, and stays as it is: it is a symbolic link");
    assert_eq!(std::fs::read_to_string(scratch.path("other")).unwrap(), fine);
}

fn expect_a_warning(scratch: &Scratch, warning: &str) {
    let output = in_file(scratch, &history("rows", 8));
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(out(&output), "told nothing\n".repeat(2));
    let said = err(&output);
    assert!(said.starts_with(warning) && said.lines().count() == 1, "{said}");
}

#[test]
fn a_history_that_cannot_be_written_is_used_and_costs_a_warning() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("file"), history("grid", 4).encode()).unwrap();
    std::fs::set_permissions(scratch.path("file"), std::fs::Permissions::from_mode(0o400)).unwrap();
    let output = in_file(&scratch, &history("rows", 8));
    assert_eq!(sorted(&out(&output)), vec![format!("told {}}}", json(&history("grid", 4))); 2]);
    let said = "comem: the history file is not written: it is read-only\n";
    assert_eq!((output.status.code(), &*err(&output)), (Some(0), said));
    assert_eq!(kept(&scratch), history("grid", 4).encode());
    // What node 0 tells is read with care, too.
    let scratch = Scratch::new();
    let strange = History { identity: Identity { nodes: 9, ..history("x", 1).identity }, ..history("x", 1) };
    let output = in_file(&scratch, &strange);
    assert_eq!(output.status.code(), Some(0));
    assert!(err(&output).contains("node 0 has told one that is none"), "{}", err(&output));
    assert!(!scratch.path("file").exists());
}
