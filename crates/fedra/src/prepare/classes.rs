//! The classes that a run over a model folder answers with: the data's labels, or those of the
//! folder's trained head.
//!
//! Labels meet the head by name ([`HeadFit`]). A head that knows more labels than the data has is
//! kept whole, and the run takes over all of its classes: a model that is trained on loses nothing
//! that it could say.

use fedra_data::{Example, LabelSet, Labels, Table, printable};
use fedra_model::Classifier;
use fedra_model::hf::trained::listed;
use fedra_model::hf::{Answers, Checkpoint, HeadFit, TrainedHead, WhyFresh};
use fedra_model::peft::AdapterFolder;

use crate::config::{ConfigError, HeadChoice};
use crate::error::Result;
use crate::text::grid::grouped;

/// Where the classifier comes from. Numbers the table's labels anew where the head has others too,
/// and adds a note where that happens.
pub fn settle(
    (checkpoint, adapter): (&Checkpoint, Option<&AdapterFolder>),
    (answers, choice): (Answers, Option<HeadChoice>),
    (table, declared): (&mut Table, Option<&[String]>),
    notes: &mut Vec<String>,
) -> Result<Classifier> {
    if choice == Some(HeadChoice::Fresh) {
        return Ok(Classifier::Fresh(WhyFresh::Asked));
    }
    // A head that learnt with the adapter comes before that of the model it adapts.
    let adapted = adapter.map(AdapterFolder::trained_head);
    let (trained, key) = match adapted.filter(|head| *head != TrainedHead::Absent) {
        Some(head) => (head, "model.adapter"),
        None => (checkpoint.trained_head(answers)?, "model.path"),
    };
    // Which labels there are is what was declared, not what some row happens to have.
    let wanted = declared.map_or_else(|| occurring(table), <[String]>::to_vec);
    match trained.fit(&wanted) {
        HeadFit::Kept(names) => {
            let labels = LabelSet::new(names.iter().cloned());
            let (known, all) = (wanted.len(), labels.len());
            if known < all {
                notes.push(format!(
                    "the folder's head has {} labels, of which the data has {}: all of them are kept",
                    grouped(all as u64),
                    grouped(known as u64)
                ));
            }
            // Half of a pair of tags need not be listed, and a head need not know it; rows may have it.
            if let Some(half) = occurring(table).iter().find(|name| labels.index(name).is_none()) {
                let found = format!("rows with the label {half:?}, which is not listed");
                let expected = "every label of the rows, to compare them with the folder's head";
                return Err(ConfigError::new("data.labels", found, expected).into());
            }
            let place = |name: &String| names.iter().position(|other| other == name);
            let rows = labels.names().iter().filter_map(place).collect();
            renumber(table, labels);
            Ok(Classifier::Rows(rows))
        }
        HeadFit::Fresh(why) if choice == Some(HeadChoice::Trained) => {
            let first = first_strange(table, &why);
            let problem =
                format!("the head does not answer with the labels of the rows: {why}{first}");
            Err(ConfigError::sentence("model.head", problem).into())
        }
        HeadFit::Fresh(why) => Ok(Classifier::Fresh(why)),
        HeadFit::Unnamed(count) => {
            let (place, hint) = if key == "model.adapter" {
                ("a labels.json beside it", "list them there")
            } else {
                ("id2label", "name them in id2label of its config.json")
            };
            let found = format!("a trained head whose {count} classes have no names in {place}");
            let expected = format!("their names, to find {} by", listed(table.labels.names()));
            let hint = format!(
                "{hint}, in the order of the head's rows; model.head = \"fresh\" initialises a new head instead"
            );
            Err(ConfigError::new(key, found, expected).with_hint(hint).into())
        }
    }
}

/// The labels that rows have. A set of tags also has the missing halves of pairs, which no head
/// need know.
fn occurring(table: &Table) -> Vec<String> {
    let counted = table.label_counts().into_iter().zip(table.labels.names());
    counted.filter(|(count, _)| *count > 0).map(|(_, name)| name.clone()).collect()
}

/// Where the first label stands that a head does not answer with; nothing for rows without a place.
fn first_strange(table: &Table, why: &WhyFresh) -> String {
    let WhyFresh::OtherLabels { stored, .. } = why else { return String::new() };
    let strange = |example: &Example| {
        let mut names = example.labels.numbers().iter().map(|label| table.labels.name(*label));
        names.find(|name| stored.iter().all(|other| other != name))
    };
    let mut found = table.examples.iter().filter(|example| example.place.get().is_some());
    let found = found.find_map(|example| Some((strange(example)?, &example.place)));
    found.map_or(String::new(), |(name, place)| {
        let (name, place) = (printable(name), place.to_string());
        format!(" (first other label \"{name}\" at {})", printable(&place))
    })
}

/// Gives the rows the numbers that their labels have in another set, which has all of them.
fn renumber(table: &mut Table, labels: LabelSet) {
    if labels == table.labels {
        return;
    }
    let number = |old: &mut u32| {
        let name = table.labels.name(*old);
        *old = labels.index(name).expect("every label that occurs is in the set");
    };
    for example in &mut table.examples {
        match &mut example.labels {
            Labels::One(label) => number(label),
            Labels::Many(several) => {
                several.iter_mut().for_each(number);
                several.sort_unstable();
            }
            Labels::PerWord(tags) => tags.iter_mut().for_each(number),
            Labels::Choice(choice) => {
                number(&mut choice.label);
                choice.candidates.iter_mut().for_each(|(label, _)| number(label));
                choice.candidates.sort_by_key(|(label, _)| *label);
            }
            Labels::Absent | Labels::Text(_) | Labels::Preference(_) => {}
        }
    }
    table.labels = labels;
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_data::{Row, TableBuilder, Task};

    #[test]
    fn rows_keep_their_labels_under_new_numbers() {
        let mut builder = TableBuilder::new(Task::Diagnosis);
        builder.push(Row::text("x").with_labels(["b", "d"])).unwrap();
        builder.push(Row::text("y").with_labels(["a"])).unwrap();
        let mut table = builder.finish();
        renumber(&mut table, LabelSet::new(["d", "c", "b", "a", "0"].map(String::from)));
        assert_eq!(table.examples[0].labels, Labels::Many(vec![2, 4]));
        assert_eq!(table.examples[1].labels, Labels::Many(vec![1]));
        assert_eq!(table.labels.names(), ["0", "a", "b", "c", "d"]);
    }

    #[test]
    fn a_half_of_a_pair_that_no_row_has_need_not_be_known() {
        let mut builder = TableBuilder::new(Task::Tokens);
        builder.push(Row::words(["x", "y"]).with_labels(["O", "B-drug"])).unwrap();
        let table = builder.finish();
        assert_eq!(table.labels.len(), 3);
        assert_eq!(occurring(&table), ["O", "B-drug"]);
    }
}
