//! The only places where the program speaks: data on stdout, words for people on stderr.
//!
//! Neither may end the program: whoever reads may stop listening, as `head` does, and a disk behind
//! a redirection may be full. Data that could not be written are a failure all the same: it is said
//! once, and the program's status tells ([`failed`]). Names out of files are part of what is said, so
//! nothing that a terminal would obey passes here: words for people have it escaped as Rust does, JSON as
//! JSON does, so that a parser reads what was there.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use console_terminal::Term;
use fedra::text::grid::Grid;
use fedra::text::wrap::wrapped;
use fedra_data::{printable, printable_json};

use crate::screen;

static FAILED: AtomicBool = AtomicBool::new(false);

/// A line of data for people; [`json`] is for programs.
pub fn data(line: impl Display) {
    check(screen::aside(|| writeln!(io::stdout(), "{}", shown(line))));
}

/// Finished JSON: one value, or one line of several.
pub fn json(finished: impl Display) {
    let finished = finished.to_string();
    let shown = printable_json(finished.trim_end());
    check(screen::aside(|| writeln!(io::stdout(), "{shown}")));
}

/// Data as they are.
pub fn bytes(bytes: &[u8]) {
    let mut stdout = io::stdout();
    check(stdout.write_all(bytes).and_then(|()| stdout.flush()));
}

/// A piece of text: as it is for a file or a pipe, without anything that a terminal would obey for
/// a terminal.
pub fn text(piece: &str) {
    let safe = if io::stdout().is_terminal() { shown(piece) } else { piece.to_owned() };
    bytes(safe.as_bytes());
}

/// Text for people on stdout, set as wide as the terminal is.
pub fn page(text: impl Display) {
    data(fitted(text.to_string(), &Term::stdout()));
}

/// A table for people on stdout.
pub fn table(grid: &Grid) {
    data(grid.within(table_width()));
}

/// How wide tables are on stdout: 80 columns, where nothing else is known.
pub fn table_width() -> usize {
    screen::columns(&Term::stdout()).unwrap_or(80)
}

/// A line for people, broken between words where the terminal ends. If nobody can read it, there is nobody to
/// tell.
pub fn say(line: impl Display) {
    let text = fitted(shown(line), &Term::stderr());
    let _unread = screen::aside(|| writeln!(io::stderr(), "{text}"));
}

/// What stands in front of a line that is typed.
pub fn prompt(text: &str) {
    let mut stderr = io::stderr();
    let _unseen = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

fn fitted(text: String, stream: &Term) -> String {
    match screen::columns(stream) {
        Some(columns) => wrapped(&text, columns),
        None => text,
    }
}

/// Whether data could not be written.
pub fn failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Takes note of data that could not be written; a reader that is gone wanted no more.
pub fn check(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
        && !FAILED.swap(true, Ordering::Relaxed)
    {
        say(format_args!("error: cannot write to stdout: {error}"));
    }
}

/// The text with control characters escaped, all but line ends.
fn shown(text: impl Display) -> String {
    let text = text.to_string();
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}
