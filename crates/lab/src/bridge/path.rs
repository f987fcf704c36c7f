//! One student on its way through one world, and what every warm-up of it ends at.

use fedra_seed::Seed;
use serde::Serialize;

use super::setting::{BridgeSetting, Teacher};
use super::student::Student;
use crate::attention::Attention;
use crate::federation::{Federation, Work};
use crate::frozen_attention::FrozenAttention;
use crate::network::Weights;
use crate::phi::Phi;
use crate::study::{Sweep, final_loss};
use crate::world::World;

/// One student on one world.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BridgeRun {
    /// Who learns.
    pub student: Student,
    /// `h_kernel = h_value`.
    pub heterogeneity: f64,
    /// Which world, from 0.
    pub world: u32,
    /// Final global loss for each warm-up; absent where the run diverged: left the finite numbers, or ended
    /// above where it began.
    pub final_by_warmup: Sweep,
    /// The global loss of the weights that every warm-up begins with.
    pub start: f64,
    /// Which share of its loss never freezing still lost over the last sixth of the rounds: how far from done;
    /// absent where it diverged.
    pub still_falling: Option<f64>,
}

/// What distinguishes one path of training from another.
#[derive(Clone, Copy)]
pub(super) struct Task {
    pub student: Student,
    pub heterogeneity: f64,
    pub rate: f64,
    pub seed: Seed,
}

/// Full training, round by round, from which every warm-up departs.
pub(super) struct Path<'s> {
    setting: &'s BridgeSetting,
    federation: Federation,
    rounds: Vec<Weights>,
}

impl<'s> Path<'s> {
    pub fn follow(setting: &'s BridgeSetting, task: Task) -> Self {
        let Task { student, heterogeneity, rate, seed } = task;
        let teacher = match setting.teacher {
            Teacher::Softmax => Attention::Softmax,
            Teacher::Linear => Attention::Linear(Phi::Identity),
        };
        let data = World {
            sizes: setting.sizes,
            teacher,
            clients: setting.clients,
            samples: setting.samples,
            kernel_shift: heterogeneity,
            value_shift: heterogeneity,
            noise: setting.noise,
        };
        let network = student.network(setting);
        let work = Work { local_steps: setting.local_steps, rate, cohort: setting.cohort };
        let federation = Federation { clients: data.clients(seed), network, work, seed };
        let start = network.start(setting.sizes, seed.of("student"));
        let rounds = federation.train(start, setting.rounds);
        Self { setting, federation, rounds }
    }

    /// Final loss for each warm-up.
    pub fn sweep(&self) -> Sweep {
        let ceiling = self.start();
        let kept = |loss: &f64| *loss < ceiling;
        let end = |&warmup: &u32| (warmup, self.end(warmup).filter(kept));
        self.setting.warmups.iter().map(end).collect()
    }

    pub fn start(&self) -> f64 {
        self.federation.loss(&self.rounds[0])
    }

    /// Final loss when the kernel is frozen after this many rounds.
    fn end(&self, warmup: u32) -> Option<f64> {
        let last = self.setting.rounds;
        let at = self.rounds.get(warmup as usize)?;
        if let Some(frozen) = FrozenAttention::at(&self.federation, at) {
            return Some(self.federation.loss(&frozen.train(at.clone(), warmup, last)?));
        }
        final_loss(&self.federation, &self.rounds, warmup, last)
    }

    pub fn still_falling(&self) -> Option<f64> {
        let rounds = self.setting.rounds;
        let loss = |round: u32| Some(self.federation.loss(self.rounds.get(round as usize)?));
        let end = loss(rounds).filter(|loss| *loss < self.start())?;
        Some(1.0 - end / loss(rounds - rounds.div_ceil(6))?).filter(|share| share.is_finite())
    }
}
