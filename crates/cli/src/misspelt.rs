//! What somebody meant who mistyped a word of the command line.

use crate::args::Cli;
use clap::error::{ContextKind, ContextValue, Error};
use clap::{Command, CommandFactory};
use comem::settings::nearest;

/// The words that clap finds near to what was given: a flag, a command, a value; and of commands those that differ by
/// two letters
/// that changed places, which it does not.
pub fn suggested(error: &Error) -> Option<String> {
    const KINDS: [ContextKind; 3] =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let word = KINDS.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.clone()),
        ContextValue::Strings(words) => words.first().cloned(),
        _ => None,
    });
    word.or_else(|| match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(given) => {
            let command = Cli::command();
            nearest(given, command.get_subcommands().map(Command::get_name)).map(str::to_string)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn gather(command: &Command, known: &mut BTreeSet<String>) {
        let variables = command.get_arguments().filter_map(|argument| argument.get_env());
        known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
        command.get_subcommands().for_each(|one| gather(one, known));
    }

    #[test]
    fn what_is_almost_a_command_a_flag_or_a_value_is_told_of() {
        use clap::Parser;
        let meant = |words: &[&str]| {
            let error = Cli::try_parse_from([&["comem"], words].concat()).unwrap_err();
            suggested(&error)
        };
        for (words, right) in [
            (&["rnu"][..], Some("run")),
            (&["repotr", "x"], Some("report")),
            (&["run", "--engin", "hlrc", "true"], Some("--engine")),
            (&["run", "--wait", "bolck", "true"], Some("block")),
            (&["daemon", "lst"], Some("list")),
            (&["magic"], None),
        ] {
            assert_eq!(meant(words).as_deref(), right, "{words:?}");
        }
    }

    /// A setting that the list lacks would be taken for a mistyped one.
    #[test]
    fn no_variable_of_a_flag_is_taken_for_another() {
        let mut known = BTreeSet::new();
        gather(&crate::args::Cli::command(), &mut known);
        assert!(known.contains("COMEM_THREADS"));
        assert_eq!(comem::settings::misspelt(known.into_iter()), []);
    }
}
