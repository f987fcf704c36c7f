//! What a client's optimiser remembers from round to round, on its way between tensors and state.

use fedra_compute::{Device, Optimiser, Params, Tensor};
use fedra_engine::OptimiserState;
use fedra_plan::{ParamId, Scope};

use crate::error::{ClientError, Result};

/// What an optimiser remembers.
pub(crate) fn taken_from(optimiser: &Optimiser) -> OptimiserState {
    let mut state = OptimiserState::default();
    for (id, steps, [first, second]) in optimiser.moments() {
        state.steps.insert(id, steps);
        for (moment, into) in [(first, &mut state.first), (second, &mut state.second)] {
            if moment.elements() > 0 {
                into.insert(id, moment.to_host().into_owned());
            }
        }
    }
    state
}

/// Gives an optimiser what it remembered of the parameters of a scope; `params` have their shapes.
pub(crate) fn given_to(
    optimiser: &mut Optimiser,
    state: &OptimiserState,
    (params, scope, device): (&Params, &Scope, &Device),
) -> Result<()> {
    let OptimiserState { steps, first, second } = state;
    for (&id, &count) in steps.iter().filter(|(id, _)| scope.contains(**id)) {
        let moment = |values: Option<&[f32]>| placed(device, params, (id, values));
        optimiser.restore(id, count, [moment(first.get(id))?, moment(second.get(id))?]);
    }
    Ok(())
}

/// A moment in the shape of its parameter; nothing where the optimiser has none.
fn placed(
    device: &Device,
    params: &Params,
    (id, values): (ParamId, Option<&[f32]>),
) -> Result<Tensor> {
    let (rows, cols) = params.get(id)?.shape();
    let Some(values) = values else { return Ok(Tensor::zeros(device, 0, cols)) };
    if values.len() != rows * cols {
        let (found, expected) = (values.len(), rows * cols);
        return Err(ClientError::Length { id, found, expected });
    }
    Ok(Tensor::from_slice(device, rows, cols, values)?)
}
