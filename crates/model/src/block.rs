//! One Transformer block, built from the properties of a configuration.
//!
//! ```text
//! after the residual   x = norm(h + attention(h))         h = norm(x + mlp(x))            BERT
//! before               x = h + attention(norm(h))         h = x + mlp(norm(x))            LLaMA
//! after                x = h + norm(attention(h))         h = x + norm(mlp(x))            OLMo 2
//! around               x = h + norm(attention(norm(h)))   h = x + norm(mlp(norm(x)))      Gemma 2
//! ```
//! Where there is layer scale, what a half adds is multiplied by factors first (`DINOv2`; norms before).
//! When only some rows are read afterwards, everything behind keys and values is computed for those rows alone.

use crate::config::{Config, NormKind, NormPlace, Positions, QkNorm, Rope};
use crate::error::ModelError;
use crate::packing::Packing;
use crate::parts::Parts;
use crate::reading::Reading;
use fedra_compute::{
    Angles, Attention, AttentionProbe, DropoutPlace, Mask, Projected, Span, Tape, Tensor, Value,
    Weight,
};
use fedra_plan::{Layer, Role};
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

/// The blocks of a model: its properties and the angles of its rotary positions.
#[derive(Clone, Debug)]
pub struct Blocks {
    config: Config,
    /// For blocks that see everything, and for those with a window.
    angles: [Arc<RwLock<Option<Arc<Angles>>>>; 2],
}

/// Rows that pass a block: their positions, and the angles of these where they turn.
struct Turned<'a> {
    positions: &'a [u32],
    angles: Option<Arc<Angles>>,
}

