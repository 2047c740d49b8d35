//! Other nodes' memory, without those nodes' part.
//!
//! | file | does |
//! |---|---|
//! | [`get`] | pages copied out of their home's memory |
//! | [`put`] | diffs stored into their home's memory |
//! | [`atomic`] | atomic operations on words of the heap |

pub(crate) mod atomic;
pub(crate) mod get;
pub(in crate::shared) mod put;
