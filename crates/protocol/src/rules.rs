//! The ordering rules of coherence, each of them a way to lose an update when it is left out.
//!
//! In an ordinary build every rule is in force and the question costs nothing. With the feature `mutants` a
//! test may switch one rule off in its own thread and show that the simulator then finds a seed that
//! fails: a rule that nothing misses is a rule that nothing checks.

/// The rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// A store must not fall between its permission check and an invalidation (DSM/IP, section 3.2.3).
    RevokeWaitsForStores,
    /// Permission is taken away before the unit's bytes are copied out.
    RevokeBeforeCopy,
    /// An invalidation that meets a fetch voids what that fetch will bring.
    InvalidationVoidsFetch,
    /// Threads that joined a fetch after it was sent may not use what a voided fetch brought.
    JoinersDoNotUseVoidData,
    /// A forwarded request that meets a fetch is served after the fetched unit was used.
    ForwardWaitsForGrant,
    /// The home grants M only when every sharer has confirmed its invalidation.
    GrantAfterAllInvalidations,
    /// The home serves one transaction a unit at a time, in order of arrival.
    HomeIsFirstComeFirstServed,
    /// Data counts only for the fetch that asked for it; a late duplicate never lands in a valid unit.
    LateDataIsDropped,
    /// A unit in use by a range access moves only after the access has ended.
    PinnedUnitsStay,
    /// A unit that leaves for its home is not used here, nor asked for again, before the home has it.
    LeavingUnitsAreNotUsed,
    /// A unit that leaves for its home serves what the home asks until the home has it.
    LeavingUnitsStillServe,
    /// The home takes a unit back only from a node that holds it.
    OnlyHoldersGiveBack,
    /// Permission is taken away before the bytes of a unit that goes back to its home are copied out.
    RevokeBeforeGivingBack,
    /// A unit's bytes are in place before its threads may look at them.
    BytesBeforePermission,
    /// A thread that misses a unit which its node is fetching waits for that fetch.
    FetchesAreJoined,
    /// What a voided fetch of a page brought is not mapped: a page's permission cannot say that one access alone may
    /// use it.
    VoidPagesAreNotMapped,
    /// A granted page stays until the thread that asked has made its access, or for a short time.
    GrantedPagesAreHeld,
    /// So does the one before it, as long as the access faults on its neighbour.
    SpanningAccessesHoldBoth,
    /// A page that a thread holds goes after a short time if others want it, although the thread does nothing that
    /// tells of it.
    HoldsAreShort,
    /// It stays longer where an access has lost one of its two pages again and again, and not as long on all nodes.
    HoldsGrow,
    /// Who wanted a page before it stood among those held is looked for again when it stands there.
    ListedHoldsAreLookedAtAgain,
    /// What is fetched ahead is kept for no access, for it may be that none comes.
    AheadIsForNobody,
    /// No packet is processed twice.
    AtMostOnce,
    /// A message is complete only when all its fragments are in.
    FragmentsAllIn,
    /// A repeated request is answered again from the stored reply, never executed again.
    RepliesAreStored,
    /// A lock's token leaves its node only while no thread of the node holds the lock.
    TokenLeavesOnlyWhenFree,
    /// A manager that has published who asked last for a lock keeps no other note of it.
    LaidOpenQueuesAreUsed,
    /// A published token is here again only if no other node has taken it.
    PublishedTokensAreTakenOnce,
    /// A request that is deferred for the sake of the node's own threads waits for a limited time.
    DeferralsAreBounded,
    /// A node whose threads all wait, and none for a lock, defers none of them.
    IdleNodesDeferNothing,
    /// When all threads of a node wait, those that were deferred before are carried out.
    WaitingThreadsEndDeferrals,
    /// When a barrier has opened, what was deferred for it is carried out.
    OpenedBarriersEndDeferrals,
    /// When a long close is over, what was deferred for it is carried out.
    ClosesEndDeferrals,
    /// A deferred message is carried out once.
    DeferredMessagesRunOnce,
    /// A one-sided lock is taken only while nobody holds it.
    HeldLocksAreNotTaken,
    /// While threads wait for a one-sided lock, others take it a few times in a row at most.
    BypassesEnd,
    /// Whoever is next in the queue of a one-sided lock says so before it sleeps.
    SleepersSaySo,
    /// When a one-sided lock has been taken from its queue, whoever is next then may be asleep.
    NextMaySleep,
    /// A thread falls asleep in the queue of a one-sided lock only while the same thread is next as when it looked.
    SleepersSeeWhoIsNext,
    /// The release of a one-sided lock leaves the queue as it is.
    ReleasesKeepTheQueue,
    /// A place in the table of one-sided locks that has a name keeps it.
    NamesStay,
    /// A node stores the word of its arrival before it looks whether all others are there.
    ArrivalsAreStoredFirst,
    /// All others can see the word of a node's arrival before that node looks at theirs.
    ArrivalsAreVisibleFirst,
    /// The words of other nodes' arrivals count only where they name the same call.
    WordsSayTheCall,
    /// The word of an arrival names the call at the barrier before, too.
    WordsKeepThePreviousCall,
    /// Who arrives with another call than those that wait wakes them.
    OtherCallsWake,
    /// Who sleeps until all have arrived is counted among the sleepers.
    SleepersCountThemselves,
    /// A barrier opens only when every node has arrived.
    BarrierWaitsForAll,
    /// A thread that waits for a condition is known to the condition's manager before it lets its lock go.
    WaiterRegistersBeforeRelease,
    /// A thread is among a condition's waiters only when every node that was told that nobody waits has heard that
    /// somebody does.
    WaitersAreHeardOf,
    /// A writer gets a reader-writer lock only when every reader has left.
    WriterWaitsForReaders,
    /// A copy is taken from the threads before it is looked whether it was written.
    UnmapBeforeCollect,
    /// A page that stays mapped is protected before its diff is taken.
    ProtectBeforeDiff,
    /// A home page is protected before it is copied out to its first reader.
    ProtectBeforeCopyOut,
    /// Pages are copied out of a chunk for another node only when whoever ends an interval comes by the chunk.
    SharedChunksAreListedFirst,
    /// So are pages of which this node tells what it writes to them mapped.
    MappedChunksAreListedFirst,
    /// An acquire ends the copies that its notices name.
    AcquiresEndCopies,
    /// Of what a barrier has left mapped all is fetched again.
    KeptCopiesAreAllFetched,
    /// A notice that meets a page being fetched voids what the fetch will bring.
    NoticeVoidsFetch,
    /// Pages count only for units that are being fetched.
    LatePagesAreDropped,
    /// The home's own writes make notices while others hold copies.
    HomeWritesMakeNotices,
    /// A page flushed before its interval ends is still named in the interval's notices.
    FlushedPagesStayNoted,
    /// A chunk is passed over at a close only if nothing was flushed there since the last one, however little the
    /// kernel has noted.
    PassedOverHasNothingToTell,
    /// A chunk that a close passes over stays among those that the next one comes by.
    PassedOverStayActive,
    /// Writes to a home's pages are disregarded only while nobody else holds copies.
    SharedPagesAreRegarded,
    /// A release that is told later ends the interval, unless one has ended since.
    ToldReleasesAreInIntervals,
    /// What a lock tells reaches to the end of the interval in which it was released.
    ReleasesTellTheirInterval,
    /// A fetch names the diffs that the home must have applied, its own node's among them.
    FetchNamesItsNeeds,
    /// The home answers a fetch when it has applied the diffs that the fetch names.
    FetchWaitsForDiffs,
    /// An acquirer waits until the diffs that were announced to it for its own home pages are applied.
    HomeAwaitsDiffs,
    /// So does who takes a lock whose token rests here: the token may have come unasked by any thread.
    RestingTokensAwaitDiffs,
    /// Tokens that come unasked by any thread while their node is at a barrier wait until it has opened.
    TokensWaitForTheBarrier,
    /// The diffs of one node are applied in the order in which they were made.
    DiffsInOrder,
    /// What comes from a later epoch waits until this node has come as far.
    LaterEpochsWait,
    /// A fault on a page that is valid counts as a write.
    SpuriousFaultCountsAsWritten,
    /// A page migrates only to a node that holds it.
    MigrationNeedsValidCopy,
    /// A page that another node has taken counts as shared from then on.
    TakenPagesAreShared,
    /// Who takes a page marks it first and copies it then.
    MarkBeforeTaking,
    /// Who takes a page looks first whether its home has applied the diffs that it needs.
    TakersLookForTheirNeeds,
    /// A page that is offered is not protected again: that would forget what was written since somebody took it.
    OfferedPagesKeepTheirNotes,
    /// A home that goes elsewhere takes its offers back.
    MovedPagesAreWithdrawn,
    /// A home takes an untouched page for its own, or gives it away, only if nobody has claimed it.
    ClaimsAreHeeded,
    /// Who has heard of a page's home claims it no more.
    OnlyFreshPagesAreClaimed,
    /// A page that several nodes claim in its home's table belongs to the one that did so first.
    FirstClaimsCount,
    /// What a barrier fetches again has come before any thread of the node goes on.
    RefetchesAreAwaited,
    /// What was written to copies that make room for others leaves for the home.
    EvictedCopiesAreFlushed,
    /// A page table whose region was freed takes nothing in any more.
    FreedTablesAreMarked,
    /// What was flushed and not told of yet is something to tell, whatever the kernel has noted.
    PendingWorkIsTold,
    /// Who stores its diffs into their home's memory by itself does so only when all that it sent there before is in.
    PutsKeepTheirOrder,
    /// No interval closes between a node's arrival at a barrier and the barrier's opening.
    NothingClosesAfterArrival,
    /// What was written is noted in the log of its region's engine.
    NoticesKeepTheirLog,
    /// A release tells of what both logs have.
    BothLogsAreTold,
    /// What was seen of one log says nothing of the other.
    KnowledgeIsOfOneLog,
    /// At a manager, what is said of one log never stands for what was said of the other.
    LogsAreMergedApart,
    /// Threads of one node hand a lock on among themselves only so often while another node waits.
    StreaksEnd,
    /// At a manager, what one node said when it raised a flag or posted stays beside what another said.
    PostersAreUnited,
    /// A barrier that leaves ended copies mapped lets no thread of the node go on before they are up to date.
    KeptCopiesAreRenewedFirst,
    /// A page that its home sent unasked counts only if the home had applied what others wrote to it before the
    /// barrier.
    PushedPagesMeetNeeds,
    /// Pages that were sent unasked count for the barrier before which they were sent, and for no later one.
    PushesAreForOneBarrier,
    /// A notice ends what is kept of a page that was sent unasked, as it ends a copy.
    NoticesEndPushedPages,
    /// A home counts pages that it sent unasked among those that others hold.
    PushedPagesAreShared,
    /// A page that came with a token counts only if the giver knew of every write to it that this node knows of.
    CarriedPagesHaveAllThatIsKnown,
    /// And only if nothing that this node wrote to it has left for the home in the open interval.
    CarriedPagesHaveOwnBytes,
    /// Of a copy a token carries what has left this node, and not what its threads have stored since.
    CarriedCopiesAreReleased,
    /// A home sends its page with a token only when all diffs are in that were announced to it.
    HomesCarryWhatIsApplied,
    /// Diffs of pages that came with a token are applied after those that the pages had in them.
    DiffsFollowWhatTheyNeed,
    /// A page is unmapped before it is untracked, and scanned for writes after that.
    UntrackingScansAfterUnmap,
    /// When stores to a page table have been forbidden, a close looks once more at what was written to it.
    QuietTablesAreLookedAtOnceMore,
    /// A page table is listed before stores to it are allowed again.
    AllowedTablesAreListedFirst,
    /// Copies that have no twins get them before stores to their page table are allowed.
    TwinsBeforeStores,
    /// A home page whose note was left counts as written while others hold copies, whatever it looks like.
    LeftNotesCount,
    /// Others get of a home page that is compared what they were last told of, not what its threads are making of it.
    ComparedPagesGoOutAsTold,
    /// A home page to which a diff of another node is applied is compared no longer.
    DiffsEndComparisons,
    /// A page is mapped before its bytes come only where no thread can look at it but the one that waits for them.
    LoneThreadsMapEarly,
    /// A page that was mapped before its bytes came is unmapped again if they are not wanted.
    UnwantedPagesAreTakenBack,
    /// When its bytes have come, what is written to a page that was mapped before concerns others, whoever has passed
    /// it over meanwhile.
    PremappedPagesAreTracked,
    /// What an atomic operation has changed at its home is named in the next interval of the node that asked.
    AtomicsAreTold,
    /// The copy of a page ends on the node that has an atomic operation carried out at its home.
    AtomicsEndCopies,
    /// A lazy acquire of a lock whose token came without everything asks for that.
    LazyAcquiresCatchUp,
    /// A token that came without everything says so when it goes on with everything.
    NarrowTokensAreMarked,
    /// A scan for writes may leave out pages that were never mapped, and no others: it finds what was written to pages
    /// that are mapped no more.
    NotesOutliveMappings,
    /// A post tells of what was written before it.
    PostsTell,
    /// So does a post whose thread waits until it counts.
    GivesTell,
    /// So does a signal of a thread that holds no lock.
    SignalsTell,
    /// So does who comes to a meeting.
    SubsetBarriersCarryNotices,
    /// Who ends a read under a reader-writer lock tells of what was written before, as who ends a write does.
    ReadersTell,
    /// Who is given an object by its manager is told what releases have said of it.
    GivenThingsAreToldOf,
    /// So is the manager's own node: what others have said of the thing lies there, and nobody there has taken it in.
    ManagersHear,
    /// A thing of which something was said is kept though nobody holds it or waits for it.
    SaidIsKept,
    /// A reduction is a barrier, for memory too.
    ReductionsTell,
    /// Where diffs stay with their writers: bytes that come never overwrite newer ones of the copy.
    NewerBytesStay,
    /// An interval that is told has its diffs in its writer's store.
    DiffsAreMadeAtClose,
    /// A page is valid when the diffs of all writers have come.
    PagesWaitForAllDiffs,
    /// A notice that meets a page for which diffs were asked makes it need more.
    NoticesVoidAsks,
    /// What comes is stored before the twin is made: it is nothing that this node wrote.
    PatchesReachTheTwin,
    /// What was written to a copy is kept before the copy ends.
    OwnBytesFirst,
    /// An answer that comes again stores nothing: threads may have stored since.
    DuplicatesPatchOnce,
    /// A manager's copy comes with the stamps of its bytes.
    BasesBringTheirStamps,
    /// It is what was released, and not what threads have stored since.
    BasesAreReleased,
    /// Who has heard of an interval gives later ones to its own.
    StampsFollowWhatIsTold,
    /// Two diffs of one interval have different stamps.
    EveryDiffHasItsStamp,
    /// Before diffs are dropped managers have all of them.
    ManagersAreComplete,
    /// Diffs are dropped one barrier after that was announced: until then others ask for them.
    DiffsOutliveReaders,
    /// Who frees another node's memory says up to which stamp it has heard: what the owner stores there next is later.
    FreesBringTheirStamp,
    /// Memory that is given out again counts as written, with the bytes that stay as they are in the owner's copy.
    ReusedMemoryIsWritten,
    /// Under `multicast`: a writer leaves an ask without an answer only if it has told a set with the asker in it.
    SilentOnlyIfTold,
    /// Who does not hear from a writer in time asks it point to point.
    RepairAsksWriters,
    /// What was told counts only where the copy has all that the writer wrote before.
    ToldDiffsLeaveNoGap,
    /// Who is in no copyset answers as a writer all the same.
    LeaversServeUntilHeard,
    /// Diffs that come with a token count only where the copy has all that was written before them.
    CarriedDiffsLeaveNoGap,
    /// They are what was released, and not what threads have stored since.
    CarriedDiffsAreReleased,
    /// Where a release tells of some writes alone, it says up to which stamp its node has heard all the same: what is
    /// stored in memory that is given out again is later than all that happened before.
    ClocksFollowReleases,
    /// What was told of a region that was freed is not kept for the one that has its addresses.
    RegionsBeginAnew,
    /// A node speaks of how it uses a unit, and so may come to manage it, only while it has a copy.
    ManagersHaveCopies,
    /// No unit gets another manager as a collection ends: the old one alone was made to have everything.
    ManagersStayAsDiffsAreDropped,
    /// A manager's copy that takes the place of another may have less than that had up to the last barrier.
    BasesAreNotWhole,
    /// What a manager's copy lacks its writers are asked for, and not the manager again.
    IncompleteBasesAskWriters,
    /// The tag of a unit's only holder is left alone only if that is the unit's home, not, as the paper prints, if
    /// the thread
    /// that stores runs there.
    PrintedAlgorithmTwo,
    /// The tag of a unit's only holder is locked before the unit's bytes are read.
    RemoteTagBeforeRead,
    /// Stores that were checked before the entry was locked are made before the unit's bytes are read.
    QuiesceBeforeRead,
    /// All other copies are gone before the store is made.
    MagicFlushedBeforeStore,
    /// And the directory stays locked until then, and until the store is made.
    MagicFlushedBeforeRelease,
    /// A unit's bytes are here before the directory says so.
    DataBeforePresence,
    /// A store ends every other copy.
    EverySharerGetsMagic,
    /// The home's copy is one of them.
    HomeCountsAsHolder,
    /// An entry that another thread has locked says nothing.
    BusyEntriesAreNotUsed,
    /// A thread that has missed clears its hazard before it waits.
    HazardLoweredBeforeWaiting,
    /// A thread that has raised its hazard again checks its entries again.
    HazardsRecheckedAfterMiss,
    /// The entries of all lines of a unit are revoked.
    MirrorsRevoked,
    /// Untouched memory is filled with MAGIC, and its entries say so, before a thread may look at it.
    FillBeforeMap,
    /// A load that finds MAGIC asks the directory.
    GenuineMagicIsAsked,
    /// Who waits for an entry hears that the job is lost.
    SpinnersHearOfLoss,
    /// Of several misses side by side, one that finds an entry locked ends instead of waiting for it.
    GroupsWaitForNoEntry,
    /// A miss that ends so unlocks the entries that it has locked.
    GivenUpEntriesAreUnlocked,
    /// Of several misses side by side, each has a barrier behind its locks, and waits for its own unit's hazards.
    EveryMemberQuiesces,
    /// Whoever has sent something again and again without an answer watches the node that owes it.
    WaitersWatch,
    /// Who does not reach another does not say alone which of the two is lost.
    AccusationsAreWeighed,
}

