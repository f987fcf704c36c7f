//! Tests of the library: one program, because each is linked with everything below it.

mod adapters;
mod compare;
mod encoder_place;
mod examples;
mod families;
#[expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#[path = "../../../model/tests/models/gguf_decoder.rs"]
mod gguf_decoder;
#[expect(dead_code, reason = "files that lie are made where files are read")]
#[path = "../../../model/tests/models/gguf_writer.rs"]
mod gguf_writer;
mod neighbours;
mod own_parts;
mod pretrained;
mod private_clients;
mod private_cut;
mod records;
mod resume;
mod row_cache;
mod site;
mod stored_weights;
