//! The engines of pages and lines: what each of them is, in one place.
//!
//! The rest of the library asks an engine what it needs to know ([`PageEngine::is_scoped`], for instance) and never
//! which engine it is. So another engine is a name in [`PageEngine`] and its [`Properties`]. What it does as no engine
//! did before is code of its own, which the properties name. CONTRIBUTING.md has the steps.

use super::Context;
use super::page_table::{DiffSink, PageTable};
use std::fmt;
use std::str::FromStr;

mod refetch_all;

/// The engines of pages and lines, as users choose them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum PageEngine {
    /// Home-based lazy release consistency.
    #[default]
    Hlrc,
    /// Home-based scope consistency.
    Scope,
    /// A single writer, sequentially consistent: IVY's pages under the directory of [`msi`](crate::coherence::msi).
    Msi,
    /// A single writer, sequentially consistent, by lines and not by pages: the thread that misses runs the whole
    /// protocol ([`direct`](crate::coherence::direct)).
    Direct,
    /// The example: `hlrc`, and every acquire drops all copies (`examples/refetch-all`).
    RefetchAll,
    /// Lazy release consistency without homes: diffs stay with their writers
    /// ([`kept_diffs`](super::kept_diffs)).
    Lrc,
    /// Scope consistency without homes: as `lrc`, and diffs are asked of sets of nodes and told to sets
    /// ([`multicast`](super::multicast)).
    Multicast,
    /// One memory that the nodes of a host all map: the processors keep it coherent, and no protocol does.
    Hardware,
}

/// What an engine is.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// Its name, for users.
    pub name: &'static str,
    /// Its number in messages; no two engines have the same.
    pub number: u8,
    /// Whether texts for users name it. One that they do not name, an example or an experiment, is found by its name.
    pub is_listed: bool,
    /// Whether jobs may have it. One that they may not have yet runs in the simulator alone.
    pub is_for_jobs: bool,
    /// How many nodes may write to a unit at a time.
    pub writers: Writers,
    /// Whether it keeps pages, and not lines alone.
    pub keeps_pages: bool,
    /// How it keeps memory whose accesses the program checks itself, if it does.
    pub lines: Option<Lines>,
}

/// How many nodes may write to a unit at a time.
#[derive(Clone, Copy, Debug)]
pub enum Writers {
    /// One. Writes need permission first, and synchronisation carries nothing.
    One,
    /// Several. Releases and acquires carry write notices, and diffs go to the homes.
    Several(SeveralWriters),
    /// Any number, of the one copy that there is. Nothing is noticed, and synchronisation carries nothing.
    OfOneCopy,
}

/// What distinguishes engines with several writers.
#[derive(Clone, Copy, Debug)]
pub struct SeveralWriters {
    /// Whether an acquire brings what was written under the same lock alone, and not all that happened before.
    pub is_scoped: bool,
    /// Whether diffs stay with their writers, and pages have no home ([`kept_diffs`](super::kept_diffs)).
    pub keeps_diffs: bool,
    /// Where diffs stay: whether they are asked of sets of nodes, and told to sets ([`multicast`](super::multicast)).
    pub tells_sets: bool,
    /// What each page table does at an acquire that hears from another node, and at a barrier, beside ending the copies
    /// that write notices name.
    pub at_acquire: Option<AcquireStep>,
}

/// A step of a page table at an acquire. Diffs of what was written here go to the sink.
pub type AcquireStep = fn(&mut PageTable, &mut Context<'_>, &mut dyn DiffSink);

/// How an engine keeps lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lines {
    /// A directory at the home answers requests ([`msi`](crate::coherence::msi)).
    Directory,
    /// The thread that misses changes the home's tables itself ([`direct`](crate::coherence::direct)).
    OneSided,
}

const HLRC: Properties = Properties {
    name: "hlrc",
    number: 1,
    is_listed: true,
    is_for_jobs: true,
    writers: Writers::Several(SeveralWriters {
        is_scoped: false,
        keeps_diffs: false,
        tells_sets: false,
        at_acquire: None,
    }),
    keeps_pages: true,
    lines: None,
};

const SCOPE: Properties = Properties {
    name: "scope",
    number: 2,
    is_listed: true,
    is_for_jobs: true,
    writers: Writers::Several(SeveralWriters {
        is_scoped: true,
        keeps_diffs: false,
        tells_sets: false,
        at_acquire: None,
    }),
    keeps_pages: true,
    lines: None,
};

