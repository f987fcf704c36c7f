//! What can go wrong on a GPU.

/// A refusal of the driver or one of its libraries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// A library is nowhere to be found.
    #[error("{library} was not found: {needs}; looked in {}", looked_in.join(", "))]
    Missing {
        /// Its file.
        library: &'static str,
        /// What brings it.
        needs: &'static str,
        /// Where it was looked for.
        looked_in: Vec<String>,
    },
    /// A library is too old.
    #[error("{library} has no {function}: a newer version is needed")]
    Function {
        /// The library's file.
        library: String,
        /// What it lacks.
        function: String,
    },
    /// There is no such GPU.
    #[error("there is no GPU with number {number}: {}", counted(*count))]
    NoDevice {
        /// What was asked for.
        number: usize,
        /// How many there are.
        count: usize,
    },
    /// The GPU is older than the kernels.
    #[error("GPU {number} ({name}) has compute capability {capability}, expected at least 8.0")]
    TooOld {
        /// Its number.
        number: usize,
        /// Its name.
        name: String,
        /// What it can do.
        capability: String,
    },
    /// A call failed.
    #[error("the GPU failed in {call}: {reason}")]
    Call {
        /// The call.
        call: &'static str,
        /// What the driver says.
        reason: String,
    },
    /// No more memory.
    #[error(
        "out of GPU memory: {wanted} bytes more were needed; this process holds {held} bytes and {free} of {total} are free"
    )]
    OutOfMemory {
        /// What was asked for.
        wanted: u64,
        /// What the process holds already.
        held: u64,
        /// What nobody holds.
        free: u64,
        /// What the GPU has.
        total: u64,
    },
    /// A kernel does not compile.
    #[error("the kernels of {file} do not compile: {log}")]
    Compile {
        /// Its file.
        file: &'static str,
        /// What the compiler says.
        log: String,
    },
}

fn counted(count: usize) -> String {
    match count {
        0 => "there is none".to_owned(),
        1 => "there is one, number 0".to_owned(),
        many => format!("there are {many}, numbered from 0"),
    }
}
