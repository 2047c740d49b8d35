//! A unit as one node sees it: its copy, the fetch under way, and what waits for either.

use super::directory::Directory;
use crate::coherence::{Context, Misbehaved, Permission, checksum};
use crate::ids::{NodeId, Slot};
use crate::outbox::{Origin, Target};
use crate::rules::Rule;
use crate::wire::message::{Message, Ticket, Want};
use std::collections::VecDeque;

mod writeback;

pub use writeback::WriteBack;

/// The state of this node's copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Copy {
    Invalid,
    Shared,
    Modified,
}

/// How an access begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// The copy allows it: access the memory now, under the same lock, then [`Unit::settle`].
    Hit,
    /// Wait until woken or until an answer to this thread's own request has been stepped, then begin again.
    Wait,
}

/// A fetch under way; there is at most one for a unit in a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Fetch {
    want: Want,
    by: Slot,
    /// No access waits for it.
    ahead: bool,
    /// The copy on its way was invalidated before it came.
    void: bool,
}

/// Who asked for an operation on this node's copy: the home here, or the home elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Asker {
    Here,
    There(Ticket),
}

/// What the home wants done with this node's copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Operation {
    /// Send the unit to `to` (to the asker itself when `None`) and keep S or nothing.
    Give { want: Want, as_owner: bool, to: Option<Ticket> },
    /// Give the copy up.
    Drop { send_data: bool },
}

/// What is going on around a unit; absent when nothing is.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Activity {
    fetch: Option<Fetch>,
    /// The thread whose fetch was granted and that has not used it yet.
    reserved: Option<Slot>,
    /// The thread that may use, once, the data of its voided fetch.
    once: Option<Slot>,
    /// The copy is on its way to the home; this thread gave it back.
    leaving: Option<Slot>,
    deferred: VecDeque<(Asker, Operation)>,
    waiters: Vec<Slot>,
}

/// A unit's coherence state in one node, and its directory if this node is its home.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Unit {
    pub(super) copy: Copy,
    /// The home may ask for this copy's bytes, although others have some too.
    keeper: bool,
    /// Bytes lie in memory here, and the home is elsewhere.
    stored: bool,
    pins: u16,
    activity: Option<Box<Activity>>,
    pub(super) directory: Option<Box<Directory>>,
}

impl Unit {
    /// A unit that nobody has touched: its home holds it in M, all zero.
    pub fn new(is_home: bool) -> Unit {
        let copy = if is_home { Copy::Modified } else { Copy::Invalid };
        Unit { copy, keeper: false, stored: false, pins: 0, activity: None, directory: None }
    }

    /// The permission that goes with a fresh unit.
    pub fn first_permission(is_home: bool) -> Permission {
        if is_home { Permission::Write } else { Permission::None }
    }

    /// Begins an access of thread `slot`. `pin` says that the access will [`pin`](Unit::pin) the unit.
    pub fn begin(&mut self, cx: &mut Context<'_>, slot: Slot, want: Want, pin: bool) -> Begin {
        if self.usable(slot, want, pin) {
            self.take_reservation(cx, slot);
            return Begin::Hit;
        }
        let activity = self.active();
        let fetching = activity.fetch.is_some() && Rule::FetchesAreJoined.on();
        let busy = fetching || activity.reserved.is_some() || activity.once.is_some();
        if busy || activity.leaving.is_some() || !activity.deferred.is_empty() {
            if !activity.waiters.contains(&slot) {
                activity.waiters.push(slot);
            }
            return Begin::Wait;
        }
        activity.fetch = Some(Fetch { want, by: slot, ahead: false, void: false });
        if cx.me == cx.home {
            self.request_here(cx, slot, want);
            if self.usable(slot, want, pin) {
                self.take_reservation(cx, slot);
                return Begin::Hit;
            }
        } else {
            Self::ask(cx, want);
        }
        Begin::Wait
    }

