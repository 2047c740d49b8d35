//! `refetch-all`: an engine of pages that trusts no copy.
//!
//! It is `hlrc`, and every acquire and every barrier drops all copies of its pages on the node, whether somebody has
//! written them or not. Each page is fetched again at its next access. So it costs what write notices save, and it is
//! the shortest engine that does something of its own. README.md beside this file tells how it was added.

use super::{Properties, SeveralWriters, Writers};
use crate::coherence::pages::Context;
use crate::coherence::pages::page_table::{DiffSink, PageTable};

/// Diffs and notices as under `hlrc`, so a fetch names the diffs that its page must have.
pub(super) const PROPERTIES: Properties = Properties {
    name: "refetch-all",
    number: 255,
    is_listed: false,
    is_for_jobs: true,
    writers: Writers::Several(SeveralWriters {
        is_scoped: false,
        keeps_diffs: false,
        tells_sets: false,
        at_acquire: Some(drop_copies),
    }),
    keeps_pages: true,
    lines: None,
};

/// Ends the copies in this table. What was written to them goes home first.
fn drop_copies(table: &mut PageTable, cx: &mut Context<'_>, flush: &mut dyn DiffSink) {
    let layout = table.layout();
    table.evict(cx, &(layout.first..layout.first + layout.pages), flush);
}
