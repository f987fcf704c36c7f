//! Errors in the words of somebody who gave flags.
//!
//! The library names the argument of a call, or the key of an experiment, that cannot be used. On a command
//! line each of them is a flag, and which one depends on the command.

use fedra::Error;
use fedra_data::DataError;

/// Keys that are flags of a command.
pub type Keys = &'static [&'static str];

/// Of `fedra advise`.
pub const ADVISE: Keys = &["rounds", "tolerance", "warmups", "scratch"];
/// Of `fedra audit`.
pub const AUDIT: Keys = &["canaries"];
/// Of `fedra compare`.
pub const COMPARE: Keys = &["out", "sweep", "tune", "baseline", "seeds"];
/// Of `fedra init`.
pub const INIT: Keys = &[
    "task",
    "text",
    "label",
    "client",
    "clients",
    "model",
    "preset",
    "method",
    "epsilon",
    "data.path",
    "data.missing",
];
/// Of a trained model and its answers.
pub const MODEL: Keys = &["model.path", "model.base", "model.best", "evaluate.predictions"];
/// The same, and of a file of rows.
pub const FILE: Keys = &[
    "model.path",
    "model.adapter",
    "model.base",
    "model.best",
    "model.multi_label",
    "evaluate.predictions",
    "input",
    "output",
    "data.path",
    "data.task",
    "data.split",
    "data.max_tokens",
    "data.encoding",
    "data.delimiter",
    "data.columns",
    "data.missing",
    "device",
    "precision",
];

/// The same error with flags in the place of keys.
pub fn in_flags(error: anyhow::Error, keys: Keys) -> anyhow::Error {
    match error.downcast::<Error>() {
        Ok(error) => worded(error, keys).into(),
        Err(other) => other,
    }
}

fn worded(error: Error, keys: Keys) -> Error {
    if let Error::Data(error) = error {
        return Error::Data(data_in_flags(error, keys));
    }
    if let Error::Config(refusal) = error {
        let flag = flag(&refusal.key, keys);
        return Error::Config(refusal.with_key(flag));
    }
    if let Error::Within { what, source } = error {
        let source = worded(*source, keys);
        return match flag(&what, keys) {
            // The path is in what follows.
            file if file == "FILE" => source,
            what => Error::Within { what, source: Box::new(source) },
        };
    }
    error
}

/// The same error about rows, with a flag where it advises a key.
pub fn data_in_flags(mut error: DataError, keys: Keys) -> DataError {
    if let Some(advice) = error.advice_mut() {
        let known = flag(&advice.key, keys);
        if known != advice.key {
            let value = advice.value.take().map_or(String::new(), |value| format!(" {value}"));
            advice.key = known + &value;
        }
    }
    error
}

/// The last part of a key is the name of its flag, but for a few; what follows the key stays.
fn flag(key: &str, keys: Keys) -> String {
    let split = |name: &'static str| Some((name, key.strip_prefix(name)?));
    let is_whole = |(_, rest): &(&str, &str)| rest.is_empty() || rest.starts_with(['.', ' ']);
    let Some((name, rest)) = keys.iter().filter_map(|name| split(name)).find(is_whole) else {
        return key.to_owned();
    };
    match name {
        "data.path" => "FILE".to_owned(),
        "data.columns" => format!("--columns{}", rest.replacen('.', " ", 1)),
        "sweep" | "tune" => format!("--{name}{}", rest.replacen('.', " ", 1)),
        "model.path" | "model.adapter" => format!("--model{rest}"),
        "epsilon" => format!("--private{rest}"),
        name => {
            let last = name.rsplit('.').next().unwrap_or(name);
            format!("--{}{rest}", last.replace('_', "-"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra::ConfigError;
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
        for (key, keys, told) in [
            ("data.columns.label", FILE, "--columns label"),
            ("sweep.method.k", COMPARE, "--sweep method.k"),
            ("data.columns.label", MODEL, "data.columns.label"),
            ("models", INIT, "models"),
            ("model here", INIT, "--model here"),
            ("data.max_tokens", FILE, "--max-tokens"),
        ] {
            assert_eq!(flag(key, keys), told);
        }
        let refusal = ConfigError::new("out", "a file", "a folder").into();
        assert_eq!(worded(refusal, COMPARE).in_words(), "--out: found a file, expected a folder");
    }
}
