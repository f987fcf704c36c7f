//! Kernels with their arguments, added to the stream.

use super::Cuda;
use super::compiler::Source;
use super::uploads::Table;
use std::ffi::c_void;

/// A tensor as kernels see it; no tensor at all where the address is zero.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    pub address: u64,
    pub half: bool,
}

impl Numbers {
    /// The same from an element on.
    pub fn from(self, element: usize) -> Self {
        let bytes = if self.half { 2 } else { 4 } * element as u64;
        Self { address: self.address + bytes, ..self }
    }
}

/// The arguments of a kernel, in order, laid out as C would.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    bytes: Vec<u64>,
    starts: Vec<usize>,
}

/// Something that a kernel takes.
pub(super) trait Argument {
    fn words(&self, into: &mut Vec<u64>);
}

impl Argument for Numbers {
    fn words(&self, into: &mut Vec<u64>) {
        into.extend([self.address, u64::from(self.half)]);
    }
}

impl Argument for Option<Numbers> {
    fn words(&self, into: &mut Vec<u64>) {
        self.unwrap_or_default().words(into);
    }
}

impl Argument for &Table {
    fn words(&self, into: &mut Vec<u64>) {
        into.push(self.address());
    }
}

impl Argument for Option<&Table> {
    fn words(&self, into: &mut Vec<u64>) {
        into.push(self.map_or(0, Table::address));
    }
}

impl Argument for u64 {
    fn words(&self, into: &mut Vec<u64>) {
        into.push(*self);
    }
}

impl Argument for u32 {
    fn words(&self, into: &mut Vec<u64>) {
        into.push(u64::from(*self));
    }
}

impl Argument for f32 {
    fn words(&self, into: &mut Vec<u64>) {
        into.push(u64::from(self.to_bits()));
    }
}

/// A structure, already laid out in words of eight bytes.
#[derive(Clone, Debug)]
pub(super) struct Words(pub Vec<u64>);

impl Argument for Words {
    fn words(&self, into: &mut Vec<u64>) {
        into.extend(&self.0);
    }
}

impl Arguments {
    pub fn with(mut self, argument: &dyn Argument) -> Self {
        self.starts.push(self.bytes.len());
        argument.words(&mut self.bytes);
        self
    }
}

/// The arguments of a kernel.
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => {
        $crate::cuda::launch::Arguments::default()$(.with(&$argument))*
    };
}
pub(super) use arguments;

/// How many threads work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub blocks: (u32, u32),
    pub threads: (u32, u32),
    pub shared: u32,
}

impl Grid {
    /// Enough blocks of 256 threads for so many items, each thread doing one or more.
    pub fn over(items: u64) -> Self {
        let blocks = items.div_ceil(256).clamp(1, 132 * 16) as u32;
        Self { blocks: (blocks, 1), threads: (256, 1), shared: 0 }
    }

    /// A warp for each of so many items, eight in a block.
    pub fn warps(items: u64) -> Self {
        Self { blocks: (items.div_ceil(8).max(1) as u32, 1), threads: (256, 1), shared: 0 }
    }

    pub const fn blocks(blocks: (u32, u32), threads: (u32, u32)) -> Self {
        Self { blocks, threads, shared: 0 }
    }
}

impl Cuda {
    /// Adds a kernel to the stream.
    pub(super) fn launch(
        &self,
        (source, name): (Source, &'static str),
        grid: Grid,
        mut arguments: Arguments,
    ) {
        let function = match self.function(source, name) {
            Ok(function) => function,
            Err(error) => return self.fail(error),
        };
        let base: *mut u64 = arguments.bytes.as_mut_ptr();
        let mut pointers: Vec<*mut c_void> =
            // SAFETY: every start is inside the words.
            arguments.starts.iter().map(|start| unsafe { base.add(*start) }.cast()).collect();
        let Grid { blocks, threads, shared } = grid;
        self.with_context(|driver, stream| {
            // SAFETY: the pointers are to as many arguments as the kernel takes, of its types, which the driver copies
            // now; addresses in them are of memory that is not handed out again before this work is done.
            let status = unsafe {
                (driver.call.launch)(
                    function,
                    blocks.0,
                    blocks.1,
                    1,
                    threads.0,
                    threads.1,
                    1,
                    shared,
                    stream,
                    pointers.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            };
            driver.check("cuLaunchKernel", status)
        });
    }
}
