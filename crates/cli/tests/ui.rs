//! `comem ui`: its doors, and what it does for who is inside, over HTTP and with scripts in place of nodes.
#![cfg(feature = "ui")]

mod common;

use common::{Held, PATIENCE, Scratch, err, finish, json, out, signal, wait};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};

/// A node that joins and answers who asks for its counters.
const NODE: &str = r#"#!/bin/bash
say() { echo "$1" >&$COMEM_CONTROL_FD; }
exec {held}>held
say '{"type":"started"}'
echo ready >&$held
n=0
while read -r line <&$COMEM_CONTROL_FD; do case $line in
*'"sample"'*) n=$((n+1)); waits=; pages=
    case $line in *'"waits":true'*) waits='"waits":["thread 0 has waited 1.0 s for lock 7"],';; esac
    case $line in *'"pages":true'*) pages=',"false_sharing":[{"offset":4096,"nodes":['$COMEM_NODE'],"times":2}]';; esac
    say '{"type":"sample","sample":{"wall_s":2.0,"threads":1,"messages_sent":'$((n*100))','"$waits"'"regions":[
{"label":"<b>grid</b>","address":"0x10","bytes":8192,"engine":"hlrc","faults":'$n"$pages"'}]}}';;
*'"stop"'*) say '{"type":"stats","stats":{"samples":'$n'}}'; exit 5;;
esac; done
"#;

/// A server, with a way to ask it.
struct Ui {
    scratch: Scratch,
    server: Child,
    /// `127.0.0.1:PORT`.
    authority: String,
    token: String,
    /// The header lines of a session.
    session: String,
}

/// What the server answered.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{}: {e}", self.body))
    }

    fn what(&self) -> String {
        self.json()["what"].as_str().unwrap_or_default().to_string()
    }
}

impl Ui {
    fn start(args: &[&str]) -> Ui {
        Ui::start_in(Scratch::new(), args)
    }

    fn start_in(scratch: Scratch, args: &[&str]) -> Ui {
        let mut command = scratch.comem();
        command.env_remove("XDG_STATE_HOME").arg("ui").args(args);
        let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let (authority, token) =
            line.split_once("://").and_then(|(_, rest)| rest.trim().split_once("/#token=")).unwrap();
        let (authority, token) = (authority.to_string(), token.to_string());
        assert_eq!(token.len(), 32, "128 bits: {line}");
        let mut ui = Ui { scratch, server, authority, token, session: String::new() };
        if !line.contains("https") {
            ui.session = ui.open();
        }
        ui
    }

    /// Begins a session; its header lines.
    fn open(&self) -> String {
        let opened = self.with("POST", "/api/session", &self.own_origin(), &json!({ "token": self.token }));
        assert_eq!(opened.status, 200, "{}", opened.body);
        let cookie = opened.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        let key = opened.json()["key"].as_str().unwrap().to_string();
        let cookie = cookie.split(';').next().unwrap();
        format!("{}Cookie: {cookie}\r\nX-Comem-Key: {key}\r\n", self.own_origin())
    }

    fn own_origin(&self) -> String {
        format!("Host: {0}\r\nOrigin: http://{0}\r\n", self.authority)
    }

    /// Sends a request with these header lines, and no others but those of its body.
    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.authority).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
        stream.write_all((head + body).as_bytes()).unwrap();
        stream
    }

    fn with(&self, method: &str, path: &str, headers: &str, body: &Value) -> Answer {
        let headers = format!("{headers}Content-Type: application/json\r\n");
        let mut stream = self.send(method, path, &headers, &body.to_string());
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_string(), body: body.to_string() }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.with(method, path, &self.session, body)
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &Value::Null)
    }

    /// Starts a job; its number.
    fn launch(&self, wanted: &Value) -> u64 {
        let started = self.ask("POST", "/api/jobs", wanted);
        assert_eq!(started.status, 201, "{}", started.body);
        started.json()["number"].as_u64().unwrap()
    }

    fn events(&self, path: &str) -> Events {
        let mut lines = BufReader::new(self.send("GET", path, &self.session, ""));
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0);
        }
        Events(lines)
    }

    /// Starts a job of two scripts that answer.
    fn launch_nodes(&self, name: &str) -> (u64, Held) {
        // Control lines are lines.
        let node = self.scratch.script("node", &NODE.replace(":[\n{", ":[{"));
        let fifo = self.scratch.fifo("held");
        let number = self.launch(&json!({ "program": node, "nodes": 2, "name": name }));
        let held = Held::open(&fifo);
        assert_eq!(held.expect_lines(2), ["ready", "ready"]);
        (number, held)
    }
}

