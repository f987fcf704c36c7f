//! Finding NVIDIA's libraries while the program runs: nothing of CUDA is needed to build it.
//!
//! A library is looked for where the loader looks, in `CUDA_HOME`, and in the packages that `pip` installs
//! (`nvidia/*/lib` below a Python's folder of packages).

use super::error::CudaError;
use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};

/// A library that stays loaded until the process ends.
#[derive(Debug)]
pub(super) struct Library {
    handle: *mut c_void,
    name: String,
}

/// What to look for, by which names, and what to install where there is nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub library: &'static str,
    pub names: &'static [&'static str],
    pub needs: &'static str,
}

impl Library {
    pub fn open(wanted: Wanted) -> Result<Self, CudaError> {
        for name in wanted.names {
            if let Some(handle) = open(name) {
                return Ok(Self { handle, name: (*name).to_owned() });
            }
        }
        let folders = folders();
        for folder in &folders {
            for name in wanted.names {
                let path = folder.join(name);
                if !path.is_file() {
                    continue;
                }
                // The compiler loads its own tables by name alone.
                for beside in beside(folder, "libnvrtc-builtins") {
                    open(&beside.to_string_lossy());
                }
                if let Some(handle) = open(&path.to_string_lossy()) {
                    return Ok(Self { handle, name: path.display().to_string() });
                }
            }
        }
        let Wanted { library, needs, .. } = wanted;
        let looked_in = std::iter::once("the loader's path".to_owned())
            .chain(folders.iter().map(|folder| folder.display().to_string()))
            .collect();
        Err(CudaError::Missing { library, needs, looked_in })
    }

    /// The address of a function.
    pub fn symbol(&self, function: &CStr) -> Result<*mut c_void, CudaError> {
        let address = symbol(self.handle, function);
        if address.is_null() {
            let function = function.to_string_lossy().into_owned();
            return Err(CudaError::Function { library: self.name.clone(), function });
        }
        Ok(address)
    }
}

#[cfg(target_os = "linux")]
fn open(name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name is a string that ends in zero; loading one of these libraries runs its own set-up only.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    (!handle.is_null()).then_some(handle)
}

#[cfg(target_os = "linux")]
fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the handle is of a loaded library, which is never unloaded.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

#[cfg(not(target_os = "linux"))]
fn open(name: &str) -> Option<*mut c_void> {
    drop(CString::new(name));
    None
}

#[cfg(not(target_os = "linux"))]
fn symbol(_: *mut c_void, _: &CStr) -> *mut c_void {
    std::ptr::null_mut()
}

/// Folders beside the loader's.
fn folders() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(home) = std::env::var_os(variable) {
            found.extend(
                ["lib64", "lib", "targets/x86_64-linux/lib"].map(|at| Path::new(&home).join(at)),
            );
        }
    }
    found.push(PathBuf::from("/usr/local/cuda/lib64"));
    let mut prefixes: Vec<PathBuf> = Vec::new();
    prefixes.extend(std::env::var_os("VIRTUAL_ENV").map(PathBuf::from));
    prefixes.extend(std::env::var_os("CONDA_PREFIX").map(PathBuf::from));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let with_python = |folder: &PathBuf| folder.join("python3").exists();
    let bins = std::env::split_paths(&path).filter(with_python);
    prefixes.extend(bins.filter_map(|bin| Some(bin.parent()?.to_owned())));
    prefixes.extend(std::env::var_os("HOME").map(|home| Path::new(&home).join(".local")));
    prefixes.extend(["/usr", "/usr/local"].map(PathBuf::from));
    for prefix in prefixes {
        for python in beside(&prefix.join("lib"), "python3") {
            for packages in ["site-packages", "dist-packages"] {
                let nvidia = python.join(packages).join("nvidia");
                found.extend(beside(&nvidia, "").into_iter().map(|part| part.join("lib")));
            }
        }
    }
    found.retain(|folder| folder.is_dir());
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|folder| seen.insert(folder.clone()));
    found
}

/// What is in a folder and starts with a name, in order.
fn beside(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    let mut found: Vec<PathBuf> = named.map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// A table of a library's functions, each of which answers with a status.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $symbol:literal ($($argument:ty),* $(,)?);)* }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> i32,)*
        }

        impl $name {
            fn of(library: &$crate::cuda::library::Library) -> Result<Self, $crate::cuda::error::CudaError> {
                Ok(Self {
                    // SAFETY: the library's function of this name has these arguments, by its documentation.
                    $($field: unsafe {
                        std::mem::transmute::<
                            *mut std::ffi::c_void,
                            unsafe extern "C" fn($($argument),*) -> i32,
                        >(library.symbol($symbol)?)
                    },)*
                })
            }
        }
    };
}
pub(super) use functions;