const MSI: Properties = Properties {
    name: "msi",
    number: 3,
    is_listed: true,
    is_for_jobs: true,
    writers: Writers::One,
    keeps_pages: true,
    lines: Some(Lines::Directory),
};

const DIRECT: Properties = Properties {
    name: "direct",
    number: 4,
    is_listed: true,
    is_for_jobs: true,
    writers: Writers::One,
    keeps_pages: false,
    lines: Some(Lines::OneSided),
};

const LRC: Properties = Properties {
    name: "lrc",
    number: 5,
    is_listed: true,
    is_for_jobs: true,
    writers: Writers::Several(SeveralWriters {
        is_scoped: false,
        keeps_diffs: true,
        tells_sets: false,
        at_acquire: None,
    }),
    keeps_pages: true,
    lines: None,
};

const MULTICAST: Properties = Properties {
    name: "multicast",
    number: 6,
    is_listed: true,
    is_for_jobs: true,
    writers: Writers::Several(SeveralWriters {
        is_scoped: true,
        keeps_diffs: true,
        tells_sets: true,
        at_acquire: None,
    }),
    keeps_pages: true,
    lines: None,
};

const HARDWARE: Properties = Properties {
    name: "hardware",
    number: 7,
    is_listed: true,
    is_for_jobs: true,
    writers: Writers::OfOneCopy,
    keeps_pages: true,
    lines: None,
};

impl PageEngine {
    /// Every engine, in the order in which they are named.
    pub const ALL: [PageEngine; 8] = [
        PageEngine::Hlrc,
        PageEngine::Scope,
        PageEngine::Lrc,
        PageEngine::Multicast,
        PageEngine::Msi,
        PageEngine::Direct,
        PageEngine::RefetchAll,
        PageEngine::Hardware,
    ];

    /// What the engine is.
    pub const fn properties(self) -> &'static Properties {
        match self {
            PageEngine::Hlrc => &HLRC,
            PageEngine::Scope => &SCOPE,
            PageEngine::Msi => &MSI,
            PageEngine::Direct => &DIRECT,
            PageEngine::RefetchAll => &refetch_all::PROPERTIES,
            PageEngine::Lrc => &LRC,
            PageEngine::Multicast => &MULTICAST,
            PageEngine::Hardware => &HARDWARE,
        }
    }

    /// The engines that texts for users name.
    pub fn listed() -> impl Iterator<Item = PageEngine> {
        PageEngine::ALL.into_iter().filter(|engine| engine.properties().is_listed)
    }

    /// The engines that jobs may have.
    pub fn for_jobs() -> impl Iterator<Item = PageEngine> {
        PageEngine::ALL.into_iter().filter(|engine| engine.properties().is_for_jobs)
    }

    /// The engine of this name, whether or not jobs may have it.
    pub fn named(name: &str) -> Option<PageEngine> {
        PageEngine::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// The engine's name.
    pub const fn name(self) -> &'static str {
        self.properties().name
    }

    /// The engine with this number in a message.
    pub fn of_number(number: u8) -> Option<PageEngine> {
        PageEngine::ALL.into_iter().find(|engine| engine.properties().number == number)
    }

    const fn several_writers(self) -> Option<&'static SeveralWriters> {
        match &self.properties().writers {
            Writers::One | Writers::OfOneCopy => None,
            Writers::Several(several) => Some(several),
        }
    }

    /// Whether several nodes may write to a page at a time: then releases and acquires carry notices.
    pub const fn has_several_writers(self) -> bool {
        self.several_writers().is_some()
    }

    /// Whether an acquire brings what was written under the same lock alone, and not all that happened before.
    pub fn is_scoped(self) -> bool {
        self.several_writers().is_some_and(|several| several.is_scoped)
    }

    /// Whether diffs stay with their writers, and pages have no home.
    pub fn keeps_diffs(self) -> bool {
        self.several_writers().is_some_and(|several| several.keeps_diffs)
    }

    /// Whether diffs, which stay with their writers, are asked of sets of nodes and told to sets.
    pub fn tells_sets(self) -> bool {
        self.several_writers().is_some_and(|several| several.tells_sets)
    }

    /// What each page table does at an acquire, beside ending the copies that write notices name.
    pub fn at_acquire(self) -> Option<AcquireStep> {
        self.several_writers()?.at_acquire
    }

    /// Whether there is one copy of each page, which all nodes map: no access is noticed.
    pub const fn has_one_copy(self) -> bool {
        matches!(self.properties().writers, Writers::OfOneCopy)
    }

    /// Whether it keeps pages, and not lines alone.
    pub const fn keeps_pages(self) -> bool {
        self.properties().keeps_pages
    }

    /// Whether it keeps memory whose accesses the program checks itself.
    pub const fn keeps_lines(self) -> bool {
        self.properties().lines.is_some()
    }

    /// Whether each unit has one writer at a time, and a directory at its home answers requests.
    pub fn has_directory(self) -> bool {
        self.properties().lines == Some(Lines::Directory)
    }

    /// Whether the thread that misses changes the home's tables itself.
    pub fn is_one_sided(self) -> bool {
        self.properties().lines == Some(Lines::OneSided)
    }
}

