//! Atomic operations on shared words: one request to the word's home and one reply, without write notices.
//!
//! Under `hlrc` and `scope` a word has one place where its value is decided: the memory of its page's home. Each
//! operation is carried out there, in the order of arrival, with the processor's own atomic instructions, since the
//! home's threads may use the word meanwhile. Other nodes' copies of the page do not change. So that plain accesses
//! stay right where synchronisation orders them:
//!
//! - An operation names the diffs that the home must have applied ([`RequiredDiff`]), as a fetch does. Earlier plain
//!   stores, its own node's among them, come before it.
//! - The node that asked ends its own copy of the page: what it reads plainly afterwards has the operation in it.
//! - Its next interval names the page ([`PageTable::atomic_done`](super::page_table::PageTable::atomic_done)), once,
//!   however many operations there were. Whoever acquires behind that release fetches the page again. An empty diff
//!   goes to the home with it, whose serial tells copies that left the home before from those that left later.
//!
//! Under `msi`, at the home itself and in jobs of one node the processor's instructions do the same on ordinary memory.

use super::wire::{RequiredDiff, emit_needs, take_needs};
use super::{PAGE_BYTES, PageNo};
use crate::wire::bytes::{Put, Reader, WireError};

/// What a word is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A signed number of 32 bits.
    I32 = 0,
    /// An unsigned number of 32 bits.
    U32 = 1,
    /// A signed number of 64 bits.
    I64 = 2,
    /// An unsigned number of 64 bits.
    U64 = 3,
    /// A floating-point number of 64 bits.
    F64 = 4,
}

impl Kind {
    /// All of them, by their numbers.
    pub const ALL: [Kind; 5] = [Kind::I32, Kind::U32, Kind::I64, Kind::U64, Kind::F64];

    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }

    /// How many bytes such a word has; its address is a multiple of that.
    pub fn bytes(self) -> usize {
        match self {
            Kind::I32 | Kind::U32 => 4,
            Kind::I64 | Kind::U64 | Kind::F64 => 8,
        }
    }
}

/// What is done to a word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Op {
    /// Nothing: the value is read.
    Load = 0,
    /// The operand takes its place.
    Exchange = 1,
    /// The operand is added; integers wrap.
    Add = 2,
    /// Bit by bit; of floating-point numbers too, as the bits stand.
    And = 3,
    /// Bit by bit.
    Or = 4,
    /// Bit by bit.
    Xor = 5,
    /// The lesser of both stays; a NaN if one of them is.
    Min = 6,
    /// The greater of both stays; a NaN if one of them is.
    Max = 7,
    /// The operand takes its place if the word holds the expected bits.
    CompareExchange = 8,
    /// The operand is subtracted; integers wrap.
    Sub = 9,
}

impl Op {
    /// All of them, by their numbers.
    pub const ALL: [Op; 10] =
        [Op::Load, Op::Exchange, Op::Add, Op::And, Op::Or, Op::Xor, Op::Min, Op::Max, Op::CompareExchange, Op::Sub];

    /// The operation with this number.
    pub fn from_number(number: u8) -> Option<Op> {
        Op::ALL.get(usize::from(number)).copied()
    }
}

/// An operation on a word. Values are bits: of 32-bit words the lower ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Atomic {
    /// What the word is.
    pub kind: Kind,
    /// What is done.
    pub op: Op,
    /// With what.
    pub operand: u64,
    /// What the word has to hold, for [`Op::CompareExchange`].
    pub expected: u64,
}

/// The lesser or greater of two; of floating-point numbers a NaN if one is.
fn choose<T: PartialOrd + Copy>(old: T, operand: T, less: bool) -> T {
    let unordered = old.partial_cmp(&old).is_none();
    if unordered || (if less { old <= operand } else { old >= operand }) { old } else { operand }
}

impl Atomic {
    /// Whether it may change the word.
    pub fn writes(&self) -> bool {
        self.op != Op::Load
    }

