//! The numbers by which a job tunes itself, all in one place: [`Tuning`].
//!
//! None of them decides on what a program sees. They say when a heuristic begins to act, how far it reaches, and how
//! long something waits; a switch turns a heuristic off. The simulator draws them at random within their ranges, so
//! that no correctness hangs on one. All nodes of a job have the same ones.
//!
//! Each number stands once, in [`numbers`]: its type, default, range and one line of explanation. From there come the
//! structs, [`Number`] with what a table shows of each, and the reader of `COMEM_TUNING`. `docs/tuning.md` is made from
//! it, too.
//!
//! Whoever decides by a number keeps a copy of its part: a number is a plain field of a struct at hand.

pub mod numbers;

pub use numbers::{
    CacheTuning, HomeTuning, LinkTuning, LockTuning, MsiTuning, MulticastTuning, NoticeTuning, PageTuning,
    PrefetchTuning, SyncTuning, Tuning, WaitTuning, WorkingSetTuning,
};
use std::fmt;

/// What a number can be: a switch or a count.
pub trait Value: Copy {
    /// Whether it is a switch.
    const IS_SWITCH: bool = false;
    /// As a count; a switch is 0 or 1.
    fn to_count(self) -> u64;
    /// From a count in the number's range.
    fn from_count(count: u64) -> Self;
}

impl Value for bool {
    const IS_SWITCH: bool = true;
    fn to_count(self) -> u64 {
        u64::from(self)
    }
    fn from_count(count: u64) -> bool {
        count != 0
    }
}

macro_rules! counts {
    ($($ty:ty),*) => {$(
        impl Value for $ty {
            fn to_count(self) -> u64 {
                self as u64
            }
            fn from_count(count: u64) -> $ty {
                count as $ty
            }
        }
    )*};
}
counts!(u8, u16, u32, u64, usize);

/// One number, as a table shows it.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// Its name, with its subject in front: `pages.push_after`.
    pub name: &'static str,
    /// What it says.
    pub doc: &'static str,
    /// Whether it is a switch, which is 0 or 1.
    pub is_switch: bool,
    /// Its default.
    pub default: u64,
    /// Its range, both ends included.
    pub range: (u64, u64),
    /// Reads it.
    pub get: fn(&Tuning) -> u64,
    /// Sets it to a value within its range.
    pub set: fn(&mut Tuning, u64),
}

impl Number {
    /// The part of the name in front of the dot.
    pub fn subject(&self) -> &'static str {
        self.name.split('.').next().unwrap_or_default()
    }

    /// A value of this number as text.
    pub fn show(&self, value: u64) -> String {
        match (self.is_switch, value) {
            (true, 0) => "off".to_string(),
            (true, _) => "on".to_string(),
            (false, _) => value.to_string(),
        }
    }

    /// What it may be, as text.
    pub fn show_range(&self) -> String {
        if self.is_switch { "on or off".to_string() } else { format!("{} to {}", self.range.0, self.range.1) }
    }

    fn read(&self, text: &str) -> Option<u64> {
        let value = match text {
            "on" | "true" if self.is_switch => 1,
            "off" | "false" if self.is_switch => 0,
            _ => text.parse().ok()?,
        };
        (self.range.0..=self.range.1).contains(&value).then_some(value)
    }
}

/// What is wrong with a list of numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TuningError {
    /// This is not of the form `name=value`.
    Form(String),
    /// There is no number of this name.
    Unknown(String),
    /// The number cannot be that.
    Value(&'static str, String, String),
    /// The number stands there twice.
    Twice(&'static str),
}

impl fmt::Display for TuningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TuningError::Form(text) => write!(f, "{text:?} is not of the form name=value"),
            TuningError::Unknown(name) => write!(f, "there is no number {name}"),
            TuningError::Value(name, given, range) => write!(f, "{name} may be {range}, not {given:?}"),
            TuningError::Twice(name) => write!(f, "{name} stands there twice"),
        }
    }
}

impl std::error::Error for TuningError {}

impl Tuning {
    /// The number of this name.
    pub fn number(name: &str) -> Option<&'static Number> {
        Tuning::NUMBERS.iter().find(|number| number.name == name)
    }

    /// The subjects, in their order.
    pub fn subjects() -> Vec<&'static str> {
        let mut all: Vec<&str> = Tuning::NUMBERS.iter().map(Number::subject).collect();
        all.dedup();
        all
    }

    /// Reads `name=value,name=value`: what is not named keeps its default.
    ///
    /// # Errors
    /// Says what is wrong with the first part that makes no sense.
    pub fn parse(text: &str) -> Result<Tuning, TuningError> {
        let (mut tuning, mut seen) = (Tuning::default(), Vec::new());
        for part in text.split(',') {
            let form = || TuningError::Form(part.to_string());
            let (name, value) = part.split_once('=').ok_or_else(form)?;
            let (name, value) = (name.trim(), value.trim());
            let number = Tuning::number(name).ok_or_else(|| TuningError::Unknown(name.to_string()))?;
            if seen.contains(&number.name) {
                return Err(TuningError::Twice(number.name));
            }
            seen.push(number.name);
            let wrong = || TuningError::Value(number.name, value.to_string(), number.show_range());
            (number.set)(&mut tuning, number.read(value).ok_or_else(wrong)?);
        }
        Ok(tuning)
    }

    /// The numbers that differ from their defaults, in the form that [`Tuning::parse`] reads; empty if none does.
    pub fn differences(&self) -> String {
        let all = Tuning::NUMBERS.iter().filter(|number| (number.get)(self) != number.default);
        let all: Vec<String> =
            all.map(|number| format!("{}={}", number.name, number.show((number.get)(self)))).collect();
        all.join(",")
    }

    /// The table of all numbers, in Markdown, one for each subject.
    pub fn table() -> String {
        let mut text = String::new();
        for (subject, doc) in Tuning::SUBJECTS {
            text += &format!("## {subject}\n\n{}\n\n", doc.trim());
            text += "| name | default | range | what it says |\n|---|---|---|---|\n";
            for number in Tuning::NUMBERS.iter().filter(|number| number.subject() == *subject) {
                let default = number.show(number.default);
                let (name, range, doc) = (number.name, number.show_range(), number.doc.trim());
                text += &format!("| `{name}` | {default} | {range} | {doc} |\n");
            }
            text.push('\n');
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests;
