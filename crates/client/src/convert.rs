//! Parameters between the engine, which knows vectors, and the model, which knows tensors.

use fedra_compute::{Device, Params, Tensor, WeightFormat};
use fedra_plan::{Layout, ParamId, Round, Scope, Shape};
use fedra_wire::{Encoding, Expectation, Header, Kind, ParamValues, WireError, narrowed, open};

use crate::error::{ClientError, Result};

/// A copy of all parameters as the engine takes them: without those that are stored in another format than f32,
/// which never change and which everybody has.
pub fn to_values(params: &Params) -> ParamValues {
    let is_f32 = |(_, tensor): &(ParamId, &Tensor)| tensor.format() == WeightFormat::F32;
    let values = |(id, tensor): (ParamId, &Tensor)| (id, tensor.to_host().into_owned());
    params.iter().filter(is_f32).map(values).collect()
}

/// Those parameters that [`to_values`] leaves out, shared.
pub fn base_of(params: &Params) -> Params {
    let is_other = |(_, tensor): &(ParamId, &Tensor)| tensor.format() != WeightFormat::F32;
    params.iter().filter(is_other).map(|(id, tensor)| (id, tensor.clone())).collect()
}

/// Parameters on a device; refuses any that the layout does not hold in this size, and any gap.
pub fn to_params(device: &Device, layout: &Layout, tensors: &ParamValues) -> Result<Params> {
    to_params_over(device, (layout, &Params::default()), tensors)
}

/// The same, of which some are a base's: on its device they are shared.
pub fn to_params_over(
    device: &Device,
    (layout, base): (&Layout, &Params),
    tensors: &ParamValues,
) -> Result<Params> {
    tensors.check(layout)?;
    let tensor = |(id, shape): (_, &Shape)| {
        if let Some(tensor) = base.find(id) {
            return Ok((id, tensor.to(device)));
        }
        let Some(values) = tensors.get(id) else {
            let expected = shape.elements();
            return Err(ClientError::from(WireError::ElementCount { id, found: 0, expected }));
        };
        Ok((id, placed(device, shape, values)?))
    };
    layout.iter().map(tensor).collect()
}

/// A parameter's values on a device: a vector is one row.
pub(crate) fn placed(device: &Device, shape: &Shape, values: &[f32]) -> Result<Tensor> {
    let (rows, cols) = match *shape.dims() {
        [rows, cols] => (rows, cols),
        _ => (1, values.len()),
    };
    Ok(Tensor::from_slice(device, rows, cols, values)?)
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
    tensors.iter().try_for_each(|(id, values)| {
        let tensor = params.get_mut(id)?;
        if tensor.elements() != values.len() {
            let (found, expected) = (values.len(), tensor.elements());
            return Err(ClientError::Length { id, found, expected });
        }
        Ok(tensor.overwrite(values)?)
    })
}

/// Writes the payload of a download on a client's copy of the shared model, as far as it lives there: a
/// server that brings back a client after a break sends all that has changed. All of it is checked before
/// anything is written, and one parameter after another is read.
pub(crate) fn receive(
    params: &mut Params,
    layout: &Layout,
    (round, encoding, payload): (Round, Encoding, &[u8]),
) -> Result<()> {
    let header = Header::download(Kind::Values, encoding, round);
    let opened = open(payload, &Expectation::of(layout, &header))?;
    for (id, bytes) in opened.plain() {
        if params.find(id).is_some() {
            params.get_mut(id)?.overwrite_bytes(&bytes)?;
        }
    }
    Ok(())
}

/// The same where some parameters, of a layout of their own, lie apart from those that all share.
pub(crate) fn receive_apart(
    (shared, apart): (&mut Params, &mut Params),
    (layout, own): (&Layout, &Scope),
    (round, encoding, payload): (Round, Encoding, &[u8]),
) -> Result<()> {
    let header = Header::download(Kind::Values, encoding, round);
    let opened = open(payload, &Expectation::of(layout, &header))?;
    for (id, bytes) in opened.plain() {
        let params = if own.contains(id) { &mut *apart } else { &mut *shared };
        if params.find(id).is_some() {
            params.get_mut(id)?.overwrite_bytes(&bytes)?;
        }
    }
    Ok(())
}

/// The shared parameters as a client has them whose adapters have a lower rank; all others are shared.
pub(crate) fn of_rank(
    params: &Params,
    (shared, own): (&Layout, &Layout),
    device: &Device,
) -> Result<Params> {
    let mut narrow = params.clone();
    let differs = |id: &ParamId| shared.get(*id) != own.get(*id) && params.find(*id).is_some();
    let part: Scope = own.ids().filter(differs).collect();
    for (id, values) in narrowed(copied(params, &part)?, (shared, own)) {
        if let Some(shape) = own.get(id) {
            narrow.insert(id, placed(device, shape, &values)?);
        }
    }
    Ok(narrow)
}

/// A copy of some parameters.
pub(crate) fn copied(params: &Params, scope: &Scope) -> Result<ParamValues> {
    scope.iter().map(|id| Ok((id, params.get(id)?.to_host().into_owned()))).collect()
}
