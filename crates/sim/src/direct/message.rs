//! Requests on their way to a node that runs one-sided operations for others, and what they brought.

use super::memory::{Memory, Write};
use super::program::{MAGIC, WORDS};
use comem_protocol::coherence::direct::remote::{Command, Request, UnitAt};
use comem_protocol::coherence::direct::{Op, Reply};
use comem_protocol::ids::NodeId;
use std::collections::VecDeque;

/// A request under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Message {
    pub from: NodeId,
    pub to: NodeId,
    pub unit: usize,
    /// Whether its sender waits for an entry, and asks whether the job is lost.
    pub is_of_spinner: bool,
    /// The commands that are left.
    commands: VecDeque<Command>,
    /// How far the first of them is.
    progress: usize,
    /// What the last command that brought something has brought.
    pub reply: Option<Reply>,
    /// The words that it has brought.
    pub words: Vec<u16>,
}

impl Message {
    /// The request for these operations, as it is read on the other side.
    pub fn new(from: NodeId, to: NodeId, unit: usize, ops: &[Op]) -> Message {
        let at = UnitAt::new(unit as u64, 1).expect("any line begins a unit of one");
        let commands = ops.iter().map(|op| Command::of(op, 0).expect("an operation on another node")).collect();
        let mut body = Vec::new();
        Request { serial: 0, unit: at, commands }.emit(&mut body);
        let request = Request::parse(&body).expect("the target reads it");
        let commands: VecDeque<_> = request.commands.into_iter().collect();
        let is_of_spinner = commands.iter().any(|command| matches!(command, Command::Pause(_)));
        let unit = request.unit.first() as usize;
        Message { from, to, unit, is_of_spinner, commands, progress: 0, reply: None, words: Vec::new() }
    }

    /// Whether all is done.
    pub fn is_done(&self) -> bool {
        self.commands.is_empty()
    }

    /// Whether it brings this value.
    pub fn carries(&self, (unit, word): (usize, usize), value: u16) -> bool {
        self.unit == unit && self.words.get(word) == Some(&value)
    }

    /// Whether the target can go on with it. `memory` is the target's.
    pub fn can_go_on(&self, memory: &Memory, is_lost: bool) -> bool {
        match self.commands.front() {
            Some(Command::Quiesce) => self.progress == 0 || !memory.has_hazard(self.unit),
            Some(Command::Pause(_)) => is_lost || !memory.entry(self.unit, 0).is_busy(),
            first => first.is_some(),
        }
    }

    /// Whether the next step is a barrier on the target's threads.
    pub fn is_at_barrier(&self) -> bool {
        self.commands.front() == Some(&Command::Quiesce) && self.progress == 0
    }

    /// One step of the next command: the stores that it makes in the target's memory.
    pub fn step(&mut self, memory: &mut Memory, lines: usize) {
        let (unit, word) = (self.unit, self.progress);
        let Some(command) = self.commands.front() else { return };
        let (mut steps, mut put) = (1, |write| memory.write(write));
        match command {
            Command::FetchAndSet => {
                let entry = memory.entry(unit, 0);
                memory.write(Write::Entry { unit, line: 0, entry: entry.after_fetch_and_set(self.from) });
                self.reply = Some(Reply::Entry(entry));
            }
            Command::GetWide => self.reply = Some(Reply::Wide(memory.wide(unit).clone())),
            Command::GetData => {
                self.words.push(memory.word(unit, word));
                steps = WORDS;
            }
            Command::PutMagic => {
                put(Write::Word { unit, word, value: MAGIC, is_own: false });
                steps = WORDS;
            }
            Command::PutMirrors(entry) => (1..lines).for_each(|line| put(Write::Entry { unit, line, entry: *entry })),
            Command::PutEntry(entry) => {
                (0..lines).rev().for_each(|line| put(Write::Entry { unit, line, entry: *entry }));
            }
            Command::PutWide(holders) => put(Write::Wide { unit, holders: holders.clone() }),
            // Its barrier is the first step.
            Command::Quiesce => steps = 2,
            Command::Pause(_) => {}
        }
        self.progress += 1;
        if self.progress == steps {
            self.commands.pop_front();
            self.progress = 0;
        }
    }
}
