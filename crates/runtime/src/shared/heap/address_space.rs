//! Where the heap lies. Nodes map it at the same address: each says which of a few places are free, and all take the
//! first that is free everywhere.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::heap::HEAP_BYTES_MIN;
use comem_memory::pages::{Arena, Detector};

/// The places, in the order of preference, in units of 16 TiB: away from where systems put programs (5) and libraries
/// (7).
const PLACES: [usize; 6] = [1, 2, 3, 4, 6, 0];
const PLACE_BYTES: usize = 16 << 40;
/// In the lowest 16 TiB, above what 32-bit habits use.
const LOW_OFFSET: usize = 1 << 40;

/// The place that is tried first.
pub(in crate::shared) const FIRST: usize = PLACES[0] * PLACE_BYTES;

fn place(index: usize) -> usize {
    match PLACES[index] {
        0 => LOW_OFFSET,
        n => n * PLACE_BYTES,
    }
}

/// One number for each place: 1 where a heap of so many bytes fits on this node.
pub(crate) fn offers(bytes: usize) -> [i64; PLACES.len()] {
    let files_are_free = file_bytes_max() >= bytes as u64;
    std::array::from_fn(|i| i64::from(files_are_free && Arena::is_free(place(i), bytes)))
}

/// How long a file this process may make (`ulimit -f`): a memory file that is longer ends it by a signal.
fn file_bytes_max() -> u64 {
    soft_limit(libc::RLIMIT_FSIZE)
}

fn soft_limit(what: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes one limit.
    unsafe { libc::getrlimit(what, &raw mut limit) };
    limit.rlim_cur
}

/// Why a job has no heap of so many bytes, as far as this node can tell, and what to do.
pub(crate) fn why_none(bytes: usize) -> String {
    let most = file_bytes_max();
    let space = soft_limit(libc::RLIMIT_AS);
    if most >= bytes as u64 && space < 2 * bytes as u64 {
        return format!(
            "there is no shared heap: it needs twice {bytes} bytes of address space, and this process may have {space} \
             (RLIMIT_AS); raise `ulimit -v`, or try a smaller --heap"
        );
    }
    if most >= bytes as u64 {
        return format!(
            "there is no shared heap: no place for {bytes} bytes of address space was free on every node, or memory \
             could not be watched; try a smaller --heap, raise `ulimit -v` and `ulimit -f`, and see comem doctor"
        );
    }
    let smaller = match most >= HEAP_BYTES_MIN {
        true => format!(", or start with --heap {}M", most >> 20),
        false => format!(": no heap is smaller than {}M", HEAP_BYTES_MIN >> 20),
    };
    format!(
        "there is no shared heap: it is a memory file of {bytes} bytes, and this process may make files of {most} \
         (RLIMIT_FSIZE); raise `ulimit -f`{smaller}"
    )
}

/// The place that all nodes offer.
pub(crate) fn agreed(offers: &[i64]) -> Option<usize> {
    offers.iter().position(|free| *free == 1).map(place)
}

/// The detector that was asked for, or the best that works; says so when that is a slower one.
pub(crate) fn choose_detector(config: &Config) -> Result<Detector> {
    if let Some(detector) = config.detector {
        let tried = detector.probe();
        return tried.map(|()| detector).map_err(|why| {
            Error::Start(format!(
                "the detector {detector} does not work on host {}: {why}; name another, or leave the choice to each \
                 node",
                crate::boot::host_name()
            ))
        });
    }
    let (best, others) = Detector::best();
    // One node of each host says so: another host may have other means.
    // Where files are too short for a heap, whoever asks for shared pages hears of that.
    let may_be = file_bytes_max() >= HEAP_BYTES_MIN;
    // Where all nodes map one memory, mostly nothing is noticed.
    let concerns = !config.page_engine.has_one_copy() && config.host_place.is_none_or(|place| place == 0);
    if may_be && (concerns || config.verbose) {
        let none_works = others.iter().any(|(detector, _)| *detector == best);
        let host = format!("host {}", crate::boot::host_name());
        let others: Vec<String> = others.iter().map(|(better, why)| format!("{better} ({why})")).collect();
        match &others[..] {
            all if none_works => {
                let all = all.join(", ");
                crate::error::say(format_args!(
                    "comem: no detector works on {host}: {all}; programs that share pages cannot run here"
                ));
            }
            [] => {}
            [one] => crate::error::say(format_args!(
                "comem: the detector {one} does not work on {host}; taking {best}, which is slower"
            )),
            all => {
                let all = all.join(" and ");
                crate::error::say(format_args!(
                    "comem: the detectors {all} do not work on {host}; taking {best}, which is slower"
                ));
            }
        }
    }
    Ok(best)
}