impl Rule {
    /// The rules for networks that are cut in places.
    pub const CUTS: [Rule; 2] = [Rule::WaitersWatch, Rule::AccusationsAreWeighed];

    /// The rules for pages.
    pub const PAGES: [Rule; 80] = [
        Rule::UnmapBeforeCollect,
        Rule::ProtectBeforeDiff,
        Rule::ProtectBeforeCopyOut,
        Rule::SharedChunksAreListedFirst,
        Rule::MappedChunksAreListedFirst,
        Rule::AcquiresEndCopies,
        Rule::KeptCopiesAreAllFetched,
        Rule::NoticeVoidsFetch,
        Rule::LatePagesAreDropped,
        Rule::HomeWritesMakeNotices,
        Rule::FlushedPagesStayNoted,
        Rule::PassedOverHasNothingToTell,
        Rule::PassedOverStayActive,
        Rule::SharedPagesAreRegarded,
        Rule::ToldReleasesAreInIntervals,
        Rule::ReleasesTellTheirInterval,
        Rule::FetchNamesItsNeeds,
        Rule::FetchWaitsForDiffs,
        Rule::HomeAwaitsDiffs,
        Rule::RestingTokensAwaitDiffs,
        Rule::TokensWaitForTheBarrier,
        Rule::DiffsInOrder,
        Rule::LaterEpochsWait,
        Rule::SpuriousFaultCountsAsWritten,
        Rule::MigrationNeedsValidCopy,
        Rule::TakenPagesAreShared,
        Rule::MarkBeforeTaking,
        Rule::TakersLookForTheirNeeds,
        Rule::OfferedPagesKeepTheirNotes,
        Rule::MovedPagesAreWithdrawn,
        Rule::ClaimsAreHeeded,
        Rule::OnlyFreshPagesAreClaimed,
        Rule::FirstClaimsCount,
        Rule::RefetchesAreAwaited,
        Rule::EvictedCopiesAreFlushed,
        Rule::FreedTablesAreMarked,
        Rule::PendingWorkIsTold,
        Rule::PutsKeepTheirOrder,
        Rule::LaidOpenQueuesAreUsed,
        Rule::PublishedTokensAreTakenOnce,
        Rule::NothingClosesAfterArrival,
        Rule::NoticesKeepTheirLog,
        Rule::BothLogsAreTold,
        Rule::KnowledgeIsOfOneLog,
        Rule::LogsAreMergedApart,
        Rule::PostersAreUnited,
        Rule::KeptCopiesAreRenewedFirst,
        Rule::PushedPagesMeetNeeds,
        Rule::PushesAreForOneBarrier,
        Rule::NoticesEndPushedPages,
        Rule::PushedPagesAreShared,
        Rule::CarriedPagesHaveAllThatIsKnown,
        Rule::CarriedPagesHaveOwnBytes,
        Rule::CarriedCopiesAreReleased,
        Rule::HomesCarryWhatIsApplied,
        Rule::DiffsFollowWhatTheyNeed,
        Rule::UntrackingScansAfterUnmap,
        Rule::QuietTablesAreLookedAtOnceMore,
        Rule::AllowedTablesAreListedFirst,
        Rule::TwinsBeforeStores,
        Rule::LeftNotesCount,
        Rule::ComparedPagesGoOutAsTold,
        Rule::DiffsEndComparisons,
        Rule::LoneThreadsMapEarly,
        Rule::UnwantedPagesAreTakenBack,
        Rule::PremappedPagesAreTracked,
        Rule::AtomicsAreTold,
        Rule::AtomicsEndCopies,
        Rule::LazyAcquiresCatchUp,
        Rule::NarrowTokensAreMarked,
        Rule::NotesOutliveMappings,
        Rule::PostsTell,
        Rule::GivesTell,
        Rule::SignalsTell,
        Rule::SubsetBarriersCarryNotices,
        Rule::ReadersTell,
        Rule::GivenThingsAreToldOf,
        Rule::ManagersHear,
        Rule::SaidIsKept,
        Rule::ReductionsTell,
    ];