impl Drop for Ui {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A stream of events, in chunks.
struct Events(BufReader<TcpStream>);

impl Events {
    /// The next event of this kind; of those before it nothing is kept.
    fn next(&mut self, wanted: &str) -> Value {
        let mut kind = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended before {wanted}");
            if let Some(name) = line.strip_prefix("event: ") {
                kind = name.trim().to_string();
            }
            if let Some(data) = line.strip_prefix("data: ").filter(|_| kind == wanted) {
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    /// All text up to the end, and the job's status.
    fn all_text(mut self) -> (String, Value) {
        let (mut text, mut kind, mut line) = (String::new(), String::new(), String::new());
        while self.0.read_line(&mut line).unwrap() > 0 {
            if let Some(name) = line.strip_prefix("event: ") {
                kind = name.trim().to_string();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                let data: Value = serde_json::from_str(data).unwrap();
                match kind.as_str() {
                    "ended" => return (text, data["status"].clone()),
                    _ => text += data.as_str().unwrap(),
                }
            }
            line.clear();
        }
        panic!("no end: {text}")
    }
}

#[test]
fn who_has_not_both_secrets_of_a_session_gets_nothing() {
    let ui = Ui::start(&[]);
    let wrong = ui.with("POST", "/api/session", &ui.own_origin(), &json!({ "token": "0".repeat(32) }));
    assert_eq!((wrong.status, wrong.what().as_str()), (401, "this is not the server's token"));
    assert!(!wrong.head.contains("set-cookie"), "{}", wrong.head);
    let lines: Vec<&str> = ui.session.lines().collect();
    let without = |name: &str| lines.iter().filter(|l| !l.starts_with(name)).map(|l| format!("{l}\r\n")).collect();
    for missing in ["Cookie", "X-Comem-Key"] {
        let headers: String = without(missing);
        for (method, path) in [("GET", "/api/jobs"), ("POST", "/api/jobs"), ("GET", "/api/jobs/1/live")] {
            assert_eq!(ui.with(method, path, &headers, &json!({})).status, 401, "{method} {path} without {missing}");
        }
    }
    let page = ui.with("GET", "/", &ui.own_origin(), &Value::Null);
    assert_eq!(page.status, 200);
    for header in
        ["cache-control: no-store", "x-content-type-options: nosniff", "default-src 'none'; script-src 'self'"]
    {
        assert!(page.head.contains(header), "no {header}: {}", page.head);
    }
    assert!(page.body.contains("<title>Comem</title>") && !page.body.contains(&ui.token));
    for (path, status) in [("/api/jobs", 200), ("/api/nothing", 404), ("/../etc/passwd", 404), ("/api/jobs/1", 404)] {
        assert_eq!(ui.get(path).status, status, "{path}");
    }
    assert_eq!(ui.ask("PUT", "/api/jobs", &json!({})).status, 405);
    let form = ui.send("POST", "/api/jobs", &format!("{}Content-Type: text/plain\r\n", ui.session), "{}");
    assert!(common::read_to_string(form).starts_with("HTTP/1.1 415 "), "as a form of a foreign page would");
    let long = ui.ask("POST", "/api/jobs", &json!({ "program": "x".repeat(300 << 10) }));
    assert_eq!(long.status, 413);
}

#[test]
fn foreign_names_and_foreign_pages_get_nothing() {
    let ui = Ui::start(&[]);
    let port = ui.authority.rsplit(':').next().unwrap().to_string();
    for (host, good) in [(ui.authority.clone(), true), (format!("localhost:{port}"), true)]
        .into_iter()
        .chain([(format!("evil.example:{port}"), false), ("127.0.0.1:1".to_string(), false)])
    {
        let session = ui.session.replace(&format!("Host: {}", ui.authority), &format!("Host: {host}"));
        let session = session.replace(&format!("http://{}", ui.authority), &format!("http://{host}"));
        for path in ["/", "/api/jobs"] {
            assert_eq!(
                ui.with("GET", path, &session, &Value::Null).status,
                if good { 200 } else { 403 },
                "{host} {path}"
            );
        }
    }
    let from = |origin: &str| ui.session.replace(&format!("Origin: http://{}\r\n", ui.authority), origin);
    for origin in ["Origin: http://evil.example\r\n", "Origin: null\r\n", "Origin: http://127.0.0.1:1\r\n"] {
        for (method, path) in [("GET", "/api/jobs"), ("POST", "/api/jobs"), ("DELETE", "/api/jobs/1")] {
            let refused = ui.with(method, path, &from(origin), &json!({ "program": "true" }));
            assert_eq!((refused.status, refused.what().as_str()), (403, "another page asks"), "{method} {origin}");
        }
    }
    assert_eq!(ui.with("GET", "/api/jobs", &from(""), &Value::Null).status, 200, "reading need not say from where");
    assert_eq!(ui.with("POST", "/api/jobs", &from(""), &json!({})).status, 403);
    let beside = format!("{}Sec-Fetch-Site: same-site\r\n", ui.session);
    assert_eq!(ui.with("GET", "/api/jobs", &beside, &Value::Null).status, 403, "another port of this host");
    assert_eq!(ui.get("/api/jobs").json(), json!([]), "nothing was started");
}

#[test]
fn the_token_is_where_other_users_cannot_read_it() {
    let ui = Ui::start(&[]);
    let read = |what: &str| std::fs::read(format!("/proc/{}/{what}", ui.server.id())).unwrap();
    for shown in ["cmdline", "environ", "comm"] {
        let text = String::from_utf8_lossy(&read(shown)).into_owned();
        assert!(!text.contains(&ui.token), "{shown}");
    }
    let found = finish(ui.scratch.command("grep").args(["-rlF", &ui.token, "."]));
    assert_eq!((found.status.code(), out(&found).as_str()), (Some(1), ""), "it is in no file");
    let number = ui.launch(&json!({ "program": "sleep", "arguments": ["1000"] }));
    // A process that has just been made has no words yet.
    while ui.get(&format!("/api/jobs/{number}")).json()["state"] == "starting" {}
    let child = std::fs::read_to_string(format!("/proc/{number}/cmdline")).unwrap();
    assert!(child.contains("sleep") && !child.contains(&ui.token), "{child:?}");
    assert_eq!(ui.ask("DELETE", &format!("/api/jobs/{number}"), &Value::Null).status, 200);
}

#[test]
fn by_default_the_loopback_alone_is_listened_on() {
    let ui = Ui::start(&[]);
    let port: u16 = ui.authority.rsplit(':').next().unwrap().parse().unwrap();
    // State 0A is that of a socket that listens; the kernel writes addresses as words of its own byte order.
    let listening = |table: &str| -> Vec<String> {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        let sockets = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        let here = sockets.filter(|words| words[3] == "0A" && words[1].ends_with(&format!(":{port:04X}")));
        here.map(|words| words[1].split(':').next().unwrap().to_string()).collect()
    };
    let loopback = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
    assert_eq!(listening("/proc/net/tcp"), [loopback]);
    assert_eq!(listening("/proc/net/tcp6"), [""; 0]);
}

#[test]
fn words_arrive_as_they_were_written_and_names_stay_text() {
    let ui = Ui::start(&[]);
    let show =
        ui.scratch.script("show", "#!/bin/sh\nfor word; do printf '<%s>' \"$word\"; done\nprintf '%s' \"$MINE\"\n");
    let words = ["a b", "\"q\" 'r'", "$(touch bad)", "two\nlines", "", "--nodes=9", "é&<i>"];
    let wanted = json!({ "program": show, "arguments": words, "name": "<b>bold</b> & \"more\"",
                         "environment": { "MINE": "x,y='z'\n$HOME" } });
    let number = ui.launch(&wanted);
    let (text, status) = ui.events(&format!("/api/jobs/{number}/output")).all_text();
    let mut expected: String = words.iter().map(|word| format!("<{word}>")).collect();
    expected += "x,y='z'\n$HOME";
    let printed: String = text.lines().filter_map(|line| line.strip_prefix("[0] ")).collect::<Vec<_>>().join("\n");
    assert_eq!((printed, status), (expected, json!(0)), "{text}");
    assert!(!ui.scratch.path("bad").exists(), "no shell has read it");
    let answer = ui.get(&format!("/api/jobs/{number}"));
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    let job = answer.json();
    assert_eq!((&job["name"], &job["here"]), (&json!("<b>bold</b> & \"more\""), &json!(true)));
    // Its statistics are there, under a name that a file can have.
    let runs = ui.get("/api/runs").json();
    let run = &runs["runs"][0];
    assert!(run["id"] == job["run"] && run["id"].as_str().unwrap().ends_with("-bboldbmore"), "{runs}");
    assert_eq!(ui.get(&format!("/api/runs/{}", run["id"].as_str().unwrap())).json()["status"], 0);
    for wrong in ["nothing", "..%2Fkey", "%2e%2e"] {
        assert_eq!(ui.get(&format!("/api/runs/{wrong}")).status, 404, "{wrong}");
    }
}

#[test]
fn what_cannot_start_is_refused_with_the_sentence_of_comem_run() {
    let ui = Ui::start(&[]);
    for (wanted, part) in [
        (json!({ "program": "no-such-program" }), "the program no-such-program is not found"),
        (json!({ "program": "true", "name": "12" }), "a job's name is no number"),
        (json!({ "program": "true", "nodes": 0 }), "a job has at least one node"),
        (json!({ "program": "true", "hosts": "-oProxyCommand=x" }), "names no host"),
        (json!({ "program": "true", "engine": "x" }), "--engine"),
        (json!({ "program": "true", "directory": "/nowhere" }), "is no directory"),
        (json!({ "program": "true", "gdb": 0 }), "unknown field"),
        (json!({ "program": "true", "environment": { "A=B": "" } }), "cannot be a variable"),
    ] {
        let refused = ui.ask("POST", "/api/jobs", &wanted);
        assert!(
            refused.status == 400 && refused.what().contains(part),
            "{wanted}: {} {}",
            refused.status,
            refused.body
        );
    }
    assert_eq!(ui.get("/api/jobs").json(), json!([]));
}

#[test]
fn a_job_is_watched_and_costs_nothing_before_and_after() {
    let ui = Ui::start(&[]);
    let (number, held) = ui.launch_nodes("seen");
    let path = format!("/api/jobs/{number}");
    assert_eq!(ui.get(&path).json()["state"], "running", "who looks at a job asks no node");
    let mut live = ui.events(&format!("{path}/live"));
    assert_eq!(live.next("job")["job"]["name"], "seen");
    let first = live.next("sample");
    assert_eq!((&first["number"], &first["regions"][0]["label"]), (&json!(1), &json!("<b>grid</b>")));
    assert_eq!(first["regions"][0]["faults"], 2, "added up over both nodes");
    assert!(first["regions"][0].get("false_sharing").is_none(), "not unless asked");
    let mut last = live.next("sample")["number"].as_u64().unwrap();
    let pages = ui.get(&format!("{path}/regions/0x10/pages")).json();
    assert_eq!(pages["false_sharing"], json!([{ "offset": 4096, "nodes": [0, 1], "times": 4, "variables": [] }]));
    assert_eq!(pages["copysets"], Value::Null, "this engine keeps none");
    assert_eq!(ui.get(&format!("{path}/regions/0x20/pages")).status, 404);
    let waits = ui.ask("POST", &format!("{path}/waits"), &json!({})).json();
    assert_eq!(waits["nodes"][1]["waits"], json!(["thread 0 has waited 1.0 s for lock 7"]));
    drop(live);
    // The launcher publishes a sample for whoever watches: after the last one nobody does, and the numbers stand still.
    let socket = |name: &str| finish(ui.scratch.comem().args(["top", name, "--json"]));
    let sample_number = || {
        let told: Value = serde_json::from_str(&out(&socket("seen"))).unwrap();
        told["sample"]["number"].as_u64().unwrap()
    };
    // Each look is a sample itself. Once two looks follow each other, nobody else watches.
    let mut before = sample_number();
    loop {
        let next = sample_number();
        if next == before + 1 {
            last = last.max(next);
            break;
        }
        before = next;
    }
    assert!(last >= 5, "{last}");
    let mut output = ui.events(&format!("{path}/output"));
    let mut live = ui.events(&format!("{path}/live"));
    live.next("sample");
    assert!(ui.ask("DELETE", &path, &Value::Null).json()["said"].as_str().unwrap().contains("has been ended after"));
    assert_eq!(live.next("ended")["status"], 130);
    assert_eq!(output.next("ended")["status"], 130);
    held.expect_all_gone();
    assert_eq!(ui.get(&format!("{path}/live")).status, 200, "it says that there is no job");
    let job = ui.get(&path).json();
    assert_eq!((&job["state"], &job["status"]), (&json!("ended"), &json!(130)));
    let run = format!("/api/runs/{}", job["run"].as_str().unwrap());
    assert_eq!(ui.get(&run).json()["node_count"], 2);
}

#[test]
fn a_job_that_no_page_watches_is_never_asked() {
    let ui = Ui::start(&[]);
    let (number, held) = ui.launch_nodes("unseen");
    for path in ["/api/jobs", &format!("/api/jobs/{number}"), "/api/runs", "/api/about"] {
        assert_eq!(ui.get(path).status, 200);
    }
    let run = ui.get(&format!("/api/jobs/{number}")).json()["run"].as_str().unwrap().to_string();
    assert_eq!(ui.ask("DELETE", &format!("/api/jobs/{number}"), &Value::Null).status, 200);
    held.expect_all_gone();
    let stats = json(&ui.scratch.path(&format!(".local/state/comem/runs/{run}.json")));
    assert_eq!(stats["totals"]["samples"], 0);
}

#[test]
fn two_pages_that_end_one_job_both_get_an_answer_and_so_does_a_third() {
    let ui = Ui::start(&[]);
    let (number, held) = ui.launch_nodes("twice");
    let path = format!("/api/jobs/{number}");
    let other = ui.open();
    let end = |session: &str| {
        let answer = ui.with("DELETE", &path, session, &Value::Null);
        (answer.status, answer.json()["said"].as_str().unwrap_or_default().to_string())
    };
    let both = std::thread::scope(|scope| {
        let both = [&ui.session, &other].map(|session| scope.spawn(|| end(session)));
        both.map(|one| one.join().unwrap())
    });
    for (status, said) in both {
        assert!(status == 200 && said.contains("(twice, 2 nodes on 1 host)"), "{status}: {said}");
    }
    held.expect_all_gone();
    let (status, said) = end(&other);
    assert!(status == 200 && said.contains("had ended before"), "{status}: {said}");
    assert_eq!(ui.ask("DELETE", "/api/jobs/1", &Value::Null).status, 404, "no job of ours");
}

#[test]
fn readers_that_stall_keep_nobody_waiting() {
    let ui = Ui::start(&[]);
    let noise = "head -c 3000000 /dev/zero | tr '\\0' x | fold -w 100; echo end";
    let number = ui.launch(&json!({ "program": "sh", "arguments": ["-c", noise] }));
    // They ask, and read nothing; another does not even end its request.
    let path = format!("/api/jobs/{number}/output");
    let stalled: Vec<TcpStream> = (0..8).map(|_| ui.send("GET", &path, &ui.session, "")).collect();
    let mut halved = TcpStream::connect(&ui.authority).unwrap();
    halved.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
    let mut output = ui.events(&path);
    assert_eq!(output.next("ended")["status"], 0, "the job ends, and a reader hears of it");
    assert_eq!(ui.get("/api/jobs").status, 200);
    let mut late = ui.events(&path);
    assert!(late.next("gap")["bytes"].as_u64().unwrap() > 1_000_000, "only the latest is kept");
    assert!(late.all_text().0.contains("xend\n"));
    drop((stalled, halved));
}

#[test]
fn only_programs_below_allowed_directories_are_started() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("good")).unwrap();
    let good = scratch.script("good/prog", "#!/bin/sh\necho \"ran as $0\"\n");
    let outside = scratch.script("outside", "#!/bin/sh\ntouch bad\n");
    symlink(&outside, scratch.path("good/link")).unwrap();
    symlink(scratch.path("good"), scratch.path("way")).unwrap();
    let dir = scratch.text("good");
    let ui = Ui::start_in(scratch, &["--allow", &dir, "--allow-env", "MINE"]);
    assert_eq!(ui.get("/api/about").json()["allowed"], json!([dir]));
    for program in [outside.as_str(), &format!("{dir}/../outside"), &format!("{dir}/link"), "/bin/sh", "sh"] {
        let refused = ui.ask("POST", "/api/jobs", &json!({ "program": program }));
        let what = refused.what();
        assert!(refused.status == 403 && what.contains("outside the directories"), "{program}: {}", refused.body);
    }
    for variable in ["LD_PRELOAD", "PATH", "COMEM_RSH"] {
        let wanted = json!({ "program": good, "environment": { variable: "x" } });
        assert_eq!(ui.ask("POST", "/api/jobs", &wanted).status, 403, "{variable}");
    }
    for program in [good.clone(), ui.scratch.text("way/prog")] {
        let number = ui.launch(&json!({ "program": program, "environment": { "MINE": "1" } }));
        let (text, status) = ui.events(&format!("/api/jobs/{number}/output")).all_text();
        assert!(text.contains(&format!("ran as {good}")) && status == 0, "{text}");
    }
    assert!(!ui.scratch.path("bad").exists());
}

#[test]
fn beyond_this_host_all_doors_have_to_be_there() {
    let scratch = Scratch::new();
    let refused = |args: &[&str]| {
        let output = finish(scratch.comem().arg("ui").args(args));
        (output.status.code(), err(&output))
    };
    let (code, said) = refused(&["--listen", "0.0.0.0"]);
    assert!(code == Some(2) && said.contains("give --tls-cert, --tls-key and --allow DIR"), "{said}");
    std::fs::create_dir(scratch.path("good")).unwrap();
    let (code, said) = refused(&["--listen", "0.0.0.0", "--allow", &scratch.text("good")]);
    assert!(code == Some(2) && said.contains("--tls-cert"), "{said}");
    let (code, said) = refused(&["--tls-cert", "none.pem", "--tls-key", "none.pem"]);
    assert!(code == Some(2) && said.contains("none.pem"), "{said}");
    std::fs::write(scratch.path("empty.pem"), "").unwrap();
    let (code, said) = refused(&["--tls-cert", "empty.pem", "--tls-key", "empty.pem"]);
    assert!(code == Some(2) && said.contains("it has no certificate"), "{said}");
    assert_eq!(refused(&["--tls-cert", "x"]).0, Some(2), "one file is not enough");
    assert_eq!(refused(&["--allow", "/no/such/place"]).0, Some(2));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, said) = refused(&["--port", &taken.local_addr().unwrap().port().to_string()]);
    assert!(code == Some(3) && said.contains("choose another --port"), "{said}");
}

