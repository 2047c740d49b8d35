//! What a host can do for memory that is shared by pages: the detectors, each tried by using it, and the bounds.

use comem::capacity;
use comem_memory::pages::{Detector, OneCopyFile};
use serde::{Deserialize, Serialize};

/// What was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PageReport {
    /// Every detector, the best first: its name, and why it cannot be had.
    pub detectors: Vec<(String, Result<(), String>)>,
    /// Whether processes here can map one memory file, as nodes under the engine `hardware` do; why not.
    #[serde(default = "not_asked")]
    pub one_copy: Result<(), String>,
    /// The least memory limit of the control groups around this process, in MiB.
    pub group_limit_mib: Option<u64>,
}

/// What a host of another version does not say.
fn not_asked() -> Result<(), String> {
    Err("it does not say".to_string())
}

impl Default for PageReport {
    fn default() -> PageReport {
        PageReport { detectors: Vec::new(), one_copy: not_asked(), group_limit_mib: None }
    }
}

/// Maps a file as another process would that has made none.
fn map_one_copy() -> std::io::Result<()> {
    const BYTES: usize = 1 << 20;
    let job = u64::from_ne_bytes(crate::sys::random());
    let _made = OneCopyFile::new(job, BYTES)?;
    let found = OneCopyFile::of(std::process::id(), job, BYTES)?;
    // Where something can be mapped: behind what nobody looks at.
    found.map_anywhere().map(drop)
}

impl PageReport {
    /// Examines this host.
    pub fn here() -> PageReport {
        let tried = Detector::ALL.map(|detector| (detector.name().to_string(), detector.probe()));
        PageReport {
            detectors: tried.to_vec(),
            one_copy: map_one_copy().map_err(|why| why.to_string()),
            group_limit_mib: capacity::memory_limit_bytes().map(|bytes| bytes >> 20),
        }
    }

    /// The detector that nodes will use without `--detector`.
    pub fn chosen(&self) -> Option<&str> {
        self.detectors.iter().find(|(_, result)| result.is_ok()).map(|(name, _)| name.as_str())
    }

    /// What keeps programs that share pages from running.
    pub fn obstacle(&self) -> Option<String> {
        let none = !self.detectors.is_empty() && self.chosen().is_none();
        none.then(|| "no page detector works: programs that share pages cannot run".to_string())
    }

    /// Lines of a table; `map_count` is the number of mappings that a process may have.
    pub fn lines(&self, map_count: u64) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        for (index, (name, result)) in self.detectors.iter().enumerate() {
            let label = if index == 0 { "page detectors" } else { "" };
            let text = result.as_ref().map_or_else(|why| format!("no: {why}"), |()| "works".to_string());
            lines.push((label, format!("{name:<11} {text}")));
        }
        if !self.detectors.is_empty() {
            lines.push(("  used here", self.reason()));
        }
        if self.chosen() == Some(Detector::Mprotect.name()) {
            let text = format!("about {map_count} scattered pages; beyond, larger units and slower (vm.max_map_count)");
            lines.push(("  bound", text));
        }
        let one_copy = match &self.one_copy {
            Ok(()) => {
                "works: jobs on this host alone have it unless they ask for a protocol (--engine hardware)".to_string()
            }
            Err(why) => format!("no: {why}; jobs on this host alone have a protocol, which is slower"),
        };
        lines.push(("one memory", one_copy));
        lines.push(("  rehearse", "with `comem run --rehearse` before a program leaves its first host".to_string()));
        let limit = self.group_limit_mib.map_or("none".to_string(), |mib| format!("{mib} MiB"));
        lines.push(("memory limit", format!("{limit} (control group)")));
        lines
    }

    /// Which one, and why.
    fn reason(&self) -> String {
        let Some(chosen) = self.chosen() else {
            return "none: programs that share pages cannot run; objects can".to_string();
        };
        let refused: Vec<&str> =
            self.detectors.iter().take_while(|(_, result)| result.is_err()).map(|(name, _)| name.as_str()).collect();
        let why = match refused.as_slice() {
            [] => "the best there is: the kernel notes writes, no fault for them".to_string(),
            list => format!("the best of those that work; what is better does not ({})", list.join(", ")),
        };
        format!("{chosen}: {why}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(results: [Result<(), String>; 3]) -> PageReport {
        let names = Detector::ALL.map(|detector| detector.name().to_string());
        PageReport { detectors: names.into_iter().zip(results).collect(), one_copy: Ok(()), group_limit_mib: Some(512) }
    }

    fn text(report: &PageReport) -> String {
        report.lines(65530).iter().map(|(label, value)| format!("{label}: {value}\n")).collect()
    }

    #[test]
    fn the_best_that_works_is_named_with_the_reason() {
        assert!(text(&report([Ok(()), Ok(()), Ok(())])).contains("uffd-async: the best there is"));
        let no = || Err("seccomp forbids it".to_string());
        let third = text(&report([no(), no(), Ok(())]));
        assert!(
            third.contains("mprotect: the best of those that work; what is better does not (uffd-async, uffd)"),
            "{third}"
        );
        assert!(third.contains("no: seccomp forbids it") && third.contains("65530 scattered pages"), "{third}");
        assert_eq!(report([no(), no(), Ok(())]).obstacle(), None);
        let none = report([no(), no(), no()]);
        assert!(text(&none).contains("none: programs that share pages cannot run"));
        assert!(none.obstacle().is_some_and(|what| what.contains("no page detector works")));
    }

    #[test]
    fn this_host_has_a_detector() {
        let here = PageReport::here();
        assert_eq!(here.detectors.len(), 3);
        assert!(here.chosen().is_some(), "{here:?}");
        assert_eq!(here.one_copy, Ok(()));
        let text = text(&here);
        assert!(text.contains("one memory: works") && text.contains("comem run --rehearse"), "{text}");
        let refused = PageReport { one_copy: Err("Permission denied".to_string()), ..here };
        let text = refused.lines(65530).into_iter().map(|(_, value)| value).collect::<String>();
        assert!(text.contains("no: Permission denied; jobs on this host alone have a protocol"), "{text}");
    }
}
