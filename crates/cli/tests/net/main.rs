//! Real processes on loopback: a server, its sites, and what may happen to them.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

mod certificates;
mod cut;
mod faults;
mod memory;
mod near_and_far;
mod place;
mod private;
