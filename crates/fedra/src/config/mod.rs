//! Experiments: TOML as written ([`RawConfig`]) and as checked ([`Experiment`]).
//!
//! ```text
//! file, --set, --seed, ${VARIABLES} --layers--> Table --reading--> RawConfig --check--> Experiment
//! ```
//!
//! Whatever can be refused without opening a data file is refused here, before anything is
//! written; a refusal is one [`ConfigError`] that names the key. A program may start in the middle,
//! with a raw configuration of its own ([`Experiment::new`]), and put its own rows or its own method in place of
//! those that a file can name ([`Experiment::of_rows`], [`ParsedExperiment::over_records`],
//! [`Experiment::with_recipe`]).

mod checked;
pub mod hub;
mod image_processor;
mod lora_roles;
mod privacy_table;
pub mod raw_config;
pub mod split_table;

mod catalogue;
mod check;
mod compute_device;
mod device_name;
mod layers;
mod reading;

mod kind;
mod opening;
mod origin;
mod overrides;
mod own;
#[cfg(test)]
mod reference;
mod unused_settings;

pub use check::{of_engine as config_error_of, prompt as prompt_of};
pub use checked::{DataFile, Experiment, ModelSource, Source, Vocabulary};
pub use compute_device::{ComputeDevice, DeviceReport, OpenedDevice};

pub use crate::error::config_error::{ConfigError, Found, Problem};
pub use device_name::DeviceName;
pub use image_processor::image_processor;
pub use kind::{read_setting, text_of};
pub use layers::value_of as read_value;
pub use opening::{ParsedExperiment, Party};
pub use origin::Origin;
pub use overrides::Overrides;
pub use raw_config::{CompareTable, HeadChoice, Keep, LogFormat, NamedVariant, RawConfig};
pub use unused_settings::{safl_table, unused_settings};
