//! Whether programs with checks in their own code (`comem-cc --inline`) can be built here, and run.

use crate::cc::Language;
use crate::inline::toolchain::{Clang, Plugin};
use comem_memory::lines::{Table, barrier};
use serde::{Deserialize, Serialize};

/// What was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InlineReport {
    /// The clang that compiles such programs, and the plug-in; why there is none.
    pub compiler: Result<String, String>,
    /// Whether the table of entries, 4 TiB of addresses, can be mapped; the reason when not.
    pub table: Result<(), String>,
    /// Whether a barrier in all processes of the host works: `membarrier(GLOBAL_EXPEDITED)`.
    pub barrier: bool,
}

impl Default for InlineReport {
    fn default() -> InlineReport {
        let not_asked = || "it does not say".to_string();
        InlineReport { compiler: Err(not_asked()), table: Err(not_asked()), barrier: false }
    }
}

impl InlineReport {
    /// Examines this host.
    pub fn here() -> InlineReport {
        let compiler = Clang::find(Language::C).and_then(|clang| {
            let plugin = Plugin::find(&clang)?;
            Ok(format!("{} of version {}, with {}", clang.name(), clang.major, plugin.path.display()))
        });
        InlineReport {
            compiler: compiler.map_err(|failure| format!("{}; {}", failure.what, failure.advice)),
            table: Table::map().map(drop).map_err(|error| error.to_string()),
            barrier: barrier::register() && barrier::all_processes().is_ok(),
        }
    }

    /// Lines of a table.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let compiler = match &self.compiler {
            Ok(compiler) => format!("by {compiler}"),
            Err(why) => format!("programs cannot be built with them: {why}"),
        };
        let table = match &self.table {
            Ok(()) => "can be mapped".to_string(),
            Err(why) => format!("no: programs with checks cannot run: {why}"),
        };
        let barrier = match self.barrier {
            true => "works between processes",
            false => "does not work between processes: stores to shared lines will be slower",
        };
        vec![("checks (--inline)", compiler), ("  table", table), ("  membarrier", barrier.to_string())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let lines = |report: &InlineReport| {
            report.lines().iter().map(|(label, value)| format!("{label}: {value}\n")).collect::<String>()
        };
        let report = InlineReport { compiler: Ok("clang-19 of version 19".to_string()), table: Ok(()), barrier: true };
        let text = lines(&report);
        assert!(text.contains("by clang-19") && text.contains("can be mapped"), "{text}");
        assert!(text.contains("membarrier: works between processes"), "{text}");
        let no = || "RLIMIT_AS permits 1 KiB of addresses".to_string();
        let text = lines(&InlineReport { compiler: Err("no clang".to_string()), table: Err(no()), barrier: false });
        assert!(text.contains("cannot be built with them: no clang"), "{text}");
        assert!(text.contains("programs with checks cannot run: RLIMIT_AS permits"), "{text}");
        assert!(text.contains("does not work between processes"), "{text}");
    }

    #[test]
    fn a_host_of_another_version_says_nothing() {
        let text = InlineReport::default().lines();
        assert!(text[0].1.contains("it does not say"), "{text:?}");
    }
}
