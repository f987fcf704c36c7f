//! Arrays by name, as apps of Flower that know nothing of ours exchange them.
//!
//! Parameters have the names that Hugging Face's libraries give them, and values are f32. One array is one
//! parameter, so a message has many objects: that is the price of speaking to strangers.

use std::collections::BTreeMap;

use bytes::Bytes;
use fedra_plan::{Layout, ParamId};
use fedra_wire::ParamValues;

use crate::error::{FlowerError, shortened};
use crate::exchange::{Store, fetch};
use crate::message_content::{fetch_array, names, pack_array, pack_named, records};
use crate::npy::Header;
use crate::object::{Kind, Objects};
use crate::proto::ObjectTree;
use crate::record::Fields;

/// NumPy's name for f32.
const F32: &str = "<f4";
/// Most bytes of an array that is carried along without being read.
const MOST_FOREIGN: usize = 64 << 20;

/// The name of each parameter.
pub type TensorNames = BTreeMap<ParamId, String>;

/// Arrays by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Arrays(BTreeMap<String, (Header, Bytes)>);

impl Arrays {
    /// Values of a model under their names.
    pub(crate) fn of_values(
        values: &ParamValues,
        (layout, named): (&Layout, &TensorNames),
    ) -> Self {
        let array = |(id, values): (ParamId, &[f32])| {
            let (name, shape) = (named.get(&id)?.clone(), layout.get(id)?);
            let header = Header::new(F32, shape.dims());
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            Some((name, (header, Bytes::from(bytes))))
        };
        Self(values.iter().filter_map(array).collect())
    }

    /// The values of a model among them; every parameter has to be there, in its shape.
    pub(crate) fn values(
        &self,
        (layout, named): (&Layout, &TensorNames),
    ) -> Result<ParamValues, String> {
        let mut values = ParamValues::new();
        for (id, shape) in layout.iter() {
            let name = named.get(&id).ok_or_else(|| format!("{id} has no name"))?;
            let found = self.0.get(name);
            let (header, bytes) = found.ok_or_else(|| format!("found no array {name}"))?;
            let expected = Header::new(F32, shape.dims());
            if *header != expected || bytes.len() != 4 * shape.elements() {
                return Err(format!(
                    "{name}: found {} of shape {:?}, expected {F32} of shape {:?}",
                    shortened(&header.kind),
                    header.shape,
                    shape.dims()
                ));
            }
            let (fours, _none_left) = bytes.as_chunks::<4>();
            values.insert(id, fours.iter().map(|four| f32::from_le_bytes(*four)).collect());
        }
        Ok(values)
    }

    /// The same with other values for the model's parameters; arrays of no parameter stay as they are.
    pub(crate) fn with_values(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// A record of them.
    fn pack(&self, objects: &mut Objects) -> ObjectTree {
        let mut named = Vec::with_capacity(self.0.len());
        for (name, (header, bytes)) in &self.0 {
            let chunks = objects.add_chunks(header.encode(), bytes);
            let kind = if header.kind == F32 { "float32" } else { &header.kind };
            named.push((name.clone(), pack_array(objects, (kind, &header.shape), &chunks)));
        }
        pack_named(objects, Kind::ArrayRecord, named)
    }

    /// Reads what a message of a stranger holds: its arrays, for a model of this layout, and what it says
    /// beside them.
    pub(crate) fn fetch_all(
        store: &mut impl Store,
        run: u64,
        (message_id, layout, named): (&str, &Layout, &TensorNames),
    ) -> Result<(Self, Fields), FlowerError> {
        let (mut arrays, mut fields) = (Self::default(), Fields::default());
        for id in records(store, run, message_id)?.into_values() {
            let record = fetch(store, run, &id)?;
            match record.kind {
                Kind::ArrayRecord => arrays = Self::fetch(store, run, (&id, layout, named))?,
                Kind::ConfigRecord | Kind::MetricRecord => {
                    let read = Fields::decode(record.body);
                    fields = fields.and(read.map_err(|reason| FlowerError::object(&id, reason))?);
                }
                Kind::Message | Kind::RecordDict | Kind::Array | Kind::ArrayChunk => {
                    let reason = format!("found {:?} among records", record.kind);
                    return Err(FlowerError::object(&id, reason));
                }
            }
        }
        Ok((arrays, fields))
    }

    /// A message of them and of some words, under the names that apps of Flower's own use.
    pub(crate) fn content(&self, (fields, kind): (&Fields, Kind)) -> (Objects, ObjectTree) {
        let mut objects = Objects::default();
        let name = if kind == Kind::MetricRecord { "metrics" } else { "config" };
        let words = objects.add(kind, &[], vec![fields.encode()]);
        let mut named = vec![(name.to_owned(), words)];
        if !self.0.is_empty() {
            named.push(("arrays".to_owned(), self.pack(&mut objects)));
        }
        let content = pack_named(&mut objects, Kind::RecordDict, named);
        (objects, content)
    }

    /// Reads a record of them, for a model of this layout.
    fn fetch(
        store: &mut impl Store,
        run: u64,
        (record, layout, named): (&str, &Layout, &TensorNames),
    ) -> Result<Self, FlowerError> {
        let found = names(&fetch(store, run, record)?.of(Kind::ArrayRecord, record)?, record)?;
        let sizes: BTreeMap<&String, usize> = named
            .iter()
            .filter_map(|(id, name)| Some((name, 4 * layout.get(*id)?.elements())))
            .collect();
        let mut arrays = BTreeMap::new();
        for (name, id) in found {
            let most = sizes.get(&name).copied().unwrap_or(MOST_FOREIGN);
            arrays.insert(name, fetch_array(store, run, (&id, most, false))?);
        }
        Ok(Self(arrays))
    }
}
