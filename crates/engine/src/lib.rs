//! Rounds of federated training: who takes part, what is sent, how answers become a model.
//!
//! The engine knows no model, no dataset and no network: only parameters as slices of f32 and the
//! [`Fleet`] that trains them. A method is a value, a [`Recipe`] with one choice per axis, and
//! [`methods`] has one file for each. Nothing here prints, and the only files are checkpoints.
//!
//! ```
//! use fedra_engine::{Recipe, OptimiserConfig, Work, methods::Method};
//!
//! let work = Work::new(OptimiserConfig::Sgd { rate: 0.1, weight_decay: 0.0 });
//! let settings: serde_json::Value = serde_json::from_str(r#"{ "mu": 0.1 }"#)?;
//! let recipe = Method::by_name("fedprox", settings)?.recipe(Recipe::new(work));
//! assert_eq!(recipe.method, "fedprox");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod federation;
mod phases;
mod planner;
mod progress;
mod recipe;
mod round;
mod state;

mod checks;
mod conditions;
mod covered;
mod max_norm;
mod min_arrivals;
mod objective;
mod sampler;
mod schedule;
mod selection;
mod waiting;
mod work;

mod adapter_mean;
mod aggregator;
mod client_state;
mod fleet;
mod fold;
mod optimiser_state;
mod own_parts;
mod server;
mod server_segment;
mod state_store;

mod attention;
mod branch;
mod drift;
mod history;
mod split;
mod stage;

mod account;
mod bytes;
mod checkpoint;
mod difference;
mod downloads;
mod log_mark;
mod noise_mean;
mod number;
mod privacy;
mod private_steps;
mod report;
mod rows_at_cut;
mod scratch;
mod sections;
mod settings;
mod versions;

pub mod methods;

mod error;

pub use account::{Account, PrivacyReport};
/// Files that are there whole or not at all.
pub use fedra_files as durable;

pub use adapter_mean::{AdapterMean, AdapterReport};
pub use attention::{AttentionDrift, SHIFT_BYTES};
pub use branch::Moment;
pub use bytes::{Bytes, CrossingBytes};
pub use client_state::{AttentionMemory, ClientState};
pub use conditions::{Away, Conditions, Slow};
pub use drift::{Drift, DriftReport, RoleDrift, RoleGroup};
pub use error::EngineError;
pub use federation::Federation;
pub use fedra_privacy::NoiseMultiplier;
pub use fedra_wire::{ClientId, Encoding, ParamValues};
pub use fleet::{
    Absence, Adaptation, Arrival, AttentionRequest, AttentionShift, ClientAttention, ClientInfo,
    Download, EvaluationRequest, EvaluationSet, Evidence, F1Counts, Failure, Fleet, Outcome,
    ProbeRequest, PublicText, Reply, Scored, TrainRequest, Unsynced, Verdict, place_of,
};
pub use fold::{Contribution, Denominator, Fold};
pub use log_mark::LogMark;
pub use max_norm::{Above, FAR, FarUpdate, MaxNorm, NormLimit, NormReport};
pub use min_arrivals::MinArrivals;
pub use objective::{ClassWeights, MomentsLife};
pub use optimiser_state::OptimiserState;
pub use own_parts::{OwnChoices, OwnParts, OwnRanking, OwnStep};
pub use phases::Phases;
pub use planner::Choice;
pub use privacy::{
    BLOCK_SCORES, EXAMPLE_GRADIENTS, Privacy, PrivateSelection, joint_noise, noised_scores,
};
pub use private_steps::{ClipRule, LayerNoise, PrivateSteps, StepNoise};
pub use progress::{Activity, RoundProgress};
pub use recipe::{
    Adapt, Evaluation, Population, Recipe, Start, StepNormalisation, USUAL_RETRIES, Weighting,
};
pub use report::{FailedAttempt, RoundReport, SetScores, Sink, Spread};
pub use rows_at_cut::{EndsLearn, RowsAtCut};
pub use sampler::Sampler;
pub use schedule::{RateDecay, RateWarmup, Schedule, StepPlace};
pub use selection::{Criterion, Masks, Selection, SelectionReport, Warning, WarningKind};
pub use server::{SecondMoment, ServerInput, ServerRule, ServerState};
pub use server_segment::{SegmentHost, SegmentUpdate, SideMemory};
pub use split::{
    ClientBlocks, Move, Noise, NoiseDraw, NoiseKind, RowPrivacy, SplitConfig, SplitMode,
};
pub use stage::{Begins, Criteria, Stage, StageReport, Treatment};
pub use state_store::{StateHandle, StateStore};
pub use versions::ClientVersions;
pub use work::{Damped, HeadProbe, LocalRule, OptimiserConfig, Work};
