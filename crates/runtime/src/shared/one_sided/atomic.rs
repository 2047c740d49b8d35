//! Atomic operations on words of shared pages: where they are carried out, and what it takes to get there.
//!
//! | the word's page | the operation |
//! |---|---|
//! | under `msi`; at home here; a job of one node | the processor's, where the program sees the word |
//! | at home on this host, under `shm` | the processor's, in the home's memory, which is mapped here: no message |
//! | under `lrc` and `multicast` | the processor's, in this node's copy, under a lock of the word's address |
//! | at home elsewhere | one request and one reply ([`atomic`](comem_protocol::coherence::pages::atomic)) |

use crate::error::{Error, Result};
use crate::shared::Shared;
use crate::shared::heap::table::RegionState;
use crate::thread::Thread;
use comem_memory::atomic;
use comem_protocol::coherence::pages::atomic::{Answer, Atomic, Kind, Op, Request};
use comem_protocol::coherence::pages::node::invalidate::invalidate_copy;
use comem_protocol::coherence::pages::page_table::atomic::Place;
use comem_protocol::coherence::pages::region::Part;
use comem_protocol::coherence::pages::serve::Listing;
use comem_protocol::coherence::pages::{PAGE_BYTES, PageNo};
use comem_protocol::ids::{LockId, NodeId};
use comem_protocol::outbox::{Origin, Outbox, Target};
use comem_protocol::wire::message::Message;
use std::sync::atomic::Ordering;

/// Locks of ordered operations are named by the word's address, above this.
const LOCKS: u64 = 0x6174_0000_0000_0000;

