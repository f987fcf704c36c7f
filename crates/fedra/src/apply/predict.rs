//! A trained model applied to texts or images: labels with probabilities, or spans with their places.
//!
//! Rows stream: some thousand are read, answered in batches of like length on all cores, and written
//! in their order before more are read. So a file may be larger than memory, and what its rows hold
//! beside the text is written beside the answer.
//!
//! Probabilities are those of the head's outputs (softmax over one label, a sigmoid for each of
//! several), computed in f64 from its f32 logits. A span is made of words as scores make it
//! ([`fedra_data::spans`]), and its probability is the mean over its words of the probability of their
//! tags.

mod cells;
mod keys;
mod output;
mod parquet;
mod prediction;

pub use output::{PredictionWriter, WriteSettings};
pub use prediction::{FoundSpan, LabelProbability, Prediction};

use std::io::{Read, Write};

use fedra_data::{Body, DataError, RowPlace, TextFile, TextFormat, TextRow, TextSink, WordsAre};

use crate::apply::predict::keys::Keys;
use crate::apply::trained_model::{Reading, TrainedModel};
use crate::error::{Error, Result};

/// Most rows that are answered before more are read.
const ROWS: usize = 2048;
/// Most bytes of text that wait to be answered.
const BYTES: usize = 8 << 20;

/// How answers are made.
#[derive(Clone, Copy, Debug)]
pub struct PredictSettings {
    /// A label is answered where its probability is above this, where any number may be.
    pub threshold: f64,
    /// What becomes of rows that cannot be read.
    pub bad_rows: BadRows,
}

impl Default for PredictSettings {
    fn default() -> Self {
        Self { threshold: 0.5, bad_rows: BadRows::Refuse }
    }
}

/// What becomes of rows that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadRows {
    /// The first ends the reading.
    #[default]
    Refuse,
    /// They are left out and counted.
    Skip,
}

/// What was done.
#[derive(Debug, Default)]
pub struct PredictReport {
    /// Rows that were answered.
    pub rows: u64,
    /// Rows whose text was longer than the model reads.
    pub truncated: u64,
    /// Rows that were answered though they have no text.
    pub blank: u64,
    /// Where the first of them stands.
    pub first_blank: RowPlace,
    /// Rows that were left out.
    pub skipped: u64,
    /// What was wrong with the first few of them.
    pub complaints: Vec<DataError>,
}

/// Most complaints that are kept.
const MOST_COMPLAINTS: usize = 5;

impl TrainedModel {
    /// What is said about each text.
    pub fn predict(
        &self,
        texts: &[Body],
        threshold: f64,
    ) -> Result<Vec<Result<Prediction, DataError>>> {
        let logits = self.predictor().logits(texts)?;
        let answered = logits.into_iter().zip(texts);
        Ok(answered
            .map(|(logits, text)| Ok(Prediction::of(self, &logits?, text, threshold)))
            .collect())
    }

    /// Answers every row of a file, or of an open stream in its place, and gives back what was written
    /// to. Whoever follows is told how many rows are answered, some thousand at a time.
    pub fn predict_rows<W: Write + Send>(
        &self,
        (file, stream): (&TextFile, Option<Box<dyn Read>>),
        settings: PredictSettings,
        mut output: PredictionWriter<W>,
        progress: &dyn Fn(u64),
    ) -> Result<(PredictReport, W)> {
        let is_file = std::fs::metadata(&file.path).is_ok_and(|about| about.is_file());
        if output.needs_columns()
            && file.format == TextFormat::JsonLines
            && stream.is_none()
            && is_file
        {
            let keys = keys::keys_of(file)?;
            if !keys.is_empty() {
                output.columns(&keys)?;
            }
        }
        let mut sink = Rows {
            model: self,
            file,
            settings,
            output: &mut output,
            progress,
            held: Vec::new(),
            bytes: 0,
            report: PredictReport::default(),
        };
        file.read(stream, &mut sink)?;
        sink.answer()?;
        let report = sink.report;
        Ok((report, output.finish()?))
    }

    /// What a list in the text's column is to this model.
    pub fn words_are(&self) -> WordsAre {
        match self.reading {
            Reading::Words => WordsAre::Answered,
            Reading::OneLabel | Reading::SeveralLabels => WordsAre::Joined,
        }
    }
}

/// Rows that wait to be answered together.
struct Rows<'a, W: Write + Send> {
    model: &'a TrainedModel,
    file: &'a TextFile,
    settings: PredictSettings,
    output: &'a mut PredictionWriter<W>,
    progress: &'a dyn Fn(u64),
    held: Vec<TextRow>,
    bytes: usize,
    report: PredictReport,
}

impl<W: Write + Send> Rows<'_, W> {
    /// Answers those that wait.
    fn answer(&mut self) -> Result<()> {
        if self.output.needs_columns() && !self.held.is_empty() {
            let mut keys = Keys::default();
            self.held.iter().try_for_each(|row| keys.note(&row.record))?;
            self.output.columns(&keys.names)?;
        }
        let (mut bodies, mut rows) = (Vec::new(), Vec::new());
        for TextRow { line, body, record } in self.held.drain(..) {
            bodies.push(body);
            rows.push((line, record));
        }
        self.bytes = 0;
        let answers = self.model.predict(&bodies, self.settings.threshold)?;
        for (((line, record), body), answer) in rows.into_iter().zip(&bodies).zip(answers) {
            match answer {
                Ok(prediction) => {
                    self.report.rows += 1;
                    self.report.truncated += u64::from(prediction.truncated() > 0);
                    if body.is_blank() {
                        if self.report.blank == 0 {
                            let file = self.file.path.as_path();
                            self.report.first_blank = RowPlace::new(file.into(), line);
                        }
                        self.report.blank += 1;
                    }
                    self.output.write(&record, body, &prediction)?;
                }
                Err(error) => {
                    let place = (self.file.path.as_path(), line);
                    self.bad_row(body.blamed(error, place))?;
                }
            }
        }
        (self.progress)(self.report.rows);
        Ok(())
    }
}

impl<W: Write + Send> TextSink for Rows<'_, W> {
    type Error = Error;

    fn columns(&mut self, names: &[String]) -> Result<()> {
        self.output.columns(names)
    }

    fn row(&mut self, row: TextRow) -> Result<()> {
        self.bytes += match &row.body {
            Body::Text(text) => text.len(),
            Body::Pair(first, second) => first.len() + second.len(),
            Body::Words(words) => words.iter().map(String::len).sum(),
            Body::Conversation(messages) => {
                messages.iter().map(|message| message.content.len()).sum()
            }
            Body::Image(image) => usize::try_from(image.bytes()).unwrap_or(usize::MAX / 2),
        };
        self.held.push(row);
        if self.held.len() >= ROWS || self.bytes >= BYTES {
            self.answer()?;
        }
        Ok(())
    }

    fn bad_row(&mut self, error: DataError) -> Result<()> {
        match self.settings.bad_rows {
            BadRows::Refuse => {
                // What was read before it is answered first.
                if !self.held.is_empty() {
                    self.answer()?;
                    self.output.flush()?;
                }
                Err(error.into())
            }
            BadRows::Skip => {
                self.report.skipped += 1;
                if self.report.complaints.len() < MOST_COMPLAINTS {
                    self.report.complaints.push(error);
                }
                Ok(())
            }
        }
    }
}
