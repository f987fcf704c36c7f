//! Sending less of a block than all of it.

use serde::{Deserialize, Serialize};

/// What of a block goes up: `0.25`, `{ share = 0.25, feedback = false }` or `{ heads = 0.5 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub enum Pruning {
    /// The entries that changed most.
    Entries {
        /// Which share of a parameter's entries goes up.
        share: f64,
        /// Whether a client adds what it left out to its next update.
        feedback: bool,
    },
    /// Of attention, the heads through which most of the relevant attention passes; the rest of a
    /// block goes whole. What the other heads have learnt is dropped.
    Heads {
        /// Which share of the heads goes up.
        share: f64,
        /// How many heads the model has, where query heads that share a key head are one. A file
        /// does not say; whoever knows the model has to fill it in.
        of: u16,
    },
}

impl Pruning {
    /// Which share is kept.
    pub const fn share(self) -> f64 {
        match self {
            Self::Entries { share, .. } | Self::Heads { share, .. } => share,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a share such as 0.25, { share = 0.25, feedback = false } or \
                 { heads = 0.5 }"
)]
enum Written {
    Share(f64),
    Entries(Entries),
    Heads(Heads),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    share: f64,
    #[serde(default = "feedback")]
    feedback: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Heads {
    heads: f64,
}

const fn feedback() -> bool {
    true
}

impl From<Written> for Pruning {
    fn from(written: Written) -> Self {
        match written {
            Written::Share(share) => Self::Entries { share, feedback: true },
            Written::Entries(Entries { share, feedback }) => Self::Entries { share, feedback },
            Written::Heads(Heads { heads }) => Self::Heads { share: heads, of: 0 },
        }
    }
}

impl From<Pruning> for Written {
    fn from(pruning: Pruning) -> Self {
        match pruning {
            Pruning::Entries { share, feedback } => Self::Entries(Entries { share, feedback }),
            Pruning::Heads { share, of: _ } => Self::Heads(Heads { heads: share }),
        }
    }
}
