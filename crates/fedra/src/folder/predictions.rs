//! Each labelled example's truth and answer, a line each.
//!
//! ```text
//! {"set": "central_test", "row": 12, "truth": "a", "predicted": "b", "probability": 0.71}
//! ```
//!
//! No text is written: `row` finds it. Rows are counted from 1 in the order in which the data were read.

use fedra_client::{Examined, Truth};
use fedra_data::{CalibrationScore, LabelSet};
use serde_json::{Map, Value, json};

/// Whose example it is.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The set that it belongs to.
    pub set: &'a str,
    /// The client that holds it, for a set of clients.
    pub client: Option<&'a str>,
    /// Its row in the data, from 0.
    pub row: usize,
}

/// The line of one example.
pub fn line(place: Place<'_>, examined: &Examined, labels: &LabelSet) -> Value {
    let mut line = Map::new();
    line.insert("set".to_owned(), json!(place.set));
    if let Some(client) = place.client {
        line.insert("client".to_owned(), json!(client));
    }
    line.insert("row".to_owned(), json!(place.row + 1));
    let names = |numbers: &[u32]| -> Vec<&str> {
        numbers.iter().map(|number| labels.name(*number)).collect()
    };
    let rows = &examined.probabilities;
    let (truth, predicted, probability) = match &examined.truth {
        Truth::Class(class) => {
            let answer = examined.answer.first().copied().unwrap_or(0);
            let probability = rows.first().map_or(0.0, |row| row[answer as usize]);
            (json!(labels.name(*class)), json!(labels.name(answer)), short(probability))
        }
        Truth::Codes(codes) => {
            // Of what is true or answered; thousands of others have a probability too.
            let mut told: Vec<u32> = codes.iter().chain(&examined.answer).copied().collect();
            told.sort_unstable();
            told.dedup();
            let row = rows.first().map_or(&[][..], Vec::as_slice);
            let each = told
                .into_iter()
                .map(|code| (labels.name(code).to_owned(), short(row[code as usize])));
            let probabilities = Value::Object(each.collect());
            (json!(names(codes)), json!(names(&examined.answer)), probabilities)
        }
        Truth::Words(tags) => {
            let each = examined.answer.iter().zip(rows);
            let probabilities: Vec<Value> =
                each.map(|(answer, row)| short(row[*answer as usize])).collect();
            (json!(names(tags)), json!(names(&examined.answer)), json!(probabilities))
        }
    };
    line.insert("truth".to_owned(), truth);
    line.insert("predicted".to_owned(), predicted);
    line.insert("probability".to_owned(), probability);
    if !examined.cut.is_empty() {
        line.insert("cut".to_owned(), json!(names(&examined.cut)));
    }
    Value::Object(line)
}

/// A probability with the digits that f32 has; null where it is no number.
fn short(probability: f64) -> Value {
    (probability as f32).to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// Counts an example's probabilities; words that were cut away have none.
pub fn calibrate(score: &mut CalibrationScore, examined: &Examined) {
    let classes = match &examined.truth {
        Truth::Class(class) => std::slice::from_ref(class),
        Truth::Words(tags) => tags,
        Truth::Codes(codes) => {
            for (code, probability) in examined.probabilities.iter().flat_map(|row| (0..).zip(row))
            {
                score.add_label(*probability, codes.contains(&code));
            }
            return;
        }
    };
    for (class, row) in classes.iter().zip(&examined.probabilities) {
        score.add_class(row, *class as usize);
    }
}

#[cfg(test)]
mod asked_in_vain {
    use crate::config::{Experiment, Overrides, unused_settings};

    fn tiny(sets: &[&str]) -> crate::error::Result<Experiment> {
        let sets = [&["evaluate.predictions=true"], sets].concat();
        let sets = sets.into_iter().map(str::to_owned).collect();
        Experiment::from_toml(include_str!("../../tests/tiny.toml"), &Overrides::new(sets, None))
    }

    #[test]
    fn a_task_whose_answers_are_texts_has_no_predictions() {
        let refused = tiny(&["data.task=language"]).unwrap_err().to_string();
        assert!(refused.starts_with("evaluate.predictions applies only to tasks"), "{refused}");
    }

    #[test]
    fn without_a_central_test_set_or_a_global_model_a_note_says_so() {
        let notes = |sets: &[&str]| unused_settings(&tiny(sets).unwrap()).join("\n");
        let central = notes(&["data.shares={ central = 0.0, validation = 0.0, test = 0.2 }"]);
        assert!(central.contains("evaluate.predictions has no effect here"), "{central}");
        let alone = notes(&["method.name=local-only"]);
        assert!(alone.contains("every client keeps its own model"), "{alone}");
    }
}
