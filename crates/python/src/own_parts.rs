//! Functions of Python in the place of some of a method's choices.
//!
//! They are called on the run's thread, which takes the interpreter's lock for as long. An exception ends the round as if
//! it had not begun, and is what comes of the run. Arrays lie in the library's own memory: the numbers of a change and of
//! what is remembered are lent to Python for the call and taken back behind it, without a copy unless somebody has
//! kept an array. What a score looks at is Python's for good, without a copy.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use fedra::process::locked;
use fedra_engine::{
    ClientInfo, EngineError, OwnAnswers, OwnChoices, OwnParts, OwnRanking, OwnStep, OwnTruth,
    ParamValues,
};
use fedra_plan::{ParamId, Round};
use fedra_wire::ClientId;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::parameters::{FLOAT32, array_interface};

/// The functions of one run.
#[pyclass(module = "fedra", frozen)]
pub struct Parts {
    sampler: Option<Py<PyAny>>,
    selector: Option<Py<PyAny>>,
    server: Option<Py<PyAny>>,
    score: Option<Py<PyAny>>,
    thrown: Mutex<Option<PyErr>>,
}

#[pymethods]
impl Parts {
    #[new]
    const fn new(
        sampler: Option<Py<PyAny>>,
        selector: Option<Py<PyAny>>,
        server: Option<Py<PyAny>>,
        score: Option<Py<PyAny>>,
    ) -> Self {
        Self { sampler, selector, server, score, thrown: Mutex::new(None) }
    }
}

/// The same for the library.
pub struct Own(Py<Parts>);

impl Own {
    /// The parts that an experiment takes.
    pub fn of(parts: &Bound<'_, Parts>) -> Arc<dyn OwnParts> {
        Arc::new(Self(parts.clone().unbind()))
    }

    /// Calls a function; its exception waits for whoever called the run.
    fn called<T>(
        &self,
        function: fn(&Parts) -> &Option<Py<PyAny>>,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T, EngineError> {
        Python::attach(|py| {
            let parts = self.0.bind(py).get();
            let missing = || PyTypeError::new_err("there is no such function");
            let function = function(parts).as_ref().ok_or_else(missing);
            function.and_then(|function| call(function.bind(py))).map_err(|error| {
                locked(&parts.thrown).get_or_insert(error);
                EngineError::Stopped
            })
        })
    }
}

/// The exception that a function of these parts has thrown.
pub fn thrown(parts: Option<&Bound<'_, Parts>>) -> Option<PyErr> {
    parts.and_then(|parts| locked(&parts.get().thrown).take())
}

impl fmt::Debug for Own {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("functions of Python")
    }
}

impl OwnParts for Own {
    fn makes(&self) -> OwnChoices {
        let Parts { sampler, selector, server, score, .. } = self.0.get();
        OwnChoices {
            cohort: sampler.is_some(),
            order: selector.is_some(),
            change: server.is_some(),
            score: score.is_some(),
        }
    }

    fn cohort(&self, round: Round, clients: &[ClientInfo]) -> Result<Vec<ClientId>, EngineError> {
        self.called(
            |parts| &parts.sampler,
            |sampler| {
                let examples = PyDict::new(sampler.py());
                for client in clients {
                    examples.set_item(&client.name, client.examples)?;
                }
                let drawn: Vec<String> = sampler
                    .call1((round.0 + 1, examples))?
                    .try_iter()?
                    .map(|name| name?.extract())
                    .collect::<PyResult<_>>()?;
                let known = |name: String| {
                    let client = clients.iter().find(|client| client.name == name);
                    let stranger = || {
                        let names: Vec<&str> =
                            clients.iter().map(|client| client.name.as_str()).collect();
                        PyValueError::new_err(format!(
                            "sampler: found the client {name:?}, expected some of {}",
                            names.join(", ")
                        ))
                    };
                    client.map(|client| client.id).ok_or_else(stranger)
                };
                drawn.into_iter().map(known).collect()
            },
        )
    }

    fn order(&self, asked: &OwnRanking<'_>) -> Result<Vec<u16>, EngineError> {
        let OwnRanking { round, client, measured, usual } = *asked;
        self.called(
            |parts| &parts.selector,
            |selector| {
                let arguments = (round.0 + 1, &client.name, measured.to_vec(), usual.to_vec());
                let order = selector.call1(arguments)?.try_iter()?;
                let order: Vec<u16> = order.map(|block| block?.extract()).collect::<PyResult<_>>()?;
                let mut sorted = order.clone();
                sorted.sort_unstable();
                let mut all = usual.to_vec();
                all.sort_unstable();
                if sorted != all {
                    let sentence = format!("selector: found the blocks {order:?}, expected each of {all:?} once, best first");
                    return Err(PyValueError::new_err(sentence));
                }
                Ok(order)
            },
        )
    }

