//! Where the heap lies, its regions, and what is allocated and freed.
//!
//! | file | does |
//! |---|---|
//! | [`address_space`] | the same addresses on every node |
//! | [`heap_layout`] | which addresses each node, and all together, allocate from |
//! | [`table`] | regions and their page tables |
//! | [`alloc`] | allocation |
//! | [`free`] | freeing, on whichever node the memory was allocated |
//! | [`extent_alloc`] | free extents of a part of the heap |
//! | [`small_alloc`] | blocks smaller than a page |
//! | [`packed_alloc`] | small allocations of all nodes, side by side |
//! | [`freed_regions`] | when a freed region is known everywhere |
//! | [`address_reuse`] | when its addresses may be used again |
//! | [`globals`] | the program's global variables as a region |

pub(in crate::shared) mod address_reuse;
pub(crate) mod address_space;
pub(crate) mod alloc;
pub(in crate::shared) mod extent_alloc;
pub(in crate::shared) mod free;
pub(in crate::shared) mod freed_regions;
pub(in crate::shared) mod globals;
pub(in crate::shared) mod heap_layout;
pub(crate) mod history;
pub(crate) mod packed_alloc;
pub(crate) mod small_alloc;
pub(crate) mod table;

use crate::shared::Shared;
use crate::thread::Thread;

/// The heap as one thread of this node allocates from it and frees: the thread asks other nodes, and waits for them.
#[derive(Clone, Copy)]
pub(crate) struct ThreadHeap<'a> {
    thread: &'a Thread,
    shared: &'a Shared,
}

impl<'a> ThreadHeap<'a> {
    /// This node's heap, for one of its threads.
    pub(crate) fn new(thread: &'a Thread, shared: &'a Shared) -> ThreadHeap<'a> {
        ThreadHeap { thread, shared }
    }
}