    /// Asks for a copy that is likely to be read next, for thread `slot`, if the home is elsewhere and nothing goes on
    /// around the unit; whether it did. The copy is not kept for anybody, and none comes where it is invalidated on its
    /// way.
    pub fn fetch_ahead(&mut self, cx: &mut Context<'_>, slot: Slot) -> bool {
        if cx.me == cx.home || self.copy != Copy::Invalid || self.activity.is_some() {
            return false;
        }
        self.active().fetch = Some(Fetch { want: Want::Shared, by: slot, ahead: true, void: false });
        Self::ask(cx, Want::Shared);
        true
    }

    fn ask(cx: &mut Context<'_>, want: Want) {
        let target = Target::Request { node: cx.home, origin: Origin::Caller };
        cx.out.send(target, &Message::Get { unit: cx.unit, want });
    }

    /// Keeps the unit here until [`unpin`](Unit::unpin); only right after a hit.
    pub fn pin(&mut self) {
        self.pins += 1;
    }

    /// Lets the unit go again, and serves what waited for it.
    pub fn unpin(&mut self, cx: &mut Context<'_>) {
        self.pins -= 1;
        self.settle(cx);
    }

    /// Serves the operations that had to wait, as far as they need wait no longer. Call it after each access.
    pub fn settle(&mut self, cx: &mut Context<'_>) {
        while let Some((asker, operation)) = self.activity.as_ref().and_then(|a| a.deferred.front().copied()) {
            if self.must_wait(cx, operation) {
                return;
            }
            self.active().deferred.pop_front();
            self.carry_out(cx, asker, operation);
            self.wake_waiters(cx);
        }
        self.tidy();
    }

    /// The home elsewhere passes on a request.
    pub fn on_forward(&mut self, cx: &mut Context<'_>, ticket: Ticket, want: Want, as_owner: bool, to: Option<Ticket>) {
        self.defer(cx, Asker::There(ticket), Operation::Give { want, as_owner, to });
    }

    /// The home elsewhere takes the copy away.
    pub fn on_invalidate(&mut self, cx: &mut Context<'_>, ticket: Ticket, send_data: bool) {
        self.defer(cx, Asker::There(ticket), Operation::Drop { send_data });
    }

    /// The unit's bytes arrive.
    ///
    /// # Errors
    /// When they are not what was asked for.
    pub fn on_data(&mut self, cx: &mut Context<'_>, grant: Want, bytes: &[u8]) -> Result<(), Misbehaved> {
        if bytes.len() != cx.memory.len() {
            return Err(Misbehaved("a unit's data of the wrong size"));
        }
        let fetch = self.take_fetch();
        let counts = fetch.as_ref().is_some_and(|fetch| !fetch.void);
        if counts && !Rule::BytesBeforePermission.on() {
            cx.memory.permit(if grant == Want::Modified { Permission::Write } else { Permission::Read });
        }
        if fetch.is_some() || !Rule::LateDataIsDropped.on() {
            cx.memory.install(bytes);
            self.stored = cx.me != cx.home;
        }
        let Some(fetch) = fetch else { return Ok(()) };
        let waits = !fetch.ahead || !Rule::AheadIsForNobody.on();
        if !fetch.void || grant != Want::Shared || !Rule::InvalidationVoidsFetch.on() {
            self.granted(cx, grant, waits.then_some(fetch.by));
        } else if waits {
            self.active().once = Some(fetch.by);
            self.wake_fetchers(cx, fetch.by);
        } else {
            self.wake_waiters(cx);
        }
        self.on_data_at_home(cx);
        self.settle(cx);
        Ok(())
    }

    /// State M arrives for a copy held in S.
    ///
    /// # Errors
    /// When no such copy is held or asked for.
    pub fn on_grant(&mut self, cx: &mut Context<'_>) -> Result<(), Misbehaved> {
        let wanted = self.activity.as_ref().and_then(|a| a.fetch.as_ref()).map(|f| f.want);
        if wanted.is_none() {
            return Ok(());
        }
        if wanted != Some(Want::Modified) || self.copy == Copy::Invalid {
            return Err(Misbehaved("a grant of a unit that is not held here"));
        }
        if let Some(fetch) = self.take_fetch() {
            self.granted(cx, Want::Modified, Some(fetch.by));
        }
        self.settle(cx);
        Ok(())
    }

