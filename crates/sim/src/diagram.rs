//! A run as a message diagram: time goes down, each node has a column with what its threads do, and arrows are
//! messages.
//!
//! As text a message stands in one row, that of its arrival, with the moment at which it was sent. In a picture an
//! arrow begins where it was sent, so that messages which overtake each other cross. Rows are events, not moments:
//! nothing overlaps, and long waits take no room.

use crate::carrier::Parcel;
use crate::{pages, program};
use comem_protocol::ids::NodeId;
use comem_protocol::time::Time;
use comem_protocol::wire::message::{Message, Want};
use std::fmt::Write;

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A thread has ended a step of its program.
    Step {
        /// When.
        at: Time,
        /// On which node.
        node: NodeId,
        /// Which step.
        step: Step,
    },
    /// A message.
    Message {
        /// When it was sent.
        sent: Time,
        /// Who sent it.
        from: NodeId,
        /// When it arrived; `None` if it was lost.
        arrived: Option<Time>,
        /// To whom it went.
        to: NodeId,
        /// What it is.
        name: String,
    },
}

/// A step of a thread's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Loaded a variable, with this result.
    Load(usize, u64),
    /// Stored a value.
    Store(usize, u64),
    /// Acquired a lock.
    Lock(u64),
    /// Released it.
    Unlock(u64),
    /// Raised a flag.
    Set(u64),
    /// Has seen it raised.
    Waited(u64),
    /// Passed a barrier.
    Barrier,
}

impl Step {
    /// A step over shared pages; `register` holds what was loaded last. What no diagram shows is `None`.
    pub fn of_pages(op: pages::program::Op, register: u64) -> Option<Step> {
        use pages::program::Op;
        Some(match op {
            Op::Read(word) => Step::Load(word, register),
            Op::Write(word, value) => Step::Store(word, value),
            Op::WriteNext(word) => Step::Store(word, register + 1),
            Op::WriteLess(word) => Step::Store(word, register - 1),
            Op::WriteBack(word) => Step::Store(word, register),
            Op::Lock(lock) => Step::Lock(lock.0),
            Op::Unlock(lock) => Step::Unlock(lock.0),
            Op::Set(flag, _) => Step::Set(flag.0),
            Op::Await(flag, _) => Step::Waited(flag.0),
            Op::Barrier | Op::Reduce(_) => Step::Barrier,
            _ => return None,
        })
    }

    /// A step over shared objects, and what it loaded. What no diagram shows is `None`.
    pub fn of_objects(op: program::Op, loaded: u64) -> Option<Step> {
        use program::Op;
        Some(match op {
            Op::Read(element) => Step::Load(element, loaded),
            Op::Write(element, value) => Step::Store(element, value),
            Op::Lock(lock) => Step::Lock(lock.0),
            Op::Unlock(lock) => Step::Unlock(lock.0),
            Op::Set(flag, _) => Step::Set(flag.0),
            Op::Await(flag, _) => Step::Waited(flag.0),
            Op::Barrier(_) => Step::Barrier,
            _ => return None,
        })
    }

    fn text(self, name: &dyn Fn(usize) -> String) -> String {
        match self {
            Step::Load(variable, value) => format!("load {} -> {value}", name(variable)),
            Step::Store(variable, value) => format!("{} = {value}", name(variable)),
            Step::Lock(lock) => format!("lock {lock} taken"),
            Step::Unlock(lock) => format!("lock {lock} released"),
            Step::Set(flag) => format!("flag {flag} set"),
            Step::Waited(flag) => format!("flag {flag} seen"),
            Step::Barrier => "barrier passed".to_string(),
        }
    }
}

impl Event {
    /// A thread's step.
    pub fn step(at: Time, node: NodeId, step: Step) -> Event {
        Event::Step { at, node, step }
    }

