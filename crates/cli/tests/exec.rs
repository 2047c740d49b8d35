//! `comem exec` in jobs that others start: Slurm by its variables, MPI's process managers (Open MPI, MPICH) for real.

mod common;

use common::{Scratch, err, finish, out, sorted, wait};
use std::process::{Child, Command, Stdio};

/// What a node sees, on one line. The job's line is read from the inherited file.
const SHOW: &str = "echo $COMEM_NODE/$COMEM_NODES h=$COMEM_HOST_NODES a=$COMEM_AUTH z=$COMEM_ZERO \
                    j=$(cat /proc/self/fd/$COMEM_JOB_FD)";

fn slurm(scratch: &Scratch, rank: usize, size: usize, hosts: &str) -> Command {
    let mut command = scratch.comem();
    command.env("SLURM_JOB_ID", "4711").env("SLURM_STEP_ID", "3").env("SLURM_NODELIST", hosts);
    command.env("SLURM_PROCID", rank.to_string()).env("SLURM_NTASKS", size.to_string());
    command.arg("exec");
    command
}

fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What stands behind `label=` on a line.
fn field<'a>(line: &'a str, label: &str) -> &'a str {
    let rest = line.split(&format!(" {label}=")).nth(1).unwrap_or_else(|| panic!("{label}: {line}"));
    rest.split_whitespace().next().unwrap()
}

fn check_one_host(lines: &[String], size: usize) {
    assert_eq!(lines.len(), size, "{lines:?}");
    for (rank, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("{rank}/{size} h={size} a=on z=127.0.0.1:")), "{line}");
        assert_eq!(field(line, "z"), field(&lines[0], "z"), "all know the same node zero");
        assert_eq!(field(line, "j"), field(&lines[0], "j"), "all have the same job and key");
    }
    let job: serde_json::Value = serde_json::from_str(field(&lines[0], "j")).unwrap();
    assert_eq!((&job["type"], job["key"].as_str().unwrap().len()), (&"job".into(), 64));
}

#[test]
fn slurms_tasks_on_one_host_become_nodes_of_one_job() {
    let scratch = Scratch::new();
    // Node zero starts last: the others wait for it.
    let children: Vec<Child> =
        (0..3).rev().map(|rank| spawn(slurm(&scratch, rank, 3, "here").args(["sh", "-c", SHOW]))).collect();
    let outputs: Vec<_> = children.into_iter().map(wait).collect();
    let text: String = outputs.iter().map(out).collect();
    check_one_host(&sorted(&text), 3);
    let keys = |text: &str| field(text.lines().next().unwrap(), "j").to_string();
    let first = keys(&text);
    let again = finish(slurm(&scratch, 0, 1, "here").args(["sh", "-c", SHOW]));
    assert_ne!(keys(&out(&again)), first, "the next job has another key");
}

#[test]
fn each_node_has_a_file_of_statistics_of_its_own() {
    let scratch = Scratch::new();
    let stats = |rank: usize, path: &str| {
        let command = &mut slurm(&scratch, rank, 2, "here");
        spawn(command.args(["--stats", path, "sh", "-c", "echo $COMEM_STATS"]))
    };
    for (path, wanted) in [("run.json", ["run.node0.json", "run.node1.json"]), ("/dev/null", ["/dev/null"; 2])] {
        let (zero, one) = (stats(0, path), stats(1, path));
        assert_eq!([zero, one].map(|node| out(&wait(node)).trim().to_string()), wanted);
    }
    let nowhere = wait(stats(0, "none/run.json"));
    assert_eq!(nowhere.status.code(), Some(6));
    assert!(err(&nowhere).contains("cannot write the statistics to none/run.node0.json"), "{}", err(&nowhere));
}

#[test]
fn a_dry_run_needs_nobody_and_leaves_nothing() {
    let scratch = Scratch::new();
    for rank in [1, 0] {
        let dry = finish(slurm(&scratch, rank, 2, "here").args(["--dry-run", "touch", "made"]));
        assert_eq!(dry.status.code(), Some(0), "{}", err(&dry));
        let wanted = [format!("COMEM_NODE={rank}\n"), "COMEM_ZERO=(where node zero will listen)\n".to_string()];
        assert!(wanted.iter().all(|line| out(&dry).contains(line)), "{}", out(&dry));
    }
    assert_eq!(std::fs::read_dir(scratch.path("run")).unwrap().count(), 0, "no address that nobody listens at");
    let hosts = ["--auth", "off", "--dry-run", "true"];
    let dry = finish(slurm(&scratch, 1, 2, "192.0.2.7,192.0.2.8").args(hosts));
    assert!(out(&dry).contains("COMEM_ZERO=192.0.2.7:2"), "{}{}", out(&dry), err(&dry));
}

