//! Where each tensor lies in a file. All places are checked against the file's length and against
//! each other before a value is read.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use super::block::BlockType;
use super::cursor::Cursor;
use crate::error::ModelError;
use crate::hf::header::{MAX_TENSORS, check_name};

/// Most dimensions, by the format's own rule.
const MAX_RANK: u32 = 4;
/// A tensor takes at least a name, a rank, one dimension, a type and an offset.
const LEAST_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// One tensor's type, shape and place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub block_type: BlockType,
    /// Dimensions, outermost first, as everywhere else; the file has them the other way round.
    pub shape: Vec<usize>,
    /// From the start of the data.
    pub offset: u64,
    pub bytes: u64,
}

/// Reads the places of `count` tensors.
pub(super) fn read(
    path: &Path,
    cursor: &mut Cursor<'_, impl Read>,
    count: u64,
) -> Result<BTreeMap<String, Placed>, ModelError> {
    if count > MAX_TENSORS as u64 {
        let found = format!("{count} tensors");
        return Err(ModelError::file(path, found, format!("at most {MAX_TENSORS}")));
    }
    cursor.check_room("tensors", count, LEAST_BYTES)?;
    let mut tensors = BTreeMap::new();
    for _ in 0..count {
        let name = cursor.text("a tensor's name", 1 << 10)?;
        check_name(&name).map_err(|found| ModelError::file(path, found, "a printable name"))?;
        let refuse =
            |found: String, expected: String| ModelError::tensor(path, &name, found, expected);
        let rank = cursor.u32()?;
        if rank == 0 || rank > MAX_RANK {
            return Err(refuse(format!("{rank} dimensions"), format!("1 to {MAX_RANK}")));
        }
        let mut dims = Vec::new();
        for _ in 0..rank {
            dims.push(cursor.u64()?);
        }
        let number = cursor.u32()?;
        let block_type = BlockType::of(number).ok_or_else(|| {
            let found = format!("elements of type {}", BlockType::name_of(number));
            refuse(found, format!("one of {}", BlockType::names()))
        })?;
        let bytes = bytes(block_type, &dims)
            .ok_or_else(|| refuse(format!("dimensions {dims:?}"), shape_rule(block_type)))?;
        let offset = cursor.u64()?;
        dims.reverse();
        let shape = dims.iter().map(|&dim| dim as usize).collect();
        let placed = Placed { block_type, shape, offset, bytes };
        if tensors.insert(name.clone(), placed).is_some() {
            return Err(refuse("a duplicate".into(), "each name once".into()));
        }
    }
    Ok(tensors)
}

/// Checks that every tensor lies at an aligned place inside the data and on no other.
pub(super) fn check(
    path: &Path,
    tensors: &BTreeMap<String, Placed>,
    (alignment, data_length): (u64, u64),
) -> Result<(), ModelError> {
    let mut in_order: Vec<(&String, &Placed)> = tensors.iter().collect();
    in_order.sort_by_key(|(_, placed)| placed.offset);
    let (mut end, mut before) = (0, None);
    for (name, placed) in in_order {
        let Placed { offset, bytes, .. } = *placed;
        let refuse =
            |found: String, expected: String| Err(ModelError::tensor(path, name, found, expected));
        if !offset.is_multiple_of(alignment) {
            return refuse(format!("data at byte {offset}"), format!("a multiple of {alignment}"));
        }
        let Some(own_end) = offset.checked_add(bytes).filter(|&end| end <= data_length) else {
            let found = format!("{bytes} bytes at byte {offset} of the data");
            return refuse(found, format!("them within the file's {data_length} bytes of data"));
        };
        if let Some(before) = before.filter(|_| offset < end) {
            let found = format!("data at byte {offset}");
            return refuse(found, format!("it behind those of {before:?}, which end at {end}"));
        }
        (end, before) = (own_end, Some(name));
    }
    Ok(())
}

/// The bytes of a tensor whose first dimension is the innermost; nothing if no file can have it.
fn bytes(block_type: BlockType, dims: &[u64]) -> Option<u64> {
    let inner = *dims.first()?;
    if !inner.is_multiple_of(block_type.elements() as u64) || dims.contains(&0) {
        return None;
    }
    let elements = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim))?;
    let bytes = (elements / block_type.elements() as u64).checked_mul(block_type.bytes() as u64)?;
    // As f32 it has to be addressable too.
    usize::try_from(elements.checked_mul(4)?).ok()?;
    Some(bytes)
}

fn shape_rule(block_type: BlockType) -> String {
    match block_type.elements() {
        1 => "sizes above 0 that this machine can address".into(),
        block => format!("sizes that this machine can address, the first a multiple of {block}"),
    }
}
