//! Somebody else's client in a run of ours: an app of Flower's own that trains a model by name.
//!
//! It knows nothing of our messages, so this answers for it: it keeps the values that were sent down,
//! hands them over with a request to train, and turns what comes back into the change that a site would
//! have sent. It measures no blocks, keeps nothing and scores nothing, so it takes part in methods in
//! which a client trains the whole model and no more.

use bytes::Bytes;
use fedra_engine::Failure;
use fedra_net::{Answer, Asked, Message, Request, Welcome};
use fedra_plan::{Layout, Round, Scope};
use fedra_wire::{
    ClientId, Encoding, Expectation, Header, Kind, Mask, ParamValues, decode, encode,
};

use crate::arrays::{Arrays, TensorNames};
use crate::node_keys::NodeKeys;
use crate::proto::Scalar;
use crate::record::Fields;
use crate::stock::{EXAMPLES, ROUND};

/// The message with which such an app is asked to train.
pub(crate) const TRAIN: &str = "train";
const LOSSES: [&str; 2] = ["train_loss", "train-loss"];

/// Clients of an experiment that are apps of Flower's own.
#[derive(Clone, Debug)]
pub struct StockClients {
    /// Each with the number of its training examples, which nobody can ask it for.
    pub clients: Vec<(String, u64)>,
    /// The model.
    pub layout: Layout,
    /// The values that all start from.
    pub initial: ParamValues,
    /// The names of the parameters.
    pub names: TensorNames,
}

/// One of them, on its seat.
pub(crate) struct StockClient {
    pub(crate) name: String,
    pub(crate) examples: u64,
    layout: Layout,
    values: ParamValues,
    names: TensorNames,
    client: ClientId,
    training: Option<Training>,
}

/// What it was asked last.
struct Training {
    id: u64,
    round: Round,
    encoding: Encoding,
}

/// What becomes of a message of ours.
pub(crate) enum StockReaction {
    Nothing,
    Answer(Message),
    /// The app is asked to train these arrays under this configuration.
    Train(Arrays, Fields),
}

impl StockClients {
    /// A client for which no node stands any more.
    pub(crate) fn give_back(&mut self, client: StockClient) {
        self.clients.push((client.name, client.examples));
    }

    /// The client that a node stands for, if nobody does yet: the one of its key, or else the first that
    /// has no key. `keys` has all keys and the clients of the node's own; absent: nobody's are known.
    pub(crate) fn next(&mut self, keys: Option<(&NodeKeys, &[String])>) -> Option<StockClient> {
        let place = self.clients.iter().position(|(name, _)| match keys {
            None => true,
            Some((_, [])) => keys.is_some_and(|(keys, _)| !keys.has(name)),
            Some((_, own)) => own.contains(name),
        })?;
        let (name, examples) = self.clients.remove(place);
        Some(StockClient {
            name,
            examples,
            layout: self.layout.clone(),
            values: self.initial.clone(),
            names: self.names.clone(),
            client: ClientId(0),
            training: None,
        })
    }
}

impl StockClient {
    /// The layout and the names, as arrays are read with.
    pub(crate) const fn shape(&self) -> (&Layout, &TensorNames) {
        (&self.layout, &self.names)
    }

