//! Rows that are dicts: lists of records, and whatever has no Arrow interface.

use fedra_data::{Cell, Fields, Message, Mismatch, messages_of_json};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString};

/// One row.
pub struct ObjectRow<'py> {
    fields: Bound<'py, PyDict>,
    names: Vec<String>,
}

impl<'py> ObjectRow<'py> {
    /// The fields of a dict.
    pub fn new(fields: Bound<'py, PyDict>) -> PyResult<Self> {
        let names = fields.keys().iter().map(|key| Ok(key.str()?.to_string()));
        Ok(Self { names: names.collect::<PyResult<_>>()?, fields })
    }

    /// A field by its name, or inside of dicts by its path.
    fn field(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(value) = self.fields.get_item(name)? {
            return Ok(Some(value).filter(|value| !value.is_none()));
        }
        let Some((top, inner)) = name.split_once('.') else { return Ok(None) };
        let Some(value) = self.fields.get_item(top)? else { return Ok(None) };
        match value.cast_into::<PyDict>() {
            Ok(fields) => Self { fields, names: Vec::new() }.field(inner),
            Err(_) => Ok(None),
        }
    }
}

impl Fields for ObjectRow<'_> {
    fn take(&mut self, name: &str) -> Result<Option<Cell>, Mismatch> {
        let value = self.field(name).map_err(|error| complaint(name, &error.to_string()))?;
        let Some(value) = value else { return Ok(None) };
        let read = cell(&value).map_err(|error| complaint(name, &error.to_string()))?;
        read.map(Some).map_err(|found| complaint(name, &found))
    }

    fn bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, Mismatch> {
        let value = self.field(name).map_err(|error| complaint(name, &error.to_string()))?;
        let Some(value) = value else { return Ok(None) };
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Some(bytes.as_bytes().to_vec()));
        }
        encoded(&value).map_err(|error| complaint(name, &error.to_string()))
    }

    fn messages(&mut self, name: &str) -> Result<Option<Vec<Message>>, Mismatch> {
        let value = self.field(name).map_err(|error| complaint(name, &error.to_string()))?;
        let Some(value) = value else { return Ok(None) };
        let text = json(&value).map_err(|error| complaint(name, &error.to_string()))?;
        messages_of_json(&text).map(Some)
    }

    fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }
}

/// A value as JSON; a text is JSON already.
fn json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = value.cast::<PyString>() {
        return text.extract();
    }
    value.py().import("json")?.call_method1("dumps", (value,))?.extract()
}

/// The bytes of an image of Pillow.
fn encoded(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if !(value.hasattr("save")? && value.hasattr("getbands")?) {
        return Ok(None);
    }
    let buffer = value.py().import("io")?.getattr("BytesIO")?.call0()?;
    value.call_method1("save", (&buffer, "PNG"))?;
    Ok(Some(buffer.call_method0("getvalue")?.extract()?))
}

/// A value, or what it is that is not read.
fn cell(value: &Bound<'_, PyAny>) -> PyResult<Result<Cell, String>> {
    if let Some(read) = scalar(value)? {
        return Ok(read.map(Cell::One));
    }
    let list = if value.hasattr("tolist")? { value.call_method0("tolist")? } else { value.clone() };
    if let Some(read) = scalar(&list)? {
        return Ok(read.map(Cell::One));
    }
    let is_mapping = list.cast::<PyDict>().is_ok() || list.cast::<PyBytes>().is_ok();
    let Some(items) = list.try_iter().ok().filter(|_| !is_mapping) else {
        return Ok(Err(format!("a {}", value.get_type().name()?)));
    };
    let mut texts = Vec::new();
    for item in items {
        match scalar(&item?)? {
            Some(Ok(text)) => texts.push(text),
            Some(Err(found)) => return Ok(Err(found)),
            None => return Ok(Err("a list of something else than text and numbers".to_owned())),
        }
    }
    Ok(Ok(Cell::List(texts)))
}

/// A text, a truth value or a number as it is written in JSON; nothing where it is none of these.
fn scalar(value: &Bound<'_, PyAny>) -> PyResult<Option<Result<String, String>>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Some(Ok(text.to_str()?.to_owned())));
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(Some(Ok(truth.is_true().to_string())));
    }
    if value.cast::<PyInt>().is_ok() {
        return Ok(Some(Ok(value.str()?.to_string())));
    }
    if value.cast::<PyFloat>().is_ok() {
        let number: f64 = value.extract()?;
        let finite = number.is_finite().then(|| format!("{number:?}"));
        return Ok(Some(finite.ok_or_else(|| format!("{number:?}"))));
    }
    // A single number of NumPy.
    if value.hasattr("item")?
        && value
            .getattr("ndim")
            .and_then(|ndim| ndim.extract::<usize>())
            .is_ok_and(|ndim| ndim == 0)
    {
        return scalar(&value.call_method0("item")?);
    }
    Ok(None)
}

fn complaint(name: &str, found: &str) -> Mismatch {
    (format!("{found} in {name:?}"), "text, numbers or a flat list of them".to_owned())
}
