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
        ConfigError::new("precision", format_args!("{precision:?}"), "f32 where no GPU computes")
            .when(gpu.is_none() && found != Precision::F32)?;
        Ok(Self { gpu, precision: found })
    }

    /// Opens it.
    pub fn open(self) -> Result<Device> {
        match self.gpu {
            None => Ok(Device::cpu()),
            Some(number) => {
                let opened = Device::cuda(number, self.precision);
                opened.map_err(|error| Error::Refused(format!("device cuda:{number}: {error}")))
            }
        }
    }
}
