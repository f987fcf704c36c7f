//! The rounds of a run for other programs: `TensorBoard` events, CSV and Parquet, as `log` asks.
//!
//! `rounds.jsonl` stays the log that decides everything; these files are views of it. So nothing of
//! them is trusted: when a run begins or continues they are written again from the reports that the
//! checkpoint vouches for, and no round stands in them twice, however the process before ended.
//!
//! ```text
//! rounds.csv        a line a round, on the disk as soon as the round is complete
//! rounds.parquet    the same table, written when the rounds end or are interrupted
//! tensorboard/      an event a round, readable while the run is on
//! ```

mod csv;
mod parquet;
mod row;
mod tensorboard;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fedra_engine::{EngineError, RoundReport, Sink};

use self::csv::CsvFile;
use self::tensorboard::EventFile;
use crate::config::LogFormat;
use crate::error::{Context, Result};
use crate::folder::regular_file;
use crate::run_files::{ROUNDS_PARQUET, TENSORBOARD};

pub use self::row::{Column, Number, Row, Rows};
pub use self::tensorboard::is_event_file;

/// Writes the rounds of one run.
pub struct RoundFiles {
    folder: PathBuf,
    formats: BTreeSet<LogFormat>,
    rows: Rows,
    csv: Option<CsvFile>,
    events: Option<EventFile>,
}

impl RoundFiles {
    /// The files that an experiment asks for, with no round so far.
    pub fn new(folder: &Path, formats: &BTreeSet<LogFormat>) -> Self {
        let (folder, formats) = (folder.to_owned(), formats.clone());
        Self { folder, formats, rows: Rows::default(), csv: None, events: None }
    }

    /// Takes a round that was complete before.
    pub fn recall(&mut self, report: &RoundReport) {
        if !self.formats.is_empty() {
            self.rows.push(report);
        }
    }

    /// Writes what is there so far, in place of what an earlier process left.
    pub fn begin(&mut self) -> Result<()> {
        let shown = self.folder.display();
        if self.formats.contains(&LogFormat::Csv) {
            let file = CsvFile::create(&self.folder, &self.rows);
            self.csv = Some(file.with_context(|| format!("cannot write rounds.csv in {shown}"))?);
        }
        if self.formats.contains(&LogFormat::Tensorboard) {
            let file = EventFile::create(&self.folder.join(TENSORBOARD), &self.rows);
            self.events =
                Some(file.with_context(|| format!("cannot write {TENSORBOARD} in {shown}"))?);
        }
        Ok(())
    }

    /// The rounds have finished, or are to be resumed another time.
    pub fn finish(&self) -> Result<()> {
        if !self.formats.contains(&LogFormat::Parquet) {
            return Ok(());
        }
        let path = self.folder.join(ROUNDS_PARQUET);
        let bytes = parquet::encoded(&self.rows).map_err(|error| {
            crate::error::Error::Refused(format!("{}: {error}", path.display()))
        })?;
        regular_file::write(&path, &bytes)
    }
}

