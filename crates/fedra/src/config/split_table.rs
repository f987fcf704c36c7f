//! `[split]`: a model cut between clients and server, as written.

use std::collections::BTreeMap;

use fedra_engine::{Ends, Move, Noise, NoiseDraw, NoiseKind, Split, SplitMode};
use fedra_plan::ByteCount;
use fedra_wire::RowEncoding;
use serde::{Deserialize, Serialize};

use crate::config::complaint::Complaint;

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
    pub clients: BTreeMap<String, Ends>,
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

/// `[split.noise]`
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NoiseTable {
    /// Which formula.
    pub kind: Formula,
    /// `relative`: noise in units of the row's root mean square.
    pub gamma: Option<f64>,
    /// `clipped`: the largest norm of a row.
    pub norm: Option<f64>,
    /// `clipped`: noise in units of that norm.
    pub sigma: Option<f64>,
    /// `absolute`: the mean absolute value of the noise.
    pub scale: Option<f64>,
    /// Whether an example meets new noise each time; under a promise it does unless given.
    pub draw: Option<NoiseDraw>,
    /// Whether gradients that leave a client get it too; they do unless given.
    pub gradients: Option<bool>,
    /// `clipped`: the largest norm of a gradient's row; `norm` unless given.
    pub gradient_norm: Option<f64>,
}

/// How large noise is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Formula {
    /// In units of the row.
    #[default]
    Relative,
    /// In units of a norm to which rows are clipped.
    Clipped,
    /// As given.
    Absolute,
}

impl SplitTable {
    /// The memory that a client has, if that decides.
    pub fn memory(&self) -> Result<Option<ByteCount>, Complaint> {
        let Some(written) = &self.client_memory else { return Ok(None) };
        let refuse = |_| {
            let expected = "a size such as \"2 GB\"";
            Complaint::new("split.client_memory", format!("{written:?}"), expected)
        };
        written.parse::<ByteCount>().map(Some).map_err(refuse)
    }

    /// The cut as the engine takes it, where draws of noise are these unless given.
    pub fn split(&self, draw: NoiseDraw) -> Result<Split, Complaint> {
        if self.client_memory.is_some() && (self.first.is_some() || self.last.is_some()) {
            let expected = "either a memory, or first and last";
            return Err(Complaint::new("split.client_memory", "it beside a fixed cut", expected));
        }
        let others = !(self.clients.is_empty() && self.moves.is_empty());
        if self.client_memory.is_some() && others {
            let expected = "either a memory, or clients and moves with cuts of their own";
            return Err(Complaint::new("split.client_memory", "it beside other cuts", expected));
        }
        let of_one_cut = match self.ends {
            EndsAre::Shared => None,
            EndsAre::Personal => Some("\"personal\""),
            EndsAre::Frozen => Some("\"frozen\""),
        };
        if let (Some(found), true) = (of_one_cut, others) {
            let expected = "\"shared\" where cuts differ: whose a block is must not change";
            return Err(Complaint::new("split.ends", found, expected));
        }
        self.memory()?;
        let ends = Ends { first: self.first.unwrap_or(1), last: self.last.unwrap_or(1) };
        Ok(Split {
            clients: self.clients.clone(),
            moves: self.moves.clone(),
            mode: self.mode,
            average_every: self.average_every,
            encoding: self.encoding,
            noise: self.noise.map(|noise| noise.noise(draw)).transpose()?,
            ..Split::new(ends)
        })
    }
}

impl NoiseTable {
    fn noise(self, draw: NoiseDraw) -> Result<Noise, Complaint> {
        let numbers = [
            ("split.noise.gamma", self.gamma, Formula::Relative),
            ("split.noise.norm", self.norm, Formula::Clipped),
            ("split.noise.sigma", self.sigma, Formula::Clipped),
            ("split.noise.scale", self.scale, Formula::Absolute),
        ];
        for (key, value, formula) in numbers {
            match (value, formula == self.kind) {
                (Some(_), true) | (None, false) => {}
                (None, true) => return Err(Complaint::new(key, "nothing", "a number")),
                (Some(value), false) => {
                    let kind = format!("{:?}", self.kind).to_lowercase();
                    let expected = format!("none: split.noise.kind is {kind}");
                    return Err(Complaint::new(key, value, expected));
                }
            }
        }
        if let (Some(norm), Formula::Relative | Formula::Absolute) = (self.gradient_norm, self.kind)
        {
            let expected = "it with split.noise.kind = \"clipped\" alone";
            return Err(Complaint::new("split.noise.gradient_norm", norm, expected));
        }
        let of = |value: Option<f64>| value.unwrap_or_default();
        let kind = match self.kind {
            Formula::Relative => NoiseKind::Relative { gamma: of(self.gamma) },
            Formula::Clipped => NoiseKind::Clipped { norm: of(self.norm), sigma: of(self.sigma) },
            Formula::Absolute => NoiseKind::Absolute { scale: of(self.scale) },
        };
        let (draw, gradients) = (self.draw.unwrap_or(draw), self.gradients.unwrap_or(true));
        Ok(Noise { kind, draw, gradients, gradient_norm: self.gradient_norm })
    }
}
