//! A synthetic clinic: notes that no patient wrote, hard in the ways that real notes are.
//!
//! The labels come from the grammar that wrote the words, so they are exact; the difficulty comes
//! from the lexicon. One word has several senses ('cold', 'culture', 'discharge', 'ms', 'pt'), a
//! list of the same words is tests, treatments or food according to a heading far away, articles
//! belong to a span or not, terms turn up that were never seen, and a disease that is denied,
//! past, feared or a relative's must not be coded. Guessing word by word therefore stays far
//! below reading in context; the tests of this crate hold both numbers.
//!
//! ```text
//! hospital-3  labs : potassium , iron 12 , zinc .          -> B-test each
//! hospital-3  meds : potassium , iron 12 , zinc .          -> B-treatment each
//! hospital-5  no evidence of af. known htn, stable on asa. -> 4019, not 42731
//! ```
//!
//! Hospitals differ by three knobs: how they write (feature shift), whom they treat (label shift)
//! and how much they hold (size skew).
//!
//! ```
//! use fedra_data::{Clinic, Task};
//! let clinic = Clinic { hospitals: 3, notes: 30, ..Clinic::default() };
//! let table = clinic.generate(Task::Concepts, 1)?;
//! assert_eq!(table.labels.len(), 7); // O and B-, I- of problem, test, treatment
//! # Ok::<(), fedra_data::DataError>(())
//! ```

mod hospital;
mod lexicon;
#[cfg(test)]
mod oracle;
mod settings;
mod templates;
mod voice;

pub use settings::Clinic;

use crate::{DataError, Dice, LabelShape, Result, Row, Table, TableBuilder, Task};
use hospital::Hospital;
use lexicon::DISEASES;
use templates::{FILLERS, LISTS, SECTIONS, STATEMENTS};
use voice::{Voice, Written};

impl Clinic {
    /// Writes the notes of a task. The same knobs, task and seed give the same notes.
    pub fn generate(&self, task: Task, seed: u64) -> Result<Table> {
        self.check()?;
        let mut builder = TableBuilder::new(task);
        match task {
            Task::Concepts | Task::Diagnosis => {}
            Task::Classes
            | Task::Tokens
            | Task::Language
            | Task::Choice
            | Task::Generation
            | Task::Chat
            | Task::Preference => {
                return Err(DataError::setting("task", &task.name(), "concepts or diagnosis"));
            }
        }
        for disease in DISEASES {
            if task.shape() == LabelShape::Many {
                builder.declare_label(disease.code);
            }
        }
        for hospital in Hospital::all(self, seed) {
            let mut dice = Dice::for_purpose(seed, &format!("{} {}", task.name(), hospital.name));
            for number in 1..=hospital.notes {
                let document = format!("{}/{number}", hospital.name);
                let voice = Voice { hospital: &hospital, dice: &mut dice };
                let rows = match task.shape() {
                    LabelShape::Many => vec![discharge_note(voice)],
                    LabelShape::One | LabelShape::PerWord | LabelShape::Absent => sections(voice),
                };
                for row in rows {
                    builder.push(row.with_client(&hospital.name).with_document(&document))?;
                }
            }
        }
        Ok(builder.finish())
    }
}

/// Two to four sections of a note, one row each.
fn sections(mut voice: Voice<'_>) -> Vec<Row> {
    let count = 2 + voice.dice.below(3);
    (0..count).map(|_| section(&mut voice)).collect()
}

fn section(voice: &mut Voice<'_>) -> Row {
    let index = voice.dice.weighted(&voice.hospital.sections);
    let section = &SECTIONS[index];
    let heading = voice.hospital.choose(section.headings[0], section.headings.len(), voice.dice);
    let mut written = voice.write(section.headings[heading], &mut std::iter::empty());
    for _ in 0..=voice.dice.below(3) {
        let point = section.headings[1];
        let sentence = voice.hospital.lean(point, section.sentences.len(), voice.dice);
        let more = voice.write(section.sentences[sentence], &mut std::iter::empty());
        written.words.extend(more.words);
        written.tags.extend(more.tags);
    }
    Row::words(written.words).with_labels(written.tags)
}

