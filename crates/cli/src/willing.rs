//! `comem hosts`: what hosts with daemons have, and whether they have room for nodes.

use crate::args::{DaemonWay, HostsArgs};
use crate::daemon::client::{self, Caller};
use crate::daemon::key;
use crate::daemon::wire::HostState;
use crate::failure::Outcome;
use crate::show;
use crate::table::{Table, bytes, plain_json};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// A host by the name that the user gave, or its address, and what its daemon says.
pub type Asked = (String, Outcome<HostState>);

/// Asks daemons for their hosts.
///
/// # Errors
/// No daemon answers, or one of those that the user named does not. What others say is shown all the same.
pub fn main(args: &HostsArgs) -> Outcome<i32> {
    let asked = ask(&args.hosts, &args.way)?;
    if asked.is_empty() {
        return Err(client::nobody_answers(args.way.port, "as an argument"));
    }
    show(&if args.json { as_json(&asked) } else { as_table(&asked) })?;
    let mut failures = asked.into_iter().filter_map(|(_, answer)| answer.err());
    let first = failures.next();
    failures.for_each(|failure| crate::say(format_args!("{failure}")));
    first.map_or(Ok(0), Err)
}

/// Asks the daemons of these hosts, or all that answer a broadcast where none is named.
///
/// # Errors
/// There is no key, or no network.
pub fn ask(names: &[String], way: &DaemonWay) -> Outcome<Vec<Asked>> {
    let key = key::named_or_default(way.key_file.as_deref())?;
    let caller = Caller::new(&key, way.iface.as_deref(), None);
    let hosts: Vec<(String, Outcome<SocketAddr>)> = match names.is_empty() {
        true => {
            let found = caller.find(way.port)?.into_iter();
            found.map(|address| (address.ip().to_string(), Ok(address))).collect()
        }
        false => names.iter().map(|name| (name.clone(), client::resolve(name, way.port))).collect(),
    };
    Ok(ask_all(hosts, &caller))
}

/// Asks side by side: who does not answer takes seconds.
fn ask_all(hosts: Vec<(String, Outcome<SocketAddr>)>, caller: &Caller<'_>) -> Vec<Asked> {
    let ask = |(name, address): (String, Outcome<SocketAddr>)| {
        let answer = address.and_then(|address| caller.host(&name, address));
        (name, answer)
    };
    let ask = &ask;
    std::thread::scope(|scope| {
        let all: Vec<_> = hosts.into_iter().map(|host| scope.spawn(move || ask(host))).collect();
        all.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn as_table(asked: &[Asked]) -> String {
    let heads = ["<HOST", "CORES", "LOAD", "MEMORY", "FREE", "JOBS", "NODES", "SLOTS", "FREE SLOTS", "<VERSION"];
    let mut table = Table::new(&heads);
    for (name, answer) in asked {
        let Ok(state) = answer else { continue };
        table.row(vec![
            if *name == state.host.name { name.clone() } else { format!("{name} ({})", state.host.name) },
            state.host.cores.to_string(),
            format!("{:.2}", state.load),
            bytes(state.host.memory_mib << 20),
            bytes(state.memory_free_mib << 20),
            state.jobs.to_string(),
            state.nodes.to_string(),
            state.slots.map_or("any".to_string(), |slots| slots.to_string()),
            state.free_slots().to_string(),
            state.host.version.clone(),
        ]);
    }
    if asked.iter().any(|(_, answer)| answer.is_ok()) { table.text(0) } else { String::new() }
}

/// What is known of a host, as JSON.
pub fn value((name, answer): &Asked) -> Value {
    match answer {
        Ok(state) => {
            let mut line = json!(state);
            line["name"] = json!(name);
            line["free_slots"] = json!(state.free_slots());
            line
        }
        Err(failure) => json!({ "name": name, "failure": failure.what }),
    }
}

fn as_json(asked: &[Asked]) -> String {
    let lines: Vec<_> = asked.iter().map(value).collect();
    plain_json(&serde_json::to_string_pretty(&lines).expect("hosts have a JSON form")) + "\n"
}
