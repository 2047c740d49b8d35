//! What this node has of one unit of pages, and each event that changes it.
//!
//! # States
//!
//! | state | in memory | a load | a store |
//! |---|---|---|---|
//! | `Unclaimed` | unmapped; placed by first touch, untouched as far as known | see `first_touch` | see `first_touch` |
//! | `Invalid` | unmapped, with or without memory for the next copy | fetch | fetch |
//! | `Stale` | out of date and mapped, with its twin: see `update_in_place` | | |
//! | `Fetching` | unmapped, or stale, or premapped (see `premap`) | wait | wait |
//! | `Valid` | readable; twin where writes are noted | | noted; or fault: twin, writable, `dirty` |
//! | `Valid untracked` | unmapped: see `untrack_idle` | map | map, as written |
//! | `Home private` | unmapped or writable; nobody else has a copy | map | map |
//! | `Home shared` | unmapped or readable; others may have copies | map | noted; or fault: writable, `dirty` |
//!
//! A store to a stale unit happens only beside the barrier that renews it, and is noted.
//!
//! Nautilus's write detection (its section 5) is the difference between the two rows of `Home`: a page that nobody else
//! holds stays writable and costs nothing. Where a write to a protected page raises a signal, a home page that its home
//! wrote in the last epoch is assumed to be written again: it stays writable when it is copied out, and counts as
//! written (`assumed`), until a remote write comes. An epoch with a second close has locks in it, and each of their
//! releases would tell of the page again: there the assumption ends (`counted`, then `protected`).
//!
//! # Transitions
//!
//! The test `the_table_of_transitions_is_true` reads this table and compares it with the code. An event that is not in
//! it changes nothing in that state, and its method says so. `…` stands for whatever may follow, and is kept.
//!
//! | event | state | next |
//! |---|---|---|
//! | a first touch makes this node the home | `Unclaimed` | `Home private unmapped` |
//! | a first touch makes another node the home | `Unclaimed` | `Invalid` |
//! | a fetch begins | `Invalid…` | `Fetching unmapped…` |
//! | | `Stale…` | `Fetching stale…` |
//! | its reader maps it before it comes | `Fetching unmapped…` | `Fetching premapped…` |
//! | the premapping ends | `Fetching premapped…` | `Fetching unmapped…` |
//! | a copy comes, and lacks diffs | `Fetching unmapped…` | `Fetching unmapped memory` |
//! | the bytes come | `Fetching unmapped…` | `Valid` |
//! | | `Fetching premapped…` | `Valid` |
//! | | `Fetching stale…` | `Valid…` |
//! | the fetch ends without them | `Fetching unmapped…` | `Invalid…` |
//! | | `Fetching premapped…` | `Invalid…` |
//! | | `Fetching stale…` | `Stale…` |
//! | a write is found | `Valid` | `Valid dirty` |
//! | | `Stale` | `Stale dirty` |
//! | | `Fetching stale` | `Fetching stale dirty` |
//! | | `Home shared clean…` | `Home shared dirty…` |
//! | what was written has left | `Valid dirty` | `Valid` |
//! | | `Stale dirty` | `Stale` |
//! | | `Fetching stale dirty` | `Fetching stale` |
//! | | `Home shared dirty…` | `Home shared clean…` |
//! | it is idle | `Valid` | `Valid untracked` |
//! | | `Home shared clean protected` | `Home shared unmapped` |
//! | it is touched again | `Valid untracked` | `Valid` |
//! | | `Home shared unmapped` | `Home shared clean protected` |
//! | | `Home private unmapped` | `Home private writable` |
//! | another node wrote it, and a barrier fetches it again | `Valid` | `Stale` |
//! | | `Valid untracked` | `Stale untracked` |
//! | the copy ends | `Valid…` | `Invalid memory` |
//! | | `Stale…` | `Invalid memory` |
//! | | `Fetching stale…` | `Fetching unmapped memory` |
//! | its memory is given back | `Invalid memory` | `Invalid` |
//! | | `Fetching unmapped memory` | `Fetching unmapped` |
//! | another node copies it | `Home private unmapped` | `Home shared unmapped` |
//! | | `Home private writable` | `Home shared clean protected` |
//! | | `Home private protected…` | `Home shared clean protected` |
//! | nobody has a copy any more | `Home shared unmapped` | `Home private unmapped` |
//! | | `Home shared clean…` | `Home private protected` |
//! | | `Home shared dirty…` | `Home private protected` |
//! | the region is freed | `Invalid…` | `Invalid` |
//! | | `Stale…` | `Invalid` |
//! | | `Valid…` | `Invalid` |
//! | | `Fetching…` | `Fetching unmapped` |
//! | | `Home…` | `Home private unmapped` |
//!
//! Where writes raise faults, a page that nobody has is left writable, not protected. The flags *cancelled* and *for a
//! store* of a fetch, *offered* of a home page, and who wrote a home page change beside these. A home that migrates
//! begins anew at both ends: as `Home private` where it comes, as `Invalid` where it was.

