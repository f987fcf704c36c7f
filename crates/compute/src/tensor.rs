//! A matrix of f32 on a device.
//!
//! Transformers over packed sequences need nothing else: activations are tokens by features, a
//! weight is outputs by inputs, a bias is one row. Clones share their numbers; writing to a shared
//! tensor copies it first, so a thousand simulated clients hold one copy of what is frozen. A tensor
//! may have room for more rows than it has, so that a key/value cache grows without being copied.

use crate::cpu::matmul::{Mat, Stored};
use crate::cuda::{self, moves};
use crate::device::Device;
use crate::error::ComputeError;
use crate::quantisation::Shape;
use crate::quantised_matrix::QuantisedMatrix;
use crate::storage::{Numbers, Storage};
use crate::weight_format::WeightFormat;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Rows by columns of f32.
///
/// ```
/// # use fedra_compute::{Device, Tensor};
/// let device = Device::cpu();
/// let mut x = Tensor::from_slice(&device, 2, 2, &[1.0, 2.0, 3.0, 4.0])?;
/// x.append(&Tensor::from_slice(&device, 1, 2, &[5.0, 6.0])?)?;
/// assert_eq!(x.shape(), (3, 2));
/// assert_eq!(x.to_host()[5], 6.0);
/// # Ok::<(), fedra_compute::ComputeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tensor {
    rows: usize,
    cols: usize,
    storage: Storage,
}

impl Tensor {
    /// Copies `data`, row by row, to the device.
    pub fn from_slice(
        device: &Device,
        rows: usize,
        cols: usize,
        data: &[f32],
    ) -> Result<Self, ComputeError> {
        let expected = rows.saturating_mul(cols);
        ComputeError::expect("tensor", "number of values", data.len(), expected)?;
        let mut tensor = Self::scratch(device, rows, cols);
        tensor.put(data);
        Ok(tensor)
    }

    /// All zeros.
    pub fn zeros(device: &Device, rows: usize, cols: usize) -> Self {
        let mut tensor = Self::scratch(device, rows, cols);
        tensor.clear();
        tensor
    }

    /// One number.
    pub fn scalar(device: &Device, value: f32) -> Self {
        let mut tensor = Self::scratch(device, 1, 1);
        tensor.put(&[value]);
        tensor
    }

    /// No rows yet, and room for `capacity` of them, in the precision that the device has activations in.
    pub fn with_capacity(device: &Device, capacity: usize, cols: usize) -> Self {
        Self { rows: 0, ..Self::activation(device, capacity, cols) }
    }

    /// Arbitrary contents, to be overwritten.
    pub(crate) fn scratch(device: &Device, rows: usize, cols: usize) -> Self {
        // Checked, because everything that follows relies on this product as the size of the memory.
        let elements = rows.checked_mul(cols).expect("a tensor is smaller than the address space");
        Self { rows, cols, storage: Storage::allocate(device, elements) }
    }

    /// Arbitrary contents in the precision that the device has activations in.
    pub(crate) fn activation(device: &Device, rows: usize, cols: usize) -> Self {
        let elements = rows.checked_mul(cols).expect("a tensor is smaller than the address space");
        Self { rows, cols, storage: Storage::allocate_activation(device, elements) }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.rows * self.cols
    }

    /// How many rows there is room for.
    pub fn capacity(&self) -> usize {
        self.storage.capacity().checked_div(self.cols).unwrap_or(usize::MAX)
    }

