//! Accesses that the fast path does not serve: elements that are not here, and elements wider than a word.

use super::Thread;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::inline::calls;
use crate::node::{Node, Waiting};
use crate::object::Object;
use comem_memory::pages::fault::uncancelled;
use comem_protocol::coherence::msi::Begin;
use comem_protocol::coherence::{Context, Engine, UnitMemory, owner};
use comem_protocol::ids::UnitId;
use comem_protocol::wire::message::Want;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of one remote read or write under `owner`: about a datagram.
const OWNER_CHUNK: usize = 1024;

/// Whether an access to a buffer may fault on a shared page.
fn may_fault(node: &Node, buffer: &[u8]) -> bool {
    let shared = || node.shared().filter(|shared| shared.views.is_some());
    let ends = || [buffer.as_ptr().addr(), buffer.as_ptr_range().end.addr() - 1];
    !buffer.is_empty() && shared().is_some_and(|shared| ends().iter().any(|end| shared.page_of(*end).is_some()))
}

impl Counters {
    /// Counts an access that has to wait for a unit, once.
    pub(super) fn count_miss(&self, missed: &mut bool, want: Want) {
        if !std::mem::replace(missed, true) {
            match want {
                Want::Shared => self.remote_reads.add(1),
                Want::Modified => self.remote_writes.add(1),
            }
        }
    }
}

impl Thread {
    /// What this thread does to an object.
    pub(crate) fn access<'a>(&'a self, object: &'a Arc<Object>) -> ObjectAccess<'a> {
        ObjectAccess { thread: self, object }
    }
}

/// An object, as one thread reads and writes it.
#[derive(Clone, Copy)]
pub(crate) struct ObjectAccess<'a> {
    pub(super) thread: &'a Thread,
    pub(super) object: &'a Arc<Object>,
}