/// Carries an operation out where the program, or another process of this host, sees the word.
///
/// # Safety
/// As for [`atomic::update`].
unsafe fn on_memory(at: *mut u8, operation: Atomic) -> u64 {
    let bytes = operation.kind.bytes();
    if operation.op == Op::Load {
        // SAFETY: the caller's promise.
        return unsafe { atomic::load(at, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { atomic::update(at, bytes, |old| operation.apply(old)) }
}

/// The operation on the word at this address of the program's own view of shared memory; a fault brings the page.
pub(crate) fn where_it_is(address: usize, operation: Atomic) -> u64 {
    // SAFETY: the callers have found the address aligned and in an allocation.
    unsafe { on_memory(std::ptr::with_exposed_provenance_mut(address), operation) }
}

/// The region of a word on which this operation is possible.
fn known_word(shared: &Shared, address: usize, operation: Atomic) -> Result<std::sync::Arc<RegionState>> {
    let bytes = operation.kind.bytes();
    if !address.is_multiple_of(bytes) {
        return Err(Error::Unaligned(format!(
            "an atomic operation on {bytes} bytes at {address:#x}, which is no multiple of {bytes}; align the word"
        )));
    }
    let known = shared.page_of(address).and_then(|page| shared.table.find(page)).filter(|known| !known.is_freed());
    let known = known.ok_or_else(|| {
        let sentence = format!(
            "an atomic operation on {address:#x}, which is in no allocation of the shared heap; allocate the word \
             with comem_alloc or its kin"
        );
        Error::NotAllocated { address, sentence }
    })?;
    if operation.writes() && known.read_only.load(Ordering::Acquire) {
        return Err(Error::Frozen(format!("an atomic operation on {}, which was declared read-only", known.name())));
    }
    Ok(known)
}

impl Thread {
    /// An operation on a word of shared memory, `ordered` or not: see
    /// [`PageSlice::fetch_add`](crate::heap::PageSlice::fetch_add). Gives what the word held, as bits.
    ///
    /// # Errors
    /// When the address is in no allocation of the shared heap or not a multiple of the word's size, or when the
    /// memory was declared read-only.
    pub fn raw_atomic(&self, address: usize, operation: Atomic, ordered: bool) -> Result<u64> {
        let shared = self
            .home()
            .shared()
            .ok_or_else(|| Error::NoHeap(crate::shared::heap::address_space::why_none(self.home().config.heap)))?;
        let known = known_word(shared, address, operation)?;
        let call = AtomicCall { thread: self, shared, known: &known, address, operation };
        // Where pages have no home, the word goes to who holds its lock.
        if ordered || known.region.engine.keeps_diffs() { call.in_order() } else { call.alone() }
    }
}

/// An operation of a thread on a word of shared memory, as one step for all threads of all nodes.
struct AtomicCall<'a> {
    thread: &'a Thread,
    shared: &'a Shared,
    /// The word's region.
    known: &'a RegionState,
    address: usize,
    operation: Atomic,
}

impl AtomicCall<'_> {
    /// As an acquire and a release too: between two such operations on one word, what happened before the first is seen
    /// after the second.
    fn in_order(&self) -> Result<u64> {
        let AtomicCall { thread, shared, known, address, .. } = *self;
        if thread.home().nodes() == 1 || (!known.region.engine.has_several_writers() && !shared.table.has_tracked()) {
            // The processor orders all of one node's memory, and all memory under `msi` and `direct`.
            return self.alone();
        }
        let lock = LockId(LOCKS | address as u64);
        thread.raw_lock(lock)?;
        let result = self.alone();
        // Under `scope` too it tells of everything.
        thread.raw_unlock_widely(lock)?;
        result
    }

    /// It says nothing about other memory: ordinary accesses of before it may be seen later, and the other way round.
    fn alone(&self) -> Result<u64> {
        let AtomicCall { thread, shared, known, address, operation } = *self;
        let (Some(views), Some(page)) = (&shared.views, shared.page_of(address)) else {
            return Ok(where_it_is(address, operation));
        };
        match known.region.part() {
            Part::Guarded | Part::OneCopy => return Ok(where_it_is(address, operation)),
            Part::Lines => return crate::inline::calls::atomic_here(address, operation),
            Part::Tracked if known.region.engine.keeps_diffs() => return Ok(where_it_is(address, operation)),
            Part::Tracked => {}
        }
        let word = (page, address % PAGE_BYTES);
        loop {
            let place = known.step(views, page, |_, table, _, _| table.unit(page).place_of_atomic());
            let home = match place {
                Place::Here => return Ok(where_it_is(address, operation)),
                Place::Unclaimed => {
                    shared.touch(address, operation.kind.bytes(), false)?;
                    continue;
                }
                Place::At(home) => home,
                Place::AtAfterCopy(home) => {
                    self.invalidate_copy(page);
                    home
                }
            };
            match thread.operation(|| self.at_home(home, word))? {
                Answer::Done(old) => {
                    if operation.writes() {
                        self.is_done(page);
                    }
                    return Ok(old);
                }
                // Whoever fetches the page learns where its home is.
                Answer::Elsewhere => shared.touch(address, operation.kind.bytes(), false)?,
                Answer::Freed => {
                    return Err(Error::Freed(format!("an atomic operation on {}, which was freed", known.name())));
                }
            }
        }
    }

    /// At the word's home, which is another node.
    fn at_home(&self, home: NodeId, (page, offset): (PageNo, usize)) -> Result<Answer> {
        let AtomicCall { thread, shared, operation, .. } = *self;
        let needs = thread.home().needs_at(shared, home);
        let there = thread.home().peer_memory(shared, home).filter(|peer| peer.memory.is_writable());
        // Beside a collective call of another thread homes may move.
        let there = there.filter(|peer| thread.home().gate.is_none() && peer.has_applied(&needs));
        if let Some(at) = there.and_then(|peer| peer.memory.word(page as usize * PAGE_BYTES + offset)) {
            // SAFETY: a word of the other node's memory, which stays mapped for good; the address is aligned as
            // `offset` is.
            return Ok(Answer::Done(unsafe { on_memory(at, operation) }));
        }
        thread.home().slots[thread.slot()].expect_answer();
        let epoch = shared.epoch.load(Ordering::Acquire);
        let request = Request { epoch, page, offset: offset as u16, atomic: operation, needs };
        thread.counters().atomics_sent.add(1);
        let target = Target::Request { node: home, origin: Origin::Caller };
        thread.stepping(|out| out.send_with(target, &Message::Atomic { body: &[] }, |body| request.emit(body)));
        let answer = thread.await_answer(page)?;
        if !request.needs.is_empty() {
            shared.needs.lock().confirm(home, &request.needs);
        }
        Answer::parse(&answer)
            .map_err(|_| Error::PeerMisbehaved("the home's answer to an atomic operation makes no sense".to_string()))
    }

    /// What this node reads of the page from now on must have the operation in it, and its next release tells of it.
    fn is_done(&self, page: PageNo) {
        let AtomicCall { thread, shared, known, .. } = *self;
        shared.push_buffer.lock().void(&(page..page + 1));
        let lacks = thread.stepping(|out| {
            let pages = thread.home().local_pages(shared, thread.slot()).of(known);
            pages.table_step((page, Listing::Fault), out, |table, _| table.atomic_done(page))
        });
        if lacks == Some(true) {
            self.invalidate_copy(page);
        }
    }

    /// Ends this node's copy of a page, and voids a fetch of it that is under way; what was written to the copy goes
    /// home first.
    fn invalidate_copy(&self, page: PageNo) {
        let AtomicCall { thread, shared, .. } = *self;
        let (node, slot) = (thread.home(), thread.slot());
        let mut side = Outbox::new();
        let mut intervals = shared.intervals.lock();
        invalidate_copy(&mut node.node_pages(shared, slot, &mut side), &mut intervals, page);
        drop(intervals);
        node.flush(slot, &mut side);
    }
}

/// Types whose values fit a word that atomic operations know.
pub trait Word: crate::heap::Plain + sealed::Sealed {
    #[doc(hidden)]
    const KIND: Kind;
    #[doc(hidden)]
    fn to_bits64(self) -> u64;
    #[doc(hidden)]
    fn of_bits64(bits: u64) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! words {
    ($($ty:ty, $kind:ident, $to:expr, $of:expr;)*) => { $(
        impl sealed::Sealed for $ty {}
        impl Word for $ty {
            const KIND: Kind = Kind::$kind;
            fn to_bits64(self) -> u64 {
                $to(self)
            }
            fn of_bits64(bits: u64) -> Self {
                $of(bits)
            }
        }
    )* };
}

words! {
    i32, I32, |n: i32| u64::from(n.cast_unsigned()), |bits: u64| (bits as u32).cast_signed();
    u32, U32, u64::from, |bits: u64| bits as u32;
    i64, I64, i64::cast_unsigned, u64::cast_signed;
    u64, U64, |n: u64| n, |bits: u64| bits;
    f64, F64, f64::to_bits, f64::from_bits;
}
