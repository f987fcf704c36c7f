//! Page-locked memory that large copies go through.
//!
//! From and to ordinary memory the driver copies by itself, piece by piece. From and to page-locked memory the GPU
//! copies, and what is left to the processor is a copy that every thread makes for itself
//! (`docs/performance.md` has what that saved).

use super::driver::{Address, Driver, Handle};
use super::error::CudaError;
use std::ffi::c_void;

/// Bytes of each half: one is filled while the other is emptied.
const HALF: usize = 2 << 20;

/// Two halves of page-locked memory, which stay until the process ends.
#[derive(Debug)]
pub(super) struct Staging([*mut u8; 2]);

// SAFETY: the memory belongs to nobody else.
unsafe impl Send for Staging {}

impl Staging {
    /// Memory that the GPU of the current context reaches by itself.
    pub fn new(driver: &Driver) -> Result<Self, CudaError> {
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: writes an address; no flag is set.
        let status = unsafe { (driver.call.page_locked)(&raw mut start, 2 * HALF, 0) };
        driver.check("cuMemHostAlloc", status)?;
        let start: *mut u8 = start.cast();
        // SAFETY: inside of what was allocated.
        Ok(Self([start, unsafe { start.add(HALF) }]))
    }

    /// Copies from the device when all work before on the stream is done.
    ///
    /// # Safety
    /// Both addresses are of at least so many bytes.
    pub unsafe fn download(
        &mut self,
        (driver, stream): (&Driver, Handle),
        (into, from, bytes): (*mut u8, Address, usize),
    ) -> Result<(), CudaError> {
        let begin = |number: usize| {
            let (start, length) = piece(number, bytes);
            // SAFETY: the half is as long as a piece, the piece inside of what the caller promises, and nobody reads
            // the half before the copy is waited for.
            let status = unsafe {
                let half = self.0[number % 2].cast();
                (driver.call.download)(half, from + start as Address, length, stream)
            };
            driver.check("cuMemcpyDtoHAsync", status)
        };
        let pieces = bytes.div_ceil(HALF);
        if pieces > 0 {
            begin(0)?;
        }
        for number in 0..pieces {
            synchronise(driver, stream)?;
            if number + 1 < pieces {
                begin(number + 1)?;
            }
            let (start, length) = piece(number, bytes);
            // SAFETY: as above; the copy into this half is done, and the next one is into the other half.
            unsafe { into.add(start).copy_from_nonoverlapping(self.0[number % 2], length) };
        }
        Ok(())
    }

    /// Copies to the device, behind all work on the stream, and waits for it.
    ///
    /// # Safety
    /// Both addresses are of at least so many bytes.
    pub unsafe fn upload(
        &mut self,
        (driver, stream): (&Driver, Handle),
        (into, from, bytes): (Address, *const u8, usize),
    ) -> Result<(), CudaError> {
        for number in 0..bytes.div_ceil(HALF) {
            if number >= 2 {
                synchronise(driver, stream)?;
            }
            let (start, length) = piece(number, bytes);
            let half = self.0[number % 2];
            // SAFETY: the half is as long as a piece, the piece inside of what the caller promises, and no copy from this
            // half is under way.
            let status = unsafe {
                half.copy_from_nonoverlapping(from.add(start), length);
                (driver.call.upload)(into + start as Address, half.cast(), length, stream)
            };
            driver.check("cuMemcpyHtoDAsync", status)?;
        }
        synchronise(driver, stream)
    }
}

/// Where a piece of so many bytes starts, and its length.
fn piece(number: usize, bytes: usize) -> (usize, usize) {
    let start = number * HALF;
    (start, HALF.min(bytes - start))
}

fn synchronise(driver: &Driver, stream: Handle) -> Result<(), CudaError> {
    // SAFETY: a stream of the current context.
    driver.check("cuStreamSynchronize", unsafe { (driver.call.synchronise)(stream) })
}
