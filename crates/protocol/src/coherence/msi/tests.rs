//! What the simulator does not show: jobs as large as they may be.

use super::Unit;
use crate::coherence::{Context, Permission, UnitMemory};
use crate::ids::{Channel, NODES_MAX, NodeId, ObjectId, Seq, Slot, UnitId};
use crate::outbox::Outbox;
use crate::wire::message::{Ticket, Want};

struct Memory([u8; 64]);

impl UnitMemory for Memory {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn permit(&mut self, _: Permission) {}
    fn revoke(&mut self, _: Permission) {}
    fn copy_out(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn install(&mut self, bytes: &[u8]) {
        self.0.copy_from_slice(bytes);
    }
    fn read(&self, _: usize, _: usize, _: &mut Vec<u8>) -> bool {
        false
    }
    fn write(&mut self, _: usize, _: &[u8]) -> bool {
        false
    }
}

/// All nodes ask for a unit that its home uses: each answer made the next from within, and a fault handler's stack took
/// 230 of them.
#[test]
fn requests_that_have_queued_up_take_no_stack() {
    let all = || {
        let (mut unit, mut memory, mut out) = (Unit::new(true), Memory([0; 64]), Outbox::new());
        let id = UnitId { object: ObjectId(1), index: 0 };
        let mut cx = Context {
            me: NodeId(0),
            nodes: NODES_MAX,
            caller: None,
            unit: id,
            home: NodeId(0),
            memory: &mut memory,
            out: &mut out,
        };
        unit.begin(&mut cx, Slot(1), Want::Modified, true);
        unit.pin();
        for node in NodeId::all(NODES_MAX).skip(1) {
            let channel = Channel { node, slot: Slot(1) };
            unit.on_get(&mut cx, Ticket { channel, seq: Seq::guarded(channel, 1) }, Want::Shared).unwrap();
        }
        unit.unpin(&mut cx);
        assert_eq!(cx.out.sends().len(), NODES_MAX - 1);
    };
    std::thread::Builder::new().stack_size(128 << 10).spawn(all).unwrap().join().unwrap();
}
