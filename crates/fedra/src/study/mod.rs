//! Several runs for one answer: comparisons over seeds, advice on freezing, shadow models and canaries for attacks.

pub mod advise;
pub mod canaries;
pub mod compare;
mod scratch_run;
pub mod shadow;
