//! `comem doctor` on this host, and between hosts with a script in place of ssh.

mod common;

use common::{Scratch, err, finish, out};

#[test]
fn this_host_is_examined_and_measured() {
    let scratch = Scratch::new();
    let output = finish(scratch.comem().args(["doctor", "--json"]));
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    let host = &report[0];
    assert_eq!(host["obstacles"], serde_json::json!([]));
    assert_eq!(host["features"]["info"]["version"], "0.1.0");
    for number in ["mtu", "max_map_count", "address_space_tib"] {
        assert!(host["features"][number].as_u64().unwrap() > 0, "{number}: {host}");
    }
    for cost in ["protect_ns", "fault_ns"] {
        assert!(host["features"]["page_costs"][cost].as_u64().unwrap() > 0, "{cost}: {host}");
    }
    assert!(host["network"]["small_us"][0].as_f64().unwrap() > 0.0);
    assert!(host["network"]["megabytes_per_s"].as_f64().unwrap() > 0.0);
    let table = out(&finish(scratch.comem().args(["doctor"])));
    for label in [
        "membarrier",
        "userfaultfd",
        "page detectors",
        "used here",
        "us to protect one, ",
        "us for a fault and its handler (in 1997 Windows NT 7.0 and 20, Solaris 6.57 and 47)",
        "memory limit",
        "round trip, 64 B",
        "bandwidth",
        "a remote access",
        "unless --auth off is said",
        "checks (--inline)",
        "can be mapped",
        "ready",
    ] {
        assert!(table.contains(label), "{label}: {table}");
    }
}

#[test]
fn what_programs_with_checks_lack_is_said_and_no_obstacle() {
    let scratch = Scratch::new();
    let output = finish(scratch.comem().arg("doctor").env("COMEM_CLANG", "/nowhere/clang"));
    let text = out(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("cannot be built with them: --inline needs clang 19, and /nowhere/clang"), "{text}");
    let limited = "ulimit -v 100000000; exec \"$0\" doctor";
    let text = out(&finish(scratch.command("bash").args(["-c", limited, common::bin()]).env("COMEM_HEAP", "1G")));
    assert!(text.contains("programs with checks cannot run") && text.contains("ulimit -v unlimited"), "{text}");
}

#[test]
fn limits_that_leave_no_room_for_pages_are_obstacles() {
    let scratch = Scratch::new();
    for (limit, part) in [
        ("ulimit -v 500000", "488.3 MiB of address space (ulimit -v)"),
        ("ulimit -f 1000", "a file may have 1000.0 KiB (ulimit -f)"),
        ("ulimit -n 20", "20 open files (ulimit -n)"),
        ("chmod 777 run", "is not a directory of this user alone"),
    ] {
        let line = format!("{limit}; exec \"$0\" doctor");
        let output = finish(scratch.command("bash").args(["-c", &line, common::bin()]));
        assert_eq!(output.status.code(), Some(3), "{limit}: {}{}", out(&output), err(&output));
        assert!(out(&output).contains("OBSTACLE") && out(&output).contains(part), "{limit}: {}", out(&output));
        assert!(!out(&output).contains("ready"), "{limit}: {}", out(&output));
    }
}

#[test]
fn other_hosts_are_examined_from_here() {
    let scratch = Scratch::new();
    let rsh = scratch
        .script("rsh", "#!/bin/sh\nhost=$1; shift\ntest $host = alpha || exit 255\necho Welcome\nexec sh -c \"$*\"\n");
    let doctor = |hosts: &str| {
        let mut command = scratch.comem();
        command.env("COMEM_RSH", &rsh).args(["doctor", "--json", "--iface", "lo", "--remote-comem", common::bin()]);
        finish(command.args(["--hosts", hosts]))
    };
    let output = doctor("alpha");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(report[1]["host"], "alpha");
    assert!(report[1]["network"]["page_us"].as_f64().unwrap() > 0.0, "{report}");
    let lost = doctor("alpha,nowhere");
    assert_eq!(lost.status.code(), Some(7));
    assert!(err(&lost).contains("cannot examine host nowhere"), "{}", err(&lost));
    assert!(err(&lost).contains("with --remote-comem PATH"), "{}", err(&lost));
    let report: serde_json::Value = serde_json::from_str(&out(&lost)).unwrap();
    assert_eq!(report.as_array().unwrap().len(), 2, "what could be examined is shown");
}

#[test]
fn ports_that_cannot_be_had_are_an_obstacle() {
    let scratch = Scratch::new();
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = finish(scratch.comem().args(["doctor", "--ports", &format!("{port}-{port}")]));
    assert_eq!(output.status.code(), Some(3));
    assert!(out(&output).contains("no UDP port can be had"), "{}{}", out(&output), err(&output));
}
