//! Where a round's evidence about blocks comes from: clients that measure, or, where a guarantee does not
//! allow that, what was released anyway, public text, or measurements under noise.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use fedra_plan::{ByteCount, Probe, Round, Scope, Side};
use fedra_privacy::{NoiseMultiplier, Release, Unit};
use fedra_wire::{ClientId, Measured};

use crate::error::EngineError;
use crate::privacy::{BLOCK_SCORES, Privacy, PrivateSelection, noised_scores};
use crate::protocol::fleet::{ClientInfo, Evidence, Fleet, ProbeRequest};
use crate::state::State;

/// What was found, and what it cost.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) measured: Vec<Measured>,
    /// The clients that measured.
    pub(super) answered: BTreeSet<ClientId>,
    pub(super) up: ByteCount,
    pub(super) effort: u64,
}

impl State {
    /// Evidence for a choice that is due.
    pub(super) fn survey(
        &mut self,
        fleet: &mut dyn Fleet,
        probe: Probe,
        cohort: &[&ClientInfo],
    ) -> Result<Survey, EngineError> {
        let privacy = self.recipe.privacy.as_ref();
        let Some((unit, way)) = privacy.map(|it| (it.guarantee.unit, it.selection)) else {
            return self.ask_some(fleet, (probe, None), cohort);
        };
        match (way, unit) {
            (PrivateSelection::NoisyUpdate, _) => {
                Ok(self.by_server(self.memory.released_scores(self.layout.blocks())))
            }
            (PrivateSelection::Public, _) => {
                let Some(public) = &self.public else {
                    let reason = "no public text to measure blocks on".to_owned();
                    return Err(EngineError::Privacy { reason });
                };
                let scores = public.probe(probe, &self.model)?;
                Ok(self.by_server(scores.as_slice().iter().map(|score| *score as f32).collect()))
            }
            (PrivateSelection::PrivateUnaccounted, _) => {
                let what = "block scores that clients measured".to_owned();
                let why = "the choice of blocks uses them without noise".to_owned();
                self.announce_scores([(None, Release::NonPrivate { what, why })])?;
                match unit {
                    Unit::Example => self.ask_some(fleet, (probe, None), cohort),
                    // The choice may stay what it was, but a run does not end for want of a client.
                    Unit::Client => self.ask(fleet, (probe, None), cohort),
                }
            }
            (PrivateSelection::Gaussian { noise }, Unit::Example) => {
                let releases = self.score_releases(noise, cohort);
                self.announce_scores(releases)?;
                self.ask_some(fleet, (probe, Some(noise)), cohort)
            }
            (PrivateSelection::Gaussian { noise }, Unit::Client) => {
                // Of nobody's scores there is as much noise as of everybody's.
                let told = self.ask(fleet, (probe, None), cohort)?;
                let scores = self.noised_mean(&told.measured, noise, fleet.clients().len())?;
                let Survey { measured, .. } = self.by_server(scores);
                Ok(Survey { measured, answered: BTreeSet::new(), ..told })
            }
        }
    }

    /// Lets clients measure, of whom at least one has to.
    fn ask_some(
        &self,
        fleet: &mut dyn Fleet,
        (probe, noise): (Probe, Option<NoiseMultiplier>),
        cohort: &[&ClientInfo],
    ) -> Result<Survey, EngineError> {
        let survey = self.ask(fleet, (probe, noise), cohort)?;
        if survey.measured.is_empty() {
            return Err(EngineError::Unmeasured { round: self.round.0 + 1, probe });
        }
        Ok(survey)
    }

    /// Lets clients measure, under noise of their own where it is given.
    fn ask(
        &self,
        fleet: &mut dyn Fleet,
        (probe, noise): (Probe, Option<NoiseMultiplier>),
        cohort: &[&ClientInfo],
    ) -> Result<Survey, EngineError> {
        if cohort.is_empty() {
            return Ok(Survey::default());
        }
        let (round, examples) = (self.round, self.recipe.selection.profile_examples);
        let clients: Vec<ClientId> = cohort.iter().map(|client| client.id).collect();
        let evidence = fleet.probe(&ProbeRequest {
            probe,
            clients: &clients,
            round,
            seed: self.seed.of("probe").with(u64::from(round.0)),
            examples,
            noise,
            split: self.recipe.split.as_ref(),
        })?;
        let (measured, up) = travel(&evidence, round, self.layout.blocks())?;
        let answered: BTreeSet<ClientId> = measured.iter().map(|one| one.client).collect();
        let mut effort = 0;
        for client in cohort.iter().filter(|client| answered.contains(&client.id)) {
            let looked = client.examples.min(u64::from(examples));
            let plan = self.recipe.plan((&client.name, round), Scope::empty(), &self.layout)?;
            effort += plan.probing_work(Side::Client, &self.layout, (probe, looked));
        }
        Ok(Survey { measured, answered, up, effort })
    }

    /// Scores that the server found by itself.
    fn by_server(&self, scores: Vec<f32>) -> Survey {
        let measured = vec![Measured { round: self.round, client: ClientId::SERVER, scores }];
        Survey { measured, ..Survey::default() }
    }

    /// What noised scores release about the examples of each client.
    fn score_releases(
        &self,
        noise: NoiseMultiplier,
        cohort: &[&ClientInfo],
    ) -> Vec<(Option<String>, Release)> {
        let blocks = self.layout.blocks();
        let most = u64::from(self.recipe.selection.profile_examples);
        let release = |client: &&ClientInfo| {
            let looked = (blocks, client.examples.min(most));
            (Some(client.name.clone()), noised_scores(noise, looked, NonZeroU64::MIN))
        };
        cohort.iter().map(release).collect()
    }

    /// The clients' scores, each from 0 to 1, summed, with noise, over a public number.
    fn noised_mean(
        &self,
        measured: &[Measured],
        noise: NoiseMultiplier,
        registered: usize,
    ) -> Result<Vec<f32>, EngineError> {
        let blocks = usize::from(self.layout.blocks());
        let divisor = Privacy::rate(self.recipe.sampler)? * registered as f64;
        let mut sums = vec![0.0_f32; blocks];
        for one in measured {
            for (sum, score) in sums.iter_mut().zip(&one.scores) {
                // No number is no score.
                *sum += if score.is_nan() { 0.0 } else { score.clamp(0.0, 1.0) };
            }
        }
        let key = self.noise.of(BLOCK_SCORES).with(u64::from(self.round.0));
        key.add_normal(&mut sums, 0, (noise.get() * (blocks as f64).sqrt()) as f32);
        Ok(sums.into_iter().map(|sum| (f64::from(sum) / divisor) as f32).collect())
    }
}

/// Scores as the server receives them: through real messages. One that cannot be read is no answer.
fn travel(
    evidence: &[Evidence],
    round: Round,
    blocks: u16,
) -> Result<(Vec<Measured>, ByteCount), EngineError> {
    let (mut measured, mut length) = (Vec::with_capacity(evidence.len()), ByteCount(0));
    for one in evidence {
        let scores = one.scores.as_slice().iter().map(|score| *score as f32).collect();
        let bytes = Measured { round, client: one.client, scores }.encode()?;
        length += ByteCount(bytes.len() as u64);
        measured.extend(Measured::decode(&bytes, (round, one.client), blocks));
    }
    Ok((measured, length))
}
