//! What a run says about the model that somebody takes from it: which of its two models that is, what it
//! scored, and the columns it was trained with.
//!
//! Everything here is read from the run's own files and is for people and for defaults. A file that is
//! not there, or that another version wrote, says nothing and is in nobody's way.

use std::fs;
use std::path::{Path, PathBuf};

use fedra_data::{Columns, TextColumns};

use crate::run_files::{ADAPTER_BEST, EXPERIMENT, FOLDERS, MODEL_BEST, SUMMARY};
use crate::summary::{Score, Summary};
use crate::trained_model::{ModelChoice, WhichRound};

/// The run that a model comes from.
#[derive(Clone, Debug)]
pub struct RunModel {
    run: PathBuf,
    round: WhichRound,
    /// Whether the run was named, and which of its models was left to a flag.
    is_chosen: bool,
    summary: Option<Summary>,
    columns: Columns,
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
        let columns = table.get("data").and_then(|data| data.get("columns")).cloned();
        let columns = columns.and_then(|columns| columns.try_into().ok()).unwrap_or_default();
        let summary = fs::read_to_string(run.join(SUMMARY)).ok();
        let summary = summary.and_then(|text| serde_json::from_str(&text).ok());
        Some(Self { run, round, is_chosen, summary, columns })
    }

    /// The columns of its texts, as its own data had them; `None` where they had their usual names, or
    /// lay inside lists of a record.
    pub fn text_columns(&self) -> Option<&TextColumns> {
        self.columns.text.as_ref().filter(|_| self.columns.rows.is_none())
    }

    /// These columns, with those of the run for texts and labels where none is named.
    pub fn fill(&self, given: Columns) -> Columns {
        let own = self.columns.clone();
        Columns {
            text: given.text.or(own.text),
            label: given.label.or(own.label),
            separator: given.separator.or(own.separator),
            rows: given.rows.or(own.rows),
            ..given
        }
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
        Some(match (self.round, best) {
            (WhichRound::Best, Some(best)) => format!(
                "{shown}/{MODEL_BEST} is used, of round {}, which did best on validation examples ({} {:.3})",
                best.round + 1,
                best.name,
                best.score
            ),
            (WhichRound::Best, None) => return None,
            (WhichRound::Last, Some(best)) if best.round + 1 == last => format!(
                "{shown}/model is used, of the last round ({last}), which also did best on validation examples"
            ),
            (WhichRound::Last, Some(best)) => format!(
                "{shown}/model is used, of the last round ({last}); round {} did best on validation examples \
                 ({} {:.3}), and --best takes its model",
                best.round + 1,
                best.name,
                best.score
            ),
            (WhichRound::Last, None) => {
                format!("{shown}/model is used, of the last round ({last})")
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
