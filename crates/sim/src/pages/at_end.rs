//! What nodes hold when a run is over, against what it must be.

use super::check::Judge;
use super::layout::Layout;
use super::memory::PAGE_WORDS;
use super::node::Node;
use comem_protocol::coherence::pages::PageNo;

/// Compares what every home holds, and every copy, with what was written last; every page has one home.
pub(super) fn contents(nodes: &[Node], judge: &Judge, layout: &Layout) -> Option<String> {
    let freed = |page: &PageNo| nodes.iter().any(|n| n.pages.freed.iter().any(|range| range.contains(page)));
    for page in (0..layout.pages()).filter(|page| !freed(page)) {
        let chunk = |n: &Node| n.pages.chunks.iter().find(|c| c.layout().first + c.layout().pages > page).cloned();
        let tables: Vec<_> = nodes.iter().filter_map(|n| chunk(n).map(|c| (n, c))).collect();
        let homes = tables.iter().filter(|(_, c)| c.unit(page).is_home()).count();
        let untouched = (0..PAGE_WORDS).all(|w| judge.last(page as usize * PAGE_WORDS + w) == 0);
        let wanted = usize::from(!layout.engine_of(page).keeps_diffs());
        if homes != wanted && !(homes == 0 && untouched) {
            return Some(format!("page {page} has {homes} homes"));
        }
        for (node, _) in tables.iter().filter(|(_, c)| c.unit(page).is_here()) {
            for word in 0..PAGE_WORDS {
                let (is, last) = (node.pages.memory.word(page, word), judge.last(page as usize * PAGE_WORDS + word));
                if !judge.may_end_as(page as usize * PAGE_WORDS + word, is) {
                    let what = format!("holds {is} in word {word} of page {page} at the end; {last} was written last");
                    return Some(format!("{} {what}", node.pages.me));
                }
            }
        }
    }
    None
}

/// All nodes agree on who has copies, and who manages them, where diffs are told to sets.
pub(super) fn copysets(nodes: &[Node], layout: &Layout) -> Option<String> {
    let freed = |page: &PageNo| nodes.iter().any(|n| n.pages.freed.iter().any(|range| range.contains(page)));
    for page in (0..layout.pages()).filter(|page| !freed(page) && layout.engine_of(*page).tells_sets()) {
        let table = |n: &Node| n.pages.chunks.iter().find(|c| c.layout().first + c.layout().pages > page).cloned();
        let members: Vec<_> = nodes.iter().filter_map(table).map(|table| table.members(page)).collect();
        if let Some(pair) = members.windows(2).find(|pair| pair[0] != pair[1]) {
            return Some(format!("nodes disagree on who has page {page}: {:?} and {:?}", pair[0], pair[1]));
        }
        let placed: Vec<_> = nodes.iter().filter_map(table).map(|table| table.placement(page)).collect();
        if let Some(pair) = placed.windows(2).find(|pair| pair[0] != pair[1]) {
            return Some(format!("nodes disagree on where page {page} is: {:?} and {:?}", pair[0], pair[1]));
        }
    }
    None
}
