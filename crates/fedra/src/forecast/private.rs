//! What a private run will have spent, told before it begins, and the noise that a wished epsilon needs.
//!
//! Which clients take part in which rounds follows from the seed, and what each of them releases from its
//! number of examples: so the ledger of the whole run can be written beforehand. Only clients that fail
//! make the real one shorter, and only rounds that have to be drawn again make it longer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::num::NonZeroU64;

use fedra_data::Task;
use fedra_engine::{
    BLOCK_SCORES, ClientBlocks, ClientId, EXAMPLE_GRADIENTS, EndsLearn, EngineError, LayerNoise,
    Population, Privacy, PrivateSelection, Recipe, RoundReport, Sampler, joint_noise,
    noised_scores,
};
use fedra_plan::{Layer, Layout, Round, Rule};
use fedra_privacy::{
    Event, Guarantee, Ledger, NO_PROTECTION, NoiseMultiplier, PrivacyError, Release, Spent, Unit,
    calibration, shown,
};
use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, Experiment};
use crate::error::Result;
use crate::forecast::traffic::stretches::stretches;
use crate::prepare::client_counts::ClientCounts;

/// What a run guarantees and what it spent, or will have spent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrivacySummary {
    /// Epsilon at the end, by privacy loss distributions; absent where something has no bound.
    pub epsilon: Option<f64>,
    /// The same by Rényi divergences.
    pub epsilon_rdp: Option<f64>,
    /// The guarantee: unit, relation, delta and budget.
    pub guarantee: Guarantee,
    /// Deviation of the noise over the clip norm.
    pub noise: f64,
    /// The clip norm.
    pub clip: f64,
    /// Signal and noise of what was released, layer by layer, in the mean over the rounds in which the layer
    /// learned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerNoise>,
    /// Whether all noise follows from the experiment's seed.
    #[serde(default)]
    pub simulated: bool,
    /// What is guaranteed and what is not, for people.
    pub statement: String,
}

/// What a simulation's ledger is worth.
pub const SIMULATED: &str = "This was a simulation: its noise and its sampling are derived from the experiment's \
    seed, so anyone who has the run's folder can remove the noise. The numbers are those of a federation in \
    which each machine draws its own (fedra serve and fedra join).";

#[cfg(test)]
impl PrivacySummary {
    /// A run without a release under an example-level guarantee.
    pub fn of_nothing() -> Self {
        let delta = fedra_privacy::Delta::new(1e-5).expect("a delta");
        let guarantee = Guarantee {
            unit: Unit::Example,
            relation: fedra_privacy::Relation::AddRemove,
            delta,
            budget: None,
        };
        let statement = "nothing was released".to_owned();
        let (epsilon, epsilon_rdp, layers) = (Some(0.0), Some(0.0), Vec::new());
        let simulated = false;
        Self {
            epsilon,
            epsilon_rdp,
            guarantee,
            noise: 1.0,
            clip: 1.0,
            layers,
            simulated,
            statement,
        }
    }
}

impl PrivacySummary {
    /// What was spent under a guarantee.
    pub fn new(privacy: &Privacy, spent: Spent, statement: String) -> Self {
        let finite = |epsilon: f64| epsilon.is_finite().then_some(epsilon);
        Self {
            epsilon: finite(spent.pld),
            epsilon_rdp: finite(spent.rdp),
            guarantee: privacy.guarantee,
            noise: privacy.noise.get(),
            clip: privacy.clip,
            layers: Vec::new(),
            simulated: false,
            statement,
        }
    }

    /// How large the signal was beside the noise, for a table.
    pub fn signal_in_words(&self) -> Option<String> {
        if self.layers.is_empty() {
            return None;
        }
        let word =
            |layer: &LayerNoise| format!("{} {:.2}", layer.layer, ratio(layer).unwrap_or_default());
        let words: Vec<String> = self.layers.iter().map(word).collect();
        Some(words.join(", "))
    }

    /// The same with the means over the rounds of these reports.
    #[must_use]
    pub fn over(mut self, reports: &[RoundReport]) -> Self {
        let mut sums: BTreeMap<Layer, (LayerNoise, f64)> = BTreeMap::new();
        let told = reports.iter().filter_map(|report| report.privacy.as_ref());
        for layer in told.flat_map(|privacy| &privacy.layers) {
            let none = LayerNoise { released: 0.0, noise: 0.0, ..*layer };
            let (sum, count) = sums.entry(layer.layer).or_insert((none, 0.0));
            (sum.released, sum.noise) = (sum.released + layer.released, sum.noise + layer.noise);
            *count += 1.0;
        }
        let mean = |(sum, count): (LayerNoise, f64)| LayerNoise {
            released: sum.released / count,
            noise: sum.noise / count,
            ..sum
        };
        self.layers = sums.into_values().map(mean).collect();
        self
    }

