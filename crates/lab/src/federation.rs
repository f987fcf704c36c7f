//! Federated averaging over the laboratory's clients, in one stage or two.
//!
//! A run that trains everything is kept round by round, because every question about warm-up is a question
//! about one of its rounds: freezing at `W` starts from round `W` of the same path.

use std::ops::Range;

use fedra_seed::Seed;
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::matrix::Matrix;
use crate::moments::Moments;
use crate::network::{Blocks, Network, Weights};

/// Clients and the way they work together.
#[derive(Clone, Debug)]
pub struct Federation {
    /// Everyone's data.
    pub clients: Vec<Client>,
    /// What everyone trains.
    pub network: Network,
    /// How.
    pub work: Work,
    /// Where the draws of cohorts start.
    pub seed: Seed,
}

/// What a round asks of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Local gradient steps `E`.
    pub local_steps: u32,
    /// Their size, `eta`.
    pub rate: f64,
    /// Clients in a round; all of them where it is as many.
    pub cohort: usize,
}

impl Federation {
    /// The weights after 0, 1, ... `rounds` rounds, or fewer where the numbers left the finite ones.
    pub fn train(&self, start: Weights, rounds: u32) -> Vec<Weights> {
        self.average(start, 0..rounds, |local, client| {
            let gradient = self.network.gradient(local, &self.clients[client]);
            local.add_scaled(-self.work.rate, &gradient);
        })
    }

    /// What comes of a start round after round, as long as it is finite: local steps at each client of
    /// a round's cohort, then the weighted mean.
    pub fn average<T: Blocks>(
        &self,
        start: T,
        rounds: Range<u32>,
        step: impl Fn(&mut T, usize),
    ) -> Vec<T> {
        let mut path = vec![start];
        for round in rounds {
            let global = &path[path.len() - 1];
            let mut mean = global.zeros();
            for (share, client) in self.cohort(round) {
                let mut local = global.clone();
                (0..self.work.local_steps).for_each(|_| step(&mut local, client));
                mean.add_scaled(share, &local);
            }
            if !mean.is_finite() {
                break;
            }
            path.push(mean);
        }
        path
    }

    /// Who takes part in a round, in client order, with weights that sum to one.
    pub fn cohort(&self, round: u32) -> Vec<(f64, usize)> {
        let everyone = self.clients.len();
        let mut order: Vec<usize> = (0..everyone).collect();
        let size = self.work.cohort.clamp(1, everyone);
        if size < everyone {
            self.seed.of("cohort").with(u64::from(round)).generator().sample(&mut order, size);
            order.sort_unstable();
        }
        let total: f64 = order.iter().map(|&client| self.clients[client].weight).sum();
        order.into_iter().map(|client| (self.clients[client].weight / total, client)).collect()
    }

    /// The global loss: the clients' losses, weighted.
    pub fn loss(&self, weights: &Weights) -> f64 {
        let loss = |client: &Client| client.weight * self.network.loss(weights, client);
        self.clients.iter().map(loss).sum()
    }

    /// Stage 2 at a kernel, for students whose output is linear in the value block.
    pub fn freeze(&self, weights: &Weights) -> Frozen<'_> {
        let parts: Vec<(f64, Moments)> = self
            .clients
            .iter()
            .map(|client| (client.weight, Moments::of(&self.network, weights, client)))
            .collect();
        let pooled = Moments::pooled(&parts);
        Frozen { federation: self, parts, pooled }
    }
}

/// A federation whose kernel is frozen: a quadratic problem in the value block.
pub struct Frozen<'f> {
    federation: &'f Federation,
    parts: Vec<(f64, Moments)>,
    /// Moments of all clients together.
    pub pooled: Moments,
}

impl Frozen<'_> {
    /// `V*`.
    pub fn best_value(&self) -> Option<Matrix> {
        self.pooled.best_value(self.ridge())
    }

    /// The profile objective: the loss at `V*`.
    pub fn profile(&self) -> Option<f64> {
        self.pooled.profile(self.ridge())
    }

    /// The global loss of a value block.
    pub fn loss(&self, value: &Matrix) -> f64 {
        self.pooled.loss(value, self.ridge())
    }

    /// Value blocks after each of the rounds `first .. last`, the start included.
    pub fn train(&self, start: Matrix, first: u32, last: u32) -> Vec<Matrix> {
        let rate = self.federation.work.rate;
        self.federation.average(start, first..last, |local, client| {
            let gradient = self.parts[client].1.value_gradient(local, self.ridge());
            local.add_scaled(-rate, &gradient);
        })
    }

    /// Where rounds of everyone end: `V_inf = (sum p_m A_m)^-1 sum p_m A_m V_m*` with
    /// `A_m = I - (I - eta (S_m + lam I))^E`; none where the rounds do not contract.
    pub fn fixed_point(&self) -> Option<Matrix> {
        if self.contraction() >= 1.0 {
            return None;
        }
        let size = self.pooled.square.rows();
        let mut sum = Matrix::zeros(size, size);
        let mut right = Matrix::zeros(size, self.pooled.cross.columns());
        for (weight, part) in &self.parts {
            let reach = Matrix::identity(size).minus(&self.local_map(part));
            right.add_scaled(*weight, &reach.times(&part.best_value(self.ridge())?));
            sum.add_scaled(*weight, &reach);
        }
        sum.solve(&right)
    }

    /// By which factor a round of everyone brings two value blocks together, at worst:
    /// the spectral radius of `sum p_m (I - eta (S_m + lam I))^E`.
    pub fn contraction(&self) -> f64 {
        let size = self.pooled.square.rows();
        let mut sum = Matrix::zeros(size, size);
        for (weight, part) in &self.parts {
            sum.add_scaled(*weight, &self.local_map(part));
        }
        sum.spectral_radius()
    }

    fn local_map(&self, part: &Moments) -> Matrix {
        let work = self.federation.work;
        let step = part.square.clone().with_ridge(self.ridge()).scaled(-work.rate);
        step.with_ridge(1.0).power(work.local_steps)
    }

    fn ridge(&self) -> f64 {
        self.federation.network.ridge
    }
}
