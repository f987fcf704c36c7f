//! How the weights of a model that is applied are stored.

use std::str::FromStr;

use clap::Args;
use fedra_compute::WeightFormat;

use crate::console;

/// The flag, and the one before it.
#[derive(Args)]
pub struct WeightsFlag {
    /// Store weights as f32, bf16, int8 or int4: less memory, faster generation, slightly less exact
    /// [default: f32; of adapters, as their run did]
    #[arg(long, value_name = "FORMAT", value_parser = WeightFormat::from_str)]
    weights: Option<WeightFormat>,
}

/// `--bf16`, as it was once called.
#[derive(Args)]
pub struct FormerFlag {
    #[arg(long, hide = true, conflicts_with = "weights")]
    bf16: bool,
}

impl WeightsFlag {
    /// The format, if one is given.
    pub fn format(&self) -> Option<WeightFormat> {
        self.weights
    }
}

impl FormerFlag {
    /// The format that either flag gives.
    pub fn over(&self, weights: Option<WeightFormat>) -> Option<WeightFormat> {
        if self.bf16 {
            console::say("note: --bf16 is --weights bf16 now");
            return Some(WeightFormat::Bf16);
        }
        weights
    }
}
