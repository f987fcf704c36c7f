//! Help that fits a screen.
//!
//! `-h` lists the flags, each with the first clause of its description, and the examples; `--help` says all
//! there is to say. clap chooses between the two by description, not by clause, so which of them is asked
//! for is seen here, and the command is made accordingly.

use clap::{Arg, Command};

/// Columns of help at most; less where the terminal is narrower.
pub const WIDTH: usize = 100;

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What `-h` asks for.
    Short,
    /// What `--help` asks for, and manual pages.
    Full,
}

impl Detail {
    /// What the arguments of this process ask for, should they ask for help.
    pub fn asked() -> Self {
        let mut flags = std::env::args_os().skip(1).take_while(|argument| argument != "--");
        if flags.any(|argument| argument == "-h") { Self::Short } else { Self::Full }
    }
}

/// The same command, and all below it, with help in so much detail.
pub fn shaped(command: Command, detail: Detail) -> Command {
    let mut command = command.max_term_width(WIDTH);
    if detail == Detail::Short {
        if let Some(after) = command.get_after_help().map(ToString::to_string) {
            command = command.after_help(examples(&after));
        }
        command = command.mut_args(|arg: Arg| {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            arg.help(first_clause(&help).to_owned())
        });
    }
    command.mut_subcommands(|inner| shaped(inner, detail))
}

/// Lines of examples that `-h` shows, their heading among them.
const EXAMPLES: usize = 4;

/// The first examples; the others, and what is explained behind them, can wait.
fn examples(after: &str) -> String {
    let mut lines: Vec<&str> = after.lines().take(EXAMPLES).collect();
    // A command that continues in the next line is shown whole or not at all.
    while lines.last().is_some_and(|line| line.is_empty() || line.ends_with('\\')) {
        lines.pop();
    }
    if lines.len() < after.lines().count() {
        lines.push("--help explains more");
    }
    lines.join("\n")
}

/// Letters of a description that fit beside most flags.
const CLAUSE: usize = 56;

/// What a flag does, without what else could be said about it.
fn first_clause(help: &str) -> &str {
    if help.chars().count() <= CLAUSE {
        return help;
    }
    let ends = ["; ", " (", " [", ": "].iter().filter_map(|end| help.find(end));
    ends.min().map_or(help, |end| &help[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_descriptions_end_at_their_first_clause() {
        assert_eq!(first_clause("Short (so it stays)"), "Short (so it stays)");
        let long =
            "Store weights as bf16: half the memory, faster, and a little less exact than f32";
        assert_eq!(first_clause(long), "Store weights as bf16");
    }

    #[test]
    fn an_example_is_never_cut_in_two() {
        let after = "Examples:\n  a\n  b \\\n    c \\\n    d\n\nMore.";
        assert_eq!(examples(after), "Examples:\n  a\n--help explains more");
        assert_eq!(examples("Examples:\n  a\n\nMore."), "Examples:\n  a\n\nMore.");
        assert_eq!(examples("Examples:\n  a"), "Examples:\n  a");
    }
}
