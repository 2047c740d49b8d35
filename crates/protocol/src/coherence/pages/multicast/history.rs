//! What a job arrived at of its variables, for the next run of its program: who has copies, who manages them, and how
//! diffs go.
//!
//! A history holds hints: a job is right with any. Where it is damaged, hostile or of another job it is refused as a
//! whole, in a sentence, and the job starts as without one. All nodes must start with the same hints, so the launcher
//! reads the file and gives every node its bytes. Files are no concern of this module.
//!
//! The format is text, so that people can read it. The first line names the version and the checksum of all that stands
//! behind it. Each further line is a word and its fields:
//!
//! ```text
//! comem-history 1 9f3a5c0d7e1b2468
//! program 5d41402abc4b2a76b9719d911017c592...
//! job nodes 4 threads 2 engine multicast
//! variable grid 64 0 16 1 manager 2 distributed early used 512 members 0-2,5
//! ```
//!
//! A variable's fields are its name, the pages of its region, the first page that the line is about, from the region's
//! beginning, how many it is about, and pages of a unit. `used` is in how many epochs nodes used these units. Each run
//! starts with half of what the last one said. Bytes of a name other than letters, digits and `_-.:/#@` stand as `%`
//! and two digits.
//!
//! A variable's name is the label of its region, or where in the program it was allocated, which is called a *site*:
//! `sor.c:31`. The second region of a name is `sor.c:31#1`. What node 3 allocated alone ends in `@3`. A program that
//! has changed since may have other things at its lines. So of its history labels count, and sites do not. A region
//! that has become more than twice as large, or less than half, is another one.

use super::placement::Placement;
use crate::coherence::node_set::NodeSet;
use crate::coherence::pages::region::{LABEL_MAX, Region};
use crate::coherence::pages::{PageEngine, PageNo, UNIT_PAGES_MAX};
use crate::ids::{NODES_MAX, NodeId};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;
use std::str::{FromStr, Split};

/// The version of the format that this library writes, and reads.
pub const VERSION: u32 = 1;

/// A history is no larger. Whoever reads a file looks at its size before.
pub const HISTORY_BYTES_MAX: usize = 1 << 20;

/// Most bytes of a variable's name.
pub const NAME_MAX: usize = 256;

const MAGIC: &str = "comem-history";

/// The job that a history is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The hash of the program.
    pub program: [u8; 32],
    /// Its nodes.
    pub nodes: u16,
    /// Threads of each.
    pub threads: u16,
    /// What keeps its pages.
    pub engine: PageEngine,
}

/// What was arrived at of a unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Where its bases are, and how its diffs go.
    pub placement: Placement,
    /// Whether they are told before arrivals at barriers.
    pub is_early: bool,
    /// The copyset.
    pub members: NodeSet,
    /// In how many epochs nodes used it, in this run and, halved with each, in those before. A power of two, or 0.
    pub epochs: u32,
}

/// What was arrived at of some units of a variable that lie side by side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// What the next run will know its region by ([`name_of`]). At most [`NAME_MAX`] bytes.
    pub name: String,
    /// How many pages the region has.
    pub region_pages: u32,
    /// The first page, from the region's beginning.
    pub offset: u32,
    /// How many pages, whole units.
    pub pages: u32,
    /// Pages of a unit, a power of two.
    pub unit_pages: u32,
    /// What was arrived at.
    pub choice: Choice,
}

/// A history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    /// The job that it is of.
    pub identity: Identity,
    /// In any order.
    pub variables: Vec<Variable>,
}

/// Why a history is not used, to stand behind its name: `... is not used: it is damaged or was cut short`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// It is larger than any that this library writes.
    #[error("it has {0} bytes, and none has more than {most}", most = HISTORY_BYTES_MAX)]
    TooLarge(u64),
    /// It does not begin as a history does.
    #[error("it is no history of a job")]
    NoHistory,
    /// Another version of the library wrote it.
    #[error("it has version {0} of the format, and this is Comem with version {ours}", ours = VERSION)]
    Version(u32),
    /// The checksum says so.
    #[error("it is damaged or was cut short")]
    Damaged,
    /// A line cannot be understood, although the checksum fits.
    #[error("line {line} of it makes no sense: {what}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// It is of another job.
    #[error("it is of {0}")]
    Foreign(String),
}

/// A label of which this node, or all together, had so many regions before.
pub fn numbered(label: &str, before: u32) -> String {
    if before == 0 || label.is_empty() {
        return label.to_string();
    }
    let number = format!("#{before}");
    let mut end = label.len().min(LABEL_MAX - number.len());
    while !label.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{number}", &label[..end])
}

