//! `fedra convert`: a GGUF file as a folder that other tools load.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use fedra::text::grid::grouped;
use fedra_model::gguf;
use fedra_model::hf::Precision;

use crate::console;
use crate::flags::one_of;

const EXAMPLES: &str = "\
Examples:
  fedra convert SmolLM2-135M-Instruct.Q4_1.gguf smollm2
  fedra convert SmolLM2-135M-Instruct.Q4_1.gguf smollm2 --precision bf16

Experiments need no conversion: model.path takes the GGUF file itself.";

const PRECISIONS: [(&str, Precision); 3] =
    [("f32", Precision::F32), ("f16", Precision::F16), ("bf16", Precision::BF16)];

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Convert {
    /// The model: a decoder in one GGUF file
    #[arg(value_name = "MODEL.gguf")]
    file: PathBuf,
    /// The folder to write, new or empty
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// How weights are stored: f32 is exact, the others take half the space
    #[arg(long, default_value = "f32", value_parser = one_of(PRECISIONS))]
    precision: Precision,
}

impl Convert {
    /// Writes the folder.
    pub fn run(&self) -> Result<()> {
        let parameters = gguf::convert(&self.file, &self.folder, self.precision)?;
        let folder = self.folder.display();
        console::say(format_args!("{folder}: {} parameters", grouped(parameters as u64)));
        Ok(())
    }
}
