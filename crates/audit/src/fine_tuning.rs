//! The client's own steps: what makes its first blocks differ from the public ones.

use fedra_client::{Correction, TrainTask, Trainer};
use fedra_compute::Params;
use fedra_data::{Encoded, LabelSet, Target};
use fedra_engine::{OptimiserConfig, Work};
use fedra_plan::{ByteCount, Layer, Round, Scope};
use fedra_seed::Seed;

use crate::decoder::Decoder;
use crate::error::{AuditError, Result};

/// How a client fine-tunes before it is attacked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FineTuning {
    /// Steps; none leaves the public weights.
    pub steps: u32,
    /// `AdamW`'s rate.
    pub rate: f64,
    /// Lines in a step.
    pub batch: u32,
}

impl FineTuning {
    /// The weights after the client has learnt from its own lines. The embedding and the first
    /// `blocks` learn: what lies above a cut does not change what an attacker sees.
    pub fn tune(
        &self,
        decoder: Decoder<'_>,
        (lines, blocks): (&[Vec<u32>], usize),
        seed: Seed,
    ) -> Result<Params> {
        let mut params = decoder.params.clone();
        if self.steps == 0 {
            return Ok(params);
        }
        let examples: Vec<Encoded> = lines.iter().map(|line| next_token_example(line)).collect();
        let solver = OptimiserConfig::adamw(self.rate as f32, 0.0);
        let steps_per_epoch = (lines.len() as u32).div_ceil(self.batch.max(1)).max(1);
        let work = Work {
            epochs: self.steps.div_ceil(steps_per_epoch),
            batch: self.batch,
            max_steps: Some(self.steps),
            clip: Some(1.0),
            ..Work::new(solver)
        };
        work.check().map_err(|error| {
            let expected = "steps, rate and lines above 0";
            AuditError::setting("fine-tuning", error, expected)
        })?;
        let sites = (0..blocks as u16).map(Layer::Block).chain([Layer::Embedding]);
        let scope = Scope::of_layers(decoder.model.layout(), sites);
        let trainer = Trainer { model: decoder.model, device: decoder.device, cache: ByteCount(0) };
        let task = TrainTask {
            client: "the client",
            examples: &examples,
            round: Round(0),
            scope: &scope,
            work: &work,
            labels: &LabelSet::default(),
            moments: None,
            correction: Correction::Nothing,
            seed,
            key: None,
        };
        trainer.train(&mut params, &task)?;
        Ok(params)
    }
}

fn next_token_example(line: &[u32]) -> Encoded {
    let next = line[1..].iter().map(|&token| Some(token)).chain([None]).collect();
    Encoded {
        ids: line.to_vec(),
        types: Vec::new(),
        target: Target::PerToken(next),
        dropped: 0,
        pixels: None,
    }
}
