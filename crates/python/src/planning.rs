//! What an experiment would train, send and cost, as a dict: the numbers of `fedra plan`.

use fedra::forecast::cutting::Cuts;
use fedra::run::plan_report::{PartRow, PlanReport};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::background::followed;
use crate::experiment::Experiment;
use crate::rows::Part;
use crate::values::python_of;

/// Plans an experiment.
#[pyfunction]
pub fn plan<'py>(
    py: Python<'py>,
    experiment: &Bound<'py, Experiment>,
    data: Option<Vec<Part<'py>>>,
    follower: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let opened = experiment.get().open(py, data.as_deref(), Some(follower))?;
    let plan = followed(py, follower, |listener| {
        fedra::plan_with(&opened, Cuts::Few, listener).map(|report| numbers(&report))
    })?;
    python_of(py, &plan)
}

fn numbers(report: &PlanReport) -> Value {
    let (least, most) = (report.least.total(), report.most.total());
    let parts: Vec<Value> = report.parts.iter().map(part).collect();
    json!({
        "name": report.name,
        "method": report.recipe.method,
        "rounds": report.rounds,
        "clients": report.clients,
        "examples": report.examples,
        "parameters": report.layout.elements(),
        "steps_per_round": report.steps,
        "encoding": { "up": report.recipe.work.encoding, "down": report.recipe.work.download },
        "first_round": report.least.first(),
        "last_round": report.least.last(),
        "bytes": least,
        // Where it is known only in the run how far choices overlap.
        "bytes_at_most": most,
        "client_memory": report.client_memory,
        "server_memory": report.server_memory,
        "run_memory": report.memory.total(),
        "privacy": report.privacy,
        "parts": parts,
        "notes": report.notes,
    })
}

fn part(row: &PartRow) -> Value {
    json!({
        "part": row.layer.map_or_else(|| "all".to_owned(), |layer| layer.to_string()),
        "from_round": row.from,
        "parameters": row.parameters,
        "learn": row.learn,
        "travel": row.travel,
        "bytes_up": row.bytes_up,
    })
}
