//! One client's work inside a Scope, and a fleet of threads that plays many clients.
//!
//! The engine orders, a client works: it writes the download on its model, trains what the order
//! says learns and nothing else, and sends back an encoded change. [`LocalFleet`] does that for any
//! number of clients in one process. Here, and only here, the engine's plain vectors meet tensors.
//!
//! ```text
//! TrainRequest --> LocalFleet --> Worker --> Trainer --> Arrival      one a client, in client order
//!               |                      \-- Correction         what a local rule adds to gradients
//!               |--> Evaluator --> Scores                     any batch size, any thread count
//!               \--> Prober --> BlockScores                   which blocks should learn
//! ```
//!
//! ```
//! use fedra_client::{LocalFleet, Shards};
//! use fedra_compute::{Device, Seed};
//! use fedra_data::{Clinic, Encoder, Partition, Shares, Task, Tokenizer};
//! use fedra_engine::Fleet;
//! use fedra_model::{Head, Model, Preset};
//!
//! let table = Clinic { hospitals: 3, notes: 30, ..Clinic::default() }.generate(Task::Concepts, 1)?;
//! let texts: Vec<String> = table.examples.iter().map(|e| e.body.to_text()).collect();
//! let tokenizer = Tokenizer::grow(texts.iter().map(String::as_str), 1000)?;
//! let division = Partition::Client.divide(&table, Shares::default(), 1)?;
//! let shards = Shards::encode(&Encoder::new(&tokenizer, 64)?, &table, &division)?;
//!
//! let device = Device::cpu();
//! let head = Head::Tokens { classes: table.labels.len() };
//! let model = Model::new(Preset::Tiny.config(), head, None)?;
//! let params = model.fresh_params(&device, Seed(1))?;
//! let fleet = LocalFleet::new(model, params, device, shards)?;
//! assert_eq!(fleet.clients()[2].name, "hospital-3");
//! # Ok::<(), fedra_client::ClientError>(())
//! ```
//!
//! Results do not depend on the number of threads: every draw has a seed of its own, and whatever
//! is added up is added in the order of clients or of examples.

#![forbid(unsafe_code)]

mod attention;
mod local_fleet;
mod memory_dry_run;
mod shard_digest;
mod shards;
mod split;

mod client;
mod join_on_drop;
mod meter;
mod ordered_jobs;
mod worker;

mod batch_sampler;
mod correction;
mod dropout;
mod guard;
mod heads;
mod local_steps;
mod moments;
mod objective;
mod preference;
mod private_training;
mod request_key;
mod step;
mod trainer;

mod evaluator;
mod examination;
mod likelihood;
mod own_score;
mod predictor;
mod prober;
mod scores;
mod writing;

mod examples;
mod labelled_batch;

mod convert;
mod device_failure;
mod error;
mod session_error;

pub mod generate;

pub use attention::{PATTERN_EXAMPLES, PATTERN_NUMBERS, PATTERN_TOKENS};
pub use client::Client;
pub use convert::{base_of, to_params, to_params_over, to_values};
pub use correction::Correction;
pub use device_failure::{DeviceFailure, StepSize};
pub use error::{ClientError, Result};
pub use evaluator::{Evaluator, evaluation_batches};
pub use examination::{Examined, Truth};
pub use examples::Examples;
pub use fedra_model::{highest, sigmoid, softmax};
pub use guard::{Agreed, PrivacyGuard};
pub use join_on_drop::JoinOnDrop;
pub use local_fleet::LocalFleet;
pub use memory_dry_run::MemoryDryRun;
pub use meter::{Meter, Observer, Silent};
pub use ordered_jobs::AHEAD as JOBS_AHEAD;
pub use predictor::{Logits, ModelInput, Predictor};
pub use prober::{Prober, probed_batches};
pub use scores::{Counts, PairCounts, Scores, marks_spans};
pub use shard_digest::DataSecret;
pub use shards::{LastTurnCounts, Shard, Shards};
pub use split::{
    Connect, HeldUp, LocalPeer, MOST_ROWS_CROSSING, Occasion, Peer, Perturbation, Purpose,
    ServerSegment,
};
pub use trainer::{Course, TrainResult, TrainTask, Trainer};
pub use worker::{EVALUATION_TOKENS, PREFIX_CACHE};
pub use writing::Writing;
