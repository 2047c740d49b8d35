//! Atomic operations by number, on memory at hand.
//!
//! Checked code names an operation by the number that LLVM 19 gives it (`AtomicRMWInst::BinOp`). All of them are made
//! of compare-and-swap: whoever comes here pays for a call already.

use std::arch::asm;

/// The number of a compare-and-swap; LLVM's own numbers end far below.
const COMPARE_AND_SWAP: u32 = 100;

/// An operation that checked code asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Exchange,
    Add,
    Sub,
    And,
    Nand,
    Or,
    Xor,
    Max,
    Min,
    UMax,
    UMin,
    FAdd,
    FSub,
    FMax,
    FMin,
    /// Adds 1; behind the operand comes 0.
    UIncWrap,
    /// Subtracts 1; before 0, and from what is above the operand, comes the operand.
    UDecWrap,
    /// Stores the operand if the old value is the expected one.
    CompareAndSwap,
}

impl Op {
    /// The operation with this number on values of so many bytes.
    pub(crate) fn of(number: u32, bytes: usize) -> Option<Op> {
        const ALL: [Op; 17] = [
            Op::Exchange,
            Op::Add,
            Op::Sub,
            Op::And,
            Op::Nand,
            Op::Or,
            Op::Xor,
            Op::Max,
            Op::Min,
            Op::UMax,
            Op::UMin,
            Op::FAdd,
            Op::FSub,
            Op::FMax,
            Op::FMin,
            Op::UIncWrap,
            Op::UDecWrap,
        ];
        let op = match number {
            COMPARE_AND_SWAP => Op::CompareAndSwap,
            _ => *ALL.get(number as usize)?,
        };
        let is_float = matches!(op, Op::FAdd | Op::FSub | Op::FMax | Op::FMin);
        let fits = if is_float { matches!(bytes, 4 | 8) } else { matches!(bytes, 1 | 2 | 4 | 8 | 16) };
        fits.then_some(op)
    }

    /// What is in memory afterwards. Values are `bytes` long; the bits above are 0.
    fn apply(self, old: u128, operand: u128, bytes: usize) -> u128 {
        let bits = 8 * bytes as u32;
        let mask = u128::MAX >> (128 - bits);
        let signed = |value: u128| ((value << (128 - bits)) as i128) >> (128 - bits);
        let float = |f: fn(f64, f64) -> f64, g: fn(f32, f32) -> f32| match bytes {
            4 => u128::from(g(f32::from_bits(old as u32), f32::from_bits(operand as u32)).to_bits()),
            _ => u128::from(f(f64::from_bits(old as u64), f64::from_bits(operand as u64)).to_bits()),
        };
        let new = match self {
            Op::Exchange | Op::CompareAndSwap => operand,
            Op::Add => old.wrapping_add(operand),
            Op::Sub => old.wrapping_sub(operand),
            Op::And => old & operand,
            Op::Nand => !(old & operand),
            Op::Or => old | operand,
            Op::Xor => old ^ operand,
            Op::Max => {
                if signed(old) > signed(operand) {
                    old
                } else {
                    operand
                }
            }
            Op::Min => {
                if signed(old) <= signed(operand) {
                    old
                } else {
                    operand
                }
            }
            Op::UMax => old.max(operand),
            Op::UMin => old.min(operand),
            Op::FAdd => float(|a, b| a + b, |a, b| a + b),
            Op::FSub => float(|a, b| a - b, |a, b| a - b),
            Op::FMax => float(f64::max, f32::max),
            Op::FMin => float(f64::min, f32::min),
            Op::UIncWrap => {
                if old >= operand {
                    0
                } else {
                    old + 1
                }
            }
            Op::UDecWrap => {
                if old == 0 || old > operand {
                    operand
                } else {
                    old - 1
                }
            }
        };
        new & mask
    }

    /// Makes the operation at an address; gives the value before it. No alignment is needed but for 16 bytes.
    ///
    /// # Safety
    /// `bytes` bytes may be read and written there, and 16 bytes are aligned.
    pub(crate) unsafe fn make(self, at: *mut u8, bytes: usize, operand: u128, expected: u128) -> u128 {
        // SAFETY: by this function's contract. A torn first guess costs a further round.
        let mut old = unsafe { read(at, bytes) };
        if self == Op::CompareAndSwap {
            // SAFETY: by this function's contract.
            return unsafe { compare_and_swap(at, bytes, expected, operand) };
        }
        loop {
            let new = self.apply(old, operand, bytes);
            // SAFETY: by this function's contract.
            let found = unsafe { compare_and_swap(at, bytes, old, new) };
            if found == old {
                return old;
            }
            old = found;
        }
    }
}

/// The value of so many bytes there, in this processor's order.
///
/// # Safety
/// They may be read.
pub(crate) unsafe fn read(at: *const u8, bytes: usize) -> u128 {
    let mut value = [0; 16];
    // SAFETY: by this function's contract, and no value is longer.
    unsafe { std::ptr::copy_nonoverlapping(at, value.as_mut_ptr(), bytes.min(16)) };
    u128::from_le_bytes(value)
}

