//! `fedra plan --advise`: how long `FedFrozen` should warm up, measured on validation examples.
//!
//! A pilot runs the method beneath for the first half of the rounds and keeps query and key (the
//! kernel) as they were after each round. Two things are then known about every warm-up W:
//!
//! ```text
//! bias(W)   (L(model, kernel of W) - L(model)) / (L(first model) - L(model))
//!           L: loss on what the clients put aside to validate; what the kernel learnt after W was
//!           worth so much of all that was learnt
//! noise(t)  (drift / (clients - 1)) / |mean change|^2   of query and key in round t
//!           the share of the kernel's mean change that chance alone would give clients that agree
//!           on nothing
//! ```
//!
//! The proposed W is the first after which no kernel was worth more than [`WORTH`], but not later
//! than the first round whose change was noise by more than [`NOISE`]. An old kernel under newer
//! weights is worse than one that was frozen in time, so bias is an upper bound and W rather too
//! long than too short. No test example is looked at.

use anyhow::Result;
use fedra_client::{NearFleet, to_tensors};
use fedra_compute::{Device, Seed};
use fedra_engine::{
    EvaluationSet, Examination, Federation, Fleet, RoleDrift, RoleGroup, RoundReport, SetScores,
    Sink, Tensors,
};
use fedra_plan::{Role, Scope};

use crate::console;
use crate::experiment::{Complaint, Experiment};
use crate::federate::Run;
use crate::grid::Grid;

/// A kernel may still be worth this share of all that the pilot learnt when it is frozen. It is
/// small because the first rounds learn most of it, whatever the kernel.
const WORTH: f64 = 0.01;
/// From this share of noise on, a round's change of the kernel is mostly disagreement.
const NOISE: f64 = 0.5;

/// Runs the pilot and prints what it measured and what follows from it.
pub fn run(experiment: &Experiment) -> Result<()> {
    let pilot = experiment.warming_up()?;
    let rounds = pilot.rounds.div_ceil(2);
    let run = Run::prepare(&pilot)?;
    let (prepared, recipe) = run.parts();
    let shards = &prepared.shards;
    if shards.clients.iter().all(|shard| shard.validation.is_empty()) {
        let expected = "above 0: advice looks at validation examples only";
        let found = "no validation example at any client";
        return Err(Complaint::new("data.shares.validation", found, expected).into());
    }
    console::say(format_args!("a pilot of {rounds} rounds measures bias and drift"));
    let (model, device) = (prepared.model.clone(), Device::cpu());
    let kernel = Scope::of_roles(model.layout(), [Role::Query, Role::Key]);
    let initial = to_tensors(&prepared.params);
    let layout = model.layout().clone();
    let mut fleet = NearFleet::new(model, prepared.params.clone(), device, shards.clone())?;
    let mut recipe = recipe.clone();
    recipe.evaluation.on.clear();
    let seed = Seed(experiment.draft.seed);
    let mut federation = Federation::new(recipe, layout, initial.clone(), seed)?;

    let mut seen = Seen::default();
    let mut kernels = vec![initial.subset(&kernel)];
    for round in 1..=rounds {
        federation.run(&mut fleet, &mut [&mut seen], round, &|| false)?;
        kernels.push(federation.model().subset(&kernel));
    }
    let last = federation.model().clone();
    let first_loss = validate(&mut fleet, &initial, &federation)?;
    let last_loss = validate(&mut fleet, &last, &federation)?;
    let mut points = Vec::new();
    for (kernel, seen) in kernels.into_iter().zip(seen.0.iter().map(Some).chain([None])) {
        let mut model = last.clone();
        model.absorb(kernel);
        let loss = validate(&mut fleet, &model, &federation)?;
        let bias = (loss - last_loss) / (first_loss - last_loss).max(f64::MIN_POSITIVE);
        points.push(Point { loss, bias, next: seen.copied() });
    }
    let advice = Advice::of(&points);
    console::data(table(&points));
    console::data(format_args!("\nproposed warm-up  {} rounds: {}", advice.warmup, advice.reason));
    console::data(format_args!("use it with       --set method.warmup={}", advice.warmup));
    Ok(())
}

/// What is known about a warm-up of so many rounds.
struct Point {
    /// Validation loss of the last model with the kernel of this round.
    loss: f64,
    /// What that lost, as a share of all that was learnt.
    bias: f64,
    /// Query and key in the round that follows.
    next: Option<Next>,
}

