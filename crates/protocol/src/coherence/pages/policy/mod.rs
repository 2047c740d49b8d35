//! What a node presumes of the accesses to come, apart from the mechanism that acts on it.
//!
//! A *predictor* observes what happens, and is asked before a step that can be taken in several ways. All of these are
//! right: what it says decides on time, never on what a program reads. So the simulator switches each off and on, and
//! draws its numbers.
//!
//! | predictor | is asked | switch |
//! |---|---|---|
//! | [`SyncPhase`](sync_phase::SyncPhase) | do barriers alone order writes? | `notices.sync_phase` |
//! | [`Reuse`](reuse::Reuse) | is a copy that ended used again soon? | `pages.reuse` |
//! | [`StridePrefetcher`](stride_prefetch::StridePrefetcher) | what does a thread touch next? | `prefetch.stride` |
//! | [`LockWorkingSets`](lock_working_set::LockWorkingSets) | what is touched under a lock? | `working_set.follow` |
//! | [`WritePrefetch`](write_prefetch::WritePrefetch) | is all written again? | `pages.write_prefetch` |
//! | [`ExtendWrites`](extent::ExtendWrites) | how many units does a write want? | `pages.extend_writes` |
//! | [`MapAhead`](extent::MapAhead) | how many home units does a fault map? | `pages.map_ahead` |
//! | [`OfferAhead`](extent::OfferAhead) | how many units are offered beside those asked for? | `pages.offer_ahead` |
//! | [`WritePredictor`](write_predictor::WritePredictor) | is a page written ever again? | `pages.write_predictor` |
//! | [`PushPredictor`](push_predictor::PushPredictor) | who reads what this home writes? | `pages.push` |
//! | [`BatchProtect`](batch_protect::BatchProtect) | are a page's neighbours asked for next? | `pages.batch_protect` |
//! | [`ScanCost`](scan_cost::ScanCost) | do looks at an idle stretch cost more than its return? | `cache.scan_cost` |
//! | [`Claims`](claims::Claims) | does an untouched page belong to whoever touches it? | a region's placement |
//! | [`Keepers`](keepers::Keepers) | may a page's only writer become its home? | `homes.keeper` |
//!
//! Those of locks stand in [`lock_schedule`](crate::lock_schedule): [`Retention`], [`Batching`], [`PublishedTokens`].
//!
//! A predictor keeps its own data. What it may know of a page table comes with the event or the query, so each is
//! tested by itself. Other switches choose between two ways of doing the same, and predict nothing: `pages.premap`,
//! `pages.update_in_place`, `pages.leave_writable`, `pages.assume_dirty`, `pages.home_twin`, `pages.untrack_idle`.
//!
//! [`Retention`]: crate::lock_schedule::retention::Retention
//! [`Batching`]: crate::lock_schedule::batching::Batching
//! [`PublishedTokens`]: crate::lock_schedule::published_tokens::PublishedTokens

pub mod batch_protect;
pub mod claims;
pub mod extent;
pub mod keepers;
pub mod lock_working_set;
pub mod push_predictor;
pub mod reuse;
pub mod scan_cost;
mod small_lists;
pub mod stride_prefetch;
pub mod sync_phase;
pub mod write_predictor;
pub mod write_prefetch;

/// Presumes something of the accesses to come, from those that were.
///
/// Whoever acts calls [`observe`](Predictor::observe) and [`predict`](Predictor::predict). Whoever predicts writes
/// [`learn`](Predictor::learn) and [`answer`](Predictor::answer), which are not called while the switch is off.
pub trait Predictor {
    /// The numbers by which it decides; `()` if it keeps a copy of its own.
    type Numbers: ?Sized;
    /// What it learns from.
    type Event<'a>;
    /// What it is asked.
    type Query<'a>;
    /// What it says. The default is what the mechanism does without it.
    type Prediction: Default;

    /// Whether its switch is on.
    fn is_on(&self, numbers: &Self::Numbers) -> bool;

    /// What the mechanism does without it, where that depends on the question.
    fn otherwise(&self, _numbers: &Self::Numbers, _query: Self::Query<'_>) -> Self::Prediction {
        Self::Prediction::default()
    }

    /// Learns from an event; nothing, if it keeps nothing.
    fn learn(&mut self, _numbers: &Self::Numbers, _event: Self::Event<'_>) {}

    /// Answers a question. It may take note of having been asked.
    fn answer(&mut self, numbers: &Self::Numbers, query: Self::Query<'_>) -> Self::Prediction;

    /// Something has happened.
    fn observe(&mut self, numbers: &Self::Numbers, event: Self::Event<'_>) {
        if self.is_on(numbers) {
            self.learn(numbers, event);
        }
    }

    /// What is presumed.
    fn predict(&mut self, numbers: &Self::Numbers, query: Self::Query<'_>) -> Self::Prediction {
        if self.is_on(numbers) { self.answer(numbers, query) } else { self.otherwise(numbers, query) }
    }
}

#[cfg(test)]
mod tests;