    /// What the word holds afterwards, where it held `old`.
    pub fn apply(&self, old: u64) -> u64 {
        let Atomic { kind, op, operand, expected } = *self;
        let least = op == Op::Min;
        match (op, kind) {
            (Op::Load, _) => old,
            (Op::Exchange, _) => operand,
            (Op::CompareExchange, _) if self.same(old, expected) => operand,
            (Op::CompareExchange, _) => old,
            (Op::And, _) => old & operand,
            (Op::Or, _) => old | operand,
            (Op::Xor, _) => old ^ operand,
            (Op::Add, Kind::F64) => (f64::from_bits(old) + f64::from_bits(operand)).to_bits(),
            (Op::Sub, Kind::F64) => (f64::from_bits(old) - f64::from_bits(operand)).to_bits(),
            (Op::Add, _) => old.wrapping_add(operand),
            (Op::Sub, _) => old.wrapping_sub(operand),
            (Op::Min | Op::Max, Kind::F64) => choose(f64::from_bits(old), f64::from_bits(operand), least).to_bits(),
            (Op::Min | Op::Max, Kind::I64) => choose(old.cast_signed(), operand.cast_signed(), least).cast_unsigned(),
            (Op::Min | Op::Max, Kind::I32) => {
                let (old, operand) = ((old as u32).cast_signed(), (operand as u32).cast_signed());
                choose(old, operand, least).cast_unsigned().into()
            }
            (Op::Min | Op::Max, Kind::U32) => choose(old as u32, operand as u32, least).into(),
            (Op::Min | Op::Max, Kind::U64) => choose(old, operand, least),
        }
    }

    /// Whether two words of this kind are the same.
    fn same(&self, one: u64, other: u64) -> bool {
        if self.kind.bytes() == 4 { one as u32 == other as u32 } else { one == other }
    }
}

/// An operation on a word whose home is another node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The asker's epoch.
    pub epoch: u32,
    /// The page.
    pub page: PageNo,
    /// Where in it the word begins: a multiple of its size.
    pub offset: u16,
    /// What is done.
    pub atomic: Atomic,
    /// What the home must have applied.
    pub needs: Vec<RequiredDiff>,
}

impl Request {
    /// Appends the body: epoch u32, page u32, offset u16, kind and operation u8, operand and expected u64, needs.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(self.epoch);
        out.put_u32(self.page);
        out.put_u16(self.offset);
        out.put_u8(self.atomic.kind as u8);
        out.put_u8(self.atomic.op as u8);
        out.put_u64(self.atomic.operand);
        out.put_u64(self.atomic.expected);
        emit_needs(&self.needs, out);
    }

    /// Reads a body.
    ///
    /// # Errors
    /// When no node would have sent it: of unknown numbers, or of a word that is not aligned within its page.
    pub fn parse(body: &[u8]) -> Result<Request, WireError> {
        let mut r = Reader::new(body);
        let (epoch, page, offset) = (r.u32()?, r.u32()?, r.u16()?);
        let kind = Kind::from_number(r.u8()?).ok_or(WireError::BadValue("kind of word"))?;
        let op = Op::from_number(r.u8()?).ok_or(WireError::BadValue("atomic operation"))?;
        let atomic = Atomic { kind, op, operand: r.u64()?, expected: r.u64()? };
        let needs = take_needs(&mut r)?;
        r.finish()?;
        let (start, bytes) = (usize::from(offset), kind.bytes());
        if !start.is_multiple_of(bytes) || start + bytes > PAGE_BYTES {
            return Err(WireError::BadValue("place of a word"));
        }
        Ok(Request { epoch, page, offset, atomic, needs })
    }
}

/// What a home answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is done; the word held this before.
    Done(u64),
    /// Nothing was done: this node is not the page's home. Whoever fetches the page learns who is.
    Elsewhere,
    /// Nothing was done: the memory was freed.
    Freed,
}

impl Answer {
    /// Appends the body.
    pub fn emit(self, out: &mut Vec<u8>) {
        let (code, old) = match self {
            Answer::Done(old) => (0, old),
            Answer::Elsewhere => (1, 0),
            Answer::Freed => (2, 0),
        };
        out.put_u8(code);
        out.put_u64(old);
    }