#[derive(Clone, Copy)]
struct Next {
    kernel: RoleDrift,
    clients: usize,
}

impl Next {
    fn noise(self) -> f64 {
        let RoleDrift { drift, mean_norm, .. } = self.kernel;
        if self.clients < 2 || mean_norm == 0.0 {
            return 0.0;
        }
        drift / (self.clients - 1) as f64 / (mean_norm * mean_norm)
    }
}

struct Advice {
    warmup: usize,
    reason: &'static str,
}

impl Advice {
    fn of(points: &[Point]) -> Self {
        let last = points.len().saturating_sub(1);
        let needed = points.iter().rposition(|point| point.bias > WORTH).map_or(0, |at| at + 1);
        let mostly_noise = |point: &Point| point.next.is_some_and(|next| next.noise() > NOISE);
        let noisy = points.iter().position(mostly_noise);
        match noisy {
            Some(noisy) if noisy < needed.min(last) => {
                let reason = "from then on query and key mostly disagree";
                Self { warmup: noisy, reason }
            }
            Some(_) | None if needed < last => {
                Self { warmup: needed, reason: "what the kernel learns later is worth little" }
            }
            Some(_) | None => {
                let reason = "or more: the kernel was still worth learning when the pilot ended";
                Self { warmup: last, reason }
            }
        }
    }
}

fn validate(fleet: &mut NearFleet, model: &Tensors, federation: &Federation) -> Result<f64> {
    let on = EvaluationSet::ClientValidation;
    let (round, seed) = (federation.completed(), Seed(0));
    let each = fleet.evaluate(&Examination { model, on, adapt: None, round, seed })?;
    Ok(SetScores::new(on, each).loss)
}

/// Query and key of each round.
#[derive(Default)]
struct Seen(Vec<Next>);

impl Sink for Seen {
    fn round(&mut self, report: &RoundReport) -> Result<(), fedra_engine::EngineError> {
        let roles = report.drift.as_ref().map(|drift| &drift.roles);
        let kernel = roles.and_then(|roles| roles.get(&RoleGroup::QueryKey)).copied();
        self.0.push(Next { kernel: kernel.unwrap_or_default(), clients: report.arrived.len() });
        Ok(())
    }
}

fn table(points: &[Point]) -> Grid {
    let mut grid =
        Grid::new([">warm-up", ">loss", ">bias", ">QK drift", ">disagreement", ">noise"]);
    for (warmup, point) in points.iter().enumerate() {
        let next = |show: &dyn Fn(Next) -> f64| {
            point.next.map_or_else(|| "-".to_owned(), |next| format!("{:.3}", show(next)))
        };
        grid.row([
            warmup.to_string(),
            format!("{:.4}", point.loss),
            format!("{:.3}", point.bias),
            next(&|next| next.kernel.drift),
            next(&|next| next.kernel.disagreement),
            next(&Next::noise),
        ]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(bias: f64, noise: f64) -> Point {
        let kernel = RoleDrift { drift: noise, disagreement: 0.0, mean_norm: 1.0 };
        Point { loss: 0.0, bias, next: Some(Next { kernel, clients: 2 }) }
    }

    #[track_caller]
    fn check(points: &[(f64, f64)], expected: usize) {
        let points: Vec<Point> = points.iter().map(|(bias, noise)| point(*bias, *noise)).collect();
        assert_eq!(Advice::of(&points).warmup, expected);
    }

    #[test]
    fn the_kernel_is_frozen_once_it_is_worth_little_or_mostly_noise() {
        check(&[(0.9, 0.1), (0.3, 0.1), (0.008, 0.1), (0.002, 0.1), (0.0, 0.1)], 2);
        // A later kernel that is worth more again counts: the last one decides.
        check(&[(0.9, 0.1), (0.005, 0.1), (0.2, 0.1), (0.002, 0.1), (0.0, 0.1)], 3);
        check(&[(0.9, 0.1), (0.6, 0.6), (0.3, 0.7), (0.002, 0.9), (0.0, 0.9)], 1);
        check(&[(0.9, 0.1), (0.6, 0.1), (0.3, 0.1), (0.2, 0.1), (0.0, 0.1)], 4);
        check(&[(0.002, 0.1), (0.0, 0.1)], 0);
    }
}
