//! Which heads of attention a client sends, where it sends only some of them.
//!
//! Before it trains, a client looks at how much of its attention to the tokens that count passes
//! through each head, and takes the first few of each block. It trains them all; of the others the
//! change is dropped before it is encoded, and the encoding leaves zeros out.

use fedra_compute::Params;
use fedra_data::Encoded;
use fedra_engine::{HeadProbe, TrainRequest};
use fedra_plan::Layout;
use fedra_wire::{Encoding, HeadSlices, ParamValues, kept};

use crate::error::Result;
use crate::examples::sample;
use crate::meter::Meter;
use crate::prober::Prober;

/// The heads of each block that do not go up.
pub(crate) struct Dropped {
    of: u16,
    blocks: Vec<Vec<usize>>,
}

impl Dropped {
    /// Looks at the model before training, if the request sends some heads only.
    pub fn choose(
        request: &TrainRequest,
        (prober, meter): (Prober<'_>, &Meter<'_>),
        examples: &[Encoded],
        params: &Params,
    ) -> Result<Option<Self>> {
        let (Encoding::Heads { share, of }, Some(HeadProbe { probe, examples: most })) =
            (request.work.encoding, request.work.head_probe)
        else {
            return Ok(None);
        };
        let places = sample(examples.len(), most as usize, request.seed.of("heads"));
        let sample: Vec<_> = places.into_iter().map(|place| examples[place].clone()).collect();
        let masses = prober.heads(params, probe, (&sample, &meter.uncounted()))?;
        let blocks = masses.iter().map(|masses| rest(masses, kept(share, masses.len()))).collect();
        Ok(Some(Self { of, blocks }))
    }

    /// Drops the change of these heads.
    pub fn drop_from(&self, change: &mut ParamValues, layout: &Layout) {
        for (id, values) in change.iter_mut() {
            let Some(block) = id.layer.block() else { continue };
            let Some(shape) = layout.get(id) else { continue };
            let Some(slices) = HeadSlices::of(id, *shape, self.of) else { continue };
            let dropped = self.blocks.get(usize::from(block)).into_iter().flatten();
            for range in dropped.flat_map(|head| slices.places(*head)) {
                values[range].fill(0.0);
            }
        }
    }
}

/// All heads but so many of the largest mass; of equals the first are kept.
fn rest(masses: &[f64], kept: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..masses.len()).collect();
    order.sort_by(|left, right| masses[*right].total_cmp(&masses[*left]));
    order.split_off(kept.min(masses.len()))
}

#[cfg(test)]
mod tests {
    use super::rest;

    #[test]
    fn the_heads_with_the_greatest_mass_stay() {
        assert_eq!(rest(&[0.1, 0.4, 0.2, 0.4], 2), [2, 0]);
        assert_eq!(rest(&[0.3, 0.3], 1), [1]);
        assert!(rest(&[0.3, 0.3], 2).is_empty());
    }
}
