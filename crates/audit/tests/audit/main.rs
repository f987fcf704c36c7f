//! Tests of attacks: one program, because each is linked with everything below it.

mod attacks;
mod vectors;
