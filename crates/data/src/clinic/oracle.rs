//! A reader of discharge notes made of rules, to show that the codes can be told from the text.
//!
//! It works as `NegEx` does (Chapman et al. 2001): find the names of diseases, cut the sentence
//! into clauses, and drop those whose clause has a cue of denial, past, family or fear.

use super::Clinic;
use super::lexicon::DISEASES;
use crate::{LabelScore, Labels, Task};

const ABSENT: &[&str] = &[
    "no",
    "not",
    "though not",
    "denies",
    "ruled out",
    "considered",
    "to look for",
    "mother",
    "brother",
    "childhood",
    "years ago",
    "worries",
    "signs of",
    "another patient",
    "family history",
    "fhx",
    "past problems",
    "excluded",
];
/// Phrases that hold a cue of absence and do not mean it.
const HARMLESS: &[&str] =
    &["not only", "no doubt", "never stopped", "the family was told", "but also"];
const BOUNDARIES: &[&str] = &[" , but ", " but ", " ; ", " , though ", " ruled out and "];

fn clauses(sentence: &str) -> Vec<String> {
    let mut text = sentence.to_owned();
    for phrase in HARMLESS {
        text = text.replace(phrase, "");
    }
    for boundary in BOUNDARIES {
        let cue = boundary.replace(" and ", " ");
        text = text.replace(boundary, &format!("{cue}\n"));
    }
    text.lines().map(|clause| format!(" {} ", clause.trim())).collect()
}

fn holds(clause: &str, phrase: &str) -> bool {
    clause.contains(&format!(" {phrase} "))
}

fn read(note: &str) -> Vec<&'static str> {
    let mut codes = Vec::new();
    for line in note.lines() {
        let sentence = line.replace([',', '.'], " , ").replace(';', " ; ").replace(':', " ");
        let sentence = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
        let own = DISEASES
            .iter()
            .filter(|d| d.evidence.iter().any(|evidence| sentence.starts_with(evidence)));
        codes.extend(own.map(|disease| disease.code));
        for clause in clauses(&sentence) {
            // `though not X` loses its `though` to the boundary before it.
            let absent = ABSENT.iter().any(|cue| holds(&clause, cue));
            for disease in DISEASES.iter().filter(|_| !absent) {
                if disease.forms.iter().any(|form| holds(&clause, form)) {
                    codes.push(disease.code);
                }
            }
        }
    }
    codes
}

#[test]
fn diagnosis_can_be_read_by_rules_of_context() {
    let clinic = Clinic { notes: 1000, ..Clinic::default() };
    let table = clinic.generate(Task::Diagnosis, 21).unwrap();
    let mut in_context = LabelScore::new(table.labels.len());
    let mut mentions = LabelScore::new(table.labels.len());
    for example in &table.examples {
        let Labels::Many(truth) = &example.labels else { panic!("codes") };
        let text = example.body.to_text();
        let index = |code: &&str| table.labels.index(code).unwrap();
        in_context.add(truth, &read(&text).iter().map(index).collect::<Vec<_>>());
        let named = |d: &&super::lexicon::Disease| {
            let spaced = format!(" {} ", text.replace(['\n', ',', '.', ':', ';'], " "));
            d.forms.iter().any(|form| holds(&spaced, form))
        };
        let named: Vec<&str> = DISEASES.iter().filter(named).map(|d| d.code).collect();
        mentions.add(truth, &named.iter().map(index).collect::<Vec<_>>());
    }
    let (in_context, mentions) = (in_context.micro_f1(), mentions.micro_f1());
    assert!(in_context > 0.95, "rules of context {in_context}");
    assert!(mentions < 0.75, "every disease that is named {mentions}");
}
