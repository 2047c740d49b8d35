//! What a language's runtime calls locks and their kin, which here have numbers: sentences give the name where one is
//! known.

use crate::mutex::Mutex;
use std::collections::BTreeMap;
use std::fmt;

/// Names that are remembered; those that come later appear as numbers.
const NAMES_MAX: usize = 1 << 16;

static NAMES: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());

/// From now on sentences call the lock, or what it is, of this number by this name, as it is to be shown.
pub fn remember(number: u64, name: &str) {
    let mut names = NAMES.lock();
    if names.len() < NAMES_MAX {
        names.entry(number).or_insert_with(|| name.to_string());
    }
}

/// A lock or one of its kin in a sentence.
pub(crate) struct Named(pub u64);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.lock().get(&self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_name_is_called_by_it() {
        remember(u64::MAX, "'rows'");
        assert_eq!(format!("{} and {}", Named(u64::MAX), Named(u64::MAX - 1)), "'rows' and 0xfffffffffffffffe");
    }
}
