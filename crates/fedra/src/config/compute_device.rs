//! Which device computes: as it is checked, as it is opened.
//!
//! Files and flags go through the same words. What a file names is required in a run of one process. Over a
//! network every party has a machine of its own, so a file that all of them share only proposes a device
//! there, and the processor computes where it cannot be used; what a flag names is required everywhere.

use fedra_compute::{Cuda, Device, Precision, gpus};
use fedra_plan::ByteCount;
use serde::{Deserialize, Serialize};

use super::device_name::DeviceName;
use super::raw_config::RawConfig;
use crate::config::ConfigError;
use crate::error::{Error, Result};

/// A device as it is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComputeDevice {
    name: DeviceName,
    precision: Precision,
    /// The most of a GPU's memory to take.
    memory: Option<ByteCount>,
    /// Whether the processor computes where the device cannot be opened.
    is_proposed: bool,
}

impl ComputeDevice {
    /// A device and its precision; the processor's products are f32 or bf16.
    pub fn new(name: DeviceName, precision: Precision) -> Result<Self, ConfigError> {
        let expected = "f32 or bf16 where no GPU computes";
        ConfigError::new("precision", format_args!("{:?}", precision.name()), expected)
            .with_hint("device = \"cuda:0\" computes on a GPU; `fedra devices` lists them")
            .when(name == DeviceName::Cpu && precision == Precision::Tf32)?;
        Ok(Self { name, precision, ..Self::default() })
    }

    /// What `device`, `precision` and `device_memory` say.
    pub(super) fn of(raw: &RawConfig) -> Result<Self, ConfigError> {
        let key = "device_memory";
        let read = |written: &String| {
            let refuse =
                |_| ConfigError::new(key, format_args!("{written:?}"), "a size such as \"8 GB\"");
            written.parse::<ByteCount>().map_err(refuse)
        };
        let memory = raw.device_memory.as_ref().map(read).transpose()?;
        ConfigError::only(key, "to GPUs, and device is \"cpu\"")
            .when(memory.is_some() && raw.device == DeviceName::Cpu)?;
        Ok(Self { memory, ..Self::new(raw.device, raw.precision)? })
    }

    /// The same with at most so much of a GPU's memory.
    pub fn within(self, memory: Option<ByteCount>) -> Self {
        Self { memory, ..self }
    }

    /// The same as a proposal to a machine that may lack it.
    pub(super) fn proposed(self) -> Self {
        Self { is_proposed: true, ..self }
    }

    /// What it is called in files.
    pub fn name(self) -> DeviceName {
        self.name
    }

    /// The precision that was asked for.
    pub fn precision(self) -> Precision {
        self.precision
    }

    /// The precision of the GPU that is to compute here, if one is.
    pub fn gpu(self) -> Option<Precision> {
        let is_gpu = match self.name {
            DeviceName::Cpu => false,
            DeviceName::Auto => gpus().is_ok_and(|gpus| !gpus.is_empty()),
            DeviceName::Cuda(_) => true,
        };
        is_gpu.then_some(self.precision)
    }

    /// Opens it.
    pub fn open(self) -> Result<OpenedDevice> {
        self.open_or(Device::cpu())
    }

    /// The same with a processor's memory of one's own.
    pub fn open_or(self, cpu: Device) -> Result<OpenedDevice> {
        let refused = match self.name {
            DeviceName::Cpu => return Ok(self.on_processor(cpu)),
            DeviceName::Cuda(number) => match self.cuda(number) {
                Ok(device) => return Ok(OpenedDevice::gpu(device)),
                Err(error) if self.is_proposed => error,
                Err(error) => {
                    return Err(Error::Refused(format!("device cuda:{number}: {error}")));
                }
            },
            DeviceName::Auto => match self.first() {
                Ok(device) => return Ok(OpenedDevice::gpu(device)),
                Err(error) => error,
            },
        };
        let note = format!(
            "note: device = \"{}\": the processor computes, because no GPU can be used here ({refused})",
            self.name
        );
        Ok(OpenedDevice { device: cpu, note: Some(note) })
    }

