//! Real processes on loopback: a server, its sites, and what may happen to them.

mod certificates;
mod faults;
mod near_and_far;
mod place;