/// What the next run of the program will know a region by; empty where it will not. All nodes give the same name.
pub fn name_of(region: &Region) -> String {
    match region.owner {
        Some(owner) if !region.label.is_empty() => format!("{}@{}", region.label, owner.0),
        _ => region.label.clone(),
    }
}

/// What stands before this mark and a number, if a name ends so.
fn without_number(name: &str, mark: char) -> Option<&str> {
    let (before, number) = name.rsplit_once(mark)?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(before)
}

/// Whether a name says where in the program's text a region was allocated.
fn is_site(name: &str) -> bool {
    let name = without_number(name, '@').unwrap_or(name);
    let name = without_number(name, '#').unwrap_or(name);
    without_number(name, ':').is_some_and(|file| !file.is_empty())
}

/// Whether a region of so many pages may be one that had so many in another run.
fn is_within_twice(now: u32, then: u32) -> bool {
    u64::from(now) <= 2 * u64::from(then) && u64::from(then) <= 2 * u64::from(now)
}

/// Whether a history of so many bytes may be read at all.
///
/// # Errors
/// When none has so many.
pub fn check_size(bytes: u64) -> Result<(), Refused> {
    if bytes > HISTORY_BYTES_MAX as u64 { Err(Refused::TooLarge(bytes)) } else { Ok(()) }
}

fn checksum(body: &str) -> String {
    blake3::hash(body.as_bytes()).to_hex()[..16].to_string()
}

/// A body behind a first line that fits it.
pub fn with_head(body: &str) -> String {
    format!("{MAGIC} {VERSION} {}\n{body}", checksum(body))
}

fn put_name(out: &mut String, name: &str) {
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(byte.into()),
            b'_' | b'-' | b'.' | b':' | b'/' | b'#' | b'@' => out.push(byte.into()),
            _ => _ = write!(out, "%{byte:02x}"),
        }
    }
}

fn take_name(text: &str) -> Option<String> {
    let (mut bytes, mut left) = (Vec::new(), text.bytes());
    while let Some(byte) = left.next() {
        let byte = match byte {
            b'%' => {
                let digits = [left.next()?, left.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok().filter(|name| (1..=NAME_MAX).contains(&name.len()))
}

fn put_members(out: &mut String, members: &NodeSet) {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for NodeId(node) in members.iter() {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == node => *last = node,
            _ => runs.push((node, node)),
        }
    }
    if runs.is_empty() {
        out.push_str("none");
    }
    for (at, (first, last)) in runs.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        _ = if first == last { write!(out, "{comma}{first}") } else { write!(out, "{comma}{first}-{last}") };
    }
}

fn take_members(text: &str, nodes: u16) -> Option<NodeSet> {
    let (mut members, mut next) = (NodeSet::new(), 0);
    for run in text.split(',').filter(|_| text != "none") {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last): (u16, u16) = (number(first)?, number(last)?);
        if first < next || last < first || last >= nodes {
            return None;
        }
        (first..=last).for_each(|node| _ = members.insert(NodeId(node)));
        next = last + 1;
    }
    Some(members)
}

/// A number as it is written: no sign, and no zero in front.
fn number<N: FromStr>(text: &str) -> Option<N> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

impl Identity {
    fn emit(&self, out: &mut String) {
        out.push_str("program ");
        self.program.iter().for_each(|byte| _ = write!(out, "{byte:02x}"));
        let Identity { nodes, threads, engine, .. } = self;
        _ = writeln!(out, "\njob nodes {nodes} threads {threads} engine {engine}");
    }

    /// Whether a history of this job is one for `job`, of whatever version of its program.
    fn check(&self, job: &Identity) -> Result<(), Refused> {
        let foreign = |what: String| Err(Refused::Foreign(what));
        if (self.nodes, self.threads) != (job.nodes, job.threads) {
            let (nodes, threads) = (self.nodes, self.threads);
            return foreign(format!("a job of {nodes} nodes with {threads} threads each"));
        }
        if self.engine != job.engine {
            return foreign(format!("a job under {}", self.engine));
        }
        Ok(())
    }
}

/// A line's fields.
struct Fields<'a>(Split<'a, char>);

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<&'a str, &'static str> {
        self.0.next().ok_or("it ends too soon")
    }

    fn word(&mut self, word: &str) -> Result<(), &'static str> {
        if self.next()? == word { Ok(()) } else { Err("a word is not where it should be") }
    }

    fn number<N: FromStr>(&mut self) -> Result<N, &'static str> {
        number(self.next()?).ok_or("a number cannot be")
    }

    /// Which of two words stands there.
    fn either(&mut self, yes: &str, no: &str) -> Result<bool, &'static str> {
        match self.next()? {
            word if word == yes => Ok(true),
            word if word == no => Ok(false),
            _ => Err("a word is not where it should be"),
        }
    }

    fn end(mut self) -> Result<(), &'static str> {
        if self.0.next().is_none() { Ok(()) } else { Err("something stands behind its end") }
    }
}

