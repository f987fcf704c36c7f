//! The optimisers' steps: one fused pass over weight, gradient and moments.

use super::elementwise::RUN;
use super::simd::vectorised;
use crate::operands::{Change, GradientView};
use crate::solver::SolverStep;
use crate::storage::Numbers;
use crate::tensor::Tensor;
use crate::thread_pool;
use fedra_plan::Solver;

/// Takes a step for every parameter that changes.
pub fn run(changes: &mut [Change<'_>]) {
    let widest = changes.iter().map(|change| change.weight.cols()).max();
    let zeros = vec![0.0; widest.unwrap_or(0)];
    let gradients: Vec<Numbers<'_>> = changes.iter().map(read).collect();
    let mut jobs = Batches::default();
    for (change, gradient) in changes.iter_mut().zip(&gradients) {
        cut(change, gradient, &zeros, &mut jobs);
    }
    thread_pool::each_chunk(&mut jobs.batches, 1, |_, batches| {
        batches.iter_mut().flatten().for_each(Job::run);
    });
}

fn read<'a>(change: &Change<'a>) -> Numbers<'a> {
    match change.slope {
        GradientView::Dense(values) | GradientView::Rows { values, .. } => values.read(),
    }
}

/// Cuts one parameter's step into jobs.
fn cut<'a>(
    change: &'a mut Change<'_>,
    gradient: &'a [f32],
    zeros: &'a [f32],
    jobs: &mut Batches<'a>,
) {
    let (rows, cols) = change.weight.shape();
    let step = change.step;
    let [m, v] = change.moments.each_mut().map(|moment| Tensor::write(moment));
    let mut runs = Runs { w: change.weight.write(), m, v };
    match change.slope {
        GradientView::Dense(_) => {
            for g in gradient.chunks(RUN) {
                let (w, m, v) = runs.next(g.len());
                jobs.push(Job { w, m, v, g, step });
            }
        }
        GradientView::Rows { rows: given, touched, .. } => {
            let values = gradient.chunks_exact(cols.max(1));
            let mut given = given.iter().zip(values).peekable();
            for row in 0..rows {
                let (w, m, v) = runs.next(cols);
                let g = given.next_if(|(at, _)| **at as usize == row);
                let g = g.map_or(&zeros[..cols], |(_, g)| g);
                if touched.is_none_or(|touched| touched[row]) {
                    jobs.push(Job { w, m, v, g, step });
                } else if step.decays() {
                    jobs.push(Job { w, m: &mut [], v: &mut [], g, step });
                }
            }
        }
    }
}

/// Weight and moments, cut off run by run.
struct Runs<'a> {
    w: &'a mut [f32],
    m: &'a mut [f32],
    v: &'a mut [f32],
}

impl<'a> Runs<'a> {
    fn next(&mut self, len: usize) -> (&'a mut [f32], &'a mut [f32], &'a mut [f32]) {
        let w = self.w.split_off_mut(..len).expect("runs cover the weight once");
        // A moment that the solver does not have is empty, and so is every run of it.
        let m = self.m.split_off_mut(..len).unwrap_or_default();
        let v = self.v.split_off_mut(..len).unwrap_or_default();
        (w, m, v)
    }
}

/// A run of one parameter; no moments means zeros that stay zero.
struct Job<'a> {
    w: &'a mut [f32],
    m: &'a mut [f32],
    v: &'a mut [f32],
    g: &'a [f32],
    step: SolverStep,
}

/// Jobs in batches that are worth a task: the rows of a table are short.
#[derive(Default)]
struct Batches<'a> {
    batches: Vec<Vec<Job<'a>>>,
    /// Elements of the last batch.
    filled: usize,
}

impl<'a> Batches<'a> {
    fn push(&mut self, job: Job<'a>) {
        if self.batches.is_empty() || self.filled + job.w.len() > RUN {
            self.batches.push(Vec::new());
            self.filled = 0;
        }
        self.filled += job.w.len();
        self.batches.last_mut().expect("just made").push(job);
    }
}

impl Job<'_> {
    fn run(&mut self) {
        step_run(self.w, self.m, self.v, self.g, self.step);
    }
}

vectorised! {
    fn step_run(w: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32], step: SolverStep) {
        match step.solver {
            Solver::Sgd { rate, weight_decay } => {
                for (w, g) in w.iter_mut().zip(g) {
                    *w -= rate * weight_decay.mul_add(*w, *g);
                }
            }
            Solver::Momentum { rate, momentum, weight_decay } => {
                for ((w, g), m) in w.iter_mut().zip(g).zip(m) {
                    *m = momentum.mul_add(*m, weight_decay.mul_add(*w, *g));
                    *w -= rate * *m;
                }
            }
            Solver::AdamW { rate, beta1, beta2, epsilon, weight_decay } => {
                let keep = 1.0 - rate * weight_decay;
                let [rate, correction] = step.corrected;
                if m.is_empty() {
                    for w in w {
                        *w *= keep;
                    }
                    return;
                }
                for (((w, g), m), v) in w.iter_mut().zip(g).zip(m).zip(v) {
                    *m = beta1.mul_add(*m, (1.0 - beta1) * g);
                    *v = beta2.mul_add(*v, (1.0 - beta2) * g * g);
                    *w = *w * keep - rate * *m / ((*v * correction).sqrt() + epsilon);
                }
            }
        }
    }
}
