//! What a federation looks like from outside while it is on: two small files in the run's folder.
//!
//! They are views for people and for other programs. Nothing of a run depends on them, nobody here reads
//! them back, and a disk that refuses them stops no round.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fedra_engine::{Activity, RoundProgress};
use fedra_plan::Round;
use serde::{Deserialize, Serialize};

/// How things stand.
pub const STATUS: &str = "status.json";
/// Who came and went, one object a line.
pub const EVENTS: &str = "events.jsonl";
/// The file is written no more often.
pub(super) const AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// While sites are waited for it is written at least so often.
const AT_LEAST_EVERY: Duration = Duration::from_secs(5);

/// How a federation stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// When this was written, in seconds since 1970.
    pub written: u64,
    /// The process that serves it.
    pub process: u32,
    /// Where sites find it; empty where nobody has to.
    #[serde(default)]
    pub place: String,
    /// What is going on.
    pub phase: FleetPhase,
    /// The round that is on, from 0.
    pub round: Round,
    /// How far the work inside the round is.
    #[serde(default)]
    pub progress: Option<RoundProgress>,
    /// The clients, in the order of their numbers; none where all are in the process itself.
    #[serde(default)]
    pub sites: Vec<SiteStatus>,
}

/// What is going on in a federation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetPhase {
    /// Sites are waited for before rounds begin.
    Waiting,
    /// Rounds are on.
    Running,
    /// A round had too few updates; clients that are away are waited for before it is repeated.
    Retrying,
    /// It has ended.
    Ended,
}

/// How a client stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteStatus {
    /// Its name.
    pub name: String,
    /// Whether it is there.
    pub here: bool,
    /// Why it is not, if it was.
    pub lost: Option<String>,
    /// For how many seconds it has been working on a request.
    pub working: Option<f64>,
    /// Its training examples.
    pub examples: u64,
    /// Bytes that went to it.
    pub sent: u64,
    /// Bytes received from a client.
    pub received: u64,
}

/// What the fleet remembers for these files.
#[derive(Debug)]
pub(super) struct Publication {
    pub folder: PathBuf,
    pub phase: FleetPhase,
    /// Since when each client works on a request.
    pub asked: BTreeMap<usize, Instant>,
    pub written: Option<Instant>,
    /// Whether something happened since.
    pub has_news: bool,
    /// What clients have been asked for, since when, and how many are done.
    pub work: Option<(Activity, Instant, u64, u64)>,
}

impl Publication {
    pub(super) fn new(folder: &Path) -> Self {
        let (phase, asked, written) = (FleetPhase::Waiting, BTreeMap::new(), None);
        Self { folder: folder.to_owned(), phase, asked, written, has_news: false, work: None }
    }

    /// Whether it is time to write again.
    pub(super) fn is_due(&self) -> bool {
        let after = if self.has_news { AT_MOST_EVERY } else { AT_LEAST_EVERY };
        self.written.is_none_or(|when| when.elapsed() >= after)
    }
}
