//! Flags: numbers that only grow. A thread raises one, others wait until it has reached a value.
//!
//! A flag lives at its manager. Raising it is a message there (none when the manager is this node), and waiting
//! is a request that is answered when the value is reached. Two raisers' payloads are united by being kept
//! both, one behind the other.

use super::{Context, IntervalMark, Scope};
use crate::ids::{FlagId, Slot, manager_of};
use crate::outbox::{Origin, Target};
use crate::wire::message::{Message, Ticket};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
struct Flag {
    value: u64,
    /// At the manager: what the raisers said.
    stored: Vec<u8>,
    /// At the manager: something is stored that this node has not acquired itself.
    unseen: bool,
    remote: Vec<(Ticket, u64, Vec<u8>)>,
    local: Vec<(Slot, u64)>,
}

impl Flag {
    /// A thread of the manager's own node goes on: the node acquires what is stored.
    fn acquire_here(&mut self, cx: &mut Context<'_>, id: FlagId) {
        if std::mem::take(&mut self.unseen) {
            cx.payload.on_acquire(Scope::Flag(id), &self.stored);
        }
    }

    fn answer(&self, cx: &mut Context<'_>, id: FlagId, ticket: Ticket, knowledge: &[u8]) {
        let up = Message::FlagUp { flag: id, value: self.value, payload: &[] };
        let payload = &mut *cx.payload;
        cx.out.send_with(Target::Reply(ticket), &up, |body| {
            payload.withdraw(Scope::Flag(id), &self.stored, knowledge, body);
        });
    }
}

/// The flags of a node, or one shard of them.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    flags: BTreeMap<FlagId, Flag>,
}

impl Flags {
    /// No flags yet; each is zero when first named.
    pub fn new() -> Flags {
        Flags::default()
    }

    /// Raises the flag to `value`, unless it is that high already.
    pub fn set(&mut self, cx: &mut Context<'_>, id: FlagId, value: u64) {
        let manager = manager_of(id.0, cx.nodes);
        if manager == cx.me {
            let mut payload = Vec::new();
            cx.payload.on_release(Scope::Flag(id), cx.me, &[], IntervalMark::NOW, &mut payload);
            let seen = !self.flags.entry(id).or_default().unseen;
            self.on_set(cx, id, value, &payload);
            // What this node said itself is no news to it.
            self.flags.entry(id).or_default().unseen &= !seen;
            return;
        }
        let payload = &mut *cx.payload;
        let set = Message::FlagSet { flag: id, value, payload: &[] };
        // Receipts go to the service thread: this one may be at work, or gone, before they come.
        let target = Target::Post { node: manager, origin: Origin::Service };
        cx.out
            .send_with(target, &set, |body| payload.on_release(Scope::Flag(id), manager, &[], IntervalMark::NOW, body));
    }

    /// Begins to wait until the flag has reached `value`; gives its value when it has. Otherwise wait until woken or
    /// answered, and ask [`Flags::arrived`].
    pub fn wait(&mut self, cx: &mut Context<'_>, id: FlagId, slot: Slot, value: u64) -> Option<u64> {
        let manager = manager_of(id.0, cx.nodes);
        let flag = self.flags.entry(id).or_default();
        if flag.value >= value {
            flag.acquire_here(cx, id);
            return Some(flag.value);
        }
        if manager == cx.me {
            flag.local.push((slot, value));
        } else {
            let target = Target::Request { node: manager, origin: Origin::Caller };
            let payload = &mut *cx.payload;
            let wait = Message::FlagWait { flag: id, value, knowledge: &[] };
            cx.out.send_with(target, &wait, |body| payload.knowledge(Scope::Flag(id), body));
        }
        None
    }

    /// Whether the flag is known here to have reached `value`.
    pub fn arrived(&self, id: FlagId, value: u64) -> Option<u64> {
        self.flags.get(&id).map(|f| f.value).filter(|v| *v >= value)
    }

    /// At the manager: the flag is raised.
    pub fn on_set(&mut self, cx: &mut Context<'_>, id: FlagId, value: u64, payload: &[u8]) {
        let flag = self.flags.entry(id).or_default();
        cx.payload.deposit(Scope::Flag(id), payload, &mut flag.stored);
        flag.unseen = true;
        if value <= flag.value {
            return;
        }
        flag.value = value;
        let remote: Vec<_> = flag.remote.extract_if(.., |(_, awaited, _)| *awaited <= value).collect();
        for (ticket, _, knowledge) in remote {
            flag.answer(cx, id, ticket, &knowledge);
        }
        if flag.local.iter().any(|(_, awaited)| *awaited <= value) {
            flag.acquire_here(cx, id);
        }
        for (slot, _) in flag.local.extract_if(.., |(_, awaited)| *awaited <= value) {
            cx.wake(slot);
        }
    }

