//! Where a tensor's numbers are, and who shares them.
//!
//! This file decides by device where memory is, [`kernels`](crate::kernels) decides who computes, and no
//! other file asks: a second device adds a variant, and the compiler lists what these two must learn. Results are always f32;
//! weights that do not train may be stored as bf16, which kernels read as f32.

use crate::cpu::bf16;
use crate::cpu::matmul::{Mat, Stored};
use crate::device::Device;
use crate::pool::{Buffer, Counted};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Shared memory on a device; there may be room for more numbers than its tensor has.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    /// f32 in main memory.
    Cpu(Arc<Buffer>),
    /// bf16 in main memory, two to each float of the buffer.
    CpuBf16(Arc<Buffer>),
    /// f32 that are counted and not there.
    Meta(Arc<Counted>),
    /// bf16 that are counted and not there, two to each float.
    MetaBf16(Arc<Counted>),
}

impl Storage {
    /// Room for this many f32, with arbitrary contents.
    pub fn allocate(device: &Device, elements: usize) -> Self {
        match device {
            Device::Cpu(pool) => Self::Cpu(Arc::new(pool.take(elements))),
            Device::Meta(counter) => Self::Meta(Arc::new(counter.take(elements))),
        }
    }

    /// The device that the numbers are on.
    pub fn device(&self) -> Device {
        match self {
            Self::Cpu(buffer) | Self::CpuBf16(buffer) => Device::Cpu(buffer.pool().clone()),
            Self::Meta(counted) | Self::MetaBf16(counted) => {
                Device::Meta(counted.counter().clone())
            }
        }
    }

    /// How many numbers there is room for.
    pub fn capacity(&self) -> usize {
        match self {
            Self::Cpu(buffer) => buffer.len(),
            Self::CpuBf16(buffer) => 2 * buffer.len(),
            Self::Meta(counted) => counted.len(),
            Self::MetaBf16(counted) => 2 * counted.len(),
        }
    }

    pub fn is_bf16(&self) -> bool {
        match self {
            Self::Cpu(_) | Self::Meta(_) => false,
            Self::CpuBf16(_) | Self::MetaBf16(_) => true,
        }
    }

    pub fn is_shared(&self) -> bool {
        match self {
            Self::Cpu(buffer) | Self::CpuBf16(buffer) => Arc::strong_count(buffer) > 1,
            Self::Meta(counted) | Self::MetaBf16(counted) => Arc::strong_count(counted) > 1,
        }
    }

