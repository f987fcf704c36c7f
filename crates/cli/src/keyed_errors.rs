//! Errors in the words of somebody who gave flags.
//!
//! The library names the argument of a call, or the key of an experiment, that cannot be used. On a command
//! line each of them is a flag, and which one depends on the command.

use fedra::Error;
use fedra_data::DataError;

/// Keys, and what says the same on a command line. A key that ends in a dot or a blank stands for all that
/// begin so.
pub type Flags = &'static [(&'static str, &'static str)];

/// Of `fedra advise`.
pub const ADVISE: Flags = &[
    ("rounds", "--rounds"),
    ("tolerance", "--tolerance"),
    ("warmups", "--warmups"),
    ("scratch", "--scratch"),
];
/// Of `fedra audit`.
pub const AUDIT: Flags = &[("canaries", "--canaries")];
/// Of `fedra compare`.
pub const COMPARE: Flags = &[
    ("out", "--out"),
    ("sweep", "--sweep"),
    ("sweep.", "--sweep."),
    ("tune", "--tune"),
    ("tune.", "--tune."),
];
/// Of `fedra init`.
pub const INIT: Flags = &[
    ("task", "--task"),
    ("text", "--text"),
    ("label", "--label"),
    ("client", "--client"),
    ("clients", "--clients"),
    ("model", "--model"),
    ("model ", "--model "),
    ("preset", "--preset"),
    ("method", "--method"),
    ("epsilon", "--private"),
];
/// Of a trained model and what is written of its answers.
pub const MODEL: Flags = &[
    ("model.path", "--model"),
    ("model.base", "--base"),
    ("model.best", "--best"),
    ("evaluate.predictions", "--predictions"),
];
/// The same, and of a file of rows.
pub const FILE: Flags = &[
    ("model.path", "--model"),
    ("model.adapter", "--model"),
    ("model.base", "--base"),
    ("model.best", "--best"),
    ("model.multi_label", "--multi-label"),
    ("evaluate.predictions", "--predictions"),
    ("input", "--input"),
    ("output", "--output"),
    ("data.path", "FILE"),
    ("data.task", "--task"),
    ("data.split", "--split"),
    ("data.max_tokens", "--max-tokens"),
    ("data.encoding", "--encoding"),
    ("data.delimiter", "--delimiter"),
    ("data.missing", "--missing"),
    ("data.columns.", "--columns "),
];

/// The same error with flags in the place of keys.
pub fn in_flags(error: anyhow::Error, flags: Flags) -> anyhow::Error {
    match error.downcast::<Error>() {
        Ok(error) => worded(error, flags).into(),
        Err(other) => other,
    }
}

fn worded(error: Error, flags: Flags) -> Error {
    if let Error::Data(error) = error {
        return Error::Data(data_in_flags(error, flags));
    }
    if let Error::Complaint(complaint) = error {
        let key = flag(complaint.key(), flags);
        return Error::Complaint(complaint.with_key(key));
    }
    if let Error::Within { what, source } = error {
        let source = worded(*source, flags);
        return match flag(&what, flags) {
            // The path is in what follows.
            file if file == "FILE" => source,
            what => Error::Within { what, source: Box::new(source) },
        };
    }
    error
}

/// The same error about rows, with a flag where it advises a key.
pub fn data_in_flags(mut error: DataError, flags: Flags) -> DataError {
    if let Some(advice) = error.advice_mut() {
        let known = flag(&advice.key, flags);
        if known != advice.key {
            let value = advice.value.take().map_or(String::new(), |value| format!(" {value}"));
            advice.key = known + &value;
        }
    }
    error
}

fn flag(key: &str, flags: Flags) -> String {
    let word = |(name, flag): &(&str, &str)| {
        let rest = key.strip_prefix(name)?;
        let is_whole = rest.is_empty() || name.ends_with(['.', ' ']);
        is_whole.then(|| format!("{flag}{rest}"))
    };
    flags.iter().find_map(word).unwrap_or_else(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra::Complaint;
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
            worded(within, FILE).in_words(),
            "a.csv:3: found the byte 0xe9, expected UTF-8; --encoding latin-1 may read it"
        );
        for (key, flags, told) in [
            ("data.columns.label", FILE, "--columns label"),
            ("sweep.method.k", COMPARE, "--sweep.method.k"),
            ("data.columns.label", MODEL, "data.columns.label"),
            ("models", INIT, "models"),
        ] {
            assert_eq!(flag(key, flags), told);
        }
        let complaint = Complaint::new("out", "a file", "a folder").into();
        assert_eq!(worded(complaint, COMPARE).in_words(), "--out: found a file, expected a folder");
    }
}
