//! A trained model that labels texts, and its scores on labelled rows.

use std::path::{Path, PathBuf};

use fedra::apply::evaluate::EvaluationData;
use fedra::apply::predict::{LabelProbability, Prediction};
use fedra::apply::run_model::RunModel;
use fedra::apply::trained_model::WhichRound;
use fedra::compute::Device;
use fedra::config::raw_config::{Data, Source};
use fedra::config::{ComputeDevice, OpenedDevice};
use fedra::data::{Body, Columns, Image, Split, TextColumns};
use fedra::{ModelChoice, TrainedModel};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::{Map, Value, json};

use crate::background::followed;
use crate::errors::{failed, raised, refused};
use crate::experiment::Experiment;
use crate::hub;
use crate::rows::Part;
use crate::values::python_of;

/// Rows between two looks for Ctrl-C.
const ROWS: usize = 256;

/// A trained model, opened to label texts.
#[pyclass(module = "fedra", frozen)]
pub struct Predictor {
    model: TrainedModel,
    columns: Vec<String>,
    notes: Vec<String>,
}

#[pymethods]
impl Predictor {
    #[new]
    #[pyo3(signature = (path, best=false, base=None, device=None, precision=None, multi_label=false))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        best: bool,
        base: Option<PathBuf>,
        device: Option<&str>,
        precision: Option<&str>,
        multi_label: bool,
    ) -> PyResult<Self> {
        let choice = choice(py, path, best, base)?;
        let device = opened(py, device, precision)?;
        let open = || -> fedra::Result<Self> {
            let mut model = TrainedModel::open_on(&choice.folders()?, device)?;
            if multi_label {
                model.read_several()?;
            }
            let run = RunModel::of(&choice);
            let columns = match run.as_ref().and_then(RunModel::text_columns) {
                Some(TextColumns::One(name)) => vec![name.clone()],
                Some(TextColumns::Pair(names)) => names.to_vec(),
                None => Vec::new(),
            };
            let notes = run.as_ref().map(RunModel::notes).unwrap_or_default();
            let notes = notes.into_iter().chain(model.notes.iter().cloned()).collect();
            Ok(Self { model, columns, notes })
        };
        py.detach(open).map_err(|error| raised(py, &error))
    }

    /// The labels in the order of the model's outputs.
    #[getter]
    fn labels(&self) -> Vec<String> {
        self.model.labels.clone()
    }

    /// The columns of the texts that it was trained with, where they have no usual name.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.columns.clone()
    }

    /// What a person should know about the model.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Whether it reads images.
    #[getter]
    fn reads_images(&self) -> bool {
        self.model.reads_images()
    }

    /// An answer for each text, pair of texts, list of words, or encoded image.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        rows: Vec<Bound<'py, PyAny>>,
        threshold: f64,
        top: usize,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut answers = Vec::with_capacity(rows.len());
        for (place, rows) in rows.chunks(ROWS).enumerate() {
            let body = |(at, row): (usize, &Bound<'py, PyAny>)| self.body(row, place * ROWS + at);
            let bodies: Vec<Body> = rows.iter().enumerate().map(body).collect::<PyResult<_>>()?;
            let predicted = py.detach(|| self.model.predict(&bodies, threshold));
            for prediction in predicted.map_err(|error| raised(py, &error))? {
                let prediction = prediction.map_err(|error| failed(py, error))?;
                answers.push(python_of(py, &answer(&prediction, top))?);
            }
            py.check_signals()?;
        }
        Ok(answers)
    }
}

impl Predictor {
    fn body(&self, row: &Bound<'_, PyAny>, place: usize) -> PyResult<Body> {
        let py = row.py();
        if self.model.reads_images() {
            let bytes = row.cast::<PyBytes>().map_err(|_| {
                refused(
                    py,
                    "data",
                    &format!(
                        "found no image in place {place}, expected the bytes of a PNG or JPEG file"
                    ),
                )
            })?;
            let image = Image::encoded(bytes.as_bytes().to_vec());
            return image.map(Body::Image).map_err(|(found, expected)| {
                refused(py, "data", &format!("found {found} in place {place}, expected {expected}"))
            });
        }
        if let Ok(text) = row.extract::<String>() {
            return Ok(Body::Text(text));
        }
        if let Ok((first, second)) = row.extract::<(String, String)>() {
            return Ok(Body::Pair(first, second));
        }
        row.extract::<Vec<String>>().map(Body::Words).map_err(|_| {
            let kind =
                row.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
            let expected = "a text, a pair of texts or a list of words";
            refused(py, "data", &format!("found a {kind} in place {place}, expected {expected}"))
        })
    }
}

/// A probability with the digits that the command writes.
fn short(one: &LabelProbability) -> Value {
    let written = (one.probability as f32).to_string();
    written.parse::<f64>().map_or(Value::Null, Value::from)
}

