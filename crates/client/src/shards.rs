//! Every client's examples, encoded once, and the test set that no client holds.

use fedra_data::{DataError, Division, Encoder, LabelSet, Table, Task};
use fedra_engine::EvaluationSet;

use crate::examples::Examples;
use crate::writing::Writing;

/// The data of a federation.
#[derive(Clone, Debug)]
pub struct Shards {
    /// What is learnt.
    pub task: Task,
    /// The names of the answers.
    pub labels: LabelSet,
    /// The clients; their place is their number.
    pub clients: Vec<Shard>,
    /// What no client holds.
    pub central_test: Examples,
}

/// One client's examples.
#[derive(Clone, Debug, Default)]
pub struct Shard {
    /// The client's name.
    pub name: String,
    /// To learn from.
    pub train: Examples,
    /// To decide on.
    pub validation: Examples,
    /// To report on.
    pub test: Examples,
}

impl Shard {
    /// The examples of one set; nobody holds the central one.
    pub fn of(&self, set: EvaluationSet) -> Option<&Examples> {
        match set {
            EvaluationSet::CentralTest => None,
            EvaluationSet::ClientValidation => Some(&self.validation),
            EvaluationSet::ClientTest => Some(&self.test),
        }
    }
}

impl Shards {
    /// Encodes a table as it was divided.
    pub fn encode(
        encoder: &Encoder<'_>,
        table: &Table,
        division: &Division,
    ) -> Result<Self, DataError> {
        let encode =
            |rows: &[usize]| Examples::encode(encoder, rows.iter().map(|&r| &table.examples[r]));
        let mut clients = Vec::with_capacity(division.clients.len());
        for holding in &division.clients {
            clients.push(Shard {
                name: holding.client.clone(),
                train: encode(&holding.train)?,
                validation: encode(&holding.validation)?,
                test: encode(&holding.test)?,
            });
        }
        let central_test = encode(&division.central_test)?;
        Ok(Self { task: table.task, labels: table.labels.clone(), clients, central_test })
    }

    /// The same data, to be answered in text.
    #[must_use]
    pub fn with_writing(mut self, writing: &Writing) -> Self {
        for shard in &mut self.clients {
            for examples in [&mut shard.train, &mut shard.validation, &mut shard.test] {
                *examples = std::mem::take(examples).with_writing(writing.clone());
            }
        }
        self.central_test = self.central_test.with_writing(writing.clone());
        self
    }

    /// The same data in one pair of hands: what centralised training would have.
    pub fn pooled(&self) -> Self {
        let mut everyone = Shard { name: "everyone".to_owned(), ..Shard::default() };
        for client in &self.clients {
            everyone.train.extend_from(&client.train);
            everyone.validation.extend_from(&client.validation);
            everyone.test.extend_from(&client.test);
        }
        Self { clients: vec![everyone], ..self.clone() }
    }
}
