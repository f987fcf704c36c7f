//! Text that anybody may have, on which a server measures blocks where no guarantee covers what clients
//! would measure.
//!
//! The synthetic clinic writes notes of hospitals that are no clients; for rows of files a file of public rows
//! is named.

use fedra_client::{Prober, to_params_over};
use fedra_compute::{Device, Params, Seed};
use fedra_data::{EncodeRows, Encoded, Example, LabelSet, Table, TableBuilder};
use fedra_engine::{EngineError, ParamValues, PrivateSelection, PublicText};
use fedra_model::Model;
use fedra_plan::{BlockScores, Probe};

use crate::config::{ConfigError, Experiment, Source};
use crate::error::{Context, Result};
use crate::prepare::partitioned_data::reader;

/// The public rows that a run needs, as tokens; none where it needs none. Labels are those of the clients'
/// table.
pub fn rows(
    experiment: &Experiment,
    (encoder, labels): (&dyn EncodeRows, &LabelSet),
) -> Result<Vec<Encoded>> {
    let recipe = &experiment.recipe;
    let public = |selection: PrivateSelection| selection == PrivateSelection::Public;
    let wanted = recipe.privacy.as_ref().is_some_and(|privacy| public(privacy.selection));
    if !wanted || recipe.selection.probe.is_none() {
        return Ok(Vec::new());
    }
    let raw = &experiment.raw;
    let file = raw.privacy.as_ref().and_then(|privacy| privacy.public.as_ref());
    let table: Table = match (&experiment.source, file) {
        (Source::Files(format, _), Some(path)) => {
            let mut builder =
                TableBuilder::new(experiment.task).with_labels(labels.names().iter().cloned());
            reader(experiment).read(*format, path, &mut builder).context("privacy.public")?;
            builder.finish()
        }
        (Source::Clinic(clinic), None) => {
            clinic.generate(experiment.task, Seed(raw.seed).of("public").0)?
        }
        (Source::Clinic(_), Some(_)) => {
            let expected =
                "no such key with the synthetic clinic, which generates public notes itself";
            return Err(ConfigError::new("privacy.public", "a file", expected).into());
        }
        (Source::Files(..) | Source::Mimic(..) | Source::Rows(_), _) => {
            let expected = "a file of public rows in the format of the data, or another \
                            privacy.selection";
            return Err(ConfigError::missing("privacy.public", expected).into());
        }
    };
    let most = recipe.selection.profile_examples as usize;
    let chosen = table.examples.iter().take(most).map(|example: &Example| encoder.encode(example));
    let rows: Vec<Encoded> = chosen.collect::<Result<Vec<_>, _>>()?.concat();
    ConfigError::new("privacy.public", "no rows", "at least one").when(rows.is_empty())?;
    Ok(rows)
}

/// A model's structure and the rows to measure it on.
#[derive(Debug)]
pub struct PublicRows {
    /// The structure.
    pub model: Model,
    /// Weights that are no part of an exchanged model.
    pub base: Params,
    /// Who computes.
    pub device: Device,
    /// The names of labels.
    pub labels: LabelSet,
    /// The rows.
    pub rows: Vec<Encoded>,
}

impl PublicText for PublicRows {
    fn probe(&self, probe: Probe, model: &ParamValues) -> Result<BlockScores, EngineError> {
        let prober = Prober { model: &self.model, device: &self.device, labels: &self.labels };
        let over = (self.model.layout(), &self.base);
        let scores = to_params_over(&self.device, over, model)
            .and_then(|params| prober.probe(&params, probe, ("public text", &self.rows)));
        scores.map_err(|error| EngineError::Fleet {
            doing: "measure blocks on public text",
            reason: error.to_string(),
        })
    }
}
