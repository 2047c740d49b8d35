//! Processes that somebody else has started become one job: by an id that one of them made, or by what their launcher
//! says. This test binary is what starts them, and each of them.

use comem::{Comem, UniqueId};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Plays the part of a process; without a role there is nothing to play.
#[test]
fn member() {
    let Ok(role) = std::env::var("GUEST_ROLE") else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let by_id = |id: &str| {
        let id: UniqueId = id.parse().expect("an id");
        let builder = Comem::builder().unique_id(id).processes(number("GUEST_PROCESSES").expect("how many"));
        number("GUEST_RANK").map_or(builder.clone(), |rank| builder.rank(rank))
    };
    let id = std::env::var("GUEST_ID").unwrap_or_default();
    let started = match role.as_str() {
        "id" => by_id(&id).threads(2).setting("start_timeout", "20s").start(),
        "environment" => comem::start(),
        "makes" => {
            let id = UniqueId::new().expect("an id");
            std::fs::write(std::env::var("GUEST_FILE").expect("where to"), id.to_string()).expect("a file");
            Comem::builder().unique_id(id).processes(2).threads(2).start()
        }
        "tries-twice" => {
            let wrong = std::env::var("GUEST_WRONG_ID").expect("a wrong id");
            println!("guest: at first: {}", by_id(&wrong).start().expect_err("it is wrong"));
            by_id(&id).threads(2).start()
        }
        other => panic!("there is no role {other}"),
    };
    let comem = match started {
        Ok(comem) => comem,
        Err(error) => {
            println!("guest: failed: {error}");
            return;
        }
    };
    let sums = comem.object_array::<i64>(comem.threads()).expect("an array");
    comem.parallel(|t| {
        sums.write(t, t.id(), 1 << t.id());
        t.barrier();
        let all: i64 = (0..t.threads()).map(|i| sums.read(t, i)).sum();
        assert_eq!(all, (1 << t.threads()) - 1);
    });
    let (node, nodes, backbone) = (comem.node(), comem.nodes(), comem.backbone());
    println!("guest: node {node} of {nodes} by {backbone}");
    comem.finish().expect("the others come as far");
}

/// A process with these variables, and none of the caller's own settings.
fn process(variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60"]).arg(std::env::current_exe().expect("a test knows its own path"));
    command.args(["--exact", "member", "--nocapture"]).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("COMEM_")) {
        command.env_remove(name);
    }
    command.env("COMEM_RUNTIME_DIR", scratch("run")).envs(variables.iter().copied());
    command
}

fn spawn(variables: &[(&str, &str)]) -> Child {
    process(variables).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
}

/// What a process said of its start, and all that it printed.
fn said(child: Child) -> (Vec<String>, String) {
    let output = child.wait_with_output().expect("it ends");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let words = guest_lines(&out);
    assert!(output.status.success() && !words.is_empty(), "{}\n{out}{err}", output.status);
    (words, format!("{out}{err}"))
}

/// The lines that begin with `guest:`; the harness's own may stand before them in a line.
fn guest_lines(out: &str) -> Vec<String> {
    out.lines().filter_map(|line| line.split_once("guest: ")).map(|(_, words)| words.to_string()).collect()
}

fn all_said(children: Vec<Child>) -> Vec<String> {
    children.into_iter().map(|child| said(child).0.pop().expect("a line")).collect()
}

fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("guest-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a directory");
    let mine = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&path, mine).expect("for this user alone");
    path
}

/// A port that nobody has at the moment, and whose predecessor can be named.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("it has a number").port()
}

/// Processes by one id; a rank for each, or none.
fn by_id(id: &UniqueId, processes: &str, ranks: &[Option<&str>]) -> Vec<Child> {
    let id = id.to_string();
    let common = [("GUEST_ROLE", "id"), ("GUEST_ID", &id), ("GUEST_PROCESSES", processes)];
    let one = |rank: &Option<&str>| spawn(&[&common[..], &rank.map_or(vec![], |r| vec![("GUEST_RANK", r)])].concat());
    ranks.iter().map(one).collect()
}

fn node(number: usize, nodes: usize) -> String {
    format!("node {number} of {nodes} by shm")
}

