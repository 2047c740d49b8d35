//! A node's Lamport time behind what a release tells.
//!
//! A scoped release tells of some writes alone, and of those alone the stamps. So a node may free memory that others
//! wrote before, and have heard of none of their stamps. What its owner stores there next would have an earlier stamp
//! than what stood there. Therefore a release also says up to which stamp its node has heard, whatever it tells of.
//!
//! The bytes: a mark u32 in the place of a blob's length, and the stamp u64.

use super::{INTERVAL_STAMP_MAX, Stamp};
use crate::coherence::pages::write_notices::blob_bytes;
use crate::wire::bytes::{Put, WireError};

/// Where a blob would begin: none is so long.
pub const CLOCK_MARK: u32 = 0x7fff_fffd;

/// What the mark and the stamp take.
pub const CLOCK_BYTES: usize = 12;

/// Appends the last stamp of which a node has heard.
pub fn put(out: &mut Vec<u8>, stamp: Stamp) {
    out.put_u32(CLOCK_MARK);
    out.put_u64(stamp.min(INTERVAL_STAMP_MAX));
}

/// Up to which stamp whoever told this had heard, if it says so.
///
/// # Errors
/// When no node would have said it.
pub fn heard(payload: &[u8]) -> Result<Option<Stamp>, WireError> {
    let mut at = 0;
    while let Some(head) = payload.get(at..at + 4) {
        let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        if word == CLOCK_MARK {
            let stamp = payload.get(at + 4..).and_then(|rest| rest.first_chunk::<8>()).copied();
            let stamp = stamp.map(u64::from_be_bytes).filter(|stamp| *stamp <= INTERVAL_STAMP_MAX);
            return stamp.map(Some).ok_or(WireError::BadValue("stamp"));
        }
        at = at.saturating_add(4 + blob_bytes(word));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coherence::pages::piggyback::split_payload;
    use crate::coherence::pages::write_notices::{Knowledge, hand_out, unite};

    #[test]
    fn a_time_stands_behind_what_is_told_and_the_later_of_two_stays() {
        let mut payload = vec![0, 0, 0, 2, 9, 9];
        assert_eq!(heard(&payload), Ok(None));
        put(&mut payload, 7);
        assert_eq!(heard(&payload), Ok(Some(7)));
        assert_eq!(split_payload(&payload), (&[0, 0, 0, 2, 9, 9][..], None));
        let mut stored = Vec::new();
        for stamp in [5, 9, 3] {
            let mut said = Vec::new();
            put(&mut said, stamp);
            unite(&said, &mut stored);
        }
        let mut handed = Vec::new();
        hand_out(&stored, &Knowledge::default(), &mut handed);
        assert_eq!(heard(&handed), Ok(Some(9)));
    }

    #[test]
    fn what_no_node_would_say_is_refused() {
        let mut payload = Vec::new();
        put(&mut payload, 7);
        assert!((4..payload.len()).all(|len| heard(&payload[..len]).is_err()), "cut short");
        payload[4..].copy_from_slice(&(INTERVAL_STAMP_MAX + 1).to_be_bytes());
        assert!(heard(&payload).is_err(), "beyond the last stamp");
        payload.clear();
        put(&mut payload, Stamp::MAX);
        assert_eq!(heard(&payload), Ok(Some(INTERVAL_STAMP_MAX)), "this node ends before it comes to that");
    }
}
