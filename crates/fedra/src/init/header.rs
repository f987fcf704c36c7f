//! Whether the first line of a table is a header.
//!
//! A file without one would lose its first row, whose text would become the name of a column: part of a
//! patient's record in an experiment file that is meant to be shared. So a first line that looks like a row
//! is refused, and the refusal does not repeat it.

use std::path::Path;

use fedra_data::{ColumnSurvey, Format, Survey};

use crate::error::{Result, refuse};

/// Words of a name from which on it is rather a text.
const MOST_WORDS: usize = 8;
/// Words from which on something with a comma or a full stop inside is rather a text.
const SENTENCE: usize = 4;

/// Refuses a table whose first line looks like one of its rows.
pub(super) fn check(path: &Path, format: Format, survey: &Survey) -> Result<()> {
    // Only these formats have the names of columns in their first line.
    if !matches!(format, Format::Csv | Format::Tsv) {
        return Ok(());
    }
    let shown = path.display();
    for (number, column) in (1..).zip(&survey.columns) {
        let why = if column.values.contains_key(column.name.trim()) {
            "is also a value in a row below"
        } else if is_sentence(column) {
            "reads like a text"
        } else {
            continue;
        };
        refuse!(
            "{shown}: the first line looks like a row and not like a header: its field {number} {why}\n\
             hint: put a line with the names of the columns first, such as text,label; if the first line is a header, \
             give that column a short name that none of its values has"
        );
    }
    Ok(())
}

fn is_sentence(column: &ColumnSurvey) -> bool {
    let name = column.name.trim();
    let words = name.split_whitespace().count();
    let has_stops =
        [", ", ". ", "; "].iter().any(|stop| name.contains(stop)) || name.ends_with('.');
    words > MOST_WORDS || (words >= SENTENCE && has_stops)
}

#[cfg(test)]
mod tests {
    use fedra_data::Reader;

    use super::*;

    #[test]
    fn a_first_line_that_looks_like_a_row_is_refused_without_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.csv");
        let checked = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let survey = Survey::of(Format::Csv, &path, &Reader::default(), 100).unwrap();
            check(&path, Format::Csv, &survey).map_err(|error| error.to_string())
        };
        for (text, why) in [
            (
                "stent placed,cardio\nulcer found,gastro\nchest pain,cardio\n",
                "field 2 is also a value",
            ),
            (
                "\"stent placed, chest pain, ecg\"\n\"ulcer, nausea, pain\"\n",
                "field 1 reads like a text",
            ),
            ("she came in at night with a fever and a cough\nno\n", "field 1 reads like a text"),
            // Two files with a header each, one behind the other.
            ("text,label\na,x\ntext,label\nb,y\n", "field 1 is also a value"),
        ] {
            let refused = checked(text).unwrap_err();
            assert!(refused.contains(why), "{refused}");
            assert!(!refused.contains("stent") && !refused.contains("fever"), "{refused}");
        }
        for text in
            ["text,label\na,x\nb,y\n", "How satisfied are you?,0\nvery,1\nhardly,2\n", "a,b\n"]
        {
            checked(text).unwrap();
        }
    }
}