    /// The words for a table.
    pub fn in_words(&self) -> String {
        let Guarantee { unit, relation, delta, budget } = self.guarantee;
        let spent = match self.epsilon {
            Some(epsilon) => format!("epsilon {}", shown::up(epsilon, 3)),
            None => "no bound".to_owned(),
        };
        let budget = budget.map_or(String::new(), |budget| format!(" of {budget}"));
        let worth = match self.epsilon {
            Some(epsilon) if epsilon <= NO_PROTECTION => "",
            Some(_) | None => " (this is no protection)",
        };
        let simulated = if self.simulated { "; noise from the seed" } else { "" };
        format!("{spent}{budget} at delta {delta}, {unit}-level, {relation}{simulated}{worth}")
    }
}

/// Settles what depends on how much each client has: refuses a delta that is too large for it, and finds
/// the noise for a wished epsilon.
pub fn settle(
    recipe: &mut Recipe,
    experiment: &Experiment,
    (census, layout): (&ClientCounts, &Layout),
) -> Result<()> {
    let Some(privacy) = &recipe.privacy else { return Ok(()) };
    let Guarantee { unit, delta, budget, .. } = privacy.guarantee;
    let clients = census.clients.len() as u64;
    let (units, which) = match (unit, privacy.rows) {
        // The true number is not to be told, and whether it is too large would tell of it.
        (Unit::Example, Some(rows)) => {
            (rows.get().saturating_mul(clients), "that privacy.rows declares")
        }
        (Unit::Example, None) => (census.examples(), "there are"),
        (Unit::Client, _) => (clients, "there are"),
    };
    let expected = format_args!("below one of the {units} {unit}s {which}: 1 / {units}");
    ConfigError::new("privacy.delta", delta, expected)
        .when(units > 0 && delta.below_one_of(units).is_err())?;
    let noise = experiment.raw.privacy.as_ref().and_then(|table| table.noise);
    // Beside a cut the noise is that of its rows, and whatever it comes to is told.
    if let (Some(budget), None, None) = (budget, noise, &recipe.split) {
        let foreseen = Foreseen::of(recipe, experiment, (census, layout))?;
        let found = calibration::smallest(budget, |noise| {
            Ok(foreseen.spent(&with_noise(recipe, noise))?.pld)
        });
        let found = found.map_err(|error| ConfigError::sentence("privacy.epsilon", error))?;
        *recipe = with_noise(recipe, found);
    }
    Ok(())
}

/// What a person should know about a guarantee: its unit, and what it takes for public where nothing else is
/// declared.
pub fn notes(experiment: &Experiment) -> impl Iterator<Item = String> {
    let Experiment { recipe, task, .. } = experiment;
    let unit = recipe.privacy.as_ref().map(|privacy| privacy.guarantee.unit);
    let notes = [
        (
            unit == Some(Unit::Example) && *task == Task::Language,
            "the guarantee is for each window of data.max_tokens tokens; a text that fills several windows counts as \
             several examples",
        ),
        (
            recipe.private_steps().is_some_and(|steps| steps.rows.is_none()),
            "each client's number of training rows is treated as public: rates, steps and weights depend on it;\n      \
             privacy.rows declares a number in its place",
        ),
    ];
    notes.into_iter().filter(|(holds, _)| *holds).map(|(_, note)| note.to_owned())
}

/// What a run will have spent at its end if nobody fails.
pub fn foreseen(
    recipe: &Recipe,
    experiment: &Experiment,
    (census, layout): (&ClientCounts, &Layout),
) -> Result<Option<PrivacySummary>> {
    let Some(privacy) = &recipe.privacy else { return Ok(None) };
    let spent = Foreseen::of(recipe, experiment, (census, layout))?.spent(recipe);
    let spent = spent.map_err(EngineError::from)?;
    Ok(Some(PrivacySummary::new(privacy, spent, String::new())))
}

/// The norm of the signal over that of the noise; chance can hide a small one.
pub fn ratio(layer: &LayerNoise) -> Option<f64> {
    let ratio = (layer.signal_square().max(0.0) / layer.noise).sqrt();
    (layer.noise > 0.0 && ratio.is_finite()).then_some(ratio)
}

fn with_noise(recipe: &Recipe, noise: NoiseMultiplier) -> Recipe {
    let mut recipe = recipe.clone();
    if let Some(privacy) = &mut recipe.privacy {
        privacy.noise = noise;
    }
    recipe
}

/// A client that takes part in so many rounds and measures in some of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    examples: u64,
    updates: u64,
    measurements: u64,
}

/// How often clients of each size take part.
struct Foreseen {
    cases: Vec<Case>,
    /// Rounds of the run in which clients measure, and all.
    measured: u64,
    rounds: u64,
    blocks: u16,
    /// Whether clients have examples to score the model on.
    scored: bool,
    /// What the rows of clients tell where the model is cut, all rounds together.
    rows: Vec<RowReleases>,
}

