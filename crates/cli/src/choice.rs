//! The names of engines and detectors, and which go together.
//!
//! An engine keeps copies in step; a detector notices accesses. Objects are accessed through their own functions
//! (detector `explicit`, nothing to choose); pages by ordinary loads and stores, which one of three detectors notices,
//! or nobody under `hardware`;
//! lines by ordinary loads and stores too, which the program's own code checks (detector `inline`).
//!
//! | engine | objects | pages |
//! |---|---|---|
//! | `owner`, `broadcast` | that one | `hlrc` |
//! | `msi` | `msi` | `msi`, of lines with the detector `inline` |
//! | `direct` | `direct` | that one, of lines |
//! | `hlrc`, `scope`, `lrc`, `multicast`, `hardware` | `msi` | that one |

use crate::failure::{Failure, Outcome};
use comem::settings::nearest;
use comem_memory::pages::Detector;
use comem_net::backbone::{Backbone, BackboneChoice};
use comem_protocol::coherence::Engine;
use comem_protocol::coherence::pages::{PageEngine, engine};

/// The detector of lines: programs whose own code checks their accesses.
pub const INLINE: &str = "inline";
/// The detector of objects.
pub const EXPLICIT: &str = "explicit";

/// Which engine goes with which detector, for a person who has just named a pair that does not exist.
pub fn pairs() -> String {
    format!(
        "objects (detector explicit) go with owner, broadcast, msi and direct; pages (detectors uffd-async, uffd and \
         mprotect) with {}; lines (detector inline, programs built with comem-cc --inline) with {}",
        engine::names_of_pages("and"),
        engine::names_of_lines("and")
    )
}

/// What one name of an engine means for the two kinds of shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineChoice {
    /// The name as it was given, and as nodes are told.
    pub name: &'static str,
    /// The engine of objects that name none.
    pub objects: Engine,
    /// The engine of pages whose region names none.
    pub pages: PageEngine,
}

impl EngineChoice {
    /// What a job gets that chooses nothing.
    pub const DEFAULT: EngineChoice = EngineChoice { name: "", objects: Engine::Msi, pages: PageEngine::Hlrc };

    /// Every engine that texts for users name: those of objects, then those of pages that are no engines of objects.
    pub fn listed() -> Vec<EngineChoice> {
        let names = Engine::ALL.map(Engine::name).into_iter().chain(PageEngine::listed().map(PageEngine::name));
        let mut choices: Vec<EngineChoice> = Vec::new();
        for choice in names.filter_map(EngineChoice::named) {
            if choices.iter().all(|other| other.name != choice.name) {
                choices.push(choice);
            }
        }
        choices
    }

    /// What a name means for the two kinds of memory; where there is no such engine of one kind, that keeps its own.
    fn named(name: &str) -> Option<EngineChoice> {
        let (objects, pages) = (name.parse::<Engine>().ok(), name.parse::<PageEngine>().ok());
        let name = objects.map(Engine::name).or(pages.map(PageEngine::name))?;
        let default = EngineChoice::DEFAULT;
        Some(EngineChoice { name, objects: objects.unwrap_or(default.objects), pages: pages.unwrap_or(default.pages) })
    }

    /// Reads a name; an empty one chooses nothing.
    ///
    /// # Errors
    /// The name is none of an engine's.
    pub fn parse(name: &str) -> Result<EngineChoice, String> {
        if name.is_empty() {
            return Ok(EngineChoice::DEFAULT);
        }
        EngineChoice::named(name).ok_or_else(|| {
            let names: Vec<&str> = EngineChoice::listed().iter().map(|choice| choice.name).collect();
            format!("unknown engine {name:?}{}: {}", meant(name, &names), pairs())
        })
    }

    /// Whether the engine is one of objects.
    pub fn fits_objects(self) -> bool {
        self.name == self.objects.name()
    }

    /// Whether the engine is one of pages.
    pub fn fits_pages(self) -> bool {
        self.name == self.pages.name()
    }

    /// Whether it is one of objects that leaves pages to `hlrc`.
    fn is_relaxed_for_objects(self) -> bool {
        !self.name.is_empty() && !self.fits_pages()
    }

    /// Refuses an engine of pages together with the detector of objects.
    ///
    /// # Errors
    /// Says which engines go with which detectors.
    pub fn check_with(self, detector: &str) -> Outcome<()> {
        let keeps_pages = self.fits_pages() && !self.pages.keeps_lines();
        if detector == INLINE && (keeps_pages || self.is_relaxed_for_objects()) {
            let what = format!("engine {} does not go with detector {detector}", self.name);
            return Err(Failure::usage(what, pairs()));
        }
        if detector == EXPLICIT && !self.fits_objects() && !self.name.is_empty() {
            let what = format!("engine {} does not go with detector {detector}", self.name);
            return Err(Failure::usage(what, pairs()));
        }
        Ok(())
    }
}

