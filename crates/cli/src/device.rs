//! `--device` and `--precision`: which device a command computes on.

use std::str::FromStr as _;

use anyhow::Result;
use clap::Args;
use fedra::config::{ComputeDevice, DeviceName, OpenedDevice};
use fedra_compute::{Cuda, Device, Precision};

use crate::console;
use crate::flags::Verbosity;

/// Which device computes, and in which precision.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct DeviceFlags {
    /// cpu, cuda:N for a GPU, or auto for one that can be used [default: the experiment's, or cpu]
    #[arg(long, value_name = "DEVICE", value_parser = DeviceName::from_str)]
    device: Option<DeviceName>,
    /// f32, tf32 (GPU) or bf16 [default: the experiment's, or f32]
    #[arg(long, value_name = "NAME", value_parser = Precision::from_str)]
    precision: Option<Precision>,
}

impl DeviceFlags {
    /// Puts them over the keys of a file.
    pub fn over(self, overrides: fedra::Overrides) -> fedra::Overrides {
        let overrides =
            self.device.into_iter().fold(overrides, |it, name| it.flag("device", &name));
        self.precision.into_iter().fold(overrides, |it, name| it.flag("precision", &name))
    }

    /// What they say where there is no file.
    pub fn choice(self) -> fedra::Result<ComputeDevice> {
        let (device, precision) =
            (self.device.unwrap_or_default(), self.precision.unwrap_or_default());
        Ok(ComputeDevice::new(device, precision)?)
    }

    /// Opens it where there is no file, and says which GPU computes.
    pub fn open(self, voice: Verbosity) -> fedra::Result<Device> {
        let OpenedDevice { device, note } = self.choice()?.open()?;
        if let Some(note) = note {
            voice.say(note);
        }
        Ok(device)
    }

    /// The same with memory of its own on a GPU, so that its peak is that of one measurement.
    pub fn open_apart(self) -> Result<Device> {
        let OpenedDevice { device, note } = self.choice()?.open()?;
        if let (Device::Cpu(_), Some(note)) = (&device, note) {
            console::say(format_args!("{note}"));
        }
        Ok(match device {
            Device::Cuda(gpu) => Device::Cuda(Cuda::open_apart(gpu.gpu().number, gpu.precision())?),
            other @ (Device::Cpu(_) | Device::Meta(_)) => other,
        })
    }

    /// Opens it to check its arithmetic: what a processor has no instructions for is emulated.
    pub fn open_to_check(self) -> Result<Device> {
        let device = self.choice()?.open()?.device;
        let wanted = self.precision();
        if wanted == Precision::Bf16 && device.precision() != wanted {
            console::say(format_args!(
                "note: bf16 is emulated, this processor has no instructions for it"
            ));
            return Ok(device.with_emulated_bf16());
        }
        Ok(device)
    }

    /// The precision that is asked for.
    pub fn precision(self) -> Precision {
        self.precision.unwrap_or_default()
    }

    /// For a run that is resumed: what it continues with.
    pub fn resumes_with(self, threads: Option<usize>) -> fedra::Machine {
        fedra::Machine { threads, device: self.device, precision: self.precision }
    }
}

/// The precision of a device as benchmarks of other libraries name it.
pub fn peers_precision(device: &Device) -> &'static str {
    match device.precision() {
        Precision::F32 => "fp32",
        Precision::Tf32 => "tf32",
        Precision::Bf16 => "bf16",
    }
}
