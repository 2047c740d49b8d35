//! What flags take: numbers within bounds, times, sizes, switches.

use comem::heap::{HEAP_BYTES, HEAP_BYTES_MIN, size_bytes};
use comem_net::select::MTUS;
use comem_protocol::coherence::direct::UNIT_BYTES;
use comem_protocol::faults::FaultSpec;
use comem_protocol::ids::{NODES_MAX, THREADS_MAX};
use comem_protocol::selective::{Choice, NoChoice};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most pages of a unit.
const UNIT_PAGES_MAX: u32 = 256;

fn bounded(text: &str, max: usize, what: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(0) => Err(format!("a job has at least one {what}")),
        Ok(n) if n <= max => Ok(n),
        Ok(_) => Err(format!("at most {max} {what}s are possible")),
        Err(_) => Err(format!("expected a number from 1 to {max}")),
    }
}

/// A number of nodes.
pub fn nodes(text: &str) -> Result<usize, String> {
    bounded(text, NODES_MAX, "node")
}

/// A number of application threads.
pub fn threads(text: &str) -> Result<usize, String> {
    bounded(text, THREADS_MAX, "thread")
}

/// The number of a node.
pub fn node(text: &str) -> Result<u16, String> {
    let possible = text.parse().ok().filter(|n| usize::from(*n) < NODES_MAX);
    possible.ok_or_else(|| format!("expected the number of a node, from 0 to {}", NODES_MAX - 1))
}

/// A TCP port.
pub fn port(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|port| *port > 0).ok_or_else(|| "expected a port, from 1 to 65535".to_string())
}

/// The number of a job in a daemon's list.
pub fn job_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected the number of a job, as `comem daemon list` shows it".to_string())
}

/// A load: an average number of processes.
///
/// # Errors
/// It is no positive number.
pub fn load(text: &str) -> Result<f64, String> {
    let load = text.parse().ok().filter(|load: &f64| load.is_finite() && *load > 0.0);
    load.ok_or_else(|| "expected a positive number, such as 7.5".to_string())
}

/// The name of a job.
///
/// # Errors
/// It is empty, long, or looks like a number, which jobs have too.
pub fn job_name(text: &str) -> Result<String, String> {
    const CHARS_MAX: usize = 64;
    match text {
        "" => Err("a job's name has at least one character".to_string()),
        text if text.chars().count() > CHARS_MAX => Err(format!("a job's name has at most {CHARS_MAX} characters")),
        text if text.chars().any(comem::error::steers) => Err("a job's name has no control characters".to_string()),
        text if text.chars().all(|c| c.is_ascii_digit()) => {
            Err("a job's name is no number: jobs have these".to_string())
        }
        text => Ok(text.to_string()),
    }
}

/// Numbers by which a job tunes itself: the text, if it makes sense.
pub fn tuning(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { comem::settings::tuning(text).map(|_| text.to_string()) }
}

/// Faults to inject.
pub fn faults(text: &str) -> Result<FaultSpec, String> {
    text.parse().map_err(|e: <FaultSpec as std::str::FromStr>::Err| e.to_string())
}

/// Reads `on` or `off`.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".to_string()),
    }
}

/// Reads whether one datagram goes to many nodes; an empty word chooses nothing.
pub fn multicast(text: &str) -> Result<Choice, String> {
    if text.is_empty() { Ok(Choice::Auto) } else { text.parse().map_err(|error: NoChoice| error.to_string()) }
}

/// Reads `A-B`.
pub fn ports(text: &str) -> Result<String, String> {
    let range = text.split_once('-').and_then(|(a, b)| Some((a.parse::<u16>().ok()?, b.parse::<u16>().ok()?)));
    match range {
        Some((low, high)) if 0 < low && low <= high => Ok(text.to_string()),
        _ => Err("expected FIRST-LAST, port numbers from 1 to 65535".to_string()),
    }
}

/// The file to write; `-` is standard output.
pub fn or_output(file: PathBuf) -> PathBuf {
    if file == Path::new("-") { PathBuf::from("/dev/stdout") } else { file }
}

/// Checks a network's MTU in bytes; an empty text chooses nothing.
///
/// # Errors
/// It is no number, or one that no network has.
pub fn mtu(text: &str) -> Result<String, String> {
    let possible = |bytes: usize| MTUS.contains(&bytes);
    if text.is_empty() || text.parse().is_ok_and(possible) {
        return Ok(text.to_string());
    }
    Err(format!("expected a number of bytes from {} to {}", MTUS.start(), MTUS.end()))
}

/// Reads `90s`, `500ms`, `10m` or plain seconds.
pub fn time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)];
    let parsed = units.iter().find_map(|(unit, scale)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * scale));
    match parsed {
        Some(seconds) if seconds > 0.0 && seconds < 1e8 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a positive time such as 10s, 500ms or 2m".to_string()),
    }
}

/// Reads a time and writes it in the form that nodes understand, or `off`.
pub fn time_or_off(text: &str) -> Result<String, String> {
    match text {
        "off" => Ok(text.to_string()),
        _ => time(text).map(|span| format!("{}ms", span.as_millis().max(1))),
    }
}

/// Checks a size; the text goes on as it is, and an empty one chooses nothing.
///
/// # Errors
/// It is no positive number of bytes.
pub fn size(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { size_bytes(text).map(|_| text.to_string()) }
}

/// Checks the size of the shared heap; an empty text chooses nothing.
///
/// # Errors
/// It is no size, or not one that a heap can have.
pub fn heap_size(text: &str) -> Result<String, String> {
    let possible = |bytes| (HEAP_BYTES_MIN..=HEAP_BYTES).contains(&bytes);
    if text.is_empty() || possible(size_bytes(text)?) {
        return Ok(text.to_string());
    }
    Err(format!("expected a size from {}M to {}T", HEAP_BYTES_MIN >> 20, HEAP_BYTES >> 40))
}

