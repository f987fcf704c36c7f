//! What can go wrong on a GPU.

use fedra_plan::ByteCount;

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
    #[error("out of GPU memory: {}", room(*wanted, *held, (*free, *total), *limit))]
    OutOfMemory {
        /// What was asked for.
        wanted: u64,
        /// What the process holds already.
        held: u64,
        /// What nobody holds.
        free: u64,
        /// What the GPU has.
        total: u64,
        /// What the process may hold, where somebody limits it.
        limit: Option<u64>,
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

/// What was wanted and what there is, in words.
fn room(wanted: u64, held: u64, (free, total): (u64, u64), limit: Option<u64>) -> String {
    let [wanted, held, free, total] = [wanted, held, free, total].map(ByteCount);
    let there = match limit {
        Some(limit) => format!("device_memory limits it to {}", ByteCount(limit)),
        None => format!("{free} of the GPU's {total} are free"),
    };
    format!("{wanted} more were needed, this process holds {held}, and {there}")
}

fn counted(count: usize) -> String {
    match count {
        0 => "there is none".to_owned(),
        1 => "there is one, number 0".to_owned(),
        many => format!("there are {many}, numbered from 0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_out_of_memory_reads_what_was_wanted_and_what_there_is() {
        let full = |limit| CudaError::OutOfMemory {
            wanted: 1_200_000_000,
            held: 7_900_000_000,
            free: 90_000_000,
            total: 8_000_000_000,
            limit,
        };
        assert_eq!(
            full(None).to_string(),
            "out of GPU memory: 1.2 GB more were needed, this process holds 7.9 GB, and 90.0 MB of the GPU's \
             8.0 GB are free"
        );
        let limited = full(Some(8_000_000_000)).to_string();
        assert!(limited.ends_with("and device_memory limits it to 8.0 GB"), "{limited}");
    }
}
