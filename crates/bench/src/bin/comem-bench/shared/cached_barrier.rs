//! Barriers of two nodes at which nobody has written anything, with so much cached on one of them.

use super::bulk::PAGE_BYTES;
use super::subjects::{Backbones, Case, Effort, Report};
use crate::jobs::Bench;
use crate::report::Figure;
use comem_bench::sample::{Comparison, Finding, median};

/// Most of what a barrier may take with the largest size cached, in relation to one with nothing cached.
const LIMIT: f64 = 1.3;

/// What to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct Sizes {
    /// How much is cached, in MiB, with commas between the sizes
    #[arg(long, value_delimiter = ',', default_value = "64,1024", value_parser = clap::value_parser!(u32).range(1..))]
    pub mebibytes: Vec<u32>,
    /// How often the jobs are run in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub repeat: u16,
    /// Backbones
    #[arg(long, value_enum, default_value_t = Backbones::Both)]
    pub backbones: Backbones,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { mebibytes: vec![64, 1024], repeat: 5, backbones: Backbones::Both }
    }
}

impl Bench {
    /// Barriers over cached memory.
    ///
    /// # Errors
    /// A sentence about what went wrong.
    pub fn cached_barrier(&self, sizes: &Sizes) -> Result<bool, String> {
        let mut all = Report::default();
        for backbone in sizes.backbones.names() {
            for mebibytes in &sizes.mebibytes {
                self.over_cached(&mut all, sizes, backbone, *mebibytes)?;
            }
        }
        Ok(all.print("A barrier over cached memory, nothing written"))
    }

    fn over_cached(&self, all: &mut Report, sizes: &Sizes, backbone: &str, mebibytes: u32) -> Result<(), String> {
        let run = |pages: usize| {
            let mut task = Effort::default().words(20, 50);
            task.extend(["--cached".to_string(), pages.to_string()]);
            let flags = vec!["--wait", "spin", "--backbone", backbone, "--auth", "off"];
            self.measure(&Case { what: "cached-barrier", flags, task })
        };
        let (mut comparison, mut first) = (Comparison { per_block: 1000, ..Comparison::default() }, Vec::new());
        for turn in 0..sizes.repeat {
            let (cached, empty) = (run((mebibytes as usize) << 20 >> PAGE_BYTES.ilog2())?, run(0)?);
            comparison.push(median(&cached.list("barriers")?), median(&empty.list("barriers")?));
            first.push(cached.number("first")?);
            if turn == 0 {
                all.commands.extend([cached.command, empty.command]);
            }
        }
        let what =
            format!("a barrier with {mebibytes} MiB cached, {backbone}, spinning, against one with nothing cached");
        all.findings.push(Finding { what, unit: "us", comparison, limit: Some(LIMIT) });
        let what = format!("the first barrier after {mebibytes} MiB were read, {backbone}");
        all.figures.push(Figure { what, value: median(&first), unit: "us", most: None });
        Ok(())
    }
}