    /// Whether the copy here may be read (`Shared`) or written (`Modified`).
    pub fn holds(&self, want: Want) -> bool {
        match self.copy {
            Copy::Modified => true,
            Copy::Shared => want == Want::Shared,
            Copy::Invalid => false,
        }
    }

    /// Whether somebody elsewhere waits until the unit is let go here.
    pub fn is_wanted(&self) -> bool {
        self.activity.as_ref().is_some_and(|a| !a.deferred.is_empty())
    }

    /// Whether anything is under way around the unit in this node.
    pub fn is_quiet(&self) -> bool {
        self.activity.is_none() && self.pins == 0 && self.directory.as_ref().is_none_or(|d| d.is_idle())
    }

    fn usable(&self, slot: Slot, want: Want, pin: bool) -> bool {
        let Some(activity) = self.activity.as_deref() else { return self.holds(want) };
        if activity.leaving.is_some() && Rule::LeavingUnitsAreNotUsed.on() {
            return false;
        }
        // A queue of others goes before a fresh pin, or pins that overlap would keep the unit here for ever.
        let mine = activity.reserved == Some(slot);
        if pin && !mine && !activity.deferred.is_empty() {
            return false;
        }
        let once = match activity.once {
            Some(by) => want == Want::Shared && (by == slot || !Rule::JoinersDoNotUseVoidData.on()),
            None => false,
        };
        self.holds(want) || once
    }

    fn take_reservation(&mut self, cx: &mut Context<'_>, slot: Slot) {
        let Some(activity) = self.activity.as_deref_mut() else { return };
        let reserved = activity.reserved.take_if(|by| *by == slot).is_some();
        let once = activity.once.take_if(|by| *by == slot).is_some();
        if reserved || once {
            self.wake_waiters(cx);
        }
    }

    fn active(&mut self) -> &mut Activity {
        self.activity.get_or_insert_default()
    }

    fn take_fetch(&mut self) -> Option<Fetch> {
        self.activity.as_mut().and_then(|a| a.fetch.take())
    }

    /// Drops the activity record when nothing is left in it.
    fn tidy(&mut self) {
        if self.activity.as_deref() == Some(&Activity::default()) {
            self.activity = None;
        }
    }

    pub(super) fn defer(&mut self, cx: &mut Context<'_>, asker: Asker, operation: Operation) {
        self.active().deferred.push_back((asker, operation));
        self.settle(cx);
    }

    /// Whether an operation must wait: the table in the module's head, and pins and reservations.
    fn must_wait(&self, cx: &Context<'_>, operation: Operation) -> bool {
        let activity = self.activity.as_deref();
        let reserved = activity.is_some_and(|a| a.reserved.is_some());
        let kept = reserved || ((self.pins > 0 || cx.memory.is_lent()) && Rule::PinnedUnitsStay.on());
        match operation {
            Operation::Give { as_owner: true, .. } => {
                let granted_later = self.copy != Copy::Modified && Rule::ForwardWaitsForGrant.on();
                granted_later || kept
            }
            Operation::Give { as_owner: false, .. } => false,
            Operation::Drop { .. } => self.copy != Copy::Invalid && kept,
        }
    }

    fn carry_out(&mut self, cx: &mut Context<'_>, asker: Asker, operation: Operation) {
        match operation {
            Operation::Give { want, as_owner, to } => {
                self.give(cx, asker, want, to);
                self.keeper = want == Want::Shared && (as_owner || self.keeper);
            }
            Operation::Drop { send_data } => self.drop_copy(cx, asker, send_data),
        }
    }