/// Stores `new` if the value is `expected`; gives the value before.
///
/// # Safety
/// As for [`Op::make`].
unsafe fn compare_and_swap(at: *mut u8, bytes: usize, expected: u128, new: u128) -> u128 {
    // SAFETY: by this function's contract; the instruction needs no alignment up to 8 bytes. `rbx` belongs to the
    // compiler, so it is put back.
    unsafe {
        match bytes {
            1 => {
                let mut old = expected as u8;
                asm!("lock cmpxchg byte ptr [{at}], {new}", at = in(reg) at, new = in(reg_byte) new as u8,
                    inout("al") old, options(nostack));
                u128::from(old)
            }
            2 => {
                let mut old = expected as u16;
                asm!("lock cmpxchg word ptr [{at}], {new:x}", at = in(reg) at, new = in(reg) new as u16,
                    inout("ax") old, options(nostack));
                u128::from(old)
            }
            4 => {
                let mut old = expected as u32;
                asm!("lock cmpxchg dword ptr [{at}], {new:e}", at = in(reg) at, new = in(reg) new as u32,
                    inout("eax") old, options(nostack));
                u128::from(old)
            }
            8 => {
                let mut old = expected as u64;
                asm!("lock cmpxchg qword ptr [{at}], {new}", at = in(reg) at, new = in(reg) new as u64,
                    inout("rax") old, options(nostack));
                u128::from(old)
            }
            _ => {
                let (mut low, mut high) = (expected as u64, (expected >> 64) as u64);
                asm!("xchg rbx, {new}", "lock cmpxchg16b xmmword ptr [{at}]", "xchg rbx, {new}",
                    at = in(reg) at, new = inout(reg) new as u64 => _, in("rcx") (new >> 64) as u64,
                    inout("rax") low, inout("rdx") high, options(nostack));
                u128::from(low) | u128::from(high) << 64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an operation leaves of `old`, and that it gives `old` back.
    fn left(number: u32, bytes: usize, old: u128, operand: u128) -> u128 {
        #[repr(align(16))]
        struct Place([u8; 32]);
        let mut place = Place([0xee; 32]);
        place.0[..bytes].copy_from_slice(&old.to_le_bytes()[..bytes]);
        let op = Op::of(number, bytes).expect("it is one");
        // SAFETY: an aligned place of 32 bytes.
        assert_eq!(unsafe { op.make(place.0.as_mut_ptr(), bytes, operand, old) }, old, "{op:?}");
        assert_eq!(place.0[bytes..], [0xee; 32][bytes..], "{op:?} stays within its bytes");
        // SAFETY: as above.
        unsafe { read(place.0.as_ptr(), bytes) }
    }

    #[test]
    fn integers_of_all_sizes_wrap_at_their_own_ends() {
        for bytes in [1, 2, 4, 8, 16] {
            let most = u128::MAX >> (128 - 8 * bytes as u32);
            assert_eq!(left(1, bytes, most, 2), 1);
            assert_eq!(left(2, bytes, 1, 2), most);
            assert_eq!(left(0, bytes, 7, most), most);
            assert_eq!((left(3, bytes, 0b1100, 0b1010), left(4, bytes, 0b1100, 0b1010)), (0b1000, most ^ 0b1000));
            assert_eq!((left(5, bytes, 0b1100, 0b1010), left(6, bytes, 0b1100, 0b1010)), (0b1110, 0b0110));
            assert_eq!([7, 8, 9, 10].map(|op| left(op, bytes, most, 3)), [3, most, most, 3], "-1 and 3");
            assert_eq!((left(15, bytes, 3, 3), left(15, bytes, 2, 3)), (0, 3));
            assert_eq!([0, 9, 2].map(|old| left(16, bytes, old, 3)), [3, 3, 1]);
            assert_eq!(left(100, bytes, 5, 6), 6);
        }
    }

    #[test]
    fn floats_are_added_as_floats() {
        let (a, b) = (1.5_f64, 2.25_f64);
        let bits = |value: f64| u128::from(value.to_bits());
        assert_eq!([11, 12, 13, 14].map(|op| left(op, 8, bits(a), bits(b))), [3.75, -0.75, b, a].map(bits));
        let bits = |value: f32| u128::from(value.to_bits());
        assert_eq!([11, 12, 13, 14].map(|op| left(op, 4, bits(1.5), bits(0.5))), [2.0, 1.0, 1.5, 0.5].map(bits));
        assert_eq!(Op::of(11, 2), None, "halves are not served");
    }

    #[test]
    fn a_compare_and_swap_that_fails_changes_nothing() {
        let mut word = 7_u64;
        let at = (&raw mut word).cast();
        // SAFETY: a word of this function's.
        assert_eq!(unsafe { Op::CompareAndSwap.make(at, 8, 9, 8) }, 7);
        assert_eq!(word, 7);
        assert_eq!((Op::of(17, 8), Op::of(100, 3)), (None, None));
    }
}
