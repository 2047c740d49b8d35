//! Arrivals at a barrier as words ([`arrival`](crate::sync::arrival)): what a node says by its word, and when messages
//! tell it instead.

use super::{Arrival, Barrier};
use crate::ids::Slot;
use crate::outbox::Outbox;
use crate::sync::arrival::{ArrivalWord, Arrive, BY_MESSAGES, NODES_MAX};
use crate::time::Time;

impl Barrier {
    /// From the next barrier on, arrivals that carry nothing are words. All nodes begin so at the same barrier. Whether
    /// there are words for so many nodes.
    pub fn use_words(&mut self) -> bool {
        self.word = (self.nodes > 1 && self.nodes <= NODES_MAX).then(ArrivalWord::default);
        self.word.is_some()
    }

    /// Whether arrivals may be words.
    pub fn uses_words(&self) -> bool {
        self.word.is_some()
    }

    /// If the thread that has just arrived is the last of its node, and arrivals may be words: how to store the node's
    /// word and to look at those of others. To be asked with the same lock held as for [`Barrier::arrive`]. The word is
    /// stored under that lock, too: messages may open the barrier at once, and another thread may come to the next.
    pub fn steps(&mut self) -> Option<Arrive> {
        self.steps.take()
    }

    /// Where all threads of this node that take part are here, its word says so, and whether messages tell what it
    /// carries.
    pub(super) fn arrive_by_word(&mut self, now: Time) {
        let (Some(word), Some(what)) = (self.word, self.arrived()) else { return };
        if word.call_at(self.epoch).is_some() {
            // A thread has come to the next call while another makes this one for the node.
            return;
        }
        let carries_nothing = |(_, a): &(Slot, Arrival)| a.payload.is_empty() && a.notices.is_empty();
        self.by_word = what.fits_word() && self.party().iter().all(carries_nothing);
        let word = word.arrives(self.epoch, if self.by_word { what.kind } else { BY_MESSAGES });
        (self.word, self.steps) = (Some(word), Some(Arrive::new(self.me, self.nodes, self.epoch, word)));
        if self.by_word {
            self.mine = Some(Arrival { what, payload: Vec::new(), notices: Vec::new() });
            (self.told, self.retry) = (now, None);
            self.noted.clear();
        }
    }

    /// The barrier at which this node has arrived by its word alone.
    pub fn awaits_words(&self) -> Option<u32> {
        self.by_word.then_some(self.epoch)
    }

    /// The words of all nodes say that they came to barrier `epoch` with the same call. Whether that has opened it.
    pub fn open_by_words(&mut self, epoch: u32, caller: Option<Slot>, out: &mut Outbox) -> bool {
        let what = self.mine.as_ref().map(|arrival| arrival.what);
        let Some(what) = what.filter(|_| self.awaits_words() == Some(epoch) && self.mismatch.is_none()) else {
            return false;
        };
        self.open(caller, what, Default::default(), out);
        true
    }

    /// Another node's word says that it came to barrier `epoch` by messages, or with another call. So this one tells
    /// its arrival by messages, if it has not yet.
    pub fn tell_by_messages(&mut self, now: Time, epoch: u32, caller: Option<Slot>, out: &mut Outbox) {
        if self.awaits_words() == Some(epoch) && self.mismatch.is_none() {
            (self.by_word, self.mine) = (false, None);
            self.tell_children_where(out);
            // What does not go together is told to all by that, this node's threads included.
            let _ = self.node_arrived(now, caller, out);
        }
    }
}
