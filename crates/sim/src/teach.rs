//! `comem-sim --litmus`: tables of outcomes, and diagrams of single runs.

use comem_sim::check::litmus::{ALL, Litmus, Reads, SYNCHRONISED};
use comem_sim::diagram;
use comem_sim::outcomes::{self, Engine, LEGEND, Tally};
use std::ops::Range;

/// What to show.
#[derive(Clone, Debug, Default)]
pub struct Lesson {
    /// A program's name or text, `all` or `list`.
    pub litmus: String,
    /// The engine; all of them if there is none.
    pub engine: Option<String>,
    /// The seeds.
    pub seeds: Range<u64>,
    /// Whether a run is shown as a diagram, in place of a table.
    pub diagram: bool,
    /// The file for the diagram as a picture.
    pub svg: Option<String>,
    /// The outcome of the run that is shown.
    pub outcome: Option<Reads>,
}

impl Lesson {
    /// What to print, and whether every engine kept its promise.
    ///
    /// # Errors
    /// A sentence about what is not understood, or a run that failed.
    pub fn give(&self) -> Result<(String, bool), String> {
        let engines = match &self.engine {
            None => Engine::ALL.to_vec(),
            Some(name) => vec![Engine::from_name(name).ok_or_else(|| {
                format!(
                    "unknown engine {name:?}: litmus programs run under {}",
                    Engine::ALL.map(Engine::name).join(", ")
                )
            })?],
        };
        match self.litmus.as_str() {
            "list" => return Ok((list(), true)),
            "all" if self.diagram || self.svg.is_some() => {
                return Err("a diagram is of one program: name it".to_string());
            }
            "all" => return self.tables(&ALL.iter().chain(SYNCHRONISED.iter()).cloned().collect::<Vec<_>>(), &engines),
            _ => {}
        }
        let litmus = match Litmus::named(&self.litmus) {
            Some(litmus) => litmus,
            None if self.litmus.contains('|') => Litmus::parse("your program", &self.litmus)?,
            None => {
                let program = format!("unknown litmus program {:?}", self.litmus);
                return Err(format!("{program}; --litmus list shows those that there are, and how to write one"));
            }
        };
        if !self.diagram && self.svg.is_none() {
            return self.tables(&[litmus], &engines);
        }
        match engines[..] {
            [engine] => Ok((self.shown(&litmus, engine)?, true)),
            _ => Err("a diagram is of a run under one engine: add --engine NAME".to_string()),
        }
    }

    fn tables(&self, programs: &[Litmus], engines: &[Engine]) -> Result<(String, bool), String> {
        let (mut text, mut good) = (String::new(), true);
        for litmus in programs {
            let tallies: Result<Vec<Tally>, String> =
                engines.iter().map(|engine| Tally::of(litmus, *engine, self.seeds.clone())).collect();
            let tallies = tallies?;
            good &= tallies.iter().all(|tally| tally.forbidden().is_empty());
            text += &outcomes::table(litmus, &tallies);
            text.push('\n');
        }
        Ok((text + LEGEND + "\n", good))
    }

