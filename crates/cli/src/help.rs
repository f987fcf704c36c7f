//! Help that fits a screen.
//!
//! `-h` says what flags there are, with examples; `--help` says all there is to say. Both are set in the
//! narrow form, a flag a line: clap's long form spreads twenty flags over a hundred lines. So which of
//! the two is asked for is seen here, and the command is made accordingly.

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
    let after = command.get_after_help().map(ToString::to_string);
    let long = command.get_long_about().map(ToString::to_string);
    let mut command = command.max_term_width(WIDTH);
    match detail {
        Detail::Short => {
            // What comes first are the examples; what is explained behind them can wait.
            if let Some(after) = after {
                let first = after.split("\n\n").next().unwrap_or_default().to_owned();
                command = command.after_help(first);
            }
        }
        Detail::Full => {
            if let Some(long) = long {
                command = command.about(long);
            }
            command = command.mut_args(|arg: Arg| {
                let long = arg.get_long_help().map(ToString::to_string);
                match long {
                    Some(long) => arg.help(long).long_help(None::<&str>),
                    None => arg,
                }
            });
        }
    }
    command = command.long_about(None::<&str>);
    command.mut_subcommands(|inner| shaped(inner, detail))
}
