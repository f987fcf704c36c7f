//! Studies of several runs: comparisons over seeds, advice on freezing, audits with canaries.

use std::path::PathBuf;

use fedra::ScratchFolder;
use fedra::study::advise::AdviceRequest;
use fedra::study::canaries::{CanaryRun, Reading};
use fedra::study::compare::{CompareRequest, WorkPlan, Workers};
use fedra::{Error, Overrides};
use fedra_audit::{AuditError, CanaryEvidence, CanaryFinding, Confidence};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};

use crate::background::{followed, followed_runs};
use crate::errors::{interrupted, refused};
use crate::experiment::Experiment;
use crate::hub;
use crate::rows::Part;
use crate::values::{python_of, table_of};

/// Compares experiment files over seeds in a folder, one run after another.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the Python half has names and defaults for them")]
pub fn compare<'py>(
    py: Python<'py>,
    files: Vec<PathBuf>,
    sweep: &Bound<'py, PyDict>,
    tune: &Bound<'py, PyDict>,
    seeds: Option<u32>,
    baseline: Option<String>,
    folder: PathBuf,
    follower: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (sweeps, tunes) = (axes(sweep)?, axes(tune)?);
    let overrides = Overrides::default();
    let request = CompareRequest { files, overrides, seeds, sweeps, tunes, baseline };
    hub::provide(py, Some(follower), &|| WorkPlan::new(&request)?.open_all())?;
    let compared = followed_runs(py, follower, |listener| {
        fedra::compare(&WorkPlan::new(&request)?, &folder, &Workers::Here, listener)
    })?;
    let compared = compared.ok_or_else(interrupted)?;
    let numbers = json!({ "comparison": compared.comparison, "failures": compared.failures });
    python_of(py, &numbers)
}

/// Keys and the values that they take, as the library spells them.
#[expect(clippy::wildcard_enum_match_arm, reason = "all but an array is one value")]
fn axes(mapping: &Bound<'_, PyDict>) -> PyResult<Vec<String>> {
    let axis = |(key, values): (String, toml::Value)| {
        let values = match values {
            toml::Value::Array(values) => values,
            one => vec![one],
        };
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        format!("{key}={}", values.join(","))
    };
    Ok(table_of(mapping)?.into_iter().map(axis).collect())
}

/// Runs a pilot, and says after how many rounds query and key should freeze.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the Python half has names and defaults for them")]
pub fn advise<'py>(
    py: Python<'py>,
    experiment: &Bound<'py, Experiment>,
    data: Option<Vec<Part<'py>>>,
    rounds: Option<u32>,
    warmups: Vec<u32>,
    tolerance: f64,
    scratch: Option<PathBuf>,
    follower: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, String)> {
    let opened = experiment.get().open(py, data.as_deref(), Some(follower))?;
    let asked = AdviceRequest { rounds, warmups, tolerance, scratch };
    let advice = followed(py, follower, |listener| fedra::advise(&opened, &asked, listener))?;
    let advice = advice.ok_or_else(interrupted)?;
    Ok((python_of(py, &advice)?, advice.text(100)))
}

/// Runs a private experiment with canaries, and bounds its epsilon from below.
#[pyfunction]
pub fn audit<'py>(
    py: Python<'py>,
    experiment: &Bound<'py, Experiment>,
    data: Option<Vec<Part<'py>>>,
    canaries: usize,
    confidence: f64,
    follower: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let opened = experiment.get().open(py, data.as_deref(), Some(follower))?;
    // Refused before the run, not after it.
    let unaudited = |error: AuditError| refused(py, "confidence", &error.to_string());
    Confidence::new(0.0, confidence).map_err(unaudited)?;
    let found = followed(py, follower, |listener| {
        let scratch = ScratchFolder::new()?;
        let run = CanaryRun::run(&opened, canaries, scratch.path(), listener)?;
        run.map(|run| finding(&run, confidence)).transpose()
    })?;
    python_of(py, &found.ok_or_else(interrupted)?)
}

/// What the updates of a run prove, read under the noise and clip norm that its ledger claims.
fn finding(run: &CanaryRun, confidence: f64) -> fedra::Result<Value> {
    let refuse = |error: AuditError| Error::Refused(error.to_string());
    let claimed = &run.privacy;
    let trust = Confidence::new(claimed.guarantee.delta.get(), confidence).map_err(refuse)?;
    let mut readings = Vec::new();
    for reading in Reading::ALL {
        let clients = run.clients.iter().enumerate();
        let mut evidence: Vec<CanaryEvidence> = clients
            .map(|(place, client)| {
                CanaryEvidence::new(client.coins.len(), run.weight(place), claimed.noise)
            })
            .collect();
        run.sights((reading, claimed.clip), &mut |sight| {
            let seen = evidence[sight.client].see(&sight.released, &sight.gradients);
            seen.map_err(refuse)
        })?;
        readings.push(evidence);
    }
    let coins: Vec<bool> = run.clients.iter().flat_map(|client| client.coins.clone()).collect();
    let finding = CanaryFinding::of_readings(&readings, &coins, trust).map_err(refuse)?;
    let is_broken = claimed.epsilon.is_some_and(|claim| finding.epsilon > claim);
    let mut object = json!(finding);
    object["status"] = if is_broken { "broken" } else { "not_refuted" }.into();
    object["claim"] = claimed.epsilon.into();
    (object["noise"], object["clip"]) = (claimed.noise.into(), claimed.clip.into());
    Ok(object)
}