    /// The rules for pages under `msi`, some of which are those for explicit objects.
    pub const SINGLE: [Rule; 21] = [
        Rule::RevokeWaitsForStores,
        Rule::RevokeBeforeCopy,
        Rule::InvalidationVoidsFetch,
        Rule::ForwardWaitsForGrant,
        Rule::GrantAfterAllInvalidations,
        Rule::HomeIsFirstComeFirstServed,
        Rule::LateDataIsDropped,
        Rule::LeavingUnitsAreNotUsed,
        Rule::LeavingUnitsStillServe,
        Rule::OnlyHoldersGiveBack,
        Rule::RevokeBeforeGivingBack,
        Rule::BytesBeforePermission,
        Rule::FetchesAreJoined,
        Rule::VoidPagesAreNotMapped,
        Rule::GrantedPagesAreHeld,
        Rule::SpanningAccessesHoldBoth,
        Rule::HoldsAreShort,
        Rule::HoldsGrow,
        Rule::ListedHoldsAreLookedAtAgain,
        Rule::AheadIsForNobody,
        Rule::AtMostOnce,
    ];

    /// The rules for pages whose diffs stay with their writers.
    pub const KEPT_DIFFS: [Rule; 15] = [
        Rule::NewerBytesStay,
        Rule::DiffsAreMadeAtClose,
        Rule::PagesWaitForAllDiffs,
        Rule::NoticesVoidAsks,
        Rule::PatchesReachTheTwin,
        Rule::OwnBytesFirst,
        Rule::DuplicatesPatchOnce,
        Rule::BasesBringTheirStamps,
        Rule::BasesAreReleased,
        Rule::StampsFollowWhatIsTold,
        Rule::EveryDiffHasItsStamp,
        Rule::ManagersAreComplete,
        Rule::DiffsOutliveReaders,
        Rule::FreesBringTheirStamp,
        Rule::ReusedMemoryIsWritten,
    ];

