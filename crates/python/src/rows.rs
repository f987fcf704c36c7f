//! What a program hands over as its data: tables and lists of records, each perhaps with a split or a client.

use std::cell::RefCell;
use std::path::Path;

use fedra::data::{DataError, Fields, Reader, Split, TableBuilder};
use fedra::{Error, ParsedExperiment};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrow_rows::ArrowTable;
use crate::errors::{raised, refused};
use crate::object_rows::ObjectRow;

/// A part of the data, as the Python half hands it over.
#[derive(FromPyObject)]
pub struct Part<'py> {
    /// What messages call it.
    #[pyo3(item)]
    name: String,
    /// The split of its rows.
    #[pyo3(item)]
    split: Option<String>,
    /// Whose rows they are.
    #[pyo3(item)]
    client: Option<String>,
    /// An object with `__arrow_c_stream__`, or one whose items are dicts.
    #[pyo3(item)]
    rows: Bound<'py, PyAny>,
}

/// An experiment over these parts.
pub fn experiment_over(
    py: Python<'_>,
    parsed: ParsedExperiment,
    parts: &[Part<'_>],
) -> PyResult<fedra::Experiment> {
    let thrown = RefCell::new(None);
    let read = parsed.over_records(|reader, builder| {
        parts.iter().try_for_each(|part| {
            part.read(reader, builder).map_err(|failure| match failure {
                Failure::Library(error) => error,
                Failure::Python(error) => {
                    *thrown.borrow_mut() = Some(error);
                    Error::Data(DataError::Stopped)
                }
            })
        })
    });
    match (read, thrown.into_inner()) {
        (_, Some(error)) => Err(error),
        (Err(error), None) => Err(raised(py, &error)),
        (Ok(experiment), None) => Ok(experiment),
    }
}

/// Why a part could not be read.
enum Failure {
    /// Its rows.
    Library(Error),
    /// Whoever makes them.
    Python(PyErr),
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Self::Library(error.into())
    }
}

impl Part<'_> {
    fn read(&self, reader: &Reader, builder: &mut TableBuilder) -> Result<(), Failure> {
        let py = self.rows.py();
        let split = match &self.split {
            None => None,
            Some(name) => Some(Split::parse(name).ok_or_else(|| {
                refused(
                    py,
                    "data",
                    &format!("found the split {name:?}, expected train, validation or test"),
                )
            })?),
        };
        let reader = Reader { split, client: self.client.clone(), ..reader.clone() };
        let before = builder.len();
        if self.rows.hasattr("__arrow_c_stream__")? {
            self.read_table(&reader, builder)?;
        } else {
            self.read_objects(&reader, builder)?;
        }
        if builder.len() == before {
            return Err(refused(py, &self.name, "found no rows, expected at least one").into());
        }
        Ok(())
    }

    fn read_table(&self, reader: &Reader, builder: &mut TableBuilder) -> Result<(), Failure> {
        let table = ArrowTable::of(&self.rows)?;
        let rows = table.rows();
        let rows = rows.map(|row| row.map_err(|error| PyValueError::new_err(error.to_string())));
        self.push(reader, rows, builder)
    }

    fn read_objects(&self, reader: &Reader, builder: &mut TableBuilder) -> Result<(), Failure> {
        let rows = self.rows.try_iter()?.enumerate().map(|(place, item)| {
            let item = item?;
            let kind = item.get_type().name()?.to_string();
            let fields = item.cast_into::<PyDict>().map_err(|_| {
                let sentence =
                    format!("found a {kind} in place {place}, expected a dict of columns");
                refused(self.rows.py(), &self.name, &sentence)
            })?;
            ObjectRow::new(fields)
        });
        self.push(reader, rows, builder)
    }

    /// Reads rows, of which one may be an exception.
    fn push<F: Fields>(
        &self,
        reader: &Reader,
        rows: impl Iterator<Item = PyResult<F>>,
        builder: &mut TableBuilder,
    ) -> Result<(), Failure> {
        let thrown = RefCell::new(None);
        let rows = rows.map(|row| {
            row.map_err(|error| {
                *thrown.borrow_mut() = Some(error);
                DataError::Stopped
            })
        });
        let read = reader.read_records(Path::new(&self.name), rows, builder);
        match thrown.into_inner() {
            Some(error) => Err(error.into()),
            None => Ok(read?),
        }
    }
}
