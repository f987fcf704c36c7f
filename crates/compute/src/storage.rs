//! Where a tensor's numbers are, and who shares them.
//!
//! This file decides by device where memory is, [`kernels`](crate::kernels) decides who computes, and no
//! other file asks: a second device adds a variant, and the compiler lists what these two must learn. Results are always f32;
//! weights that do not train may be stored as bf16, which kernels read as f32.

use crate::cpu::bf16;
use crate::cpu::matmul::{Mat, Stored};
use crate::cuda::{self, Cuda};
use crate::device::Device;
use crate::pool::{Buffer, Counted};
use std::ops::Deref;
use std::sync::Arc;

/// Shared memory on a device; there may be room for more numbers than its tensor has.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    memory: Memory,
    /// Whether there are two bf16 in the place of each f32.
    is_bf16: bool,
}

#[derive(Clone, Debug)]
enum Memory {
    /// Main memory.
    Cpu(Arc<Buffer>),
    /// Memory that is counted and not there.
    Meta(Arc<Counted>),
    /// Memory of a GPU.
    Cuda(Arc<cuda::Buffer>),
}

impl Storage {
    /// Room for this many f32, with arbitrary contents.
    pub fn allocate(device: &Device, elements: usize) -> Self {
        let memory = match device {
            Device::Cpu(pool) => Memory::Cpu(Arc::new(pool.take(elements))),
            Device::Meta(counter) => Memory::Meta(Arc::new(counter.take(elements))),
            Device::Cuda(cuda) => Memory::Cuda(Arc::new(cuda.take(elements))),
        };
        Self { memory, is_bf16: false }
    }

    /// Room for this many numbers in the precision that a device has activations in.
    pub fn allocate_activation(device: &Device, elements: usize) -> Self {
        match device {
            Device::Cuda(cuda) if cuda.is_bf16() => {
                Self { is_bf16: true, ..Self::allocate(device, elements.div_ceil(2)) }
            }
            Device::Meta(counter) if counter.is_bf16() => {
                Self { is_bf16: true, ..Self::allocate(device, elements.div_ceil(2)) }
            }
            Device::Cpu(_) | Device::Meta(_) | Device::Cuda(_) => Self::allocate(device, elements),
        }
    }

    /// The GPU that the numbers are on, if they are on one.
    pub fn cuda(&self) -> Option<&Cuda> {
        match &self.memory {
            Memory::Cuda(buffer) => Some(buffer.cuda()),
            Memory::Cpu(_) | Memory::Meta(_) => None,
        }
    }

    /// What a GPU's kernels read.
    pub fn numbers(&self) -> cuda::Numbers {
        self.cuda_buffer().numbers(self.is_bf16)
    }

    /// What a GPU's kernels write: shared numbers are copied first.
    pub fn numbers_mut(&mut self, count: usize) -> cuda::Numbers {
        if self.is_shared() {
            self.relocate(count, self.capacity());
        }
        let is_bf16 = self.is_bf16;
        let buffer = self.owned_cuda_buffer();
        buffer.forget();
        buffer.numbers(is_bf16)
    }

    /// The same for a kernel that writes f32 and, where products have read them as bf16, those too.
    pub fn numbers_kept(&mut self, count: usize) -> (cuda::Numbers, u64) {
        if self.is_bf16 {
            let wide = self.cuda_buffer().cuda().take(count);
            wide.cuda().convert(wide.numbers(false), self.numbers(), count);
            *self = Self { memory: Memory::Cuda(Arc::new(wide)), is_bf16: false };
        }
        if self.is_shared() {
            self.relocate(count, self.capacity());
        }
        let buffer = self.owned_cuda_buffer();
        (buffer.numbers(false), buffer.kept_rounded())
    }

    /// Writes numbers from main memory over those on a GPU, in the precision that they have.
    pub fn overwrite(&mut self, data: &[f32]) {
        self.numbers_mut(data.len());
        let half = self.is_bf16;
        self.owned_cuda_buffer().overwrite(data, half);
    }

    /// The first `count` f32 as bf16, converted once.
    pub fn rounded(&self, count: usize) -> Arc<cuda::Buffer> {
        self.cuda_buffer().rounded(count)
    }

    fn cuda_buffer(&self) -> &cuda::Buffer {
        match &self.memory {
            Memory::Cuda(buffer) => buffer,
            Memory::Cpu(_) | Memory::Meta(_) => unreachable!("{NOT_ON_A_GPU}"),
        }
    }

