//! How far the attention of the global model has moved, measured where the data are.
//!
//! Before a round, each client of the cohort looks at a fixed sample of **its own training
//! examples** with the model of the round and sends one attention score a block: eight bytes each,
//! which count as bytes up. The sample comes from the seed without the round, so a client looks at
//! the same examples every time. Scores are compared with the same client's earlier ones: those of
//! its last answer and those of its first. It costs a forward pass and is off unless asked for.

use std::collections::BTreeMap;

use fedra_plan::{ByteCount, Probe};
use fedra_wire::ClientId;
use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::exact::Exact;
use crate::federation::Federation;
use crate::fleet::{Evidence, Fleet, Inquiry};

/// Bytes of one score on its way up.
pub const SCORE_BYTES: u64 = 8;

/// How attention moved, as mean absolute differences of attention scores over clients and blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionDrift {
    /// Since each client last answered; absent when none has answered before.
    pub since_last: Option<f64>,
    /// Since each client first answered; absent when none has answered before.
    pub since_first: Option<f64>,
    /// The latter, block by block.
    pub blocks: Vec<f64>,
    /// Clients that answered.
    pub clients: usize,
}

/// What clients answered: at first and at last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttentionMemory {
    first: BTreeMap<ClientId, Vec<Exact>>,
    last: BTreeMap<ClientId, Vec<Exact>>,
}

impl Federation {
    /// Asks the cohort how its attention lies, if the recipe wants to know; what it sent weighs so
    /// many bytes.
    pub(crate) fn look(
        &mut self,
        fleet: &mut dyn Fleet,
        cohort: &[ClientId],
    ) -> Result<(Option<AttentionDrift>, ByteCount), EngineError> {
        let Some(probe) = self.recipe.evaluation.attention else {
            return Ok((None, ByteCount(0)));
        };
        if probe == Probe::Nothing || cohort.is_empty() {
            return Ok((None, ByteCount(0)));
        }
        let evidence = fleet.probe(&Inquiry {
            model: &self.model,
            probe,
            clients: cohort,
            round: self.round,
            seed: self.seed.of("attention"),
            examples: self.recipe.selection.profile_examples,
        })?;
        let scores: usize = evidence.iter().map(|one| one.scores.as_slice().len()).sum();
        Ok((Some(self.diary.attention.note(&evidence)), ByteCount(SCORE_BYTES * scores as u64)))
    }
}

impl AttentionMemory {
    fn note(&mut self, evidence: &[Evidence]) -> AttentionDrift {
        let since_last = Self::moved(&self.last, evidence);
        let since_first = Self::moved(&self.first, evidence);
        for one in evidence {
            let scores: Vec<Exact> = one.scores.as_slice().iter().copied().map(Exact).collect();
            self.first.entry(one.client).or_insert_with(|| scores.clone());
            self.last.insert(one.client, scores);
        }
        let mean = |blocks: &Vec<f64>| blocks.iter().sum::<f64>() / blocks.len().max(1) as f64;
        AttentionDrift {
            since_last: since_last.as_ref().map(mean),
            since_first: since_first.as_ref().map(mean),
            blocks: since_first.unwrap_or_default(),
            clients: evidence.len(),
        }
    }

    /// Block by block, the mean difference over the clients that answered both times.
    fn moved(earlier: &BTreeMap<ClientId, Vec<Exact>>, evidence: &[Evidence]) -> Option<Vec<f64>> {
        let both = evidence
            .iter()
            .filter_map(|one| Some((one.scores.as_slice(), earlier.get(&one.client)?)));
        let (mut sums, mut clients) = (Vec::new(), 0.0);
        for (now, before) in both {
            sums.resize(now.len().max(sums.len()), 0.0);
            for ((sum, now), before) in sums.iter_mut().zip(now).zip(before) {
                *sum += (now - before.0).abs();
            }
            clients += 1.0;
        }
        (clients > 0.0).then(|| sums.into_iter().map(|sum| sum / clients).collect())
    }
}