fn take_program(line: &str) -> Result<[u8; 32], &'static str> {
    let mut fields = Fields(line.split(' '));
    fields.word("program")?;
    let (hex, mut program) = (fields.next()?, [0; 32]);
    fields.end()?;
    let is_hex = hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    for (at, byte) in program.iter_mut().enumerate().filter(|_| is_hex) {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).map_err(|_| "the hash is none")?;
    }
    if is_hex { Ok(program) } else { Err("the hash is none") }
}

fn take_job(program: [u8; 32], line: &str) -> Result<Identity, &'static str> {
    let mut fields = Fields(line.split(' '));
    fields.word("job")?;
    fields.word("nodes")?;
    let nodes: u16 = fields.number()?;
    fields.word("threads")?;
    let threads = fields.number()?;
    fields.word("engine")?;
    let engine = PageEngine::named(fields.next()?).ok_or("there is no such engine")?;
    fields.end()?;
    let is_job = (1..=NODES_MAX).contains(&usize::from(nodes));
    if is_job { Ok(Identity { program, nodes, threads, engine }) } else { Err("no job has so many nodes") }
}

impl Variable {
    fn emit(&self, out: &mut String) {
        let Choice { placement: Placement { manager, is_homed }, is_early, members, epochs } = &self.choice;
        out.push_str("variable ");
        put_name(out, &self.name);
        let way = if *is_homed { "homed" } else { "distributed" };
        let early = if *is_early { "early" } else { "late" };
        let (of, offset, pages, unit) = (self.region_pages, self.offset, self.pages, self.unit_pages);
        _ = write!(out, " {of} {offset} {pages} {unit} manager {} {way} {early} used {epochs} members ", manager.0);
        put_members(out, members);
        out.push('\n');
    }

    fn parse(line: &str, nodes: u16) -> Result<Variable, &'static str> {
        let mut fields = Fields(line.split(' '));
        fields.word("variable")?;
        let name = take_name(fields.next()?).ok_or("its name cannot be")?;
        let (region_pages, offset): (u32, u32) = (fields.number()?, fields.number()?);
        let (pages, unit_pages): (u32, u32) = (fields.number()?, fields.number()?);
        fields.word("manager")?;
        let manager = NodeId(fields.number()?);
        let is_homed = fields.either("homed", "distributed")?;
        let is_early = fields.either("early", "late")?;
        fields.word("used")?;
        let epochs = fields.number()?;
        fields.word("members")?;
        let members = take_members(fields.next()?, nodes).ok_or("the copyset cannot be")?;
        fields.end()?;
        if manager.0 >= nodes {
            return Err("the job has no such manager");
        }
        let is_unit = unit_pages.is_power_of_two() && unit_pages <= UNIT_PAGES_MAX;
        let are_units = is_unit && pages.is_multiple_of(unit_pages) && offset.is_multiple_of(unit_pages);
        if !are_units || pages == 0 || offset.checked_add(pages).is_none_or(|end| end > region_pages) {
            return Err("its pages are no units of its region");
        }
        let choice = Choice { placement: Placement { manager, is_homed }, is_early, members, epochs };
        Ok(Variable { name, region_pages, offset, pages, unit_pages, choice })
    }
}

impl History {
    /// The empty history of a job.
    pub fn new(identity: Identity) -> History {
        History { identity, variables: Vec::new() }
    }

    /// Adds what was arrived at of some units of a region, which the next run will know by this name
    /// ([`PageTable::choices`](crate::coherence::pages::page_table::PageTable::choices)).
    pub fn add(&mut self, name: &str, region: &Region, choices: impl IntoIterator<Item = (Range<PageNo>, Choice)>) {
        if name.is_empty() || name.len() > NAME_MAX {
            return;
        }
        for (run, choice) in choices {
            let (offset, pages) = (run.start - region.first, run.end - run.start);
            match self.variables.last_mut() {
                Some(last) if last.name == name && last.offset + last.pages == offset && last.choice == choice => {
                    last.pages += pages;
                }
                _ => {
                    let (name, region_pages, unit_pages) = (name.to_string(), region.pages, region.unit_pages());
                    self.variables.push(Variable { name, region_pages, offset, pages, unit_pages, choice });
                }
            }
        }
    }

