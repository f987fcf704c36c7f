//! Runs in a folder, and what is in such a folder.

use std::path::PathBuf;

use fedra::apply::pages;
use fedra::folder::output_folder::OverwritePolicy;
use fedra::folder::round_files::Rows;
use fedra::run::start::Resumed;
use fedra::{Ending, Machine, Output};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::background::followed;
use crate::errors::{raised, refused};
use crate::experiment::Experiment;
use crate::hub;
use crate::own_parts::{Own, Parts, thrown};
use crate::rows::Part;

/// Runs an experiment in a folder, or resumes the run there. `mode` is `"new"`, `"overwrite"` or `"resume"`; without an
/// experiment a run is resumed by what its folder says. Returns the rounds that are complete and their number.
#[pyfunction]
#[pyo3(signature = (experiment, data, parts, folder, mode, threads, follower))]
#[expect(clippy::too_many_arguments, reason = "the Python half has names and defaults for them")]
pub fn run(
    py: Python<'_>,
    experiment: Option<&Bound<'_, Experiment>>,
    data: Option<Vec<Part<'_>>>,
    parts: Option<&Bound<'_, Parts>>,
    folder: PathBuf,
    mode: &str,
    threads: Option<usize>,
    follower: &Bound<'_, PyAny>,
) -> PyResult<(u32, u32)> {
    let over = match mode {
        "new" => Some(OverwritePolicy::Nothing),
        "overwrite" => Some(OverwritePolicy::AnyRun),
        "resume" => None,
        other => {
            return Err(refused(
                py,
                "mode",
                &format!("found {other:?}, expected new, overwrite or resume"),
            ));
        }
    };
    let opened = experiment.map(|it| it.get().open(py, data.as_deref(), Some(follower)));
    let mut opened = opened.transpose()?;
    drop(data);
    if let (Some(experiment), Some(threads)) = (&mut opened, threads) {
        experiment.raw.threads = Some(threads);
    }
    if let (Some(experiment), Some(parts)) = (&mut opened, parts) {
        let own = experiment.clone().with_parts(Own::of(parts));
        *experiment = own.map_err(|error| raised(py, &error))?;
    }
    let resumed = |resumed| match resumed {
        Resumed::WasComplete(summary) => (summary.rounds, summary.rounds),
        Resumed::WentOn(ending) => rounds_of(&ending),
    };
    let ended = match (opened, over) {
        (Some(experiment), Some(over)) => {
            let output = Output { folder, over };
            followed(py, follower, |listener| {
                fedra::run(&experiment, &output, listener).map(|ending| rounds_of(&ending))
            })
        }
        (Some(experiment), None) => followed(py, follower, |listener| {
            fedra::resume_with(&experiment, &folder, listener).map(resumed)
        }),
        (None, _) => {
            let held = folder.join(fedra::run_files::EXPERIMENT);
            hub::provide(py, Some(follower), &|| {
                fedra::Experiment::open(&held, &fedra::Overrides::default()).map(drop)
            })?;
            let machine = Machine { threads, ..Machine::default() };
            followed(py, follower, |listener| {
                fedra::resume(&folder, &machine, listener).map(resumed)
            })
        }
    };
    thrown(parts).map_or(ended, Err)
}

fn rounds_of(ending: &Ending) -> (u32, u32) {
    match ending {
        Ending::Complete(summary) => (summary.rounds, summary.rounds),
        Ending::Interrupted { rounds, of } => (*rounds, *of),
    }
}

/// The page of the run or the comparison in a folder.
#[pyfunction]
pub fn report(py: Python<'_>, folder: PathBuf) -> PyResult<String> {
    let page = py.detach(|| pages::document(&folder).map(|page| page.html()));
    page.map_err(|error| raised(py, &error))
}

/// The rounds in a folder as columns by name, those of `rounds.csv`.
#[pyfunction]
pub fn round_table(py: Python<'_>, folder: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let rows = py.detach(|| Rows::of_folder(&folder)).map_err(|error| raised(py, &error))?;
    let table = PyDict::new(py);
    for column in &rows.columns {
        let cells = rows.rows.iter().map(|row| match row.get(column) {
            Some(fedra::folder::round_files::Number::Count(count)) => {
                count.into_pyobject(py).map(Bound::into_any).map(Some)
            }
            Some(fedra::folder::round_files::Number::Real(real)) => {
                real.into_pyobject(py).map(Bound::into_any).map(Some)
            }
            None => Ok(None),
        });
        let cells: Vec<Option<Bound<'_, PyAny>>> = cells.collect::<Result<_, _>>()?;
        table.set_item(&column.name, PyList::new(py, cells)?)?;
    }
    Ok(table)
}
