//! The numbers of a model for NumPy, without a copy of them: an array lies in the memory of the library, and holds on to
//! it. It is read-only, because the library may be at work on the same model.

use std::sync::Arc;

use fedra_engine::ParamValues;
use fedra_plan::{Layout, ParamId, Shape};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A model's parameters by name, as NumPy arrays: a mapping such as `{"block.3.query.weight": array}`.
///
/// Arrays are read-only and share the library's memory. Names say layer, role and part; they are those of plans and
/// reports.
#[pyclass(module = "fedra", frozen, mapping)]
pub struct Parameters {
    values: Arc<ParamValues>,
    shapes: Arc<Layout>,
}

impl Parameters {
    /// The values of a model with this layout.
    pub fn new(values: ParamValues, shapes: Arc<Layout>) -> Self {
        Self { values: Arc::new(values), shapes }
    }

    fn array<'py>(&self, py: Python<'py>, id: ParamId) -> PyResult<Bound<'py, PyAny>> {
        let array = ParameterArray {
            values: Arc::clone(&self.values),
            id,
            shape: self.shapes.get(id).copied(),
        };
        py.import("numpy")?.call_method1("asarray", (array,))
    }
}

#[pymethods]
impl Parameters {
    fn __len__(&self) -> usize {
        self.values.iter().len()
    }

    fn __contains__(&self, name: &str) -> bool {
        name.parse().is_ok_and(|id: ParamId| self.values.get(id).is_some())
    }

    fn __getitem__<'py>(&self, name: &str, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let id = name.parse().ok().filter(|id: &ParamId| self.values.get(*id).is_some());
        let id = id.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        self.array(py, id)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.keys().into_pyobject(py)?.try_iter()?.into_any())
    }

    /// The names in the order of the model.
    fn keys(&self) -> Vec<String> {
        self.values.iter().map(|(id, _)| id.to_string()).collect()
    }

    /// The arrays in the order of the model.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.values.iter().map(|(id, _)| self.array(py, id)).collect()
    }

    /// Names and arrays in the order of the model.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        self.values.iter().map(|(id, _)| Ok((id.to_string(), self.array(py, id)?))).collect()
    }

    fn __repr__(&self) -> String {
        let numbers: usize = self.values.iter().map(|(_, values)| values.len()).sum();
        format!("<{} parameters with {numbers} numbers>", self.__len__())
    }
}

/// One parameter, as NumPy takes it over.
#[pyclass(module = "fedra", frozen)]
pub struct ParameterArray {
    values: Arc<ParamValues>,
    id: ParamId,
    shape: Option<Shape>,
}

#[pymethods]
impl ParameterArray {
    /// Where the numbers lie, in NumPy's array interface; whoever uses it holds on to this object.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let values = self.values.get(self.id).unwrap_or_default();
        let dims = match self.shape {
            Some(shape) => shape.dims().to_vec(),
            None => vec![values.len()],
        };
        array_interface(py, (FLOAT32, &dims), (values.as_ptr() as usize, true))
    }
}

/// NumPy's name of an f32.
pub const FLOAT32: &str = "f4";

/// An array in NumPy's array interface: what its numbers are, its shape, where it lies and whether it is read-only.
pub fn array_interface<'py>(
    py: Python<'py>,
    (kind, shape): (&str, &[usize]),
    place: (usize, bool),
) -> PyResult<Bound<'py, PyDict>> {
    let order = if cfg!(target_endian = "little") { '<' } else { '>' };
    let interface = PyDict::new(py);
    interface.set_item("version", 3)?;
    interface.set_item("typestr", format!("{order}{kind}"))?;
    interface.set_item("shape", PyTuple::new(py, shape)?)?;
    interface.set_item("data", place)?;
    Ok(interface)
}
