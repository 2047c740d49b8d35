//! Regions: allocations of the shared heap, as all nodes know them.
//!
//! The node that allocates tells all others before anybody has the address; what all allocate together, all know.

use super::page_table::FirstTouch;
use super::{PageEngine, PageNo, UNIT_PAGES_MAX};
use crate::coherence::direct::UNIT_BYTES;
use crate::ids::{NODES_MAX, NodeId};
use crate::wire::bytes::{Put, Reader, WireError};
use std::ops::Range;
use std::sync::Arc;

/// Pages of a grain: lines memory is given out by whole grains, each with one home. The entries of its lines are one
/// page.
pub const GRAIN_PAGES: u32 = 32;

/// What travels as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unit {
    /// So many pages, a power of two.
    Pages(u32),
    /// So many bytes of lines memory, one of [`UNIT_BYTES`].
    Bytes(u32),
}

impl Unit {
    /// A unit of so many bytes, if there is one.
    pub fn of_bytes(bytes: usize) -> Option<Unit> {
        UNIT_BYTES.contains(&bytes).then_some(Unit::Bytes(bytes as u32))
    }

    /// Pages that have one home: those of the unit, or of a grain.
    pub fn pages(self) -> u32 {
        match self {
            Unit::Pages(pages) => pages,
            Unit::Bytes(_) => GRAIN_PAGES,
        }
    }
}

/// The parts of the shared heap, by how accesses to them are noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Pages whose writes may be found afterwards.
    Tracked,
    /// Pages whose writes need permission first.
    Guarded,
    /// Memory whose accesses the program checks itself.
    Lines,
    /// Pages of which there is one copy, which all nodes map.
    OneCopy,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 4] = [Part::Tracked, Part::Guarded, Part::Lines, Part::OneCopy];

    /// The part in which a region under this engine lies, with units of this kind.
    pub fn of(engine: PageEngine, unit: Unit) -> Part {
        match unit {
            Unit::Bytes(_) => Part::Lines,
            Unit::Pages(_) if engine.has_several_writers() => Part::Tracked,
            Unit::Pages(_) if engine.has_one_copy() => Part::OneCopy,
            Unit::Pages(_) => Part::Guarded,
        }
    }
}

/// Where the homes of a region's units are. In lines memory, the homes of its grains.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Homes {
    /// One run of consecutive units for each node.
    Block,
    /// So many pages to each node in turn.
    Cyclic(u32),
    /// All at one node.
    On(NodeId),
    /// At the node that touches a unit first. In lines memory: the nodes in turn.
    FirstTouch,
    /// All at one node at first, and from there as [`Homes::Automatic`].
    StartingOn(NodeId),
    /// At the node that touches a unit first, as far as that has room; else as [`Homes::Block`]. A unit that one node
    /// alone writes migrates to it at the next barrier. In lines memory: the nodes in turn.
    Automatic,
    /// As [`Homes::Automatic`]; but before a program's workers begin, whatever is touched has its home as under
    /// [`Homes::Block`].
    Claimed,
    /// Dealt out to the nodes in turn, in runs of given lengths.
    Dealt(Dealt),
}

impl Homes {
    /// Whether a unit that one node alone writes migrates to it.
    pub fn migrate(&self) -> bool {
        matches!(self, Homes::Automatic | Homes::StartingOn(_) | Homes::Claimed)
    }

    /// Whether untouched units belong to whoever touches them first.
    pub fn first_touch(&self) -> FirstTouch {
        match self {
            Homes::FirstTouch => FirstTouch::Always,
            Homes::Automatic | Homes::Claimed => FirstTouch::Late,
            _ => FirstTouch::Never,
        }
    }
}

/// Runs of pages, dealt out to the nodes in turn (JIAJIA 2.1, section 4.3, `jia_alloc3`; its successor's `jia_alloc4`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Dealt {
    /// Lengths of runs, in pages, not all zero (a run of none passes its node over); behind the last comes the first
    /// again.
    runs: Arc<[u32]>,
    /// The node with the first run.
    start: NodeId,
    /// Whether a length holds for a round, which ends with the last node, and not for one run.
    by_round: bool,
}

