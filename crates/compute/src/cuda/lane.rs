//! What works on a GPU side by side: a stream, and what its work must not share with others'.
//!
//! The first lane is everybody's. A thread that works [aside](super::Cuda::aside) has a lane of its own, by its worker's
//! number: what it asks for is computed beside the others' work. It reads what the first lane has made before it
//! began, and others read what it has made once it has ended; at both ends the processor waits.

use super::driver::{Address, Context, Driver, Handle};
use super::error::CudaError;
use super::products::Products;
use super::staging::Staging;
use super::uploads::Uploads;
use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

/// The lanes that there may be; whoever comes later shares one with others.
pub(super) const LANES: usize = 33;

thread_local! {
    /// The GPU (by its address) and the lane that this thread works in; the first lane anywhere else.
    static CURRENT: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// A stream and its own tools; `B` is the device's memory.
#[derive(Debug)]
pub(super) struct Lane<B> {
    pub stream: Context,
    pub products: Products,
    pub uploads: Mutex<Uploads<B>>,
    pub staging: Mutex<Option<Staging>>,
    pub workspace: OnceLock<Address>,
    pub counters: OnceLock<Address>,
    pub jumps: OnceLock<Arc<B>>,
    /// Whether the last work was a kernel that waits by itself for those in front of it.
    pub overlaps: AtomicBool,
}

impl<B> Lane<B> {
    /// A lane on the device of the current context.
    pub fn open(driver: &Driver) -> Result<Self, CudaError> {
        let mut stream: Handle = std::ptr::null_mut();
        // SAFETY: writes a handle; a stream that waits for nobody else's work (1).
        driver.check("cuStreamCreate", unsafe { (driver.call.stream)(&raw mut stream, 1) })?;
        Ok(Self {
            stream: Context(stream),
            products: Products::open()?,
            uploads: Mutex::default(),
            staging: Mutex::default(),
            workspace: OnceLock::new(),
            counters: OnceLock::new(),
            jumps: OnceLock::new(),
            overlaps: AtomicBool::new(false),
        })
    }
}

/// The lane of this thread on a GPU.
pub(super) fn current(gpu: usize) -> usize {
    let (at, lane) = CURRENT.get();
    if at == gpu { lane } else { 0 }
}

/// Makes a lane the thread's until the value is dropped.
pub(super) struct Entered((usize, usize));

impl Entered {
    pub fn new(gpu: usize, lane: usize) -> Self {
        Self(CURRENT.replace((gpu, lane)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}
