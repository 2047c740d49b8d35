//! The ordering rules of coherence, each of them a way to lose an update when it is left out.
//!
//! In an ordinary build every rule is in force and the question costs nothing. With the feature `mutants` a
//! test may switch one rule off in its own thread and show that the simulator then finds a seed that
//! fails: a rule that nothing misses is a rule that nothing checks.

/// The rules that apply to explicit objects, synchronisation and the link.
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
    /// No packet is processed twice.
    AtMostOnce,
    /// A message is complete only when all its fragments are in.
    FragmentsAllIn,
    /// A repeated request is answered again from the stored reply, never executed again.
    RepliesAreStored,
    /// A lock's token leaves its node only while no thread of the node holds the lock.
    TokenLeavesOnlyWhenFree,
    /// A barrier opens only when every node has arrived.
    BarrierWaitsForAll,
}

impl Rule {
    /// Every rule, for tests that take them one by one.
    pub const ALL: [Rule; 14] = [
        Rule::RevokeWaitsForStores,
        Rule::RevokeBeforeCopy,
        Rule::InvalidationVoidsFetch,
        Rule::JoinersDoNotUseVoidData,
        Rule::ForwardWaitsForGrant,
        Rule::GrantAfterAllInvalidations,
        Rule::HomeIsFirstComeFirstServed,
        Rule::LateDataIsDropped,
        Rule::PinnedUnitsStay,
        Rule::AtMostOnce,
        Rule::FragmentsAllIn,
        Rule::RepliesAreStored,
        Rule::TokenLeavesOnlyWhenFree,
        Rule::BarrierWaitsForAll,
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
