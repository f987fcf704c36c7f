//! What a kernel is given: its arguments, laid out as C would, and how many threads.

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
#[derive(Clone, Debug)]
pub(super) struct Arguments {
    pub words: Vec<u64>,
    /// Where each argument begins.
    pub starts: Vec<usize>,
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
    /// None yet, with room for what most kernels take.
    pub fn new() -> Self {
        Self { words: Vec::with_capacity(48), starts: Vec::with_capacity(16) }
    }

    pub fn with(mut self, argument: &dyn Argument) -> Self {
        self.starts.push(self.words.len());
        argument.words(&mut self.words);
        self
    }
}

/// The arguments of a kernel.
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => {
        $crate::cuda::arguments::Arguments::new()$(.with(&$argument))*
    };
}
pub(super) use arguments;

/// How many threads work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub blocks: (u32, u32),
    /// Layers of blocks.
    pub depth: u32,
    pub threads: (u32, u32),
    pub shared: u32,
    /// Whether the kernel waits by itself for those in front of it, and reads nothing before that but weights.
    pub waits: bool,
}

impl Grid {
    /// Enough blocks of 256 threads for so many items, each thread doing one or more.
    pub fn over(items: u64) -> Self {
        let blocks = items.div_ceil(256).clamp(1, 132 * 16) as u32;
        Self::blocks((blocks, 1), (256, 1))
    }

    /// A warp for each of so many items, eight in a block.
    pub fn warps(items: u64) -> Self {
        Self::blocks((items.div_ceil(8).max(1) as u32, 1), (256, 1))
    }

    pub const fn blocks(blocks: (u32, u32), threads: (u32, u32)) -> Self {
        Self { blocks, depth: 1, threads, shared: 0, waits: false }
    }

    /// For a kernel that waits by itself.
    pub const fn waiting(self) -> Self {
        Self { waits: true, ..self }
    }

    /// Blocks in three directions.
    pub const fn volume((across, down, depth): (u32, u32, u32), threads: u32) -> Self {
        Self { depth, ..Self::blocks((across, down), (threads, 1)) }
    }
}