    fn give(&mut self, cx: &mut Context<'_>, asker: Asker, want: Want, to: Option<Ticket>) {
        let left = if want == Want::Shared { Permission::Read } else { Permission::None };
        // A copy that leaves allows nothing any more.
        let lowered = self.leaving().is_none() && (self.copy == Copy::Modified || want == Want::Modified);
        if lowered && Rule::RevokeBeforeCopy.on() {
            cx.memory.revoke(left);
        }
        let reply_to = match (to, asker) {
            (Some(ticket), _) | (None, Asker::There(ticket)) => ticket,
            (None, Asker::Here) => return, // the home never forwards its own request to itself
        };
        let memory = &*cx.memory;
        let data = Message::Data { unit: cx.unit, grant: want, bytes: &[] };
        cx.out.send_with(Target::Reply(reply_to), &data, |body| memory.copy_out(body));
        if lowered && !Rule::RevokeBeforeCopy.on() {
            cx.memory.revoke(left);
        }
        self.copy = if want == Want::Shared { Copy::Shared } else { Copy::Invalid };
        match asker {
            Asker::Here => self.on_forward_done(cx, cx.me),
            Asker::There(ticket) if to.is_some() => {
                cx.out.send(Target::Reply(ticket), &Message::ForwardDone { unit: cx.unit });
            }
            Asker::There(_) => {}
        }
    }

    fn drop_copy(&mut self, cx: &mut Context<'_>, asker: Asker, send_data: bool) {
        let held = self.copy != Copy::Invalid;
        if held {
            cx.memory.revoke(Permission::None);
            (self.copy, self.keeper) = (Copy::Invalid, false);
        } else if let Some(fetch) = self.active().fetch.as_mut() {
            fetch.void |= fetch.want == Want::Shared;
        }
        let mut bytes = Vec::new();
        let sum_wanted = cfg!(debug_assertions) && held;
        if (send_data && held) || sum_wanted {
            cx.memory.copy_out(&mut bytes);
        }
        let sum = if sum_wanted { checksum(&bytes) } else { 0 };
        if !(send_data && held) {
            bytes.clear();
        }
        match asker {
            Asker::Here => {
                let agreed = self.on_invalidate_done(cx, cx.me, sum, &bytes);
                debug_assert!(agreed.is_ok(), "this node's copy of {:?} differs from another sharer's", cx.unit);
            }
            Asker::There(ticket) => {
                let done = Message::InvalidateDone { unit: cx.unit, checksum: sum, bytes: &bytes };
                cx.out.send(Target::Reply(ticket), &done);
            }
        }
    }

    /// The copy is here, in the granted state, reserved for the thread whose access waits for it.
    fn granted(&mut self, cx: &mut Context<'_>, grant: Want, by: Option<Slot>) {
        let (copy, permission) = match grant {
            Want::Shared => (Copy::Shared, Permission::Read),
            Want::Modified => (Copy::Modified, Permission::Write),
        };
        (self.copy, self.keeper) = (copy, false);
        cx.memory.permit(permission);
        self.active().reserved = by;
        match by {
            Some(by) => self.wake_fetchers(cx, by),
            None => self.wake_waiters(cx),
        }
    }

    /// The home here has granted its own thread's request; `data` holds the bytes when they were not here.
    pub(super) fn granted_here(&mut self, cx: &mut Context<'_>, want: Want, data: Option<&[u8]>) {
        let Some(fetch) = self.take_fetch() else { return };
        if let Some(bytes) = data {
            cx.memory.install(bytes);
        }
        self.granted(cx, want, Some(fetch.by));
    }

    /// A copy has come back to the home here, which has none itself.
    pub(super) fn back_here(&mut self, cx: &mut Context<'_>, held: Want, bytes: &[u8]) {
        cx.memory.install(bytes);
        let (copy, permission) = match held {
            Want::Shared => (Copy::Shared, Permission::Read),
            Want::Modified => (Copy::Modified, Permission::Write),
        };
        self.copy = copy;
        cx.memory.permit(permission);
    }

    fn wake_fetchers(&mut self, cx: &mut Context<'_>, by: Slot) {
        if cx.caller != Some(by) {
            cx.out.wake(by);
        }
        self.wake_waiters(cx);
    }

    fn wake_waiters(&mut self, cx: &mut Context<'_>) {
        if let Some(activity) = self.activity.as_deref_mut() {
            for slot in activity.waiters.drain(..) {
                if cx.caller != Some(slot) {
                    cx.out.wake(slot);
                }
            }
        }
    }

    pub(super) fn directory_mut(&mut self, me: NodeId) -> &mut Directory {
        self.directory.get_or_insert_with(|| Box::new(Directory::new(me)))
    }
}
