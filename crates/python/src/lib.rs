//! Fedra for Python: the native half of the package `fedra`, in `python/fedra` beside this folder.
//!
//! What computes, waits or reads is here, with values in and values out. What a person touches, docstrings, defaults,
//! progress in a notebook, pictures of a run, is Python, where it can be read and changed without a compiler.
//!
//! ```text
//! fedra (Python)   run.py, model.py, display.py, ...      arguments, docstrings, callbacks, how it looks
//! _fedra (here)    Experiment, run, plan, predict, ...    the library `fedra`, errors as exceptions, rows from Arrow
//! ```

#![expect(clippy::needless_pass_by_value, reason = "PyO3 hands arguments over by value")]

mod errors;
mod values;

mod arrow_rows;
mod object_rows;
mod rows;

mod background;
mod hub;
mod own_parts;
mod parameters;

mod experiment;

mod account;
mod generate;
mod planning;
mod predict;
mod running;
mod studies;

use pyo3::prelude::*;

/// The native half of the package `fedra`.
#[pymodule]
mod _fedra {
    #[pymodule_export]
    use super::account::{epsilon, sigma, steps};
    #[pymodule_export]
    use super::experiment::Experiment;
    #[pymodule_export]
    use super::generate::generate;
    #[pymodule_export]
    use super::own_parts::Parts;
    #[pymodule_export]
    use super::parameters::{ParameterArray, Parameters};
    #[pymodule_export]
    use super::planning::plan;
    #[pymodule_export]
    use super::predict::{Predictor, evaluate};
    #[pymodule_export]
    use super::running::{report, round_table, run};
    #[pymodule_export]
    use super::studies::{advise, audit, compare};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