    /// Whether two tensors are the same memory.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cpu(a), Self::Cpu(b)) | (Self::CpuBf16(a), Self::CpuBf16(b)) => {
                Arc::ptr_eq(a, b)
            }
            (Self::Meta(a), Self::Meta(b)) | (Self::MetaBf16(a), Self::MetaBf16(b)) => {
                Arc::ptr_eq(a, b)
            }
            (Self::Cpu(_) | Self::CpuBf16(_) | Self::Meta(_) | Self::MetaBf16(_), _) => false,
        }
    }

    /// The first `count` numbers as f32 in main memory.
    pub fn read(&self, count: usize) -> Numbers<'_> {
        match self {
            Self::Cpu(buffer) => Numbers::Borrowed(&buffer[..count]),
            Self::CpuBf16(buffer) => {
                let mut numbers = buffer.pool().take(count);
                bf16::widen(&mut numbers, &buffer.halves()[..count]);
                Numbers::Converted(numbers)
            }
            Self::Meta(_) | Self::MetaBf16(_) => Numbers::Absent(vec![0.0; count]),
        }
    }

    /// The first numbers as a matrix of the precision that they have.
    pub fn stored(&self, rows: usize, cols: usize) -> Stored<'_> {
        match self {
            Self::Cpu(buffer) => Stored::f32(Mat::new(&buffer[..rows * cols], rows, cols)),
            Self::CpuBf16(buffer) => Stored::bf16(&buffer.halves()[..rows * cols], rows, cols),
            Self::Meta(_) | Self::MetaBf16(_) => unreachable!("{NO_NUMBERS}"),
        }
    }

    /// Some rows of a bf16 matrix as f32, one after another; `None` where rows can be read in place.
    pub fn read_rows(&self, cols: usize, rows: &[u32]) -> Option<Buffer> {
        let buffer = match self {
            Self::Cpu(_) => return None,
            Self::CpuBf16(buffer) => buffer,
            Self::Meta(_) | Self::MetaBf16(_) => unreachable!("{NO_NUMBERS}"),
        };
        let mut numbers = buffer.pool().take(rows.len() * cols);
        for (row, into) in rows.iter().zip(numbers.chunks_exact_mut(cols.max(1))) {
            bf16::widen(into, &buffer.halves()[*row as usize * cols..][..cols]);
        }
        Some(numbers)
    }

    /// The first `count` numbers, to be written: shared ones are copied first, and bf16 becomes f32.
    pub fn write(&mut self, count: usize) -> &mut [f32] {
        self.own(count);
        match self {
            Self::Cpu(buffer) => {
                &mut Arc::get_mut(buffer).expect("it was relocated if anybody shared it")[..count]
            }
            Self::CpuBf16(_) => unreachable!("relocating leaves f32"),
            Self::Meta(_) | Self::MetaBf16(_) => unreachable!("{NO_NUMBERS}"),
        }
    }

    /// Makes the first `count` numbers nobody else's and f32, as whoever writes them needs them.
    pub fn own(&mut self, count: usize) {
        if self.is_bf16() || self.is_shared() {
            self.relocate(count, self.capacity());
        }
    }

    /// Copies numbers of the host over the first ones.
    pub fn upload(&mut self, numbers: &[f32]) {
        self.own(numbers.len());
        match self {
            Self::Cpu(_) | Self::CpuBf16(_) => self.write(numbers.len()).copy_from_slice(numbers),
            Self::Meta(_) | Self::MetaBf16(_) => {}
        }
    }

    /// Zeros in place of the first `count` numbers.
    pub fn clear(&mut self, count: usize) {
        self.own(count);
        match self {
            Self::Cpu(_) | Self::CpuBf16(_) => self.write(count).fill(0.0),
            Self::Meta(_) | Self::MetaBf16(_) => {}
        }
    }

    /// Copies a range of another tensor's numbers over those from `first` on, of `count` in all.
    pub fn copy(&mut self, (count, first): (usize, usize), from: &Self, range: Range<usize>) {
        self.own(count);
        match self {
            Self::Cpu(_) | Self::CpuBf16(_) => {
                let from = &from.read(range.end)[range];
                self.write(count)[first..][..from.len()].copy_from_slice(from);
            }
            Self::Meta(_) | Self::MetaBf16(_) => {}
        }
    }

    /// Moves the first `count` numbers to f32 memory of their own with room for `capacity`.
    pub fn relocate(&mut self, count: usize, capacity: usize) {
        let mut moved = match self {
            Self::Cpu(buffer) | Self::CpuBf16(buffer) => buffer.pool().take(capacity.max(count)),
            Self::Meta(counted) | Self::MetaBf16(counted) => {
                let moved = counted.counter().take(capacity.max(count));
                *self = Self::Meta(Arc::new(moved));
                return;
            }
        };
        moved[..count].copy_from_slice(&self.read(count));
        *self = Self::Cpu(Arc::new(moved));
    }

    /// The first `count` numbers, each rounded to the nearest bf16.
    pub fn to_bf16(&self, count: usize) -> Self {
        match self {
            Self::Cpu(buffer) => {
                let mut rounded = buffer.pool().take(count.div_ceil(2));
                bf16::narrow(&mut rounded.halves_mut()[..count], &buffer[..count]);
                Self::CpuBf16(Arc::new(rounded))
            }
            Self::Meta(counted) => {
                Self::MetaBf16(Arc::new(counted.counter().take(count.div_ceil(2))))
            }
            Self::CpuBf16(_) | Self::MetaBf16(_) => self.clone(),
        }
    }
}

/// A tensor's numbers as f32 in main memory: where they are, or converted into a buffer.
#[derive(Debug)]
pub(crate) enum Numbers<'a> {
    Borrowed(&'a [f32]),
    Converted(Buffer),
    /// Zeros in place of numbers that are not there.
    Absent(Vec<f32>),
}

const NO_NUMBERS: &str = "the processor's kernels are given the processor's tensors";

impl Deref for Numbers<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Borrowed(numbers) => numbers,
            Self::Converted(numbers) => numbers,
            Self::Absent(numbers) => numbers,
        }
    }
}
