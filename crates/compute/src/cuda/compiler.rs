//! Kernels compiled where they run, once: the result is kept in the user's cache folder.
//!
//! NVRTC needs neither a GPU nor CUDA's headers, so that a test can compile every file anywhere.

use super::error::CudaError;
use super::library::{Library, Wanted, functions};
use std::ffi::{CString, c_char, c_int};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::OnceLock;

const LIBRARY: Wanted = Wanted {
    library: "libnvrtc.so",
    names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    needs: "install CUDA, or `pip install nvidia-cuda-nvrtc`",
};

type Program = *mut std::ffi::c_void;

functions! {
    /// What is called.
    Functions {
        version: c"nvrtcVersion" (*mut c_int, *mut c_int);
        create: c"nvrtcCreateProgram" (
            *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        );
        compile: c"nvrtcCompileProgram" (Program, c_int, *const *const c_char);
        code_len: c"nvrtcGetCUBINSize" (Program, *mut usize);
        code: c"nvrtcGetCUBIN" (Program, *mut c_char);
        log_len: c"nvrtcGetProgramLogSize" (Program, *mut usize);
        log: c"nvrtcGetProgramLog" (Program, *mut c_char);
        destroy: c"nvrtcDestroyProgram" (*mut Program);
    }
}

const COMMON: &str = include_str!("kernels/common.cuh");
const ATTENTION: &str = include_str!("kernels/attention.cuh");
/// Eight bf16 at a time.
const EIGHT: &str = include_str!("kernels/eight.cuh");
const TENSOR: &str = include_str!("kernels/tensor.cuh");

/// A file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Attention,
    Decode,
    Draws,
    Elementwise,
    Examples,
    FewRows,
    Losses,
    Norm,
    Optimiser,
    Probe,
    Quantised,
    Rows,
    TensorAttention32,
    TensorAttention64,
    TensorAttention96,
    TensorAttention128,
}

impl Source {
    #[cfg(test)]
    const ALL: [Self; 16] = [
        Self::Attention,
        Self::Decode,
        Self::Draws,
        Self::Elementwise,
        Self::Examples,
        Self::FewRows,
        Self::Losses,
        Self::Norm,
        Self::Optimiser,
        Self::Probe,
        Self::Quantised,
        Self::Rows,
        Self::TensorAttention32,
        Self::TensorAttention64,
        Self::TensorAttention96,
        Self::TensorAttention128,
    ];

    const fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Attention => ("attention.cu", include_str!("kernels/attention.cu")),
            Self::Decode => ("decode.cu", include_str!("kernels/decode.cu")),
            Self::Draws => ("draws.cu", include_str!("kernels/draws.cu")),
            Self::Elementwise => ("elementwise.cu", include_str!("kernels/elementwise.cu")),
            Self::Examples => ("examples.cu", include_str!("kernels/examples.cu")),
            Self::FewRows => ("few_rows.cu", include_str!("kernels/few_rows.cu")),
            Self::Losses => ("losses.cu", include_str!("kernels/losses.cu")),
            Self::Norm => ("norm.cu", include_str!("kernels/norm.cu")),
            Self::Optimiser => ("optimiser.cu", include_str!("kernels/optimiser.cu")),
            Self::Probe => ("probe.cu", include_str!("kernels/probe.cu")),
            Self::Quantised => ("quantised.cu", include_str!("kernels/quantised.cu")),
            Self::Rows => ("rows.cu", include_str!("kernels/rows.cu")),
            Self::TensorAttention32
            | Self::TensorAttention64
            | Self::TensorAttention96
            | Self::TensorAttention128 => {
                ("tensor_attention.cu", include_str!("kernels/tensor_attention.cu"))
            }
        }
    }

    /// What stands in front of the file.
    const fn headers(self) -> [&'static str; 4] {
        match self {
            Self::Attention | Self::Probe => [COMMON, ATTENTION, "", ""],
            Self::Decode => [COMMON, ATTENTION, EIGHT, ""],
            Self::FewRows => [COMMON, EIGHT, TENSOR, ""],
            Self::TensorAttention32 => [COMMON, ATTENTION, TENSOR, "#define HEAD 32"],
            Self::TensorAttention64 => [COMMON, ATTENTION, TENSOR, "#define HEAD 64"],
            Self::TensorAttention96 => [COMMON, ATTENTION, TENSOR, "#define HEAD 96"],
            Self::TensorAttention128 => [COMMON, ATTENTION, TENSOR, "#define HEAD 128"],
            Self::Examples => [COMMON, TENSOR, "", ""],
            Self::Draws
            | Self::Elementwise
            | Self::Losses
            | Self::Norm
            | Self::Optimiser
            | Self::Quantised
            | Self::Rows => [COMMON, "", "", ""],
        }
    }

    /// The files that are compiled with this one: a step of training uses all the usual ones.
    pub fn company(self) -> Vec<Self> {
        const USUAL: [Source; 5] =
            [Source::Elementwise, Source::Norm, Source::Rows, Source::Losses, Source::Optimiser];
        if USUAL.contains(&self) { USUAL.to_vec() } else { vec![self] }
    }

    /// Machine code of some files for a GPU of this capability: from the cache, or compiled now, side by side.
    pub fn codes(sources: &[Self], capability: (u32, u32)) -> Result<Vec<Vec<u8>>, CudaError> {
        std::thread::scope(|scope| {
            let compile = |source: &Self| {
                let source = *source;
                std::thread::Builder::new().spawn_scoped(scope, move || source.code(capability))
            };
            let threads: Vec<_> = sources.iter().map(compile).collect();
            let code = |(thread, source): (_, &Self)| match thread {
                Ok(thread) => std::thread::ScopedJoinHandle::join(thread)
                    .unwrap_or_else(|panic| resume_unwind(panic)),
                // No more threads are to be had.
                Err(_) => source.code(capability),
            };
            threads.into_iter().zip(sources).map(code).collect()
        })
    }

    /// Machine code for a GPU of this capability: from the cache, or compiled now.
    fn code(self, (major, minor): (u32, u32)) -> Result<Vec<u8>, CudaError> {
        let compiler = compiler()?;
        let target = format!("sm_{major}{minor}");
        let mut hasher = DefaultHasher::new();
        (self.headers(), self.file(), &target, compiler.version).hash(&mut hasher);
        let name = format!("{}-{target}-{:016x}.cubin", self.file().0, hasher.finish());
        let kept = cache_folder().map(|folder| folder.join(name));
        if let Some(code) = kept.as_ref().and_then(|path| std::fs::read(path).ok()) {
            return Ok(code);
        }
        let code = compiler.compile(self, &target, &[])?;
        if let Some(path) = kept {
            keep(&path, &code);
        }
        Ok(code)
    }
}

