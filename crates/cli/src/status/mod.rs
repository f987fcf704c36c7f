//! `fedra status`: how a run stands, in one process or on several machines, from the files in its folder.
//!
//! Whoever runs the rounds writes them, whatever carries its messages, so this needs no port, no
//! certificate and no word with a server.

pub mod comparison;
mod metrics;
mod picture;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use fedra::text::shell;

use crate::console;
use picture::Picture;

const EXAMPLES: &str = "\
Examples:
  fedra status runs/study
  fedra status runs/study --format json
  fedra status runs/study --format prometheus > /var/lib/node_exporter/fedra.prom

The folder is that of `fedra run` or `fedra serve`, or of a comparison.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Status {
    /// The folder of a run, or of a comparison
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Text, one JSON object, or metrics in Prometheus's text format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Who is to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Prometheus,
}

impl Status {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        let runs = comparison::runs(&self.folder);
        if let [first, ..] = runs.as_slice() {
            let one = self.folder.join(first).display().to_string();
            if self.format != Format::Text {
                bail!(
                    "{} is a comparison; this format needs the folder of one run, such as {one}",
                    self.folder.display()
                );
            }
            console::data(comparison::text(&self.folder, &runs));
            console::say(format_args!("more about one run: fedra status {}", shell::quoted(&one)));
            return Ok(());
        }
        let picture = Picture::read(&self.folder)?;
        match self.format {
            Format::Text => console::data(picture.text().trim_end()),
            Format::Json => console::json(picture.json()),
            Format::Prometheus => console::bytes(metrics::of(&picture).as_bytes()),
        }
        Ok(())
    }
}
