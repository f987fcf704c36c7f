//! A GPU that failed while a client trained: what it was doing, and what needs less of it.
//!
//! Nothing is computed on a GPU after a failure, so whoever trains there ends, whatever the other clients do.

use std::fmt;

use fedra_compute::{CudaError, Precision};

/// A failure in a training step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFailure {
    /// Whose step.
    pub client: String,
    /// How large it was.
    pub step: StepSize,
    /// What the GPU said.
    pub source: CudaError,
}

/// What decides how much memory a training step takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSize {
    /// Sequences of a batch.
    pub sequences: usize,
    /// Tokens of the longest example.
    pub tokens: usize,
    /// Blocks of the model.
    pub blocks: usize,
    /// Parameters of the model.
    pub parameters: usize,
    /// Those that learn.
    pub learning: usize,
    /// The precision of the GPU.
    pub precision: Precision,
}

impl fmt::Display for DeviceFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, step, source } = self;
        let StepSize { sequences, tokens, blocks, parameters, learning, precision } = step;
        write!(
            formatter,
            "{client}: a training step of {sequences} sequences of up to {tokens} tokens, with {learning} of the \
             {parameters} parameters of a model of {blocks} blocks, in {precision}: {source}\nhint: "
        )?;
        if !matches!(source, CudaError::OutOfMemory { .. }) {
            return formatter.write_str(
                "`fedra bench check` with the same --device tests it; a run resumes on another one with --device",
            );
        }
        formatter.write_str("a smaller work.batch (work.accumulate keeps the size of a step)")?;
        formatter.write_str(", a smaller data.max_tokens")?;
        if 2 * learning > *parameters {
            formatter.write_str(", fewer blocks that learn or [model.lora]")?;
        }
        formatter.write_str(" need a new run and less memory; `fedra plan` foresees it. ")?;
        let same_run = match precision {
            Precision::Bf16 => "A run resumes with --device cpu or another GPU",
            Precision::F32 | Precision::Tf32 => {
                "A run resumes with --precision bf16, which takes about half, or with another --device"
            }
        };
        formatter.write_str(same_run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(source: CudaError, learning: usize, precision: Precision) -> String {
        let step = StepSize {
            sequences: 64,
            tokens: 128,
            blocks: 6,
            parameters: 1000,
            learning,
            precision,
        };
        DeviceFailure { client: "north".to_owned(), step, source }.to_string()
    }

    #[test]
    fn a_step_that_does_not_fit_says_what_it_was_and_what_needs_less() {
        let full = CudaError::OutOfMemory {
            wanted: 2_000_000,
            held: 7_000_000,
            free: 0,
            total: 8_000_000,
            limit: Some(8_000_000),
        };
        assert_eq!(
            failure(full.clone(), 1000, Precision::F32),
            "north: a training step of 64 sequences of up to 128 tokens, with 1000 of the 1000 parameters of a model \
             of 6 blocks, in f32: out of GPU memory: 2.0 MB more were needed, this process holds 7.0 MB, and \
             device_memory limits it to 8.0 MB\n\
             hint: a smaller work.batch (work.accumulate keeps the size of a step), a smaller data.max_tokens, fewer \
             blocks that learn or [model.lora] need a new run and less memory; `fedra plan` foresees it. A run resumes \
             with --precision bf16, which takes about half, or with another --device"
        );
        let adapters = failure(full, 10, Precision::Bf16);
        assert!(
            !adapters.contains("model.lora") && !adapters.contains("--precision"),
            "{adapters}"
        );
    }

    #[test]
    fn a_gpu_that_is_lost_is_told_with_how_to_go_on() {
        let lost =
            CudaError::Call { call: "cuLaunchKernel", reason: "an illegal address".to_owned() };
        let told = failure(lost, 1000, Precision::F32);
        assert!(
            told.contains("the GPU failed in cuLaunchKernel: an illegal address\nhint: "),
            "{told}"
        );
        assert!(told.ends_with("a run resumes on another one with --device"), "{told}");
    }
}