impl Sink for RoundFiles {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        self.recall(report);
        let refused = |what: &str, error: std::io::Error| {
            EngineError::Sink(format!("{}: {error}", self.folder.join(what).display()))
        };
        if let Some(csv) = &mut self.csv {
            csv.append(&self.folder, &self.rows)
                .map_err(|error| refused(crate::run_files::ROUNDS_CSV, error))?;
        }
        if let Some(events) = &mut self.events {
            events.append(&self.rows).map_err(|error| refused(TENSORBOARD, error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_files::ROUNDS_CSV;
    use std::fs;

    const LINE: &str = r#"{"round":0,"cohort":[0,1],"arrived":[0],"failed":[],"refused":[],"blocks":[],"changed":1,"loss":0.5,"bytes":{"up":10,"down":20,"full_up":1,"full_down":1},"effort":1,"seconds":0.5,"slowest":0.1,"most_updates_held":1,"scores":[]}"#;
    const SCORES: &str =
        r#""scores":[{"on":"central_test","loss":0.25,"mean":{"macro_f1":0.75},"each":[]}]"#;

    fn report(round: u32) -> RoundReport {
        let line = LINE.replace("\"round\":0", &format!("\"round\":{round}"));
        // Every other round is scored, the first is not.
        let line = if round % 2 == 1 { line.replace("\"scores\":[]", SCORES) } else { line };
        serde_json::from_str(&line).unwrap()
    }

    fn all() -> BTreeSet<LogFormat> {
        [LogFormat::Tensorboard, LogFormat::Csv, LogFormat::Parquet].into()
    }

    fn events(folder: &Path) -> Vec<Vec<u8>> {
        let entries = fs::read_dir(folder.join(TENSORBOARD)).unwrap();
        entries.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
    }

    #[test]
    fn a_run_that_was_killed_and_goes_on_leaves_every_round_once() {
        let place = tempfile::tempdir().unwrap();
        let (whole, parts) = (place.path().join("whole"), place.path().join("parts"));
        for folder in [&whole, &parts] {
            fs::create_dir(folder).unwrap();
        }
        let mut files = RoundFiles::new(&whole, &all());
        files.begin().unwrap();
        (0..4).for_each(|round| files.round(&report(round)).unwrap());
        files.finish().unwrap();

        // Killed after its third round was logged and before the checkpoint: two rounds count.
        let mut files = RoundFiles::new(&parts, &all());
        files.begin().unwrap();
        (0..3).for_each(|round| files.round(&report(round)).unwrap());
        drop(files);
        let mut files = RoundFiles::new(&parts, &all());
        (0..2).for_each(|round| files.recall(&report(round)));
        files.begin().unwrap();
        (2..4).for_each(|round| files.round(&report(round)).unwrap());
        files.finish().unwrap();

        let read = |folder: &Path, name: &str| fs::read(folder.join(name)).unwrap();
        assert_eq!(read(&whole, ROUNDS_CSV), read(&parts, ROUNDS_CSV));
        assert_eq!(read(&whole, ROUNDS_PARQUET), read(&parts, ROUNDS_PARQUET));
        let (whole, parts) = (events(&whole), events(&parts));
        assert_eq!((whole.len(), parts.len()), (1, 1), "one file, whoever wrote before");
        assert_eq!(whole[0].len(), parts[0].len(), "the same events, at other times");
    }

    #[test]
    fn a_score_that_comes_late_gets_a_column_and_earlier_rounds_an_empty_cell() {
        let place = tempfile::tempdir().unwrap();
        let mut files = RoundFiles::new(place.path(), &[LogFormat::Csv].into());
        files.begin().unwrap();
        files.round(&report(0)).unwrap();
        let text = || fs::read_to_string(place.path().join(ROUNDS_CSV)).unwrap();
        assert!(!text().contains("macro_f1"));
        (1..3).for_each(|round| files.round(&report(round)).unwrap());
        assert_eq!(
            text(),
            "round,loss,cohort,arrived,failed,refused,failed_attempts,blocks,changed,bytes.up,\
             bytes.down,bytes.full_up,bytes.full_down,bytes.evaluation,effort,seconds,slowest,\
             central_test.loss,central_test.macro_f1\n\
             0,0.5,2,1,0,0,0,0,1,10,20,1,1,0,1,0.5,0.1,,\n\
             1,0.5,2,1,0,0,0,0,1,10,20,1,1,0,1,0.5,0.1,0.25,0.75\n\
             2,0.5,2,1,0,0,0,0,1,10,20,1,1,0,1,0.5,0.1,,\n"
        );
    }

    #[test]
    fn without_formats_nothing_is_written() {
        let place = tempfile::tempdir().unwrap();
        let mut files = RoundFiles::new(place.path(), &BTreeSet::new());
        files.begin().unwrap();
        files.round(&report(1)).unwrap();
        files.finish().unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