impl Blocks {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, angles: [Arc::default(), Arc::default()] }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// One block.
    pub(crate) fn run(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        hidden: &Value,
        (spans, reading, positions): (&[Span], &Reading, &[u32]),
        probe: Option<&mut AttentionProbe>,
    ) -> Result<Value, ModelError> {
        let geometry = self.geometry(parts);
        let turned = self.turned(parts, positions);
        let normed = self.norm_before(tape, parts, hidden, Role::AttentionNorm)?;
        let (attended, residual) = match reading {
            Reading::All => {
                let all = [Role::Query, Role::Key, Role::Value];
                let together = self.projected(tape, parts, &normed, &all, &turned)?;
                let projected = Projected::Together(&together);
                (tape.attention(geometry, projected, spans, probe)?, hidden.clone())
            }
            Reading::Rows(rows) => {
                let read = tape.rows(hidden, rows)?;
                let both = [Role::Key, Role::Value];
                let keys_values = self.projected(tape, parts, &normed, &both, &turned)?;
                let normed = match self.config.norm_place {
                    NormPlace::Before | NormPlace::Around => tape.rows(&normed, rows)?,
                    NormPlace::AfterResidual | NormPlace::After => read.clone(),
                };
                let at: Vec<u32> = rows.iter().map(|&row| positions[row as usize]).collect();
                let turned = Turned { positions: &at, ..turned };
                let queries = self.projected(tape, parts, &normed, &[Role::Query], &turned)?;
                let projected = Projected::Apart { queries: &queries, keys_values: &keys_values };
                (tape.attention(geometry, projected, spans, probe)?, read)
            }
        };
        drop(normed);
        self.behind_attention(tape, parts, attended, residual)
    }

    /// One block over new rows of sequences whose keys and values are kept; theirs are added.
    pub(crate) fn run_cached(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        hidden: &Value,
        (packing, positions): (&Packing, &[u32]),
        kept: Vec<&mut Tensor>,
    ) -> Result<Value, ModelError> {
        let Turned { positions, angles } = self.turned(parts, positions);
        let normed = self.norm_before(tape, parts, hidden, Role::AttentionNorm)?;
        let all = [Role::Query, Role::Key, Role::Value];
        // The cache turns them.
        let unturned = Turned { positions, angles: None };
        let projected = self.projected(tape, parts, &normed, &all, &unturned)?;
        drop(normed);
        let turned = angles.as_ref().map(|angles| (positions, angles));
        let into = (&*packing.cached_spans(), kept);
        let attended = tape.cached_attention(self.geometry(parts), projected, turned, into)?;
        self.behind_attention(tape, parts, attended, hidden.clone())
    }

    /// Some of queries, keys and values side by side, with their norms and turned by their positions.
    fn projected(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        x: &Value,
        roles: &[Role],
        turned: &Turned<'_>,
    ) -> Result<Value, ModelError> {
        let projections: Vec<_> =
            roles.iter().map(|role| parts.projection(*role)).collect::<Result<_, _>>()?;
        let mut together = tape.linear(x, &projections)?;
        let (heads, kv_heads) = (self.config.num_attention_heads, self.config.kv_heads());
        let mut turning = 0;
        let mut norms: Vec<(Range<usize>, Weight)> = Vec::new();
        for (of, count, norm) in
            [(Role::Query, heads, Role::QueryNorm), (Role::Key, kv_heads, Role::KeyNorm)]
        {
            if !roles.contains(&of) {
                continue;
            }
            if self.config.qk_norm != QkNorm::None {
                let width = self.config.head_width();
                norms.push((turning * width..(turning + count) * width, parts.weight(norm)?));
            }
            turning += count;
        }
        if !norms.is_empty() {
            let norms: Vec<_> = norms.iter().map(|(at, weight)| (at.clone(), weight)).collect();
            let offset = f32::from(u8::from(self.config.norm.kind == NormKind::RmsPlusOne));
            together = tape.norm_columns(together, &norms, self.epsilon(), offset)?;
        }
        match &turned.angles {
            Some(angles) => Ok(tape.rotary(together, turning, turned.positions, angles)?),
            None => Ok(together),
        }
    }

    /// The rest of a block.
    fn behind_attention(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        attended: Value,
        residual: Value,
    ) -> Result<Value, ModelError> {
        let x = self.onto(tape, parts, (attended, Role::Output), residual, Role::AttentionNorm)?;
        let normed = self.norm_before(tape, parts, &x, Role::MlpNorm)?;
        let activation = self.config.mlp.activation;
        let inner = if self.config.mlp.gated {
            let wide = [parts.projection(Role::Gate)?, parts.projection(Role::Up)?];
            tape.linear_gated(normed, wide, activation)?
        } else {
            tape.linear_activated(&normed, &parts.projection(Role::Up)?, activation)?
        };
        self.onto(tape, parts, (inner, Role::Down), x, Role::MlpNorm)
    }

    /// The last projection of a half, added to what went past it, with the norm that stands behind.
    fn onto(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        (inner, role): (Value, Role),
        residual: Value,
        norm: Role,
    ) -> Result<Value, ModelError> {
        let projection = parts.projection(role)?;
        if matches!(self.config.norm_place, NormPlace::After | NormPlace::Around) {
            let x = tape.linear(&inner, &[projection])?;
            drop(inner);
            let x = self.norm(tape, parts, &x, behind(norm))?;
            let x = tape.dropped(x, (parts.layer(), place(norm)))?;
            return Ok(tape.add(x, &residual)?);
        }
        if self.config.layer_scale {
            let x = tape.linear(&inner, &[projection])?;
            drop(inner);
            let x = tape.dropped(x, (parts.layer(), place(norm)))?;
            let x = tape.scale_columns(x, &parts.weight(scale(norm))?)?;
            return Ok(tape.add(x, &residual)?);
        }
        let x = if tape.drops_in(parts.layer()) {
            let x = tape.linear(&inner, &[projection])?;
            let x = tape.dropped(x, (parts.layer(), place(norm)))?;
            tape.add(x, &residual)?
        } else {
            tape.linear_onto(&inner, &projection, &residual)?
        };
        drop((inner, residual));
        match self.config.norm_place {
            NormPlace::AfterResidual => self.norm(tape, parts, &x, norm),
            NormPlace::Before | NormPlace::After | NormPlace::Around => Ok(x),
        }
    }

    /// The norm in front of a half, where there is one.
    fn norm_before(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        x: &Value,
        role: Role,
    ) -> Result<Value, ModelError> {
        let is_skipped = self.config.first_norm_skipped
            && (parts.layer(), role) == (Layer::Block(0), Role::AttentionNorm);
        match self.config.norm_place {
            NormPlace::Before | NormPlace::Around if !is_skipped => self.norm(tape, parts, x, role),
            NormPlace::Before | NormPlace::Around | NormPlace::AfterResidual | NormPlace::After => {
                Ok(x.clone())
            }
        }
    }

    /// A norm of the model's kind.
    pub(crate) fn norm(
        &self,
        tape: &mut Tape,
        parts: Parts<'_>,
        x: &Value,
        role: Role,
    ) -> Result<Value, ModelError> {
        let weight = parts.weight(role)?;
        Ok(match self.config.norm.kind {
            NormKind::Layer => {
                tape.layer_norm(x, &weight, Some(&parts.bias(role)?), self.epsilon())?
            }
            NormKind::LayerUnbiased => tape.layer_norm(x, &weight, None, self.epsilon())?,
            NormKind::Rms => tape.rms_norm(x, &weight, self.epsilon(), 0.0)?,
            NormKind::RmsPlusOne => tape.rms_norm(x, &weight, self.epsilon(), 1.0)?,
        })
    }

    fn epsilon(&self) -> f32 {
        self.config.norm.epsilon as f32
    }

    fn turned<'a>(&self, parts: Parts<'_>, positions: &'a [u32]) -> Turned<'a> {
        let angles = match (&self.config.positions, parts.layer()) {
            (Positions::Rotary(rope), Layer::Block(block)) => {
                let block = usize::from(block);
                let still = rope.unturned.get(block).copied().unwrap_or(false);
                let is_local = self.has_window(block) && rope.local_theta.is_some();
                (!still).then(|| self.angles(rope, positions, is_local))
            }
            (Positions::Rotary(_) | Positions::Learned { .. }, _) => None,
        };
        Turned { positions, angles }
    }

    /// The row of the table of angles for each token: its position; those of long texts, where they turn otherwise,
    /// stand behind all those of short ones.
    pub(crate) fn turns(&self, packing: &Packing, is_long: impl Fn(usize) -> bool) -> Vec<u32> {
        let Some(short) = self.config.longest_short_text() else { return packing.positions() };
        let places = packing.lengths().iter().zip(packing.offsets()).enumerate();
        let rows = |(sequence, (length, offset)): (usize, (&usize, &usize))| {
            let first = offset + if is_long(sequence) { short } else { 0 };
            first as u32..(first + length) as u32
        };
        places.flat_map(rows).collect()
    }

    /// Rotary angles for these rows. The configuration may promise millions, so a table is
    /// made for the positions that sequences really have, and made again when a longer one comes.
    fn angles(&self, rope: &Rope, positions: &[u32], is_local: bool) -> Arc<Angles> {
        let angles = &self.angles[usize::from(is_local)];
        let needed = positions.iter().max().map_or(0, |&last| last as usize + 1);
        let known = angles.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.positions() >= needed) {
            return known;
        }
        let mut table = angles.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table.as_ref().filter(|known| known.positions() >= needed) {
            return Arc::clone(known);
        }
        // Powers of two: sequences of all lengths cost a handful of tables.
        let most = self.config.max_position_embeddings.max(needed);
        let length = needed.next_power_of_two().min(most);
        let head_width = self.config.head_width();
        let rope = match rope.local_theta.filter(|_| is_local) {
            Some(theta) => &Rope::plain(theta),
            None => rope,
        };
        let (frequencies, factor) = (rope.frequencies(head_width), rope.attention_factor());
        let angles = match rope.long_frequencies(head_width) {
            None => Angles::of_frequencies(length, &frequencies, factor),
            Some((long, short)) => {
                let behind = needed.saturating_sub(short).next_power_of_two().min(most);
                let behind = if needed > short { behind } else { 0 };
                let length = if needed > short { short } else { length.min(short) };
                Angles::of_frequencies(length, &frequencies, factor)
                    .followed_by(&Angles::of_frequencies(behind, &long, factor))
            }
        };
        Arc::clone(table.insert(Arc::new(angles)))
    }

    fn has_window(&self, block: usize) -> bool {
        self.config.window.as_ref().is_some_and(|window| window.is_of(block))
    }

    fn geometry(&self, parts: Parts<'_>) -> Attention {
        let config = &self.config;
        let mask = if config.causal { Mask::Causal } else { Mask::Bidirectional };
        let block = parts.layer().block().map_or(0, usize::from);
        let window = config.window.as_ref().filter(|window| window.is_of(block));
        let (heads, kv_heads) = (config.num_attention_heads, config.kv_heads());
        let usual = Attention::new(heads, kv_heads, config.head_width(), mask);
        Attention {
            window: window.map(|window| window.distance),
            scale: config.score_divisor.map_or(usual.scale, |of| (1.0 / of.sqrt()) as f32),
            soft_cap: config.score_cap.map(|cap| cap as f32),
            ..usual
        }
    }
}

/// Where dropout stands behind the half that has this norm.
const fn place(norm: Role) -> DropoutPlace {
    if matches!(norm, Role::AttentionNorm) { DropoutPlace::Attention } else { DropoutPlace::Mlp }
}

/// The norm behind a half, beside that in front of it.
const fn behind(norm: Role) -> Role {
    if matches!(norm, Role::AttentionNorm) {
        Role::AttentionOutputNorm
    } else {
        Role::MlpOutputNorm
    }
}

/// The factors of a half, beside the norm in front of it.
const fn scale(norm: Role) -> Role {
    if matches!(norm, Role::AttentionNorm) { Role::AttentionScale } else { Role::MlpScale }
}
