//! Rows of tables and sums of rows.

use crate::cpu::rows;
use crate::cpu::rows::Occurrences;
use crate::cuda::ops;
use crate::device::Device;
use crate::patches::{Patches, Pixels};
use crate::storage::Numbers;
use crate::tensor::Tensor;
use crate::weight_format::WeightFormat;

/// `into[i] = sum over tables of table[index[i]]`.
pub(crate) fn gather(device: &Device, into: &mut Tensor, tables: &[(&Tensor, &[u32])]) {
    let width = into.cols();
    match device {
        Device::Cpu(_) => {
            let read: Vec<_> =
                tables.iter().map(|(table, index)| looked_up(table, index)).collect();
            let converted = read.iter().any(|(_, index)| index.is_none());
            let rows = if converted { into.rows() } else { 0 };
            let in_order: Vec<u32> = (0..rows as u32).collect();
            let sources: Vec<(&[f32], &[u32])> = read
                .iter()
                .map(|(numbers, index)| (&numbers[..], index.unwrap_or(&in_order)))
                .collect();
            rows::gather(into.write(), width, &sources);
        }
        Device::Meta(counter) => {
            into.own();
            let converted = |(table, index): &(&Tensor, &[u32])| {
                (table.format() != WeightFormat::F32 && !counter.is_gpu())
                    .then(|| counter.take(index.len() * table.cols()))
            };
            drop(tables.iter().map(converted).collect::<Vec<_>>());
        }
        Device::Cuda(cuda) => ops::gather(cuda, into, tables),
    }
}

/// A table's numbers and the index into them. Of a table that is not f32 only the rows that are looked up are
/// converted, in the order of the index.
fn looked_up<'a>(table: &'a Tensor, index: &'a [u32]) -> (Numbers<'a>, Option<&'a [u32]>) {
    match table.read_rows(index) {
        Some(rows) => (Numbers::Converted(rows), None),
        None => (table.read(), Some(index)),
    }
}

/// Images cut into patches.
pub(crate) fn patches(device: &Device, how: Patches, pixels: Pixels<'_>, into: &mut Tensor) {
    match (device, pixels) {
        (Device::Cpu(_), Pixels::Host(pixels)) => how.cut(pixels, into.write()),
        (Device::Cpu(_), Pixels::Placed(pixels)) => how.cut(&pixels.read(), into.write()),
        (Device::Meta(counter), Pixels::Host(_)) => {
            into.own();
            // A GPU is sent the images first.
            drop(counter.is_gpu().then(|| counter.take(into.elements())));
        }
        (Device::Meta(_), Pixels::Placed(_)) => into.own(),
        (Device::Cuda(cuda), Pixels::Placed(pixels)) => {
            ops::patches(cuda, how, &pixels.to(device), into);
        }
        (Device::Cuda(cuda), Pixels::Host(pixels)) => {
            let placed = Tensor::from_slice(device, 1, pixels.len(), pixels);
            ops::patches(cuda, how, &placed.expect("one row of all"), into);
        }
    }
}

/// `into[index[i]] += from[i]`; indices may repeat.
pub(crate) fn scatter_add(into: &mut Tensor, index: &[u32], from: &Tensor) {
    let width = into.cols();
    match &into.device() {
        Device::Cuda(cuda) => ops::scatter_add(cuda, into, index, from),
        Device::Cpu(_) | Device::Meta(_) => {
            into.change(|into| rows::scatter_add(into, width, index, &from.read()));
        }
    }
}

/// The rows that occur in an index, ascending, and for each the sum of `from` where it occurs.
pub(crate) fn sum_by_row(device: &Device, index: &[u32], from: &Tensor) -> (Vec<u32>, Tensor) {
    let occurrences = Occurrences::of(index);
    let sums = sum_occurrences(device, &occurrences, from);
    (occurrences.rows, sums)
}

/// For each row that occurs the sum of `from` where it occurs.
pub(crate) fn sum_occurrences(device: &Device, occurrences: &Occurrences, from: &Tensor) -> Tensor {
    let width = from.cols();
    let mut sums = Tensor::scratch(device, occurrences.rows.len(), width);
    match device {
        Device::Cuda(cuda) => ops::sum_by_row(cuda, &mut sums, occurrences, from),
        Device::Cpu(_) | Device::Meta(_) => {
            sums.change(|sums| occurrences.sum_rows(sums, width, &from.read()));
        }
    }
    sums
}
