//! The driver: devices, memory, streams, modules.

use super::error::CudaError;
use super::library::{Library, Wanted, functions};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

const LIBRARY: Wanted = Wanted {
    library: "libcuda.so.1",
    names: &["libcuda.so.1"],
    needs: "it comes with NVIDIA's driver",
};

/// No memory is left.
pub(super) const OUT_OF_MEMORY: i32 = 2;
const MULTIPROCESSORS: c_int = 16;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
/// The most shared memory of a block, when it asks.
const SHARED: c_int = 97;
/// How much shared memory a function may ask for.
pub(super) const DYNAMIC_SHARED: c_int = 8;
/// Bytes of shared memory that a function has anyway.
pub(super) const STATIC_SHARED: c_int = 1;

pub(super) type Address = u64;
pub(super) type Handle = *mut c_void;

/// A handle of the driver, which any thread may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context(pub Handle);

// SAFETY: the driver's contexts, streams, modules and functions may be used by every thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// How a kernel is launched, as the driver reads it.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Launch {
    /// Blocks in three directions, threads in three, bytes of shared memory.
    sizes: [u32; 7],
    stream: Handle,
    attributes: *const Attribute,
    count: u32,
}

/// Something that is asked of a launch.
#[repr(C)]
#[derive(Debug)]
struct Attribute {
    id: u32,
    unused: u32,
    value: [u64; 8],
}

/// It may begin before the kernel in front of it has ended.
static OVERLAPPING: Attribute = Attribute { id: 6, unused: 0, value: [1, 0, 0, 0, 0, 0, 0, 0] };

impl Launch {
    /// A kernel that waits by itself for those in front of it.
    pub const fn overlapping(sizes: [u32; 7], stream: Handle) -> Self {
        Self { sizes, stream, attributes: &raw const OVERLAPPING, count: 1 }
    }
}

functions! {
    /// What is called.
    Functions {
        init: c"cuInit" (c_uint);
        version: c"cuDriverGetVersion" (*mut c_int);
        count: c"cuDeviceGetCount" (*mut c_int);
        device: c"cuDeviceGet" (*mut c_int, c_int);
        name: c"cuDeviceGetName" (*mut c_char, c_int, c_int);
        attribute: c"cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
        retain: c"cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
        set_current: c"cuCtxSetCurrent" (Handle);
        free_memory: c"cuMemGetInfo_v2" (*mut usize, *mut usize);
        allocate: c"cuMemAlloc_v2" (*mut Address, usize);
        page_locked: c"cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
        upload: c"cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, Handle);
        download: c"cuMemcpyDtoHAsync_v2" (*mut c_void, Address, usize, Handle);
        copy: c"cuMemcpyDtoDAsync_v2" (Address, Address, usize, Handle);
        stream: c"cuStreamCreate" (*mut Handle, c_uint);
        synchronise: c"cuStreamSynchronize" (Handle);
        synchronise_all: c"cuCtxSynchronize" ();
        load: c"cuModuleLoadData" (*mut Handle, *const c_void);
        function: c"cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
        launch_with: c"cuLaunchKernelEx" (*const Launch, Handle, *mut *mut c_void, *mut *mut c_void);
        set_function: c"cuFuncSetAttribute" (Handle, c_int, c_int);
        function_attribute: c"cuFuncGetAttribute" (*mut c_int, c_int, Handle);
        launch: c"cuLaunchKernel" (
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle,
            *mut *mut c_void, *mut *mut c_void,
        );
        error_name: c"cuGetErrorName" (c_int, *mut *const c_char);
        error_text: c"cuGetErrorString" (c_int, *mut *const c_char);
    }
}

/// The driver, loaded once.
#[derive(Debug)]
pub(super) struct Driver {
    pub call: Functions,
}

/// A GPU that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its number.
    pub number: usize,
    /// What NVIDIA calls it.
    pub name: String,
    /// Bytes that it has.
    pub memory: u64,
    /// Bytes that nobody holds.
    pub free: u64,
    /// Compute capability: what its instructions are.
    pub capability: (u32, u32),
    /// Its processors.
    pub multiprocessors: u32,
    /// The newest version of CUDA that its driver runs.
    pub driver: (u32, u32),
}

