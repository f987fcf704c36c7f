//! Questions with lettered options, told by the columns of the usual sets.

use fedra_data::{AnswerBy, ColumnSurvey, OptionColumns, OptionTemplates, Task};

use super::wishes::Wishes;

/// What is asked.
const QUESTION: &str = "question";
/// Columns that hold all options, as a list or an object.
const TOGETHER: [&str; 2] = ["choices", "options"];
/// Options in a column each.
const APART: [[&str; 5]; 2] = [["opa", "opb", "opc", "opd", "ope"], ["A", "B", "C", "D", "E"]];
/// Columns that say which option is right, the most telling first.
const RIGHT: [&str; 8] = [
    "cop",
    "answer_idx",
    "answerKey",
    "answer_index",
    "answer",
    "label",
    "correct",
    "correct_answer",
];

/// The columns of multiple choice.
#[derive(Clone, Debug)]
pub struct FoundOptions {
    /// What is asked.
    pub question: String,
    /// Which option is right.
    pub label: String,
    /// The options.
    pub templates: OptionTemplates,
    /// How many there are, as far as columns say it.
    pub count: usize,
}

impl FoundOptions {
    /// Those of a file, unless somebody wishes something else.
    pub(super) fn of(rest: &[&ColumnSurvey], wishes: &Wishes) -> Option<Self> {
        let is_open = wishes.text.is_empty() && wishes.label.is_none();
        if !is_open || !matches!(wishes.task, None | Some(Task::Choice)) {
            return None;
        }
        let column = |name: &str| rest.iter().copied().find(|column| column.name == name);
        column(QUESTION)?;
        let (options, count) = options(&column)?;
        let label = RIGHT.into_iter().find_map(column)?;
        // Numbers that never say 0 but the number of options count from 1.
        let says = |number: usize| label.values.contains_key(&number.to_string());
        let first = u32::from(!label.has_more && !says(0) && says(count));
        let templates = OptionTemplates { options, by: AnswerBy::Letter, first };
        let (question, label) = (QUESTION.to_owned(), label.name.clone());
        Some(Self { question, label, templates, count })
    }
}

/// Where the options are, and how many.
fn options<'a>(
    column: &impl Fn(&str) -> Option<&'a ColumnSurvey>,
) -> Option<(OptionColumns, usize)> {
    for name in TOGETHER {
        let inside = |part: &str| column(&format!("{name}.{part}"));
        let lettered = ('A'..='J').take_while(|letter| inside(&letter.to_string()).is_some());
        let count = lettered.count();
        let lists = |found: Option<&ColumnSurvey>| found.is_some_and(ColumnSurvey::is_list);
        if count >= 2 {
            return Some((OptionColumns::In(name.to_owned()), count));
        }
        if lists(inside("text")) || lists(column(name)) {
            // Most sets have four.
            return Some((OptionColumns::In(name.to_owned()), 4));
        }
    }
    APART.into_iter().find_map(|names| {
        let there = names.into_iter().take_while(|name| column(name).is_some());
        let names: Vec<String> = there.map(str::to_owned).collect();
        let count = names.len();
        (count >= 2).then_some((OptionColumns::Each(names), count))
    })
}