    /// Takes a message of ours.
    pub(crate) fn hear(&mut self, message: &Message) -> StockReaction {
        let Ok(asked) = serde_json::from_slice::<Asked>(&message.meta) else {
            if let Ok(welcome) = serde_json::from_slice::<Welcome>(&message.meta) {
                self.client = welcome.client;
            }
            return StockReaction::Nothing;
        };
        let heard = match asked.request {
            Request::Sync { round, encoding } => self.take(round, (encoding, &message.payloads)),
            Request::Train { round, work, cut, .. } => {
                let training = Training { id: message.id, round, encoding: work.encoding };
                let checked = self.check(&message.payloads, cut.is_some());
                if checked.is_ok() {
                    self.training = Some(training);
                    let config =
                        Fields::default().with(ROUND, Scalar::Sint(i64::from(round.0) + 1));
                    let arrays = Arrays::of_values(&self.values, self.shape());
                    return StockReaction::Train(arrays, config);
                }
                checked
            }
            Request::Probe { .. } | Request::CompareAttention { .. } | Request::Evaluate { .. } => {
                Err("is a Flower app, which only trains the whole model".to_owned())
            }
            Request::Settle | Request::Forget(_) | Request::End { .. } => {
                return StockReaction::Nothing;
            }
        };
        let failed = |reason| Answer::Failed { reason, diverged: false };
        let answer = heard.map_or_else(failed, |()| Answer::Synced);
        if message.id == 0 {
            return StockReaction::Nothing;
        }
        StockReaction::Answer(Message::of(message.id, &answer))
    }

    /// The answer that its reply comes to.
    pub(crate) fn reply(&mut self, reply: Result<(Arrays, Fields), String>) -> Option<Message> {
        let training = self.training.take()?;
        let update = reply
            .map_err(Failure::from)
            .and_then(|(arrays, metrics)| self.update(&training, &arrays, &metrics));
        Some(match update {
            Ok(payload) => {
                let answer = Answer::Trained { seconds: 0.0, memory: None, noise: None };
                Message { payloads: vec![payload], ..Message::of(training.id, &answer) }
            }
            Err(Failure { reason, diverged }) => {
                Message::of(training.id, &Answer::Failed { reason, diverged })
            }
        })
    }

    /// Writes a download on its copy of the model.
    fn take(
        &mut self,
        round: Round,
        (encoding, payloads): (Encoding, &[Bytes]),
    ) -> Result<(), String> {
        let [payload] = payloads else { return Err("found no download".to_owned()) };
        let header = Header::download(Kind::Values, encoding, round);
        let expected = Expectation::of(&self.layout, &header);
        let (_, values) = decode(payload, &expected).map_err(|error| error.to_string())?;
        self.values.absorb(values);
        Ok(())
    }