/// Most lengths of runs.
pub const RUN_LENGTHS_MAX: usize = 4096;

impl Dealt {
    /// Each run with a length of its own, the first one to `start`.
    pub fn runs(lengths: &[u32], start: NodeId) -> Option<Dealt> {
        let fits = !lengths.is_empty() && lengths.len() <= RUN_LENGTHS_MAX && lengths.iter().any(|length| *length > 0);
        fits.then(|| Dealt { runs: lengths.into(), start, by_round: false })
    }

    /// Each round with a length of its own for all runs in it; the first begins at `start`.
    pub fn rounds(lengths: &[u32], start: NodeId) -> Option<Dealt> {
        Dealt::runs(lengths, start).map(|dealt| Dealt { by_round: true, ..dealt })
    }

    /// The node with page `at` of the region.
    fn node_of(&self, at: u32, nodes: usize) -> NodeId {
        let start = self.start.index() % nodes;
        let each = if self.by_round { nodes as u64 } else { 1 };
        // A first round that begins late is a whole one whose beginning is not ours.
        let skipped = if self.by_round { start as u64 * u64::from(self.runs[0]) } else { 0 };
        let period: u64 = self.runs.iter().map(|run| u64::from(*run) * each).sum();
        let at = u64::from(at) + skipped;
        let (mut run, mut left) = (at / period * self.runs.len() as u64 * each, at % period);
        for length in self.runs.iter().map(|length| u64::from(*length)) {
            if left < length * each {
                run += left / length;
                break;
            }
            left -= length * each;
            run += each;
        }
        let first = if self.by_round { 0 } else { start as u64 };
        NodeId(((first + run) % nodes as u64) as u16)
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.put_u16(self.start.0);
        out.put_u8(u8::from(self.by_round));
        self.runs.iter().for_each(|length| out.put_u32(*length));
    }

    fn parse(r: &mut Reader<'_>, lengths: usize) -> Result<Dealt, WireError> {
        const WRONG: WireError = WireError::BadValue("runs");
        if lengths > RUN_LENGTHS_MAX {
            return Err(WRONG);
        }
        let (start, by_round) = (node(r.u16()?)?, r.u8()?);
        let runs: Vec<u32> = (0..lengths).map(|_| r.u32()).collect::<Result<_, _>>()?;
        let dealt = if by_round == 0 { Dealt::runs(&runs, start) } else { Dealt::rounds(&runs, start) };
        dealt.filter(|_| by_round < 2).ok_or(WRONG)
    }
}

/// A node's number as it came over the wire.
fn node(number: u16) -> Result<NodeId, WireError> {
    if usize::from(number) < NODES_MAX { Ok(NodeId(number)) } else { Err(WireError::BadValue("node")) }
}

/// A region, as it is told to other nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its first page.
    pub first: PageNo,
    /// How many pages, whole units.
    pub pages: u32,
    /// Bytes that the program asked for.
    pub bytes: u64,
    /// What travels as a whole.
    pub unit: Unit,
    /// What keeps copies coherent.
    pub engine: PageEngine,
    /// Where homes are.
    pub homes: Homes,
    /// The node that allocated it, and takes it back; `None` when all did together.
    pub owner: Option<NodeId>,
    /// Whether its owner hands it out in blocks, whose contents have nothing to do with one another.
    pub cut_up: bool,
    /// Its name in reports, at most 64 bytes.
    pub label: String,
}

/// In a message a unit of bytes is told from one of pages by this bit.
const IN_BYTES: u32 = 1 << 31;

/// Most bytes of a label.
pub const LABEL_MAX: usize = 64;

impl Region {
    /// Pages that have one home.
    pub fn unit_pages(&self) -> u32 {
        self.unit.pages()
    }

    /// The part of the heap in which it lies.
    pub fn part(&self) -> Part {
        Part::of(self.engine, self.unit)
    }

