//! The keys of a `config.json`, read one at a time: typed fields, and the names of classes. A family's file reads its
//! own keys with them, and [`crate::hf`] the common ones.

pub mod fields;
pub mod labels;
