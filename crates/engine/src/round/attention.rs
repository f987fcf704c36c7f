//! How the attention of the cohort has moved, asked before a round.

use fedra_plan::ByteCount;
use fedra_wire::ClientId;

use crate::aggregate::attention::{AttentionDrift, SHIFT_BYTES};
use crate::aggregate::drift::DriftReport;
use crate::error::EngineError;
use crate::protocol::fleet::{AttentionRequest, AttentionShift, ClientAttention, Fleet};
use crate::state::State;

impl State {
    /// Asks the cohort how its attention has moved, if the recipe wants to know; what it sent
    /// weighs so many bytes.
    pub(crate) fn look(
        &mut self,
        fleet: &mut dyn Fleet,
        cohort: &[ClientId],
    ) -> Result<(Option<AttentionDrift>, ByteCount), EngineError> {
        if !self.recipe.evaluation.attention || cohort.is_empty() {
            return Ok((None, ByteCount(0)));
        }
        let (clients, seed) = (cohort, self.seed.of("attention"));
        let request = AttentionRequest { clients, revocable: true, seed };
        let shifts = fleet.compare_attention(&request)?;
        let moved: Vec<&AttentionShift> =
            shifts.iter().filter_map(|shift: &ClientAttention| shift.moved.as_ref()).collect();
        let blocks: usize = moved.iter().map(|moved| moved.since_first.len()).sum();
        Ok((Some(AttentionDrift::of(&moved)), ByteCount(SHIFT_BYTES * blocks as u64)))
    }
}

/// Both halves of what a round knows about going apart, or what there is of them.
pub(super) fn joined(
    drift: Option<DriftReport>,
    attention: Option<AttentionDrift>,
) -> Option<DriftReport> {
    match (drift, attention) {
        (None, None) => None,
        (drift, attention) => Some(DriftReport { attention, ..drift.unwrap_or_default() }),
    }
}