    /// A message that travels whole; `None` for a datagram, of which nothing is known, and for what a node says to
    /// itself.
    pub fn message(sent: Time, from: NodeId, arrived: Option<Time>, to: NodeId, parcel: &Parcel) -> Option<Event> {
        let (Parcel::Message(message) | Parcel::Free(message)) = parcel else { return None };
        let name = match Message::parse(message.ty, &message.body) {
            Ok(message) => name_of(&message),
            Err(_) => format!("type {}", message.ty.0),
        };
        (from != to).then_some(Event::Message { sent, from, arrived, to, name })
    }

    /// The moment at whose row it stands in a text.
    fn shown_at(&self) -> Time {
        match self {
            Event::Step { at, .. } => *at,
            Event::Message { sent, arrived, .. } => arrived.unwrap_or(*sent),
        }
    }
}

/// A message's name, with what a reader most wants to know of it.
fn name_of(message: &Message<'_>) -> String {
    let want = |want: Want| if want == Want::Shared { "to read" } else { "to write" };
    let debug = format!("{message:?}");
    let name = debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    match message {
        Message::Get { want: wanted, .. } => format!("{name}, {}", want(*wanted)),
        Message::Forward { want: wanted, .. } => format!("{name}, {}", want(*wanted)),
        Message::Data { grant, .. } => format!("{name}, {}", want(*grant)),
        Message::LockRequest { lock, .. } | Message::LockForward { lock, .. } | Message::LockGrant { lock, .. } => {
            format!("{name} {}", lock.0)
        }
        Message::FlagSet { flag, .. } | Message::FlagWait { flag, .. } | Message::FlagUp { flag, .. } => {
            format!("{name} {}", flag.0)
        }
        _ => name.to_string(),
    }
}

/// Characters of a node's column.
const COLUMN: usize = 28;

/// The diagram as text. `name` gives variables their names.
pub fn text(events: &[Event], nodes: usize, name: &dyn Fn(usize) -> String) -> String {
    let mut sorted: Vec<&Event> = events.iter().collect();
    sorted.sort_by_key(|event| event.shown_at());
    let centre = |node: usize| node * COLUMN + COLUMN / 2;
    let mut text = String::new();
    let mut head = vec![' '; nodes * COLUMN];
    (0..nodes).for_each(|node| put(&mut head, centre(node), &format!("node {node}")));
    line(&mut text, "time", &head, "");
    for event in sorted {
        let mut row = vec![' '; nodes * COLUMN];
        (0..nodes).for_each(|node| row[centre(node)] = '│');
        match event {
            Event::Step { at, node, step } => {
                put(&mut row, centre(node.index()), &format!(" {} ", step.text(name)));
                line(&mut text, &micros(*at), &row, "");
            }
            Event::Message { sent, from, arrived, to, name } => {
                let (a, b) = (centre(from.index()), centre(to.index()));
                for (place, cell) in row.iter_mut().enumerate() {
                    if place > a.min(b) && place < a.max(b) {
                        *cell = '─';
                    }
                }
                let head = if a < b { b - 1 } else { b + 1 };
                row[head] = match (arrived, a < b) {
                    (None, _) => 'x',
                    (_, true) => '>',
                    (_, false) => '<',
                };
                put(&mut row, (a + b) / 2, &format!(" {name} "));
                let when = if arrived.is_some() { format!("  sent {}", micros(*sent)) } else { "  lost".to_string() };
                line(&mut text, &micros(event.shown_at()), &row, &when);
            }
        }
    }
    text
}

fn micros(at: Time) -> String {
    format!("{:.1} us", at.0 as f64 / 1e3)
}

fn line(text: &mut String, time: &str, row: &[char], after: &str) {
    let row: String = row.iter().collect();
    let whole = format!("{time:>12} {}{after}", row.trim_end());
    let _ = writeln!(text, "{}", whole.trim_end());
}

/// Writes a text into a row, its middle there.
fn put(row: &mut [char], middle: usize, text: &str) {
    let from = middle.saturating_sub(text.chars().count() / 2);
    row.iter_mut().skip(from).zip(text.chars()).for_each(|(cell, c)| *cell = c);
}

const LEFT: f64 = 110.0;
const TOP: f64 = 104.0;
const PITCH: f64 = 230.0;
const ROW: f64 = 24.0;

