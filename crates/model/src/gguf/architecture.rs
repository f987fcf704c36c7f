//! The architectures of the format, as data: which family each is, and how its files differ from that family's folders.
//!
//! What is not listed here is the same for all: the keys of sizes, the names of tensors, and that an output
//! vocabulary is shared where the file has none.

use super::metadata::Metadata;
use crate::error::ModelError;

/// One architecture.
#[derive(Debug)]
pub(super) struct Architecture {
    /// What `general.architecture` says, and what its keys begin with.
    pub name: &'static str,
    /// What `config.json` of a folder says.
    pub model_type: &'static str,
    pub positions: Positions,
    pub windows: Windows,
    /// How scores are scaled, where it is not by the width of a head.
    pub score: Score,
}

/// How positions are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Positions {
    /// A table.
    Learned,
    /// Rotary, with the rows of query and key heads in the order of a folder.
    Halves,
    /// Rotary, with the rows of each pair side by side.
    Interleaved,
}

/// What a width under `attention.sliding_window` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Windows {
    /// Nothing that is known here.
    Refused,
    /// The window of the family; if the file has none, this one.
    Own { absent: Option<u64> },
    /// That the model is of another family, which has windows.
    OtherFamily(&'static str),
}

/// How scores of attention are scaled; no key says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Score {
    /// By the width of a head.
    Head,
    /// The same, written as `query_pre_attn_scalar`; by width / heads in the model with this many blocks.
    Scalar { largest: u64 },
}

const PLAIN: Architecture = Architecture {
    name: "llama",
    model_type: "llama",
    positions: Positions::Halves,
    windows: Windows::Refused,
    score: Score::Head,
};

static ALL: [Architecture; 10] = [
    Architecture {
        positions: Positions::Interleaved,
        windows: Windows::OtherFamily("mistral"),
        ..PLAIN
    },
    Architecture { name: "qwen2", model_type: "qwen2", ..PLAIN },
    Architecture { name: "qwen3", model_type: "qwen3", ..PLAIN },
    Architecture { name: "gemma", model_type: "gemma", ..PLAIN },
    Architecture {
        name: "gemma2",
        model_type: "gemma2",
        windows: Windows::Own { absent: Some(4096) },
        score: Score::Scalar { largest: 46 },
        ..PLAIN
    },
    Architecture {
        name: "gemma3",
        model_type: "gemma3_text",
        windows: Windows::Own { absent: None },
        score: Score::Scalar { largest: 62 },
        ..PLAIN
    },
    Architecture {
        name: "phi3",
        model_type: "phi3",
        windows: Windows::Own { absent: None },
        ..PLAIN
    },
    Architecture { name: "olmo2", model_type: "olmo2", ..PLAIN },
    Architecture {
        name: "smollm3",
        model_type: "smollm3",
        positions: Positions::Interleaved,
        ..PLAIN
    },
    Architecture { name: "gpt2", model_type: "gpt2", positions: Positions::Learned, ..PLAIN },
];

impl Architecture {
    /// The one that a file names.
    pub fn of(metadata: &Metadata) -> Result<&'static Self, ModelError> {
        let key = "general.architecture";
        let name = metadata.text(key)?;
        ALL.iter().find(|known| Some(known.name) == name).ok_or_else(|| {
            let names: Vec<String> = ALL.iter().map(|known| format!("{:?}", known.name)).collect();
            metadata.refuse(key, format!("one of {}", names.join(", ")))
        })
    }

    /// A key of this architecture.
    pub fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }
}
