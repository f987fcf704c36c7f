//! Federated attention small enough for exact arithmetic: what warm-up, freezing and drift do.

#![forbid(unsafe_code)]

mod attention;
mod bridge;
mod client;
mod dip;
mod federation;
mod frozen_attention;
mod matrix;
mod moments;
mod network;
pub mod parallel;
mod phi;
mod setting;
mod study;
mod verdict;
mod world;

pub use attention::{Attended, Attention, Pulled};
pub use bridge::{
    Bridge, BridgeError, BridgeRun, BridgeSetting, Choice, Judgement, Shown, Student, Survival,
    Teacher, Trial, TunedAt,
};
pub use client::Client;
pub use dip::{Dip, Gain};
pub use federation::{Federation, Frozen, Work};
pub use frozen_attention::FrozenAttention;
pub use matrix::Matrix;
pub use moments::Moments;
pub use network::{Blocks, Network, Sizes, Weights};
pub use phi::Phi;
pub use setting::Setting;
pub use study::{Curves, Detail, Job, Run, Study, Sweep};
pub use verdict::{Valley, Verdict, mean, valley};
pub use world::World;