/// Which of these names was probably meant, as a clause; nothing where none is near.
fn meant(given: &str, names: &[&str]) -> String {
    nearest(given, names.iter().copied()).map_or(String::new(), |name| format!(" (was {name} meant?)"))
}

/// Reads a detector's name; an empty one leaves the choice to each node.
///
/// # Errors
/// The name is none of a detector's.
pub fn detector(name: &str) -> Result<String, String> {
    match name {
        "" | EXPLICIT | INLINE => Ok(name.to_string()),
        _ if name.parse::<Detector>().is_ok() => Ok(name.to_string()),
        _ => {
            let names = [&Detector::ALL.map(Detector::name)[..], &[EXPLICIT, INLINE]].concat();
            Err(format!("unknown detector {name:?}{}: {}", meant(name, &names), pairs()))
        }
    }
}

/// Reads a backbone's name.
///
/// # Errors
/// The name is none of a backbone's.
pub fn backbone(name: &str) -> Result<Backbone, String> {
    let names = || Backbone::ALL.map(Backbone::name).join(" and ");
    let near = || meant(name, &[&Backbone::ALL.map(Backbone::name)[..], &["auto"]].concat());
    // UCX carries out operations on memory, and no messages.
    let ucx =
        if name == "ucx" { "; --one-sided ucx has UCX carry out the operations of the engine direct" } else { "" };
    name.parse().map_err(|_| format!("unknown backbone {name:?}{}; this version has {}{ucx}", near(), names()))
}

/// Reads a backbone's name, or `auto`.
///
/// # Errors
/// The name is neither.
pub fn backbone_or_auto(name: &str) -> Result<BackboneChoice, String> {
    match name {
        "" | "auto" => Ok(BackboneChoice::Auto),
        _ => backbone(name).map(BackboneChoice::Named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_means_something_for_objects_and_for_pages() {
        let meaning = |name: &str| EngineChoice::parse(name).map(|c| (c.objects.name(), c.pages.name())).unwrap();
        assert_eq!(meaning("owner"), ("owner", "hlrc"));
        assert_eq!(meaning("broadcast"), ("broadcast", "hlrc"));
        assert_eq!(meaning("msi"), ("msi", "msi"));
        assert_eq!(meaning("hlrc"), ("msi", "hlrc"));
        assert_eq!(meaning("scope"), ("msi", "scope"));
        assert_eq!(meaning("lrc"), ("msi", "lrc"));
        assert_eq!(meaning("multicast"), ("msi", "multicast"));
        assert_eq!(meaning("direct"), ("direct", "direct"));
        assert_eq!(meaning("hardware"), ("msi", "hardware"));
        assert_eq!(meaning(""), ("msi", "hlrc"));
        let listed: Vec<&str> = EngineChoice::listed().iter().map(|choice| choice.name).collect();
        assert_eq!(listed, ["owner", "broadcast", "msi", "hlrc", "scope", "lrc", "multicast", "direct", "hardware"]);
    }

    #[test]
    fn every_detector_of_pages_can_be_named() {
        for known in Detector::ALL {
            assert_eq!(detector(known.name()), Ok(known.name().to_string()));
            assert!(pairs().contains(known.name()), "{}", pairs());
        }
        assert!(detector("page").unwrap_err().contains("uffd-async"));
    }

    #[test]
    fn an_unknown_engine_is_answered_with_the_pairs() {
        let text = EngineChoice::parse("magic").unwrap_err();
        assert!(text.contains("hlrc, scope, lrc, multicast, msi and hardware"), "{text}");
        assert!(text.contains("owner, broadcast, msi and direct"), "{text}");
        assert!(EngineChoice::parse("hlcr").unwrap_err().contains("(was hlrc meant?)"));
        assert!(detector("mprotcet").unwrap_err().contains("(was mprotect meant?)"));
        assert!(backbone("ump").unwrap_err().contains("(was udp meant?)"));
    }

    #[test]
    fn engines_of_pages_need_a_detector_of_pages() {
        for (engine, detector, good) in [
            ("hlrc", EXPLICIT, false),
            ("scope", EXPLICIT, false),
            ("hardware", EXPLICIT, false),
            ("hardware", INLINE, false),
            ("hlrc", "mprotect", true),
            ("owner", "uffd", true),
            ("msi", EXPLICIT, true),
            ("", EXPLICIT, true),
            ("direct", EXPLICIT, true),
            ("hlrc", INLINE, false),
            ("scope", INLINE, false),
            ("owner", INLINE, false),
            ("msi", INLINE, true),
            ("direct", INLINE, true),
            ("direct", "mprotect", true),
            ("", INLINE, true),
        ] {
            let result = EngineChoice::parse(engine).unwrap().check_with(detector);
            assert_eq!(result.is_ok(), good, "{engine} {detector}: {result:?}");
        }
    }
}
