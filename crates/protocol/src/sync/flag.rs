//! Flags: numbers that only grow. A thread raises one, others wait until it has reached a value.
//!
//! A flag lives at its manager. Raising it is a message there (none when the manager is this node), and waiting
//! is a request that is answered when the value is reached. Two raisers' payloads are united by being kept
//! both, one behind the other.

use super::Context;
use crate::ids::{FlagId, Slot, manager_of};
use crate::outbox::{Origin, Target};
use crate::wire::message::{Message, Ticket};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
struct Flag {
    value: u64,
    payload: Vec<u8>,
    remote: Vec<(Ticket, u64)>,
    local: Vec<(Slot, u64)>,
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
            cx.payload.on_release(cx.me, &mut payload);
            self.on_set(cx, id, value, &payload);
            return;
        }
        let payload = &mut *cx.payload;
        let set = Message::FlagSet { flag: id, value, payload: &[] };
        let target = Target::Post { node: manager, origin: Origin::Caller };
        cx.out.send_with(target, &set, |body| payload.on_release(manager, body));
    }

    /// Begins to wait until the flag has reached `value`; gives its value when it has. Otherwise wait until woken or
    /// answered, and ask [`Flags::arrived`].
    pub fn wait(&mut self, cx: &mut Context<'_>, id: FlagId, slot: Slot, value: u64) -> Option<u64> {
        let manager = manager_of(id.0, cx.nodes);
        let flag = self.flags.entry(id).or_default();
        if flag.value >= value {
            return Some(flag.value);
        }
        if manager == cx.me {
            flag.local.push((slot, value));
        } else {
            let target = Target::Request { node: manager, origin: Origin::Caller };
            cx.out.send(target, &Message::FlagWait { flag: id, value });
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
        flag.payload.extend_from_slice(payload);
        if value <= flag.value {
            return;
        }
        flag.value = value;
        for (ticket, _) in flag.remote.extract_if(.., |(_, awaited)| *awaited <= value) {
            let up = Message::FlagUp { flag: id, value, payload: &flag.payload };
            cx.out.send(Target::Reply(ticket), &up);
        }
        for (slot, _) in flag.local.extract_if(.., |(_, awaited)| *awaited <= value) {
            cx.wake(slot);
        }
    }

    /// At the manager: a thread elsewhere waits.
    pub fn on_wait(&mut self, cx: &mut Context<'_>, id: FlagId, ticket: Ticket, value: u64) {
        let flag = self.flags.entry(id).or_default();
        if flag.value >= value {
            let up = Message::FlagUp { flag: id, value: flag.value, payload: &flag.payload };
            cx.out.send(Target::Reply(ticket), &up);
        } else {
            flag.remote.push((ticket, value));
        }
    }

    /// The answer to a wait of a thread here.
    pub fn on_up(&mut self, cx: &mut Context<'_>, id: FlagId, value: u64, payload: &[u8]) {
        let flag = self.flags.entry(id).or_default();
        flag.value = flag.value.max(value);
        cx.payload.on_acquire(payload);
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
}
