//! Nodes that run several programs.

use super::*;

/// The second program of a node waited for ever for what the first had read.
#[test]
fn programs_that_a_node_runs_one_after_the_other_meet_those_of_the_others() {
    let program = odd().display().to_string();
    for backbone in ["udp", "shm"] {
        for (nodes, sum) in [("1", 1), ("3", 6)] {
            let script = format!("true; '{program}' sum one && '{program}' sum two && '{program}' sum three");
            let mut command = comem();
            command.args(["run", "--no-prefix", "-n", nodes, "--backbone", backbone]);
            let output = common::run(command.args(["--timeout", "50s", "sh", "-c", &script]));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            for (word, from) in [("one", 0), ("two", 1), ("three", 2)] {
                let line = format!("{word} {sum}");
                assert_eq!(text.lines().filter(|said| **said == line).count().to_string(), nodes, "{backbone}: {text}");
                assert!(from > 0 || text.starts_with("one"), "{text}");
            }
            assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{backbone}");
        }
    }
}

#[test]
fn two_programs_of_a_node_at_once_are_refused_in_a_sentence() {
    let program = odd().display().to_string();
    for script in
        [format!("'{program}' sum a & '{program}' sum b; wait"), format!("'{program}' sum a | '{program}' sum b")]
    {
        let mut command = comem();
        command.args(["run", "-n", "2", "--timeout", "50s", "sh", "-c", &script]);
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{script}: {said}");
        let ours = said.lines().filter(|line| line.starts_with("comem: ")).collect::<Vec<_>>();
        assert!(ours.len() == 1 && ours[0].contains("takes part in the job already"), "{script}: {said}");
    }
}

#[test]
fn a_node_that_runs_fewer_programs_is_no_reason_to_wait() {
    let program = odd().display().to_string();
    for other in ["0", "1"] {
        let script = format!("'{program}' sum a || exit; test $COMEM_NODE = {other} || exec '{program}' sum b");
        let mut command = comem();
        command.args(["run", "-n", "2", "--timeout", "50s", "sh", "-c", &script]);
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        // The program's own status where its start fails; the sentence is behind `comem_last_error`.
        assert_eq!(output.status.code(), Some(1), "{said}");
    }
    let script = format!("'{program}' sum a || exit; test $COMEM_NODE != 1 || kill -9 $$; exec '{program}' sum b");
    let mut command = comem();
    command.args(["run", "-n", "3", "--timeout", "25s", "sh", "-c", &script]);
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(128 + 9) && !said.contains("--timeout"), "{said}");
}
