//! `[split]`: a model cut between clients and server, as written.

use std::collections::BTreeMap;

use fedra_engine::{ClientBlocks, Move, Noise, NoiseDraw, NoiseKind, SplitConfig, SplitMode};
use fedra_plan::ByteCount;
use fedra_wire::RowEncoding;
use serde::{Deserialize, Serialize};

use crate::config::ConfigError;

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SplitTable {
    /// Blocks behind the embedding that a client keeps (p); 1 unless given.
    pub first: Option<u16>,
    /// Blocks in front of the head that a client keeps (q); 1 unless given.
    pub last: Option<u16>,
    /// Memory that a client has; as many blocks as fit stay with it, in place of `first` and `last`.
    pub client_memory: Option<String>,
    /// What the clients of these names keep.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub clients: BTreeMap<String, ClientBlocks>,
    /// Cuts that move: from a round on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<Move>,
    /// Whom the server serves when.
    pub mode: SplitMode,
    /// With `replicated`: average the copies after every so many steps too.
    pub average_every: Option<u32>,
    /// Whether the clients' ends are averaged, or each client keeps its own.
    pub ends: EndsAre,
    /// How rows are written.
    pub encoding: RowEncoding,
    /// What is added to rows before they leave a client.
    pub noise: Option<NoiseTable>,
}

/// Whose the clients' ends are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndsAre {
    /// Everybody's: averaged each round.
    #[default]
    Shared,
    /// Each client's own: they never leave it.
    Personal,
    /// Everybody's, and they stay as they began.
    Frozen,
}

/// `[split.noise]`: how large noise is, and where it is added.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum NoiseTable {
    /// In units of the row's root mean square.
    Relative {
        /// The noise in those units.
        gamma: f64,
        /// Whether an example meets new noise each time; under a guarantee it does unless given.
        draw: Option<NoiseDraw>,
        /// Whether gradients that leave a client get it too; they do unless given.
        gradients: Option<bool>,
    },
    /// In units of a norm to which rows are clipped.
    Clipped {
        /// The largest norm of a row.
        norm: f64,
        /// The noise in units of it.
        sigma: f64,
        /// The largest norm of a gradient's row; `norm` unless given.
        gradient_norm: Option<f64>,
        /// As above.
        draw: Option<NoiseDraw>,
        /// As above.
        gradients: Option<bool>,
    },
    /// The same for every row.
    Absolute {
        /// The mean absolute value of the noise.
        scale: f64,
        /// As above.
        draw: Option<NoiseDraw>,
        /// As above.
        gradients: Option<bool>,
    },
}

/// Of a model that is cut between clients and server: what follows from the model itself.
#[derive(Clone, Copy, Debug)]
pub struct CutChoice {
    /// A client's memory, where that decides where the cut is.
    pub memory: Option<ByteCount>,
    /// Whose the clients' ends are.
    pub ends: EndsAre,
}

impl SplitTable {
    /// What of the cut waits for the model.
    pub(super) fn cut(&self) -> Result<CutChoice, ConfigError> {
        let key = "split.client_memory";
        let read = |written: &String| {
            let refuse =
                |_| ConfigError::new(key, format!("{written:?}"), "a size such as \"2 GB\"");
            written.parse::<ByteCount>().map_err(refuse)
        };
        let memory = self.client_memory.as_ref().map(read).transpose()?;
        ConfigError::excludes(key, "first and last")
            .when(memory.is_some() && (self.first.is_some() || self.last.is_some()))?;
        ConfigError::excludes(key, "clients and moves, which set their own cuts")
            .when(memory.is_some() && self.has_several())?;
        Ok(CutChoice { memory, ends: self.ends })
    }

    /// The cut as the engine takes it, where draws of noise are these unless given.
    pub(super) fn split(&self, draw: NoiseDraw) -> Result<SplitConfig, ConfigError> {
        ConfigError::sentence("split.ends", "cuts that differ need \"shared\" ends")
            .when(self.ends != EndsAre::Shared && self.has_several())?;
        let ends = ClientBlocks { first: self.first.unwrap_or(1), last: self.last.unwrap_or(1) };
        Ok(SplitConfig {
            clients: self.clients.clone(),
            moves: self.moves.clone(),
            mode: self.mode,
            average_every: self.average_every,
            encoding: self.encoding,
            noise: self.noise.map(|noise| noise.noise(draw)),
            ..SplitConfig::new(ends)
        })
    }

    /// Whether there are cuts beside the one of `first` and `last`.
    fn has_several(&self) -> bool {
        !(self.clients.is_empty() && self.moves.is_empty())
    }
}

impl NoiseTable {
    fn noise(self, usual: NoiseDraw) -> Noise {
        let (kind, gradient_norm, draw, gradients) = match self {
            Self::Relative { gamma, draw, gradients } => {
                (NoiseKind::Relative { gamma }, None, draw, gradients)
            }
            Self::Clipped { norm, sigma, gradient_norm, draw, gradients } => {
                (NoiseKind::Clipped { norm, sigma }, gradient_norm, draw, gradients)
            }
            Self::Absolute { scale, draw, gradients } => {
                (NoiseKind::Absolute { scale }, None, draw, gradients)
            }
        };
        let (draw, gradients) = (draw.unwrap_or(usual), gradients.unwrap_or(true));
        Noise { kind, draw, gradients, gradient_norm }
    }
}