    /// Reads a body.
    ///
    /// # Errors
    /// When no node would have sent it.
    pub fn parse(body: &[u8]) -> Result<Answer, WireError> {
        let mut r = Reader::new(body);
        let (code, old) = (r.u8()?, r.u64()?);
        r.finish()?;
        match code {
            0 => Ok(Answer::Done(old)),
            1 => Ok(Answer::Elsewhere),
            2 => Ok(Answer::Freed),
            _ => Err(WireError::BadValue("answer to an atomic operation")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;

    fn applied(kind: Kind, op: Op, old: u64, operand: u64) -> u64 {
        Atomic { kind, op, operand, expected: 0 }.apply(old)
    }

    #[test]
    fn operations_do_what_their_names_say() {
        let minus = |n: i64| n.cast_unsigned();
        assert_eq!(applied(Kind::I64, Op::Add, 5, minus(-7)), minus(-2));
        assert_eq!(applied(Kind::U64, Op::Sub, 0, 1), u64::MAX);
        assert_eq!(applied(Kind::U32, Op::Add, u32::MAX.into(), 1) as u32, 0, "wraps");
        assert_eq!(applied(Kind::I64, Op::Min, minus(-3), 2), minus(-3));
        assert_eq!(applied(Kind::U64, Op::Min, minus(-3), 2), 2, "as unsigned numbers");
        assert_eq!(applied(Kind::I32, Op::Max, u64::from(u32::MAX), 0), 0, "-1 is less");
        assert_eq!(applied(Kind::U32, Op::Max, u64::from(u32::MAX), 0), u64::from(u32::MAX));
        let [one, half, nan] = [1.0, 0.5, f64::NAN].map(f64::to_bits);
        assert_eq!(applied(Kind::F64, Op::Add, one, half), 1.5f64.to_bits());
        assert_eq!(applied(Kind::F64, Op::Max, one, half), one);
        for (old, operand) in [(nan, one), (one, nan)] {
            for op in [Op::Min, Op::Max] {
                assert!(f64::from_bits(applied(Kind::F64, op, old, operand)).is_nan());
            }
        }
        assert_eq!(applied(Kind::U64, Op::Exchange, 1, 9), 9);
        assert_eq!(applied(Kind::U64, Op::Load, 1, 9), 1);
        assert_eq!([Op::And, Op::Or, Op::Xor].map(|op| applied(Kind::U64, op, 6, 3)), [2, 7, 5]);
        let swap = Atomic { kind: Kind::U64, op: Op::CompareExchange, operand: 8, expected: 4 };
        assert_eq!([4, 5].map(|old| swap.apply(old)), [8, 5]);
    }

    #[test]
    fn requests_and_answers_survive_the_wire_and_are_refused_shortened() {
        let needs = vec![RequiredDiff { writer: NodeId(2), serial: 77 }];
        for kind in Kind::ALL {
            for op in Op::ALL {
                let atomic = Atomic { kind, op, operand: 3, expected: u64::MAX };
                let request = Request { epoch: 4, page: 9, offset: 4088, atomic, needs: needs.clone() };
                let mut body = Vec::new();
                request.emit(&mut body);
                assert_eq!(Request::parse(&body), Ok(request));
                assert!((0..body.len()).all(|len| Request::parse(&body[..len]).is_err()));
            }
        }
        for answer in [Answer::Done(u64::MAX), Answer::Elsewhere, Answer::Freed] {
            let mut body = Vec::new();
            answer.emit(&mut body);
            assert_eq!(Answer::parse(&body), Ok(answer));
            assert!((0..body.len()).all(|len| Answer::parse(&body[..len]).is_err()));
        }
    }

    #[test]
    fn a_word_that_leaves_its_page_or_is_not_aligned_is_refused() {
        let atomic = Atomic { kind: Kind::U64, op: Op::Add, operand: 1, expected: 0 };
        for offset in [4, 4092, 4096, u16::MAX] {
            let mut body = Vec::new();
            Request { epoch: 0, page: 1, offset, atomic, needs: Vec::new() }.emit(&mut body);
            assert!(Request::parse(&body).is_err(), "{offset}");
        }
    }
}
