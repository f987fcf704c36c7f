//! The only places where the program speaks: data on stdout, words for people on stderr.

use std::io::{ErrorKind, Write};

/// A line of data. Whoever reads it may stop listening, as `head` does.
pub fn data(line: impl std::fmt::Display) {
    if let Err(error) = writeln!(std::io::stdout(), "{line}") {
        assert!(error.kind() == ErrorKind::BrokenPipe, "cannot write to stdout: {error}");
    }
}

/// A line for people.
#[expect(clippy::print_stderr, reason = "stderr is where people read what happens")]
pub fn say(line: impl std::fmt::Display) {
    eprintln!("{line}");
}
