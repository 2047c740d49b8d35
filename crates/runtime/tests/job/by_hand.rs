//! Nodes that are started one by one, without a launcher.

use comem::control::var;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// One node of a job of two; `more` says how it finds the other.
fn node(more: &[(&str, &str)]) -> Child {
    command(more).stderr(Stdio::piped()).spawn().expect("a node can be started")
}

fn command(more: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "node", "--nocapture", "--test-threads=1"]).env("COMEM_TEST_ROLE", "relock");
    command.env(var::NODES, "2").env("COMEM_RUNTIME_DIR", runtime_directory()).envs(more.iter().copied());
    command.stdout(Stdio::null());
    command
}

/// Where the nodes of these tests leave their keys.
fn runtime_directory() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("by-hand")
}

/// The first line that a node says.
fn first_line(node: &mut Child) -> (String, BufReader<impl Read + use<>>) {
    let mut errors = BufReader::new(node.stderr.take().expect("a pipe"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a node's words");
    (line, errors)
}

/// The address that a node zero tells the others to join it at.
fn address_in(line: &str) -> &str {
    line.split_once("COMEM_JOIN=").and_then(|(_, rest)| rest.split([';', ' ']).next()).expect("an address")
}

#[test]
fn nodes_of_one_host_have_a_key_of_their_own_that_goes_with_them() {
    for backbone in ["udp", "shm"] {
        let stats = |node: &str| {
            let name = format!("comem-by-hand-{}-{backbone}-{node}.json", std::process::id());
            std::env::temp_dir().join(name).to_string_lossy().into_owned()
        };
        let files = ["zero", "one"].map(stats);
        let mut zero = node(&[(var::BACKBONE, backbone), (var::STATS, &files[0])]);
        let (line, errors) = first_line(&mut zero);
        let at = address_in(&line).to_string();
        let left = runtime_directory().join(format!("job-{}.key", at.replace(':', "-")));
        let mode = std::fs::metadata(&left).map(|meta| std::os::unix::fs::PermissionsExt::mode(&meta.permissions()));
        assert_eq!(mode.expect("the key was left") & 0o777, 0o600);
        let mut one = node(&[(var::BACKBONE, backbone), ("COMEM_JOIN", &at), (var::STATS, &files[1])]);
        let said = one.stderr.take().expect("a pipe");
        rest(one, said);
        rest(zero, errors);
        assert!(!left.exists(), "it went with its job");
        for file in files {
            let text = std::fs::read_to_string(&file).expect("statistics");
            std::fs::remove_file(file).expect("they were there");
            let stats: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert!(stats.to_string().contains("\"auth\":true"), "{stats}");
        }
    }
}

#[test]
fn nodes_of_several_hosts_need_a_key_file_or_say_that_they_have_none() {
    let elsewhere = [("COMEM_JOIN", "192.0.2.7:9"), (var::BACKBONE, "udp")];
    let refused = command(&elsewhere).env_remove("HOME").env_remove("XDG_CONFIG_HOME").stderr(Stdio::piped()).output();
    let refused = refused.expect("a node can be started");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("COMEM_KEY_FILE") && said.contains("COMEM_AUTH=off") && said.contains("make-key"), "{said}");
    let open = [elsewhere[0], elsewhere[1], (var::AUTH, "off"), (var::IFACE, "lo")];
    let mut open = node(&open);
    let (line, _errors) = first_line(&mut open);
    open.kill().and_then(|()| open.wait()).expect("it waits, or has ended");
    assert!(line.contains("COMEM_AUTH is off") && line.contains("can change this job's memory"), "{line}");
}

#[test]
fn a_node_with_another_key_is_not_heard() {
    let file = std::env::temp_dir().join(format!("comem-by-hand-{}.key", std::process::id()));
    std::fs::write(&file, "k".repeat(64)).expect("a file");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("its mode");
    let named = file.to_string_lossy().into_owned();
    let udp = (var::BACKBONE, "udp");
    let mut zero = node(&[udp]);
    let (line, _errors) = first_line(&mut zero);
    let mut one = node(&[udp, ("COMEM_JOIN", address_in(&line)), ("COMEM_KEY_FILE", &named)]);
    let (line, _words) = first_line(&mut one);
    for mut node in [zero, one] {
        node.kill().and_then(|()| node.wait()).expect("it waits still");
    }
    let _ = std::fs::remove_file(file);
    assert!(line.contains("nobody at") && line.contains("has answered yet"), "{line}");
}

/// What a node says when it has ended, which it must do well.
fn rest(mut node: Child, mut errors: impl Read) -> String {
    let mut text = String::new();
    errors.read_to_string(&mut text).expect("a node's words");
    assert!(node.wait().expect("a node ends").success(), "{text}");
    text
}

#[test]
fn a_node_that_waits_for_others_says_for_whom_where_and_how_long_and_only_then() {
    for backbone in ["udp", "shm"] {
        let mut zero = node(&[(var::BACKBONE, backbone)]);
        let mut errors = BufReader::new(zero.stderr.take().expect("a pipe"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("a node's words");
        assert!(
            line.starts_with("comem: node 0 of a job of 2 (host ") && line.contains(" waits for node 1: "),
            "{line}"
        );
        assert!(line.contains(&format!("pid {})", zero.id())) && line.contains("; gives up in 2"), "{line}");
        assert!(line.contains("COMEM_NODES=2 COMEM_JOIN="), "without the number, the other would run alone: {line}");
        let at =
            line.split_once("COMEM_JOIN=").and_then(|(_, rest)| rest.split([';', ' ']).next()).expect("an address");
        let mut other = node(&[(var::BACKBONE, backbone), ("COMEM_JOIN", at)]);
        let said = other.stderr.take().expect("a pipe");
        assert!(!rest(other, said).contains("waits for"), "who finds the other at once says nothing");
        assert!(!rest(zero, errors).contains("waits for"), "once is enough");
    }
}

#[test]
fn a_node_whose_packets_differ_from_the_others_hears_which_mtu_fits_all() {
    let mut zero = node(&[(var::BACKBONE, "udp"), ("COMEM_MTU", "1500")]);
    let mut line = String::new();
    BufReader::new(zero.stderr.take().expect("a pipe")).read_line(&mut line).expect("a node's words");
    let at = line.split_once("COMEM_JOIN=").and_then(|(_, rest)| rest.split([';', ' ']).next()).expect("an address");
    let other = node(&[(var::BACKBONE, "udp"), ("COMEM_MTU", "1400"), ("COMEM_JOIN", at)]);
    let output = other.wait_with_output().expect("a node ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let wanted = "packets of 1500 bytes are possible there, of 1400 here; start the job with --mtu 1400";
    assert!(said.contains(wanted), "{said}");
    assert_eq!(output.status.code(), Some(3), "{said}");
    zero.kill().and_then(|()| zero.wait()).expect("it waits still");
}

#[test]
fn a_node_with_other_numbers_than_the_others_is_refused() {
    // More than an option has room for.
    let many = ["retained", "soon", "turn", "lately", "lock_wait"].map(|name| format!("locks.{name}_us=17"));
    for (there, here, words) in [
        ("", "pages.push=off", "none of them there, COMEM_TUNING=pages.push=off here"),
        ("locks.turn_us=7", "locks.turn_us=8", "COMEM_TUNING=locks.turn_us=7 there, COMEM_TUNING=locks.turn_us=8 here"),
        ("", &many.join(","), "COMEM_TUNING=#"),
    ] {
        let mut zero = node(&[(var::BACKBONE, "udp"), (var::TUNING, there)]);
        let mut line = String::new();
        BufReader::new(zero.stderr.take().expect("a pipe")).read_line(&mut line).expect("a node's words");
        let at = line.split_once("COMEM_JOIN=").and_then(|(_, rest)| rest.split([';', ' ']).next());
        let settings = [(var::BACKBONE, "udp"), (var::TUNING, here), ("COMEM_JOIN", at.expect("an address"))];
        let output = node(&settings).wait_with_output().expect("a node ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(words) && said.contains("start all with the same options"), "{said}");
        assert_eq!(output.status.code(), Some(3), "{said}");
        zero.kill().and_then(|()| zero.wait()).expect("it waits still");
    }
}

#[test]
fn a_node_waits_for_others_for_ever_where_nobody_is_taken_for_lost() {
    let mut zero = node(&[(var::BACKBONE, "udp"), (var::NODE_TIMEOUT, "off")]);
    let mut line = String::new();
    BufReader::new(zero.stderr.take().expect("a pipe")).read_line(&mut line).expect("a node's words");
    assert!(line.contains(" waits for node 1: ") && !line.contains("gives up"), "{line}");
    zero.kill().and_then(|()| zero.wait()).expect("it waits still");
}

#[test]
fn a_node_that_finds_nobody_where_it_was_sent_says_so() {
    // Nobody listens at the address of a socket that is gone.
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("an address");
    let numbered = "COMEM_NODE is for launchers";
    let unanswered = format!("waits for node 0: nobody at {nobody} has answered yet; gives up in ");
    for (name, value, words) in
        [("COMEM_JOIN", nobody.to_string(), unanswered.as_str()), (var::NODE, "1".into(), numbered)]
    {
        let mut one = node(&[(var::BACKBONE, "udp"), (name, &value)]);
        let mut line = String::new();
        BufReader::new(one.stderr.take().expect("a pipe")).read_line(&mut line).expect("a node's words");
        assert!(line.contains(words), "{line}");
        one.kill().and_then(|()| one.wait()).expect("it waits still");
    }
}

#[test]
fn a_node_goes_on_though_its_standard_error_takes_nothing() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a device of every Linux");
    let mut command = command(&[(var::BACKBONE, "udp")]);
    let mut zero = command.stderr(full).spawn().expect("a node can be started");
    // It says for whom it waits after two seconds.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let ended = zero.try_wait().expect("a child of ours");
    zero.kill().and_then(|()| zero.wait()).expect("it waits still");
    assert_eq!(ended, None);
}

#[test]
fn a_node_that_is_to_join_others_must_know_how_many() {
    for (name, value) in [("COMEM_JOIN", "127.0.0.1:9"), ("COMEM_DISCOVER", "on")] {
        let lone = command(&[(name, value)]).env_remove(var::NODES).stderr(Stdio::piped()).output();
        let lone = lone.expect("a node can be started");
        let text = String::from_utf8_lossy(&lone.stderr);
        assert!(!lone.status.success() && text.contains("set COMEM_NODES too"), "{name}: {text}");
    }
}
