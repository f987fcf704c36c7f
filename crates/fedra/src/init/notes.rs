//! What somebody should look at before a proposal is run: values that are probably no labels, files
//! that were left out, documents that are too few.
//!
//! None of it is refused here. A column may well have a class called `NA`; whoever knows the rows knows.

use fedra_data::{AnswerForm, ColumnSurvey, LabelShape, Missing};

use super::proposal::Proposal;
use super::roles::{Roles, is_called_site, short};
use super::sight::Sight;
use super::training::ModelChoice;
use crate::prepare::data_notes::NO_VALUES;
use crate::text::grid::{counted, grouped, listed};

/// Labels from which on a label for every other row is no label.
const MANY_LABELS: usize = 20;
/// Files or values that are named one by one.
const MOST_NAMED: usize = 5;

impl Proposal {
    /// What to look at, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let Self { roles, sight, training, .. } = self;
        let mut notes: Vec<String> = left_out(sight).into_iter().collect();
        notes.extend(sight.found.encoding.map(|encoding| {
            format!(
                "the data is not UTF-8 and is read as {}: check accented letters with fedra data",
                encoding.name()
            )
        }));
        if let Some(label) =
            roles.label.as_ref().and_then(|label| sight.survey.column(&label.value))
        {
            let shape = roles.task.value.shape();
            if shape == LabelShape::One && self.wishes.missing != Some(Missing::Drop) {
                notes.extend(without_label(label, sight.survey.rows));
            }
            if matches!(shape, LabelShape::One | LabelShape::Many) {
                notes.extend(missing(label));
            }
            notes.extend(too_many(label).filter(|_| shape == LabelShape::One));
        }
        notes.extend(self.unused_client());
        if let Some((column, documents)) = &training.few_documents {
            notes.push(format!(
                "column {:?} has {}, whose rows stay together, so rows are partitioned over no more than {}",
                short(column),
 counted(*documents as u64, "different value"),
 counted(training.clients as u64, "client"),
            ));
        }
        let is_chosen = self.wishes.preset.is_some() || self.wishes.tokenizer.is_some();
        if let (ModelChoice::Preset(..), false) = (&training.model, is_chosen) {
            notes.push(fresh(sight, roles));
        }
        notes
    }

    /// A column that seems to say who holds a row, where clients are made up all the same.
    fn unused_client(&self) -> Option<String> {
        let Self { roles, sight, training, wishes } = self;
        if !self.makes_up_clients() || wishes.clients.is_some() {
            return None;
        }
        let is_used = |name: &str| {
            roles.label.as_ref().is_some_and(|label| label.value == name)
                || roles.split.as_ref().is_some_and(|split| split == name)
        };
        let columns = sight.survey.columns.iter();
        let column =
            columns.filter(|column| !is_used(&column.name)).find(|it| is_called_site(&it.name))?;
        let empty = sight.survey.rows.saturating_sub(column.filled);
        let why = if empty > 0 {
            let all = counted(sight.survey.rows as u64, "row");
            format!("it is empty in {} of {all}", grouped(empty as u64))
        } else {
            "its name or its values are ambiguous".to_owned()
        };
        Some(format!(
            "column {:?} may name the client of a row, but {why}: rows are assigned to {}; --client-column COLUMN \
             names a column",
            short(&column.name),
            counted(training.clients as u64, "simulated client"),
        ))
    }
}

/// What fresh weights can do with so many rows, and how to get others.
fn fresh(sight: &Sight, roles: &Roles) -> String {
    let rows = counted(sight.survey.rows as u64, "row");
    if sight.images.is_some() {
        return format!(
            "no pretrained model of images was found in {}, so the file has fresh weights, which have seen no \
             image. {rows} may be few for them. To fetch a pretrained model from the Hugging Face hub, run this \
             command again with\n  {GET_IMAGES}",
            sight.looked_in
        );
    }
    let needs_decoder = roles.task.value.answer_form() == AnswerForm::Text;
    let (kind, get) =
        if needs_decoder { ("decoder", GET_DECODER) } else { ("encoder", GET_ENCODER) };
    format!(
        "no pretrained {kind} was found in {}, so the file has fresh weights, which know no language. {FRESH} \
         Expect no better from {rows}. To fetch a pretrained model from the Hugging Face hub, run this command again \
         with\n  {get}",
        sight.looked_in
    )
}

/// What fresh weights were measured to do.
const FRESH: &str = "On 861 abstracts in five classes they scored 0.085 (macro F1) where the majority baseline \
                     scores 0.117 and a pretrained MiniLM 0.544.";
/// How a small encoder comes here.
const GET_ENCODER: &str = "--model hf:sentence-transformers/all-MiniLM-L6-v2";
/// How a small model of images comes here.
const GET_IMAGES: &str = "--model hf:facebook/deit-tiny-patch16-224";
/// How a small decoder comes here.
const GET_DECODER: &str = "--model hf:HuggingFaceTB/SmolLM2-135M";

fn left_out(sight: &Sight) -> Option<String> {
    let names = listed(sight.left_out.iter().map(|name| short(name)), MOST_NAMED);
    (!names.is_empty()).then(|| format!("left out {names}: not data files, judging by their names"))
}

fn without_label(label: &ColumnSurvey, rows: usize) -> Option<String> {
    let empty = rows.saturating_sub(label.filled);
    (empty > 0).then(|| {
        format!(
            "{} of {} {} no value in column {:?}, and a row without a label is refused: fill them in, or \
             leave them out with --missing drop",
            grouped(empty as u64),
            counted(rows as u64, "row"),
            if empty == 1 { "has" } else { "have" },
            short(&label.name)
        )
    })
}

fn missing(label: &ColumnSurvey) -> Option<String> {
    let is_missing =
        |(value, _): &(&String, &usize)| NO_VALUES.contains(&value.trim().to_lowercase().as_str());
    let found: Vec<(&String, &usize)> = label.values.iter().filter(is_missing).collect();
    let rows: usize = found.iter().map(|(_, count)| **count).sum();
    let names: Vec<String> = found.iter().map(|(value, _)| format!("{:?}", short(value))).collect();
    (rows > 0).then(|| {
        format!(
            "{} in column {:?} {} {}, which is learned as a label like any other: remove the rows if it stands \
             for a missing value",
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
            "column {:?} has {more}{} in {}: this looks like free text or an id, which cannot be learned as a \
             label; --label COLUMN names another column, --task generation writes texts",
            short(&label.name),
            counted(distinct as u64, "different value"),
            counted(label.filled as u64, "row")
        )
    })
}
