//! The only places where the program speaks: data on stdout, words for people on stderr.

/// A line of data.
#[expect(clippy::print_stdout, reason = "stdout is where results go")]
pub fn data(line: impl std::fmt::Display) {
    println!("{line}");
}

/// A line for people.
#[expect(clippy::print_stderr, reason = "stderr is where people read what happens")]
pub fn say(line: impl std::fmt::Display) {
    eprintln!("{line}");
}