impl ObjectAccess<'_> {
    pub(crate) fn read(&self, start: usize, out: &mut [u8]) -> Result<()> {
        if !self.has_to_stand_apart(out) {
            return self.read_to_own(start, out);
        }
        let mut own = vec![0; out.len()];
        self.read_to_own(start, &mut own)?;
        // SAFETY: both have as many bytes. Memory that the program checks itself is written by the same checks.
        unsafe { calls::write(out.as_mut_ptr(), own.as_ptr(), own.len()) };
        Ok(())
    }

    pub(crate) fn write(&self, start: usize, values: &[u8]) -> Result<()> {
        if !self.has_to_stand_apart(values) {
            return self.write_from_own(start, values);
        }
        let mut own = vec![0; values.len()];
        // SAFETY: both have as many bytes; as above.
        unsafe { calls::read(own.as_mut_ptr(), values.as_ptr(), own.len()) };
        self.write_from_own(start, &own)
    }

    /// Whether bytes for the program's buffer have to stand elsewhere while the thread waits for a unit. The buffer may
    /// lie in a range that is lent to this thread, and gone while it waits. Or it may lie in shared pages: a fault
    /// there would wait for a page within a step, that is, with the unit's lock held, which somebody else's request may
    /// be for that comes meanwhile.
    fn has_to_stand_apart(&self, buffer: &[u8]) -> bool {
        let ObjectAccess { thread, .. } = *self;
        thread.state.borrow().ranges.meet(buffer) || may_fault(&thread.node, buffer)
    }

    fn read_to_own(&self, start: usize, out: &mut [u8]) -> Result<()> {
        let ObjectAccess { thread, object } = *self;
        if let Some(lined) = object.lined() {
            let bytes = out.len();
            let read = |unit, offset, part: Range<usize>| lined.read(thread, unit, offset, &mut out[part]);
            return uncancelled(|| object.each_unit(start, bytes, read));
        }
        thread.operation(|| {
            object.each_unit(start, out.len(), |unit, offset, bytes| match object.engine {
                Engine::Msi => {
                    let part = &mut out[bytes];
                    self.with_unit(unit, Want::Shared, |memory| read_part(memory, offset, part))
                }
                Engine::Broadcast => {
                    let part = &mut out[bytes];
                    self.locally(unit, |memory| read_part(memory, offset, part))
                }
                Engine::Owner => self.read_at_owner(unit, offset, &mut out[bytes]),
                Engine::Direct => {
                    let part = &mut out[bytes];
                    self.locally(unit, |memory| read_part(memory, offset, part))
                }
            })
        })
    }

    fn write_from_own(&self, start: usize, values: &[u8]) -> Result<()> {
        let ObjectAccess { thread, object } = *self;
        if let Some(lined) = object.lined() {
            let write = |unit, offset, part| lined.write(thread, unit, offset, &values[part]);
            return uncancelled(|| object.each_unit(start, values.len(), write));
        }
        thread.operation(|| {
            object.each_unit(start, values.len(), |unit, offset, bytes| {
                let part = &values[bytes];
                match object.engine {
                    Engine::Msi => self.with_unit(unit, Want::Modified, |memory| {
                        memory.write(offset, part);
                    }),
                    Engine::Broadcast => {
                        self.locally(unit, |memory| {
                            memory.write(offset, part);
                        })?;
                        thread.node.combine_write(thread.slot, object, (unit, offset), part);
                        Ok(())
                    }
                    Engine::Owner => self.write_at_owner(unit, offset, part),
                    Engine::Direct => self.locally(unit, |memory| {
                        memory.write(offset, part);
                    }),
                }
            })
        })
    }

    /// Runs `f` on a unit's memory under its lock, whatever its state.
    pub(super) fn locally(&self, unit: u32, f: impl FnOnce(&mut dyn UnitMemory)) -> Result<()> {
        let ObjectAccess { thread, object } = *self;
        thread.stepping(|out| {
            object.step(thread.node.objects.guard(), unit, Some(thread.slot), out, |_, cx| f(cx.memory))
        });
        Ok(())
    }

    /// Runs `f` once the unit is here in the state wanted.
    pub(super) fn with_unit(&self, unit: u32, want: Want, mut f: impl FnMut(&mut dyn UnitMemory)) -> Result<()> {
        let ObjectAccess { thread, object } = *self;
        let mut missed = false;
        loop {
            if self.try_unit(unit, want, false, &mut f) {
                break;
            }
            thread.counters().count_miss(&mut missed, want);
            thread.let_pins_go();
            thread.wait(Waiting::Fetch { object: object.id, unit })?;
        }
        if missed { thread.take_pins_back() } else { Ok(()) }
    }

    pub(super) fn try_unit(&self, unit: u32, want: Want, pin: bool, f: &mut dyn FnMut(&mut dyn UnitMemory)) -> bool {
        let ObjectAccess { thread, object } = *self;
        let slot = thread.slot;
        thread.stepping(|out| {
            object.step(thread.node.objects.guard(), unit, Some(slot), out, |state, cx| {
                if state.begin(cx, slot, want, pin) == Begin::Wait {
                    return false;
                }
                if pin {
                    state.pin();
                }
                f(cx.memory);
                state.settle(cx);
                true
            })
        }) == Some(true)
    }

    pub(super) fn read_at_owner(&self, unit: u32, offset: usize, out: &mut [u8]) -> Result<()> {
        let ObjectAccess { thread, object } = *self;
        if object.home_of(unit) == thread.node.me() {
            return self.locally(unit, |memory| read_part(memory, offset, out));
        }
        let step = OWNER_CHUNK.max(object.segments.element());
        let step = step - step % object.segments.element();
        for (i, part) in out.chunks_mut(step).enumerate() {
            thread.counters().remote_reads.add(1);
            let (at, len) = ((offset + i * step) as u32, part.len() as u32);
            let id = UnitId { object: object.id, index: unit };
            let answer = self.ask_owner(id, |cx| owner::ask_read(cx, at, len))?;
            if answer.len() != part.len() {
                return Err(Error::PeerMisbehaved("the owner's answer has the wrong size".to_string()));
            }
            part.copy_from_slice(&answer);
        }
        Ok(())
    }

    pub(super) fn write_at_owner(&self, unit: u32, offset: usize, values: &[u8]) -> Result<()> {
        let ObjectAccess { thread, object } = *self;
        if object.home_of(unit) == thread.node.me() {
            return self.locally(unit, |memory| {
                memory.write(offset, values);
            });
        }
        let step = OWNER_CHUNK.max(object.segments.element());
        let step = step - step % object.segments.element();
        for (i, part) in values.chunks(step).enumerate() {
            thread.counters().remote_writes.add(1);
            let at = (offset + i * step) as u32;
            let id = UnitId { object: object.id, index: unit };
            self.ask_owner(id, |cx| owner::ask_write(cx, at, part))?;
        }
        Ok(())
    }

    /// Sends a request to a unit's owner and waits for the answer.
    pub(super) fn ask_owner(&self, unit: UnitId, ask: impl FnOnce(&mut Context<'_>)) -> Result<Vec<u8>> {
        let ObjectAccess { thread, object } = *self;
        thread.let_pins_go();
        thread.node.slots[thread.slot].expect_answer();
        thread.stepping(|out| {
            object.step(thread.node.objects.guard(), unit.index, Some(thread.slot), out, |_, cx| ask(cx))
        });
        let answer = loop {
            if let Some(answer) = thread.node.slots[thread.slot].take_answer() {
                break answer;
            }
            thread.wait(Waiting::Fetch { object: unit.object, unit: unit.index })?;
        };
        thread.take_pins_back()?;
        Ok(answer)
    }
}

thread_local! {
    /// Where bytes stand between a unit and the program's buffer, so that a miss allocates nothing.
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn read_part(memory: &mut dyn UnitMemory, offset: usize, part: &mut [u8]) {
    BYTES.with_borrow_mut(|bytes| {
        bytes.clear();
        if memory.read(offset, part.len(), bytes) {
            part.copy_from_slice(bytes);
        }
    });
}
