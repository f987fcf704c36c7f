//! The tape itself: operations in order, and gradients on their way back through them.

use super::book::{Book, Examples};
use crate::device::Device;
use crate::dropout::Dropout;
use crate::error::ComputeError;
use crate::gradients::{Gradient, Gradients};
use crate::kernels::{self, Fill};
use crate::params::Weight;
use crate::tensor::Tensor;
use crate::value::{Slot, Value};
use fedra_plan::ParamId;

/// Records operations forward and replays them backward, once.
///
/// ```
/// # use fedra_compute::{Device, Tape, Tensor};
/// let device = Device::cpu();
/// let mut tape = Tape::new(&device);
/// let x = tape.input(Tensor::from_slice(&device, 3, 1, &[1.0, 2.0, 3.0]).unwrap());
/// let y = tape.rows(&x, &[2, 0]).unwrap();
/// let received = Tensor::from_slice(&device, 2, 1, &[10.0, 20.0]).unwrap();
/// let gradients = tape.backward(&[(&y, received)]).unwrap();
/// assert_eq!(*gradients.of_input(&x).unwrap().to_host(), [20.0, 0.0, 10.0]);
/// ```
pub struct Tape {
    pub(super) device: Device,
    recorded: Vec<Box<Recorded>>,
    shapes: Vec<(usize, usize)>,
    inputs: Vec<Slot>,
    /// Where the examples are whose gradients are to be told apart.
    pub(super) examples: Option<Box<Examples>>,
    /// What is dropped where a model asks.
    pub(super) dropout: Option<Dropout>,
}

impl Tape {
    /// An empty tape.
    pub fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            recorded: Vec::new(),
            shapes: Vec::new(),
            inputs: Vec::new(),
            examples: None,
            dropout: None,
        }
    }

    /// The device that computes.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// A received tensor whose gradient is wanted (the far side of a cut).
    pub fn input(&mut self, tensor: Tensor) -> Value {
        let value = self.value(tensor);
        self.inputs.extend(value.slot);
        value
    }

    /// A tensor whose gradient nobody wants (a cached frozen prefix).
    pub fn constant(&self, tensor: Tensor) -> Value {
        Value::new(tensor, None)
    }

    /// Replays the tape backward from the given values and their gradients.
    ///
    /// For a loss, the gradient is `Tensor::scalar(device, 1.0)`.
    pub fn backward(self, seeds: &[(&Value, Tensor)]) -> Result<Gradients, ComputeError> {
        if self.examples.is_some() {
            return Err(ComputeError::ByExample);
        }
        Ok(self.replay(seeds, None)?.gradients)
    }

    /// Replays the tape; gradients of weights go into the book if there is one.
    pub(super) fn replay(
        mut self,
        seeds: &[(&Value, Tensor)],
        book: Option<Book>,
    ) -> Result<Flow, ComputeError> {
        let slots = self.shapes.iter().map(|_| None).collect();
        let mut flow = Flow { device: self.device, slots, gradients: Gradients::default(), book };
        for (value, gradient) in seeds {
            let slot = value.slot.ok_or(ComputeError::NoGradient)?;
            let expected = self.shapes[slot.0];
            ComputeError::expect("backward", "gradient shape", gradient.shape(), expected)?;
            flow.add(Some(slot), gradient.clone());
        }
        while let Some(operation) = self.recorded.pop() {
            operation(&mut flow);
        }
        flow.device.check()?;
        for slot in self.inputs {
            if let Some(gradient) = flow.slots[slot.0].take() {
                flow.gradients.put_input(slot.0, gradient);
            }
        }
        Ok(flow)
    }

    /// A value that something trained contributes to.
    fn value(&mut self, tensor: Tensor) -> Value {
        let slot = Slot(self.shapes.len());
        self.shapes.push(tensor.shape());
        Value::new(tensor, Some(slot))
    }

    /// Wraps a result. Only if `wanted`, `record` keeps what the operation needs to run backward: given
    /// the gradient of the result, it adds those of its inputs and weights to the flow.
    pub(super) fn finish<B: FnOnce(&mut Flow, Tensor) + Send + 'static>(
        &mut self,
        tensor: Tensor,
        wanted: bool,
        record: impl FnOnce() -> B,
    ) -> Value {
        if !wanted {
            return self.constant(tensor);
        }
        let (value, backward) = (self.value(tensor), record());
        let slot = value.slot;
        self.recorded.push(Box::new(move |flow| {
            if let Some(gradient) = slot.and_then(|slot| flow.slots[slot.0].take()) {
                backward(flow, gradient);
            }
        }));
        value
    }
}

impl std::fmt::Debug for Tape {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tape").field("shapes", &self.shapes).finish_non_exhaustive()
    }
}

/// An operation that runs backward, unless nothing downstream used its result.
type Recorded = dyn FnOnce(&mut Flow) + Send;

/// Gradients under way.
pub(super) struct Flow {
    pub device: Device,
    slots: Vec<Option<Tensor>>,
    pub gradients: Gradients,
    /// Where operations keep what examples' gradients are made of, instead of adding gradients.
    pub book: Option<Book>,
}

impl Flow {
    /// Adds a gradient to a value that may or may not want it.
    pub fn add(&mut self, slot: Option<Slot>, gradient: Tensor) {
        let Some(slot) = slot else { return };
        self.slots[slot.0] = Some(match self.slots[slot.0].take() {
            None => gradient,
            Some(sum) if sum.is_shared() && !gradient.is_shared() => plus(gradient, &sum),
            Some(sum) => plus(sum, &gradient),
        });
    }

    /// Adds a gradient to some rows of a value's.
    pub fn add_rows(
        &mut self,
        slot: Option<Slot>,
        shape: (usize, usize),
        rows: &[u32],
        gradient: &Tensor,
    ) {
        let Some(slot) = slot else { return };
        let (mut sum, fill) = self.open(slot, shape);
        if fill == Fill::Overwrite {
            sum.clear();
        }
        kernels::scatter_add(&mut sum, rows, gradient);
        self.close(slot, sum);
    }

    /// Takes a value's gradient out to be written, and says whether there is anything to add to; the
    /// caller puts it back with [`Flow::close`].
    pub fn open(&mut self, slot: Slot, (rows, cols): (usize, usize)) -> (Tensor, Fill) {
        match self.slots[slot.0].take() {
            Some(sum) => (sum, Fill::Add),
            None => (Tensor::activation(&self.device, rows, cols), Fill::Overwrite),
        }
    }

    /// Puts back what [`Flow::open`] took out.
    pub fn close(&mut self, slot: Slot, sum: Tensor) {
        self.slots[slot.0] = Some(sum);
    }

    /// Adds a gradient, whole or in rows, to a weight's.
    pub fn add_gradient(&mut self, id: ParamId, gradient: Gradient) {
        self.gradients.add_one(id, gradient).expect("both have the weight's shape");
    }
}

fn plus(mut sum: Tensor, more: &Tensor) -> Tensor {
    sum.add_scaled(1.0, more).expect("both have the value's shape");
    sum
}

/// Whether an operation on these has anything to learn or to pass on.
pub(super) fn wanted(values: &[&Value], weights: &[&Weight]) -> bool {
    values.iter().any(|value| value.slot.is_some()) || weights.iter().any(|weight| weight.trains)
}