/// What this node has of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum UnitState {
    /// At the home by the layout: nobody has touched the unit yet, as far as is known.
    Unclaimed,
    /// No copy.
    Invalid(Memory),
    /// A copy that is out of date, and mapped: see `update_in_place`.
    Stale(CopyState),
    /// A copy is on its way.
    Fetching(Fetch),
    /// A copy.
    Valid(CopyState),
    /// This node is the home.
    Home(Home),
}

/// What there is of a unit that is not here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Memory {
    /// No memory; and where the home is stands in the layout alone: see `first_touch`.
    Unheard,
    /// No memory.
    None,
    /// Memory for the next copy.
    Kept,
}

/// A copy, valid or stale.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum CopyState {
    /// Not written since it was last compared, as far as is known.
    Clean,
    /// Written; where writes raise faults, writable.
    Dirty,
    /// Not mapped, and not written since it was last clean: see `untrack_idle`.
    Untracked,
}

/// A fetch under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Fetch {
    pub into: Target,
    /// What comes is no longer wanted.
    pub cancelled: bool,
    /// It is for a store, where the kernel notes writes: mapped writable, and so as written, when it comes.
    pub for_store: bool,
}

/// Where the bytes of a fetch will go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Target {
    /// To where nothing is mapped.
    Unmapped(Memory),
    /// To where nothing was mapped when the fetch began, and is now: see `premap`.
    Premapped(Memory),
    /// Into a copy that is out of date.
    Stale(CopyState),
}

/// A unit at its home.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Home {
    pub sharing: Sharing,
    /// Where the kernel notes writes: other nodes may copy the unit without asking, and mark it when they do.
    pub offered: bool,
    pub writers: Writers,
}

/// Whether other nodes may have copies of a home page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Sharing {
    Private(Private),
    Shared(Shared),
}

/// How a home page is mapped of which nobody has a copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Private {
    Unmapped,
    Writable,
    /// Where the kernel notes writes: protected when the last interval before this epoch was closed.
    ProtectedAtBarrier,
    /// Protected along with another page: see `batch_protect`.
    ProtectedWithNeighbour,
}

/// How a home page is mapped that others have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Shared {
    Unmapped,
    Mapped { dirty: bool, writes: Detection },
}

/// How it comes out that its home has written a page that others have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Detection {
    /// It was protected: the first store is noted, or faults.
    Protected,
    /// It was copied out without protection, and counts as written.
    Assumed,
    /// And has counted as written in this epoch for no other reason.
    Counted,
    /// Its note was left, and it is compared with its twin: see `home_twin`.
    Twin,
}

/// Who has written a home page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Writers {
    /// Nobody, of late.
    Nobody,
    /// Its home, in the last epoch.
    Home,
    /// Another node, since the home told of a write of its own.
    Others,
    /// Its home in the last epoch, and another node is known to have written it since.
    HomeThenOthers,
}

impl CopyState {
    /// A write was found, or what was written has left.
    fn set_dirty(&mut self, dirty: bool) {
        *self = match self {
            CopyState::Untracked => CopyState::Untracked,
            _ if dirty => CopyState::Dirty,
            _ => CopyState::Clean,
        };
    }
}

impl Memory {
    /// The unit's home is known now.
    fn heard(self) -> Memory {
        if self == Memory::Unheard { Memory::None } else { self }
    }
}

impl Writers {
    pub fn home_wrote_last_epoch(self) -> bool {
        matches!(self, Writers::Home | Writers::HomeThenOthers)
    }

    pub fn others_wrote(self) -> bool {
        matches!(self, Writers::Others | Writers::HomeThenOthers)
    }

    /// A notice says that another node has written the page.
    pub fn others_write(&mut self) {
        *self = if self.home_wrote_last_epoch() { Writers::HomeThenOthers } else { Writers::Others };
    }

    /// The home tells of a write of its own.
    pub fn home_tells(&mut self) {
        *self = if self.home_wrote_last_epoch() { Writers::Home } else { Writers::Nobody };
    }
}

