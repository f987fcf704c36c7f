//! One client's work and a whole fleet, on models of width 16 to 32 and synthetic notes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod alone;
mod attention;
mod choosing;
mod conversations;
mod fleet;
mod frozen;
mod keeping;
mod learning;
mod memory_dry_run;
mod preference;
mod private;
mod ranks;
mod scoring;
mod selection;
mod settings;
mod split;
mod split_private;
mod split_probe;
mod training;
mod world;