    /// At the manager: a thread elsewhere waits.
    pub fn on_wait(&mut self, cx: &mut Context<'_>, id: FlagId, ticket: Ticket, value: u64, knowledge: &[u8]) {
        let flag = self.flags.entry(id).or_default();
        if flag.value >= value {
            flag.answer(cx, id, ticket, knowledge);
        } else {
            flag.remote.push((ticket, value, knowledge.to_vec()));
        }
    }

    /// The answer to a wait of a thread here.
    pub fn on_up(&mut self, cx: &mut Context<'_>, id: FlagId, value: u64, payload: &[u8]) {
        let flag = self.flags.entry(id).or_default();
        flag.value = flag.value.max(value);
        cx.payload.on_acquire(Scope::Flag(id), payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;
    use crate::outbox::Outbox;
    use crate::sync::NoPayload;

    #[test]
    fn a_flag_wakes_those_whose_value_is_reached_and_only_them() {
        let (mut flags, mut out, mut payload) = (Flags::new(), Outbox::new(), NoPayload);
        let mut cx = Context { me: NodeId(0), nodes: 1, caller: None, payload: &mut payload, out: &mut out };
        assert_eq!(flags.wait(&mut cx, FlagId(1), Slot::thread(0), 2), None);
        assert_eq!(flags.wait(&mut cx, FlagId(1), Slot::thread(1), 5), None);
        flags.set(&mut cx, FlagId(1), 3);
        assert_eq!(cx.out.wakes(), [Slot::thread(0)]);
        assert_eq!(flags.arrived(FlagId(1), 2), Some(3));
        assert_eq!(flags.arrived(FlagId(1), 5), None);
        flags.set(&mut cx, FlagId(1), 1);
        assert_eq!(flags.arrived(FlagId(1), 2), Some(3), "a flag never sinks");
    }

    /// Keeps what raisers say one behind the other, and what this node has heard.
    struct Heard(Vec<u8>);
    impl crate::sync::Payload for Heard {
        fn knowledge(&mut self, _: Scope, _: &mut Vec<u8>) {}
        fn mark(&mut self) -> IntervalMark {
            IntervalMark::NOW
        }
        fn on_release(&mut self, _: Scope, _: NodeId, _: &[u8], _: IntervalMark, _: &mut Vec<u8>) {}
        fn on_acquire(&mut self, _: Scope, bytes: &[u8]) {
            self.0 = bytes.to_vec();
        }
        fn deposit(&mut self, _: Scope, bytes: &[u8], stored: &mut Vec<u8>) {
            stored.extend_from_slice(bytes);
        }
        fn withdraw(&mut self, _: Scope, stored: &[u8], _: &[u8], out: &mut Vec<u8>) {
            out.extend_from_slice(stored);
        }
    }

    #[test]
    fn whoever_waits_at_the_manager_hears_of_all_who_raised_the_flag_before() {
        let (mut flags, mut out, mut payload) = (Flags::new(), Outbox::new(), Heard(Vec::new()));
        let mut step = |f: &mut dyn FnMut(&mut Flags, &mut Context<'_>)| {
            let mut cx = Context { me: NodeId(0), nodes: 1, caller: None, payload: &mut payload, out: &mut out };
            f(&mut flags, &mut cx);
            String::from_utf8(payload.0.clone()).unwrap()
        };
        let (flag, slot) = (FlagId(1), Slot::thread(0));
        step(&mut |flags, cx| flags.on_set(cx, flag, 3, b"a"));
        assert_eq!(step(&mut |flags, cx| assert_eq!(flags.wait(cx, flag, slot, 2), Some(3))), "a");
        step(&mut |flags, cx| flags.on_set(cx, flag, 1, b"b"));
        assert_eq!(
            step(&mut |flags, cx| assert_eq!(flags.wait(cx, flag, slot, 2), Some(3))),
            "ab",
            "it rose no higher"
        );
        step(&mut |flags, cx| assert_eq!(flags.wait(cx, flag, slot, 9), None));
        assert_eq!(step(&mut |flags, cx| flags.on_set(cx, flag, 9, b"c")), "abc", "a thread waited for it");
    }

    #[test]
    fn a_flag_that_is_heard_of_elsewhere_never_sinks_and_is_as_high_as_was_heard() {
        let (mut flags, mut out, mut payload) = (Flags::new(), Outbox::new(), Heard(Vec::new()));
        let mut cx = Context { me: NodeId(0), nodes: 1, caller: None, payload: &mut payload, out: &mut out };
        flags.on_up(&mut cx, FlagId(1), 5, b"x");
        flags.on_up(&mut cx, FlagId(1), 3, b"y");
        assert_eq!((flags.arrived(FlagId(1), 5), flags.arrived(FlagId(1), 6)), (Some(5), None));
        assert_eq!(payload.0, b"y", "what came with it counts");
    }
}
