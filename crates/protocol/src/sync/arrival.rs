//! Arrivals at barriers that carry nothing, as words in memory that every node of the job reaches.
//!
//! Each node has a word: how many collective calls it has come to, which the latest was, and which the one before. A
//! node that arrives stores its word and looks at all others. When all name the same call, the barrier is open, and no
//! message was sent. A call that carries something has [`BY_MESSAGES`] in its place. Who finds another call than its
//! own in a word tells its arrival by messages, too. There calls that do not go together are found, as where no words
//! are used ([`Barrier`](super::barrier::Barrier)).
//!
//! | part of the word | bits | meaning |
//! |---|---|---|
//! | calls | 32 | how many collective calls the node has come to, modulo 2^32 |
//! | latest | 8 | the kind of the latest; [`BY_MESSAGES`]: the node tells that by messages |
//! | previous | 8 | the same of the one before |
//!
//! Neighbouring barriers differ by at most one. So whoever still waits at a barrier finds there what every other node
//! called at it, also where that node has come to the next one.
//!
//! # Why it opens in time
//!
//! What a word says of a barrier does not change while anybody waits there. A barrier opens by words only where all of
//! them name the same call. So either it opens so at every node, or at none, and then all go by messages.
//!
//! # Why no wake-up is lost
//!
//! Beside the words are an *eventcount* and the number of *sleepers*. A node stores its word, passes a fence, reads the
//! eventcount, and looks at the words. While some are missing it sleeps until the eventcount has another value. The
//! last node to pass its fence finds all words there, and advances the eventcount. So does a node that finds another
//! call in the word of one that waits. Fences have one order for all nodes. So a word that a sleeper has not seen was
//! stored by a node that passed its fence later, and saw the sleeper's word. It advanced the eventcount after the
//! sleeper had read it: had the sleeper read the new value, it would have seen the word, too.
//!
//! Who has advanced the eventcount reads the number of sleepers then, and wakes nobody if there is none. A sleeper adds
//! itself to that number before the system compares the eventcount and puts it to sleep.

use crate::ids::NodeId;
use crate::rules::Rule;

/// Most nodes whose arrivals are words.
pub const NODES_MAX: usize = 64;
/// In place of a call's kind: the node tells by messages what it called.
pub const BY_MESSAGES: u8 = 0;

/// What a node says of its arrivals.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ArrivalWord(pub u64);

impl ArrivalWord {
    /// The word after this one, of a node that arrives with `call` at the barrier with this number.
    #[must_use]
    pub fn arrives(self, epoch: u32, call: u8) -> ArrivalWord {
        let previous = if self.calls() == epoch { self.latest() } else { BY_MESSAGES };
        let calls = u64::from(epoch.wrapping_add(1));
        ArrivalWord(calls << 32 | u64::from(call) << 8 | u64::from(previous))
    }

    fn calls(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn latest(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// With which call the node came to a barrier; `None`: it has not come yet.
    pub fn call_at(self, epoch: u32) -> Option<u8> {
        match self.calls().wrapping_sub(epoch) as i32 {
            ..=0 => None,
            1 => Some(self.latest()),
            _ if !Rule::WordsKeepThePreviousCall.on() => Some(self.latest()),
            2 => Some(self.0 as u8),
            _ => Some(BY_MESSAGES),
        }
    }
}

/// What the last step brought.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reply {
    /// There was none yet.
    Begin,
    /// It is done.
    Done,
    /// A node's word.
    Word(ArrivalWord),
    /// The eventcount, or the number of sleepers.
    Number(u32),
    /// The thread has looked at the eventcount for as long as it may.
    Tired,
}

/// What is to be done next. Reads acquire and writes release; what adds is one atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Store this in this node's word.
    Store(ArrivalWord),
    /// Go on when all others can see what this thread has stored: a fence, which has one order for all nodes.
    Fence,
    /// Read a node's word.
    ReadWord(NodeId),
    /// Read the eventcount.
    ReadEvents,
    /// Look at the eventcount until it is not this; then read it.
    Look(u32),
    /// Add one to the number of sleepers.
    AddSleeper,
    /// Sleep while the eventcount is this, until somebody wakes all sleepers, or for no reason.
    Sleep(u32),
    /// Take one from the number of sleepers.
    RemoveSleeper,
    /// Add one to the eventcount.
    Advance,
    /// Read the number of sleepers.
    ReadSleepers,
    /// Wake all sleepers.
    Wake,
    /// All nodes are here with this call: the barrier is open.
    Open,
    /// Arrivals go by messages, this node's as well.
    ByMessages,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Begin,
    Storing,
    Fencing,
    ReadingEvents,
    ReadingWords,
    Looking,
    AddingSleeper,
    Sleeping,
    RemovingSleeper,
    Advancing,
    ReadingSleepers,
    Waking,
    Over,
}

