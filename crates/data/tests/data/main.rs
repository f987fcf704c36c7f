//! Tests of rows, formats, tokens and scores: one program, because each is linked with everything below it.

mod chat;
mod clinic;
mod formats;
mod images;
mod laws;
#[expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]
mod linear;
mod parquet;
mod rouge;
mod threads;
mod tokenizer;
