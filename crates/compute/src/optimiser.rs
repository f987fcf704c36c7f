//! SGD, momentum and `AdamW`: one fused pass over what has a gradient, and nothing else.
//!
//! A parameter without a gradient is frozen and stays identical to the bit: no decay, no momentum
//! touches it. Embedding gradients stay sparse: rows that were never looked up have no moments, so
//! they only decay, exactly as a dense `AdamW` would have it.

use crate::device::Device;
use crate::error::ComputeError;
use crate::gradients::{Gradient, Gradients};
use crate::kernels;
use crate::params::Params;
use crate::tensor::Tensor;
use fedra_plan::{ParamId, Scope};
use std::collections::BTreeMap;

/// How a gradient becomes a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Solver {
    /// `w -= rate (g + decay w)`.
    Sgd {
        /// Learning rate.
        rate: f32,
        /// Weight decay, added to the gradient.
        weight_decay: f32,
    },
    /// `m = momentum m + g + decay w; w -= rate m`.
    Momentum {
        /// Learning rate.
        rate: f32,
        /// Share of the last step that goes on.
        momentum: f32,
        /// Weight decay, added to the gradient.
        weight_decay: f32,
    },
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
    AdamW {
        /// Learning rate.
        rate: f32,
        /// Decay of the mean.
        beta1: f32,
        /// Decay of the mean square.
        beta2: f32,
        /// Added to the root of the mean square.
        epsilon: f32,
        /// Weight decay, applied to the weight itself.
        weight_decay: f32,
    },
}

impl Solver {
    /// `AdamW` with the usual betas, epsilon 1e-8 and the given rate and decay.
    pub fn adamw(rate: f32, weight_decay: f32) -> Self {
        Self::AdamW { rate, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay }
    }

    /// How many numbers are remembered per trained element.
    pub fn moments(self) -> usize {
        match self {
            Self::Sgd { .. } => 0,
            Self::Momentum { .. } => 1,
            Self::AdamW { .. } => 2,
        }
    }

    /// The learning rate.
    pub fn rate(self) -> f32 {
        match self {
            Self::Sgd { rate, .. } | Self::Momentum { rate, .. } | Self::AdamW { rate, .. } => rate,
        }
    }

    /// The same solver with its rate multiplied.
    fn damped(mut self, factor: f32) -> Self {
        match &mut self {
            Self::Sgd { rate, .. } | Self::Momentum { rate, .. } | Self::AdamW { rate, .. } => {
                *rate *= factor;
            }
        }
        self
    }

    fn check(self) -> Result<(), ComputeError> {
        let share = |what, found: f32| {
            let expected = "at least 0 and below 1";
            let inside = (0.0..1.0).contains(&found);
            if inside { Ok(()) } else { Err(ComputeError::Setting { what, found, expected }) }
        };
        let positive = |what, found: f32| {
            let expected = "finite and not negative";
            let good = found.is_finite() && found >= 0.0;
            if good { Ok(()) } else { Err(ComputeError::Setting { what, found, expected }) }
        };
        positive("learning rate", self.rate())?;
        match self {
            Self::Sgd { weight_decay, .. } => positive("weight decay", weight_decay),
            Self::Momentum { momentum, weight_decay, .. } => {
                share("momentum", momentum)?;
                positive("weight decay", weight_decay)
            }
            Self::AdamW { beta1, beta2, epsilon, weight_decay, .. } => {
                share("beta1", beta1)?;
                share("beta2", beta2)?;
                if epsilon <= 0.0 {
                    // An element whose gradients were all zero would become 0 / 0.
                    let (what, expected) = ("epsilon", "above 0");
                    return Err(ComputeError::Setting { what, found: epsilon, expected });
                }
                positive("epsilon", epsilon)?;
                positive("weight decay", weight_decay)
            }
        }
    }
}

/// A solver and what it remembers.
#[derive(Clone, Debug)]
pub struct Optimiser {
    solver: Solver,
    device: Device,
    memory: BTreeMap<ParamId, Memory>,
    damped: Option<(Scope, f32)>,
}

impl Optimiser {
    /// A solver that remembers nothing yet; refuses settings that make no sense.
    pub fn new(device: &Device, solver: Solver) -> Result<Self, ComputeError> {
        solver.check()?;
        Ok(Self { solver, device: device.clone(), memory: BTreeMap::new(), damped: None })
    }

    /// The solver.
    pub fn solver(&self) -> Solver {
        self.solver
    }