const STYLE: &str = "\
text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:13px;fill:#1f2328}
.paper{fill:#fff;stroke:#d1d5da}.title{font-size:18px;font-weight:600}.soft{fill:#59636e;font-size:12px}
.time{fill:#59636e;font-size:11px;text-anchor:end}.middle{text-anchor:middle}.node{font-weight:600;text-anchor:middle}
.life{stroke:#8b949e;stroke-dasharray:4 4}.step{fill:#eef4fc;stroke:#3b7dd8}.sync{fill:#fdf3e3;stroke:#c98a1b}
.arrow{stroke:#59636e;stroke-width:1.6}.head{fill:#59636e}.lost{stroke:#cf222e;stroke-width:1.6;stroke-dasharray:3 3}
.name{font-size:12px;text-anchor:middle;paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117;stroke:#30363d}.soft,.time{fill:#9198a1}
.step{fill:#13233a}.sync{fill:#33270f}.name{stroke:#0d1117}.arrow{stroke:#9198a1}.head{fill:#9198a1}}";

/// The diagram as a picture, with a title and a line below it.
pub fn svg(events: &[Event], nodes: usize, name: &dyn Fn(usize) -> String, title: &str, below: &str) -> String {
    // Steps, sendings and arrivals, each with a row of its own.
    let mut moments: Vec<(Time, usize, bool)> = Vec::new();
    for (index, event) in events.iter().enumerate() {
        match event {
            Event::Step { at, .. } => moments.push((*at, index, false)),
            Event::Message { sent, arrived, .. } => {
                moments.push((*sent, index, false));
                moments.extend(arrived.map(|arrived| (arrived, index, true)));
            }
        }
    }
    // What arrives comes before what is sent because of it.
    moments.sort_by_key(|(at, index, arrival)| (*at, !arrival, *index));
    let row = |index: usize, arrival: bool| {
        let place = moments.iter().position(|(_, i, a)| (*i, *a) == (index, arrival)).unwrap_or(0);
        TOP + (place as f64 + 1.0) * ROW
    };
    let x = |node: NodeId| LEFT + PITCH * (node.index() as f64 + 0.5);
    // As wide as the columns or the line below the title.
    let width = (LEFT + PITCH * nodes as f64 + 20.0).max(48.0 + 6.4 * below.chars().count() as f64);
    let height = TOP + (moments.len() as f64 + 2.0) * ROW;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
         {height}\" role=\"img\" aria-label=\"{0}\">\n<style>{STYLE}</style>\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{1}\" height=\"{2}\" rx=\"10\" class=\"paper\"/>\n\
         <text x=\"24\" y=\"34\" class=\"title\">{0}</text>\n<text x=\"24\" y=\"56\" class=\"soft\">{3}</text>\n",
        escape(title),
        width - 1.0,
        height - 1.0,
        escape(below)
    );
    for node in NodeId::all(nodes) {
        let (x, end) = (x(node), height - ROW);
        let _ = writeln!(out, r#"<text x="{x}" y="{}" class="node">node {}</text>"#, TOP - 16.0, node.0);
        let _ = writeln!(out, r#"<line x1="{x}" y1="{}" x2="{x}" y2="{end}" class="life"/>"#, TOP - 6.0);
    }
    for (at, index, arrival) in &moments {
        let y = row(*index, *arrival) + 4.0;
        let _ = writeln!(out, r#"<text x="{}" y="{y:.1}" class="time">{}</text>"#, LEFT - 18.0, micros(*at));
    }
    for (index, event) in events.iter().enumerate() {
        match event {
            Event::Message { from, arrived, to, name, .. } => {
                let (from, to) = (x(*from), x(*to));
                arrow(
                    &mut out,
                    (from, row(index, false)),
                    (to, row(index, arrived.is_some())),
                    arrived.is_some(),
                    name,
                );
            }
            Event::Step { node, step, .. } => {
                let (text, y) = (step.text(name), row(index, false));
                let half = text.chars().count() as f64 * 3.8 + 10.0;
                let class = if matches!(step, Step::Load(..) | Step::Store(..)) { "step" } else { "sync" };
                let _ = write!(
                    out,
                    r#"<rect x="{:.1}" y="{:.1}" width="{:.1}" height="20" rx="4" class="{class}"/>"#,
                    x(*node) - half,
                    y - 10.0,
                    2.0 * half
                );
                let _ = writeln!(
                    out,
                    r#"<text x="{:.1}" y="{:.1}" class="middle">{}</text>"#,
                    x(*node),
                    y + 4.5,
                    escape(&text)
                );
            }
        }
    }
    out.push_str("</svg>\n");
    out
}

/// An arrow with its name in the middle. What was lost ends half-way.
fn arrow(out: &mut String, from: (f64, f64), to: (f64, f64), arrives: bool, name: &str) {
    let to = if arrives { to } else { ((from.0 + to.0) / 2.0, from.1) };
    let length = (to.0 - from.0).hypot(to.1 - from.1).max(1.0);
    let (dx, dy) = ((to.0 - from.0) / length, (to.1 - from.1) / length);
    let class = if arrives { "arrow" } else { "lost" };
    let _ = writeln!(
        out,
        r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" class="{class}"/>"#,
        from.0, from.1, to.0, to.1
    );
    if arrives {
        let wing = |side: f64| (to.0 - 9.0 * dx + side * 4.0 * dy, to.1 - 9.0 * dy - side * 4.0 * dx);
        let (a, b) = (wing(1.0), wing(-1.0));
        let points = format!("{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}", to.0, to.1, a.0, a.1, b.0, b.1);
        let _ = writeln!(out, r#"<polygon points="{points}" class="head"/>"#);
    }
    let name = if arrives { escape(name) } else { format!("{} (lost)", escape(name)) };
    let (x, y) = ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0 - 4.0);
    let _ = writeln!(out, r#"<text x="{x:.1}" y="{y:.1}" class="name">{name}</text>"#);
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Vec<Event> {
        let message = |sent, arrived, from, to, name: &str| Event::Message {
            sent: Time(sent),
            from: NodeId(from),
            arrived,
            to: NodeId(to),
            name: name.to_string(),
        };
        vec![
            Event::step(Time(1_000), NodeId(0), Step::Store(0, 1)),
            message(1_500, Some(Time(3_000)), 1, 0, "Fetch"),
            message(3_100, Some(Time(4_200)), 0, 1, "Pages"),
            message(3_200, None, 0, 1, "Update"),
            Event::step(Time(5_000), NodeId(1), Step::Load(0, 1)),
        ]
    }

    fn name(_: usize) -> String {
        "x".to_string()
    }

    #[test]
    fn text_goes_down_in_time_with_an_arrow_for_each_message() {
        let text = text(&events(), 2, &name);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("node 0") && lines[0].contains("node 1"));
        assert!(lines[1].contains("1.0 us") && lines[1].contains("x = 1"), "{text}");
        assert!(lines[2].contains("<──") && lines[2].contains("Fetch") && lines[2].ends_with("sent 1.5 us"), "{text}");
        assert!(lines[3].contains("Update") && lines[3].contains('x') && lines[3].ends_with("lost"), "{text}");
        assert!(lines[4].contains("Pages") && lines[4].contains("──>"), "{text}");
        assert!(lines[5].contains("load x -> 1"), "{text}");
    }

    #[test]
    fn the_picture_has_a_row_for_each_end_of_an_arrow() {
        let text = svg(&events(), 2, &name, "a < b", "");
        assert!(text.contains("a &lt; b") && text.trim_end().ends_with("</svg>"));
        assert_eq!((text.matches("<polygon").count(), text.matches("class=\"lost\"").count()), (2, 1));
        // Two steps, two messages with two ends, and one that was lost.
        assert_eq!(text.matches("class=\"time\"").count(), 2 + 4 + 1);
        let arrow = text.lines().find(|line| line.contains("class=\"arrow\"")).unwrap();
        let number = |name: &str| -> f64 {
            arrow.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        assert!(number("y1") < number("y2") && number("x1") > number("x2"), "from node 1 down to node 0: {arrow}");
    }
}
