//! Real sockets on loopback, real certificates.

mod place;
mod streams;
