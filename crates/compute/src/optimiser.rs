//! SGD, momentum and `AdamW`: one fused pass over what has a gradient, and nothing else.
//!
//! A parameter without a gradient is frozen and stays identical to the bit: no decay, no momentum
//! touches it. Embedding gradients stay sparse: rows that were never looked up have no moments, so
//! they only decay, exactly as they would under a dense `AdamW`.

use crate::device::Device;
use crate::error::ComputeError;
use crate::gradients::{Gradient, Gradients};
use crate::kernels::{self, Change, GradientView};
use crate::params::Params;
use crate::solver::{SolverStep, check};
use crate::tensor::Tensor;
use fedra_plan::{ParamId, Scope, Solver};
use std::collections::BTreeMap;

/// A solver and what it remembers.
#[derive(Clone, Debug)]
pub struct Optimiser {
    solver: Solver,
    device: Device,
    memory: BTreeMap<ParamId, Memory>,
    damped: Option<(Scope, f32)>,
    /// What a schedule multiplies the rate by.
    factor: f32,
}

impl Optimiser {
    /// A solver that remembers nothing yet; refuses settings that make no sense.
    pub fn new(device: &Device, solver: Solver) -> Result<Self, ComputeError> {
        check(solver)?;
        let (device, memory) = (device.clone(), BTreeMap::new());
        Ok(Self { solver, device, memory, damped: None, factor: 1.0 })
    }

    /// From now on multiplies the rate by a factor wherever a parameter is in the scope; refuses a
    /// factor that makes no rate. Decoupled decay goes with the rate, as in a parameter group.
    pub fn damp(&mut self, scope: Scope, factor: f32) -> Result<(), ComputeError> {
        check(self.solver.scaled(factor))?;
        self.damped = Some((scope, factor));
        Ok(())
    }

    /// From now on the rate is this factor of the solver's; refuses one that makes no rate. Decoupled
    /// decay goes with the rate, as under PyTorch's schedulers.
    pub fn schedule(&mut self, factor: f32) -> Result<(), ComputeError> {
        check(self.solver.scaled(factor))?;
        self.factor = factor;
        Ok(())
    }

    /// What it remembers of each parameter: the steps it took, and its moments, empty where there are none.
    pub fn moments(&self) -> impl Iterator<Item = (ParamId, u32, &[Tensor; 2])> {
        self.memory.iter().map(|(id, memory)| (*id, memory.steps as u32, &memory.moments))
    }

    /// Makes it remember a parameter as [`Optimiser::moments`] told, in place of what it knew.
    pub fn restore(&mut self, id: ParamId, steps: u32, moments: [Tensor; 2]) {
        let steps = i32::try_from(steps).unwrap_or(i32::MAX);
        self.memory.insert(id, Memory { steps, moments, touched: None });
    }

    /// Takes one step for every parameter that has a gradient.
    pub fn step(&mut self, params: &mut Params, gradients: &Gradients) -> Result<(), ComputeError> {
        let Self { solver, device, memory, damped, factor } = self;
        let solver = &solver.scaled(*factor);
        for (id, gradient) in gradients.iter() {
            let shape = params.get(id)?.shape();
            gradient.check("optimiser", shape)?;
            memory.entry(id).or_insert_with(|| Memory::new(device, *solver, shape, gradient));
        }
        let mut memories: BTreeMap<_, _> = memory.iter_mut().collect();
        let mut changes = Vec::with_capacity(gradients.iter().len());
        for (id, weight) in params.iter_mut() {
            let Some(gradient) = gradients.get(id) else { continue };
            let memory = memories.remove(&id).expect("made above for every gradient");
            memory.steps = memory.steps.saturating_add(1);
            let solver = match damped {
                Some((scope, factor)) if scope.contains(id) => solver.scaled(*factor),
                Some(_) | None => *solver,
            };
            let step = SolverStep::new(solver, memory.steps);
            memory.touch(gradient, step);
            let slope = match gradient {
                Gradient::Dense(values) => GradientView::Dense(values),
                Gradient::Rows { rows, values, .. } => {
                    GradientView::Rows { rows, values, touched: memory.touched.as_deref() }
                }
            };
            let moments = memory.moments.each_mut();
            changes.push(Change { weight, moments, slope, step });
        }
        kernels::optimise(device, &mut changes);
        device.check()
    }
}

/// What is remembered about one parameter.
#[derive(Clone, Debug)]
struct Memory {
    steps: i32,
    moments: [Tensor; 2],
    /// For tables that are looked up: which rows have ever had a gradient.
    touched: Option<Vec<bool>>,
}

impl Memory {
    fn new(
        device: &Device,
        solver: Solver,
        (rows, cols): (usize, usize),
        first: &Gradient,
    ) -> Self {
        let moment = |number| {
            let rows = if number < solver.moments() { rows } else { 0 };
            Tensor::zeros(device, rows, cols)
        };
        let touched = match first {
            Gradient::Dense(_) => None,
            Gradient::Rows { .. } => Some(vec![false; rows]),
        };
        Self { steps: 0, moments: [moment(0), moment(1)], touched }
    }

    /// Notes which rows have a gradient now. Once every row has one, or gets a moment without one,
    /// there is nothing left to note.
    fn touch(&mut self, gradient: &Gradient, step: SolverStep) {
        match gradient {
            Gradient::Dense(_) => self.touched = None,
            Gradient::Rows { rows, .. } => {
                if step.decay_enters_moments() {
                    self.touched = None;
                }
                for &row in rows {
                    if let Some(touched) = &mut self.touched {
                        touched[row as usize] = true;
                    }
                }
            }
        }
    }
}
