//! What a person should know before the rounds begin.

use crate::config::{ModelSource, hub};
use crate::error::Result;
use crate::forecast::gpu_memory::GpuMemory;
use crate::forecast::largest_batches::LargestBatches;
use crate::forecast::memory;
use crate::forecast::private::PrivacySummary;
use crate::forecast::run_memory::{self, RunMemory};
use crate::forecast::traffic::stages::Stages;
use crate::prepare::prepared::Prepared;
use crate::process::{available_bytes, resident_bytes};
use crate::text::grid::{counted, grouped};
use fedra_compute::{Device, Precision};
use fedra_hub::ModelName;
use fedra_plan::ByteCount;
use fedra_privacy::{Budget, shown};

use super::Run;

impl Run {
    /// What is about to learn from what, in a sentence.
    pub fn introduction(&self) -> String {
        let Prepared { model, shards, .. } = &self.prepared;
        let parameters = grouped(model.layout().elements() as u64);
        let examples: usize = shards.clients.iter().map(|shard| shard.train.len()).sum();
        let parties = self.experiment.raw.federation.clients.unwrap_or(shards.clients.len());
        format!(
            "{} with {} training examples, {} for testing; {} of {} blocks and {parameters} \
             parameters",
            counted(parties as u64, "client"),
            grouped(examples as u64),
            grouped(shards.central_test.len() as u64),
            self.model_in_words(),
            model.blocks(),
        )
    }

    /// Which kind of model learns, and where it comes from.
    pub(super) fn model_in_words(&self) -> String {
        let kind = if self.prepared.model.is_decoder() { "decoder" } else { "encoder" };
        match &self.experiment.model {
            ModelSource::Fresh(..) => format!("a fresh {kind}"),
            ModelSource::Folder(path) => match self.hub_model() {
                Some(name) => format!("the {kind} {name}"),
                None => format!("the {kind} in {}", path.display()),
            },
        }
    }

    /// The name of the model, where it is one of the hub.
    pub(super) fn hub_model(&self) -> Option<ModelName> {
        self.experiment.raw.model.path.as_deref().and_then(hub::name_of)
    }

    /// What a person should know before it runs, a line each: about the model, and what is odd about
    /// the data.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let about_model = self.prepared.notes.iter().map(|note| format!("note: {note}"));
        about_model.chain(self.data_notes.iter().cloned())
    }

    /// A warning when the budget does not bear all rounds.
    pub fn privacy_warning(&self) -> Result<Option<String>> {
        let Some(PrivacySummary { epsilon, guarantee, .. }) = self.privacy()? else {
            return Ok(None);
        };
        let over = |budget: Budget| epsilon.is_none_or(|epsilon| epsilon > budget.get());
        Ok(guarantee.budget.filter(|budget| over(*budget)).map(|budget| {
            let all = shown::up(epsilon.unwrap_or(f64::INFINITY), 3);
            format!(
                "warning: all rounds would bring epsilon to {all}, and privacy.epsilon is {budget}: the run ends \
                 before the round that would exceed it; without privacy.noise, Fedra chooses the noise for all \
                 rounds"
            )
        }))
    }

    /// A warning when the run will need more memory than there is.
    pub fn memory_warning(&self) -> Result<Option<String>> {
        let before = resident_bytes().zip(available_bytes());
        let of = (&self.experiment, &self.prepared, &self.recipe);
        let (stages, batches) = (Stages::of(of)?, LargestBatches::of(of));
        // The sides of a cut are measured.
        if self.recipe.split.is_none() {
            let sides = memory::sides(of, &stages.plans, &batches)?;
            let _the_same = self.foreseen.set(sides);
        }
        let placement = stages.placement(&self.experiment, &self.prepared);
        if let Device::Cuda(cuda) = &self.device {
            let at_once = run_memory::at_work(of, &placement);
            let needed = GpuMemory::of(of, (&stages.plans, at_once), &batches)?;
            let free = ByteCount(cuda.gpu().free);
            if let Some(needed) = needed.filter(|needed| needed.run > free) {
                return Ok(Some(too_large(&needed, free)));
            }
        }
        let Some((held, free)) = before else { return Ok(None) };
        let kept = (&placement, &stages.plans[..]);
        let needed = RunMemory::of(of, kept, &batches, ByteCount(held))?.total();
        Ok((needed.0 > held.saturating_add(free)).then(|| {
            let there = ByteCount(held.saturating_add(free));
            format!(
                "warning: the run needs about {needed} of memory, and {there} are available: the system may end \
                 it; fewer threads, a smaller work.batch or data.max_tokens need less"
            )
        }))
    }
}

/// That a GPU may lack the memory for a run.
fn too_large(needed: &GpuMemory, free: ByteCount) -> String {
    let GpuMemory { run, at_once, client, precision, .. } = needed;
    let fewer = if *at_once > 1 {
        format!("threads = 1 needs {client}, since fewer clients are at work at a time; ")
    } else {
        String::new()
    };
    let half = if *precision == Precision::Bf16 { "" } else { ", or precision = \"bf16\"," };
    format!(
        "warning: the run needs about {run} of the GPU's memory, and {free} are free: {fewer}a smaller work.batch or \
         data.max_tokens{half} needs less"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_may_be_too_small_is_told_with_what_needs_less() {
        let mut needed = GpuMemory {
            precision: Precision::F32,
            client: ByteCount(3_000_000_000),
            server: ByteCount(0),
            run: ByteCount(9_000_000_000),
            at_once: 4,
        };
        let free = ByteCount(8_000_000_000);
        assert_eq!(
            too_large(&needed, free),
            "warning: the run needs about 9.0 GB of the GPU's memory, and 8.0 GB are free: threads = 1 needs 3.0 GB, \
             since fewer clients are at work at a time; a smaller work.batch or data.max_tokens, or precision = \
             \"bf16\", needs less"
        );
        (needed.at_once, needed.precision) = (1, Precision::Bf16);
        assert!(
            too_large(&needed, free)
                .ends_with("free: a smaller work.batch or data.max_tokens needs less")
        );
    }
}
