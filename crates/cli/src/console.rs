//! The only places where the program speaks: data on stdout, words for people on stderr.
//!
//! Names out of files are part of what is said, so nothing that a terminal would obey passes here.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

use fedra_data::printable;

/// A line of data. Whoever reads it may stop listening, as `head` does.
pub fn data(line: impl Display) {
    let line = shown(line);
    if let Err(error) = writeln!(std::io::stdout(), "{line}") {
        assert!(error.kind() == ErrorKind::BrokenPipe, "cannot write to stdout: {error}");
    }
}

/// A line for people.
#[expect(clippy::print_stderr, reason = "stderr is where people read what happens")]
pub fn say(line: impl Display) {
    let line = shown(line);
    eprintln!("{line}");
}

/// The text with control characters escaped, all but line ends.
fn shown(text: impl Display) -> String {
    let text = text.to_string();
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}
