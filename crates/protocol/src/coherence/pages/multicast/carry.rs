//! Diffs that travel with a lock's token.
