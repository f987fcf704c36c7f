//! The built binary on tiny experiments: what it prints, writes and refuses.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

mod account;
mod arrivals;
mod attack;
mod audit;
mod best;
mod chat;
mod choices;
mod data;
mod devices;
#[cfg(unix)]
mod documents;
mod endings;
mod folders;
mod generate;
mod head_adapters;
mod help;
mod hub;
mod images;
mod init;
mod json;
mod keeping;
mod live;
mod logs;
mod membership;
#[cfg(target_os = "linux")]
mod memory;
mod models;
#[cfg(unix)]
mod openai;
mod pages;
mod places;
mod plan;
mod precision;
mod predict;
mod preferences;
mod privacy;
mod refusals;
mod run;
#[path = "../../../hub/tests/server/mod.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod server;
mod tasks;
mod truth;
mod widths;

mod place;
