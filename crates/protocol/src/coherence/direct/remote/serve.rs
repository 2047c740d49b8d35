//! The target's side: a batch's commands, one after the other.

use super::message::{Answer, Command, Request};
use super::{Found, RemoteMemory, UnitAt};
use crate::coherence::Misbehaved;
use crate::outbox::{Outbox, Target};
use crate::time::{Span, Time};
use crate::wire::message::{Message, Ticket};

/// While requests wait, the service thread looks at them this often. What they wait for takes nanoseconds mostly: a
/// thread between its check and its store, or a miss.
pub const LOOK_EVERY: Span = Span::from_us(50);

/// Requests that wait until a hazard is lowered or an entry unlocked.
#[derive(Default, Debug)]
pub struct Server {
    waiting: Vec<Waiting>,
    /// The buffer of an earlier answer.
    spare: Vec<u8>,
}

/// A request under way.
#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    request: Request,
    /// How many of its commands are done.
    done: usize,
    /// Whether the barrier of the next command, a [`Command::Quiesce`], is behind it.
    has_barrier: bool,
    /// When the next command, a [`Command::Pause`], ends at the latest.
    pause_ends: Option<Time>,
    /// The answer's body, as far as it is known.
    answer: Vec<u8>,
}

impl Server {
    /// Carries a request out, or as much of it as needs no waiting; gives the unit.
    ///
    /// # Errors
    /// When no node sends such a request; then it has had no effect.
    pub fn on_request(
        &mut self,
        memory: &impl RemoteMemory,
        (now, ticket): (Time, Ticket),
        body: &[u8],
        out: &mut Outbox,
    ) -> Result<UnitAt, Misbehaved> {
        const NONSENSE: Misbehaved = Misbehaved("sent one-sided operations that make no sense");
        let request = Request::parse(body).map_err(|_| NONSENSE)?;
        if !request.names_only(memory.nodes()) {
            return Err(Misbehaved("sent one-sided operations that name nodes which the job does not have"));
        }
        let unit = request.unit;
        let mut answer = std::mem::take(&mut self.spare);
        answer.clear();
        match memory.find(unit) {
            Found::Unit => Answer::begin(request.serial, true, &mut answer),
            Found::Nothing => return Err(Misbehaved("sent a one-sided operation on what no region has")),
            Found::Freed => {
                Answer::begin(request.serial, false, &mut answer);
                self.reply(ticket, answer, out);
                return Ok(unit);
            }
        }
        let waiting = Waiting { ticket, request, done: 0, has_barrier: false, pause_ends: None, answer };
        self.go_on(memory, now, waiting, out);
        self.look(memory, now, out);
        Ok(unit)
    }

    /// Goes on with the requests that wait for nothing any more. Whether some still wait.
    pub fn look(&mut self, memory: &impl RemoteMemory, now: Time, out: &mut Outbox) -> bool {
        loop {
            let goes_on = |waiting: &mut Waiting| !waiting.waits(memory, now);
            let Some(at) = self.waiting.iter_mut().position(goes_on) else { break };
            let waiting = self.waiting.remove(at);
            self.go_on(memory, now, waiting, out);
        }
        self.is_busy()
    }

    /// Whether some requests wait.
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn go_on(&mut self, memory: &impl RemoteMemory, now: Time, mut waiting: Waiting, out: &mut Outbox) {
        while let Some(command) = waiting.request.commands.get(waiting.done) {
            let command = command.clone();
            if waiting.waits(memory, now) {
                self.waiting.push(waiting);
                return;
            }
            waiting.carry_out(memory, &command);
            (waiting.done, waiting.has_barrier, waiting.pause_ends) = (waiting.done + 1, false, None);
        }
        self.reply(waiting.ticket, waiting.answer, out);
    }

    fn reply(&mut self, ticket: Ticket, answer: Vec<u8>, out: &mut Outbox) {
        out.send(Target::Reply(ticket), &Message::RemoteDone { body: &answer });
        self.spare = answer;
    }
}

impl Waiting {
    /// Whether the next command cannot end yet.
    fn waits(&mut self, memory: &impl RemoteMemory, now: Time) -> bool {
        let unit = self.request.unit;
        match self.request.commands.get(self.done) {
            Some(Command::Quiesce) => {
                // Threads that look at the entry later find it locked.
                if !std::mem::replace(&mut self.has_barrier, true) {
                    memory.barrier();
                }
                memory.has_hazard(unit)
            }
            Some(Command::Pause(us)) => {
                let ends = *self.pause_ends.get_or_insert(now + Span::from_us((*us).into()));
                memory.entry(unit).is_busy() && now < ends
            }
            _ => false,
        }
    }

    fn carry_out(&mut self, memory: &impl RemoteMemory, command: &Command) {
        let (unit, answer) = (self.request.unit, &mut self.answer);
        let lines = unit.range();
        match command {
            Command::FetchAndSet => {
                Answer::put_entry(answer, memory.fetch_and_set(unit, self.ticket.channel.node));
            }
            Command::GetWide => Answer::put_wide(answer, &memory.wide(unit)),
            Command::GetData => memory.copy_data(unit, answer),
            Command::PutMagic => memory.put_magic(unit),
            Command::PutMirrors(entry) => memory.put_entries(lines.start + 1..lines.end, *entry),
            Command::PutEntry(entry) => memory.put_entries(lines, *entry),
            Command::PutWide(holders) => memory.put_wide(unit, holders),
            Command::Quiesce | Command::Pause(_) => {}
        }
    }
}
