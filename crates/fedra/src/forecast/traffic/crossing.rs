//! What crosses a cut, foreseen to the last byte: batches are drawn as a client will draw them.

use fedra_client::{evaluation_batches, probed_batches};
use fedra_compute::Seed;
use fedra_data::{Encoded, Target, epoch};
use fedra_engine::{CrossingBytes, SplitConfig, Work};
use fedra_plan::{ByteCount, Crossing, Plan, Probe, Round};
use fedra_wire::FRAME_HEADER;

/// Where a client's draws of a round start.
pub fn client_seed(experiment: Seed, round: Round, client: u64) -> Seed {
    experiment.of("client").with(u64::from(round.0)).with(client)
}

/// Where the draws of a client's measurements in a round start.
pub fn probe_seed(experiment: Seed, round: Round, client: u64) -> Seed {
    experiment.of("probe").with(u64::from(round.0)).with(client)
}

/// What passes a cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// Sequences and tokens of each batch.
    sizes: Vec<(u64, u64)>,
    /// Steps that they make.
    steps: u64,
}

impl Batches {
    /// Those of a client's round of training.
    pub fn of_training(work: &Work, examples: &[Encoded], seed: Seed) -> Self {
        let lengths: Vec<usize> = examples.iter().map(|example| example.ids.len()).collect();
        let limit = work.max_steps.map_or(usize::MAX, |steps| steps as usize);
        let order = seed.of("order");
        let steps = (0..u64::from(work.epochs))
            .flat_map(|number| epoch(&lengths, work.step_batch() as usize, order.with(number).0))
            .take(limit);
        let mut all = Self::default();
        for step in steps {
            // A batch without a target is passed over.
            let has_target =
                |batch: &&[usize]| batch.iter().any(|&place| has_target(&examples[place]));
            let batches = step.chunks(work.batch.max(1) as usize).filter(has_target);
            let before = all.sizes.len();
            all.sizes.extend(batches.map(|batch| measure(batch, &lengths)));
            all.steps += u64::from(all.sizes.len() > before);
        }
        all
    }

    /// Those of measuring blocks on at most so many examples.
    pub fn of_probing((probe, most): (Probe, usize), examples: &[Encoded], seed: Seed) -> Self {
        let lengths: Vec<usize> = examples.iter().map(|example| example.ids.len()).collect();
        let has_gradient =
            |batch: &Vec<usize>| batch.iter().any(|&place| has_target(&examples[place]));
        let batches = probed_batches(examples.len(), most, seed).into_iter();
        let passes = |batch: &Vec<usize>| match probe {
            Probe::Attention { .. } => true,
            Probe::GradientNorm | Probe::RelativeGradient => has_gradient(batch),
        };
        Self::of(batches.filter(passes).map(|batch| measure(&batch, &lengths)).collect())
    }

    /// Those of scoring.
    pub fn of_scoring(examples: &[Encoded], most_tokens: usize) -> Self {
        let sequences: Vec<Vec<usize>> = examples.iter().map(Encoded::scored_lengths).collect();
        let lengths: Vec<usize> = sequences.iter().map(|all| all.iter().sum()).collect();
        let measured = |batch: &Vec<usize>| {
            let (_, tokens) = measure(batch, &lengths);
            (batch.iter().map(|&place| sequences[place].len() as u64).sum(), tokens)
        };
        Self::of(evaluation_batches(&lengths, most_tokens).iter().map(measured).collect())
    }

    fn of(sizes: Vec<(u64, u64)>) -> Self {
        Self { steps: sizes.len() as u64, sizes }
    }

    /// What they make cross in training.
    pub fn crossing(
        &self,
        (plan, split): (&Plan, &SplitConfig),
        width: usize,
        clips: bool,
    ) -> CrossingBytes {
        let crossed = plan.gradient_crossings();
        let back = crossed.iter().any(|at| matches!(at, Crossing::IntoServer { .. }));
        let mut all = self.hidden(split, width);
        if crossed.is_empty() {
            return all;
        }
        // A gradient for each batch, and for each step the factor by which it is clipped.
        let exchanges = self.sizes.len() as u64 + if clips { self.steps } else { 0 };
        let headers = FRAME_HEADER as u64 * exchanges;
        all.gradient_up = all.hidden_up;
        all.gradient_down = if back { all.hidden_up } else { ByteCount(0) };
        all.metadata_up += ByteCount(headers);
        all.metadata_down += ByteCount(headers);
        all.exchanges += exchanges;
        all
    }

    /// What they make cross while so many of the server's blocks are measured.
    pub fn probing(
        &self,
        (probe, blocks): (Probe, usize),
        split: &SplitConfig,
        width: usize,
    ) -> CrossingBytes {
        let mut all = self.hidden(split, width);
        let (batches, header) = (self.sizes.len() as u64, FRAME_HEADER as u64);
        // Questions about what was seen, and the numbers in their answers.
        let (asked, told) = match probe {
            Probe::Attention { .. } => {
                let tokens: u64 = self.sizes.iter().map(|(_, tokens)| tokens).sum();
                (batches, blocks as u64 * tokens)
            }
            Probe::GradientNorm | Probe::RelativeGradient => {
                (all.gradient_up, all.gradient_down) = (all.hidden_up, all.hidden_up);
                all.metadata_up += ByteCount(header * batches);
                all.metadata_down += ByteCount(header * batches);
                all.exchanges += batches;
                let asked = u64::from(batches > 0);
                (asked, asked * 2 * blocks as u64)
            }
        };
        all.metadata_up += ByteCount(header * asked);
        all.metadata_down += ByteCount(header * asked + 4 * told);
        all.exchanges += asked;
        all
    }

    /// What they make cross forward alone.
    pub fn hidden(&self, split: &SplitConfig, width: usize) -> CrossingBytes {
        let mut all = CrossingBytes::default();
        for (sequences, tokens) in &self.sizes {
            let rows = ByteCount(split.encoding.bytes(*tokens as usize, width) as u64);
            all.hidden_up += rows;
            all.hidden_down += rows;
            all.metadata_up += ByteCount(FRAME_HEADER as u64 + 4 * sequences);
            all.metadata_down += ByteCount(FRAME_HEADER as u64);
            all.exchanges += 1;
        }
        all
    }
}

fn measure(batch: &[usize], lengths: &[usize]) -> (u64, u64) {
    let tokens: usize = batch.iter().map(|&place| lengths[place]).sum();
    (batch.len() as u64, tokens as u64)
}

fn has_target(example: &Encoded) -> bool {
    match &example.target {
        Target::One(_)
        | Target::Many(_)
        | Target::Choice(_)
        | Target::Text(_)
        | Target::Preference(_) => true,
        Target::PerToken(labels) => labels.iter().any(Option::is_some),
    }
}