#[test]
fn processes_with_one_id_become_one_job_and_the_one_that_made_it_need_not_be_a_node() {
    let id = UniqueId::new().unwrap();
    // A stranger that says nothing, and one that says something else, disturb nobody.
    let address: std::net::SocketAddr = id.to_string().split_once('@').unwrap().1.parse().unwrap();
    let _silent = TcpStream::connect(address).unwrap();
    TcpStream::connect(address).unwrap().write_all(b"GET / HTTP/1.1\r\nHost: comem\r\n\r\n").unwrap();
    let ranked = all_said(by_id(&id, "3", &[Some("2"), Some("0"), Some("1")]));
    assert_eq!(ranked, [node(2, 3), node(0, 3), node(1, 3)]);
    let late = all_said(by_id(&id, "3", &[Some("0")]));
    assert!(late[0].contains("nobody listens at") && late[0].contains("a new id for each job"), "{late:?}");
    let mut any = all_said(by_id(&UniqueId::new().unwrap(), "2", &[None, None]));
    any.sort();
    assert_eq!(any, [node(0, 2), node(1, 2)]);
}

#[test]
fn whoever_made_the_id_becomes_node_zero_and_its_text_goes_by_file_and_environment() {
    let file = scratch("id").join("id");
    let maker = spawn(&[("GUEST_ROLE", "makes"), ("GUEST_FILE", file.to_str().unwrap())]);
    let until = Instant::now() + Duration::from_secs(60);
    let id = loop {
        match std::fs::read_to_string(&file) {
            Ok(text) if text.parse::<UniqueId>().is_ok() => break text,
            _ => assert!(Instant::now() < until, "the id has not come"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(id.len() < 128, "{id}");
    let variables = [("GUEST_ROLE", "environment"), ("COMEM_ID", &id), ("COMEM_NODES", "2"), ("COMEM_THREADS", "2")];
    assert_eq!(all_said(vec![maker, spawn(&variables)]), [node(0, 2), node(1, 2)]);
}

#[test]
fn ranks_that_clash_and_numbers_that_differ_end_all_at_once() {
    let same = all_said(by_id(&UniqueId::new().unwrap(), "3", &[Some("1"), Some("1")]));
    assert!(
        same.iter().all(|said| said.contains("failed: cannot start: two processes are to be node 1 (host ")),
        "{same:?}"
    );
    let id = UniqueId::new().unwrap();
    let mut unlike = by_id(&id, "3", &[None]);
    unlike.extend(by_id(&id, "4", &[None]));
    let unlike = all_said(unlike);
    assert!(unlike.iter().all(|said| said.contains("start all with the same number")), "{unlike:?}");
}

#[test]
fn when_too_few_come_it_is_said_who_is_missing() {
    let id = UniqueId::new().unwrap().to_string();
    let common =
        [("GUEST_ROLE", "environment"), ("COMEM_ID", &*id), ("COMEM_NODES", "3"), ("COMEM_START_TIMEOUT", "3s")];
    let start = |rank| spawn(&[&common[..], &[("COMEM_NODE", rank)]].concat());
    for child in [start("0"), start("2")] {
        let (words, printed) = said(child);
        assert!(words[0].contains("2 of 3 processes came within 3 s, and node 1 is missing"), "{printed}");
    }
}

#[test]
fn a_wrong_id_is_refused_and_the_right_one_can_be_tried_next() {
    let id = UniqueId::new().unwrap();
    let (text, other) = (id.to_string(), UniqueId::new().unwrap().to_string());
    // The secret of one, with the address of the other.
    let wrong = {
        let (_, address) = text.split_once('@').unwrap();
        let secret = other.split(':').nth(1).unwrap();
        let sum = blake3::hash(format!("{secret}@{address}").as_bytes()).to_hex();
        format!("comem1:{secret}:{}@{address}", &sum[..6])
    };
    let twice = spawn(&[
        ("GUEST_ROLE", "tries-twice"),
        ("GUEST_ID", &text),
        ("GUEST_WRONG_ID", &wrong),
        ("GUEST_PROCESSES", "2"),
        ("GUEST_RANK", "1"),
    ]);
    let mut both = by_id(&id, "2", &[Some("0")]);
    let (words, printed) = said(twice);
    assert!(
        words[0].contains("at first: cannot start: the process at") && words[0].contains("listens for another id"),
        "{printed}"
    );
    assert_eq!(words[1], node(1, 2));
    assert_eq!(all_said(vec![both.remove(0)]), [node(0, 2)]);
}

#[test]
fn an_id_in_the_environment_that_is_none_is_told_in_one_sentence() {
    let start = |id| spawn(&[("GUEST_ROLE", "environment"), ("COMEM_ID", id), ("COMEM_NODES", "2")]);
    let cut = UniqueId::new().unwrap().to_string().replacen("comem1:", "comem1:0", 1);
    let both = all_said(vec![start("nonsense"), start(&cut)]);
    assert!(both[0].starts_with("failed: cannot start: COMEM_ID: this is no id of a job"), "{both:?}");
    assert!(both[1].starts_with("failed: cannot start: COMEM_ID: this id was cut or changed"), "{both:?}");
}

#[test]
fn a_node_of_comem_run_cannot_join_another_job_by_an_id() {
    let id = UniqueId::new().unwrap().to_string();
    let launched = [("COMEM_CONTROL_FD", "3"), ("COMEM_NODE", "0"), ("COMEM_NODES", "2")];
    let variables = [("GUEST_ROLE", "id"), ("GUEST_ID", &*id), ("GUEST_PROCESSES", "2")];
    let said = all_said(vec![spawn(&[&launched[..], &variables].concat())]);
    assert!(said[0].contains("comem run (or comem exec) has made this process a node"), "{said:?}");
}

#[test]
fn torchruns_processes_meet_by_its_variables() {
    let store = free_port().to_string();
    let common = [
        ("GUEST_ROLE", "environment"),
        ("WORLD_SIZE", "3"),
        ("LOCAL_WORLD_SIZE", "3"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", &store),
    ];
    // Process 0 comes last: the others wait for it.
    let start = |rank| spawn(&[&common[..], &[("RANK", rank), ("LOCAL_RANK", rank)]].concat());
    assert_eq!(all_said(["2", "1", "0"].map(start).into()), [node(2, 3), node(1, 3), node(0, 3)]);
}

#[test]
fn pods_of_an_indexed_job_meet_with_a_key_that_all_have() {
    let zero = format!("127.0.0.1:{}", free_port());
    let key = "0123456789abcdef0123456789abcdef";
    let pod = |index: &str, key: &str| {
        spawn(&[
            ("GUEST_ROLE", "environment"),
            ("JOB_COMPLETION_INDEX", index),
            ("COMEM_NODES", "2"),
            ("COMEM_ZERO", &zero),
            ("COMEM_KEY", key),
        ])
    };
    assert_eq!(all_said(vec![pod("1", key), pod("0", key)]), [node(1, 2), node(0, 2)]);
    let short = all_said(vec![pod("1", "short")]);
    assert!(short[0].contains("COMEM_KEY holds only 5 characters"), "{short:?}");
    let mut zero_pod = pod("0", key);
    let other = all_said(vec![pod("1", "another key of thirty-two letters")]);
    assert!(other[0].contains("listens for another id"), "{other:?}");
    zero_pod.kill().expect("it waits");
    zero_pod.wait().expect("it ends");
}

/// Open MPI's launcher, which is a server of PMIx.
fn mpirun() -> Option<&'static str> {
    ["mpirun.openmpi", "prterun", "mpirun"].into_iter().find(|name| {
        let output = Command::new(name).arg("--version").output();
        let about = output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
        about.contains("Open MPI") || about.contains("OpenRTE") || about.contains("prte") || about.contains("PRRTE")
    })
}

#[test]
fn under_a_launcher_with_pmix_the_processes_of_an_ordinary_program_meet() {
    let Some(mpirun) = mpirun() else {
        println!("SKIP: there is no launcher with PMIx (Debian: openmpi-bin)");
        return;
    };
    // SAFETY: the name is a string of C; the library's constructors need nothing.
    if unsafe { libc::dlopen(c"libpmix.so.2".as_ptr(), libc::RTLD_NOW) }.is_null() {
        println!("SKIP: there is no libpmix.so.2 (Debian: libpmix2)");
        return;
    }
    let program = process(&[]);
    let mut command = Command::new(mpirun);
    command.args(["-n", "3", "--oversubscribe"]).arg(program.get_program()).args(program.get_args());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("COMEM_")) {
        command.env_remove(name);
    }
    command.env("COMEM_RUNTIME_DIR", scratch("run")).env("GUEST_ROLE", "environment").stdin(Stdio::null());
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    let output = command.output().expect("mpirun runs");
    let out = String::from_utf8_lossy(&output.stdout);
    let mut words = guest_lines(&out);
    words.sort();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(words, [node(0, 3), node(1, 3), node(2, 3)], "{}\n{out}{err}", output.status);
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
}
