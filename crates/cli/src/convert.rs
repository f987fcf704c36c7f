//! `fedra convert`: a GGUF file as a folder that other tools load.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use fedra::text::grid::grouped;
use fedra_model::gguf;
use fedra_model::hf::Precision;

use crate::console;

const EXAMPLES: &str = "\
Examples:
  fedra convert SmolLM2-135M-Instruct.Q4_1.gguf smollm2
  fedra convert SmolLM2-135M-Instruct.Q4_1.gguf smollm2 --precision bf16

The folder has config.json, model.safetensors, tokenizer.json, tokenizer_config.json and
generation_config.json. In f32 its weights are those of the file to the bit. An experiment need
not convert: model.path takes the file itself.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Convert {
    /// The model: a LLaMA in one GGUF file
    #[arg(value_name = "MODEL.gguf")]
    file: PathBuf,
    /// The folder to write, new or empty
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// How weights are stored
    #[arg(long, value_enum, default_value_t = Stored::F32)]
    precision: Stored,
}

/// How weights are stored.
#[derive(Clone, Copy, ValueEnum)]
enum Stored {
    /// Exact
    F32,
    /// Half the size, 11 bits of significand
    F16,
    /// Half the size, 8 bits of significand
    Bf16,
}

impl Convert {
    /// Writes the folder.
    pub fn run(&self) -> Result<()> {
        let precision = match self.precision {
            Stored::F32 => Precision::F32,
            Stored::F16 => Precision::F16,
            Stored::Bf16 => Precision::BF16,
        };
        let parameters = gguf::convert(&self.file, &self.folder, precision)?;
        let folder = self.folder.display();
        console::say(format_args!("{folder}: {} parameters", grouped(parameters as u64)));
        Ok(())
    }
}