#[test]
fn all_nodes_have_one_seed_of_pythons_hashes() {
    let scratch = Scratch::new();
    let seed = |rank: usize, step: &str, given: &str| {
        let mut command = slurm(&scratch, rank, 2, "here");
        command.env("SLURM_STEP_ID", step).env("PYTHONHASHSEED", given).args(["--dry-run", "true"]);
        let text = out(&finish(&mut command));
        let line = text.lines().find_map(|line| line.strip_prefix("PYTHONHASHSEED=")).expect("a seed");
        line.to_string()
    };
    assert!(seed(0, "3", "").parse::<u32>().is_ok(), "{}", seed(0, "3", ""));
    assert_eq!(seed(0, "3", ""), seed(1, "3", ""));
    assert_ne!(seed(0, "3", ""), seed(0, "4", ""), "another step is another job");
    assert_eq!(seed(1, "3", "12"), "12");
}

#[test]
fn the_key_stays_out_of_arguments_and_environment() {
    let scratch = Scratch::new();
    let body = "key=$(cat /proc/self/fd/$COMEM_JOB_FD | tr -d '\\n' | sed 's/.*\"key\":\"//; s/\".*//'); echo key=$key
        tr '\\0' '\\n' </proc/$$/environ | grep -c \"$key\"; tr '\\0' '\\n' </proc/$$/cmdline | grep -c \"$key\"";
    let output = finish(slurm(&scratch, 0, 1, "here").args(["sh", "-c", body]));
    let text = out(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0].len(), "key=".len() + 64, "{text}");
    assert_eq!(lines[1..], ["0", "0"], "{text}");
}

#[test]
fn slurms_tasks_on_several_hosts_work_out_the_same_address_and_key() {
    let scratch = Scratch::new();
    let without = finish(slurm(&scratch, 1, 4, "n[1-2]").args(["--zero", "192.0.2.7:9000", "sh", "-c", SHOW]));
    assert_eq!(without.status.code(), Some(3));
    assert!(err(&without).contains("a job that authenticates needs a key"), "{}", err(&without));

    // Where all are on one host, node zero leaves a key of this job's alone, also where its address is given.
    let zero = ["--zero", "127.0.0.1:9000", "sh", "-c", SHOW];
    let children: Vec<Child> = (0..2).rev().map(|rank| spawn(slurm(&scratch, rank, 2, "here").args(zero))).collect();
    let text: String = children.into_iter().map(|child| out(&wait(child))).collect();
    check_one_host(&sorted(&text), 2);
    assert!(text.lines().all(|line| field(line, "z") == "127.0.0.1:9000"), "{text}");

    assert!(scratch.comem().args(["daemon", "make-key", ".config/comem/key"]).status().unwrap().success());
    let line = |rank: usize| {
        let mut command = slurm(&scratch, rank, 4, "192.0.2.7,192.0.2.8");
        command.env("SLURM_TASKS_PER_NODE", "2(x2)").env("SLURM_NODEID", (rank / 2).to_string());
        let output = finish(command.args(["sh", "-c", SHOW]));
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output).trim_end().to_string()
    };
    let lines: Vec<String> = [1, 3].into_iter().map(line).collect();
    assert!(lines[0].starts_with("1/4 h=2 a=on z=192.0.2.7:2"), "{lines:?}");
    assert!(lines[1].starts_with("3/4 h=2 a=on z=192.0.2.7:2"), "{lines:?}");
    assert_eq!(field(&lines[0], "z"), field(&lines[1], "z"));
    assert_eq!(field(&lines[0], "j"), field(&lines[1], "j"));
}

#[test]
fn processes_without_a_list_of_hosts_meet_in_a_shared_directory() {
    let scratch = Scratch::new();
    let mpi = |rank: &str| {
        let mut command = scratch.comem();
        command
            .env("OMPI_COMM_WORLD_RANK", rank)
            .env("OMPI_COMM_WORLD_SIZE", "2")
            .env("OMPI_COMM_WORLD_LOCAL_SIZE", "1");
        command.env("PMIX_NAMESPACE", "77").args(["exec", "--auth", "off", "--iface", "lo"]);
        command.arg("--rendezvous").arg(scratch.path("meet"));
        spawn(command.args(["sh", "-c", SHOW]))
    };
    let (one, zero) = (mpi("1"), mpi("0"));
    let (one, zero) = (wait(one), wait(zero));
    let (zero_line, one_line) = (out(&zero), out(&one));
    assert!(zero_line.starts_with("0/2 h=1 a=off z=127.0.0.1:"), "{zero_line}{}", err(&zero));
    assert_eq!(field(&one_line, "z"), field(&zero_line, "z"), "{}", err(&one));
    assert_eq!(field(&one_line, "j"), field(&zero_line, "j"));
}

#[test]
fn what_cannot_be_known_is_an_error() {
    let scratch = Scratch::new();
    let outside = finish(scratch.comem().args(["exec", "true"]));
    assert_eq!(outside.status.code(), Some(2));
    assert!(err(&outside).contains("comem run -n N"), "{}", err(&outside));
    let sizeless = finish(scratch.comem().env("PMIX_RANK", "0").args(["exec", "true"]));
    assert_eq!(sizeless.status.code(), Some(2));
    assert!(err(&sizeless).contains("-n N"), "{}", err(&sizeless));
    let missing = finish(slurm(&scratch, 0, 1, "here").arg("./nothing"));
    assert_eq!(missing.status.code(), Some(3));
    let engine = finish(slurm(&scratch, 0, 1, "here").args(["--engine", "magic", "true"]));
    assert_eq!(engine.status.code(), Some(2));
}