impl Driver {
    /// The driver, or why there is none.
    pub fn get() -> Result<&'static Self, CudaError> {
        static DRIVER: OnceLock<Result<Driver, CudaError>> = OnceLock::new();
        let open = || {
            let call = Functions::of(&Library::open(LIBRARY)?)?;
            let driver = Self { call };
            // SAFETY: the first call of all; its flags are zero by definition.
            driver.check("cuInit", unsafe { (driver.call.init)(0) })?;
            Ok(driver)
        };
        DRIVER.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    /// Turns a status into a result.
    pub fn check(&self, call: &'static str, status: i32) -> Result<(), CudaError> {
        if status == 0 {
            Ok(())
        } else {
            Err(CudaError::Call { call, reason: self.reason(status) })
        }
    }

    fn reason(&self, status: i32) -> String {
        let mut said = [std::ptr::null(); 2];
        // SAFETY: both write the address of a constant string, or nothing.
        unsafe {
            (self.call.error_name)(status, &raw mut said[0]);
            (self.call.error_text)(status, &raw mut said[1]);
        }
        let said = said.map(|text| {
            if text.is_null() {
                return format!("status {status}");
            }
            // SAFETY: a constant string of the driver.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        });
        said.join(": ")
    }

    pub fn count(&self) -> Result<usize, CudaError> {
        let mut count = 0;
        // SAFETY: writes one number.
        self.check("cuDeviceGetCount", unsafe { (self.call.count)(&raw mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// A GPU by number, with its context, which is made the thread's.
    pub fn open(&self, number: usize) -> Result<(Gpu, Handle), CudaError> {
        let count = self.count()?;
        if number >= count {
            return Err(CudaError::NoDevice { number, count });
        }
        let (mut device, mut context, mut bytes) = (0, std::ptr::null_mut(), [0_usize; 2]);
        let mut name = [0 as c_char; 256];
        let mut version = 0;
        // SAFETY: each writes to what it is given, which is as long as it says; the device is one of those counted.
        unsafe {
            self.check("cuDeviceGet", (self.call.device)(&raw mut device, signed(number)))?;
            self.check("cuDeviceGetName", (self.call.name)(name.as_mut_ptr(), 255, device))?;
            self.check("cuDevicePrimaryCtxRetain", (self.call.retain)(&raw mut context, device))?;
            self.check("cuCtxSetCurrent", (self.call.set_current)(context))?;
            let [free, total] = &mut bytes;
            self.check("cuMemGetInfo", (self.call.free_memory)(free, total))?;
            self.check("cuDriverGetVersion", (self.call.version)(&raw mut version))?;
        }
        // SAFETY: the name ends in zero: the driver was told one byte less than there is.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let attribute = |which| self.attribute(device, which);
        let gpu = Gpu {
            number,
            name,
            memory: bytes[1] as u64,
            free: bytes[0] as u64,
            capability: (attribute(MAJOR)?, attribute(MINOR)?),
            multiprocessors: attribute(MULTIPROCESSORS)?,
            driver: (version as u32 / 1000, version as u32 % 1000 / 10),
        };
        Ok((gpu, context))
    }

    /// Bytes of shared memory that a block of this GPU may have.
    pub fn shared_memory(&self, number: usize) -> Result<i32, CudaError> {
        self.signed_attribute(signed(number), SHARED)
    }

    fn attribute(&self, device: c_int, which: c_int) -> Result<u32, CudaError> {
        Ok(u32::try_from(self.signed_attribute(device, which)?).unwrap_or(0))
    }

    fn signed_attribute(&self, device: c_int, which: c_int) -> Result<c_int, CudaError> {
        let mut value = 0;
        // SAFETY: writes one number.
        let status = unsafe { (self.call.attribute)(&raw mut value, which, device) };
        self.check("cuDeviceGetAttribute", status)?;
        Ok(value)
    }
}

/// A device's number as the driver counts.
fn signed(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

/// The GPUs that are there; none where there is no driver.
pub fn gpus() -> Result<Vec<Gpu>, CudaError> {
    let driver = match Driver::get() {
        Ok(driver) => driver,
        Err(CudaError::Missing { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    (0..driver.count()?).map(|number| Ok(driver.open(number)?.0)).collect()
}
