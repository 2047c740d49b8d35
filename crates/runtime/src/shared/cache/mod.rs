//! The bound of a node's cache, and what it may hold.
//!
//! | file | does |
//! |---|---|
//! | [`page_cache`] | which copies are given up |
//! | [`home_quota`] | how many homes may come to this node |
//! | [`map_count_limit`] | how many mappings the kernel allows |

pub(in crate::shared) mod home_quota;
pub(in crate::shared) mod map_count_limit;
pub(in crate::shared) mod page_cache;
