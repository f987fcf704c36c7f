//! How far a log of reports goes, so that a checkpoint can tell the log that belongs to it.
//!
//! The reports themselves stay out of the checkpoint, which would grow with every round; a chain of
//! digests takes their place. Times are left out of it: two runs of one experiment differ in nothing
//! else, and their checkpoints are to be equal to the bit.
//!
//! ```text
//! digest of round r = SHA-256(digest of round r - 1, report of round r without times)
//! ```

use std::collections::BTreeMap;

use fedra_plan::Digest;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::EngineError;
use crate::report::RoundReport;

/// What a report says about the machine and not about the run.
const TIMES: [&str; 4] = ["seconds", "slowest", "phases", "most_updates_held"];

/// The reports that a log begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogMark {
    /// How many.
    pub reports: u64,
    /// The last link of their chain.
    pub digest: Digest,
}

impl Default for LogMark {
    fn default() -> Self {
        Self { reports: 0, digest: Digest::of(&[]) }
    }
}

impl LogMark {
    /// The same with one more line of the log; refuses a line that is no JSON object.
    pub fn with(self, line: &[u8]) -> Result<Self, EngineError> {
        let unread = |reason: String| EngineError::Sink(format!("a line of the log: {reason}"));
        // Values stay the text that they are: a report of thousands of clients is long.
        let fields: BTreeMap<&str, &RawValue> =
            serde_json::from_slice(line).map_err(|error| unread(error.to_string()))?;
        let mut link = self.digest.as_bytes().to_vec();
        for (key, value) in fields.into_iter().filter(|(key, _)| !TIMES.contains(key)) {
            for part in [key, ":", value.get(), "\n"] {
                link.extend_from_slice(part.as_bytes());
            }
        }
        Ok(Self { reports: self.reports + 1, digest: Digest::of(&link) })
    }
}

impl RoundReport {
    /// The report as one line of a log, with its end.
    pub fn to_line(&self) -> Result<Vec<u8>, EngineError> {
        let line = serde_json::to_vec(self);
        let mut line = line.map_err(|error| EngineError::Sink(error.to_string()))?;
        line.push(b'\n');
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(lines: &[&str]) -> LogMark {
        let add = |mark: LogMark, line: &&str| mark.with(line.as_bytes()).expect("JSON");
        lines.iter().fold(LogMark::default(), add)
    }

    const FIRST: &str = r#"{"round":0,"loss":0.5,"seconds":1.25}"#;
    const TIMED: &str = r#"{"round":0,"loss":0.5,"seconds":2.0,"phases":{"train":1.5}}"#;
    const SECOND: &str = r#"{"round":1,"loss":null,"seconds":1.5}"#;

    #[test]
    fn times_are_no_part_of_it_and_everything_else_is() {
        let whole = mark(&[FIRST, SECOND]);
        assert_eq!(whole.reports, 2);
        assert_eq!(mark(&[&FIRST.replace("1.25", "9.0"), SECOND]), whole);
        // A log from before phases were measured is still the same log.
        assert_eq!(mark(&[TIMED, SECOND]), whole);
        assert_ne!(mark(&[&FIRST.replace("0.5", "0.6"), SECOND]), whole);
        assert_ne!(mark(&[SECOND, FIRST]).digest, whole.digest);
        assert_ne!(mark(&[FIRST]).digest, whole.digest);
    }

    #[test]
    fn a_torn_line_has_no_mark() {
        for torn in ["", "{\"round\":", "7", "{} {}"] {
            assert!(LogMark::default().with(torn.as_bytes()).is_err(), "{torn:?}");
        }
    }
}