/// Checks a size or a share of the memory, such as `50%`; an empty text chooses nothing.
///
/// # Errors
/// It is neither.
pub fn size_or_share(text: &str) -> Result<String, String> {
    let Some(share) = text.strip_suffix('%') else {
        let is_zero = !text.is_empty() && text.chars().all(|c| c == '0');
        return size(text).map_err(|why| match is_zero {
            true => "expected a positive size, such as 64M, or a share such as 50%".to_string(),
            false => format!("{why}, or a share such as 50%"),
        });
    };
    match share.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(text.to_string()),
        _ => Err("a share goes from more than 0% to 100%".to_string()),
    }
}

/// Reads the pages of a unit: a power of two up to 256; an empty text chooses nothing.
///
/// # Errors
/// Any other number.
pub fn unit_pages(text: &str) -> Result<String, String> {
    match text.parse::<u32>() {
        _ if text.is_empty() => Ok(String::new()),
        Ok(pages) if pages.is_power_of_two() && pages <= UNIT_PAGES_MAX => Ok(text.to_string()),
        _ => Err(format!("a unit has 1, 2, 4, ... or {UNIT_PAGES_MAX} pages: a power of two")),
    }
}

/// Reads the bytes of a unit of lines: a power of two from 64 to 2048; an empty text chooses nothing.
///
/// # Errors
/// Any other number.
pub fn unit_bytes(text: &str) -> Result<String, String> {
    match text.parse::<usize>() {
        _ if text.is_empty() => Ok(String::new()),
        Ok(bytes) if UNIT_BYTES.contains(&bytes) => Ok(text.to_string()),
        _ => Err("a unit has 64, 128, 256, 512, 1024 or 2048 bytes".to_string()),
    }
}

/// Reads `auto` or `ucx` and keeps the word; an empty text chooses nothing. Of `ucx` the library has to be here.
///
/// # Errors
/// Any other word; or that there is no library, and what to install.
pub fn auto_or_ucx(text: &str) -> Result<String, String> {
    match text {
        "" | "auto" => Ok(text.to_string()),
        "ucx" => comem_net::ucx::Library::load().map(|_| text.to_string()).map_err(|missing| missing.to_string()),
        _ => Err("expected auto or ucx".to_string()),
    }
}

/// Reads `copy` or `share` and keeps the word; an empty text chooses nothing.
///
/// # Errors
/// Any other word.
pub fn copy_or_share(text: &str) -> Result<String, String> {
    if matches!(text, "" | "copy" | "share") { Ok(text.to_string()) } else { Err("expected copy or share".to_string()) }
}

/// Reads `auto`, `tokens` or `one-sided`; an empty text chooses nothing.
///
/// # Errors
/// Any other word.
pub fn kind_of_locks(text: &str) -> Result<String, String> {
    let is_known = matches!(text, "" | "auto" | "tokens" | "one-sided");
    if is_known { Ok(text.to_string()) } else { Err("expected auto, tokens or one-sided".to_string()) }
}

/// Reads `on` or `off` and keeps the word; an empty text chooses nothing.
///
/// # Errors
/// Any other word.
pub fn switch_word(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { switch(text).map(|_| text.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(time("3"), Ok(Duration::from_secs(3)));
        assert_eq!(time_or_off("10s"), Ok("10000ms".to_string()));
        for wrong in ["", "s", "0", "nan", "inf", "1d"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_of_jobs_are_no_numbers() {
        for good in ["sor", "4x", "über lang", &"x".repeat(64)] {
            assert_eq!(job_name(good), Ok(good.to_string()));
        }
        for wrong in ["", "4711", "a\nb", "\u{1b}[2J", &"x".repeat(65)] {
            assert!(job_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nodes_read_the_sizes_that_the_launcher_takes() {
        for good in ["", "4096", "64m", "2G", "2GB", "2GiB", "2Gi"] {
            assert_eq!(size(good), Ok(good.to_string()));
        }
        for wrong in ["0", "2GBB", "2Giii", "2iB", "µ"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cache_may_be_a_share() {
        for good in ["50%", "0.5%", "100%", "64M", ""] {
            assert_eq!(size_or_share(good), Ok(good.to_string()));
        }
        for wrong in ["0%", "101%", "%", "lots", "nan%"] {
            assert!(size_or_share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn operations_go_by_ucx_where_its_library_is() {
        assert_eq!(auto_or_ucx("auto"), Ok("auto".to_string()));
        assert!(auto_or_ucx("rdma").is_err());
        match comem_net::ucx::Library::load() {
            Ok(_) => assert_eq!(auto_or_ucx("ucx"), Ok("ucx".to_string())),
            Err(_) => assert!(auto_or_ucx("ucx").unwrap_err().contains("install UCX")),
        }
    }

    #[test]
    fn units_of_lines_have_64_to_2048_bytes() {
        for good in ["", "64", "128", "2048"] {
            assert_eq!(unit_bytes(good), Ok(good.to_string()));
        }
        for wrong in ["0", "32", "96", "4096", "64B", "-64"] {
            assert!(unit_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn units_have_a_power_of_two_of_pages() {
        for good in ["", "1", "2", "256"] {
            assert_eq!(unit_pages(good), Ok(good.to_string()));
        }
        for wrong in ["0", "3", "512", "x", "-2"] {
            assert!(unit_pages(wrong).is_err(), "{wrong}");
        }
    }
}
