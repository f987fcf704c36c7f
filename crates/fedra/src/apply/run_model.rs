//! What a run says about the model that somebody takes from it: which of its two models that is, what it
//! scored, and the columns it was trained with.
//!
//! Everything here is read from the run's own files and is for people and for defaults. A file that is
//! not there, or that another version wrote, says nothing and is in nobody's way.

use std::fs;
use std::path::{Path, PathBuf};

use fedra_data::{Columns, Task, TextColumns};

use crate::apply::trained_model::{ModelChoice, WhichRound};
use crate::folder::json_file;
use crate::folder::run_folder::Folder;
use crate::folder::summary::{Score, Summary};
use crate::prepare::fingerprint::Inputs;
use crate::prepare::partitioned_data::PartitionedData;
use crate::run_files::{ADAPTER_BEST, EXPERIMENT, FOLDERS, MODEL, MODEL_BEST, SUMMARY};

/// The run that a model comes from.
#[derive(Clone, Debug)]
pub struct RunModel {
    run: PathBuf,
    round: WhichRound,
    /// Whether the run was named, and which of its models was left to a flag.
    is_chosen: bool,
    summary: Option<Summary>,
    columns: Columns,
    task: Option<Task>,
    /// The files that its training rows came from.
    files: Vec<PathBuf>,
}

impl RunModel {
    /// The run behind a choice: its own folder, or that around one of its models.
    pub fn of(choice: &ModelChoice) -> Option<Self> {
        let is_run = |path: &Path| path.join(EXPERIMENT).is_file();
        let (run, round, is_chosen) = if is_run(&choice.path) {
            (choice.path.clone(), choice.round, true)
        } else {
            let whole = choice.path.canonicalize().ok()?;
            let name = whole.file_name()?.to_str()?;
            let run = whole.parent().filter(|_| FOLDERS.contains(&name))?.to_owned();
            let is_best = name == MODEL_BEST || name == ADAPTER_BEST;
            (run, if is_best { WhichRound::Best } else { WhichRound::Last }, false)
        };
        let text = fs::read_to_string(run.join(EXPERIMENT)).ok()?;
        let table: toml::Table = text.parse().ok()?;
        let data = |key: &str| table.get("data").and_then(|data| data.get(key));
        let columns = data("columns").cloned();
        let columns = columns.and_then(|columns| columns.try_into().ok()).unwrap_or_default();
        let task = data("task").cloned().and_then(|task| task.try_into().ok());
        let of_clients = data("clients").and_then(toml::Value::as_table).into_iter().flatten();
        let files = ["path", "train"].into_iter().filter_map(data);
        let files = files.chain(of_clients.map(|(_, file)| file)).filter_map(toml::Value::as_str);
        let files = files.map(PathBuf::from).collect();
        let summary = json_file::read(&run.join(SUMMARY), "summary").ok();
        Some(Self { run, round, is_chosen, summary, columns, task, files })
    }

    /// What it was taught, where its head does not tell and rows need no more than their usual columns.
    pub fn task_without_labels(&self) -> Option<Task> {
        self.task.filter(|task| matches!(task, Task::Chat | Task::Preference | Task::Language))
    }

    /// The columns of its texts, as its own data had them; `None` where they had their usual names, or
    /// lay inside lists of a record.
    pub fn text_columns(&self) -> Option<&TextColumns> {
        self.columns.text.as_ref().filter(|_| self.columns.rows.is_none())
    }

    /// The column of its images, where it was trained on a table of them.
    pub fn image_column(&self) -> Option<&str> {
        self.columns.image.as_deref()
    }

    /// These columns, with those of the run for texts and labels where none is named.
    pub fn fill(&self, given: Columns) -> Columns {
        let own = self.columns.clone();
        Columns {
            text: given.text.or(own.text).filter(|_| given.image.is_none()),
            image: given.image.or(own.image),
            label: given.label.or(own.label),
            separator: given.separator.or(own.separator),
            rows: given.rows.or(own.rows),
            ..given
        }
    }

    /// That rows of an experiment that are to be scored may have trained the model: they are others than the
    /// run's, or divided in another way.
    pub(crate) fn note_on_rows(&self, holdings: &PartitionedData) -> Option<String> {
        let inputs: Inputs = Folder::inputs(&self.run).ok()??;
        let shown = self.run.display();
        let now = Inputs::of_rows(holdings);
        let found = if (inputs.rows, inputs.labels) != (now.rows, now.labels) {
            format!("these are not the rows of {shown}")
        } else if inputs.partition != now.partition {
            format!(
                "{shown} partitioned the same rows differently (another seed, or other shares or clients)"
            )
        } else {
            return None;
        };
        Some(format!("{found}: training rows of the model may be among the scored rows"))
    }

    /// That rows are scored from where the run took its training rows: the same file or folder, or one inside the other.
    pub(crate) fn note_on_file(&self, file: &Path) -> Option<String> {
        let file = file.canonicalize().ok()?;
        let holds = |own: &&PathBuf| {
            own.canonicalize().is_ok_and(|own| own.starts_with(&file) || file.starts_with(own))
        };
        let own = self.files.iter().find(holds)?;
        Some(format!(
            "{} took its training rows from {}, so training rows of the model are among the scored rows",
            self.run.display(),
            own.display()
        ))
    }

    /// What to know before its answers are believed, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        self.which().into_iter().chain(self.worth()).collect()
    }

    /// Which of the run's two models is used, and why.
    fn which(&self) -> Option<String> {
        let summary = self.summary.as_ref().filter(|_| self.is_chosen)?;
        let shown = self.run.display();
        let last = summary.rounds;
        let best = summary.best.as_ref().filter(|best| best.model.is_some());
        let of_best = best.and_then(|best| best.model.as_deref()).unwrap_or(MODEL_BEST);
        let of_last = summary.model.as_deref().unwrap_or(MODEL);
        Some(match (self.round, best) {
            (WhichRound::Best, Some(best)) => format!(
                "{shown}/{of_best} is used, of round {}, which did best on validation examples ({})",
                best.round + 1,
                best.in_words()
            ),
            (WhichRound::Best, None) => return None,
            (WhichRound::Last, Some(best)) if best.round + 1 == last => format!(
                "{shown}/{of_last} is used, of the last round ({last}), which also did best on validation examples"
            ),
            (WhichRound::Last, Some(best)) => format!(
                "{shown}/{of_last} is used, of the last round ({last}); round {} did best on validation examples \
                 ({}), and its model is in {shown}/{of_best}",
                best.round + 1,
                best.in_words()
            ),
            (WhichRound::Last, None) => {
                format!("{shown}/{of_last} is used, of the last round ({last})")
            }
        })
    }

    /// That the model is worth less than an answer without one, where it is.
    fn worth(&self) -> Option<String> {
        let summary = self.summary.as_ref()?;
        let below = match self.round {
            WhichRound::Last => summary.below_baseline(summary.score.as_ref()?)?,
            WhichRound::Best => {
                let best = summary.best.as_ref()?;
                let (name, on) = (best.name.clone(), best.on.clone());
                summary.below_baseline(&Score { name, value: best.score, on })?
            }
        };
        Some(format!("this model is {below}"))
    }
}
