//! Reductions: what the numbers of all threads come to, combined in the order of the nodes, so that a sum of
//! floating-point numbers is the same on every node and in every run with as many nodes.

/// How two numbers become one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operator {
    /// Their sum; integers wrap.
    Sum,
    /// The smaller; of floating-point numbers the first that is a NaN, if there is one.
    Min,
    /// The larger; of floating-point numbers the first that is a NaN, if there is one.
    Max,
}

/// What the numbers are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Number {
    /// Signed 64-bit integers.
    I64,
    /// 64-bit floating-point numbers.
    F64,
}

/// Most numbers reduced in one barrier: their bytes must fit a single datagram.
pub const NUMBERS_MAX: usize = 128;

/// A reduction of vectors: `into[i] = into[i] op with[i]`, each number eight bytes in network order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reduction {
    /// How two become one.
    pub operator: Operator,
    /// Of what.
    pub number: Number,
}

impl Reduction {
    /// A small number that stands for this reduction on the wire.
    pub fn code(self) -> u8 {
        let operator = match self.operator {
            Operator::Sum => 0,
            Operator::Min => 1,
            Operator::Max => 2,
        };
        operator * 2 + u8::from(self.number == Number::F64)
    }

    /// The reduction with this number.
    pub fn from_code(code: u8) -> Option<Reduction> {
        let number = if code % 2 == 1 { Number::F64 } else { Number::I64 };
        let operator = *[Operator::Sum, Operator::Min, Operator::Max].get(usize::from(code / 2))?;
        Some(Reduction { operator, number })
    }

    /// Combines `with` into `into`; vectors of unequal length leave `into` as it is and give `false`.
    pub fn combine(self, into: &mut [u8], with: &[u8]) -> bool {
        if into.len() != with.len() || !into.len().is_multiple_of(8) {
            return false;
        }
        for (a, b) in into.as_chunks_mut::<8>().0.iter_mut().zip(with.as_chunks::<8>().0) {
            *a = match self.number {
                Number::I64 => self.integers(i64::from_be_bytes(*a), i64::from_be_bytes(*b)).to_be_bytes(),
                Number::F64 => self.floats(f64::from_be_bytes(*a), f64::from_be_bytes(*b)).to_be_bytes(),
            };
        }
        true
    }

    fn integers(self, a: i64, b: i64) -> i64 {
        match self.operator {
            Operator::Sum => a.wrapping_add(b),
            Operator::Min => a.min(b),
            Operator::Max => a.max(b),
        }
    }

    fn floats(self, a: f64, b: f64) -> f64 {
        match self.operator {
            Operator::Sum => a + b,
            Operator::Min | Operator::Max if a.is_nan() => a,
            Operator::Min | Operator::Max if b.is_nan() => b,
            Operator::Min => a.min(b),
            Operator::Max => a.max(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_combined_one_by_one() {
        let mut into: Vec<u8> = [3_i64, -5].iter().flat_map(|n| n.to_be_bytes()).collect();
        let with: Vec<u8> = [-4_i64, 7].iter().flat_map(|n| n.to_be_bytes()).collect();
        let smallest = Reduction { operator: Operator::Min, number: Number::I64 };
        assert!(smallest.combine(&mut into, &with));
        assert_eq!(into, [-4_i64, -5].iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>());
        assert!(!smallest.combine(&mut into, &with[..8]));
    }

    #[test]
    fn a_number_that_is_none_wins_on_either_side() {
        for operator in [Operator::Min, Operator::Max] {
            let reduction = Reduction { operator, number: Number::F64 };
            for (a, b) in [(1.0, f64::NAN), (f64::NAN, 1.0), (f64::INFINITY, f64::NAN), (f64::NAN, f64::NEG_INFINITY)] {
                let mut into = a.to_be_bytes();
                assert!(reduction.combine(&mut into, &b.to_be_bytes()));
                assert!(f64::from_be_bytes(into).is_nan(), "{operator:?} of {a} and {b}");
            }
        }
    }

    #[test]
    fn every_reduction_has_a_code_of_its_own() {
        let codes: Vec<_> = (0..6).map(|c| Reduction::from_code(c).unwrap().code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5]);
        assert_eq!(Reduction::from_code(6), None);
    }
}