    /// Changes the solver's settings (a schedule); what is remembered stays, so after the first step
    /// the solver's kind must stay too.
    pub fn set_solver(&mut self, solver: Solver) -> Result<(), ComputeError> {
        solver.check()?;
        if !self.memory.is_empty() {
            let what = "moments per element of the new solver";
            ComputeError::expect("optimiser", what, solver.moments(), self.solver.moments())?;
        }
        self.solver = solver;
        Ok(())
    }

    /// From now on multiplies the rate by a factor wherever a parameter is in the scope; refuses a
    /// factor that makes no rate. Decoupled decay goes with the rate, as in a parameter group.
    pub fn damp(&mut self, scope: Scope, factor: f32) -> Result<(), ComputeError> {
        self.solver.damped(factor).check()?;
        self.damped = Some((scope, factor));
        Ok(())
    }

    /// The solver of one parameter.
    fn solver_of(&self, id: ParamId) -> Solver {
        match &self.damped {
            Some((scope, factor)) if scope.contains(id) => self.solver.damped(*factor),
            Some(_) | None => self.solver,
        }
    }

    /// Takes one step for every parameter that has a gradient.
    pub fn step(&mut self, params: &mut Params, gradients: &Gradients) -> Result<(), ComputeError> {
        for (id, gradient) in gradients.iter() {
            let (rows, cols) = params.get(id)?.shape();
            gradient.check("optimiser", (rows, cols))?;
            self.memory
                .entry(id)
                .or_insert_with(|| Memory::new(&self.device, self.solver, (rows, cols), gradient));
        }
        let solvers: BTreeMap<ParamId, Solver> =
            gradients.iter().map(|(id, _)| (id, self.solver_of(id))).collect();
        let mut memories: BTreeMap<_, _> = self.memory.iter_mut().collect();
        let mut changes = Vec::with_capacity(solvers.len());
        for (id, weight) in params.iter_mut() {
            let Some(gradient) = gradients.get(id) else { continue };
            let memory = memories.remove(&id).expect("made above for every gradient");
            memory.steps += 1;
            let step = Step::new(solvers[&id], memory.steps);
            memory.touch(gradient, step);
            let slope = match gradient {
                Gradient::Dense(values) => Slope::Dense(values),
                Gradient::Rows { rows, values, .. } => {
                    Slope::Rows { rows, values, touched: memory.touched.as_deref() }
                }
            };
            let moments = memory.moments.each_mut();
            changes.push(Change { weight, moments, slope, step });
        }
        kernels::optimise(&self.device, &mut changes);
        Ok(())
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

    /// Notes which rows have a gradient now; where every row has one or gets a moment without, there
    /// is nothing to note any more.
    fn touch(&mut self, gradient: &Gradient, step: Step) {
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

/// One parameter and what its step needs.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub weight: &'a mut Tensor,
    /// Empty where the solver has fewer.
    pub moments: [&'a mut Tensor; 2],
    pub slope: Slope<'a>,
    pub step: Step,
}

/// The gradient of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slope<'a> {
    /// Of every element.
    Dense(&'a Tensor),
    /// Of some rows, ascending; of the others it is zero.
    Rows {
        rows: &'a [u32],
        values: &'a Tensor,
        /// Which rows ever had one, if that is known: the others have no moments and only decay.
        touched: Option<&'a [bool]>,
    },
}

/// One solver's numbers at one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub solver: Solver,
    /// `rate / (1 - beta1^t)` and `1 / (1 - beta2^t)`, for `AdamW`.
    pub corrected: [f32; 2],
}

impl Step {
    fn new(solver: Solver, steps: i32) -> Self {
        let corrected = match solver {
            Solver::AdamW { rate, beta1, beta2, .. } => {
                let first = 1.0 - f64::from(beta1).powi(steps);
                let second = 1.0 - f64::from(beta2).powi(steps);
                [(f64::from(rate) / first) as f32, (1.0 / second) as f32]
            }
            Solver::Sgd { .. } | Solver::Momentum { .. } => [0.0; 2],
        };
        Self { solver, corrected }
    }

    /// Whether a weight without gradient and moments changes at all.
    pub(crate) fn decays(self) -> bool {
        match self.solver {
            Solver::Sgd { weight_decay, .. }
            | Solver::Momentum { weight_decay, .. }
            | Solver::AdamW { weight_decay, .. } => weight_decay != 0.0,
        }
    }

    /// Whether decay alone gives a weight a moment, so that no row is ever at rest.
    fn decay_enters_moments(self) -> bool {
        match self.solver {
            Solver::Momentum { weight_decay, .. } => weight_decay != 0.0,
            Solver::Sgd { .. } | Solver::AdamW { .. } => false,
        }
    }
}