    /// The diagram of the first run with the outcome that is wanted.
    fn shown(&self, litmus: &Litmus, engine: Engine) -> Result<String, String> {
        let loads = litmus.loads();
        if let Some(outcome) = self.outcome.as_ref().filter(|outcome| outcome.len() != loads.len()) {
            let (has, given) = (loads.len(), outcome.len());
            return Err(format!("an outcome of {} has {has} values, and --outcome gives {given}", litmus.name));
        }
        let words = |reads: &Reads| {
            let of = |((thread, variable), value): (&(usize, usize), &u64)| {
                format!("{thread}:{}={value}", litmus.names[*variable])
            };
            loads.iter().zip(reads).map(of).collect::<Vec<_>>().join(" ")
        };
        for seed in self.seeds.clone() {
            let run = outcomes::run(litmus, engine, seed, true).map_err(|why| format!("seed {seed:#x}: {why}"))?;
            let Some(reads) = run.outcomes.first() else { continue };
            if self.outcome.as_ref().is_some_and(|wanted| wanted != reads) {
                continue;
            }
            let name = |word: usize| {
                let variable = run.places.get(&word);
                variable.map_or_else(|| format!("word {word}"), |variable| litmus.names[*variable].clone())
            };
            let places: Vec<String> =
                run.nodes.iter().enumerate().map(|(thread, node)| format!("thread {thread} on node {node}")).collect();
            let title = format!("{} under {}: {}", litmus.name, engine.name(), words(reads));
            let numbered = |what: &str, names: &[String]| {
                let all = names.iter().enumerate().map(|(number, name)| format!(", {what} {number} is {name}"));
                all.collect::<String>()
            };
            let others = numbered("lock", &litmus.locks) + &numbered("flag", &litmus.flags);
            let below = format!("{}   ({}{others}; seed {seed})", litmus.text, places.join(", "));
            let nodes = litmus.threads.len();
            if let Some(path) = &self.svg {
                let picture = diagram::svg(&run.events, nodes, &name, &title, &below);
                std::fs::write(path, picture).map_err(|e| format!("cannot write {path}: {e}"))?;
            }
            let text = format!("{title}\n{below}\n\n{}", diagram::text(&run.events, nodes, &name));
            return Ok(if self.diagram { text } else { format!("{title}\n{below}\n") });
        }
        let (start, end) = (self.seeds.start, self.seeds.end);
        Err(format!(
            "no run of seeds {start}..{end} has this outcome; more --seeds may have one, if the engine allows it"
        ))
    }
}

fn list() -> String {
    let row = |litmus: &Litmus| format!("  {:<12} {}\n", litmus.name, litmus.text);
    let rows = |programs: &[Litmus]| programs.iter().map(row).collect::<String>();
    format!(
        "Litmus programs without synchronisation:\n{}With synchronisation:\n{}Or write one: threads between bars, \
         steps between semicolons, of these:\n  x = 1, x (a load), lock a, unlock a, set f, wait f, barrier; `| \
         finally` in the end lets all load everything.\n",
        rows(&ALL),
        rows(&SYNCHRONISED)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lesson(litmus: &str, engine: &str) -> Lesson {
        Lesson {
            litmus: litmus.to_string(),
            engine: (!engine.is_empty()).then(|| engine.to_string()),
            seeds: 0..200,
            ..Lesson::default()
        }
    }

    #[test]
    fn programs_are_found_by_name_and_by_text() {
        let (text, good) = lesson("sb", "hlrc").give().unwrap();
        assert!(good && text.contains("SB:  x = 1; y | y = 1; x") && text.contains("sequential"), "{text}");
        let (text, _) = lesson("p = 1 | p; p", "msi").give().unwrap();
        assert!(text.contains("1:p  1:p") && text.contains("forbidden"), "{text}");
        assert!(lesson("list", "").give().unwrap().0.contains("WRC+locks"));
        for (wrong, engine, why) in [
            ("XY", "", "--litmus list"),
            ("SB", "magic", "owner, broadcast, msi, hlrc, scope"),
            ("x = 1 | y = 1", "", "loads nothing"),
        ] {
            let said = lesson(wrong, engine).give().expect_err(wrong);
            assert!(said.contains(why), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_run_with_a_certain_outcome_is_shown() {
        let wanted = Lesson { diagram: true, outcome: Some(vec![0, 0]), ..lesson("SB", "hlrc") };
        let (text, _) = wanted.give().unwrap();
        assert!(text.starts_with("SB under hlrc: 0:y=0 1:x=0\n"), "{text}");
        assert_eq!((text.matches("load y -> 0").count() >= 1, text.contains("x = 1")), (true, true), "{text}");
        let never = Lesson { engine: Some("msi".to_string()), ..wanted.clone() };
        assert!(never.give().unwrap_err().contains("no run of seeds 0..200"));
        let short = Lesson { outcome: Some(vec![0]), ..wanted.clone() };
        assert!(short.give().unwrap_err().contains("has 2 values"));
        assert!(Lesson { engine: None, ..wanted }.give().unwrap_err().contains("add --engine"));
    }
}
