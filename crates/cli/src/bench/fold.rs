//! `fedra bench fold`: what it costs the server to turn updates into one mean change.

use anyhow::{Result, bail};
use clap::Args;
use fedra_compute::{Device, Seed};
use fedra_engine::{Contribution, Denominator, Fold};
use fedra_model::{Head, Model, Preset};
use fedra_plan::{Round, Scope};
use fedra_wire::{
    Accepted, ClientId, Encoding, Expectation, Header, Kind, Taken, WireError, encode,
};

use super::report::{Format, Report};
use super::stopwatch::Stopwatch;

/// Check, open and add updates one after another, as a server does with what arrives.
///
/// Every update has values of its own. They are written between the updates, while the watch
/// stands still, into the buffer that the one before left over.
#[derive(Args)]
pub struct FoldBench {
    /// Updates to fold
    #[arg(long, default_value_t = 20)]
    updates: u32,
    /// Model shape: tiny, minilm, bert-base, smollm2 or llama-1b
    #[arg(long, default_value = "minilm", value_parser = super::step::parse_shape)]
    shape: Preset,
    /// Check every update on arrival and add it later, as if it came before its turn
    #[arg(long)]
    waiting: bool,
    #[command(flatten)]
    format: Format,
}

/// What was done.
#[derive(serde::Serialize)]
struct Folded {
    updates: u32,
    waiting: bool,
    update_bytes: u64,
}

impl FoldBench {
    /// Measures and prints.
    pub fn run(self) -> Result<()> {
        if self.updates == 0 {
            bail!("--updates: found 0, expected at least 1");
        }
        let model = Model::new(self.shape.config(), Head::Bare, None)?;
        let layout = model.layout();
        let (updates, mut spare) = Updates::of(&model)?;
        let scope = Scope::everything(layout);
        let expected = Expectation {
            layout,
            kind: Kind::Change,
            encoding: Encoding::F32,
            round: Round(0),
            client: ClientId(0),
            scope: Some(&scope),
        };
        let mut watch = Stopwatch::new();
        let mut fold = Fold::new(Denominator::Participants);
        for number in 0..self.updates {
            let payload = updates.write(number, spare);
            let contribution = Contribution::weighing(f64::from(number + 1));
            spare = watch.time(|| {
                if self.waiting {
                    let accepted = Accepted::open(payload, &expected)?;
                    fold.add(&accepted.opened(), contribution);
                    return Ok(accepted.into_bytes());
                }
                let taken = fold.take(payload, &expected, |_| Ok::<_, WireError>(contribution));
                taken.map(|Taken { spare, .. }| spare)
            })?;
        }
        drop(spare);
        let mean = watch.time(|| fold.mean());
        let work = Folded {
            updates: self.updates,
            waiting: self.waiting,
            update_bytes: updates.length as u64,
        };
        let model = (self.shape.name(), mean.elements() as u64);
        let done = format!("fold of {} updates of", self.updates);
        Report::new(work, model, watch.read(1)).print(&self.format, &done);
        Ok(())
    }
}

/// Writes payloads that differ in every value.
struct Updates {
    /// What stands before the values in each of them.
    front: Vec<u8>,
    length: usize,
}

/// Bytes of the checksum at the end of a payload.
const CHECKSUM: usize = 8;

impl Updates {
    /// Updates of a model, and a first buffer to write one in.
    fn of(model: &Model) -> Result<(Self, Vec<u8>)> {
        let params = model.fresh_params(&Device::cpu(), Seed(1))?;
        let header = Header {
            kind: Kind::Change,
            encoding: Encoding::F32,
            round: Round(0),
            client: ClientId(0),
            examples: 100,
            steps: 7,
            loss: 0.5,
        };
        let tensors = fedra_client::to_tensors(&params);
        let payload = encode(model.layout(), &header, &tensors, None)?;
        let front = payload[..payload.len() - CHECKSUM - tensors.elements() * 4].to_vec();
        Ok((Self { front, length: payload.len() }, payload))
    }

    /// The update of this number, in the given buffer.
    fn write(&self, number: u32, mut buffer: Vec<u8>) -> Vec<u8> {
        buffer.resize(self.length, 0);
        let (content, checksum) = buffer.split_at_mut(self.length - CHECKSUM);
        let (front, values) = content.split_at_mut(self.front.len());
        front.copy_from_slice(&self.front);
        // Any numbers of the size of a change will do: the high bits of a product that wraps.
        for (place, value) in (1_u32..).zip(values.as_chunks_mut().0) {
            let bits = place.wrapping_mul(2_654_435_769).wrapping_add(number << 24) >> 8;
            *value = ((bits as f32 - 8_388_608.0) * 1e-9).to_le_bytes();
        }
        checksum.copy_from_slice(&fedra_sweep::checksum(content).to_le_bytes());
        buffer
    }
}