impl Home {
    /// A page of which nobody has a copy; without write detection it counts as shared all the same.
    pub fn new(write_detection: bool, mapped: bool) -> Home {
        let sharing = match (write_detection, mapped) {
            (true, false) => Sharing::Private(Private::Unmapped),
            (true, true) => Sharing::Private(Private::Writable),
            (false, false) => Sharing::Shared(Shared::Unmapped),
            (false, true) => Sharing::Shared(Shared::Mapped { dirty: false, writes: Detection::Protected }),
        };
        Home { sharing, offered: false, writers: Writers::Nobody }
    }

    pub fn is_shared(&self) -> bool {
        matches!(self.sharing, Sharing::Shared(_))
    }

    pub fn is_mapped(&self) -> bool {
        !matches!(self.sharing, Sharing::Private(Private::Unmapped) | Sharing::Shared(Shared::Unmapped))
    }

    /// How its writes come out, if others have it and it is mapped.
    pub fn detection(&self) -> Option<Detection> {
        match self.sharing {
            Sharing::Shared(Shared::Mapped { writes, .. }) => Some(writes),
            _ => None,
        }
    }

    /// Its writes come out so from now on, if others have it and it is mapped.
    pub fn detect(&mut self, by: Detection) {
        if let Sharing::Shared(Shared::Mapped { writes, .. }) = &mut self.sharing {
            *writes = by;
        }
    }

    /// It is touched where it was not mapped.
    pub fn map(&mut self) {
        self.sharing = match self.sharing {
            Sharing::Private(Private::Unmapped) => Sharing::Private(Private::Writable),
            Sharing::Shared(Shared::Unmapped) => {
                Sharing::Shared(Shared::Mapped { dirty: false, writes: Detection::Protected })
            }
            mapped => mapped,
        };
    }

    /// Another node has a copy. What is mapped was protected, or counts as written (`Assumed`).
    pub fn share(&mut self, by: Detection) {
        if let Sharing::Private(private) = self.sharing {
            self.sharing = Sharing::Shared(match private {
                Private::Unmapped => Shared::Unmapped,
                _ => Shared::Mapped { dirty: false, writes: by },
            });
        }
    }

    /// Nobody has a copy any more. If it is mapped, it is protected as its last interval's close has left it, or
    /// writable.
    pub fn unshare(&mut self, is_protected: bool) {
        let shared = self.is_shared();
        self.sharing = Sharing::Private(match self.is_mapped() {
            false => Private::Unmapped,
            true if shared && is_protected => Private::ProtectedAtBarrier,
            true => Private::Writable,
        });
    }
}

impl UnitState {
    /// The unit's home, if that is here.
    pub fn home(&self) -> Option<&Home> {
        match self {
            UnitState::Home(home) => Some(home),
            _ => None,
        }
    }

    /// The unit's home, if that is here.
    pub fn home_mut(&mut self) -> Option<&mut Home> {
        match self {
            UnitState::Home(home) => Some(home),
            _ => None,
        }
    }

    pub fn is_home(&self) -> bool {
        matches!(self, UnitState::Home(_))
    }

    /// At its home, and nobody has a copy.
    pub fn is_private(&self) -> bool {
        self.home().is_some_and(|home| !home.is_shared())
    }

    /// At its home, and others may have copies.
    pub fn is_shared(&self) -> bool {
        self.home().is_some_and(Home::is_shared)
    }

    /// At its home, mapped, and nobody has a copy.
    pub fn is_mapped_private(&self) -> bool {
        self.is_private() && self.is_mapped_home()
    }

    /// At its home, and mapped.
    pub fn is_mapped_home(&self) -> bool {
        self.home().is_some_and(Home::is_mapped)
    }

    /// At its home, where other nodes may take it.
    pub fn is_offered(&self) -> bool {
        self.home().is_some_and(|home| home.offered)
    }

    /// At its home, which compares it with its twin.
    pub fn has_home_twin(&self) -> bool {
        self.home().and_then(Home::detection) == Some(Detection::Twin)
    }

    pub fn is_valid(&self) -> bool {
        matches!(self, UnitState::Valid(_))
    }

    /// Not here, and not on its way: a fetch may begin.
    pub fn is_absent(&self) -> bool {
        matches!(self, UnitState::Invalid(_) | UnitState::Stale(_))
    }

    /// The fetch under way.
    pub fn fetch(&self) -> Option<Fetch> {
        match self {
            UnitState::Fetching(fetch) => Some(*fetch),
            _ => None,
        }
    }

    /// The fetch under way.
    pub fn fetch_mut(&mut self) -> Option<&mut Fetch> {
        match self {
            UnitState::Fetching(fetch) => Some(fetch),
            _ => None,
        }
    }