/// Releases of one client's rows, each with its mechanism.
type RowReleases = Vec<(&'static str, Release)>;

impl Foreseen {
    fn of(
        recipe: &Recipe,
        experiment: &Experiment,
        (census, layout): (&ClientCounts, &Layout),
    ) -> Result<Self> {
        let seed = experiment.seed;
        let ids: Vec<ClientId> = (0_u32..)
            .zip(&census.clients)
            .filter(|(_, client)| client.train > 0)
            .map(|(number, _)| ClientId(number))
            .collect();
        let chooses = recipe.learns.needs_choice() && recipe.selection.probe.is_some();
        let (mut measured, mut taken) = (0, BTreeMap::<ClientId, (u64, u64)>::new());
        let mut rows = ForeseenRows::default();
        let mut drawn = 0..experiment.rounds;
        if rounds_are_alike(recipe, chooses) {
            drawn = 0..0;
            let cohort = recipe.cohort(seed, Round(0), &ids);
            if chooses && (!cohort.is_empty() || recipe.measures_unattended()) {
                measured = recipe.selection.due_within(experiment.rounds);
            }
            let took_part = (u64::from(experiment.rounds), u64::from(measured));
            taken.extend(cohort.iter().map(|client| (*client, took_part)));
            for stretch in stretches(recipe, experiment.rounds) {
                let (round, times) = (Round(stretch.start), u64::from(stretch.end - stretch.start));
                rows.add((recipe, layout), (round, times), (census, &cohort))?;
            }
        }
        for round in drawn.map(Round) {
            let cohort = recipe.cohort(seed, round, &ids);
            let measures = chooses && recipe.selection.is_due(round, measured);
            for client in &cohort {
                let (updates, measurements) = taken.entry(*client).or_default();
                *updates += 1;
                *measurements += u64::from(measures);
            }
            let attended = !cohort.is_empty() || recipe.measures_unattended();
            measured += u32::from(measures && attended);
            rows.add((recipe, layout), (round, 1), (census, &cohort))?;
        }
        let case = |(client, (updates, measurements)): (&ClientId, &(u64, u64))| {
            let counts = census.clients.get(client.0 as usize)?;
            Some(Case { examples: counts.train, updates: *updates, measurements: *measurements })
        };
        let mut cases: Vec<Case> = taken.iter().filter_map(case).collect();
        if recipe.population == Population::Pooled {
            let (examples, updates) = (census.examples(), u64::from(experiment.rounds));
            cases = vec![Case { examples, updates, measurements: 0 }];
        }
        cases.sort_unstable();
        cases.dedup();
        let (measured, rounds) = (u64::from(measured), u64::from(experiment.rounds));
        let others = census.clients.iter().any(|client| client.test + client.validation > 0);
        let (blocks, scored, rows) = (layout.blocks(), others, rows.distinct());
        Ok(Self { cases, measured, rounds, blocks, scored, rows })
    }

    /// What was spent in the end, by the worst-off client.
    fn spent(&self, recipe: &Recipe) -> Result<Spent, PrivacyError> {
        let privacy = recipe.privacy.as_ref().expect("only private runs are foreseen");
        // Nothing is refused here: whoever asks compares.
        let mut ledger = Ledger::new(Guarantee { budget: None, ..privacy.guarantee })?;
        ledger.append(&self.events(recipe, privacy)?)?;
        ledger.spent()
    }

    /// One event for each different case: clients of one size spend alike.
    fn events(&self, recipe: &Recipe, privacy: &Privacy) -> Result<Vec<Event>, PrivacyError> {
        let mut events = Vec::new();
        let mut release = |mechanism: &str, client: Option<String>, release| {
            let (round, mechanism) = (Round(0), mechanism.to_owned());
            events.push(Event { round, mechanism, client, input: None, release });
        };
        let mut gaussian = None;
        if let PrivateSelection::Gaussian { noise } = privacy.selection {
            gaussian = Some(noise);
        }
        if privacy.selection == PrivateSelection::PrivateUnaccounted && self.measured > 0 {
            let (what, why) = ("block scores".to_owned(), "they are exact".to_owned());
            release(BLOCK_SCORES, None, Release::NonPrivate { what, why });
        }
        if privacy.guarantee.unit == Unit::Client {
            if privacy.client_scores && self.scored {
                let (what, why) = ("scores".to_owned(), "they are exact".to_owned());
                release("evaluation", None, Release::NonPrivate { what, why });
            }
            let sampling =
                Privacy::sampling(recipe.sampler).map_err(|error| PrivacyError::Unreachable {
                    wish: "privacy for clients".to_owned(),
                    reason: error.to_string(),
                })?;
            let measured = if gaussian.is_some() { self.measured } else { 0 };
            let joint = gaussian.map_or(Ok(privacy.noise), |of| joint_noise(privacy.noise, of))?;
            for (steps, noise) in [(measured, joint), (self.rounds - measured, privacy.noise)] {
                if let Some(steps) = NonZeroU64::new(steps) {
                    release("updates", None, Release::SampledGaussian { sampling, noise, steps });
                }
            }
            return Ok(events);
        }
        for (number, rows) in self.rows.iter().enumerate() {
            for (mechanism, of_rows) in rows {
                release(mechanism, Some(number.to_string()), of_rows.clone());
            }
        }
        let Some(steps) = recipe.private_steps() else { return Ok(events) };
        for (number, case) in self.cases.iter().enumerate() {
            let name = || Some(number.to_string());
            let examples = case.examples;
            if let Some(once) = recipe.work.release(&steps, examples)? {
                release(EXAMPLE_GRADIENTS, name(), times(&once, case.updates));
            }
            if let (Some(noise), Some(count)) = (gaussian, NonZeroU64::new(case.measurements)) {
                let most = u64::from(recipe.selection.profile_examples);
                let looked = (self.blocks, examples.min(most));
                release(BLOCK_SCORES, name(), noised_scores(noise, looked, count));
            }
        }
        Ok(events)
    }
}

/// What rows at a cut will have told, client by client.
#[derive(Default)]
struct ForeseenRows {
    of_clients: BTreeMap<ClientId, RowReleases>,
    /// Of clients with this cut and so many examples, under the rule of the round before.
    known: BTreeMap<(ClientBlocks, u64), RowReleases>,
    rule: Option<Rule>,
}

impl ForeseenRows {
    /// So many rounds with this cohort, under one rule and with the same cuts.
    fn add(
        &mut self,
        (recipe, layout): (&Recipe, &Layout),
        (round, rounds): (Round, u64),
        (census, cohort): (&ClientCounts, &[ClientId]),
    ) -> Result<()> {
        let Some(split) = &recipe.split else { return Ok(()) };
        let rule = Some(recipe.learns_in(round));
        if self.rule != rule {
            (self.known, self.rule) = (BTreeMap::new(), rule);
        }
        for client in cohort {
            let Some(counts) = census.clients.get(client.0 as usize) else { continue };
            let key = (split.ends_of(&counts.name, round), counts.train);
            let known = match self.known.entry(key) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let who = (counts.name.as_str(), round);
                    place.insert(recipe.foreseen_rows(who, counts.train, layout)?)
                }
            };
            let all = self.of_clients.entry(*client).or_default();
            for (mechanism, release) in &*known {
                let release = times(release, rounds);
                match all.iter_mut().find(|(name, _)| name == mechanism) {
                    Some((_, sum)) => add(sum, &release),
                    None => all.push((mechanism, release)),
                }
            }
        }
        Ok(())
    }

    /// Each different case once: clients of one size spend alike.
    fn distinct(self) -> Vec<RowReleases> {
        let mut distinct: Vec<RowReleases> = Vec::new();
        for releases in self.of_clients.into_values() {
            if !distinct.contains(&releases) {
                distinct.push(releases);
            }
        }
        distinct
    }
}

