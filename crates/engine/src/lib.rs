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
mod round;
mod state;

mod recipe;
mod report;

mod aggregate;
mod cohort;
mod privacy;
mod protocol;
mod selection;
mod split;
mod storage;
mod work;

mod number;
mod own_parts;
mod settings;

pub mod methods;

mod error;

/// Files that are there whole or not at all.
pub use fedra_files as durable;
pub use privacy::account::{Account, PrivacyReport};

pub use aggregate::adapter_mean::{AdapterMean, AdapterReport};
pub use aggregate::attention::{AttentionDrift, SHIFT_BYTES};
pub use aggregate::drift::{Drift, DriftReport, RoleDrift, RoleGroup};
pub use aggregate::fold::{Contribution, Denominator, Fold};
pub use aggregate::max_norm::{Above, FAR, FarUpdate, MaxNorm, NormLimit, NormReport};
pub use cohort::conditions::{Away, Conditions, Slow};
pub use cohort::min_arrivals::MinArrivals;
pub use cohort::sampler::Sampler;
pub use error::EngineError;
pub use federation::Federation;
pub use federation::branch::Moment;
pub use fedra_privacy::NoiseMultiplier;
pub use fedra_wire::{ClientId, Encoding, ParamValues};
pub use fedra_wire::{SecondMoment, ServerInput, ServerRule, ServerState};
pub use own_parts::{OWN_SCORE, OwnAnswers, OwnChoices, OwnParts, OwnRanking, OwnStep, OwnTruth};
pub use privacy::private_steps::{ClipRule, LayerNoise, PrivateSteps, StepNoise};
pub use privacy::{
    BLOCK_SCORES, EXAMPLE_GRADIENTS, Privacy, PrivateSelection, joint_noise, noised_scores,
};
pub use protocol::bytes::{Bytes, CrossingBytes};
pub use protocol::fleet::{
    Absence, Adaptation, Arrival, AttentionRequest, AttentionShift, ClientAttention, ClientInfo,
    Download, EvaluationRequest, EvaluationSet, Evidence, F1Counts, Failure, Fleet, Outcome,
    ProbeRequest, PublicText, Reply, Scored, SharedPayload, TrainRequest, Unsynced, Verdict,
    place_of,
};
pub use protocol::progress::{Activity, RoundProgress};
pub use protocol::server_segment::{SegmentHost, SegmentUpdate, SideMemory};
pub use recipe::planner::Choice;
pub use recipe::rows_at_cut::{EndsLearn, RowsAtCut};
pub use recipe::stage::{Begins, Criteria, Stage, StageReport, Treatment};
pub use recipe::{
    Adapt, Evaluation, Population, Recipe, Start, StepNormalisation, USUAL_RETRIES, Weighting,
    layout_of,
};
pub use report::phases::Phases;
pub use report::{FailedAttempt, RoundReport, SetScores, Sink, Spread};
pub use selection::{Criterion, Masks, Selection, SelectionReport, Warning, WarningKind};
pub use split::{
    ClientBlocks, Move, Noise, NoiseDraw, NoiseKind, RowPrivacy, SplitConfig, SplitMode,
};
pub use state::log_mark::LogMark;
pub use state::versions::ClientVersions;
pub use storage::client_state::{AttentionMemory, ClientState};
pub use storage::optimiser_state::OptimiserState;
pub use storage::state_store::{StateHandle, StateStore};
pub use work::objective::{ClassWeights, MomentsLife, PreferenceForm, PreferenceLoss};
pub use work::schedule::{RateDecay, RateWarmup, Schedule, StepPlace};
pub use work::{Damped, HeadProbe, LocalRule, OptimiserConfig, Work};
