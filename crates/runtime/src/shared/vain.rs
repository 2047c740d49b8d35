//! Which stretches of pages were looked at in vain, and for how long.
//!
//! The end of an interval looks at the kernel's notes of all pages that may have been written and matter, by a call for each stretch of them. Most calls find
//! nothing: they are for pages that were in use once. A stretch of which so many looks in a row said nothing that they cost as much as to have it back is
//! laid aside ([`Chunk::lay_aside`](comem_protocol::coherence::pages::chunk::Chunk::lay_aside)). One that comes back is left alone for twice as long the
//! next time.

use comem_protocol::coherence::pages::PageNo;
use std::ops::Range;

/// Stretches that are followed at a time.
const FOLLOWED: usize = 1024;
/// A look costs 1.1 us, a page that comes back 5 to 7.
const LOOKS: u16 = 16;
/// And so many pages a look more, for they come back by ones or by sixteens.
const PAGES_A_LOOK: u32 = 8;
const LOOKS_MAX: u16 = 4096;
/// Longer stretches are left alone.
const PAGES_MAX: u32 = 512;

#[derive(Clone, Copy, Default, Debug)]
struct Stretch {
    first: PageNo,
    end: PageNo,
    /// Looks in a row that found nothing.
    looks: u16,
    /// After so many it is laid aside; 0: nothing is followed here.
    after: u16,
}

/// What the ends of intervals have found where.
#[derive(Debug)]
pub(crate) struct Vain {
    stretches: Box<[Stretch; FOLLOWED]>,
}

impl Default for Vain {
    fn default() -> Vain {
        Vain { stretches: Box::new([Stretch::default(); FOLLOWED]) }
    }
}

impl Vain {
    /// A stretch was looked at; says whether it is time to lay it aside.
    pub(crate) fn looked(&mut self, pages: &Range<PageNo>, found: bool) -> bool {
        let len = pages.end - pages.start;
        if len > PAGES_MAX {
            return false;
        }
        let place = (pages.start.wrapping_mul(0x9e37_79b9) >> 16) as usize % FOLLOWED;
        let this = &mut self.stretches[place];
        if this.after == 0 || this.first != pages.start {
            *this = Stretch { first: pages.start, end: pages.end, looks: 0, after: LOOKS };
        }
        if found || this.end != pages.end {
            (this.end, this.looks) = (pages.end, 0);
            return false;
        }
        this.looks += 1;
        let vain = u32::from(this.looks) >= u32::from(this.after) + len / PAGES_A_LOOK;
        if vain {
            (this.looks, this.after) = (0, (2 * this.after).min(LOOKS_MAX));
        }
        vain
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn looks_until_aside(vain: &mut Vain, pages: &Range<PageNo>) -> usize {
        (1..100_000).find(|_| vain.looked(pages, false)).unwrap()
    }

    #[test]
    fn a_stretch_that_comes_back_is_left_alone_for_twice_as_long() {
        let (mut vain, pages) = (Vain::default(), 7..8);
        assert_eq!(looks_until_aside(&mut vain, &pages), 16);
        assert_eq!(looks_until_aside(&mut vain, &pages), 32);
        assert_eq!(looks_until_aside(&mut vain, &(1_000..1_064)), 24, "more of it would come back");
        for _ in 0..20 {
            looks_until_aside(&mut vain, &pages);
        }
        assert_eq!(looks_until_aside(&mut vain, &pages), usize::from(LOOKS_MAX));
    }

    #[test]
    fn what_was_written_or_has_grown_is_looked_at_from_the_beginning() {
        let mut vain = Vain::default();
        for _ in 0..15 {
            assert!(!vain.looked(&(7..8), false));
        }
        assert!(!vain.looked(&(7..8), true));
        assert!(!(0..15).any(|_| vain.looked(&(7..8), false)));
        assert!(!vain.looked(&(7..9), false), "another stretch");
        assert_eq!(looks_until_aside(&mut vain, &(7..9)), 16);
        assert!(!(0..10_000).any(|_| vain.looked(&(0..513), false)), "long ones stay");
    }
}