/// Writes a file under another name and moves it into its place. What cannot be kept is compiled again next time.
fn keep(path: &std::path::Path, code: &[u8]) {
    let under = path.with_extension(format!("{}.part", std::process::id()));
    let written = path
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(&under, code))
        .and_then(|()| std::fs::rename(&under, path));
    if written.is_err() {
        drop(std::fs::remove_file(under));
    }
}

/// `fedra/kernels` in the user's cache folder.
fn cache_folder() -> Option<PathBuf> {
    let set =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("fedra").join("kernels"))
}

/// NVRTC, loaded once.
struct Compiler {
    call: Functions,
    version: (c_int, c_int),
}

fn compiler() -> Result<&'static Compiler, CudaError> {
    static COMPILER: OnceLock<Result<Compiler, CudaError>> = OnceLock::new();
    let open = || {
        let call = Functions::of(&Library::open(LIBRARY)?)?;
        let mut version = (0, 0);
        // SAFETY: writes two numbers.
        unsafe { (call.version)(&raw mut version.0, &raw mut version.1) };
        Ok(Compiler { call, version })
    };
    COMPILER.get_or_init(open).as_ref().map_err(Clone::clone)
}

impl Compiler {
    fn compile(&self, source: Source, target: &str, more: &[&str]) -> Result<Vec<u8>, CudaError> {
        let (file, text) = source.file();
        let failed = |call: &'static str| {
            move |status: i32| {
                let reason = format!("status {status}");
                if status == 0 { Ok(()) } else { Err(CudaError::Call { call, reason }) }
            }
        };
        let string = |text: String| CString::new(text).expect("no zero in a source file");
        let headers = source.headers().join("\n");
        let text = string(format!("{headers}\n#line 1 \"{file}\"\n{text}"));
        let name = string(file.to_owned());
        let options = [format!("--gpu-architecture={target}"), "--std=c++17".to_owned()];
        let more = more.iter().map(|option| (*option).to_owned());
        let options: Vec<CString> = options.into_iter().chain(more).map(string).collect();
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: strings end in zero and live until the program is destroyed; buffers are as long as the
        // library says that its answer is.
        unsafe {
            let status =
                (self.call.create)(&raw mut program, text.as_ptr(), name.as_ptr(), 0, none, none);
            failed("nvrtcCreateProgram")(status)?;
            let count = c_int::try_from(options.len()).expect("a few options");
            let status = (self.call.compile)(program, count, options.as_ptr());
            let mut len = 0;
            let answer = if status == 0 {
                (self.call.code_len)(program, &raw mut len);
                let mut code = vec![0_u8; len];
                (self.call.code)(program, code.as_mut_ptr().cast());
                Ok(code)
            } else {
                (self.call.log_len)(program, &raw mut len);
                let mut log = vec![0_u8; len];
                (self.call.log)(program, log.as_mut_ptr().cast());
                let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned();
                Err(CudaError::Compile { file, log })
            };
            (self.call.destroy)(&raw mut program);
            answer
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs wherever NVRTC is; it needs no GPU.
    #[test]
    fn every_gpu_kernel_compiles_for_sm_80_and_sm_90() {
        let compiler = match compiler() {
            Ok(compiler) => compiler,
            Err(error) => {
                eprintln!("skipped: {error}");
                return;
            }
        };
        // Whether they compile is asked here, not how fast they are then.
        let quick: &[&str] =
            if compiler.version >= (13, 0) { &["--Ofast-compile=max"] } else { &[] };
        for source in Source::ALL {
            for target in ["sm_80", "sm_90"] {
                let code = compiler.compile(source, target, quick);
                let code = code.unwrap_or_else(|error| panic!("{target}: {error}"));
                assert_eq!(code[..4], *b"\x7fELF", "{source:?}");
            }
        }
    }
}
