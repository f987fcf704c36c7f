//! Real sockets on loopback, real certificates.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

mod answers;
mod changed_data;
mod cut;
mod cut_faults;
mod decode;
mod decode_faults;
mod hostile;
mod identity;
mod lossy;
mod many;
mod never_came;
mod place;
mod private_cut;
mod proxy;
mod retries;
mod sites;
mod stopping;
mod streams;
mod twice;
mod world;
