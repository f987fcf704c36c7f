//! The files of an adapter folder.

/// What the adapter is.
pub(super) const CONFIG: &str = "adapter_config.json";
/// Its numbers.
pub(super) const WEIGHTS: &str = "adapter_model.safetensors";
/// The names of the head's classes, in the order of its rows.
pub(super) const LABELS: &str = "labels.json";
/// How the head's outputs are read.
pub(super) const HEAD: &str = "head.json";

/// Every file that [`save`] may write.
pub fn files() -> [&'static str; 4] {
    [WEIGHTS, LABELS, CONFIG, HEAD]
}
