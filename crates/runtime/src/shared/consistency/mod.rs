//! What releases, acquires and barriers do to pages, and what other nodes ask.
//!
//! | file | does |
//! |---|---|
//! | [`effects`] | what the page logic in `protocol` acts on |
//! | [`release`] | steps of page tables; the threads' side of releases and acquires |
//! | [`payload`] | what a release carries, and an acquire takes |
//! | [`push`] | pages sent to those that would ask for them |
//! | [`serve`] | what other nodes ask |
//! | [`false_sharing`] | who wrote where to pages whose home is here |
//! | [`kept_diffs`] | pages under `lrc` and `multicast`: diffs stay with their writers |
//! | [`sets`] | pages under `multicast`: diffs are asked of sets of nodes, and told to sets |
//! | [`msi_pages`] | pages under `msi`: one writer |

pub(in crate::shared) mod effects;
pub(crate) mod false_sharing;
pub(crate) mod kept_diffs;
pub(crate) mod msi_pages;
pub(crate) mod payload;
pub(in crate::shared) mod push;
pub(crate) mod release;
pub(crate) mod serve;
pub(crate) mod sets;
