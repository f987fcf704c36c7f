//! Real sockets on loopback, real certificates.

mod cut;
mod decode;
mod near_and_far;
mod place;
mod streams;
mod world;
