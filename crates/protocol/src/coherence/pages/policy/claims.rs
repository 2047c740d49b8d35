//! Whether an untouched page belongs to whoever touches it.
//!
//! Where a program places memory by first touch, each fault claims. Elsewhere a fault claims where the node has room
//! for homes, and may be wrong: another node would have used the page more.

use super::Predictor;
use crate::coherence::pages::page_table::FirstTouch;

/// Says whether a fault claims a unit whose home stands in the layout alone.
#[derive(Clone, Copy, Default, Debug)]
pub struct Claims;

/// A fault on such a unit.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// Whether the node has room, and its switch `homes.first_touch` is on.
    pub may: bool,
}

impl Predictor for Claims {
    /// The placement of the unit's region.
    type Numbers = FirstTouch;
    /// It keeps nothing.
    type Event<'a> = ();
    type Query<'a> = Touch;
    type Prediction = bool;

    fn is_on(&self, placement: &FirstTouch) -> bool {
        *placement != FirstTouch::Never
    }

    fn answer(&mut self, placement: &FirstTouch, touch: Touch) -> bool {
        *placement == FirstTouch::Always || touch.may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_claims_what_is_placed_by_first_touch_and_other_memory_where_there_is_room() {
        let claims = |placement| [false, true].map(|may| Claims.predict(&placement, Touch { may }));
        assert_eq!(claims(FirstTouch::Never), [false, false]);
        assert_eq!(claims(FirstTouch::Late), [false, true]);
        assert_eq!(claims(FirstTouch::Always), [true, true]);
    }
}