    /// The device that the numbers are on.
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// The numbers, row by row; borrowed where they are f32 in main memory already.
    pub fn to_host(&self) -> Cow<'_, [f32]> {
        match self.read() {
            Numbers::Borrowed(numbers) => Cow::Borrowed(numbers),
            Numbers::Converted(numbers) => Cow::Owned(numbers.to_vec()),
            Numbers::Copied(numbers) => Cow::Owned(numbers),
        }
    }

    /// The same numbers in the same format on another device; shared where it is the same.
    pub fn to(&self, device: &Device) -> Self {
        if device.holds_tensors_of(&self.device()) {
            return self.clone();
        }
        if let Some(matrix) = self.storage.to_quantised() {
            return Self::quantised(device, &matrix);
        }
        if let Some(halves) = self.storage.to_halves(self.elements()) {
            return Self { storage: Storage::of_halves(device, &halves), ..*self };
        }
        let mut copy = Self::scratch(device, self.rows, self.cols);
        copy.put(&self.read());
        copy
    }

    /// The one number of a one-element tensor (a loss).
    pub fn item(&self) -> f32 {
        assert_eq!(self.shape(), (1, 1), "item() reads tensors of one element");
        self.read()[0]
    }

    /// Whether writing would have to copy first.
    pub fn is_shared(&self) -> bool {
        self.storage.is_shared()
    }

    /// Whether two tensors are the same memory.
    pub fn same_storage(&self, other: &Self) -> bool {
        self.storage.is_same(&other.storage)
    }

    /// Whether the numbers are stored as bf16.
    pub fn is_bf16(&self) -> bool {
        self.storage.is_bf16()
    }

    /// The same numbers, each rounded to the nearest bf16, in half the memory. Meant for weights
    /// that do not train: whoever writes to it makes it f32 again.
    pub fn to_bf16(&self) -> Self {
        Self { storage: self.storage.to_bf16(self.elements()), ..*self }
    }

    /// Numbers from the host that are bf16 already; see [`Tensor::to_bf16`].
    pub fn from_bf16(
        device: &Device,
        rows: usize,
        cols: usize,
        data: &[u16],
    ) -> Result<Self, ComputeError> {
        let expected = rows.saturating_mul(cols);
        ComputeError::expect("tensor", "number of values", data.len(), expected)?;
        Ok(Self { rows, cols, storage: Storage::of_halves(device, data) })
    }

    /// Activations from the host that are bf16 already: as they are where a device has activations in bf16, in f32
    /// elsewhere.
    pub fn activation_of_bf16(
        device: &Device,
        rows: usize,
        cols: usize,
        data: &[u16],
    ) -> Result<Self, ComputeError> {
        if device.has_bf16_activations() {
            return Self::from_bf16(device, rows, cols, data);
        }
        let wide: Vec<f32> =
            data.iter().map(|bits| f32::from_bits(u32::from(*bits) << 16)).collect();
        Self::from_slice(device, rows, cols, &wide)
    }

    /// Its numbers where they are bf16, by their bits.
    pub fn to_halves(&self) -> Option<Cow<'_, [u16]>> {
        self.storage.to_halves(self.elements())
    }

    /// Visits its numbers in the format that they have, piece by piece, as little-endian bytes. Not generic, so that it
    /// is optimised as this crate is.
    pub fn each_stored(&self, visit: &mut dyn FnMut(&[u8])) {
        const PIECE: usize = 1 << 18;
        if let Some(matrix) = self.storage.to_quantised() {
            visit(&matrix.quants);
            matrix
                .scales
                .chunks(PIECE)
                .for_each(|scales| visit(&le_bytes(scales, u16::to_le_bytes)));
        } else if let Some(halves) = self.storage.to_halves(self.elements()) {
            halves.chunks(PIECE).for_each(|halves| visit(&le_bytes(halves, u16::to_le_bytes)));
        } else {
            let numbers = self.read();
            numbers.chunks(PIECE).for_each(|numbers| visit(&le_bytes(numbers, f32::to_le_bytes)));
        }
    }

    /// A quantised matrix on a device. Meant for weights that do not train: whoever writes to it makes it f32.
    pub fn quantised(device: &Device, matrix: &QuantisedMatrix) -> Self {
        let (rows, cols) = matrix.shape();
        Self { rows, cols, storage: Storage::of_quantised(device, matrix) }
    }

    /// Numbers from the host in a format. No other copy of them is made in f32.
    pub fn stored_as(
        device: &Device,
        format: WeightFormat,
        (rows, cols): (usize, usize),
        data: &[f32],
    ) -> Result<Self, ComputeError> {
        match format.quantisation() {
            Some(kind) => {
                let matrix = QuantisedMatrix::of(kind, (rows, cols), data)?;
                Ok(Self::quantised(device, &matrix))
            }
            None if format == WeightFormat::Bf16 => {
                Ok(Self::from_slice(device, rows, cols, data)?.to_bf16())
            }
            None => Self::from_slice(device, rows, cols, data),
        }
    }

    /// Room for a matrix in a format, where there are no numbers ([`Device::Meta`]); elsewhere zeros.
    pub fn zeros_as(device: &Device, format: WeightFormat, rows: usize, cols: usize) -> Self {
        let kind = format.quantisation();
        if device.has_numbers() {
            let zeros = || Self::zeros(device, rows, cols);
            return match kind {
                Some(kind) => Self::quantised(device, &QuantisedMatrix::zeros(kind, rows, cols)),
                None if format == WeightFormat::Bf16 => zeros().to_bf16(),
                None => zeros(),
            };
        }
        let storage = match kind {
            Some(kind) => Storage::quantised_on_paper(device, Shape { kind, rows, cols }),
            None if format == WeightFormat::Bf16 => Storage::bf16_on_paper(device, rows * cols),
            None => Storage::allocate(device, rows * cols),
        };
        Self { rows, cols, storage }
    }

    /// How its numbers are stored.
    pub fn format(&self) -> WeightFormat {
        use crate::quantisation::Quantisation::{Int4, Int8};
        match self.storage.quantised().map(|shape| shape.kind) {
            Some(Int8) => WeightFormat::Int8,
            Some(Int4) => WeightFormat::Int4,
            None if self.is_bf16() => WeightFormat::Bf16,
            None => WeightFormat::F32,
        }
    }

    /// How it is quantised, if it is.
    pub(crate) fn quantisation(&self) -> Option<Shape> {
        self.storage.quantised()
    }

    /// The address of a quantised matrix on a GPU.
    pub(crate) fn quantised_address(&self) -> u64 {
        self.storage.quantised_address()
    }

    /// Writes numbers from the host over all of the tensor's; a shared tensor is copied first.
    pub fn overwrite(&mut self, data: &[f32]) -> Result<(), ComputeError> {
        ComputeError::expect("tensor", "number of values", data.len(), self.elements())?;
        self.put(data);
        Ok(())
    }

    /// The same of numbers that are the bytes of f32, little endian.
    pub fn overwrite_bytes(&mut self, bytes: &[u8]) -> Result<(), ComputeError> {
        ComputeError::expect("tensor", "number of bytes", bytes.len(), 4 * self.elements())?;
        match self.device() {
            Device::Cuda(_) if !self.is_bf16() => self.storage.overwrite_bytes(bytes),
            Device::Cuda(_) => self.storage.overwrite(&numbers_of(bytes).collect::<Vec<f32>>()),
            Device::Cpu(_) | Device::Meta(_) => self.change(|into| {
                into.iter_mut().zip(numbers_of(bytes)).for_each(|(into, number)| *into = number);
            }),
        }
        Ok(())
    }

    /// Writes the numbers as bytes of f32, little endian.
    pub fn copy_bytes_to(&self, into: &mut [u8]) -> Result<(), ComputeError> {
        ComputeError::expect("tensor", "number of bytes", into.len(), 4 * self.elements())?;
        if self.storage.copy_bytes_to(into) {
            return Ok(());
        }
        let numbers = self.read();
        for (place, number) in into.as_chunks_mut().0.iter_mut().zip(numbers.iter()) {
            *place = number.to_le_bytes();
        }
        Ok(())
    }

    /// Copies rows `first .. first + count`.
    pub fn row_range(
        &self,
        device: &Device,
        first: usize,
        count: usize,
    ) -> Result<Self, ComputeError> {
        if first.checked_add(count).is_none_or(|end| end > self.rows) {
            let (found, expected) = (format!("{first}+{count}"), format!("at most {}", self.rows));
            return Err(ComputeError::shape("rows", "range", found, expected));
        }
        let mut part = Self::scratch(device, count, self.cols);
        part.copy_rectangle(0, self, first..first + count, 0);
        Ok(part)
    }

    /// Stacks tensors of equal width.
    pub fn stack(device: &Device, parts: &[Self]) -> Result<Self, ComputeError> {
        let cols = parts.first().map_or(0, Self::cols);
        let rows = parts.iter().map(Self::rows).sum();
        let mut whole = Self::scratch(device, rows, cols);
        let mut first = 0;
        for part in parts {
            ComputeError::expect("stack", "width", part.cols, cols)?;
            whole.copy_rectangle(first, part, 0..part.rows, 0);
            first += part.rows;
        }
        Ok(whole)
    }

    /// Adds rows of equal width behind the last one. Where there is room nothing else is copied;
    /// otherwise the room doubles.
    pub fn append(&mut self, more: &Self) -> Result<(), ComputeError> {
        self.append_rows(more, 0..more.rows)
    }

    /// Adds some rows of another tensor behind the last one; see [`Tensor::append`].
    pub fn append_rows(&mut self, from: &Self, rows: Range<usize>) -> Result<(), ComputeError> {
        ComputeError::expect("append", "width", from.cols, self.cols)?;
        self.append_columns(from, rows, 0)
    }

    /// The same of some columns of another tensor, from `column` on.
    pub(crate) fn append_columns(
        &mut self,
        from: &Self,
        rows: Range<usize>,
        column: usize,
    ) -> Result<(), ComputeError> {
        if column.saturating_add(self.cols) > from.cols {
            let (found, expected) = (from.cols.to_string(), format!("{column}+{}", self.cols));
            return Err(ComputeError::shape("append", "width", found, expected));
        }
        if rows.start > rows.end || rows.end > from.rows {
            let (found, expected) = (format!("{rows:?}"), format!("inside 0..{}", from.rows));
            return Err(ComputeError::shape("append", "range of rows", found, expected));
        }
        let first = self.rows;
        self.grow(rows.len());
        self.copy_rectangle(first, from, rows, column);
        Ok(())
    }

    /// Adds rows of arbitrary contents; see [`Tensor::append`].
    pub(crate) fn grow(&mut self, more: usize) {
        let wanted = self.rows.checked_add(more).expect("rows are fewer than can be counted");
        let needed = wanted.checked_mul(self.cols).expect("both parts are in memory already");
        if self.storage.must_move(needed) {
            let room = if self.storage.capacity() < needed { 2 * needed } else { 0 };
            self.storage.relocate(self.elements(), room.max(self.storage.capacity()));
        }
        self.rows = wanted;
    }

    /// Forgets all rows behind the first `rows`; their room stays.
    pub fn truncate(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
    }

    /// The same numbers in this many rows.
    pub(crate) fn reshaped(self, rows: usize) -> Self {
        let cols = self.elements().checked_div(rows).unwrap_or(0);
        assert_eq!(rows * cols, self.elements(), "rows of equal length");
        Self { rows, cols, ..self }
    }

    /// The numbers, for the kernels of the processor.
    pub(crate) fn read(&self) -> Numbers<'_> {
        self.storage.read(self.elements())
    }

    /// The numbers as they are stored, for products that read them in place.
    pub(crate) fn stored(&self) -> Stored<'_> {
        self.storage.stored(self.rows, self.cols)
    }

    /// Writes numbers from the host.
    fn put(&mut self, data: &[f32]) {
        match self.device() {
            Device::Cuda(_) => self.storage.overwrite(data),
            Device::Cpu(_) | Device::Meta(_) => self.change(|into| into.copy_from_slice(data)),
        }
    }

    /// Zeros in place of whatever there is.
    pub(crate) fn clear(&mut self) {
        let elements = self.elements();
        match &self.device() {
            Device::Cuda(cuda) => moves::fill(cuda, self.numbers_mut(), elements, 0.0),
            Device::Cpu(_) | Device::Meta(_) => self.change(|numbers| numbers.fill(0.0)),
        }
    }

    /// Copies rows of a tensor, as many columns of it from `column` on as there are here, over those from `first` on.
    fn copy_rectangle(&mut self, first: usize, from: &Self, rows: Range<usize>, column: usize) {
        let cols = self.cols;
        if let (Device::Cuda(cuda), Device::Cuda(_)) = (&self.device(), from.device()) {
            let into = self.numbers_mut().from(first * cols);
            let source = from.numbers().from(rows.start * from.cols + column);
            return moves::copy(cuda, (into, cols), (source, from.cols), (rows.len(), cols));
        }
        self.change(|into| {
            let numbers = from.storage.read(rows.end * from.cols);
            let into = into[first * cols..].chunks_exact_mut(cols.max(1));
            for (into, row) in into.zip(rows) {
                into.copy_from_slice(&numbers[row * from.cols + column..][..cols]);
            }
        });
    }

    /// Some rows of a bf16 matrix; see [`Storage::read_rows`].
    pub(crate) fn read_rows(&self, rows: &[u32]) -> Option<crate::pool::Buffer> {
        self.storage.read_rows(self.cols, rows)
    }

    /// Makes its numbers nobody else's, as a kernel that writes them would.
    pub(crate) fn own(&mut self) {
        self.storage.own(self.elements());
    }

    /// The same for an optimiser on paper; see [`Storage::own_learning`].
    pub(crate) fn own_learning(&mut self) {
        self.storage.own_learning(self.elements());
    }

    /// A product of a GPU reads it as bf16, on paper.
    pub(crate) fn round_on_paper(&self) {
        self.storage.round_on_paper(self.elements());
    }

    /// What a GPU's kernels read.
    pub(crate) fn numbers(&self) -> cuda::Numbers {
        self.storage.numbers()
    }

    /// What a GPU's kernels write; see [`Storage::numbers_mut`].
    pub(crate) fn numbers_mut(&mut self) -> cuda::Numbers {
        self.storage.numbers_mut(self.elements())
    }

    /// What an optimiser writes on a GPU; see [`Storage::numbers_kept`].
    pub(crate) fn numbers_kept(&mut self) -> (cuda::Numbers, u64) {
        self.storage.numbers_kept(self.elements())
    }

    /// The numbers as bf16 on a GPU, converted once.
    pub(crate) fn rounded(&self) -> Arc<cuda::Buffer> {
        self.storage.rounded(self.elements())
    }

    /// Writes its numbers, if it has any. Those of a GPU come to the processor and go back.
    pub(crate) fn change(&mut self, run: impl FnOnce(&mut [f32])) {
        let elements = self.elements();
        match self.device() {
            Device::Cpu(_) | Device::Meta(_) => self.storage.write_to(elements).map_or((), run),
            Device::Cuda(_) => {
                let mut numbers = self.storage.read(elements).to_vec();
                run(&mut numbers);
                self.storage.overwrite(&numbers);
            }
        }
    }

    /// The numbers, to be written by the kernels of the processor.
    pub(crate) fn write(&mut self) -> &mut [f32] {
        let elements = self.elements();
        self.storage.write(elements)
    }
}