/// Whether one round stands for all: everybody always takes part, or client-level privacy needs to know
/// nothing of who does.
fn rounds_are_alike(recipe: &Recipe, chooses: bool) -> bool {
    let of_clients = recipe.client_privacy().is_some() && recipe.split.is_none();
    match recipe.sampler {
        Sampler::All => true,
        Sampler::Uniform(_) => of_clients,
        // A cohort may be empty, and then nobody measures.
        Sampler::Poisson(_) => of_clients && !chooses,
    }
}

/// Whether what clients keep to themselves was trained without noise under a guarantee, so that nobody may
/// be told how good it is.
pub fn hides_own_parts(recipe: &Recipe, layout: &Layout) -> Result<bool> {
    let Some(privacy) = &recipe.privacy else { return Ok(false) };
    Ok(privacy.guarantee.unit == Unit::Client || recipe.ends_learn(layout)? == EndsLearn::Yes)
}

/// The same release so many times.
fn times(release: &Release, times: u64) -> Release {
    let mut all = release.clone();
    let Some(times) = NonZeroU64::new(times) else { return all };
    match &mut all {
        Release::Gaussian { count, .. } | Release::SampledGaussian { steps: count, .. } => {
            *count = count.saturating_mul(times);
        }
        Release::NonPrivate { .. } => {}
    }
    all
}

/// Adds releases of the same norm and noise.
fn add(sum: &mut Release, more: &Release) {
    if let (Release::Gaussian { count, .. }, Release::Gaussian { count: others, .. }) = (sum, more)
    {
        *count = count.saturating_add(others.get());
    }
}