    /// The rules for sets of nodes that are asked for diffs, and told of them.
    pub const MULTICAST: [Rule; 12] = [
        Rule::SilentOnlyIfTold,
        Rule::RepairAsksWriters,
        Rule::ToldDiffsLeaveNoGap,
        Rule::LeaversServeUntilHeard,
        Rule::CarriedDiffsLeaveNoGap,
        Rule::CarriedDiffsAreReleased,
        Rule::ClocksFollowReleases,
        Rule::RegionsBeginAnew,
        Rule::ManagersHaveCopies,
        Rule::ManagersStayAsDiffsAreDropped,
        Rule::BasesAreNotWhole,
        Rule::IncompleteBasesAskWriters,
    ];

    /// The rules for explicit objects, synchronisation and the link, for tests that take them one by one.
    pub const ALL: [Rule; 20] = [
        Rule::RevokeWaitsForStores,
        Rule::RevokeBeforeCopy,
        Rule::InvalidationVoidsFetch,
        Rule::JoinersDoNotUseVoidData,
        Rule::ForwardWaitsForGrant,
        Rule::GrantAfterAllInvalidations,
        Rule::HomeIsFirstComeFirstServed,
        Rule::LateDataIsDropped,
        Rule::PinnedUnitsStay,
        Rule::LeavingUnitsAreNotUsed,
        Rule::LeavingUnitsStillServe,
        Rule::OnlyHoldersGiveBack,
        Rule::AtMostOnce,
        Rule::FragmentsAllIn,
        Rule::RepliesAreStored,
        Rule::TokenLeavesOnlyWhenFree,
        Rule::BarrierWaitsForAll,
        Rule::WaiterRegistersBeforeRelease,
        Rule::WaitersAreHeardOf,
        Rule::WriterWaitsForReaders,
    ];

