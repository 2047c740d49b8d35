//! The manual's pages, and what completes words in a shell: both from the definitions of the command line ([`args`]),
//! so that they name what this version has.
//!
//! [`args`]: crate::args

use crate::args::{Cli, ManArgs, Shell};
use crate::failure::{Failure, Outcome};
use crate::show;
use clap::{Command, CommandFactory};
use clap_complete::shells;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::path::Path;

const NAME: &str = "comem";
/// What stands in the middle of a page's first line.
const MANUAL: &str = "Comem";

/// A page: the file that it belongs into, and its text.
type Page = (String, Vec<u8>);

/// `comem man`.
///
/// # Errors
/// There is no such command, or the directory cannot be written.
pub fn main(args: &ManArgs) -> Outcome<i32> {
    if let Some(directory) = &args.dir {
        return write(directory).map(|()| 0);
    }
    let cli = definitions();
    let found = args.command.iter().try_fold(&cli, |command, name| shown(command).find(|sub| sub.get_name() == name));
    let Some(command) = found else {
        let what = format!("there is no page for comem {}", args.command.join(" "));
        return Err(Failure::usage(what, "see `comem --help` for the commands"));
    };
    show(&page(command).1).map(|()| 0)
}

/// What a shell reads to complete words.
pub fn completions(shell: Shell) -> Vec<u8> {
    let (mut text, mut cli) = (Vec::new(), Cli::command());
    match shell {
        Shell::Bash => clap_complete::generate(shells::Bash, &mut cli, NAME, &mut text),
        Shell::Zsh => clap_complete::generate(shells::Zsh, &mut cli, NAME, &mut text),
        Shell::Fish => clap_complete::generate(shells::Fish, &mut cli, NAME, &mut text),
    }
    text
}

/// The definitions with the names that the pages have: `comem-daemon-list`.
fn definitions() -> Command {
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    cli
}

/// The commands below one that users are told of.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

/// The page of a command, with the others in its last section.
fn page(command: &Command) -> Page {
    let version = format!("{NAME} {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(version).manual(MANUAL);
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut text = Vec::new();
    let rest = see_also(name, shown(command)).to_writer(&mut text).and(Ok(std::mem::take(&mut text)));
    let rendered = man.render(&mut text).and(rest);
    text.extend(rendered.expect("writing to memory does not fail"));
    (man.get_filename(), text)
}

/// Where to read on: the pages of the commands below this one, or the command's own; and the guides.
fn see_also<'a>(name: &str, below: impl Iterator<Item = &'a Command>) -> Roff {
    let mut names: Vec<&str> = below.map(|sub| sub.get_display_name().unwrap_or(sub.get_name())).collect();
    names.extend((name != NAME).then_some(NAME));
    let pages = names.into_iter().flat_map(|name| [bold(name), roman("(1), ")]);
    let guides = "and the guides beside the installed licences, in share/doc/comem: running.md has every flag, \
                  variable and counter, exit-codes.md every status.";
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]).text(pages.chain([roman(guides)]).collect::<Vec<_>>());
    roff
}

/// The pages of a command and of all below it.
fn pages(command: &Command) -> Vec<Page> {
    std::iter::once(page(command)).chain(shown(command).flat_map(pages)).collect()
}

fn write(directory: &Path) -> Outcome<()> {
    for (name, text) in pages(&definitions()) {
        let path = directory.join(name);
        let written = std::fs::write(&path, text);
        written
            .map_err(|e| Failure::start(format!("cannot write {}: {e}", path.display()), "make its directory first"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command that users are told of, with its page as a reader sees dashes.
    fn each(command: &Command, look: &mut impl FnMut(&Command, &str)) {
        let text = String::from_utf8(page(command).1).unwrap().replace("\\-", "-");
        look(command, &text);
        shown(command).for_each(|sub| each(sub, look));
    }

    #[test]
    fn every_flag_and_its_variable_are_in_the_page_of_its_command() {
        let (mut flags, mut variables) = (0, 0);
        each(&definitions(), &mut |command, page| {
            let name = command.get_name();
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                if let Some(long) = argument.get_long() {
                    flags += 1;
                    assert!(page.contains(&format!("--{long}")), "{name}: no --{long} in\n{page}");
                }
                if let Some(variable) = argument.get_env().and_then(|variable| variable.to_str()) {
                    variables += 1;
                    assert!(page.contains(variable), "{name}: no {variable} in\n{page}");
                }
            }
            for sub in shown(command) {
                let below = sub.get_display_name().unwrap();
                assert!(page.contains(below), "{name}: no {below} in\n{page}");
            }
        });
        assert!(flags > 100 && variables > 50, "only {flags} flags and {variables} variables were looked for");
    }

    #[test]
    fn each_command_has_a_page_and_hidden_ones_have_none() {
        let names: Vec<String> = pages(&definitions()).into_iter().map(|(name, _)| name).collect();
        for name in ["comem.1", "comem-run.1", "comem-daemon.1", "comem-daemon-list.1", "comem-bench-net.1"] {
            assert!(names.iter().any(|other| other == name), "{name}: {names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("agent") || name.contains("help")), "{names:?}");
    }

    #[test]
    fn every_shell_completes_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = String::from_utf8(completions(shell)).unwrap();
            for command in shown(&definitions()) {
                assert!(text.contains(command.get_name()), "{shell:?}: no {}", command.get_name());
            }
            assert!(text.contains("force-engine"), "{shell:?}");
        }
    }
}
