//! Values of Rust as Python's, and Python's as TOML's.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};
use serde::Serialize;
use serde_json::Value;

/// A value as the objects that `json.load` would make of the file with it: a short decimal number stays one, and what
/// is no number is `None`.
pub fn python_of<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let written = serde_json::to_string(value).and_then(|text| serde_json::from_str(&text));
    let written: Value = written.map_err(|error| PyTypeError::new_err(error.to_string()))?;
    object(py, &written)
}

fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => number.into_pyobject(py)?.into_any(),
            (None, Some(number)) => number.into_pyobject(py)?.into_any(),
            (None, None) => number.as_f64().into_pyobject(py)?.into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(items) => {
            let items: Vec<_> =
                items.iter().map(|item| object(py, item)).collect::<PyResult<_>>()?;
            PyList::new(py, items)?.into_any()
        }
        Value::Object(fields) => {
            let dict = PyDict::new(py);
            for (name, value) in fields {
                dict.set_item(name, object(py, value)?)?;
            }
            dict.into_any()
        }
    })
}

/// A table of TOML from a mapping; a key whose value is `None` is left out.
pub fn table_of(mapping: &Bound<'_, PyDict>) -> PyResult<toml::Table> {
    let mut table = toml::Table::new();
    for (key, value) in mapping {
        let key: String = key.extract()?;
        if let Some(value) = toml_of(&key, &value)? {
            table.insert(key, value);
        }
    }
    Ok(table)
}

/// A value of TOML; nothing for `None`.
pub fn toml_of(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<toml::Value>> {
    if value.is_none() {
        return Ok(None);
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(Some(truth.is_true().into()));
    }
    if value.cast::<PyInt>().is_ok() {
        return Ok(Some(value.extract::<i64>()?.into()));
    }
    if value.cast::<PyFloat>().is_ok() {
        return Ok(Some(value.extract::<f64>()?.into()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Some(text.to_string().into()));
    }
    if let Ok(mapping) = value.cast::<PyDict>() {
        return Ok(Some(table_of(mapping)?.into()));
    }
    // Numbers of NumPy are numbers, and paths are text.
    for method in ["item", "__fspath__"] {
        if value.hasattr(method)? {
            return toml_of(key, &value.call_method0(method)?);
        }
    }
    if let Ok(items) = value.try_iter() {
        let items = items.map(|item| {
            let expected = || PyTypeError::new_err(format!("{key}: found None in a list"));
            toml_of(key, &item?)?.ok_or_else(expected)
        });
        return Ok(Some(toml::Value::Array(items.collect::<PyResult<_>>()?)));
    }
    let kind = value.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "{key}: found a {kind}, expected a number, a text, a truth value, a list or a dict"
    )))
}

/// The objects of a table.
pub fn dict_of<'py>(py: Python<'py>, table: &toml::Table) -> PyResult<Bound<'py, PyAny>> {
    python_of(py, table)
}