/// What the words of other nodes say, as far as they have been read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Seen {
    /// A node has not come yet.
    missing: bool,
    /// A node has come with another call, or by messages.
    differs: bool,
    /// A node that waits for words has come with another call.
    differs_and_waits: bool,
}

/// A node that arrives at a barrier.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Arrive {
    me: NodeId,
    nodes: u16,
    word: ArrivalWord,
    epoch: u32,
    call: u8,
    stage: Stage,
    events: u32,
    /// The node whose word is read next.
    at: u16,
    seen: Seen,
    stored: bool,
    /// It reads the words for the first time.
    first: bool,
    tired: bool,
}

impl Arrive {
    /// Node `me` of so many arrives at the barrier `epoch`, and says so with `word`.
    pub fn new(me: NodeId, nodes: usize, epoch: u32, word: ArrivalWord) -> Arrive {
        debug_assert!(nodes <= NODES_MAX && me.index() < nodes, "there is a word for each node");
        Arrive {
            me,
            nodes: nodes as u16,
            word,
            epoch,
            call: word.latest(),
            stage: Stage::Begin,
            events: 0,
            at: 0,
            seen: Seen::default(),
            stored: false,
            first: true,
            tired: false,
        }
    }

    /// The barrier's number.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The next step, after the `reply` to the last one.
    pub fn next(&mut self, reply: Reply) -> Step {
        match (self.stage, reply) {
            (Stage::Begin, _) if Rule::ArrivalsAreStoredFirst.on() => self.store(),
            (Stage::Begin | Stage::RemovingSleeper, _) => self.read_events(),
            (Stage::Storing, _) if Rule::ArrivalsAreVisibleFirst.on() => self.step(Stage::Fencing, Step::Fence),
            (Stage::Storing | Stage::Fencing, _) if Rule::ArrivalsAreStoredFirst.on() => self.read_events(),
            (Stage::Storing | Stage::Fencing, _) => self.decide(),
            (Stage::ReadingEvents | Stage::Looking, Reply::Number(events)) => {
                self.events = events;
                (self.at, self.seen, self.stage) = (0, Seen::default(), Stage::ReadingWords);
                self.read_on()
            }
            (Stage::ReadingWords, Reply::Word(word)) => {
                self.note(word);
                self.at += 1;
                self.read_on()
            }
            (Stage::Looking, _) => {
                self.tired = true;
                self.sleep()
            }
            (Stage::AddingSleeper, _) => self.fall_asleep(),
            (Stage::Sleeping, _) if Rule::SleepersCountThemselves.on() => {
                self.step(Stage::RemovingSleeper, Step::RemoveSleeper)
            }
            (Stage::Sleeping, _) => self.read_events(),
            (Stage::Advancing, _) => self.step(Stage::ReadingSleepers, Step::ReadSleepers),
            (Stage::ReadingSleepers, Reply::Number(0)) => self.end(),
            (Stage::ReadingSleepers, _) => self.step(Stage::Waking, Step::Wake),
            _ => self.end(),
        }
    }

    fn step(&mut self, stage: Stage, step: Step) -> Step {
        self.stage = stage;
        step
    }

    fn store(&mut self) -> Step {
        self.stored = true;
        self.step(Stage::Storing, Step::Store(self.word))
    }

    fn read_events(&mut self) -> Step {
        self.step(Stage::ReadingEvents, Step::ReadEvents)
    }

    fn read_on(&mut self) -> Step {
        self.at += u16::from(self.at == self.me.0);
        if self.at < self.nodes { Step::ReadWord(NodeId(self.at)) } else { self.decide() }
    }

    fn note(&mut self, word: ArrivalWord) {
        match word.call_at(self.epoch) {
            None => self.seen.missing = true,
            Some(call) if call == self.call || !Rule::WordsSayTheCall.on() => {}
            Some(call) => {
                self.seen.differs = true;
                self.seen.differs_and_waits |= call != BY_MESSAGES;
            }
        }
    }

