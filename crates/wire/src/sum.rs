//! A weighted sum of updates that lies in the bytes of one of them.
//!
//! Float addition cannot be taken back, so no part of an update may reach the sum before its last
//! byte is checked. Checking first and adding later fetches every byte twice. [`Sum::take`] fetches
//! it once: in one pass it checks the update and writes `sum + weight * update` over the update
//! itself. Only when the last byte was found right do the two trade places; an update that is
//! refused is dropped with what was written over it, and the sum was never touched. Either way
//! there are two models in memory, the sum and the update.
//!
//! That needs updates in plain f32 with the scope of the first one. All others are checked, then
//! added, with the same bits.
//!
//! The mean stays in the memory of its sum. A server reads the mean of a round once or twice and then
//! forgets it, and moving a whole model into vectors for that costs more than dividing it: all of that
//! memory is new to the process. So the values stay in the bytes of what was the last update.

use std::collections::BTreeMap;
use std::ops::Range;

use fedra_plan::{ParamId, Scope, Shape};

use crate::codec;
use crate::encoding::Encoding;
use crate::error::WireError;
use crate::header::Header;
use crate::numbers::to_bytes;
use crate::param_values::ParamValues;
use crate::payload::{Expectation, Front, Opened, Part, check, open};

/// A running weighted sum of updates over whatever scopes they have.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// Whether it tells the norms of the updates that it takes.
    pub measures: bool,
    body: Option<Body>,
    /// Parameters that the body has no place for, in f32 as well.
    more: BTreeMap<ParamId, Vec<u8>>,
}

/// Values in f32, in what was once a payload.
#[derive(Clone, Debug)]
struct Body {
    bytes: Vec<u8>,
    values: Range<usize>,
    scope: Scope,
    /// In id order.
    parts: Vec<Part>,
}

/// What is left of an update that was added.
#[derive(Clone, Debug)]
pub struct Taken {
    /// What its sender claims.
    pub header: Header,
    /// The part of the model that was in it.
    pub scope: Scope,
    /// The Euclidean norm of its values, of a sum that [measures](Sum::measures).
    pub norm: Option<f64>,
    /// A buffer nobody needs, for the next payload; empty if there is none.
    pub spare: Vec<u8>,
}

impl Sum {
    /// Adds the values, times the weight, of an update that was checked before.
    pub fn add(&mut self, update: &Opened, weight: f32) {
        let is_first = self.body.is_none() && self.more.is_empty();
        if is_first && update.header.encoding == Encoding::F32 {
            self.body = Some(Body::copy(update));
            self.scale(weight);
            return;
        }
        for (id, shape, bytes) in update.parts() {
            let encoding = update.header.encoding.at(id, shape);
            let sum = self.place(id, shape);
            if encoding == Encoding::F32 {
                crate::kernels::add(sum, bytes, weight);
                continue;
            }
            let sum = sum.as_chunks_mut().0;
            codec::visit(encoding, (id, shape), bytes, sum, |place: &mut [u8; 4], value| {
                *place = (f32::from_le_bytes(*place) + weight * value).to_le_bytes();
            });
        }
    }

    /// Checks a payload like [`open`](crate::open) and adds its values, times the weight that its
    /// header is given; a payload that is refused, here or by `weigh`, leaves the sum as it was.
    pub fn take<E: From<WireError>>(
        &mut self,
        mut payload: Vec<u8>,
        expected: &Expectation<'_>,
        weigh: impl FnOnce(&Header) -> Result<f32, E>,
    ) -> Result<Taken, E> {
        let front = Front::read(&payload, expected)?;
        let same_form = match &self.body {
            Some(body) => body.scope == front.scope,
            None => self.more.is_empty(),
        };
        let is_plain = expected.encoding == Encoding::F32;
        // A false claim is a reason to refuse, but only of a payload that is otherwise whole.
        if !(same_form && is_plain) || front.check_claims(expected).is_err() {
            let update = open(payload, expected)?;
            let weight = weigh(&update.header)?;
            self.add(&update, weight);
            let norm = self.measures.then(|| update.norm());
            let Opened { bytes: spare, header, scope, .. } = update;
            return Ok(Taken { header, scope, norm, spare });
        }
        let weight = match weigh(&front.header) {
            Ok(weight) => weight,
            Err(refusal) => {
                check(&payload, expected)?;
                return Err(refusal);
            }
        };
        let values = &mut payload[front.values.clone()];
        let (inspected, squares) = match &self.body {
            Some(Body { bytes, values: place, .. }) => {
                crate::kernels::merge(values, &bytes[place.clone()], weight, self.measures)
            }
            None if self.measures => {
                (crate::kernels::inspect(values), crate::kernels::squares(values))
            }
            None => (crate::kernels::inspect(values), 0.0),
        };
        front.refuse_damage(&payload, inspected.lanes)?;
        front.refuse_excess(inspected.excess)?;
        let Front { header, scope, parts, values } = front;
        let body = Body { bytes: payload, values, scope: scope.clone(), parts };
        let old = self.body.replace(body);
        if old.is_none() {
            self.scale(weight);
        }
        let spare = old.map_or_else(Vec::new, |old| old.bytes);
        Ok(Taken { header, scope, norm: self.measures.then(|| squares.sqrt()), spare })
    }