    /// What is known of a region's units, as runs of its pages. Nothing where the region was another.
    pub fn choices<'a>(
        &'a self,
        name: &'a str,
        region: &'a Region,
    ) -> impl Iterator<Item = (Range<PageNo>, &'a Choice)> + 'a {
        let fits = |variable: &&Variable| {
            variable.unit_pages == region.unit_pages() && is_within_twice(region.pages, variable.region_pages)
        };
        let of_region = self.variables.iter().filter(move |variable| variable.name == name).filter(fits);
        let runs = of_region.map(|Variable { offset, pages, choice, .. }| {
            let end = (offset + pages).min(region.pages);
            (region.first + (*offset).min(end)..region.first + end, choice)
        });
        runs.filter(|(run, _)| !run.is_empty())
    }

    /// The same for a program with this hash. Where that is another, lines may have moved, and sites are left out.
    #[must_use]
    pub fn for_program(mut self, program: [u8; 32]) -> History {
        if self.identity.program != program {
            self.variables.retain(|variable| !is_site(&variable.name));
            self.identity.program = program;
        }
        self
    }

    /// What is to stand in the file after this run, where `earlier` stands there now. Of variables that this run has
    /// not had half remains, and nothing when that has happened often enough.
    #[must_use]
    pub fn after(mut self, earlier: History) -> History {
        let had: BTreeSet<String> = self.variables.iter().map(|variable| variable.name.clone()).collect();
        for mut variable in earlier.for_program(self.identity.program).variables {
            variable.choice.epochs /= 2;
            if variable.choice.epochs > 0 && !had.contains(&variable.name) {
                self.variables.push(variable);
            }
        }
        self
    }

    /// The history as a file has it. Where there is no room for all variables, those are left out that were used least.
    pub fn encode(&self) -> String {
        const HEAD_BYTES: usize = 64;
        let mut body = String::new();
        self.identity.emit(&mut body);
        let line = |variable: &Variable| {
            let mut line = String::new();
            variable.emit(&mut line);
            line
        };
        let mut lines: Vec<(usize, String)> = self.variables.iter().map(line).enumerate().collect();
        lines.sort_by_key(|(at, _)| Reverse(self.variables[*at].choice.epochs));
        let mut room = HISTORY_BYTES_MAX - HEAD_BYTES - body.len();
        let has_room = |(_, line): &(usize, String)| {
            let fits = line.len() <= room;
            room = if fits { room - line.len() } else { 0 };
            fits
        };
        let mut kept: Vec<(usize, String)> = lines.into_iter().take_while(has_room).collect();
        kept.sort_by_key(|(at, _)| *at);
        kept.iter().for_each(|(_, line)| body.push_str(line));
        with_head(&body)
    }

    /// Reads a history for a job.
    ///
    /// # Errors
    /// When it is none, is damaged, is of another version of the format, or of another job. One of another version of
    /// the program is not refused ([`History::for_program`]).
    pub fn decode(bytes: &[u8], job: &Identity) -> Result<History, Refused> {
        check_size(bytes.len() as u64)?;
        let magic = bytes.strip_prefix(MAGIC.as_bytes()).and_then(|rest| rest.strip_prefix(b" "));
        let rest =
            magic.ok_or(if MAGIC.as_bytes().starts_with(bytes) { Refused::Damaged } else { Refused::NoHistory })?;
        let text = std::str::from_utf8(rest).map_err(|_| Refused::Damaged)?;
        let (head, body) = text.split_once('\n').ok_or(Refused::Damaged)?;
        let (version, sum) = head.split_once(' ').ok_or(Refused::Damaged)?;
        match number::<u32>(version) {
            Some(VERSION) => {}
            Some(version) => return Err(Refused::Version(version)),
            None => return Err(Refused::Damaged),
        }
        if sum != checksum(body) {
            return Err(Refused::Damaged);
        }
        let at = |line: usize| move |what: &'static str| Refused::Line { line, what };
        let body = body.strip_suffix('\n').ok_or(Refused::Damaged)?;
        let mut lines = (2..).zip(body.split('\n'));
        let mut next = || lines.next().ok_or(Refused::Damaged);
        let ((first, program), (second, job_line)) = (next()?, next()?);
        let program = take_program(program).map_err(at(first))?;
        let identity = take_job(program, job_line).map_err(at(second))?;
        identity.check(job)?;
        let mut history = History::new(identity);
        for (line, text) in lines {
            history.variables.push(Variable::parse(text, job.nodes).map_err(at(line))?);
        }
        Ok(history)
    }
}
