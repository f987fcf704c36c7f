//! Copies of the middle that meet: each parameter becomes the weighted mean of those that train it.

use std::collections::BTreeSet;

use fedra_compute::{Params, Tensor};
use fedra_plan::{ParamId, Scope};

use crate::error::Result;

/// Makes the copies of each parameter equal to their weighted mean.
pub(super) fn average(copies: &mut [(f64, &mut Params, &Scope)]) -> Result<()> {
    let ids: BTreeSet<ParamId> = copies.iter().flat_map(|(_, _, scope)| scope.iter()).collect();
    for id in ids {
        let having = || (0..copies.len()).filter(|&place| copies[place].2.contains(id));
        let total: f64 = having().map(|place| copies[place].0).sum();
        let mut mean: Option<Tensor> = None;
        for place in having() {
            let (weight, params, _) = &copies[place];
            let share = (weight / total) as f32;
            let tensor = params.get(id)?;
            if let Some(mean) = &mut mean {
                mean.add_scaled(share, tensor)?;
            } else {
                let mut first = tensor.clone();
                first.scale(share);
                mean = Some(first);
            }
        }
        let places: Vec<usize> = having().collect();
        if let Some(mean) = mean {
            for place in places {
                *copies[place].1.get_mut(id)? = mean.clone();
            }
        }
    }
    Ok(())
}