    fn owned_cuda_buffer(&mut self) -> &mut cuda::Buffer {
        match &mut self.memory {
            Memory::Cuda(buffer) => {
                Arc::get_mut(buffer).expect("it was relocated if anybody shared it")
            }
            Memory::Cpu(_) | Memory::Meta(_) => unreachable!("{NOT_ON_A_GPU}"),
        }
    }

    /// The device that the numbers are on.
    pub fn device(&self) -> Device {
        match &self.memory {
            Memory::Cpu(buffer) => Device::Cpu(buffer.pool().clone()),
            Memory::Meta(counted) => Device::Meta(counted.counter().clone()),
            Memory::Cuda(buffer) => Device::Cuda(buffer.cuda().clone()),
        }
    }

    /// How many numbers there is room for.
    pub fn capacity(&self) -> usize {
        let floats = match &self.memory {
            Memory::Cpu(buffer) => buffer.len(),
            Memory::Meta(counted) => counted.len(),
            Memory::Cuda(buffer) => buffer.len(),
        };
        if self.is_bf16 { 2 * floats } else { floats }
    }

    pub fn is_bf16(&self) -> bool {
        self.is_bf16
    }

    pub fn is_shared(&self) -> bool {
        match &self.memory {
            Memory::Cpu(buffer) => Arc::strong_count(buffer) > 1,
            Memory::Meta(counted) => Arc::strong_count(counted) > 1,
            Memory::Cuda(buffer) => Arc::strong_count(buffer) > 1,
        }
    }

    /// Whether so many numbers must move to memory of their own before they can be written. Where a device has
    /// activations in bf16, they are written as such.
    pub fn must_move(&self, needed: usize) -> bool {
        let turns_f32 = self.is_bf16 && self.cuda().is_none();
        self.is_shared() || turns_f32 || self.capacity() < needed
    }

