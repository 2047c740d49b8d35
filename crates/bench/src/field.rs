//! A temperature field as `sea --dump` writes it: rows, columns, then the cells, all 32-bit integers of this machine's
//! byte order; a cell in ten-thousandths of a degree, land as the smallest number.

use std::path::Path;

/// What stands for land in a dump.
pub const LAND: i32 = i32::MIN;

/// Units in a degree.
pub const DEGREE: i32 = 10_000;

/// A field of cells, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// How many rows.
    pub rows: usize,
    /// How many columns.
    pub columns: usize,
    /// The cells, row by row.
    pub cells: Vec<i32>,
}

/// How two fields differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// How many cells are not the same.
    pub cells: usize,
    /// The largest difference, in ten-thousandths of a degree.
    pub largest: u64,
}

impl Difference {
    /// Whether the fields are the same, bit for bit.
    pub fn is_none(&self) -> bool {
        self.cells == 0
    }
}

impl Field {
    /// Reads a dump.
    ///
    /// # Errors
    /// A sentence about a file that cannot be read or is no dump.
    pub fn load(path: &Path) -> Result<Field, String> {
        let bytes = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        Field::parse(&bytes).map_err(|why| format!("{} is no dump of sea: {why}", path.display()))
    }

    /// Reads a dump from memory.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Field, String> {
        let (words, rest) = bytes.as_chunks::<4>();
        let mut numbers = words.iter().map(|word| i32::from_ne_bytes(*word));
        let (Some(rows), Some(columns), true) = (numbers.next(), numbers.next(), rest.is_empty()) else {
            return Err(format!("it has {} bytes", bytes.len()));
        };
        let cells: Vec<i32> = numbers.collect();
        match (usize::try_from(rows), usize::try_from(columns)) {
            (Ok(rows), Ok(columns)) if rows > 0 && rows.checked_mul(columns) == Some(cells.len()) => {
                Ok(Field { rows, columns, cells })
            }
            _ => Err(format!("{rows} rows of {columns} cells do not make {} cells", cells.len())),
        }
    }

    /// Compares cell by cell with a field of the same size.
    ///
    /// # Errors
    /// The sizes.
    pub fn difference(&self, other: &Field) -> Result<Difference, String> {
        if (self.rows, self.columns) != (other.rows, other.columns) {
            return Err(format!(
                "a field of {}x{} cells where {}x{} were expected",
                other.rows, other.columns, self.rows, self.columns
            ));
        }
        let mut difference = Difference::default();
        for (a, b) in self.cells.iter().zip(&other.cells).filter(|(a, b)| a != b) {
            difference.cells += 1;
            difference.largest = difference.largest.max(i64::from(*a).abs_diff(i64::from(*b)));
        }
        Ok(difference)
    }

    /// The coldest and the warmest water; `None` where all is land.
    pub fn extremes(&self) -> Option<(i32, i32)> {
        let water = || self.cells.iter().copied().filter(|c| *c != LAND);
        Some((water().min()?, water().max()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(numbers: &[i32]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_ne_bytes()).collect()
    }

    #[test]
    fn a_dump_is_read_back() {
        let field = Field::parse(&bytes(&[2, 3, 1, 2, 3, LAND, 5, 6])).unwrap();
        assert_eq!((field.rows, field.columns, field.extremes()), (2, 3, Some((1, 6))));
    }

    #[test]
    fn what_is_no_dump_is_refused() {
        for wrong in [vec![], bytes(&[1]), bytes(&[2, 2, 1]), bytes(&[-1, -1, 1]), bytes(&[0, 0])] {
            assert!(Field::parse(&wrong).is_err(), "{wrong:?}");
        }
        let mut ragged = bytes(&[1, 1, 1]);
        ragged.push(0);
        assert!(Field::parse(&ragged).is_err());
    }

    #[test]
    fn differences_are_counted_and_measured() {
        let a = Field::parse(&bytes(&[1, 3, 1, i32::MAX, 3])).unwrap();
        let b = Field::parse(&bytes(&[1, 3, 1, i32::MIN + 1, 5])).unwrap();
        assert!(a.difference(&a).unwrap().is_none());
        assert_eq!(a.difference(&b).unwrap(), Difference { cells: 2, largest: u64::from(u32::MAX) - 1 });
        let c = Field::parse(&bytes(&[3, 1, 1, 2, 3])).unwrap();
        assert!(a.difference(&c).is_err());
    }
}