/// A discharge note with the codes of what the patient has.
fn discharge_note(mut voice: Voice<'_>) -> Row {
    let mut present = Vec::new();
    let mut absent = Vec::new();
    let (has, has_not) = (1 + voice.dice.below(5), 1 + voice.dice.below(5));
    while present.len() < has || absent.len() < has_not {
        let disease = voice.dice.weighted(&voice.hospital.diseases);
        if present.contains(&disease) || absent.contains(&disease) {
            // A hospital may treat only a handful; a uniform draw keeps the loop finite.
            let other = voice.dice.below(DISEASES.len());
            if !present.contains(&other) && !absent.contains(&other) {
                if present.len() < has { present.push(other) } else { absent.push(other) }
            }
            continue;
        }
        // Alternate at random, so that what is denied is as common as what is coded.
        let wants_present =
            present.len() < has && (absent.len() >= has_not || voice.dice.chance(0.5));
        if wants_present { present.push(disease) } else { absent.push(disease) }
    }
    let codes: Vec<&str> = present.iter().map(|&disease| DISEASES[disease].code).collect();
    let mut sentences = Vec::new();
    while !(present.is_empty() && absent.is_empty()) {
        sentences.push(statement(&mut voice, &mut present, &mut absent));
        if voice.dice.chance(0.4) {
            let filler = voice.hospital.lean("fillers", FILLERS.len(), voice.dice);
            sentences.push(voice.write(FILLERS[filler], &mut std::iter::empty()));
        }
    }
    voice.dice.shuffle(&mut sentences);
    let texts: Vec<String> = sentences.iter().map(Written::to_text).collect();
    Row::text(texts.join("\n")).with_labels(codes)
}

/// One sentence that uses up some of the diseases still to be mentioned.
fn statement(voice: &mut Voice<'_>, present: &mut Vec<usize>, absent: &mut Vec<usize>) -> Written {
    // Diseases with sentences of their own show themselves that way half of the time.
    for (pool, own) in [(&mut *present, true), (&mut *absent, false)] {
        let Some(&last) = pool.last() else { continue };
        let sentences = if own { DISEASES[last].evidence } else { DISEASES[last].counter };
        if !sentences.is_empty() && voice.dice.chance(0.5) {
            pool.pop();
            let sentence = format!("{} .", voice.dice.pick(sentences));
            return voice.write(&sentence, &mut std::iter::empty());
        }
    }
    let kind = if voice.dice.chance(0.3) { LISTS } else { STATEMENTS };
    let start = voice.hospital.lean("statements", kind.len(), voice.dice);
    let template = (0..kind.len())
        .map(|step| kind[(start + step) % kind.len()])
        .find(|template| {
            let (plus, minus) = (count(template, "{+}"), count(template, "{-}"));
            plus <= present.len() && minus <= absent.len()
        })
        .expect("each list has a template with one slot of either sign");
    let filling: Vec<usize> = template
        .split(' ')
        .filter_map(|word| match word {
            "{+}" => present.pop(),
            "{-}" => absent.pop(),
            _ => None,
        })
        .collect();
    voice.write(template, &mut filling.into_iter())
}

fn count(template: &str, slot: &str) -> usize {
    template.matches(slot).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_parses_and_every_sense_is_written() {
        let clinic = Clinic { hospitals: 2, notes: 400, ..Clinic::default() };
        for task in [Task::Concepts, Task::Diagnosis] {
            let table = clinic.generate(task, 3).unwrap();
            let text: String = table.examples.iter().map(|e| e.body.to_text() + "\n").collect();
            assert!(!text.contains(['{', '}', '<', '>']), "an unexpanded slot");
        }
    }

    #[test]
    fn knobs_outside_their_range_are_named() {
        let bad = Clinic { label_shift: 1.5, ..Clinic::default() };
        assert_eq!(
            bad.generate(Task::Diagnosis, 1).unwrap_err().to_string(),
            "cannot use label_shift = 1.5, expected a number from 0 to 1"
        );
        let few = Clinic { notes: 3, ..Clinic::default() };
        assert!(few.generate(Task::Diagnosis, 1).is_err());
        assert!(Clinic::default().generate(Task::Language, 1).is_err());
    }
}