#[test]
fn connections_are_encrypted_where_files_for_that_are_named() {
    let scratch = Scratch::new();
    let name = "subjectAltName=IP:127.0.0.1";
    let mut openssl = scratch.command("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=comem", "-addext", name, "-keyout", "key.pem", "-out", "cert.pem"]);
    let has =
        |tool: &str| Command::new(tool).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !has("curl") || !openssl.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        println!("SKIP: encrypted connections of comem ui: openssl and curl are needed; apt-get install openssl curl");
        return;
    }
    let ui = Ui::start_in(scratch, &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let url = format!("https://{}/", ui.authority);
    let page = finish(ui.scratch.command("curl").args(["-sS", "--cacert", "cert.pem", &url]));
    assert!(out(&page).contains("<title>Comem</title>"), "{}", err(&page));
    let token = format!("{{\"token\":\"{}\"}}", ui.token);
    let origin = format!("Origin: https://{}", ui.authority);
    let mut curl = ui.scratch.command("curl");
    curl.args(["-sSi", "--cacert", "cert.pem", "-H", &origin, "-H", "Content-Type: application/json", "-d", &token]);
    let opened = out(&finish(curl.arg(format!("{url}api/session"))));
    assert!(opened.starts_with("HTTP/1.1 200 ") && opened.contains("; Secure"), "{opened}");
    let mut plain = Vec::new();
    let _ = ui.send("GET", "/", &ui.own_origin(), "").read_to_end(&mut plain);
    assert!(!plain.starts_with(b"HTTP/"), "who does not encrypt is not served");
}

#[test]
fn jobs_go_on_when_the_server_ends() {
    let mut ui = Ui::start(&[]);
    let (number, held) = ui.launch_nodes("survivor");
    signal(ui.server.id(), "INT");
    assert_eq!(ui.server.wait().unwrap().code(), Some(130));
    let said = common::read_to_string(ui.server.stderr.take().unwrap());
    assert_eq!(said, "comem: 1 job that the page has started will go on; see `comem jobs`\n");
    let listed = finish(ui.scratch.comem().arg("jobs"));
    assert!(out(&listed).contains(&number.to_string()) && out(&listed).contains("survivor"), "{}", out(&listed));
    let kill = ui.scratch.comem().args(["kill", "survivor"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    assert_eq!(wait(kill.unwrap()).status.code(), Some(0));
    held.expect_all_gone();
}