#[test]
fn the_program_takes_the_process_over_with_its_status() {
    let scratch = Scratch::new();
    let mut command = slurm(&scratch, 0, 1, "here");
    let child = spawn(command.args(["sh", "-c", "echo $$; exit 9"]));
    let pid = child.id();
    let output = wait(child);
    assert_eq!((out(&output).trim(), output.status.code()), (pid.to_string().as_str(), Some(9)));
}

#[test]
fn torchruns_and_kubernetes_processes_get_the_settings_and_meet_by_themselves() {
    let scratch = Scratch::new();
    let show =
        "echo $COMEM_ENGINE $COMEM_NODES ${COMEM_NODE-none} ${COMEM_JOB_FD-none} ${COMEM_ZERO-none} $PYTHONHASHSEED";
    let with = |variables: &[(&str, &str)]| {
        let mut command = scratch.comem();
        command.env_remove("PYTHONHASHSEED").envs(variables.iter().copied());
        let output = finish(command.args(["exec", "--engine", "lrc", "sh", "-c", show]));
        assert!(output.status.success(), "{}", err(&output));
        out(&output).split_whitespace().map(ToString::to_string).collect::<Vec<_>>()
    };
    let torch = |rank| [("RANK", rank), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "n1"), ("MASTER_PORT", "29500")];
    let (zero, one) = (with(&torch("0")), with(&torch("1")));
    assert_eq!(zero[..5], ["lrc", "2", "none", "none", "none"]);
    assert_eq!(zero, one, "the seed of hashes, too");
    let pod = with(&[("JOB_COMPLETION_INDEX", "1"), ("COMEM_NODES", "3"), ("COMEM_ZERO", "sea-0.sea")]);
    assert_eq!(pod[..5], ["lrc", "3", "none", "none", "sea-0.sea"]);
}

/// The process managers of MPI on this machine, by name; each once, however many names it has.
fn mpiruns() -> Vec<&'static str> {
    let names = ["mpirun", "mpiexec", "mpirun.openmpi", "orterun", "prterun", "mpirun.mpich", "mpiexec.hydra"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find =
        |name| std::env::split_paths(&path).map(|folder| folder.join(name)).find_map(|file| file.canonicalize().ok());
    let mut seen = std::collections::BTreeSet::new();
    names.into_iter().filter(|name| find(*name).is_some_and(|file| seen.insert(file))).collect()
}

/// Runs four tasks, however few cores there are. Open MPI is told so by its environment, which others do not read:
/// options differ
/// from one MPI to the next.
fn starts_one_job(mpirun: &str) {
    let scratch = Scratch::new();
    let mut command = Command::new(mpirun);
    // The command's environment, with the scratch directory for meetings.
    for (name, value) in scratch.comem().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    for manager in ["OMPI", "PRTE"] {
        command.env(format!("{manager}_ALLOW_RUN_AS_ROOT"), "1");
        command.env(format!("{manager}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
    }
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    // Some managers pass on what tasks print in pieces: each task writes a file of its own.
    let show = format!("{{ {SHOW}; }} >{}/task.$COMEM_NODE", scratch.0.display());
    command.args(["-n", "4", common::bin(), "exec", "sh", "-c", &show]).stdin(Stdio::null());
    let output = finish(&mut command);
    assert!(output.status.success(), "{mpirun}: {}{}", out(&output), err(&output));
    let line = |rank| std::fs::read_to_string(scratch.path(&format!("task.{rank}"))).unwrap().trim_end().to_string();
    check_one_host(&(0..4).map(line).collect::<Vec<_>>(), 4);
}

#[test]
fn a_real_mpirun_starts_one_job() {
    let mpiruns = mpiruns();
    if mpiruns.is_empty() {
        println!("SKIP: there is no mpirun (Debian: openmpi-bin or mpich)");
    }
    mpiruns.into_iter().for_each(starts_one_job);
}

#[test]
fn jobs_that_follow_each_other_under_one_launcher_do_not_mix() {
    let scratch = Scratch::new();
    // Rank 1 runs ahead into the second job while rank 0 is not there yet.
    let second = |rank: usize| {
        let mut command = slurm(&scratch, rank, 2, "here");
        spawn(command.args(["sh", "-c", SHOW]))
    };
    let key = |child: Child| field(&out(&wait(child)), "j").to_string();
    let (zero, one) = (second(0), second(1));
    let first = key(zero);
    assert_eq!(key(one), first);
    let one = second(1);
    let zero = second(0);
    let next = key(zero);
    assert_eq!(key(one), next);
    assert_ne!(next, first);
}
