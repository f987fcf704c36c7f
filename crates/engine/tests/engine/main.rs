//! Tests of the engine: one program, because each is linked with everything below it.

mod arrivals;
mod cases;
mod fleet;
mod fold;
mod frozen;
mod hostile;
mod identities;
mod laws;
mod norms;
mod private;
mod releases;
mod safl;
