//! MIMIC-III: discharge summaries of `NOTEEVENTS.csv` with the codes of `DIAGNOSES_ICD.csv`.
//!
//! The codes come first and fit in memory; the notes stream past and only the one row a stay that
//! is kept survives. Rows of one patient share a document, so no patient is both trained on and
//! tested. Both files may be gzipped (`.csv.gz`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::delimited::Records;
use super::reader::{Limits, Reader};
use crate::{DataError, LabelSet, LabelShape, Result, Row, TableBuilder};

/// Which notes and codes of MIMIC-III to take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mimic {
    /// How many codes: the most frequent ones, ties by name. Where the table declares labels, these are the
    /// codes instead, and no row decides on them.
    pub codes: usize,
    /// How many notes at most, in file order.
    pub notes: Option<usize>,
    /// How many characters of a note at most; the rest is cut.
    pub characters: Option<usize>,
    /// What becomes of a stay with none of the codes.
    pub uncoded: Uncoded,
}

/// What becomes of a stay with none of the chosen codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Uncoded {
    /// It is left out, as in the usual "top 50" task.
    Drop,
    /// It stays, as an example of nothing.
    Keep,
}

impl Default for Mimic {
    fn default() -> Self {
        Self { codes: 50, notes: None, characters: None, uncoded: Uncoded::Drop }
    }
}

impl Mimic {
    /// Reads the two files of a directory into a table of a multi-label task.
    ///
    /// Of a stay's notes the first with category `Discharge summary` and description `Report` is
    /// taken; addenda and notes marked as errors are not.
    pub fn read(&self, directory: &Path, limits: Limits, builder: &mut TableBuilder) -> Result<()> {
        if builder.task.shape() != LabelShape::Many {
            let task = builder.task.name();
            return Err(DataError::setting("task", &task, "diagnosis for MIMIC-III"));
        }
        let codes = find(directory, "DIAGNOSES_ICD")?;
        let codes = self.codes(&codes, limits, builder.declared.as_ref())?;
        let file = find(directory, "NOTEEVENTS")?;
        let mut notes = Records::open(&file, ',', &settings(limits))?;
        let [subject, stay, category, description, error, text] =
            ["SUBJECT_ID", "HADM_ID", "CATEGORY", "DESCRIPTION", "ISERROR", "TEXT"]
                .map(|name| notes.column(name));
        let (subject, stay, category) = (subject?, stay?, category?);
        let (description, error, text) = (description?, error?, text?);
        let mut taken = BTreeSet::new();
        while self.notes.is_none_or(|most| taken.len() < most) {
            let Some(mut note) = notes.next()? else { break };
            let is_summary = note[category].trim() == "Discharge summary"
                && note[description].trim() == "Report"
                && note[error].trim() != "1";
            if !is_summary || note[stay].is_empty() || taken.contains(&note[stay]) {
                continue;
            }
            let labels = codes.get(&note[stay]).cloned().unwrap_or_default();
            if labels.is_empty() && self.uncoded == Uncoded::Drop {
                continue;
            }
            let body = self.shorten(std::mem::take(&mut note[text]));
            let document = format!("subject-{}", note[subject]);
            taken.insert(std::mem::take(&mut note[stay]));
            builder.push(Row::text(body).with_labels(labels).with_document(document))?;
        }
        Ok(())
    }

    /// The chosen codes of each stay.
    fn codes(
        &self,
        file: &Path,
        limits: Limits,
        declared: Option<&LabelSet>,
    ) -> Result<BTreeMap<String, Vec<String>>> {
        let mut records = Records::open(file, ',', &settings(limits))?;
        let (stay, code) = (records.column("HADM_ID")?, records.column("ICD9_CODE")?);
        let mut stays: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        while let Some(mut record) = records.next()? {
            let code = std::mem::take(&mut record[code]);
            if code.is_empty() {
                continue;
            }
            *counts.entry(code.clone()).or_default() += 1;
            stays.entry(std::mem::take(&mut record[stay])).or_default().push(code);
        }
        let mut ranked: Vec<(String, usize)> = counts.into_iter().collect();
        ranked.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let chosen: BTreeSet<String> = match declared {
            Some(labels) => labels.names().iter().cloned().collect(),
            None => ranked.into_iter().take(self.codes).map(|(code, _)| code).collect(),
        };
        for codes in stays.values_mut() {
            codes.retain(|code| chosen.contains(code));
        }
        Ok(stays)
    }

    fn shorten(&self, mut text: String) -> String {
        if let Some(most) = self.characters
            && let Some((end, _)) = text.char_indices().nth(most)
        {
            text.truncate(end);
        }
        text
    }
}

fn settings(limits: Limits) -> Reader {
    Reader { limits, ..Reader::default() }
}

fn find(directory: &Path, name: &str) -> Result<PathBuf> {
    let candidates = [format!("{name}.csv"), format!("{name}.csv.gz")];
    let mut paths = candidates.iter().map(|file| directory.join(file));
    paths.find(|path| path.is_file()).ok_or_else(|| {
        DataError::file(directory, "neither", format!("{} or {}", candidates[0], candidates[1]))
    })
}
