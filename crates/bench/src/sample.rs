//! Medians, quartiles and ratios of measurements.
//!
//! Machines differ and vary, so only ratios count, and only between things measured in turn within one run: block by
//! block, ours and the baseline. A [`Comparison`] holds a pair of numbers for each block.

/// The value below which a part `share` (0 to 1) of the values lies, by linear interpolation; NaN without values.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// The middle value; NaN without values.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Two things measured in turn: for each block a number for ours and one for the baseline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Each block's number for what is examined.
    pub ours: Vec<f64>,
    /// Each block's number for what it is compared with.
    pub base: Vec<f64>,
    /// How many single measurements are behind a block.
    pub per_block: usize,
}

impl Comparison {
    /// Adds a block.
    pub fn push(&mut self, ours: f64, base: f64) {
        self.ours.push(ours);
        self.base.push(base);
    }

    /// The ratio in each block.
    pub fn ratios(&self) -> Vec<f64> {
        self.ours.iter().zip(&self.base).map(|(ours, base)| ours / base).collect()
    }

    /// The middle ratio.
    pub fn ratio(&self) -> f64 {
        median(&self.ratios())
    }
}

/// A line of a report: what was compared, the numbers, and what was aimed at.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What is compared with what.
    pub what: String,
    /// The unit of the numbers.
    pub unit: &'static str,
    /// The numbers.
    pub comparison: Comparison,
    /// The largest ratio that is still good; `None` where none was set.
    pub limit: Option<f64>,
}

/// The head of a report's table.
pub const FINDING_HEAD: &str = "\
| what | ours | baseline | unit | ratio (quartiles) | n | aim | |
|---|---:|---:|---|---:|---:|---:|---|";

impl Finding {
    /// Whether the aim was reached; `true` where none was set.
    pub fn is_good(&self) -> bool {
        self.limit.is_none_or(|limit| self.comparison.ratio() <= limit)
    }

    /// The finding as a row of a Markdown table.
    pub fn row(&self) -> String {
        let c = &self.comparison;
        let ratios = c.ratios();
        let digits = if c.ratio() < 0.1 { 4 } else { 2 };
        let n = format!("{}×{}", c.ours.len(), c.per_block);
        let (aim, verdict) = match self.limit {
            Some(limit) => (format!("≤ {limit}"), if self.is_good() { "reached" } else { "missed" }),
            None => ("–".to_string(), ""),
        };
        format!(
            "| {} | {} | {} | {} | {:.digits$} ({:.digits$}–{:.digits$}) | {n} | {aim} | {verdict} |",
            self.what,
            number(median(&c.ours)),
            number(median(&c.base)),
            self.unit,
            c.ratio(),
            quantile(&ratios, 0.25),
            quantile(&ratios, 0.75),
        )
    }
}

/// A number with three digits that count.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 || v == 0.0 => format!("{value:.2}"),
        v if v >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_the_values() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!((quantile(&values, 0.0), median(&values), quantile(&values, 1.0)), (1.0, 2.5, 4.0));
        assert_eq!(quantile(&values, 0.25), 1.75);
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[7.0]), 7.0);
    }

    #[test]
    fn a_ratio_is_taken_block_by_block() {
        let comparison = Comparison { ours: vec![2.0, 40.0, 3.0], base: vec![1.0, 10.0, 1.0], per_block: 5 };
        assert_eq!(comparison.ratio(), 3.0);
        let mut finding = Finding { what: "a against b".to_string(), unit: "us", comparison, limit: Some(2.9) };
        assert!(!finding.is_good() && finding.row().contains("missed"));
        finding.limit = Some(3.0);
        assert!(finding.is_good() && finding.row().contains("| 3.00 | 1.00 | us | 3.00 (2.50–3.50) | 3×5 |"));
    }
}