    /// The pages.
    pub fn range(&self) -> Range<PageNo> {
        self.first..self.first + self.pages
    }

    /// The unit around one of its pages.
    pub fn unit_of(&self, page: PageNo) -> Range<PageNo> {
        let start = page - (page - self.first) % self.unit_pages();
        start..start + self.unit_pages()
    }

    /// The home of the unit that begins at `page`, before anything moved.
    pub fn home_of(&self, page: PageNo, nodes: usize) -> NodeId {
        let at = (page - self.first) / self.unit_pages();
        match &self.homes {
            Homes::On(node) | Homes::StartingOn(node) => *node,
            Homes::Dealt(dealt) => dealt.node_of(page - self.first, nodes),
            Homes::Cyclic(pages) => {
                let units = (pages / self.unit_pages()).max(1);
                NodeId(((at / units) as usize % nodes) as u16)
            }
            Homes::FirstTouch | Homes::Automatic | Homes::Claimed if self.part() == Part::Lines => {
                NodeId((at as usize % nodes) as u16)
            }
            Homes::Block | Homes::FirstTouch | Homes::Automatic | Homes::Claimed => {
                let units = u64::from(self.pages / self.unit_pages());
                // The inverse of equal shares, the earlier ones longer by one.
                let (base, more) = (units / nodes as u64, units % nodes as u64);
                let at = u64::from(at);
                let long = more * (base + 1);
                let node = if at < long { at / (base + 1) } else { more + (at - long) / base.max(1) };
                NodeId(node.min(nodes as u64 - 1) as u16)
            }
        }
    }