    pub fn is_fetching(&self) -> bool {
        matches!(self, UnitState::Fetching(_))
    }

    /// Nothing of the unit is mapped, and its home is elsewhere.
    pub fn is_unmapped(&self) -> bool {
        matches!(self, UnitState::Invalid(_) | UnitState::Fetching(Fetch { into: Target::Unmapped(_), .. }))
    }

    /// No thread can store to any of the unit, whatever its home.
    pub fn is_nowhere_mapped(&self) -> bool {
        self.is_unmapped() || *self == UnitState::Unclaimed || self.is_home() && !self.is_mapped_home()
    }

    /// A copy with bytes of its own, valid or stale.
    pub fn is_copy(&self) -> bool {
        self.is_valid() || self.stale().is_some()
    }

    /// The copy that is out of date, and mapped.
    pub fn stale(&self) -> Option<CopyState> {
        match self {
            UnitState::Stale(copy) | UnitState::Fetching(Fetch { into: Target::Stale(copy), .. }) => Some(*copy),
            _ => None,
        }
    }

    fn copy_mut(&mut self) -> Option<&mut CopyState> {
        match self {
            UnitState::Valid(copy)
            | UnitState::Stale(copy)
            | UnitState::Fetching(Fetch { into: Target::Stale(copy), .. }) => Some(copy),
            _ => None,
        }
    }

    fn memory_mut(&mut self) -> Option<&mut Memory> {
        match self {
            UnitState::Invalid(memory)
            | UnitState::Fetching(Fetch { into: Target::Unmapped(memory) | Target::Premapped(memory), .. }) => {
                Some(memory)
            }
            _ => None,
        }
    }

    /// Whether the home is known by the layout alone, from elsewhere.
    pub fn is_unheard(mut self) -> bool {
        self.memory_mut() == Some(&mut Memory::Unheard)
    }

    /// Whether memory is in use here for a copy.
    pub fn has_memory(mut self) -> bool {
        match self.memory_mut() {
            Some(memory) => *memory == Memory::Kept,
            None => self.copy_mut().is_some(),
        }
    }

    /// Whether the kernel's notes about the unit count: a copy, or a home page that others hold.
    pub fn is_tracked(&self) -> bool {
        match self {
            UnitState::Valid(copy) => *copy != CopyState::Untracked,
            UnitState::Home(home) => home.detection().is_some(),
            _ => self.stale().is_some(),
        }
    }

    /// Written, as far as is known, since what was written left the last time.
    pub fn is_dirty(&self) -> bool {
        match self {
            UnitState::Valid(copy)
            | UnitState::Stale(copy)
            | UnitState::Fetching(Fetch { into: Target::Stale(copy), .. }) => *copy == CopyState::Dirty,
            UnitState::Home(Home { sharing: Sharing::Shared(Shared::Mapped { dirty, .. }), .. }) => *dirty,
            _ => false,
        }
    }

    /// Counts as written because it was assumed to be.
    pub fn is_assumed_dirty(&self) -> bool {
        matches!(self.home().and_then(Home::detection), Some(Detection::Assumed | Detection::Counted))
    }

    /// The home of the unit, from elsewhere, is known now.
    pub fn hear_of_home(&mut self) {
        if let Some(memory) = self.memory_mut() {
            *memory = memory.heard();
        }
    }

    /// It is settled whose an untouched unit is; whether it was untouched.
    pub fn settle(&mut self, is_here: bool, write_detection: bool) -> bool {
        let was_unclaimed = *self == UnitState::Unclaimed;
        if was_unclaimed {
            *self = match is_here {
                true => UnitState::Home(Home::new(write_detection, false)),
                false => UnitState::Invalid(Memory::None),
            };
        }
        was_unclaimed
    }

    /// A fetch begins; whether it may.
    pub fn begin_fetch(&mut self, for_store: bool) -> bool {
        let into = match *self {
            UnitState::Invalid(memory) => Target::Unmapped(memory),
            UnitState::Stale(copy) => Target::Stale(copy),
            _ => return false,
        };
        *self = UnitState::Fetching(Fetch { into, cancelled: false, for_store });
        true
    }

    /// The unit is mapped while its bytes are on their way; whether nothing of it was.
    pub fn premap(&mut self) -> bool {
        let Some(Fetch { into, .. }) = self.fetch_mut() else { return false };
        let Target::Unmapped(memory) = *into else { return false };
        *into = Target::Premapped(memory);
        true
    }

