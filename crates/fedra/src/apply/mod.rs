//! A trained model at work: predictions for new rows, and scores on labelled ones.

pub mod evaluate;
pub mod output_file;
pub mod predict;
pub(crate) mod predictions;
pub mod trained_model;
