//! What somebody should look at before a proposal is run: values that are probably no labels, files
//! that were left out, documents that are too few.
//!
//! None of it is refused here. A column may well have a class called `NA`; whoever knows the rows knows.

use fedra_data::{ColumnSurvey, LabelShape};

use super::roles::short;
use super::{Proposal, Sight};
use crate::grid::{counted, grouped};

/// What programs write for a value that is not there, in small letters.
const MISSING: [&str; 7] = ["nan", "na", "n/a", "null", "none", "-", "?"];
/// Labels from which on a label for every other row is no label.
const MANY_LABELS: usize = 20;
/// Files or values that are named one by one.
const MOST_NAMED: usize = 5;

impl Proposal {
    /// What to look at, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let Self { roles, sight, training, .. } = self;
        let mut notes: Vec<String> = left_out(sight).into_iter().collect();
        if let Some(label) =
            roles.label.as_ref().and_then(|label| sight.survey.column(&label.value))
        {
            match roles.task.value.shape() {
                LabelShape::One => {
                    notes.extend(without_label(label, sight.survey.rows));
                    notes.extend(missing(label));
                    notes.extend(too_many(label));
                }
                LabelShape::Many => notes.extend(missing(label)),
                LabelShape::PerWord | LabelShape::Absent => {}
            }
        }
        if let Some(column) = training.few_documents.as_ref() {
            notes.push(format!(
                "column {:?} has {}, whose rows stay together, so rows are dealt to no more than {}",
                short(&column.name),
                counted(column.documents as u64, "different value"),
                counted(training.clients as u64, "client"),
            ));
        }
        notes
    }
}

fn left_out(sight: &Sight) -> Option<String> {
    let names: Vec<String> =
        sight.left_out.iter().take(MOST_NAMED).map(|name| short(name)).collect();
    let more = match sight.left_out.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty())
        .then(|| format!("left out {}{more}: no data, by the name", names.join(", ")))
}

fn without_label(label: &ColumnSurvey, rows: usize) -> Option<String> {
    let empty = rows.saturating_sub(label.filled);
    (empty > 0).then(|| {
        format!(
            "{} of {} have no value in column {:?}, and a row without a label is refused: fill them in, or \
             take the rows out",
            grouped(empty as u64),
            counted(rows as u64, "row"),
            short(&label.name)
        )
    })
}

fn missing(label: &ColumnSurvey) -> Option<String> {
    let is_missing =
        |(value, _): &(&String, &usize)| MISSING.contains(&value.trim().to_lowercase().as_str());
    let found: Vec<(&String, &usize)> = label.values.iter().filter(is_missing).collect();
    let rows: usize = found.iter().map(|(_, count)| **count).sum();
    let names: Vec<String> = found.iter().map(|(value, _)| format!("{:?}", short(value))).collect();
    (rows > 0).then(|| {
        format!(
            "{} in column {:?} {} {}, which is learnt as a label like any other: take the rows out if it \
             stands for no value",
            counted(rows as u64, "value"),
            short(&label.name),
            if rows == 1 { "is" } else { "are" },
            names.join(" or ")
        )
    })
}

fn too_many(label: &ColumnSurvey) -> Option<String> {
    let distinct = label.distinct();
    let is_unlikely = label.has_more || (distinct > MANY_LABELS && distinct * 2 > label.filled);
    is_unlikely.then(|| {
        let more = if label.has_more { "more than " } else { "" };
        format!(
            "column {:?} has {more}{} in {}: this looks like free text or an id, of which no label can be \
             learnt; --label COLUMN names another column, --task generation writes texts",
            short(&label.name),
            counted(distinct as u64, "different value"),
            counted(label.filled as u64, "row")
        )
    })
}
