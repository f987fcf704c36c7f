//! An experiment as Python holds it: what was written, and what was put over it. It is checked when it is used, because
//! that may take rows that are handed over then.

use std::path::PathBuf;

use fedra::{Overrides, ParsedExperiment};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::errors::raised;
use crate::hub;
use crate::rows::{Part, experiment_over};
use crate::values::{dict_of, table_of, toml_of};

/// What a federation learns, from whom, and how: the keys of an experiment file.
///
/// Experiment("notes.toml")                        a file
/// Experiment("[data]\nsource = ...")              the text of one
/// Experiment({"data": {...}, "model": {...}})     a dict of its tables
/// Experiment(data={...}, model={...}, seed=3)     its tables by keyword
/// Experiment("notes.toml", work={"batch": 8})     a file, and keys that replace the file's
///
/// Unknown keys and values of the wrong type are refused at once, with the nearest key that exists. Whether the values
/// make sense together is checked where the experiment is used; `fedra.plan` does so without training.
#[pyclass(module = "fedra", name = "Experiment", frozen)]
pub struct Experiment {
    written: Written,
    given: Vec<(String, toml::Value)>,
    parsed: ParsedExperiment,
}

/// Where an experiment was written.
#[derive(Clone)]
enum Written {
    /// In a file, with the text that it had.
    File(PathBuf, String),
    /// In a text.
    Text(String),
    /// As a dict or by keywords.
    Table(toml::Table),
}

#[pymethods]
impl Experiment {
    #[new]
    #[pyo3(signature = (source=None, /, **keys))]
    fn new(
        source: Option<&Bound<'_, PyAny>>,
        keys: Option<&Bound<'_, PyDict>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let (written, mut given) = match source {
            None => (Written::Table(toml::Table::new()), Vec::new()),
            Some(source) => written(source)?,
        };
        given.extend(keys.map(assignments).transpose()?.unwrap_or_default());
        Self::of(py, written, given)
    }

    /// Reads the text of an experiment file.
    #[staticmethod]
    #[pyo3(signature = (text, /, **keys))]
    fn from_toml(text: &str, keys: Option<&Bound<'_, PyDict>>, py: Python<'_>) -> PyResult<Self> {
        let given = keys.map(assignments).transpose()?.unwrap_or_default();
        Self::of(py, Written::Text(text.to_owned()), given)
    }

    /// The same experiment with other values of some keys. A table is changed key by key, and `method` as a whole;
    /// a key with dots is one inside of a table: `replace(**{"work.optimiser.rate": 1e-3})`.
    #[pyo3(signature = (**keys))]
    fn replace(&self, keys: Option<&Bound<'_, PyDict>>, py: Python<'_>) -> PyResult<Self> {
        let more = keys.map(assignments).transpose()?.unwrap_or_default();
        let given = self.given.iter().cloned().chain(more).collect();
        Self::of(py, self.written.clone(), given)
    }

    /// What the experiment is called.
    #[getter]
    fn name(&self) -> &str {
        self.parsed.raw().name.as_deref().unwrap_or_default()
    }

    /// Where every random draw starts.
    #[getter]
    fn seed(&self) -> u64 {
        self.parsed.raw().seed
    }

    /// The experiment as the text of a file, with every key that has a value.
    fn to_toml(&self) -> PyResult<String> {
        toml::to_string(self.parsed.raw()).map_err(|error| PyTypeError::new_err(error.to_string()))
    }

    /// The same as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        dict_of(py, &self.table()?)
    }

    fn __repr__(&self) -> String {
        let raw = self.parsed.raw();
        let task = raw.data.task.map_or("?", fedra::data::Task::name);
        let rounds =
            raw.federation.rounds.map_or_else(|| "?".to_owned(), |rounds| rounds.to_string());
        let (name, method, seed) = (self.name(), &raw.method.name, raw.seed);
        format!(
            "Experiment(name={name:?}, task={task:?}, method={method:?}, rounds={rounds}, seed={seed})"
        )
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let other = other.cast::<Self>();
        other.is_ok_and(|other| other.get().parsed.raw() == self.parsed.raw())
    }

    fn __hash__(&self) -> u64 {
        self.seed()
    }
}

impl Experiment {
    fn of(py: Python<'_>, written: Written, given: Vec<(String, toml::Value)>) -> PyResult<Self> {
        const UNNAMED: &str = "experiment";
        let put = |overrides: Overrides, (key, value): &(String, toml::Value)| {
            overrides.give(key, value.clone())
        };
        let overrides = given.iter().fold(Overrides::default(), put);
        let parsed = match &written {
            Written::File(path, text) => {
                let name = path.file_stem().map_or(UNNAMED.into(), |stem| stem.to_string_lossy());
                ParsedExperiment::from_text(text, &path.display().to_string(), &name, &overrides)
            }
            Written::Text(text) => {
                ParsedExperiment::from_text(text, "the experiment", UNNAMED, &overrides)
            }
            Written::Table(table) => {
                ParsedExperiment::from_table(table.clone(), UNNAMED, &overrides)
            }
        };
        let parsed = parsed.map_err(|error| raised(py, &error))?;
        Ok(Self { written, given, parsed })
    }

    fn table(&self) -> PyResult<toml::Table> {
        toml::Table::try_from(self.parsed.raw())
            .map_err(|error| PyTypeError::new_err(error.to_string()))
    }

    /// The library's experiment, over data that are handed over or those that it names itself.
    /// Models of the hub that this machine lacks are fetched first.
    pub fn open(
        &self,
        py: Python<'_>,
        data: Option<&[Part<'_>]>,
        follower: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<fedra::Experiment> {
        hub::provide(py, follower, &|| match data {
            // Whether its models are here can be asked without rows.
            Some(_) => self.parsed.clone().over_records(|_, _| Ok(())).map(drop),
            None => self.parsed.clone().check().map(drop),
        })?;
        match data {
            Some(parts) => experiment_over(py, self.parsed.clone(), parts),
            None => self.parsed.clone().check().map_err(|error| raised(py, &error)),
        }
    }
}

/// Where an experiment is written that somebody names.
fn written(source: &Bound<'_, PyAny>) -> PyResult<(Written, Vec<(String, toml::Value)>)> {
    if let Ok(other) = source.cast::<Experiment>() {
        let other = other.get();
        return Ok((other.written.clone(), other.given.clone()));
    }
    if let Ok(mapping) = source.cast::<PyDict>() {
        return Ok((Written::Table(table_of(mapping)?), Vec::new()));
    }
    if let Ok(text) = source.cast::<PyString>()
        && text.to_str()?.contains('\n')
    {
        return Ok((Written::Text(text.to_str()?.to_owned()), Vec::new()));
    }
    let Ok(path) = source.extract::<PathBuf>() else {
        let kind = source.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "found a {kind}, expected the path of an experiment file, its text, a dict or an Experiment"
        )));
    };
    let text = fedra::config::text_of(&path).map_err(|error| raised(source.py(), &error))?;
    Ok((Written::File(path, text), Vec::new()))
}

/// What keywords put over an experiment: tables key by key, the method as a whole.
fn assignments(keys: &Bound<'_, PyDict>) -> PyResult<Vec<(String, toml::Value)>> {
    let mut given = Vec::new();
    for (key, value) in keys {
        let key: String = key.extract()?;
        match toml_of(&key, &value)? {
            None => {}
            Some(toml::Value::Table(table)) if key != "method" => {
                given.extend(
                    table.into_iter().map(|(inner, value)| (format!("{key}.{inner}"), value)),
                );
            }
            Some(value) => given.push((key, value)),
        }
    }
    Ok(given)
}
