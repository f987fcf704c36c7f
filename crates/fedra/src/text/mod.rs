//! Words and tables for people: numbers and lists in words, columns, wrapped lines, names quoted for a shell, and the
//! headline score of a round.

pub mod grid;
pub mod headline;
pub mod label_table;
pub mod shell;
pub mod wrap;
