//! A node of a job under gdb, with the script that `comem run --gdb` loads. Skipped where there is no gdb, or where it
//! may not trace.

mod common;

use std::path::Path;
use std::process::Command;

/// gdb without anybody's own settings; the words are its commands, in this order.
fn gdb(program: &Path, commands: &[&str]) -> Vec<String> {
    let words = ["gdb", "-nx", "-batch", "-x"].map(String::from).into_iter();
    let words = words.chain([common::root().join("tools/gdb/comem.gdb").display().to_string()]);
    let commands = commands.iter().flat_map(|command| ["-ex".to_string(), (*command).to_string()]);
    words.chain(commands).chain(["--args".to_string(), program.display().to_string()]).collect()
}

/// Whether a gdb is here that may trace the programs it starts.
fn traces() -> bool {
    let words = gdb(Path::new("/bin/true"), &["run"]);
    let output = Command::new(&words[0]).args(&words[1..]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("exited normally"))
}

/// Whether gdb can call a function of the program that it debugs: some versions cannot restore the registers of
/// processors with large ones.
fn calls() -> bool {
    let mut command = Command::new("gdb");
    command.env_remove("DEBUGINFOD_URLS").args(["-nx", "-q", "-batch", "-ex", "set confirm off", "-ex", "break main"]);
    command.args(["-ex", "run", "-ex", "print (int)getpid()", "-ex", "kill"]).arg(common::build(
        "cc",
        "c11",
        "debugged.c",
    ));
    let said = command.output().map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    said.contains("$1 = ") && !said.contains("Couldn't write")
}

#[test]
fn a_node_under_gdb_takes_its_faults_shows_pages_that_are_fetched_and_ends_well() {
    if !traces() {
        println!("SKIP: a node under gdb: there is no gdb, or it may not trace; sudo apt-get install gdb");
        return;
    }
    let program = common::build("cc", "c11", "debugged.c");
    // Words for a command of the script are told apart by spaces.
    let look = "print **(long**)&looked_at";
    let touch = "comem-prefetch *(long**)&looked_at";
    let calls = calls();
    if !calls {
        println!("SKIP: comem-prefetch and comem-waits: this gdb cannot call functions of a program on this processor");
    }
    let all = ["break look", "run", look, touch, look, "comem-threads", "comem-waits", "continue"];
    let needs_calls = |command: &str| command == touch || command == "comem-waits";
    let commands: Vec<&str> = all.into_iter().filter(|command| calls || !needs_calls(command)).collect();
    // The first node alone runs under gdb, whatever stands in its commands.
    let start = format!("test $COMEM_NODE = 0 && exec \"$@\"; exec {}", program.display());
    // The best detector that works here, and the one that works everywhere.
    for detector in [&[][..], &["--detector", "mprotect"]] {
        let mut command = common::node(&common::launcher(), 1);
        command.env_remove("COMEM_THREADS").env_remove("DEBUGINFOD_URLS");
        command.args(["run", "--no-prefix", "-n", "2", "--engine", "hlrc", "--node-timeout", "off"]).args(detector);
        command.args(["bash", "-c", &start, "debugger"]).args(gdb(&program, &commands));
        let output = common::run(&mut command);
        let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
        // Where pages are only protected gdb shows what lies there, without a word.
        let is_told = said.contains("Cannot access memory");
        let values = match (is_told, calls) {
            (true, true) => "$1 = 0\n$2 = 1063\n",
            (false, true) => "$1 = 0\n$2 = 0\n$3 = 1063\n",
            (true, false) => "",
            (false, false) => "$1 = 0\n$2 = 0\n",
        };
        for words in [values, "in main ()", "debugged: ok\n", "exited normally"] {
            assert!(said.contains(words), "{detector:?}: {words:?} is missing: {said}");
        }
        assert!(!said.contains("received signal"), "{detector:?}: {said}");
    }
}