    /// It is so no longer; whether it was.
    pub fn end_premap(&mut self) -> bool {
        let Some(Fetch { into, .. }) = self.fetch_mut() else { return false };
        let Target::Premapped(memory) = *into else { return false };
        *into = Target::Unmapped(memory);
        true
    }

    /// The bytes of a copy are here, and diffs that it lacks are on their way; whether this is the first of them.
    pub fn begin_copy(&mut self) -> bool {
        let Some(Fetch { into, .. }) = self.fetch_mut() else { return false };
        let Target::Unmapped(memory) = *into else { return false };
        *into = Target::Unmapped(Memory::Kept);
        memory != Memory::Kept
    }

    /// The bytes are here; whether they were on their way.
    pub fn arrive(&mut self) -> bool {
        let Some(fetch) = self.fetch() else { return false };
        *self = UnitState::Valid(match fetch.into {
            Target::Stale(copy) => copy,
            _ => CopyState::Clean,
        });
        true
    }

    /// The fetch brings nothing; whether there was one.
    pub fn end_fetch(&mut self) -> bool {
        let Some(fetch) = self.fetch() else { return false };
        *self = match fetch.into {
            Target::Stale(copy) => UnitState::Stale(copy),
            Target::Unmapped(memory) | Target::Premapped(memory) => UnitState::Invalid(memory),
        };
        true
    }

    /// A write was found, or what was written has left. What nobody looks for writes in stays clean.
    pub fn set_dirty(&mut self, on: bool) {
        if let Some(copy) = self.copy_mut() {
            copy.set_dirty(on);
        } else if let UnitState::Home(Home { sharing: Sharing::Shared(Shared::Mapped { dirty, .. }), .. }) = self {
            *dirty = on;
        }
    }

    /// Whether the unit may be unmapped as idle: a mapped copy, or a page that others have, of which nothing is known
    /// to have been written.
    pub fn may_be_untracked(&self) -> bool {
        match self {
            UnitState::Valid(copy) => *copy == CopyState::Clean,
            UnitState::Home(home) => home.detection() == Some(Detection::Protected) && !self.is_dirty(),
            _ => false,
        }
    }

    /// It is unmapped as idle; whether it may be.
    pub fn untrack(&mut self) -> bool {
        let may = self.may_be_untracked();
        match self {
            UnitState::Valid(copy) if may => *copy = CopyState::Untracked,
            UnitState::Home(home) if may => home.sharing = Sharing::Shared(Shared::Unmapped),
            _ => {}
        }
        may
    }

    /// It is touched where it is here and not mapped; whether that was so.
    pub fn touch(&mut self) -> bool {
        match self {
            UnitState::Valid(copy) if *copy == CopyState::Untracked => *copy = CopyState::Clean,
            UnitState::Home(home) if !home.is_mapped() => home.map(),
            _ => return false,
        }
        true
    }

    /// Another node has written it, and it stays mapped until it was fetched again; whether that may be.
    pub fn make_stale(&mut self) -> bool {
        match *self {
            UnitState::Valid(CopyState::Dirty) => false,
            UnitState::Valid(copy) => {
                *self = UnitState::Stale(copy);
                true
            }
            _ => false,
        }
    }

    /// The copy ends, valid or stale, and its memory stays; whether there was one.
    pub fn end_copy(&mut self) -> bool {
        match self {
            UnitState::Valid(_) | UnitState::Stale(_) => *self = UnitState::Invalid(Memory::Kept),
            UnitState::Fetching(Fetch { into: into @ Target::Stale(_), .. }) => *into = Target::Unmapped(Memory::Kept),
            _ => return false,
        }
        true
    }

    /// The unit's region was freed: nothing of it is here or wanted.
    pub fn forget(&mut self) {
        *self = match self {
            UnitState::Unclaimed => UnitState::Unclaimed,
            UnitState::Home(_) => UnitState::Home(Home::new(true, false)),
            UnitState::Fetching(_) => {
                UnitState::Fetching(Fetch { into: Target::Unmapped(Memory::None), cancelled: false, for_store: false })
            }
            UnitState::Invalid(_) | UnitState::Stale(_) | UnitState::Valid(_) => UnitState::Invalid(Memory::None),
        };
    }

    /// The memory of what is not mapped is given back; whether there was any.
    pub fn give_back(&mut self) -> bool {
        let is_unmapped = self.is_unmapped();
        match self.memory_mut() {
            Some(memory) if is_unmapped && *memory == Memory::Kept => *memory = Memory::None,
            _ => return false,
        }
        true
    }
}
