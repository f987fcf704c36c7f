//! `fedra manual`: manual pages out of the same definitions as the help.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Command};
use clap_mangen::Man;

use crate::{console, files};

const EXAMPLES: &str = "\
Examples:
  fedra manual run | man -l -                  read one page
  fedra manual --all ~/.local/share/man/man1   install all of them; then: man fedra-run";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Manual {
    /// The command, as in: run, or: account epsilon [default: fedra itself]
    #[arg(value_name = "COMMAND")]
    names: Vec<String>,
    /// Write the pages of all commands to a folder
    #[arg(long, value_name = "DIR", conflicts_with = "names")]
    all: Option<PathBuf>,
}

impl Manual {
    /// Prints a page, or writes all of them.
    pub fn run(&self, mut whole: Command) -> Result<()> {
        whole.build();
        if let Some(folder) = &self.all {
            files::make_folder(folder)?;
            return write_all(&whole, folder);
        }
        let mut command = &whole;
        for name in &self.names {
            let Some(inner) = command.find_subcommand(name) else {
                let known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
                bail!("COMMAND: found {name:?}, expected one of {}", known.join(", "));
            };
            command = inner;
        }
        console::bytes(&page(command)?);
        Ok(())
    }
}

/// The page of a command and of all below it, each called by its whole name.
fn write_all(command: &Command, folder: &Path) -> Result<()> {
    let path = folder.join(format!("{}.1", title(command)));
    files::write(&path, page(command)?)?;
    let shown = command.get_subcommands().filter(|inner| inner.get_name() != "help");
    for inner in shown {
        write_all(inner, folder)?;
    }
    Ok(())
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let mut roff = Vec::new();
    let after = command.get_after_help().map(ToString::to_string);
    let bare = command.clone().after_help(None::<&str>);
    let man = Man::new(bare).title(title(command)).source(source());
    man.render(&mut roff).context("cannot write the page")?;
    if let Some(after) = after {
        roff.extend(examples(&after).into_bytes());
    }
    Ok(roff)
}

/// What stands behind the flags. Lines that are indented are a list or commands and stay as they are;
/// the others flow.
fn examples(after: &str) -> String {
    let mut lines = vec![".SH EXAMPLES".to_owned()];
    let mut is_list = false;
    for line in after.trim_end().lines() {
        let was_list = is_list;
        is_list = line.starts_with([' ', '\t']) && !line.trim().is_empty();
        match (was_list, is_list) {
            (false, true) => lines.push(".nf".to_owned()),
            (true, false) => lines.push(".fi".to_owned()),
            (true, true) | (false, false) => {}
        }
        lines.push(if line.trim().is_empty() { ".PP".to_owned() } else { escaped(line) });
    }
    if is_list {
        lines.push(".fi".to_owned());
    }
    lines.join("\n") + "\n"
}

/// A line that says to roff what it says to people.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    if line.starts_with('.') { format!("\\&{line}") } else { line }
}

fn source() -> String {
    format!("fedra {}", env!("CARGO_PKG_VERSION"))
}

/// `fedra-account-epsilon`
fn title(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_stays_a_list_and_prose_flows() {
        let after = "Examples:\n  a --b\n  c 'd'\n\nProse\ngoes on:\n  one\n  two\n.end";
        let expected = ".SH EXAMPLES\nExamples:\n.nf\n  a \\-\\-b\n  c \\(aqd\\(aq\n.fi\n.PP\nProse\ngoes on:\n\
                        .nf\n  one\n  two\n.fi\n\\&.end\n";
        assert_eq!(examples(after), expected);
    }
}
