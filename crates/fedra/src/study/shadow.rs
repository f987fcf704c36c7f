//! Models trained on random halves of every client's examples, for attacks that ask who was there.
//!
//! Everything but the halves is the same in all of them: data, first weights, vocabulary, rounds. That
//! is what a server knows of its own federation, so its shadow models may start there too. A coin for
//! each example and model decides, so that in each model members and others differ by nothing else.
//! The unit is an example as it is trained on: a row, or one window of a longer text.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use fedra_client::{Examples, Observer, Shards, to_params_over};
use fedra_compute::{Device, Params, Seed};
use fedra_engine::{ParamValues, PrivacyReport};
use fedra_model::Model;
use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, Experiment};
use crate::error::{Result, refuse};
use crate::listener::{Event, Listener, Rounds};
use crate::prepare::fingerprint::Inputs;
use crate::prepare::prepared::evaluator;
use crate::run::federate::{Ending, Run};
use crate::study::scratch_run::run_in_scratch;

/// Which model of a run is given away.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Released {
    /// The last one.
    Final,
    /// The first whose test score is at least this.
    AtScore(f64),
}

/// One of several models that differ by their halves.
#[derive(Clone, Copy, Debug)]
pub struct ShadowRequest<'a> {
    /// What is trained.
    pub experiment: &'a Experiment,
    /// Which half: another number draws other coins.
    pub number: u64,
    /// Which model is given away.
    pub released: Released,
    /// Where the run's files are kept while it trains; they are removed afterwards.
    pub scratch: &'a Path,
}

/// A model, as far as an attack needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowModel {
    /// The experiment, as a file that repeats it.
    pub experiment: String,
    /// What it learnt from; the division is that of its half.
    pub inputs: Inputs,
    /// Which half.
    pub number: u64,
    /// Which model was given away.
    pub released: Released,
    /// Rounds behind it.
    pub rounds: u32,
    /// Whether the score that was asked for was reached; always so for the last model.
    pub is_reached: bool,
    /// Its score on test examples, where there are some.
    pub score: Option<TestScore>,
    /// What the run guarantees and has spent up to then, where it is private.
    pub privacy: Option<PrivacyReport>,
    /// Whether it learnt from each example, clients in order.
    pub members: Vec<bool>,
    /// Its loss on each, the mean over the example's targets.
    pub losses: Vec<f64>,
}

/// How good a model is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestScore {
    /// The score's name.
    pub name: String,
    /// Its value.
    pub value: f64,
}

impl ShadowModel {
    /// Refuses, before anything is written, what could not be trained or asked.
    pub fn check(experiment: &Experiment, released: Released) -> Result<()> {
        Ok(Subject::of(&Run::prepare(experiment)?)?.check(released)?)
    }

    /// Trains one, and asks it for its losses; `None` when it was asked to stop on the way.
    pub fn train(request: &ShadowRequest<'_>, listener: &dyn Listener) -> Result<Option<Self>> {
        let ShadowRequest { experiment, number, released, scratch } = *request;
        let mut run = Run::prepare(experiment)?;
        let subject = Subject::of(&run)?;
        subject.check(released)?;
        let halves = halves(&subject.shards, experiment.seed, number)?;
        run.keep_examples(&halves)?;
        let inputs = run.inputs.clone();
        let watch = Watch {
            subject: &subject,
            released,
            listener,
            seen: RefCell::new(Ok(Seen::default())),
            privacy: RefCell::default(),
        };
        let ended = run_in_scratch(run, (experiment, scratch), &watch);
        let privacy = watch.privacy.take();
        let Seen { model, rounds, is_reached } = watch.seen.into_inner()?;
        if matches!(ended?, Ending::Interrupted { .. }) && !is_reached {
            return Ok(None);
        }
        let Some(model) = model else { refuse!("found no round, expected at least one") };
        let losses = subject.losses(&model)?;
        let score = subject.score(&model)?;
        let (members, losses) = halves
            .into_iter()
            .flatten()
            .zip(losses)
            .filter_map(|(is_member, loss)| Some((is_member, loss?)))
            .unzip();
        Ok(Some(Self {
            experiment: experiment.to_toml()?,
            inputs,
            number,
            released,
            rounds,
            is_reached: is_reached || released == Released::Final,
            score,
            privacy,
            members,
            losses,
        }))
    }

    /// Whether this is the model that is asked for, from a file of an earlier call. Data that have
    /// changed since make it another one.
    pub fn answers(&self, request: &ShadowRequest<'_>) -> Result<bool> {
        let ShadowRequest { experiment, number, released, .. } = *request;
        if (self.number, self.released) != (number, released)
            || self.experiment != experiment.to_toml()?
        {
            return Ok(false);
        }
        let mut run = Run::prepare(experiment)?;
        let halves = halves(&run.prepared.shards, experiment.seed, number)?;
        run.keep_examples(&halves)?;
        Ok(self.inputs == run.inputs)
    }
}

