//! Tests of accountants and the ledger: one program, because each is linked with everything below it.

mod laws;
mod ledger;
mod vectors;
