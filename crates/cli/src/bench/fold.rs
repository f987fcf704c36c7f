//! `fedra bench fold`: what it costs the server to turn updates into one mean change.

use anyhow::{Result, bail};
use clap::Args;
use fedra_compute::{Device, Seed};
use fedra_engine::{Contribution, Denominator, Fold};
use fedra_model::{Head, Model, Preset};
use fedra_plan::{Layout, Round, Scope};
use fedra_wire::{
    ClientId, Encoding, Expectation, Header, Kind, Taken, WireError, encode, open, rewrite,
};
use serde_json::json;

use super::report::Format;
use super::stopwatch::Stopwatch;

// Every update has values of its own. They are written between the updates, while the watch stands
// still, into the buffer that the one before left over.
/// Check, open and add updates one after another, as a server does with what arrives.
#[derive(Args)]
pub struct FoldBench {
    /// Updates to fold
    #[arg(long, default_value_t = 20)]
    updates: u32,
    /// Model shape
    #[arg(long, default_value = "minilm", value_parser = super::step::shapes())]
    shape: Preset,
    /// Check every update on arrival and add it later, as if it arrived out of order
    #[arg(long)]
    waiting: bool,
    #[command(flatten)]
    format: Format,
}

impl FoldBench {
    /// Measures and prints.
    pub fn run(self) -> Result<()> {
        if self.updates == 0 {
            bail!("--updates: found 0, expected at least 1");
        }
        let model = Model::new(self.shape.config().clone(), Head::Bare, None)?;
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
            let payload = updates.write(number, spare)?;
            let contribution = Contribution::weighing(f64::from(number + 1));
            spare = watch.time(|| {
                if self.waiting {
                    let update = open(payload, &expected)?;
                    fold.add(&update, contribution);
                    return Ok(update.bytes);
                }
                let taken = fold.take(payload, &expected, |_| Ok::<_, WireError>(contribution));
                taken.map(|Taken { spare, .. }| spare)
            })?;
        }
        drop(spare);
        let mean = watch.time(|| fold.mean());
        let object = json!({
            "updates": self.updates,
            "waiting": self.waiting,
            "update_bytes": updates.length,
            "shape": self.shape.name(),
        });
        let done = format!("fold of {} updates of", self.updates);
        self.format.print_cost(object, &done, (mean.elements() as u64, watch.read(1)));
        Ok(())
    }
}

/// Writes payloads that differ in every value.
struct Updates<'m> {
    layout: &'m Layout,
    /// What stands before the values in each of them.
    front: Vec<u8>,
    length: usize,
}

impl<'m> Updates<'m> {
    /// Updates of a model, and a first buffer to write one in.
    fn of(model: &'m Model) -> Result<(Self, Vec<u8>)> {
        let (layout, params) = (model.layout(), model.fresh_params(&Device::cpu(), Seed(1))?);
        let header = Header {
            kind: Kind::Change,
            encoding: Encoding::F32,
            round: Round(0),
            client: ClientId(0),
            examples: 100,
            steps: 7,
            loss: Some(0.5),
        };
        let mut payload = encode(layout, &header, &fedra_client::to_values(&params), None)?;
        let mut updates = Self { layout, front: Vec::new(), length: payload.len() };
        rewrite(&mut payload, layout, |front, _| updates.front = front.to_vec())?;
        Ok((updates, payload))
    }

    /// The update of this number, in the given buffer.
    fn write(&self, number: u32, mut buffer: Vec<u8>) -> Result<Vec<u8>, WireError> {
        buffer.resize(self.length, 0);
        rewrite(&mut buffer, self.layout, |front, values| {
            front.copy_from_slice(&self.front);
            for (place, bytes) in (1_u32..).zip(values.as_chunks_mut().0) {
                *bytes = value(number, place).to_le_bytes();
            }
        })?;
        Ok(buffer)
    }
}

/// Any numbers of the size of a change will do: the high bits of products that wrap.
///
/// The factors are 2^32 over the golden ratio and 2^32 (sqrt 2 - 1), whose multiples keep away from
/// each other: two of some million updates have no value in common at any place.
const fn value(number: u32, place: u32) -> f32 {
    let bits =
        place.wrapping_mul(2_654_435_769).wrapping_add(number.wrapping_mul(1_779_033_703)) >> 8;
    (bits as f32 - 8_388_608.0) * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_differ_in_every_value_however_far_apart_they_are() {
        for number in [1, 2, 255, 256, 257, 512, 65_536, 1_000_000] {
            let same = (1..5_000).find(|place| value(0, *place) == value(number, *place));
            assert_eq!(same, None, "update {number}");
        }
    }

    #[test]
    fn an_update_that_was_written_over_another_is_accepted_with_its_own_values() {
        let model = Model::new(Preset::Tiny.config(), Head::Bare, None).unwrap();
        let (updates, first) = Updates::of(&model).unwrap();
        let expected = Expectation {
            layout: model.layout(),
            kind: Kind::Change,
            encoding: Encoding::F32,
            round: Round(0),
            client: ClientId(0),
            scope: Some(&Scope::everything(model.layout())),
        };
        for (number, buffer) in [(3, first), (4, Vec::new())] {
            let payload = updates.write(number, buffer).unwrap();
            let (_, tensors) = fedra_wire::decode(&payload, &expected).unwrap();
            let found: Vec<f32> = tensors.iter().flat_map(|(_, values)| values.to_vec()).collect();
            let wanted: Vec<f32> =
                (1..=found.len() as u32).map(|place| value(number, place)).collect();
            assert!(found == wanted, "update {number}");
        }
    }
}
