//! `fedra manual`: manual pages out of the same definitions as the help.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Command};
use clap_mangen::Man;

use crate::console;

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
            let shown = folder.display();
            fs::create_dir_all(folder).with_context(|| format!("cannot make {shown}"))?;
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
    fs::write(&path, page(command)?).with_context(|| format!("cannot write {}", path.display()))?;
    let shown = command.get_subcommands().filter(|inner| inner.get_name() != "help");
    for inner in shown {
        write_all(inner, folder)?;
    }
    Ok(())
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let mut roff = Vec::new();
    let man = Man::new(command.clone()).title(title(command)).source(source());
    man.render(&mut roff).context("cannot write the page")?;
    Ok(roff)
}

fn source() -> String {
    format!("fedra {}", env!("CARGO_PKG_VERSION"))
}

/// `fedra-account-epsilon`
fn title(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).replace(' ', "-")
}
