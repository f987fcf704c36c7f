//! Federated fine-tuning of Transformers across organisations that may not share their data.
//!
//! An [`Experiment`] names the clients and their rows, the model and the method. It comes from a
//! TOML file, from a text, or from values ([`config::RawConfig`]). [`plan()`] says what it would send and
//! cost, [`run()`] runs it in a folder, [`compare()`] runs several of them over seeds,
//! [`advise()`] proposes when to freeze query and key, and [`study::shadow`] trains shadow models for membership
//! inference. Three hospitals learn to mark problems, tests and
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
//! Your own method is a [`Recipe`](engine::Recipe) ([`Experiment::with_recipe`],
//! `examples/own_method.rs`). Your own data are rows ([`Experiment::of_rows`], `examples/own_data.rs`), or records that
//! are read by the columns of `[data]` as those of a file ([`ParsedExperiment::over_records`]).
//!
//! The library prints nothing and installs no signal handler. Notes and progress go to a
//! [`Listener`], which may also ask a run to stop. Files are written to the folder that the caller
//! names and nowhere else; a [`ScratchFolder`] is one that goes when nobody holds it.

#![forbid(unsafe_code)]

pub mod config;
pub mod error;
pub mod listener;
pub mod prepare;
pub mod run;

pub mod folder;
pub mod forecast;
pub mod report;

pub mod init;
pub mod study;

pub mod apply;

pub mod process;
pub mod run_files;
pub mod text;

/// The engine: recipes, rounds, reports.
pub use fedra_engine as engine;

/// Charts and pages.
pub use fedra_report as pages;

/// Rows, tables, formats, partitions, tokenizers.
pub use fedra_data as data;

/// Models and their folders.
pub use fedra_model as model;

/// Models of the Hugging Face hub.
pub use fedra_hub as hub;

/// Which part of a model: parameters, scopes, rules.
pub use fedra_plan as plan;

/// Clients that train in this process.
pub use fedra_client as client;

/// Tensors and devices.
pub use fedra_compute as compute;

pub use apply::evaluate::{evaluate, evaluate_on};
pub use apply::trained_model::{ModelChoice, TrainedModel};
pub use config::{Experiment, Overrides, ParsedExperiment};
pub use error::ConfigError;
pub use error::{Error, Result};
pub use folder::lock::is_at_work;
pub use folder::output_folder::OverwritePolicy;
pub use folder::scratch::ScratchFolder;
pub use folder::summary::Summary;
pub use listener::{Listener, Silent};
pub use run::federate::{Ending, Run};
pub use run::plan_report::{PlanReport, plan, plan_of, plan_with};
pub use run::serve::serve;
pub use run::site::{Joining, join, site};
pub use run::start::{Machine, Output, Resumed, prepare, resume, resume_with, run};
pub use study::advise::advise;
pub use study::compare::compare;
