//! What private training costs, before it is run: the numbers of `fedra account`.

use std::num::NonZeroU64;

use fedra_privacy::calibration::{self, Schedule};
use fedra_privacy::{
    Budget, Composition, Delta, NoiseMultiplier, PrivacyError, Relation, Release, Sampling,
    SamplingRate, Spent,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::refused;

/// A run of private steps as arguments give it, checked.
struct Steps {
    delta: Delta,
    relation: Relation,
    sampling: Sampling,
    count: NonZeroU64,
}

impl Steps {
    fn of(
        (q, steps, delta): (f64, u64, f64),
        relation: &str,
        (examples, cap): (Option<u64>, Option<u64>),
    ) -> Result<Self, Refusal> {
        let delta = Delta::new(delta)?;
        if let Some(examples) = examples {
            delta.below_one_of(examples)?;
        }
        let relation = match relation {
            "add-remove" => Relation::AddRemove,
            "replace" => Relation::Replace,
            other => {
                return Err(Refusal::new(
                    "relation",
                    format!("found {other:?}, expected add-remove or replace"),
                ));
            }
        };
        let rate = SamplingRate::new(q)?;
        let whole = |name, count| {
            NonZeroU64::new(count)
                .ok_or_else(|| Refusal::new(name, "found 0, expected at least 1".to_owned()))
        };
        let sampling = match (cap, examples) {
            (None, _) => Sampling::Poisson { rate },
            (Some(cap), Some(population)) => Sampling::CappedPoisson {
                rate,
                cap: whole("cap", cap)?,
                population: whole("examples", population)?,
            },
            (Some(_), None) => {
                let sentence = "needs examples: how often a batch is cut depends on their number";
                return Err(Refusal::new("cap", sentence.to_owned()));
            }
        };
        Ok(Self { delta, relation, sampling, count: whole("steps", steps)? })
    }

    fn spent(&self, noise: NoiseMultiplier) -> Result<Spent, PrivacyError> {
        Ok(self.composition(noise)?.spent(self.delta))
    }

    fn composition(&self, noise: NoiseMultiplier) -> Result<Composition, PrivacyError> {
        let (sampling, steps) = (self.sampling, self.count);
        Composition::of(self.relation, [&Release::SampledGaussian { sampling, noise, steps }])
    }
}

/// The epsilon of a run of private steps: `{"epsilon", "rdp", "delta"}`, where `epsilon` is a tight upper bound (privacy
/// loss distributions) and `rdp` the looser bound of a second, independent accountant.
#[pyfunction]
#[pyo3(signature = (*, q, sigma, steps, delta, relation="add-remove", examples=None, cap=None))]
#[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
pub fn epsilon<'py>(
    py: Python<'py>,
    q: f64,
    sigma: f64,
    steps: u64,
    delta: f64,
    relation: &str,
    examples: Option<u64>,
    cap: Option<u64>,
) -> PyResult<Bound<'py, PyDict>> {
    let found = py.detach(|| -> Result<Spent, Refusal> {
        let run = Steps::of((q, steps, delta), relation, (examples, cap))?;
        Ok(run.spent(NoiseMultiplier::new(sigma)?)?)
    });
    let spent = found.map_err(|refusal| refusal.raised(py))?;
    answer(py, spent, delta)
}

/// The least noise with which a run of private steps stays within an epsilon: the same with `"sigma"`.
#[pyfunction]
#[pyo3(signature = (*, epsilon, q, steps, delta, relation="add-remove", examples=None, cap=None))]
#[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
pub fn sigma<'py>(
    py: Python<'py>,
    epsilon: f64,
    q: f64,
    steps: u64,
    delta: f64,
    relation: &str,
    examples: Option<u64>,
    cap: Option<u64>,
) -> PyResult<Bound<'py, PyDict>> {
    let found = py.detach(|| -> Result<(NoiseMultiplier, Spent), Refusal> {
        let run = Steps::of((q, steps, delta), relation, (examples, cap))?;
        let least = |noise| Ok(run.composition(noise)?.pld(run.delta));
        let noise = calibration::smallest(Budget::new(epsilon)?, least)?;
        Ok((noise, run.spent(noise)?))
    });
    let (noise, spent) = found.map_err(|refusal| refusal.raised(py))?;
    let object = answer(py, spent, delta)?;
    object.set_item("sigma", noise.get())?;
    Ok(object)
}

/// The most private steps that stay within an epsilon: the same with `"steps"`.
#[pyfunction]
#[pyo3(signature = (*, epsilon, q, sigma, delta, relation="add-remove", examples=None, cap=None))]
#[expect(clippy::too_many_arguments, reason = "each has a name in Python")]
pub fn steps<'py>(
    py: Python<'py>,
    epsilon: f64,
    q: f64,
    sigma: f64,
    delta: f64,
    relation: &str,
    examples: Option<u64>,
    cap: Option<u64>,
) -> PyResult<Bound<'py, PyDict>> {
    let found = py.detach(|| -> Result<(NonZeroU64, Spent), Refusal> {
        let run = Steps::of((q, 1, delta), relation, (examples, cap))?;
        let noise = NoiseMultiplier::new(sigma)?;
        let Steps { sampling, relation, delta, count } = run;
        let schedule = Schedule { sampling, steps: count, relation, delta };
        let count = calibration::steps(Budget::new(epsilon)?, noise, &schedule)?;
        Ok((count, Steps { count, ..run }.spent(noise)?))
    });
    let (count, spent) = found.map_err(|refusal| refusal.raised(py))?;
    let object = answer(py, spent, delta)?;
    object.set_item("steps", count.get())?;
    Ok(object)
}

fn answer(py: Python<'_>, spent: Spent, delta: f64) -> PyResult<Bound<'_, PyDict>> {
    let object = PyDict::new(py);
    object.set_item("epsilon", spent.pld)?;
    object.set_item("rdp", spent.rdp)?;
    object.set_item("delta", delta)?;
    Ok(object)
}

/// What is wrong with an argument, or with all of them together.
struct Refusal {
    argument: Option<&'static str>,
    sentence: String,
}

impl Refusal {
    const fn new(argument: &'static str, sentence: String) -> Self {
        Self { argument: Some(argument), sentence }
    }

    fn raised(&self, py: Python<'_>) -> PyErr {
        refused(py, self.argument.unwrap_or("account"), &self.sentence)
    }
}

impl From<PrivacyError> for Refusal {
    fn from(error: PrivacyError) -> Self {
        Self { argument: None, sentence: error.to_string() }
    }
}
