//! Where a prompt comes from: a flag, a file or standard input.

use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

/// The most that a prompt file may have; a million tokens have some megabytes.
const LONGEST_PROMPT: u64 = 64 << 20;

#[derive(Args)]
#[group(multiple = false)]
pub(super) struct Prompt {
    /// The prompt
    #[arg(long = "prompt", value_name = "TEXT")]
    text: Option<String>,
    /// Read the prompt from a file
    #[arg(long = "prompt-file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Read the prompt from standard input
    #[arg(value_name = "-", value_parser = ["-"])]
    stdin: Option<String>,
}

impl Prompt {
    /// The question that a flag or a file asks, where one does.
    pub fn given(&self) -> Result<Option<String>> {
        if self.text.is_none() && self.file.is_none() && self.stdin.is_none() {
            return Ok(None);
        }
        self.read().map(Some)
    }

    pub fn read(&self) -> Result<String> {
        match (&self.text, &self.file) {
            (None, None) if self.stdin.is_none() => bail!(
                "found no prompt, expected --prompt, --prompt-file or -\n\
                 hint: --chat holds a conversation"
            ),
            (Some(text), _) => Ok(text.clone()),
            (None, Some(file)) => {
                let name = file.display();
                let open = std::fs::File::open(file);
                let open = open.with_context(|| format!("--prompt-file: cannot open {name}"))?;
                limited(open, &format!("--prompt-file {name}"))
            }
            (None, None) => limited(std::io::stdin().lock(), "standard input"),
        }
    }
}

/// The text of a source that may be endless.
pub(super) fn limited(from: impl Read, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let read = from.take(LONGEST_PROMPT + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("{name}: cannot read it"))?;
    if bytes.len() as u64 > LONGEST_PROMPT {
        bail!("{name}: found more than {LONGEST_PROMPT} bytes, expected a prompt");
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow::anyhow!("{name}: found a byte that is no UTF-8 at {at}, expected text in UTF-8")
    })
}
