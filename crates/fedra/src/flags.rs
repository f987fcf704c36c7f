//! Errors in the words of somebody who gave flags and wrote no experiment file.
//!
//! `fedra predict` and `fedra evaluate` read a file through the code that reads the rows of an
//! experiment, whose errors name its keys. Nobody wrote those keys here, so each becomes the flag that
//! says the same.

use fedra_data::DataError;

use crate::error::Error;

/// Keys, and what stands for them on a command line.
const FLAGS: [(&str, &str); 8] = [
    ("data.path", "FILE"),
    ("data.task", "--task"),
    ("data.max_tokens", "--max-tokens"),
    ("data.encoding", "--encoding"),
    ("data.delimiter", "--delimiter"),
    ("data.missing", "--missing"),
    ("model.path", "--model"),
    ("model.adapter", "--model"),
];

/// The same error with flags in the place of keys.
pub(crate) fn in_flags(error: Error) -> Error {
    if let Error::Data(error) = error {
        return Error::Data(data_in_flags(error));
    }
    if let Error::Complaint(complaint) = error {
        let key = flag(complaint.key());
        return Error::Complaint(complaint.about(key));
    }
    if let Error::Within { what, source } = error {
        let source = in_flags(*source);
        // The path is in what follows.
        return match what.as_str() {
            "data.path" => source,
            what => Error::Within { what: flag(what), source: Box::new(source) },
        };
    }
    error
}

/// The same error about rows, with a flag where it speaks of a key.
pub(crate) fn data_in_flags(mut error: DataError) -> DataError {
    if let Some(advice) = error.advice_mut() {
        let value = advice.value.take().map_or(String::new(), |value| format!(" {value}"));
        advice.key = format!("{}{value}", flag(&advice.key));
    }
    error
}

fn flag(key: &str) -> String {
    if let Some(column) = key.strip_prefix("data.columns.") {
        return format!("--columns {column}");
    }
    let known = FLAGS.iter().find(|(name, _)| *name == key);
    known.map_or_else(|| key.to_owned(), |(_, flag)| (*flag).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::complaint::Complaint;
    use fedra_data::Advice;

    #[test]
    fn a_key_that_nobody_wrote_is_told_as_its_flag() {
        let row = DataError::Row {
            file: "a.csv".into(),
            line: 3,
            found: "the byte 0xe9".to_owned(),
            expected: "UTF-8".to_owned(),
            advice: Some(Box::new(Advice {
                key: "data.encoding".to_owned(),
                value: Some("latin-1".to_owned()),
                effect: "may read it",
            })),
        };
        let within = Error::Within { what: "data.path".to_owned(), source: Box::new(row.into()) };
        assert_eq!(
            in_flags(within).in_words(),
            "a.csv:3: found the byte 0xe9, expected UTF-8; --encoding latin-1 may read it"
        );
        let complaint = Complaint::new("data.columns.label", "\"x\"", "a column");
        assert_eq!(
            in_flags(complaint.into()).in_words(),
            "--columns label: found \"x\", expected a column"
        );
    }
}
