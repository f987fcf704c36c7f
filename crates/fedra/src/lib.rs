//! Federated fine-tuning of Transformers across parties that may not share their data.
//!
//! An [`Experiment`] says who holds which rows, which model learns and by which method. It comes from a
//! TOML file, from a text, or from values ([`experiment::Draft`]). [`plan()`] says what it would send and
//! cost, [`run()`] runs it in a folder, [`compare()`] runs several of them over seeds,
//! [`advise()`] finds out when to freeze a part, and [`shadow`] trains models on halves of the rows for
//! attacks that ask who was there. Three hospitals learn to mark problems, tests and
//! treatments in notes that no patient wrote:
//!
//! ```
//! use fedra::{Experiment, Output, Overrides, Silent};
//!
//! let text = r#"
//!     seed = 3
//!     [data]
//!     source = "synthetic-clinic"
//!     task = "concepts"
//!     clinic = { notes = 24 }
//!     shares = { central = 0.2, validation = 0.0, test = 0.2 }
//!     max_tokens = 32
//!     [model]
//!     preset = "tiny-encoder"
//!     blocks = 2
//!     width = 16
//!     heads = 2
//!     [federation]
//!     clients = 3
//!     rounds = 2
//! "#;
//! let experiment = Experiment::from_toml(text, &Overrides::default().set("work.batch=8"))?;
//!
//! let plan = fedra::plan(&experiment)?;
//! println!("{} clients, {} each way", plan.clients, plan.least.total().up);
//!
//! let place = tempfile::tempdir()?;
//! let folder = place.path().join("run");
//! let ending = fedra::run(&experiment, &Output::new(&folder), &Silent)?;
//! let summary = ending.complete().expect("nobody stopped it");
//!
//! assert_eq!((summary.rounds, summary.clients), (2, 3));
//! assert_eq!(summary.bytes, plan.least.total());
//! assert!(summary.score.is_some_and(|score| score.name == "span_f1"));
//! assert!(folder.join("model/model.safetensors").exists());
//! # Ok::<(), fedra::Error>(())
//! ```
//!
//! A method of your own is a [`Recipe`](engine::Recipe) ([`Experiment::with_recipe`],
//! `examples/own_method.rs`). Data of your own are rows ([`Experiment::of_rows`], `examples/own_data.rs`).
//!
//! The library prints nothing and installs no signal handler. What is said on the way goes to a
//! [`Listener`], which may also ask a run to stop. Files are written to the folder that the caller
//! names and nowhere else.

#![forbid(unsafe_code)]

mod complaint;
pub mod error;
pub mod experiment;

pub mod agreement;
pub mod census;
pub mod client_names;
pub mod federate;
pub mod listener;
pub mod run;
pub mod serve;
pub mod site;

pub mod evaluate;
mod flags;
pub mod init;
pub mod output_file;
pub mod predict;
mod predictions;
pub mod trained_model;

pub mod advise;
pub mod compare;
pub mod plan_report;
pub mod shadow;

pub mod canaries;
pub mod held_ledger;
pub mod private;
mod public_text;

pub mod baseline;
pub mod best;
pub mod headline;
pub mod model_card;
pub mod report;
pub mod summary;

mod classes;
pub mod fingerprint;
pub mod holdings;
pub mod prepared;
pub mod pretrained;
pub mod remarks;
pub mod row_cache;
pub mod token_lengths;
mod untrained;

mod far_updates;
pub mod folder;
mod lock;
pub mod output_folder;
pub mod round_files;
mod round_log;
pub mod run_files;
pub mod run_model;
mod run_status;
pub mod shell;

mod activations;
mod cut_memory;
pub mod cutting;
pub mod forecast;
pub mod memory;
pub mod run_memory;
pub mod state_placement;
pub mod state_size;

pub mod grid;
pub mod process;
mod regular_file;
pub mod wrap;

/// The engine: recipes, rounds, reports.
pub use fedra_engine as engine;

/// Charts and pages.
pub use fedra_report as pages;

/// Rows, tables, formats, partitions, tokenizers.
pub use fedra_data as data;

/// Models and their folders.
pub use fedra_model as model;

/// Which part of a model: parameters, scopes, rules.
pub use fedra_plan as plan;

/// Clients that train in this process.
pub use fedra_client as client;

/// Tensors and devices.
pub use fedra_compute as compute;

use fedra_engine::durable;

pub use advise::advise;
pub use compare::compare;
pub use complaint::Complaint;
pub use error::{Error, Result};
pub use evaluate::evaluate;
pub use experiment::{Experiment, Overrides};
pub use federate::{Ending, Run};
pub use listener::{Listener, Silent};
pub use lock::is_at_work;
pub use output_folder::Over;
pub use plan_report::{PlanReport, plan, plan_of, plan_with};
pub use run::{Output, Resumed, prepare, resume, resume_with, run};
pub use serve::serve;
pub use site::{Joining, join, site};
pub use summary::Summary;
pub use trained_model::{ModelChoice, TrainedModel};
