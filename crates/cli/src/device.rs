//! Which device a command computes on.

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra_compute::{Device, NoBf16, Precision};

use crate::console;
use crate::flags::one_of;

/// Which device computes, and in which precision.
#[derive(Args)]
pub struct Compute {
    /// The device: cpu, or cuda:N for a GPU (see fedra devices)
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Precision of matrix products; on a GPU with bf16 also of activations
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
            return self.open_cpu(|reason| {
                console::say(format_args!("note: computing in f32: {reason}"));
                Device::cpu()
            });
        }
        let number = name.strip_prefix("cuda:").and_then(|number| number.parse().ok());
        let Some(number) = number else {
            bail!("--device is {name:?}, expected cpu or cuda:N, as in cuda:0");
        };
        Device::cuda(number, self.precision).with_context(|| format!("cannot use {name}"))
    }

    /// Opens the device to check its arithmetic: what a processor has no instructions for is emulated.
    pub fn open_to_check(&self) -> Result<Device> {
        if self.device != "cpu" {
            return self.open();
        }
        self.open_cpu(|reason| {
            console::say(format_args!("note: bf16 is emulated: {reason}"));
            Device::cpu().with_emulated_bf16()
        })
    }

    fn open_cpu(&self, without_bf16: impl FnOnce(NoBf16) -> Device) -> Result<Device> {
        match self.precision {
            Precision::F32 => Ok(Device::cpu()),
            Precision::Tf32 => bail!("--precision tf32 needs a GPU: set --device cuda:0"),
            Precision::Bf16 => Ok(Device::cpu().with_bf16_products().unwrap_or_else(without_bf16)),
        }
    }

    /// The device as it was given.
    pub fn name(&self) -> &str {
        &self.device
    }
}

/// The precision of a device as benchmarks name it.
pub fn precision(device: &Device) -> &'static str {
    match device.precision() {
        Precision::F32 => "fp32",
        Precision::Tf32 => "tf32",
        Precision::Bf16 => "bf16",
    }
}
