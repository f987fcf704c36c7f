//! An opened GPU: its memory, its lanes, and what is added to them.

use super::arena::{self, Arena, STRETCH};
use super::arguments::{Argument, Arguments, Grid, Numbers, arguments};
use super::compiler::Source;
use super::driver::{
    Address, Context, DYNAMIC_SHARED, Driver, Gpu, Handle, Launch, OUT_OF_MEMORY, STATIC_SHARED,
};
use super::error::CudaError;
use super::lane::{self, Entered, LANES, Lane};
use super::products::{Product, WORKSPACE};
use super::staging::Staging;
use super::uploads::Plain;
use crate::cpu::bf16;
use crate::pool::{Usage, worker};
use crate::precision::Precision;
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// An opened GPU. Clones are the same.
#[derive(Clone, Debug)]
pub struct Cuda(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    driver: &'static Driver,
    gpu: Gpu,
    precision: Precision,
    context: Context,
    /// Bytes of shared memory that a block may have.
    block_memory: i32,
    /// The first is there from the start.
    lanes: [OnceLock<Lane<Buffer>>; LANES],
    arena: Mutex<Arena>,
    functions: RwLock<HashMap<(Source, &'static str), Context>>,
    modules: Mutex<HashMap<Source, Context>>,
    failure: OnceLock<CudaError>,
}

thread_local! {
    /// The context that this thread works with.
    static CURRENT: Cell<Handle> = const { Cell::new(std::ptr::null_mut()) };
}

impl Cuda {
    /// Opens a GPU by its number. It stays open until the process ends, so who opens it again gets the same one,
    /// unless that has failed.
    pub fn open(number: usize, precision: Precision) -> Result<Self, CudaError> {
        static OPENED: Mutex<Vec<Cuda>> = Mutex::new(Vec::new());
        let mut opened = lock(&OPENED);
        let is_it = |cuda: &&Self| {
            (cuda.0.gpu.number, cuda.0.precision) == (number, precision) && cuda.check().is_ok()
        };
        if let Some(cuda) = opened.iter().find(is_it) {
            return Ok(cuda.clone());
        }
        let cuda = Self::open_apart(number, precision)?;
        opened.push(cuda.clone());
        Ok(cuda)
    }

    /// The same with memory of its own, whoever has opened it before.
    pub fn open_apart(number: usize, precision: Precision) -> Result<Self, CudaError> {
        let driver = Driver::get()?;
        let (gpu, context) = driver.open(number)?;
        CURRENT.set(context);
        if gpu.capability < (8, 0) {
            let capability = format!("{}.{}", gpu.capability.0, gpu.capability.1);
            return Err(CudaError::TooOld { number, name: gpu.name, capability });
        }
        let first = Lane::open(driver)?;
        let lanes = [const { OnceLock::new() }; LANES];
        lanes[0].get_or_init(|| first);
        Ok(Self(Arc::new(Shared {
            driver,
            precision,
            context: Context(context),
            block_memory: driver.shared_memory(number)?,
            lanes,
            arena: Mutex::default(),
            functions: RwLock::default(),
            modules: Mutex::default(),
            failure: OnceLock::new(),
            gpu,
        })))
    }

    /// Runs work of this thread beside that of other threads (see [`lane`]). What it reads must not change meanwhile.
    pub fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        let number = 1 + worker() % (LANES - 1);
        let opened = self.0.lanes[number].get().is_some() || {
            self.with_context(|driver, _| {
                let lane = Lane::open(driver)?;
                self.0.lanes[number].get_or_init(|| lane);
                Ok(())
            });
            self.0.lanes[number].get().is_some()
        };
        if !opened {
            return work();
        }
        self.synchronise();
        let _entered = Entered::new(self.address(), number);
        let result = work();
        self.synchronise();
        result
    }

    /// The number of this thread's lane.
    fn lane_number(&self) -> usize {
        lane::current(self.address())
    }

    fn lane(&self) -> &Lane<Buffer> {
        self.0.lanes[self.lane_number()].get().expect("a thread enters a lane that is there")
    }

    /// What tells it from others.
    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Which GPU it is.
    pub fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    /// In which precision it computes.
    pub fn precision(&self) -> Precision {
        self.0.precision
    }

    /// Whether activations are bf16.
    pub(crate) fn is_bf16(&self) -> bool {
        self.0.precision == Precision::Bf16
    }

    /// The first failure, if there was one.
    pub fn check(&self) -> Result<(), CudaError> {
        self.0.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Waits until all work of this thread's lane is done.
    pub fn synchronise(&self) {
        self.with_context(|driver, stream| {
            // SAFETY: a stream of this context.
            driver.check("cuStreamSynchronize", unsafe { (driver.call.synchronise)(stream) })
        });
    }

    pub(crate) fn usage(&self) -> Usage {
        let arena = lock(&self.0.arena);
        Usage {
            live_bytes: arena.live as usize,
            peak_bytes: arena.peak as usize,
            idle_bytes: (arena.held - arena.live) as usize,
            allocations: arena.allocations,
        }
    }

    /// Takes at most so many bytes of the GPU from now on; `None`: what there is.
    pub fn limit_memory(&self, bytes: Option<u64>) {
        lock(&self.0.arena).limit = bytes;
    }

    pub(crate) fn reset_peak(&self) {
        let mut arena = lock(&self.0.arena);
        arena.peak = arena.live;
    }

    /// Whether two are the same, opened once.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Memory for this many f32, with arbitrary contents.
    pub(crate) fn take(&self, floats: usize) -> Buffer {
        let (bytes, lane) = (arena::rounded(4 * floats as u64), self.lane_number());
        let taken = lock(&self.0.arena).take(lane, bytes).map(|address| (lane, address));
        let (lane, address) = taken.or_else(|| self.grow(lane, bytes)).unwrap_or((lane, 0));
        Buffer { address, bytes, len: floats, cuda: self.clone(), lane, rounded: Mutex::default() }
    }

    /// Gives memory back to the lane that it was taken of.
    fn give_back(&self, lane: usize, address: Address, bytes: u64) {
        if lane != self.lane_number() {
            // That lane hands it out again, and does not wait for what this one still does with it.
            self.synchronise();
        }
        lock(&self.0.arena).give_back(lane, address, bytes);
    }

    /// Memory that begins with these bytes.
    pub(crate) fn take_with(&self, bytes: &[u8]) -> Buffer {
        let buffer = self.take(bytes.len().div_ceil(4));
        self.write(buffer.address, bytes);
        buffer
    }

    /// Asks the driver for more, and other lanes where there is no more. Says which lane the memory goes back to.
    fn grow(&self, lane: usize, bytes: u64) -> Option<(usize, Address)> {
        let mut arena = lock(&self.0.arena);
        for stretch in [bytes.max(STRETCH).next_multiple_of(2 << 20), bytes] {
            if arena.room().is_some_and(|room| room < stretch) {
                continue;
            }
            let mut address = 0;
            let mut status = 0;
            self.with_context(|driver, _| {
                // SAFETY: writes an address.
                status = unsafe { (driver.call.allocate)(&raw mut address, stretch as usize) };
                if status == OUT_OF_MEMORY { Ok(()) } else { driver.check("cuMemAlloc", status) }
            });
            if status == 0 && address != 0 {
                arena.add(lane, address, stretch);
                return arena.take(lane, bytes).map(|address| (lane, address));
            }
        }
        // Nobody takes or gives back meanwhile, so what is free stays so until all work is done.
        self.with_context(|driver, _| {
            // SAFETY: it has no arguments.
            driver.check("cuCtxSynchronize", unsafe { (driver.call.synchronise_all)() })
        });
        if let Some(taken) = arena.take_of_any(bytes) {
            return Some(taken);
        }
        let (held, limit) = (arena.held, arena.limit);
        let (mut free, mut total) = (0, 0);
        self.with_context(|driver, _| {
            // SAFETY: writes two numbers.
            let status = unsafe { (driver.call.free_memory)(&raw mut free, &raw mut total) };
            driver.check("cuMemGetInfo", status)
        });
        let (free, total) = (free as u64, total as u64);
        self.fail(CudaError::OutOfMemory { wanted: bytes, held, free, total, limit });
        None
    }

    /// Copies bytes to the device.
    fn write<T: Copy>(&self, into: Address, data: &[T]) {
        let (from, bytes) = (data.as_ptr(), size_of_val(data));
        if bytes > TABLE {
            // SAFETY: the destination was taken for at least so many bytes.
            return self
                .staged(|staging, way| unsafe { staging.upload(way, (into, from.cast(), bytes)) });
        }
        self.apart(|driver, stream| {
            // SAFETY: as above. The source is not page-locked, so the driver has copied it before the call returns.
            let status = unsafe { (driver.call.upload)(into, from.cast(), bytes, stream) };
            driver.check("cuMemcpyHtoDAsync", status)
        });
    }

    /// Copies numbers from the device, when all work before is done.
    pub(super) fn read<T: Copy + Default>(&self, from: Address, count: usize) -> Vec<T> {
        let mut data = vec![T::default(); count];
        let (into, bytes) = (data.as_mut_ptr(), count * size_of::<T>());
        // SAFETY: the vector has room for so many bytes, and any bytes are numbers; whoever asks for numbers of a
        // buffer asks for as many as it has at most.
        self.staged(|staging, way| unsafe { staging.download(way, (into.cast(), from, bytes)) });
        data
    }

    /// The same into memory that is there.
    fn read_into(&self, into: &mut [u8], from: Address) {
        let (into, bytes) = (into.as_mut_ptr(), into.len());
        // SAFETY: as above.
        self.staged(|staging, way| unsafe { staging.download(way, (into, from, bytes)) });
    }

    /// Copies by way of the lane's page-locked memory.
    fn staged(&self, copy: impl FnOnce(&mut Staging, (&Driver, Handle)) -> Result<(), CudaError>) {
        self.apart(|driver, stream| {
            let mut staging = lock(&self.lane().staging);
            if staging.is_none() {
                *staging = Some(Staging::new(driver)?);
            }
            staging.as_mut().map_or(Ok(()), |staging| copy(staging, (driver, stream)))
        });
    }

    /// Copies on the device.
    fn copy(&self, into: Address, from: Address, bytes: usize) {
        self.apart(|driver, stream| {
            // SAFETY: both were taken for at least so many bytes.
            driver.check("cuMemcpyDtoDAsync", unsafe {
                (driver.call.copy)(into, from, bytes, stream)
            })
        });
    }

    /// Runs something that is no kernel of ours with the device's context.
    fn apart(&self, run: impl FnOnce(&'static Driver, Handle) -> Result<(), CudaError>) {
        self.lane().overlaps.store(false, Ordering::Relaxed);
        self.with_context(run);
    }

    /// Runs something with the device's context, unless something has failed before; a failure is remembered.
    fn with_context(&self, run: impl FnOnce(&'static Driver, Handle) -> Result<(), CudaError>) {
        if self.0.failure.get().is_some() {
            return;
        }
        let Shared { driver, context, .. } = &*self.0;
        if CURRENT.get() != context.0 {
            // SAFETY: the context is retained until the process ends.
            let status = unsafe { (driver.call.set_current)(context.0) };
            if let Err(error) = driver.check("cuCtxSetCurrent", status) {
                return self.fail(error);
            }
            CURRENT.set(context.0);
        }
        if let Err(error) = run(driver, self.lane().stream.0) {
            self.fail(error);
        }
    }

    fn fail(&self, error: CudaError) {
        self.0.failure.get_or_init(|| error);
    }

    /// A product on the stream; returns whether the sums that were asked for are on their way too.
    pub(super) fn multiply(&self, product: &Product) -> bool {
        if product.rows == 0 || product.cols == 0 {
            return false;
        }
        let lane = self.lane();
        let workspace = self.lasting(&lane.workspace, WORKSPACE as usize / 4);
        let mut done = true;
        self.apart(|_, stream| {
            done = lane.products.run(product, workspace, stream)?;
            Ok(())
        });
        if !done {
            self.multiply(&Product { sums: None, ..*product });
        }
        done && product.sums.is_some()
    }

    /// Memory that stays as long as the device, for one lane.
    fn lasting(&self, place: &OnceLock<Address>, floats: usize) -> Address {
        *place.get_or_init(|| {
            let buffer = self.take(floats);
            let address = buffer.address;
            // A buffer holds its device; one that its device held would never go.
            std::mem::forget(buffer);
            address
        })
    }

    /// Counters that are zero, and that whoever counts with them leaves at zero; [`COUNTERS`] of them.
    pub(super) fn counters(&self) -> Address {
        let lane = self.lane();
        let known = lane.counters.get().is_some();
        let address = self.lasting(&lane.counters, COUNTERS);
        if !known {
            self.write(address, &vec![0_u32; COUNTERS]);
        }
        address
    }

    /// A table of plain numbers on the device.
    pub(super) fn upload<T: Plain>(&self, data: &[T]) -> Table {
        let send = |bytes: &[u8]| {
            let buffer = Arc::new(self.take(bytes.len().div_ceil(4)));
            self.write(buffer.address, bytes);
            buffer
        };
        Table(lock(&self.lane().uploads).get(T::bytes(data), send))
    }

    /// The tables by which dropout's generators jump, made and sent once.
    pub(super) fn jumps(&self, make: impl FnOnce() -> Vec<u64>) -> Table {
        Table(self.lane().jumps.get_or_init(|| self.upload(&make()).0).clone())
    }

    /// Copies numbers, from one precision to another where they differ.
    pub(crate) fn convert(&self, into: Numbers, from: Numbers, elements: usize) {
        if elements > 0 {
            let given = arguments![into, from, elements as u64];
            self.launch((Source::Elementwise, "convert"), Grid::over(elements as u64 / 4), given);
        }
    }

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
        let base: *mut u64 = arguments.words.as_mut_ptr();
        let mut pointers: Vec<*mut c_void> =
            // SAFETY: every start is inside the words.
            arguments.starts.iter().map(|start| unsafe { base.add(*start) }.cast()).collect();
        let Grid { blocks, depth, threads, shared, waits } = grid;
        let waits = waits && self.0.gpu.capability >= (9, 0);
        // Only behind another that waits: whatever writes weights, a copy or a kernel, is done before.
        let overlaps = self.lane().overlaps.swap(waits, Ordering::Relaxed) && waits;
        self.with_context(|driver, stream| {
            if overlaps {
                let sizes = [blocks.0, blocks.1, depth, threads.0, threads.1, 1, shared];
                let launch = Launch::overlapping(sizes, stream);
                let nothing = std::ptr::null_mut();
                // SAFETY: as below; the description lives until the call has returned.
                let status = unsafe {
                    (driver.call.launch_with)(
                        &raw const launch,
                        function,
                        pointers.as_mut_ptr(),
                        nothing,
                    )
                };
                return driver.check("cuLaunchKernelEx", status);
            }
            // SAFETY: the pointers are to as many arguments as the kernel takes, of its types, which the driver copies
            // now; addresses in them are of memory that is not handed out again before this work is done.
            let status = unsafe {
                (driver.call.launch)(
                    function,
                    blocks.0,
                    blocks.1,
                    depth,
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

    /// A kernel's function, compiled and loaded when it is first asked for.
    fn function(&self, source: Source, name: &'static str) -> Result<Handle, CudaError> {
        let known = self.0.functions.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = known.get(&(source, name)) {
            return Ok(function.0);
        }
        drop(known);
        let driver = self.0.driver;
        let module = {
            let mut modules = lock(&self.0.modules);
            if !modules.contains_key(&source) {
                let company = source.company();
                for (source, code) in
                    company.iter().zip(Source::codes(&company, self.0.gpu.capability)?)
                {
                    let mut module = std::ptr::null_mut();
                    // SAFETY: the code is a whole image, as the compiler wrote it.
                    let status =
                        unsafe { (driver.call.load)(&raw mut module, code.as_ptr().cast()) };
                    driver.check("cuModuleLoadData", status)?;
                    modules.insert(*source, Context(module));
                }
            }
            modules[&source]
        };
        let mut function = std::ptr::null_mut();
        let called = std::ffi::CString::new(name).expect("names have no zero");
        // SAFETY: writes a handle; the name ends in zero.
        unsafe {
            let status = (driver.call.function)(&raw mut function, module.0, called.as_ptr());
            driver.check("cuModuleGetFunction", status)?;
            let mut own = 0;
            let status = (driver.call.function_attribute)(&raw mut own, STATIC_SHARED, function);
            driver.check("cuFuncGetAttribute", status)?;
            let most = self.0.block_memory - own;
            let status = (driver.call.set_function)(function, DYNAMIC_SHARED, most);
            driver.check("cuFuncSetAttribute", status)?;
        }
        let mut known = self.0.functions.write().unwrap_or_else(PoisonError::into_inner);
        known.insert((source, name), Context(function));
        Ok(function)
    }
}

/// Bytes that the driver copies into the stream's own commands: tables of a step.
const TABLE: usize = 64 << 10;
/// Blocks of a launch that may count who has arrived.
pub(super) const COUNTERS: usize = 1 << 16;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves nothing half-changed behind these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of a GPU; it goes back when dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(super) address: Address,
    bytes: u64,
    len: usize,
    cuda: Cuda,
    /// The lane that it goes back to.
    lane: usize,
    /// The same numbers as bf16, which products read; whoever writes to the buffer forgets or renews it.
    rounded: Mutex<Option<Arc<Buffer>>>,
}

impl Buffer {
    /// Floats that there is room for.
    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn cuda(&self) -> &Cuda {
        &self.cuda
    }

    /// The first numbers as f32 in main memory.
    pub fn to_host(&self, count: usize, half: bool) -> Vec<f32> {
        if !half {
            return self.cuda.read(self.address, count);
        }
        self.to_halves(count)
            .into_iter()
            .map(|bits| f32::from_bits(u32::from(bits) << 16))
            .collect()
    }

    /// The first numbers in main memory, where they are bf16.
    pub fn to_halves(&self, count: usize) -> Vec<u16> {
        self.cuda.read(self.address, count)
    }

    /// All of its bytes in main memory.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.cuda.read(self.address, 4 * self.len)
    }

    /// Overwrites the first numbers.
    pub fn overwrite(&mut self, data: &[f32], half: bool) {
        self.forget();
        if !half {
            return self.cuda.write(self.address, data);
        }
        let mut rounded = vec![0_u16; data.len()];
        bf16::narrow(&mut rounded, data);
        self.cuda.write(self.address, &rounded);
    }

    /// Overwrites the first numbers, which are f32, with these bytes.
    pub fn overwrite_bytes(&mut self, bytes: &[u8]) {
        self.forget();
        self.cuda.write(self.address, bytes);
    }

    /// Copies so many of its first bytes to main memory.
    pub fn copy_bytes_to(&self, into: &mut [u8]) {
        self.cuda.read_into(into, self.address);
    }

    /// A copy of the first numbers with room for `capacity` of the same precision.
    pub fn copied(&self, (count, capacity): (usize, usize), half: bool) -> Self {
        let floats = |numbers: usize| if half { numbers.div_ceil(2) } else { numbers };
        let copy = self.cuda.take(floats(capacity.max(count)));
        self.cuda.copy(copy.address, self.address, if half { 2 * count } else { 4 * count });
        copy
    }

    /// From now on its numbers are others.
    pub fn forget(&mut self) {
        *self.rounded.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn numbers(&self, half: bool) -> Numbers {
        Numbers { address: self.address, half }
    }

    /// The first `count` f32 as bf16, converted once.
    pub(crate) fn rounded(&self, count: usize) -> Arc<Self> {
        let mut kept = lock(&self.rounded);
        if let Some(rounded) = &*kept {
            return rounded.clone();
        }
        let rounded = Arc::new(self.cuda.take(count.div_ceil(2)));
        self.cuda.convert(rounded.numbers(true), self.numbers(false), count);
        if self.lane != self.cuda.lane_number() {
            // Other lanes share these numbers, and do not wait for this one's work.
            self.cuda.synchronise();
        }
        *kept = Some(rounded.clone());
        rounded
    }

    /// The address of the bf16 copy; zero where there is none.
    pub(crate) fn kept_rounded(&self) -> Address {
        lock(&self.rounded).as_ref().map_or(0, |rounded| rounded.address)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.address != 0 {
            self.cuda.give_back(self.lane, self.address, self.bytes);
        }
    }
}

/// A table on the device; it stays until the value is dropped.
#[derive(Clone, Debug)]
pub(super) struct Table(Arc<Buffer>);

impl Table {
    pub fn address(&self) -> Address {
        self.0.address
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
