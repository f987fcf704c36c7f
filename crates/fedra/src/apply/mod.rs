//! What is done with a finished run: predictions for new rows, scores on labelled ones, pages.

pub mod completions;
pub mod evaluate;
pub mod judgements;
pub mod output_file;
pub mod pages;
pub mod predict;
pub mod run_model;
pub mod text_decoder;
pub mod trained_model;