    /// A device of the processor's with this precision, or in f32 with a note where the processor has no
    /// instructions for it. A precision that was meant for a GPU is not the processor's.
    fn on_processor(self, device: Device) -> OpenedDevice {
        if self.name != DeviceName::Cpu || self.precision != Precision::Bf16 {
            return OpenedDevice { device, note: None };
        }
        match device.with_bf16_products() {
            Ok(device) => OpenedDevice { device, note: None },
            Err(reason) => {
                let note = format!("note: precision is \"bf16\", computing in f32: {reason}");
                OpenedDevice { device, note: Some(note) }
            }
        }
    }

    /// The precision of the processor's products on this machine.
    pub(crate) fn processor_precision(self) -> Precision {
        self.on_processor(Device::cpu()).device.precision()
    }

    /// The first GPU that can be opened, or why there is none.
    fn first(self) -> Result<Device, String> {
        let there = gpus().map_err(|error| error.to_string())?;
        let mut refused = "there is none, or no driver of NVIDIA's".to_owned();
        for gpu in there {
            match self.cuda(gpu.number) {
                Ok(device) => return Ok(device),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn cuda(self, number: usize) -> Result<Device, String> {
        let device = Device::cuda(number, self.precision).map_err(|error| error.to_string())?;
        device.limit_memory(self.memory.map(|ByteCount(bytes)| bytes));
        Ok(device)
    }
}

/// An opened device, and what a person should know about it.
#[derive(Clone, Debug)]
pub struct OpenedDevice {
    /// It.
    pub device: Device,
    /// Which GPU computes, or why none does where one was wanted.
    pub note: Option<String>,
}

impl OpenedDevice {
    fn gpu(device: Device) -> Self {
        let report = DeviceReport::of(&device);
        let note = Some(format!("note: computing on {}", report.in_words()));
        Self { device, note }
    }
}

/// Which device computed, for files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// `cpu` or `cuda:N`.
    pub device: String,
    /// The GPU's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its compute capability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    /// `f32`, `tf32` or `bf16`.
    pub precision: String,
}

impl DeviceReport {
    /// Of an opened device.
    pub fn of(device: &Device) -> Self {
        let gpu = |cuda: &Cuda| {
            let gpu = cuda.gpu();
            Self {
                device: DeviceName::Cuda(gpu.number).to_string(),
                name: Some(gpu.name.clone()),
                capability: Some(format!("{}.{}", gpu.capability.0, gpu.capability.1)),
                precision: cuda.precision().to_string(),
            }
        };
        match device {
            Device::Cuda(cuda) => gpu(cuda),
            Device::Cpu(_) | Device::Meta(_) => Self {
                device: DeviceName::Cpu.to_string(),
                precision: device.precision().to_string(),
                ..Self::default()
            },
        }
    }

    /// For people.
    pub fn in_words(&self) -> String {
        let Self { device, name, capability, precision } = self;
        let named = name.iter().zip(capability).map(|(name, capability)| {
            format!(" ({name}, compute capability {capability}) in {precision}")
        });
        format!("{device}{}", named.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_parties_share_only_proposes_a_device() {
        // No machine has so many.
        let far = ComputeDevice::new(DeviceName::Cuda(4000), Precision::Bf16).unwrap();
        let refused = far.open().unwrap_err().to_string();
        assert!(refused.starts_with("device cuda:4000: "), "{refused}");
        let opened = far.proposed().open().unwrap();
        assert!(matches!(opened.device, Device::Cpu(_)));
        let note = opened.note.unwrap();
        let told = "note: device = \"cuda:4000\": the processor computes, because no GPU can be used here (";
        assert!(note.starts_with(told), "{note}");
        assert_eq!(DeviceReport::of(&opened.device).in_words(), "cpu");
    }

    #[test]
    fn a_report_names_the_gpu_and_its_precision() {
        let report = DeviceReport {
            device: "cuda:1".to_owned(),
            name: Some("H200".to_owned()),
            capability: Some("9.0".to_owned()),
            precision: "bf16".to_owned(),
        };
        assert_eq!(report.in_words(), "cuda:1 (H200, compute capability 9.0) in bf16");
    }
}
