//! Parameters between the engine, which knows vectors, and the model, which knows tensors.

use fedra_compute::{Device, Params, Tensor};
use fedra_engine::Download;
use fedra_plan::{Layout, Scope, Shape};
use fedra_wire::{ClientId, Expectation, Kind, ParamValues, WireError, open};

use crate::error::{ClientError, Result};

/// A copy of all parameters as the engine takes them.
pub fn to_values(params: &Params) -> ParamValues {
    params.iter().map(|(id, tensor)| (id, tensor.to_host().into_owned())).collect()
}

/// Parameters on a device; refuses any that the layout does not hold in this size, and any gap.
pub fn to_params(device: &Device, layout: &Layout, tensors: &ParamValues) -> Result<Params> {
    tensors.check(layout)?;
    let tensor = |(id, shape): (_, &Shape)| {
        let Some(values) = tensors.get(id) else {
            let expected = shape.elements();
            return Err(ClientError::from(WireError::ElementCount { id, found: 0, expected }));
        };
        let (rows, cols) = match *shape.dims() {
            [rows, cols] => (rows, cols),
            _ => (1, values.len()),
        };
        Ok((id, Tensor::from_slice(device, rows, cols, values)?))
    };
    layout.iter().map(tensor).collect()
}

/// Refuses parameters with a gap or another size than the layout's.
pub(crate) fn check(params: &Params, layout: &Layout) -> Result<()> {
    for (id, shape) in layout.iter() {
        let (found, expected) = (params.get(id)?.elements(), shape.elements());
        if found != expected {
            return Err(ClientError::Length { id, found, expected });
        }
    }
    Ok(())
}

/// Writes values over those of the same parameters.
pub(crate) fn overwrite(params: &mut Params, tensors: &ParamValues) -> Result<()> {
    for (id, values) in tensors.iter() {
        let tensor = params.get_mut(id)?;
        if tensor.elements() != values.len() {
            let (found, expected) = (values.len(), tensor.elements());
            return Err(ClientError::Length { id, found, expected });
        }
        tensor.overwrite(values)?;
    }
    Ok(())
}

/// Writes a download on a client's copy of the shared model, as far as it lives there: a server that
/// brings back a client after a break sends all that has changed.
pub(crate) fn receive(params: &mut Params, layout: &Layout, download: &Download) -> Result<()> {
    let expected = Expectation {
        layout,
        kind: Kind::Values,
        encoding: download.encoding,
        round: download.round,
        client: ClientId::SERVER,
        scope: None,
    };
    let mut received = open(&download.payload, &expected)?.tensors();
    if received.iter().any(|(id, _)| params.find(id).is_none()) {
        let held: Scope = params.iter().map(|(id, _)| id).collect();
        received = received.subset(&held);
    }
    overwrite(params, &received)
}

/// A copy of some parameters.
pub(crate) fn copied(params: &Params, scope: &Scope) -> Result<ParamValues> {
    scope.iter().map(|id| Ok((id, params.get(id)?.to_host().into_owned()))).collect()
}