    fn change(&self, step: OwnStep<'_>) -> Result<(), EngineError> {
        let OwnStep { round, layout, change, state, .. } = step;
        self.called(
            |parts| &parts.server,
            |server| {
                let py = server.py();
                let shape =
                    |id| layout.get(id).map_or_else(Vec::new, |shape| shape.dims().to_vec());
                let (changes, changed) = Lent::all(py, change, &shape)?;
                let (states, remembered) = Lent::all(py, state, &shape)?;
                let called = server.call1((round.0 + 1, changes, states));
                for lent in changed {
                    lent.take_back(change);
                }
                for lent in remembered {
                    lent.take_back(state);
                }
                called.map(drop)
            },
        )
    }

    fn score(&self, answers: OwnAnswers) -> Result<Option<f64>, EngineError> {
        self.called(
            |parts| &parts.score,
            |score| {
                let py = score.py();
                let OwnAnswers { truth, probabilities, labels } = answers;
                let table = vec![probabilities.len() / labels.max(1), labels];
                let truth = match truth {
                    OwnTruth::One(truth) => (vec![truth.len()], Numbers::Whole(truth)),
                    OwnTruth::Several(truth) => (table.clone(), Numbers::Truth(truth)),
                };
                let probabilities = (table, Numbers::Real(probabilities));
                let asarray = py.import("numpy")?.getattr("asarray")?;
                let [truth, probabilities] = [truth, probabilities]
                    .map(|(shape, numbers)| asarray.call1((GivenArray { numbers, shape },)));
                let found = score.call1((truth?, probabilities?))?;
                found.extract().map_err(|_| {
                    let kind = found.get_type().name().map(|name| name.to_string());
                    let kind = kind.unwrap_or_default();
                    PyTypeError::new_err(format!(
                        "score: found a {kind}, expected a number or None"
                    ))
                })
            },
        )
    }
}

/// A parameter that is lent to Python.
struct Lent {
    id: ParamId,
    memory: Arc<Mutex<Vec<f32>>>,
}

impl Lent {
    /// Lends all parameters, by name.
    fn all<'py>(
        py: Python<'py>,
        values: &mut ParamValues,
        shape: &dyn Fn(ParamId) -> Vec<usize>,
    ) -> PyResult<(Bound<'py, PyDict>, Vec<Self>)> {
        let ids: Vec<ParamId> = values.iter().map(|(id, _)| id).collect();
        let (arrays, mut lent) = (PyDict::new(py), Vec::new());
        let asarray = py.import("numpy")?.getattr("asarray")?;
        for id in ids {
            let Some(mut numbers) = values.remove(id) else { continue };
            let address = numbers.as_mut_ptr() as usize;
            let memory = Arc::new(Mutex::new(numbers));
            let array = LentArray { _memory: Arc::clone(&memory), address, shape: shape(id) };
            lent.push(Self { id, memory });
            arrays.set_item(id.to_string(), asarray.call1((array,))?)?;
        }
        Ok((arrays, lent))
    }

    /// Takes the numbers back, or a copy of them where somebody has kept the array.
    fn take_back(self, values: &mut ParamValues) {
        let numbers = match Arc::try_unwrap(self.memory) {
            Ok(alone) => alone.into_inner().unwrap_or_else(PoisonError::into_inner),
            Err(kept) => locked(&kept).clone(),
        };
        values.insert(self.id, numbers);
    }
}

/// The memory of an array that Python may write to.
#[pyclass(frozen)]
struct LentArray {
    /// What keeps the numbers where they are.
    _memory: Arc<Mutex<Vec<f32>>>,
    address: usize,
    shape: Vec<usize>,
}

#[pymethods]
impl LentArray {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        array_interface(py, (FLOAT32, &self.shape), (self.address, false))
    }
}

/// Numbers of an array that Python keeps.
enum Numbers {
    Real(Vec<f64>),
    Whole(Vec<i64>),
    Truth(Vec<u8>),
}

/// An array that is Python's from now on.
#[pyclass(frozen)]
struct GivenArray {
    numbers: Numbers,
    shape: Vec<usize>,
}

#[pymethods]
impl GivenArray {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (kind, address) = match &self.numbers {
            Numbers::Real(numbers) => ("f8", numbers.as_ptr() as usize),
            Numbers::Whole(numbers) => ("i8", numbers.as_ptr() as usize),
            Numbers::Truth(numbers) => ("b1", numbers.as_ptr() as usize),
        };
        array_interface(py, (kind, &self.shape), (address, true))
    }
}