/// The names of these engines in a sentence: `hlrc, lrc and msi`, where the word is `and`.
fn names(engines: impl Iterator<Item = PageEngine>, word: &str) -> String {
    let names: Vec<&str> = engines.map(PageEngine::name).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => one.to_string(),
        [first @ .., last] => format!("{} {word} {last}", first.join(", ")),
    }
}

/// The engines of pages that texts for users name, in a sentence, where the word is `and` or `or`.
pub fn names_of_pages(word: &str) -> String {
    names(PageEngine::listed().filter(|engine| engine.keeps_pages()), word)
}

/// The engines of lines that texts for users name, in a sentence.
pub fn names_of_lines(word: &str) -> String {
    let mut engines: Vec<PageEngine> = PageEngine::listed().filter(|engine| engine.keeps_lines()).collect();
    engines.sort_by_key(|engine| engine.name());
    names(engines.into_iter(), word)
}

/// What engines there are, for somebody who has named none of them.
pub fn names_by_memory() -> String {
    format!("for pages {}, and for lines {}", names_of_pages("and"), names_of_lines("and"))
}

impl fmt::Display for PageEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No engine that jobs may have has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "unknown page engine {0:?}; the engines for pages are {pages}, and for lines {lines}",
    pages = names_of_pages("and"),
    lines = names_of_lines("and")
)]
pub struct UnknownPageEngine(pub String);

impl FromStr for PageEngine {
    type Err = UnknownPageEngine;
    fn from_str(name: &str) -> Result<PageEngine, UnknownPageEngine> {
        let found = PageEngine::named(name).filter(|engine| engine.properties().is_for_jobs);
        found.ok_or_else(|| UnknownPageEngine(name.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_engine_has_a_name_and_a_number_of_its_own() {
        let numbers: BTreeSet<u8> = PageEngine::ALL.map(|engine| engine.properties().number).into();
        assert_eq!(numbers.len(), PageEngine::ALL.len());
        for engine in PageEngine::ALL {
            assert_eq!(PageEngine::named(engine.name()), Some(engine));
            assert_eq!(PageEngine::of_number(engine.properties().number), Some(engine));
            assert!(engine.keeps_pages() || engine.keeps_lines(), "{engine} keeps nothing");
        }
        assert_eq!(PageEngine::of_number(0), None);
    }

    #[test]
    fn users_may_name_the_engines_that_jobs_may_have_and_no_others() {
        for engine in PageEngine::ALL {
            let is_for_jobs = engine.properties().is_for_jobs;
            assert_eq!(engine.name().parse().ok(), is_for_jobs.then_some(engine));
            assert!(is_for_jobs || !engine.properties().is_listed, "{engine} is listed, and no job may have it");
        }
        let text = "hlcr".parse::<PageEngine>().unwrap_err().to_string();
        assert!(text.starts_with("unknown page engine \"hlcr\"; the engines for pages are hlrc"), "{text}");
    }

    #[test]
    fn what_users_are_told_names_the_engines_for_them_and_no_example() {
        let text = "hlcr".parse::<PageEngine>().unwrap_err().to_string();
        assert_eq!(names_of_pages("or"), "hlrc, scope, lrc, multicast, msi or hardware");
        assert!(
            text.ends_with("for pages are hlrc, scope, lrc, multicast, msi and hardware, and for lines direct and msi"),
            "{text}"
        );
    }
}