/// A coin for each example to learn from, client by client.
fn halves(shards: &Shards, seed: Seed, number: u64) -> Result<Vec<Vec<bool>>> {
    let seed = seed.of("members").with(number);
    let mut halves = Vec::with_capacity(shards.clients.len());
    for (client, shard) in shards.clients.iter().enumerate() {
        let mut generator = seed.with(client as u64).generator();
        let half: Vec<bool> = (0..shard.train.len()).map(|_| generator.uniform() < 0.5).collect();
        if !half.contains(&true) {
            refuse!(
                "found no example in half {number} of {}, which has {}, expected at least one\n\
                 hint: more rows for each client, or another seed",
                shard.name,
                half.len()
            );
        }
        halves.push(half);
    }
    Ok(halves)
}

/// What is asked of a model that was given away.
struct Subject {
    model: Model,
    base: Params,
    device: Device,
    shards: Shards,
    test: Examples,
}

impl Subject {
    fn of(run: &Run) -> Result<Self> {
        let Run { prepared, recipe, device, .. } = run;
        let expected = "a method in which clients share the whole model";
        ConfigError::new("method", "parameters that stay with each client", expected)
            .when(!recipe.personal.select(prepared.model.layout())?.is_empty())?;
        let shards = prepared.shards.clone();
        let mut test = shards.central_test.clone();
        if test.is_empty() {
            shards.clients.iter().for_each(|shard| test.extend_from(&shard.test));
        }
        let base = prepared.base.clone();
        Ok(Self { model: prepared.model.clone(), base, device: device.clone(), shards, test })
    }

    fn check(&self, released: Released) -> Result<(), ConfigError> {
        let expected = "above 0: a model at a score needs test examples";
        ConfigError::new("data.shares.central", "no test example", expected)
            .when(self.test.is_empty() && released != Released::Final)
    }

    fn score(&self, model: &ParamValues) -> Result<Option<TestScore>> {
        if self.test.is_empty() {
            return Ok(None);
        }
        let over = (self.model.layout(), &self.base);
        let params = to_params_over(&self.device, over, model)?;
        let scores =
            evaluator(&self.model, &self.device, &self.shards).score(&params, &self.test)?;
        let (name, value) = scores.headline();
        Ok(Some(TestScore { name: name.to_owned(), value }))
    }

    /// The loss on everybody's examples; none for one without a target.
    fn losses(&self, model: &ParamValues) -> Result<Vec<Option<f64>>> {
        let over = (self.model.layout(), &self.base);
        let params = to_params_over(&self.device, over, model)?;
        let evaluator = evaluator(&self.model, &self.device, &self.shards);
        let mut losses = Vec::new();
        for shard in &self.shards.clients {
            losses.extend(evaluator.losses(&params, &shard.train)?);
        }
        Ok(losses)
    }
}

/// Follows a run up to the model that is given away.
struct Watch<'a> {
    subject: &'a Subject,
    released: Released,
    listener: &'a dyn Listener,
    seen: RefCell<Result<Seen>>,
    privacy: RefCell<Option<PrivacyReport>>,
}

#[derive(Default)]
struct Seen {
    model: Option<ParamValues>,
    rounds: u32,
    is_reached: bool,
}

impl Watch<'_> {
    fn look(&self, completed: u32, model: &ParamValues) -> Result<Seen> {
        let is_reached = match self.released {
            Released::Final => false,
            Released::AtScore(least) => {
                self.subject.score(model)?.is_some_and(|score| score.value >= least)
            }
        };
        Ok(Seen { model: Some(model.clone()), rounds: completed, is_reached })
    }
}

impl Listener for Watch<'_> {
    fn hear(&self, event: Event<'_>) {
        self.listener.hear(event);
        if let Event::Round(report) = event {
            let spent = report.privacy.clone();
            self.privacy.replace(spent.map(|spent| PrivacyReport { layers: Vec::new(), ..spent }));
        }
        if let Event::Model(completed, model) = event {
            *self.seen.borrow_mut() = self.look(completed, model);
        }
    }

    fn begin(&self, rounds: &Rounds<'_>) -> Arc<dyn Observer> {
        self.listener.begin(rounds)
    }

    fn stops(&self) -> bool {
        let is_over = self.seen.borrow().as_ref().map_or(true, |seen| seen.is_reached);
        is_over || self.listener.stops()
    }
}
