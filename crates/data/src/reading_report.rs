//! What reading did beside reading: blanks around names that were trimmed, rows that were left out.
//!
//! Neither changes a row that is as it should be, and both are counted, because a person who knows the
//! file should be told of it. A name with blanks around it would otherwise be a class or a client of its
//! own that looks like another.

use std::path::Path;

use crate::error::Mismatch;
use crate::row::{Answers, Row};
use crate::{Advice, DataError, RowPlace};

/// What reading did to the rows of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadingReport {
    /// Names that had blanks around them.
    pub trimmed: Trimmed,
    /// Rows without a text or a label.
    pub left_out: LeftOut,
}

/// How many names had blanks around them, which are no part of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Labels, of rows or of words.
    pub labels: u64,
    /// Names of clients.
    pub clients: u64,
    /// Names of documents.
    pub documents: u64,
    /// Names of columns.
    pub columns: u64,
}

/// Rows without a text or a label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// How many.
    pub rows: u64,
    /// The first few, each with what was found and expected there.
    pub(crate) first: Vec<(RowPlace, Mismatch, Option<Advice>)>,
}

impl Trimmed {
    /// Takes the blanks off a row's names, and counts them.
    pub(crate) fn of(row: &mut Row) -> Self {
        let mut trimmed = Self::default();
        row.labels.iter_mut().for_each(|label| trimmed.labels += trim(label));
        if let Answers::Choice(answers) = &mut row.answers {
            for (label, _) in answers {
                trimmed.labels += trim(label);
            }
        }
        let Self { clients, documents, .. } = &mut trimmed;
        for (name, count) in [(&mut row.client, clients), (&mut row.document, documents)] {
            if let Some(text) = name {
                *count += trim(text);
            }
            name.take_if(|text| text.is_empty());
        }
        trimmed
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.labels += other.labels;
        self.clients += other.clients;
        self.documents += other.documents;
        self.columns += other.columns;
    }
}

/// Most places that an error names.
const MOST_PLACES: usize = 4;

impl LeftOut {
    /// Where the first of them stood.
    pub fn place(&self) -> Option<&RowPlace> {
        self.first.first().map(|(place, _, _)| place)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.first.extend(other.first);
        self.first.truncate(MOST_PLACES);
    }

    /// The error about them, of so many rows of a file. Where all lack something, their column has
    /// another name, and there is nothing to count.
    pub(crate) fn refused(&self, rows: u64) -> DataError {
        let Some((place, (found, expected), advice)) = self.first.first() else {
            unreachable!("whoever complains has counted a row");
        };
        let (file, line) = place.get().unwrap_or((Path::new("rows"), 0));
        if self.rows == rows {
            let error = DataError::row(file, line, found.clone(), expected.clone());
            return error.advising(advice.clone());
        }
        let lines = self.first.iter().filter_map(|(place, _, _)| Some(place.get()?.1.to_string()));
        let lines: Vec<String> = lines.filter(|line| line != "0").collect();
        let more = if self.rows > lines.len() as u64 { ", .." } else { "" };
        let lines = match lines.as_slice() {
            [] | [_] => String::new(),
            several => format!(" (lines {}{more})", several.join(", ")),
        };
        let is_image = ["image", "PNG"].iter().any(|word| expected.contains(word));
        let what = if is_image { "an image" } else { "a text" };
        let verb = if self.rows == 1 { "lacks" } else { "lack" };
        let expected =
            format!("{expected}: {} of {rows} rows {verb} {what} or a label{lines}", self.rows);
        DataError::row(file, line, found.clone(), expected).advising(Advice::drop_missing())
    }
}

/// Takes the blanks off a name; how many names that changed.
pub(crate) fn trim(name: &mut String) -> u64 {
    let trimmed = name.trim();
    if trimmed.len() == name.len() {
        return 0;
    }
    *name = trimmed.to_owned();
    1
}

/// A name as it reads to a person in a hurry: names that differ only in case, in blanks or in how
/// Unicode spells a letter have one such form.
pub fn folded(name: &str) -> String {
    let mut normalised = tokenizers::NormalizedString::from(name);
    normalised.nfkc();
    let words: Vec<&str> = normalised.get().split_whitespace().collect();
    words.join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TableBuilder, Task};

    #[test]
    fn names_lose_the_blanks_around_them_and_are_counted() {
        let mut builder = TableBuilder::new(Task::Classes);
        for label in ["asthma", " asthma", "asthma\t\u{a0}", "Asthma"] {
            let row = Row::text("x").with_labels([label]).with_client(" north").with_document("d ");
            builder.push(row).unwrap();
        }
        builder.push(Row::text("x").with_labels(["asthma"]).with_client(" ")).unwrap();
        let table = builder.finish();
        assert_eq!(table.labels.names(), ["Asthma", "asthma"]);
        assert_eq!(
            table.reading.trimmed,
            Trimmed { labels: 2, clients: 5, documents: 4, columns: 0 }
        );
        assert_eq!(table.examples[0].client.as_deref(), Some("north"));
        assert_eq!(table.examples[4].client, None);
        // Declared names are names too.
        let declared = TableBuilder::new(Task::Classes).with_labels([" a ".to_owned()]);
        assert_eq!(declared.finish().labels.names(), ["a"]);
    }

    #[test]
    fn names_that_a_person_takes_for_one_fold_to_one() {
        for other in
            ["type ii diabetes", "Type  II Diabetes", "TYPE II DIABETES", "Type \u{2161} Diabetes"]
        {
            assert_eq!(folded(other), "type ii diabetes");
        }
        assert_eq!(folded("fie\u{300}vre"), folded("Fi\u{e8}vre"));
        assert_ne!(folded("asthma"), folded("asthmas"));
    }
}