    /// Appends it.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(self.first);
        out.put_u32(self.pages);
        out.put_u64(self.bytes);
        out.put_u32(match self.unit {
            Unit::Pages(pages) => pages,
            Unit::Bytes(bytes) => IN_BYTES | bytes,
        });
        out.put_u8(self.engine.properties().number);
        let (kind, detail) = match &self.homes {
            Homes::Block => (0, 0),
            Homes::Cyclic(pages) => (1, *pages),
            Homes::On(node) => (2, u32::from(node.0)),
            Homes::FirstTouch => (3, 0),
            Homes::Automatic => (4, 0),
            Homes::StartingOn(node) => (5, u32::from(node.0)),
            Homes::Dealt(dealt) => (6, dealt.runs.len() as u32),
            Homes::Claimed => (7, 0),
        };
        out.put_u8(kind);
        out.put_u32(detail);
        if let Homes::Dealt(dealt) = &self.homes {
            dealt.emit(out);
        }
        out.put_u16(self.owner.map_or(u16::MAX, |n| n.0));
        out.put_u8(u8::from(self.cut_up));
        out.put_bytes(self.label.as_bytes());
    }

    /// Reads one.
    ///
    /// # Errors
    /// When no node would have told of it.
    pub fn parse(body: &[u8]) -> Result<Region, WireError> {
        let mut r = Reader::new(body);
        let (first, pages, bytes, unit) = (r.u32()?, r.u32()?, r.u64()?, r.u32()?);
        let engine = PageEngine::of_number(r.u8()?).ok_or(WireError::BadValue("engine"))?;
        let (kind, detail) = (r.u8()?, r.u32()?);
        let homes = match kind {
            0 => Homes::Block,
            1 => Homes::Cyclic(detail.max(1)),
            2 => Homes::On(node(detail as u16)?),
            3 => Homes::FirstTouch,
            4 => Homes::Automatic,
            5 => Homes::StartingOn(node(detail as u16)?),
            6 => Homes::Dealt(Dealt::parse(&mut r, detail as usize)?),
            7 => Homes::Claimed,
            _ => return Err(WireError::BadValue("placement")),
        };
        let owner = match r.u16()? {
            u16::MAX => None,
            n => Some(node(n)?),
        };
        let cut_up = match r.u8()? {
            0 => false,
            1 => true,
            _ => return Err(WireError::BadValue("blocks")),
        };
        let label = r.rest();
        const UNIT: WireError = WireError::BadValue("unit");
        let unit = match unit & IN_BYTES {
            0 => Unit::Pages(unit),
            _ => Unit::of_bytes((unit & !IN_BYTES) as usize).ok_or(UNIT)?,
        };
        let unit_fits = match unit {
            Unit::Pages(pages) => pages.is_power_of_two() && pages <= UNIT_PAGES_MAX && engine.keeps_pages(),
            Unit::Bytes(_) => engine.keeps_lines() && first.is_multiple_of(GRAIN_PAGES),
        };
        let unit_fits = unit_fits && pages.is_multiple_of(unit.pages());
        if pages == 0 || !unit_fits || first.checked_add(pages).is_none() || label.len() > LABEL_MAX {
            return Err(WireError::BadValue("region"));
        }
        let label = String::from_utf8_lossy(label).into_owned();
        Ok(Region { first, pages, bytes, unit, engine, homes, owner, cut_up, label })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(pages: u32, unit_pages: u32, homes: Homes) -> Region {
        let (owner, label) = (Some(NodeId(3)), "grid".to_string());
        Region {
            first: 512,
            pages,
            bytes: 100,
            unit: Unit::Pages(unit_pages),
            engine: PageEngine::Scope,
            homes,
            owner,
            cut_up: true,
            label,
        }
    }

    #[test]
    fn a_region_survives_the_wire() {
        let (on, from) = (Homes::On(NodeId(5)), Homes::StartingOn(NodeId(6)));
        let runs = Homes::Dealt(Dealt::runs(&[3, 1, 2], NodeId(1)).unwrap());
        let rounds = Homes::Dealt(Dealt::rounds(&[3, 1, 2], NodeId(1)).unwrap());
        let plain = [Homes::Block, Homes::Cyclic(7), on, from, Homes::FirstTouch, Homes::Automatic, Homes::Claimed];
        for homes in plain.into_iter().chain([runs, rounds]) {
            let mut body = Vec::new();
            region(64, 4, homes.clone()).emit(&mut body);
            assert_eq!(Region::parse(&body), Ok(region(64, 4, homes)));
        }
    }

    /// A region of lines memory, of so many grains.
    fn lines(grains: u32, unit: u32, engine: PageEngine, homes: Homes) -> Region {
        Region { unit: Unit::Bytes(unit), engine, ..region(grains * GRAIN_PAGES, 1, homes) }
    }

    #[test]
    fn a_region_of_lines_survives_the_wire_and_one_that_cannot_be_does_not() {
        let parsed = |region: &Region| {
            let mut body = Vec::new();
            region.emit(&mut body);
            Region::parse(&body)
        };
        for (unit, engine) in [(64, PageEngine::Direct), (128, PageEngine::Msi), (2048, PageEngine::Direct)] {
            let fine = lines(3, unit, engine, Homes::Automatic);
            assert_eq!(parsed(&fine), Ok(fine.clone()));
            assert_eq!(fine.part(), Part::Lines);
        }
        let fine = lines(3, 64, PageEngine::Direct, Homes::Block);
        for unit in [0, 1, 32, 63, 96, 4096, 1 << 30] {
            let wrong = Region { unit: Unit::Bytes(unit), ..fine.clone() };
            assert_eq!(parsed(&wrong), Err(WireError::BadValue("unit")), "{unit} bytes");
        }
        let wrong = [
            Region { pages: 33, ..fine.clone() },
            Region { first: 513, ..fine.clone() },
            Region { engine: PageEngine::Hlrc, ..fine.clone() },
            Region { unit: Unit::Pages(1), ..fine.clone() },
        ];
        for wrong in &wrong {
            assert_eq!(parsed(wrong), Err(WireError::BadValue("region")), "{wrong:?}");
        }
    }

    #[test]
    fn a_grain_of_lines_has_one_home() {
        let homes = |homes: Homes| {
            let region = lines(4, 64, PageEngine::Direct, homes);
            let grains = region.range().step_by(GRAIN_PAGES as usize);
            grains.map(|page| region.home_of(page, 3).0).collect::<Vec<_>>()
        };
        assert_eq!(homes(Homes::Automatic), [0, 1, 2, 0], "the nodes in turn");
        assert_eq!(homes(Homes::Claimed), [0, 1, 2, 0]);
        assert_eq!(homes(Homes::Block), [0, 0, 1, 2]);
        assert_eq!(homes(Homes::Cyclic(1)), [0, 1, 2, 0]);
        assert_eq!(homes(Homes::Cyclic(64)), [0, 0, 1, 1]);
        assert_eq!(homes(Homes::On(NodeId(2))), [2; 4]);
    }

    #[test]
    fn runs_of_nonsense_are_refused() {
        assert_eq!(Dealt::runs(&[], NodeId(0)), None);
        assert_eq!(Dealt::rounds(&[0, 0], NodeId(0)), None);
        let mut body = Vec::new();
        region(64, 4, Homes::Dealt(Dealt::runs(&[1, 2], NodeId(0)).unwrap())).emit(&mut body);
        // The number of lengths, behind first, pages, bytes, unit, engine and kind.
        body[22..26].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(Region::parse(&body), Err(WireError::BadValue("runs")));
    }

    #[test]
    fn blocks_are_equal_and_in_order() {
        for (pages, nodes) in [(64, 4), (7, 3), (2, 5), (1, 8), (513, 2)] {
            let region = region(pages, 1, Homes::Block);
            let homes: Vec<u16> = region.range().map(|p| region.home_of(p, nodes).0).collect();
            assert!(homes.is_sorted());
            let count = |n: usize| homes.iter().filter(|h| usize::from(**h) == n).count();
            let (least, most) = (pages as usize / nodes, (pages as usize).div_ceil(nodes));
            assert!((0..nodes).all(|n| (least..=most).contains(&count(n))), "{homes:?}");
        }
    }

    #[test]
    fn cycles_go_round_by_whole_units() {
        let region = region(32, 2, Homes::Cyclic(4));
        let homes: Vec<u16> = (0..16).map(|u| region.home_of(512 + 2 * u, 3).0).collect();
        assert_eq!(homes[..8], [0, 0, 1, 1, 2, 2, 0, 0]);
    }

    /// The homes of pages from 0 on.
    fn dealt(dealt: Option<Dealt>, pages: u32, nodes: usize) -> Vec<u16> {
        let region = region(pages, 1, Homes::Dealt(dealt.unwrap()));
        region.range().map(|page| region.home_of(page, nodes).0).collect()
    }

    #[test]
    fn equal_runs_are_dealt_from_the_start_on() {
        assert_eq!(dealt(Dealt::runs(&[2], NodeId(2)), 9, 3), [2, 2, 0, 0, 1, 1, 2, 2, 0]);
        assert_eq!(dealt(Dealt::runs(&[4], NodeId(1)), 6, 1), [0; 6]);
    }

    #[test]
    fn runs_of_several_lengths_repeat_while_the_nodes_go_on() {
        assert_eq!(dealt(Dealt::runs(&[3, 1], NodeId(0)), 9, 3), [0, 0, 0, 1, 2, 2, 2, 0, 1]);
    }

    #[test]
    fn a_run_of_no_pages_passes_its_node_over() {
        assert_eq!(dealt(Dealt::runs(&[0, 2, 1], NodeId(0)), 6, 3), [1, 1, 2, 1, 1, 2]);
        assert_eq!(dealt(Dealt::runs(&[0, 2, 1], NodeId(0)), 6, 2), [1, 1, 0, 0, 0, 1]);
        assert_eq!(dealt(Dealt::rounds(&[0, 1], NodeId(1)), 5, 3), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn a_round_ends_with_the_last_node_also_the_first_that_begins_late() {
        let homes = dealt(Dealt::rounds(&[2, 1], NodeId(1)), 12, 3);
        assert_eq!(homes, [1, 1, 2, 2, 0, 1, 2, 0, 0, 1, 1, 2]);
    }
}