/// An answer with the keys of `fedra predict`.
fn answer(prediction: &Prediction, top: usize) -> Value {
    let likeliest = |labels: &[LabelProbability], least: usize| -> Value {
        let shown = labels.iter().take(top.max(least));
        shown.map(|one| (one.label.clone(), short(one))).collect::<Map<_, _>>().into()
    };
    let mut answer = match prediction {
        Prediction::One { labels, .. } => {
            let best = labels.first();
            json!({
                "predicted": best.map(|one| &one.label),
                "probability": best.map(short),
                "probabilities": likeliest(labels, 0),
            })
        }
        Prediction::Several { labels, answered, .. } => {
            let names: Vec<&str> =
                labels[..*answered].iter().map(|one| one.label.as_str()).collect();
            json!({ "predicted": names, "probabilities": likeliest(labels, *answered) })
        }
        Prediction::Spans { spans, tags: None } => json!({ "predicted": spans }),
        Prediction::Spans { spans, tags } => json!({ "predicted": spans, "tags": tags }),
    };
    if prediction.truncated() > 0 {
        answer["truncated"] = prediction.truncated().into();
    }
    answer
}

/// Scores a model on the rows of an experiment, or of a file.
#[pyfunction]
#[pyo3(signature = (path, best, base, experiment, data, file, columns, split, device, precision, follower))]
#[expect(clippy::too_many_arguments, reason = "the Python half has names and defaults for them")]
pub fn evaluate<'py>(
    py: Python<'py>,
    path: PathBuf,
    best: bool,
    base: Option<PathBuf>,
    experiment: Option<&Bound<'py, Experiment>>,
    data: Option<Vec<Part<'py>>>,
    file: Option<PathBuf>,
    columns: Option<&Bound<'py, pyo3::types::PyDict>>,
    split: Option<&str>,
    device: Option<&str>,
    precision: Option<&str>,
    follower: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let choice = choice(py, path, best, base)?;
    let rows = match (experiment, file) {
        (Some(experiment), _) => {
            let opened = experiment.get().open(py, data.as_deref(), Some(follower))?;
            EvaluationData::Experiment(Box::new(opened))
        }
        (None, Some(file)) => {
            let columns = columns.map(crate::values::table_of).transpose()?.unwrap_or_default();
            let columns: Columns = columns
                .try_into()
                .map_err(|error: toml::de::Error| refused(py, "columns", error.message()))?;
            let source = source_of(&file).ok_or_else(|| {
                refused(py, "data", "found a file whose name does not tell its format, expected .jsonl, .csv, .tsv or .parquet")
            })?;
            let data = Data { path: Some(file), source, columns, ..Data::default() };
            let split = match split {
                None => None,
                Some(name) => Some(Split::parse(name).ok_or_else(|| {
                    refused(
                        py,
                        "split",
                        &format!("found {name:?}, expected train, validation or test"),
                    )
                })?),
            };
            EvaluationData::File(Box::new(data), split)
        }
        (None, None) => {
            return Err(refused(py, "data", "found nothing, expected an experiment or a file"));
        }
    };
    let own = match (&rows, device.is_some() || precision.is_some()) {
        (EvaluationData::Experiment(experiment), false) => experiment.device,
        _ => named(py, device, precision)?,
    };
    let report = followed(py, follower, |listener| {
        fedra::evaluate_on(own, &choice, &rows, (None, listener))
    })?;
    python_of(py, &report)
}

/// How a file of rows is written, by the end of its name.
fn source_of(file: &Path) -> Option<Source> {
    Some(match file.extension()?.to_str()? {
        "jsonl" => Source::Jsonl,
        "csv" => Source::Csv,
        "tsv" => Source::Tsv,
        "parquet" => Source::Parquet,
        _ => return None,
    })
}

/// The model that arguments mean.
pub fn choice(
    py: Python<'_>,
    path: PathBuf,
    best: bool,
    base: Option<PathBuf>,
) -> PyResult<ModelChoice> {
    let round = if best { WhichRound::Best } else { WhichRound::Last };
    let path = hub::folder(py, "model", &path)?;
    let base = base.map(|base| hub::folder(py, "base", &base)).transpose()?;
    Ok(ModelChoice { path, round, base, weights: None })
}

/// The device that arguments name; the processor unless they do.
pub fn opened(py: Python<'_>, device: Option<&str>, precision: Option<&str>) -> PyResult<Device> {
    let OpenedDevice { device, .. } =
        named(py, device, precision)?.open().map_err(|error| raised(py, &error))?;
    Ok(device)
}

fn named(py: Python<'_>, device: Option<&str>, precision: Option<&str>) -> PyResult<ComputeDevice> {
    let device = device.map(str::parse).transpose();
    let device = device.map_err(|error: String| refused(py, "device", &error))?;
    let precision = precision.map(str::parse).transpose();
    let precision = precision.map_err(|error: String| refused(py, "precision", &error))?;
    let (device, precision) = (device.unwrap_or_default(), precision.unwrap_or_default());
    ComputeDevice::new(device, precision).map_err(|error| failed(py, error))
}
