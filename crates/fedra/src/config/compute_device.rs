//! Which device a run computes on.

use fedra_compute::{Device, Precision};

use super::raw_config::RawConfig;
use crate::config::ConfigError;
use crate::error::{Error, Result};

/// The processor, or a GPU by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComputeDevice {
    gpu: Option<usize>,
    precision: Precision,
}

impl ComputeDevice {
    /// What `device` and `precision` say.
    pub(super) fn of(raw: &RawConfig) -> Result<Self, ConfigError> {
        let (device, precision) = (raw.device.as_str(), raw.precision.as_str());
        let number = device.strip_prefix("cuda:").and_then(|number| number.parse().ok());
        let gpu = match (device, number) {
            ("auto" | "cpu", _) => None,
            (_, Some(number)) => Some(number),
            (_, None) => {
                let expected = "auto, cpu or cuda:N, as in cuda:0";
                return Err(ConfigError::new("device", format_args!("{device:?}"), expected));
            }
        };
        let found = match precision {
            "f32" => Precision::F32,
            "tf32" => Precision::Tf32,
            "bf16" => Precision::Bf16,
            _ => {
                let expected = "f32, tf32 or bf16";
                let found = format_args!("{precision:?}");
                return Err(ConfigError::new("precision", found, expected));
            }
        };
        let expected = "f32 or bf16 where no GPU computes";
        ConfigError::new("precision", format_args!("{precision:?}"), expected)
            .when(gpu.is_none() && found == Precision::Tf32)?;
        Ok(Self { gpu, precision: found })
    }

    /// Opens it; a note says where it computes otherwise than was asked for.
    pub(crate) fn open(self) -> Result<(Device, Option<String>)> {
        match self.gpu {
            None => Ok(self.on_processor(Device::cpu())),
            Some(number) => match Device::cuda(number, self.precision) {
                Ok(device) => Ok((device, None)),
                Err(error) => Err(Error::Refused(format!("device cuda:{number}: {error}"))),
            },
        }
    }

    /// A device of the processor's with this precision, or in f32 with a note where the processor has no
    /// instructions for it. A precision that was meant for a GPU is not the processor's.
    pub(crate) fn on_processor(self, device: Device) -> (Device, Option<String>) {
        if self.gpu.is_some() || self.precision != Precision::Bf16 {
            return (device, None);
        }
        match device.with_bf16_products() {
            Ok(device) => (device, None),
            Err(reason) => {
                let note = format!("note: precision is \"bf16\", computing in f32: {reason}");
                (device, Some(note))
            }
        }
    }

    /// The precision of the processor's products on this machine.
    pub(crate) fn processor_precision(self) -> Precision {
        self.on_processor(Device::cpu()).0.precision()
    }
}
