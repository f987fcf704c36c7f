//! Where a tensor's numbers are, and who shares them.
//!
//! This file decides by device where memory is, [`kernels`](crate::kernels) decides who computes, and no
//! other file asks: a second device adds a variant, and the compiler lists what these two must learn. Results are always f32;
//! weights that do not train may be stored as bf16 or in quantised blocks, which kernels read as f32.

use crate::cpu::bf16;
use crate::cpu::matmul::{Mat, Stored};
use crate::cpu::quantised::View;
use crate::cuda::{self, Cuda, Plain};
use crate::device::Device;
use crate::pool::{Buffer, Counted};
use crate::quantisation::Shape;
use crate::quantised_matrix::QuantisedMatrix;
use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

/// Shared memory on a device; there may be room for more numbers than its tensor has.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    memory: Memory,
    numbers: Stores,
}

/// What the memory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stores {
    F32,
    /// Two in the place of each f32.
    Bf16,
    /// Integers, and scales behind them.
    Quantised(Shape),
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
        Self { memory, numbers: Stores::F32 }
    }

    /// Room for this many numbers in the precision that a device has activations in.
    pub fn allocate_activation(device: &Device, elements: usize) -> Self {
        if device.has_bf16_activations() {
            Self { numbers: Stores::Bf16, ..Self::allocate(device, elements.div_ceil(2)) }
        } else {
            Self::allocate(device, elements)
        }
    }

    /// The GPU that the numbers are on, if they are on one.
    pub fn cuda(&self) -> Option<&Cuda> {
        match &self.memory {
            Memory::Cuda(buffer) => Some(buffer.cuda()),
            Memory::Cpu(_) | Memory::Meta(_) => None,
        }
    }

    /// What a GPU's kernels read. Those of a quantised matrix are read in other ways.
    pub fn numbers(&self) -> cuda::Numbers {
        assert!(self.quantised().is_none(), "{UNPACKED_FIRST}");
        self.cuda_buffer().numbers(self.is_bf16())
    }

    /// The address of a quantised matrix on a GPU.
    pub fn quantised_address(&self) -> u64 {
        self.cuda_buffer().numbers(false).address
    }

    /// What a GPU's kernels write: shared numbers are copied first.
    pub fn numbers_mut(&mut self, count: usize) -> cuda::Numbers {
        if self.is_shared() {
            self.relocate(count, self.capacity());
        }
        assert!(self.quantised().is_none(), "{UNPACKED_FIRST}");
        let is_bf16 = self.is_bf16();
        let buffer = self.owned_cuda_buffer();
        buffer.forget();
        buffer.numbers(is_bf16)
    }

    /// The same for a kernel that writes f32 and, where products have read them as bf16, those too.
    pub fn numbers_kept(&mut self, count: usize) -> (cuda::Numbers, u64) {
        if self.is_bf16() {
            let wide = self.cuda_buffer().cuda().take(count);
            wide.cuda().convert(wide.numbers(false), self.numbers(), count);
            *self = Self { memory: Memory::Cuda(Arc::new(wide)), numbers: Stores::F32 };
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
        let half = self.is_bf16();
        self.owned_cuda_buffer().overwrite(data, half);
    }

    /// The same with bytes of f32, where there are f32 on a GPU.
    pub fn overwrite_bytes(&mut self, bytes: &[u8]) {
        self.numbers_mut(bytes.len() / 4);
        self.owned_cuda_buffer().overwrite_bytes(bytes);
    }

    /// Copies as many bytes of f32 to main memory, if there are f32 on a GPU.
    pub fn copy_bytes_to(&self, into: &mut [u8]) -> bool {
        match &self.memory {
            Memory::Cuda(buffer) if self.numbers == Stores::F32 => {
                buffer.copy_bytes_to(into);
                true
            }
            Memory::Cuda(_) | Memory::Cpu(_) | Memory::Meta(_) => false,
        }
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
        match self.numbers {
            Stores::F32 => floats,
            Stores::Bf16 => 2 * floats,
            Stores::Quantised(shape) => shape.rows * shape.cols,
        }
    }

    pub fn is_bf16(&self) -> bool {
        self.numbers == Stores::Bf16
    }

    /// How it is quantised, if it is.
    pub fn quantised(&self) -> Option<Shape> {
        match self.numbers {
            Stores::F32 | Stores::Bf16 => None,
            Stores::Quantised(shape) => Some(shape),
        }
    }

    /// A quantised matrix on a device.
    pub fn of_quantised(device: &Device, matrix: &QuantisedMatrix) -> Self {
        let (shape, floats) = (matrix.shape, matrix.shape.floats());
        let fill = |bytes: &mut [u8]| {
            let (quants, scales) = bytes.split_at_mut(shape.quant_bytes());
            quants.copy_from_slice(&matrix.quants);
            for (into, scale) in scales.as_chunks_mut().0.iter_mut().zip(&matrix.scales) {
                *into = scale.to_ne_bytes();
            }
        };
        let memory = match device {
            Device::Cpu(pool) => {
                let mut buffer = pool.take(floats);
                fill(buffer.bytes_mut());
                Memory::Cpu(Arc::new(buffer))
            }
            Device::Meta(counter) => Memory::Meta(Arc::new(counter.take(floats))),
            Device::Cuda(cuda) => {
                let mut bytes = vec![0; floats * size_of::<f32>()];
                fill(&mut bytes);
                Memory::Cuda(Arc::new(cuda.take_with(&bytes)))
            }
        };
        Self { memory, numbers: Stores::Quantised(shape) }
    }

    /// Room for a quantised matrix on a device that has no numbers.
    pub fn quantised_on_paper(device: &Device, shape: Shape) -> Self {
        Self { numbers: Stores::Quantised(shape), ..Self::allocate(device, shape.floats()) }
    }

    /// The same for so many bf16.
    pub fn bf16_on_paper(device: &Device, count: usize) -> Self {
        Self { numbers: Stores::Bf16, ..Self::allocate(device, count.div_ceil(2)) }
    }

    /// The quantised matrix, copied to main memory.
    pub fn to_quantised(&self) -> Option<QuantisedMatrix> {
        let shape = self.quantised()?;
        let made = |bytes: &[u8]| {
            let (quants, scales) = bytes.split_at(shape.quant_bytes());
            let scales = scales.as_chunks().0.iter().map(|two| u16::from_ne_bytes(*two));
            QuantisedMatrix {
                shape,
                quants: quants.to_vec(),
                scales: scales.take(shape.scales()).collect(),
            }
        };
        match &self.memory {
            Memory::Cpu(buffer) => Some(made(buffer.bytes())),
            Memory::Meta(_) => None,
            Memory::Cuda(buffer) => Some(made(&buffer.to_bytes())),
        }
    }

    /// Numbers that are bf16 already, from main memory.
    pub fn of_halves(device: &Device, halves: &[u16]) -> Self {
        let floats = halves.len().div_ceil(2);
        let memory = match device {
            Device::Cpu(pool) => {
                let mut buffer = pool.take(floats);
                buffer.halves_mut()[..halves.len()].copy_from_slice(halves);
                Memory::Cpu(Arc::new(buffer))
            }
            Device::Meta(counter) => Memory::Meta(Arc::new(counter.take(floats))),
            Device::Cuda(cuda) => Memory::Cuda(Arc::new(cuda.take_with(u16::bytes(halves)))),
        };
        Self { memory, numbers: Stores::Bf16 }
    }

    /// The first `count` numbers in main memory, where they are bf16.
    pub fn to_halves(&self, count: usize) -> Option<Cow<'_, [u16]>> {
        self.is_bf16().then(|| match &self.memory {
            Memory::Cpu(buffer) => Cow::Borrowed(&buffer.halves()[..count]),
            Memory::Meta(_) => Cow::Owned(vec![0; count]),
            Memory::Cuda(buffer) => Cow::Owned(buffer.to_halves(count)),
        })
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
        let turns_f32 = self.is_bf16() && self.cuda().is_none();
        let turns_f32 = turns_f32 || self.quantised().is_some();
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
            Memory::Cpu(buffer) => match self.numbers {
                Stores::F32 => Numbers::Borrowed(&buffer[..count]),
                Stores::Bf16 => {
                    let mut numbers = buffer.pool().take(count);
                    bf16::widen(&mut numbers, &buffer.halves()[..count]);
                    Numbers::Converted(numbers)
                }
                Stores::Quantised(shape) => {
                    let mut numbers = buffer.pool().take(count);
                    view(buffer, shape).read(&mut numbers);
                    Numbers::Converted(numbers)
                }
            },
            Memory::Meta(_) => Numbers::Copied(vec![0.0; count]),
            Memory::Cuda(buffer) => match self.to_quantised() {
                Some(matrix) => {
                    let mut numbers = matrix.to_f32();
                    numbers.truncate(count);
                    Numbers::Copied(numbers)
                }
                None => Numbers::Copied(buffer.to_host(count, self.is_bf16())),
            },
        }
    }

    /// The first numbers as a matrix of the precision that they have.
    pub fn stored(&self, rows: usize, cols: usize) -> Stored<'_> {
        let (buffer, count) = (self.buffer(), rows * cols);
        match self.numbers {
            Stores::F32 => Stored::f32(Mat::new(&buffer[..count], rows, cols)),
            Stores::Bf16 => Stored::bf16(&buffer.halves()[..count], rows, cols),
            Stores::Quantised(shape) => Stored::quantised(view(buffer, shape)),
        }
    }

    /// Some rows of a matrix that is not f32, as f32, one after another; `None` where rows can be read in place.
    pub fn read_rows(&self, cols: usize, rows: &[u32]) -> Option<Buffer> {
        let buffer = self.buffer();
        if self.numbers == Stores::F32 {
            return None;
        }
        let mut numbers = buffer.pool().take(rows.len() * cols);
        for (row, into) in rows.iter().zip(numbers.chunks_exact_mut(cols.max(1))) {
            let row = *row as usize;
            match self.numbers {
                Stores::F32 => {}
                Stores::Bf16 => bf16::widen(into, &buffer.halves()[row * cols..][..cols]),
                Stores::Quantised(shape) => view(buffer, shape).read_row(row, 0..cols, into),
            }
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
        if self.numbers != Stores::F32 || self.is_shared() {
            self.relocate(count, self.capacity());
        }
    }

    /// The same for an optimiser, on paper: what learns is f32, and a GPU keeps the bf16 copy of it.
    pub fn own_learning(&mut self, count: usize) {
        match &self.memory {
            Memory::Meta(counted) if counted.counter().is_gpu() => {
                if self.numbers != Stores::F32 {
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
        if let (Some(matrix), Some(cuda)) = (self.to_quantised(), self.cuda()) {
            // Nothing that learns is quantised, so this is for whoever writes over it all.
            let mut wide = cuda.take(capacity.max(count));
            wide.overwrite(&matrix.to_f32()[..count], false);
            *self = Self { memory: Memory::Cuda(Arc::new(wide)), numbers: Stores::F32 };
            return;
        }
        if let Memory::Cuda(buffer) = &self.memory {
            let copy = buffer.copied((count, capacity), self.is_bf16());
            self.memory = Memory::Cuda(Arc::new(copy));
            return;
        }
        if let Memory::Meta(counted) = &self.memory
            && counted.counter().is_gpu()
            && self.quantised().is_none()
        {
            let numbers = capacity.max(count);
            let floats = if self.is_bf16() { numbers.div_ceil(2) } else { numbers };
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
        match self.numbers {
            Stores::F32 => {}
            Stores::Bf16 => return self.clone(),
            Stores::Quantised(_) => {
                let mut wide = self.clone();
                wide.relocate(count, count);
                return wide.to_bf16(count);
            }
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
        Self { memory, numbers: Stores::Bf16 }
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

/// The matrix over a buffer that has its integers and scales.
fn view(buffer: &Buffer, shape: Shape) -> View<'_> {
    View::of(shape, buffer.bytes(), &buffer.halves()[shape.quant_bytes() / 2..])
}

const UNPACKED_FIRST: &str = "a quantised matrix is unpacked before a kernel reads it";
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
