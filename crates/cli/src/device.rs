//! Which device a command computes on.

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra_compute::{Device, Precision};

use crate::flags::one_of;

/// Which device computes, and in which precision.
#[derive(Args)]
pub struct Compute {
    /// The device: cpu, or cuda:N for a GPU (see fedra devices)
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Precision on a GPU
    #[arg(long, default_value = "f32", value_parser = one_of([
        ("f32", Precision::F32), ("tf32", Precision::Tf32), ("bf16", Precision::Bf16),
    ]))]
    precision: Precision,
}

impl Compute {
    /// Opens the device.
    pub fn open(&self) -> Result<Device> {
        let name = self.device.as_str();
        if name == "cpu" {
            if self.precision != Precision::F32 {
                bail!("--precision {} needs a GPU: set --device cuda:0", self.precision());
            }
            return Ok(Device::cpu());
        }
        let number = name.strip_prefix("cuda:").and_then(|number| number.parse().ok());
        let Some(number) = number else {
            bail!("--device is {name:?}, expected cpu or cuda:N, as in cuda:0");
        };
        Device::cuda(number, self.precision).with_context(|| format!("cannot use {name}"))
    }

    /// The device as it was given.
    pub fn name(&self) -> &str {
        &self.device
    }

    /// The precision as benchmarks name it.
    pub fn precision(&self) -> &'static str {
        match self.precision {
            Precision::F32 => "fp32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
        }
    }
}
