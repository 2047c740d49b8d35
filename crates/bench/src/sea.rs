//! The workload `sea`: its command line, and the line it prints.

use std::path::Path;

/// A sea's size and how long it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sea {
    /// Rows of cells.
    pub rows: usize,
    /// Cells in a row.
    pub columns: usize,
    /// How often each cell becomes the average of its neighbours.
    pub iterations: usize,
}

impl Sea {
    /// The program's arguments; with a path, it dumps the last field there.
    pub fn arguments(&self, dump: Option<&Path>) -> Vec<String> {
        let mut arguments: Vec<String> =
            [("--rows", self.rows), ("--columns", self.columns), ("--iterations", self.iterations)]
                .into_iter()
                .flat_map(|(name, value)| [name.to_string(), value.to_string()])
                .collect();
        if let Some(path) = dump {
            arguments.extend(["--dump".to_string(), path.display().to_string()]);
        }
        arguments
    }
}

/// Finds the seconds that a workload measured (`… time_s=0.25 ok`) in what it printed; they leave out the start-up.
///
/// # Errors
/// A sentence with what was printed instead.
pub fn seconds(output: &str) -> Result<f64, String> {
    output
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("time_s="))
        .find_map(|text| text.parse::<f64>().ok().filter(|s| s.is_finite() && *s > 0.0))
        .ok_or_else(|| format!("the program printed no time_s=…, but: {}", output.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_found_in_the_line() {
        assert_eq!(seconds("noise\nsea: 8x8 2 iterations checksum=0 threads=1 time_s=0.250000 ok\n"), Ok(0.25));
        for wrong in ["", "time_s=", "time_s=-1", "time_s=nan", "time=3"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn arguments_name_the_size() {
        let sea = Sea { rows: 3, columns: 4, iterations: 5 };
        assert_eq!(
            sea.arguments(Some(Path::new("/tmp/x"))).join(" "),
            "--rows 3 --columns 4 --iterations 5 --dump /tmp/x"
        );
    }
}