    fn goes_by_messages(&self) -> bool {
        self.seen.differs || self.call == BY_MESSAGES
    }

    /// All words have been read.
    fn decide(&mut self) -> Step {
        if !self.stored {
            return self.store();
        }
        let first = std::mem::replace(&mut self.first, false);
        let complete = !self.seen.missing && !self.goes_by_messages();
        let others_wait = self.seen.differs_and_waits && Rule::OtherCallsWake.on();
        if first && (complete || others_wait) {
            return self.step(Stage::Advancing, Step::Advance);
        }
        if complete || self.goes_by_messages() {
            return self.end();
        }
        if self.tired { self.sleep() } else { self.step(Stage::Looking, Step::Look(self.events)) }
    }

    fn sleep(&mut self) -> Step {
        match Rule::SleepersCountThemselves.on() {
            true => self.step(Stage::AddingSleeper, Step::AddSleeper),
            false => self.fall_asleep(),
        }
    }

    fn fall_asleep(&mut self) -> Step {
        // Whoever has slept looks for a while before it sleeps again.
        self.tired = false;
        self.step(Stage::Sleeping, Step::Sleep(self.events))
    }

    fn end(&mut self) -> Step {
        let by_messages = self.goes_by_messages();
        self.step(Stage::Over, if by_messages { Step::ByMessages } else { Step::Open })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_was_called_at_the_last_two_barriers() {
        let first = ArrivalWord::default().arrives(0, 1);
        assert_eq!([first.call_at(0), first.call_at(1)], [Some(1), None]);
        let second = first.arrives(1, BY_MESSAGES);
        assert_eq!([second.call_at(0), second.call_at(1), second.call_at(2)], [Some(1), Some(BY_MESSAGES), None]);
        let last = ArrivalWord(u64::from(u32::MAX) << 32 | 5 << 8).arrives(u32::MAX, 9);
        assert_eq!([last.call_at(u32::MAX - 1), last.call_at(u32::MAX), last.call_at(0)], [Some(5), Some(9), None]);
        // Words may be used from some later barrier on.
        let late = ArrivalWord::default();
        assert_eq!([late.call_at(2), late.arrives(2, 1).call_at(2)], [None, Some(1)]);
        assert_eq!(late.arrives(2, 1).call_at(1), Some(BY_MESSAGES));
    }

    #[test]
    fn who_comes_last_finds_all_there_in_one_look_and_tells_those_that_look() {
        let word = ArrivalWord::default().arrives(0, 1);
        let mut arrive = Arrive::new(NodeId(1), 2, 0, word);
        assert_eq!(arrive.next(Reply::Begin), Step::Store(word));
        assert_eq!(arrive.next(Reply::Done), Step::Fence);
        assert_eq!(arrive.next(Reply::Done), Step::ReadEvents);
        assert_eq!(arrive.next(Reply::Number(7)), Step::ReadWord(NodeId(0)));
        assert_eq!(arrive.next(Reply::Word(word)), Step::Advance);
        assert_eq!(arrive.next(Reply::Done), Step::ReadSleepers);
        assert_eq!(arrive.next(Reply::Number(0)), Step::Open);
    }

    #[test]
    fn who_comes_first_looks_and_sleeps_until_the_eventcount_changes() {
        let word = ArrivalWord::default().arrives(0, 1);
        let mut arrive = Arrive::new(NodeId(0), 2, 0, word);
        assert_eq!(arrive.next(Reply::Begin), Step::Store(word));
        assert_eq!([arrive.next(Reply::Done), arrive.next(Reply::Done)], [Step::Fence, Step::ReadEvents]);
        assert_eq!(arrive.next(Reply::Number(7)), Step::ReadWord(NodeId(1)));
        assert_eq!(arrive.next(Reply::Word(ArrivalWord::default())), Step::Look(7));
        assert_eq!(arrive.next(Reply::Tired), Step::AddSleeper);
        assert_eq!(arrive.next(Reply::Done), Step::Sleep(7));
        assert_eq!(arrive.next(Reply::Done), Step::RemoveSleeper);
        assert_eq!(arrive.next(Reply::Done), Step::ReadEvents);
        assert_eq!(arrive.next(Reply::Number(8)), Step::ReadWord(NodeId(1)));
        assert_eq!(arrive.next(Reply::Word(word)), Step::Open, "whoever came last has told all");
    }
}