    /// The values, each divided by what its parameter is given, where they lie; parameters nobody
    /// sent are absent.
    pub fn divided(mut self, divisor: impl Fn(ParamId) -> f32) -> Mean {
        if let Some(body) = &mut self.body {
            for (id, _, place) in &body.parts {
                crate::kernels::divide(&mut body.bytes[place.clone()], divisor(*id));
            }
        }
        for (id, values) in &mut self.more {
            crate::kernels::divide(values, divisor(*id));
        }
        Mean { sum: self }
    }

    /// The bytes of a parameter, which starts from zero if nobody sent it before.
    fn place(&mut self, id: ParamId, shape: Shape) -> &mut [u8] {
        match &mut self.body {
            Some(body) if let Some(place) = body.place(id) => &mut body.bytes[place],
            Some(_) | None => {
                let zeros = || vec![0; shape.elements() * size_of::<f32>()];
                self.more.entry(id).or_insert_with(zeros)
            }
        }
    }

    /// Gives the first update its weight, which is one wherever weights are relative to it.
    fn scale(&mut self, weight: f32) {
        if let Some(body) = self.body.as_mut().filter(|_| weight != 1.0) {
            for value in body.bytes[body.values.clone()].as_chunks_mut().0 {
                *value = (weight * f32::from_le_bytes(*value)).to_le_bytes();
            }
        }
    }
}

impl Body {
    /// The values of an update in f32, end to end.
    fn copy(update: &Opened) -> Self {
        let Opened { bytes, scope, parts, .. } = update.clone();
        let start = parts.first().map_or(0, |(_, _, place)| place.start);
        let end = parts.last().map_or(0, |(_, _, place)| place.end);
        Self { bytes, values: start..end, scope, parts }
    }

    /// Where the bytes of a parameter are, if it is here.
    fn place(&self, id: ParamId) -> Option<Range<usize>> {
        let part = self.parts.binary_search_by_key(&id, |(id, ..)| *id).ok()?;
        Some(self.parts[part].2.clone())
    }
}

/// Values by parameter, to be read.
#[derive(Clone, Debug, Default)]
pub struct Mean {
    /// It has been divided.
    sum: Sum,
}

impl Mean {
    /// The elements of a parameter, if anybody sent it.
    pub fn get(&self, id: ParamId) -> Option<impl ExactSizeIterator<Item = f32>> {
        let Sum { body, more, .. } = &self.sum;
        let body = body.as_ref().and_then(|body| body.place(id).map(|at| &body.bytes[at]));
        let bytes = body.or_else(|| more.get(&id).map(Vec::as_slice))?;
        Some(bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)))
    }

    /// A sum with a parameter's squares added to it one after the other, if anybody sent it.
    pub fn squares_onto(&self, sum: f64, id: ParamId) -> Option<f64> {
        let add = |sum: f64, value: f32| sum + f64::from(value) * f64::from(value);
        self.get(id).map(|values| values.fold(sum, add))
    }

    /// A copy of a parameter times a factor, if anybody sent it.
    pub fn scaled(&self, id: ParamId, factor: f64) -> Option<Vec<f32>> {
        self.get(id).map(|values| values.map(|value| (f64::from(value) * factor) as f32).collect())
    }

    /// Adds it times a factor; a parameter that is not there starts from zero.
    pub fn add_to(&self, into: &mut ParamValues, factor: f32) {
        for (id, values) in self.iter() {
            let sum = into.or_zeros(id, values.len());
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += factor * value);
        }
    }

    /// Which parameters are here.
    pub fn scope(&self) -> Scope {
        let more: Scope = self.sum.more.keys().copied().collect();
        self.sum.body.as_ref().map_or_else(Scope::empty, |body| body.scope.clone()) | more
    }

    /// Parameters and elements in id order.
    pub fn iter(&self) -> impl Iterator<Item = (ParamId, impl ExactSizeIterator<Item = f32>)> {
        let ids: Vec<ParamId> = self.scope().iter().collect();
        ids.into_iter().filter_map(|id| self.get(id).map(|values| (id, values)))
    }

    /// The number of elements over all parameters.
    pub fn elements(&self) -> usize {
        self.iter().map(|(_, values)| values.len()).sum()
    }

    /// A copy of it.
    pub fn tensors(&self) -> ParamValues {
        self.iter().map(|(id, values)| (id, values.collect())).collect()
    }
}

impl FromIterator<(ParamId, Vec<f32>)> for Mean {
    fn from_iter<I: IntoIterator<Item = (ParamId, Vec<f32>)>>(values: I) -> Self {
        let more = values.into_iter().map(|(id, values)| (id, to_bytes(&values))).collect();
        Self { sum: Sum { more, ..Sum::default() } }
    }
}