impl Numbers<'_> {
    /// These numbers as a matrix of a tensor's shape.
    pub(crate) fn mat(&self, tensor: &Tensor) -> Mat<'_> {
        Mat::new(self, tensor.rows, tensor.cols)
    }
}

/// Numbers from their bytes.
fn numbers_of(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four))
}

fn le_bytes<T: Copy, const N: usize>(numbers: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    let bytes: Vec<[u8; N]> = numbers.iter().map(|number| bytes(*number)).collect();
    bytes.into_flattened()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(device: &Device, rows: usize, cols: usize) -> Tensor {
        let numbers: Vec<f32> = (0..rows * cols).map(|i| i as f32).collect();
        Tensor::from_slice(device, rows, cols, &numbers).unwrap()
    }

    #[test]
    fn writing_to_a_shared_tensor_leaves_the_other_untouched() {
        let device = Device::cpu();
        let original = Tensor::from_slice(&device, 1, 3, &[1.0, 2.0, 3.0]).unwrap();
        let mut copy = original.clone();
        assert!(copy.same_storage(&original));
        copy.overwrite(&[9.0, 2.0, 3.0]).unwrap();
        assert_eq!(original.to_host()[0], 1.0);
        assert_eq!(copy.to_host()[0], 9.0);
    }

    #[test]
    fn a_wrong_number_of_values_is_refused_with_both_numbers() {
        let device = Device::cpu();
        let expected = "tensor: number of values is 5, expected 6";
        let error = Tensor::from_slice(&device, 2, 3, &[0.0; 5]).unwrap_err();
        assert_eq!(error.to_string(), expected);
        let error = Tensor::zeros(&device, 2, 3).overwrite(&[0.0; 5]).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn rows_are_appended_in_place_while_there_is_room() {
        let device = Device::cpu();
        let rows = counting(&device, 100, 3);
        let mut cache = Tensor::with_capacity(&device, 100, 3);
        let room = cache.capacity();
        let (place, allocations) = (cache.read().as_ptr(), device.usage().allocations);
        for row in 0..room.min(100) {
            cache.append_rows(&rows, row..row + 1).unwrap();
        }
        assert_eq!((cache.read().as_ptr(), device.usage().allocations), (place, allocations));
        assert_eq!(cache.to_host(), rows.to_host());
        // Past its room it moves once, to twice as much, and loses nothing.
        cache.append(&rows).unwrap();
        assert_eq!(cache.shape(), (200, 3));
        assert!(cache.capacity() >= 400);
        assert_eq!(cache.to_host()[300..], *rows.to_host());
        cache.truncate(1);
        assert_eq!(*cache.to_host(), [0.0, 1.0, 2.0]);
    }

    #[test]
    fn appending_to_a_shared_tensor_leaves_the_other_untouched() {
        let device = Device::cpu();
        let mut cache = Tensor::with_capacity(&device, 8, 2);
        cache.append(&counting(&device, 2, 2)).unwrap();
        let before = cache.clone();
        cache.append(&counting(&device, 1, 2)).unwrap();
        let mut other = before.clone();
        other.append(&Tensor::from_slice(&device, 1, 2, &[7.0, 8.0]).unwrap()).unwrap();
        assert_eq!(*before.to_host(), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(*cache.to_host(), [0.0, 1.0, 2.0, 3.0, 0.0, 1.0]);
        assert_eq!(*other.to_host(), [0.0, 1.0, 2.0, 3.0, 7.0, 8.0]);
    }

    #[test]
    fn rows_of_another_width_or_beyond_the_end_are_not_appended() {
        let device = Device::cpu();
        let (mut cache, more) = (Tensor::with_capacity(&device, 4, 2), counting(&device, 2, 2));
        let error = cache.append(&counting(&device, 1, 3)).unwrap_err();
        assert_eq!(error.to_string(), "append: width is 3, expected 2");
        let error = cache.append_rows(&more, 1..3).unwrap_err();
        assert_eq!(error.to_string(), "append: range of rows is 1..3, expected inside 0..2");
        assert_eq!(cache.shape(), (0, 2));
    }

    #[test]
    fn bf16_takes_half_the_memory_and_becomes_f32_when_written() {
        let device = Device::cpu();
        let x = counting(&device, 1001, 3);
        let before = device.usage().live_bytes;
        let half = x.to_bf16();
        let used = device.usage().live_bytes - before;
        assert!(half.is_bf16() && 10 * used < 6 * before, "{used} of {before} bytes");
        // Integers up to 256 are exact in bf16.
        assert_eq!(half.to_host()[..256], x.to_host()[..256]);
        let mut written = half.clone();
        written.scale(2.0);
        assert!(!written.is_bf16() && half.is_bf16());
        assert_eq!(written.to_host()[255], 510.0);
        let mut longer = half.clone();
        longer.append(&x).unwrap();
        assert_eq!(longer.to_host()[..3003], *half.to_host());
    }

    #[test]
    #[should_panic(expected = "a tensor is smaller than the address space")]
    fn a_shape_whose_size_does_not_fit_a_number_is_not_made() {
        Tensor::zeros(&Device::cpu(), 1 << (usize::BITS - 1), 2);
    }
}