    /// The rules by which requests for locks are deferred.
    pub const LOCK_SCHEDULE: [Rule; 6] = [
        Rule::DeferralsAreBounded,
        Rule::IdleNodesDeferNothing,
        Rule::WaitingThreadsEndDeferrals,
        Rule::OpenedBarriersEndDeferrals,
        Rule::ClosesEndDeferrals,
        Rule::DeferredMessagesRunOnce,
    ];

    /// The rules of one-sided locks.
    pub const ONE_SIDED_LOCKS: [Rule; 7] = [
        Rule::HeldLocksAreNotTaken,
        Rule::BypassesEnd,
        Rule::SleepersSaySo,
        Rule::NextMaySleep,
        Rule::SleepersSeeWhoIsNext,
        Rule::ReleasesKeepTheQueue,
        Rule::NamesStay,
    ];

    /// The rules of arrivals that are words.
    pub const ARRIVALS: [Rule; 6] = [
        Rule::ArrivalsAreStoredFirst,
        Rule::ArrivalsAreVisibleFirst,
        Rule::WordsSayTheCall,
        Rule::WordsKeepThePreviousCall,
        Rule::OtherCallsWake,
        Rule::SleepersCountThemselves,
    ];

    /// The rules of the engine `direct`.
    pub const DIRECT: [Rule; 18] = [
        Rule::PrintedAlgorithmTwo,
        Rule::RemoteTagBeforeRead,
        Rule::QuiesceBeforeRead,
        Rule::MagicFlushedBeforeStore,
        Rule::MagicFlushedBeforeRelease,
        Rule::DataBeforePresence,
        Rule::EverySharerGetsMagic,
        Rule::HomeCountsAsHolder,
        Rule::BusyEntriesAreNotUsed,
        Rule::HazardLoweredBeforeWaiting,
        Rule::HazardsRecheckedAfterMiss,
        Rule::MirrorsRevoked,
        Rule::FillBeforeMap,
        Rule::GenuineMagicIsAsked,
        Rule::SpinnersHearOfLoss,
        Rule::GroupsWaitForNoEntry,
        Rule::GivenUpEntriesAreUnlocked,
        Rule::EveryMemberQuiesces,
    ];

    /// Whether the rule is in force.
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    pub fn on(self) -> bool {
        true
    }

    /// Whether the rule is in force in this thread.
    #[cfg(feature = "mutants")]
    pub fn on(self) -> bool {
        OFF.with(|off| off.get() != Some(self))
    }
}

#[cfg(feature = "mutants")]
thread_local! {
    static OFF: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
}

/// Runs `test` in this thread with `rule` switched off.
#[cfg(feature = "mutants")]
pub fn without<R>(rule: Rule, test: impl FnOnce() -> R) -> R {
    OFF.with(|off| off.set(Some(rule)));
    let result = test();
    OFF.with(|off| off.set(None));
    result
}