    /// Whether two tensors are the same memory.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.memory, &other.memory) {
            (Memory::Cpu(a), Memory::Cpu(b)) => Arc::ptr_eq(a, b),
            (Memory::Meta(a), Memory::Meta(b)) => Arc::ptr_eq(a, b),
            (Memory::Cuda(a), Memory::Cuda(b)) => Arc::ptr_eq(a, b),
            (Memory::Cpu(_) | Memory::Meta(_) | Memory::Cuda(_), _) => false,
        }
    }

    /// The first `count` numbers as f32 in main memory.
    pub fn read(&self, count: usize) -> Numbers<'_> {
        match &self.memory {
            Memory::Cpu(buffer) if self.is_bf16 => {
                let mut numbers = buffer.pool().take(count);
                bf16::widen(&mut numbers, &buffer.halves()[..count]);
                Numbers::Converted(numbers)
            }
            Memory::Cpu(buffer) => Numbers::Borrowed(&buffer[..count]),
            Memory::Meta(_) => Numbers::Copied(vec![0.0; count]),
            Memory::Cuda(buffer) => Numbers::Copied(buffer.to_host(count, self.is_bf16)),
        }
    }

    /// The first numbers as a matrix of the precision that they have.
    pub fn stored(&self, rows: usize, cols: usize) -> Stored<'_> {
        let (buffer, count) = (self.buffer(), rows * cols);
        if self.is_bf16 {
            Stored::bf16(&buffer.halves()[..count], rows, cols)
        } else {
            Stored::f32(Mat::new(&buffer[..count], rows, cols))
        }
    }

    /// Some rows of a bf16 matrix as f32, one after another; `None` where rows can be read in place.
    pub fn read_rows(&self, cols: usize, rows: &[u32]) -> Option<Buffer> {
        let buffer = self.buffer();
        if !self.is_bf16 {
            return None;
        }
        let mut numbers = buffer.pool().take(rows.len() * cols);
        for (row, into) in rows.iter().zip(numbers.chunks_exact_mut(cols.max(1))) {
            bf16::widen(into, &buffer.halves()[*row as usize * cols..][..cols]);
        }
        Some(numbers)
    }

    /// What the processor's kernels read.
    fn buffer(&self) -> &Buffer {
        match &self.memory {
            Memory::Cpu(buffer) => buffer,
            Memory::Meta(_) | Memory::Cuda(_) => unreachable!("{NO_NUMBERS}"),
        }
    }

    /// The first `count` numbers, to be written: shared ones are copied first, and bf16 becomes f32.
    pub fn write(&mut self, count: usize) -> &mut [f32] {
        self.write_to(count).expect(NO_NUMBERS)
    }

    /// The same; `None` where there are no numbers.
    pub fn write_to(&mut self, count: usize) -> Option<&mut [f32]> {
        self.own(count);
        match &mut self.memory {
            Memory::Cpu(buffer) => {
                let buffer = Arc::get_mut(buffer).expect("it was relocated if anybody shared it");
                Some(&mut buffer[..count])
            }
            Memory::Meta(_) | Memory::Cuda(_) => None,
        }
    }

    /// Makes the first `count` numbers nobody else's and f32, as whoever writes them needs them. A GPU writes
    /// bf16 where they are bf16.
    pub fn own(&mut self, count: usize) {
        if let Memory::Meta(counted) = &self.memory
            && counted.counter().is_gpu()
        {
            counted.forget();
            if self.is_shared() {
                self.relocate(count, self.capacity());
            }
            return;
        }
        if self.is_bf16 || self.is_shared() {
            self.relocate(count, self.capacity());
        }
    }

    /// The same for an optimiser, on paper: what learns is f32, and a GPU keeps the bf16 copy of it.
    pub fn own_learning(&mut self, count: usize) {
        match &self.memory {
            Memory::Meta(counted) if counted.counter().is_gpu() => {
                if self.is_bf16 {
                    *self = Self::allocate(&self.device(), count);
                } else if self.is_shared() {
                    self.relocate(count, self.capacity());
                }
            }
            Memory::Meta(_) | Memory::Cpu(_) | Memory::Cuda(_) => self.own(count),
        }
    }

    /// A product of a GPU reads the first `count` numbers as bf16, on paper.
    pub fn round_on_paper(&self, count: usize) {
        if let Memory::Meta(counted) = &self.memory {
            counted.round(count);
        }
    }

    /// Moves the first `count` numbers to f32 memory of their own with room for `capacity`.
    pub fn relocate(&mut self, count: usize, capacity: usize) {
        if let Memory::Cuda(buffer) = &self.memory {
            let copy = buffer.copied((count, capacity), self.is_bf16);
            self.memory = Memory::Cuda(Arc::new(copy));
            return;
        }
        if let Memory::Meta(counted) = &self.memory
            && counted.counter().is_gpu()
        {
            let numbers = capacity.max(count);
            let floats = if self.is_bf16 { numbers.div_ceil(2) } else { numbers };
            self.memory = Memory::Meta(Arc::new(counted.counter().take(floats)));
            return;
        }
        let mut moved = Self::allocate(&self.device(), capacity.max(count));
        if let Some(into) = moved.write_to(count) {
            into.copy_from_slice(&self.read(count));
        }
        *self = moved;
    }

    /// The first `count` numbers, each rounded to the nearest bf16.
    pub fn to_bf16(&self, count: usize) -> Self {
        if self.is_bf16 {
            return self.clone();
        }
        let memory = match &self.memory {
            Memory::Cpu(buffer) => {
                let mut rounded = buffer.pool().take(count.div_ceil(2));
                bf16::narrow(&mut rounded.halves_mut()[..count], &buffer[..count]);
                Memory::Cpu(Arc::new(rounded))
            }
            Memory::Meta(counted) => {
                Memory::Meta(Arc::new(counted.counter().take(count.div_ceil(2))))
            }
            // Memory of its own: an optimiser writes to the copy that its weight keeps.
            Memory::Cuda(buffer) => {
                let rounded = buffer.cuda().take(count.div_ceil(2));
                rounded.cuda().convert(rounded.numbers(true), buffer.numbers(false), count);
                Memory::Cuda(Arc::new(rounded))
            }
        };
        Self { memory, is_bf16: true }
    }
}

/// A tensor's numbers as f32 in main memory: where they are, or converted into a buffer.
#[derive(Debug)]
pub(crate) enum Numbers<'a> {
    Borrowed(&'a [f32]),
    Converted(Buffer),
    /// Copied from elsewhere; zeros where there are none.
    Copied(Vec<f32>),
}

const NOT_ON_A_GPU: &str = "a GPU's kernels are given its tensors";
const NO_NUMBERS: &str = "the processor's kernels are given the processor's tensors";

impl Deref for Numbers<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Borrowed(numbers) => numbers,
            Self::Converted(numbers) => numbers,
            Self::Copied(numbers) => numbers,
        }
    }
}
