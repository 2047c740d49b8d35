//! `comem bench`: measurements that need no program of the user's.
//!
//! | module | |
//! |---|---|
//! | [`net`] | latency and bandwidth of the backbones over the size of messages |
//! | [`curves`] | the same as a picture |
//! | [`nautilus`] | the programs of the Nautilus paper, beside its Table 1 |
//! | [`brazos`] | the programs of the Brazos paper, beside its Figure 4 and its reductions |
//! | [`programs`] | where the compiled workloads are |

pub mod brazos;
pub mod curves;
pub mod nautilus;
pub mod net;
pub mod programs;

use crate::args::{BenchArgs, BenchSubject};
use crate::failure::Outcome;

/// Runs the command; its exit code.
pub fn main(args: &BenchArgs) -> Outcome<i32> {
    match &args.subject {
        BenchSubject::Net(args) => net::main(args),
        BenchSubject::Nautilus(args) => nautilus::main(args),
        BenchSubject::Brazos(args) => brazos::main(args),
    }
}

/// The value in the middle; NaN without values.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}