    /// Whether it can do what it is asked.
    fn check(&self, payloads: &[Bytes], is_cut: bool) -> Result<(), String> {
        let whole = Scope::everything(&self.layout);
        let part = |place: usize| {
            let mask = payloads.get(place).ok_or("found no mask")?;
            let mask = Mask::decode(mask, &self.layout).map_err(|error| error.to_string())?;
            Ok::<Scope, String>(mask.learns)
        };
        let (learns, keeps) = (part(0)?, part(2)?);
        if is_cut || learns != whole || !keeps.is_empty() || payloads.len() > 3 {
            return Err(
                "is a Flower app, expected a method in which every client trains the whole model and keeps no \
                        state, such as FedAvg"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn update(
        &self,
        training: &Training,
        arrays: &Arrays,
        metrics: &Fields,
    ) -> Result<Bytes, Failure> {
        let trained = arrays.values(self.shape())?;
        let examples = metrics.integer(EXAMPLES)?;
        if u64::try_from(examples) != Ok(self.examples) {
            let (name, expected) = (&self.name, self.examples);
            return Err(format!(
                "found {EXAMPLES} = {examples}, expected the {expected} of --stock {name}={expected}"
            )
            .into());
        }
        let loss = LOSSES.iter().find_map(|key| metrics.number(key));
        let mut change = ParamValues::new();
        for (id, values) in trained.iter() {
            let before = self.values.get(id).ok_or("found a parameter of another model")?;
            change.insert(id, values.iter().zip(before).map(|(new, old)| new - old).collect());
        }
        let header = Header {
            kind: Kind::Change,
            encoding: training.encoding,
            round: training.round,
            client: self.client,
            examples: self.examples,
            // Nobody says how many; no method that divides by steps asks such a client.
            steps: 1,
            loss: loss.map(|loss| loss as f32),
        };
        let payload = encode(&self.layout, &header, &change, None);
        payload.map(Bytes::from).map_err(|error| {
            let (reason, diverged) = (error.to_string(), error.is_divergence());
            Failure { reason, diverged }
        })
    }
}

#[cfg(test)]
mod tests {
    use fedra_plan::{Layer, ParamId, Part, Role, Shape};

    use super::*;

    #[test]
    fn a_loss_that_is_no_number_is_divergence_and_one_of_zero_is_a_loss() {
        let id = ParamId::new(Layer::Head, Role::Classifier, Part::Bias);
        let layout = Layout::new([(id, Shape::vector(2))]).unwrap();
        let names = TensorNames::from([(id, "bias".to_owned())]);
        let initial = ParamValues::from_iter([(id, vec![1.0, 2.0])]);
        let clients = vec![("north".to_owned(), 12)];
        let mut all = StockClients { clients, layout, initial, names };
        let mut client = all.next(None).unwrap();
        let mut answer = |values: [f32; 2], loss: Option<f64>| {
            let (round, encoding) = (Round(0), Encoding::F32);
            client.training = Some(Training { id: 3, round, encoding });
            let trained = ParamValues::from_iter([(id, values.to_vec())]);
            let arrays = Arrays::of_values(&trained, client.shape());
            let metrics = Fields::default().with(EXAMPLES, Scalar::Sint(12));
            let metrics = match loss {
                None => metrics,
                Some(loss) => metrics.with("train_loss", Scalar::Double(loss)),
            };
            let message = client.reply(Ok((arrays, metrics))).unwrap();
            let told: Answer = serde_json::from_slice(&message.meta).unwrap();
            let layout = client.layout.clone();
            let expected = Expectation {
                layout: &layout,
                kind: Kind::Change,
                encoding,
                round,
                client: ClientId(0),
                scope: None,
            };
            let header =
                message.payloads.first().map(|payload| decode(payload, &expected).unwrap().0);
            (told, header.map(|header| header.loss))
        };
        assert_eq!(answer([1.0, 3.0], None).1, Some(None));
        assert_eq!(answer([1.0, 3.0], Some(0.0)).1, Some(Some(0.0)));
        for (values, loss) in
            [([1.0, 3.0], f64::NAN), ([1.0, 3.0], f64::INFINITY), ([f32::NAN, 1.0], 0.5)]
        {
            let (told, header) = answer(values, Some(loss));
            assert!(matches!(told, Answer::Failed { diverged: true, .. }), "{told:?}");
            assert_eq!(header, None);
        }
    }

    #[test]
    fn a_node_stands_for_the_client_of_its_key_or_for_the_first_without_one() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["south", "west"] {
            let key = crate::key::NodeKey::read(&crate::key::NodeKey::generate().unwrap()).unwrap();
            std::fs::write(folder.path().join(format!("{name}.pub")), key.public_ssh("")).unwrap();
        }
        let keys = NodeKeys::open(folder.path()).unwrap();
        let clients = ["north", "south", "east"].map(|name| (name.to_owned(), 1)).to_vec();
        let layout = Layout::new([]).unwrap();
        let names = TensorNames::default();
        let mut stock = StockClients { clients, layout, initial: ParamValues::new(), names };
        let mut next = |own: &[&str]| {
            let own: Vec<String> = own.iter().map(|name| (*name).to_owned()).collect();
            stock.next(Some((&keys, &own))).map(|client| client.name)
        };
        // Its key is that of a client that is no app of Flower's own.
        assert_eq!(next(&["west"]), None);
        assert_eq!(next(&["south"]).as_deref(), Some("south"));
        assert_eq!(next(&["south"]), None);
        assert_eq!(next(&[]).as_deref(), Some("north"));
        assert_eq!(next(&[]).as_deref(), Some("east"));
        assert_eq!(next(&[]), None);
    }
}
