//! `comem doctor`: what hosts can do, and what a remote access between them will cost.
//!
//! | module | |
//! |---|---|
//! | [`features`] | what one host offers, each thing probed by using it |
//! | [`limits`] | what the limits of processes leave of it |
//! | [`inline`] | whether programs with checks in their own code can be built and run |
//! | [`pages`] | which detectors of pages work there |
//! | [`page_costs`] | what protecting a page and a fault cost there |
//! | [`measure`] | round trips and bandwidth between two hosts |
//! | [`peer`] | the other end of a measurement, on another host |

pub mod features;
pub mod inline;
pub mod limits;
pub mod measure;
pub mod page_costs;
pub mod pages;
pub mod peer;

use crate::args::DoctorArgs;
use crate::failure::{Failure, Outcome};
use crate::hosts;
use crate::remote::ShellCommand;
use crate::sys;
use crate::table::{one_line, plain_json};
use comem_net::select::{self, PortChoice, Reach};
use features::HostReport;
use measure::{Echo, Measured};
use peer::RemotePeer;
use serde_json::{Value, json};

/// What was found out about one host.
struct Examined {
    name: String,
    report: HostReport,
    /// Between this host and that one; between two threads for this host itself.
    measured: Outcome<Measured>,
    /// What would keep it from sharing memory with this host.
    obstacles: Vec<String>,
}

/// Runs the command; its exit code.
pub fn main(args: &DoctorArgs) -> Outcome<i32> {
    let ports = port_choice(args.ports.as_deref());
    if args.peer {
        return peer::serve();
    }
    let list = args.hosts.as_deref().map(hosts::parse).transpose()?;
    let others: Vec<hosts::Host> = list.unwrap_or_default().into_iter().filter(|h| !hosts::is_here(&h.name)).collect();
    let reach = if others.is_empty() { Reach::ThisHost } else { Reach::Network };
    let here = examine_here(args, ports, reach)?;
    let mut all = vec![here];
    let mut code = 0;
    for host in &others {
        match examine_there(args, ports, &host.name, &all[0].report) {
            Ok(examined) => all.push(examined),
            Err(failure) => {
                crate::say(format_args!("{failure}"));
                code = failure.code;
            }
        }
    }
    if args.json {
        let text = serde_json::to_string_pretty(&json!(all.iter().map(Examined::json).collect::<Vec<_>>()));
        crate::show(&format!("{}\n", plain_json(&text.expect("a report has a JSON form"))))?;
    } else {
        crate::show(&all.iter().map(Examined::text).collect::<String>())?;
    }
    let obstacles = all.iter().any(|examined| !examined.obstacles.is_empty() || examined.measured.is_err());
    Ok(if code == 0 && obstacles { crate::failure::exit::START } else { code })
}

fn port_choice(ports: Option<&str>) -> PortChoice {
    let range = ports.and_then(|text| text.split_once('-'));
    let range = range.and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
    range.map_or(PortChoice::Any, |(low, high)| PortChoice::Range(low, high))
}

fn examine_here(args: &DoctorArgs, ports: PortChoice, reach: Reach) -> Outcome<Examined> {
    let chosen = match (reach, &args.iface) {
        (Reach::ThisHost, None) => hosts::loopback()?,
        (reach, wanted) => select::choose(wanted.as_deref(), reach).map_err(|e| Failure::start(e.to_string(), ""))?,
    };
    let report = HostReport::here(&chosen, ports);
    let measured = Echo::start_here(&chosen, ports).and_then(|echo| {
        let measured = measure::measure(&chosen, ports, echo.address, echo.token);
        echo.stop();
        measured
    });
    let mut obstacles = report.obstacles();
    obstacles.extend(measured.as_ref().ok().and_then(Measured::obstacle));
    Ok(Examined { name: sys::host::name(), report, measured, obstacles })
}

fn examine_there(args: &DoctorArgs, ports: PortChoice, name: &str, here: &HostReport) -> Outcome<Examined> {
    let rsh = std::env::var("COMEM_RSH").ok();
    let shell = ShellCommand::new(rsh.as_deref(), &args.remote_comem);
    let orders = peer::Orders { iface: args.iface.clone(), ports: args.ports.clone(), token: sys::random() };
    let peer = RemotePeer::start(&shell, name, &orders)?;
    let local = select::choose(args.iface.as_deref(), Reach::Peer(peer.hello.address.ip()));
    let local = local.map_err(|e| Failure::start(e.to_string(), ""))?;
    let measured = measure::measure(&local, ports, peer.hello.address, orders.token);
    let report = peer.hello.report.clone();
    let mut obstacles = report.obstacles();
    obstacles.extend(here.differences(&report));
    if let Ok(measured) = &measured {
        obstacles.extend(measured.obstacle());
        let offset_s = measured.clock_offset_ns.unsigned_abs() as f64 / 1e9;
        if offset_s > 1.0 {
            obstacles.push(format!("its clock differs by {offset_s:.1} s: log lines will not fit together"));
        }
    }
    Ok(Examined { name: name.to_string(), report, measured, obstacles })
}

impl Examined {
    fn json(&self) -> Value {
        json!({
            "host": self.name,
            "features": self.report,
            "network": self.measured.as_ref().ok(),
            "network_failure": self.measured.as_ref().err().map(|failure| failure.what.clone()),
            "obstacles": self.obstacles,
        })
    }

    fn text(&self) -> String {
        let mut lines = self.report.lines();
        match &self.measured {
            Ok(measured) => lines.extend(measured.lines()),
            Err(failure) => lines.push(("network", failure.to_string().trim_start_matches("comem: ").to_string())),
        }
        match self.obstacles.as_slice() {
            [] => lines.push(("verdict", "ready".to_string())),
            list => lines.extend(list.iter().map(|obstacle| ("OBSTACLE", obstacle.clone()))),
        }
        let line = |(label, value): (&str, String)| format!("  {label:<22} {}\n", one_line(&value));
        format!("host {}\n", one_line(&self.name)) + &lines.into_iter().map(line).collect::<String>()
    }
}
