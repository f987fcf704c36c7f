//! The cases. Each says in one process, and on every network, what has to be true of it, so that two runs
//! are not alike only because nothing happened in either.

pub mod absence;
pub mod methods;
pub mod one_hot;
pub mod private;
pub mod questions;
