//! Our site in somebody else's run: `FedAvg` as an app of Flower's own does it.
//!
//! The app sends the whole model by name and wants it back, trained, with the number of examples. So this
//! plays the server towards the site: it brings the values, asks for training under the experiment's own
//! settings, and adds the change that comes back. No agreement is compared, because the app has none.

use fedra_engine::{EvaluationSet, Recipe, TrainRequest};
use fedra_net::{Answer, Asked, ClientNode, Message, NetError, Request, Welcome};
use fedra_plan::{Layout, Round};
use fedra_seed::Seed;
use fedra_wire::{Encoding, Expectation, Header, Kind, ParamValues, decode, encode};

use crate::arrays::{Arrays, TensorNames};
use crate::proto::Scalar;
use crate::record::Fields;

/// The key under which such an app says which round it is, from 1.
pub(crate) const ROUND: &str = "server-round";
/// The key under which it wants to know how many examples are behind an answer.
pub(crate) const EXAMPLES: &str = "num-examples";

/// How a site takes part in a run that is none of ours.
#[derive(Clone, Debug)]
pub struct StockRun {
    /// What a client does, and how.
    pub recipe: Recipe,
    /// The experiment's seed.
    pub seed: Seed,
    /// The names of the parameters.
    pub names: TensorNames,
}

/// A message of the site's server that this run plays.
fn ask(
    site: &mut ClientNode,
    request: Request,
    payloads: Vec<bytes::Bytes>,
) -> Result<(Answer, Vec<bytes::Bytes>), String> {
    let wrong = |error: NetError| error.to_string();
    // An answer that got lost is not asked for again here, so no number comes twice.
    let id = fedra_net::secret_number().map_err(|error| error.to_string())? | 1;
    let message = Asked { base: None, request }.message(id, payloads).map_err(wrong)?;
    let answer = site.answer(&message).map_err(wrong)?;
    let Message { meta, payloads, .. } = answer.ok_or("found no answer of the client")?;
    let answer: Answer = serde_json::from_slice(&meta).map_err(|error| error.to_string())?;
    if let Answer::Failed { reason, .. } = answer {
        return Err(reason);
    }
    Ok((answer, payloads))
}

impl StockRun {
    /// Prepares a site for it.
    pub(crate) fn begin(site: &mut ClientNode) -> Result<(), NetError> {
        let client = site.client.info.id;
        let welcome = Welcome { run: 0, session: 0, client, label: None, forgets: Vec::new() };
        site.welcomed(welcome).map(drop)
    }

    /// Trains what came; what goes back.
    pub(crate) fn train(
        &self,
        site: &mut ClientNode,
        (arrays, config): (Arrays, &Fields),
    ) -> Result<(Arrays, Fields), String> {
        let (layout, info) = (site.client.layout.clone(), site.client.info.clone());
        let round = round_of(config);
        let mut values = bring(site, (&arrays, round), (&layout, &self.names))?;
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let learns = self.recipe.learns.select(&layout).map_err(|error| text(&error))?;
        let plan = self.recipe.plan((&info.name, round), learns, &layout);
        let plan = plan.map_err(|error| text(&error))?;
        let seed = self.seed.of("client").with(u64::from(round.0)).with(u64::from(info.id.0));
        let request = TrainRequest {
            client: info.id,
            round,
            seed,
            correction: None,
            plan,
            work: self.recipe.work.clone(),
            revocable: false,
            split: None,
        };
        let (asked, payloads) =
            Request::of_training(&request, &layout).map_err(|error| text(&error))?;
        let (answer, payloads) = ask(site, asked, payloads)?;
        let (Answer::Trained { .. }, [payload, ..]) = (answer, &payloads[..]) else {
            return Err("found no update".to_owned());
        };
        let expected = Expectation {
            layout: &layout,
            kind: Kind::Change,
            encoding: self.recipe.work.encoding,
            round,
            client: info.id,
            scope: None,
        };
        let (header, change) = decode(payload, &expected).map_err(|error| text(&error))?;
        for (id, change) in change.iter() {
            if let Some(values) = values.get_mut(id) {
                values.iter_mut().zip(change).for_each(|(value, change)| *value += change);
            }
        }
        let examples = i64::try_from(header.examples).unwrap_or(i64::MAX);
        let metrics = Fields::default().with(EXAMPLES, Scalar::Sint(examples));
        let metrics = match header.loss {
            Some(loss) => metrics.with("train_loss", Scalar::Double(f64::from(loss))),
            None => metrics,
        };
        let trained = Arrays::of_values(&values, (&layout, &self.names));
        Ok((arrays.with_values(trained), metrics))
    }

    /// Scores what came on the site's own test examples, or on those that it decides on.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other answer has scores")]
    pub(crate) fn evaluate(
        &self,
        site: &mut ClientNode,
        (arrays, config): (&Arrays, &Fields),
    ) -> Result<Fields, String> {
        let layout = site.client.layout.clone();
        let round = round_of(config);
        bring(site, (arrays, round), (&layout, &self.names))?;
        let shard = &site.client.shard;
        let on = if shard.test.is_empty() {
            EvaluationSet::ClientValidation
        } else {
            EvaluationSet::ClientTest
        };
        let seed = self.seed.of("evaluate").0;
        let request = Request::Evaluate { on, adapt: None, round, seed, split: None };
        match ask(site, request, Vec::new())?.0 {
            Answer::Scored { scored: Some(scored) } => {
                let examples = i64::try_from(scored.examples).unwrap_or(i64::MAX);
                let metrics = Fields::default()
                    .with(EXAMPLES, Scalar::Sint(examples))
                    .with("eval_loss", Scalar::Double(scored.loss));
                let scores = scored.scores.iter().filter(|(_, score)| score.is_finite());
                Ok(scores.fold(metrics, |metrics, (name, score)| {
                    metrics.with(name, Scalar::Double(*score))
                }))
            }
            Answer::Scored { scored: None } => Err("found no examples to score on".to_owned()),
            _ => Err("found another answer, expected scores".to_owned()),
        }
    }
}

/// The round of a request, from 0; the first where the app says nothing of it.
fn round_of(config: &Fields) -> Round {
    let number = config.integer(ROUND).unwrap_or(1).clamp(1, i64::from(u32::MAX));
    Round(number as u32 - 1)
}

/// Brings a site the values that it is to work on.
fn bring(
    site: &mut ClientNode,
    (arrays, round): (&Arrays, Round),
    shape: (&Layout, &TensorNames),
) -> Result<ParamValues, String> {
    let values = arrays.values(shape)?;
    let header = Header::download(Kind::Values, Encoding::F32, round);
    let payload = encode(shape.0, &header, &values, None).map_err(|error| error.to_string())?;
    let request = Request::Sync { round, encoding: Encoding::F32 };
    ask(site, request, vec![payload.into()])?;
    Ok(values)
}
