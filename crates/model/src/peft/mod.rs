//! Adapter folders of the PEFT library, in and out: `adapter_config.json` and
//! `adapter_model.safetensors`.
//!
//! What an adapter adapts is read off its tensors: `target_modules` may be a pattern over names
//! that only the library knows, and a module without tensors adds nothing. Every setting that would
//! change the arithmetic and is not known here is refused by its name.
//!
//! A head that learnt beside the adapters goes along (`modules_to_save`). The library has no place
//! for the names of its classes, so `labels.json` beside it lists them, nor for how its outputs are read,
//! which `head.json` says in the words of a model's `config.json`: `problem_type`.
//!
//! ```text
//! AdapterFolder::open(dir, config) -> adapters() -> Model -> load(model, params)
//! save(dir, model, params, AdapterSaving)
//! ```

mod config;
mod files;
mod folder;
mod joined;
mod save;
mod targets;

pub use files::files;
pub use folder::AdapterFolder;
pub use save::{AdapterSaving, save};
pub use targets::Targets;
