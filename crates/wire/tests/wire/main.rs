//! Tests of updates and their bytes: one program, because each is linked with everything below it.

mod letter;
mod loss;
mod payload;
mod rewrite;
mod sum;
