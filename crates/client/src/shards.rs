//! Every client's examples, encoded once, and the test set that no client holds.

use std::collections::BTreeMap;

use fedra_data::{
    DataError, Division, EncodeRows, Encoded, Encoder, Example, Holding, LabelSet, LastTurn, Stage,
    Table, Task, Work,
};
use fedra_engine::{EvaluationSet, PreferenceLoss};

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

/// How many conversations a model is scored on, and how many of their last answers it does not write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastTurnCounts {
    /// Conversations that it is scored on.
    pub conversations: u64,
    /// Those that end with no answer to anything.
    pub unanswered: u64,
    /// Those whose last question leaves no room for an answer.
    pub too_long: u64,
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
        encoder: &dyn EncodeRows,
        table: &Table,
        division: &Division,
    ) -> Result<Self, DataError> {
        Self::encode_with(&Work::default(), encoder, (table, division))
    }

    /// The same for somebody who follows it.
    pub fn encode_with(
        work: &Work<'_>,
        encoder: &dyn EncodeRows,
        (table, division): (&Table, &Division),
    ) -> Result<Self, DataError> {
        let rows = Self::used(division);
        let rows: Vec<&Example> = rows.into_iter().map(|row| &table.examples[row]).collect();
        let sequences = Self::sequences(work, encoder, &rows)?;
        Ok(Self::gathered((table, division), sequences))
    }

    /// The rows of a table that a division hands out, ascending and each once.
    pub fn used(division: &Division) -> Vec<usize> {
        let clients = division.clients.iter();
        let parts = clients.flat_map(|one| [&one.train, &one.validation, &one.test]);
        let rows = parts.chain([&division.central_test]).flatten().copied();
        let mut rows: Vec<usize> = rows.collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// What becomes of each row.
    pub fn sequences(
        work: &Work<'_>,
        encoder: &dyn EncodeRows,
        rows: &[&Example],
    ) -> Result<Vec<Vec<Encoded>>, DataError> {
        work.map(Stage::Tokenising, rows, |row| encoder.encode(row))
    }

    /// The data of a table whose [used](Self::used) rows have become these sequences. A division hands out a
    /// row once.
    pub fn gathered((table, division): (&Table, &Division), sequences: Vec<Vec<Encoded>>) -> Self {
        let (used, mut sequences) = (Self::used(division), sequences);
        let mut part = |rows: &[usize]| {
            Examples::gathered(rows.iter().map(|row| {
                let place = used.binary_search(row).expect("every row of a part is used");
                (&table.examples[*row], std::mem::take(&mut sequences[place]))
            }))
        };
        let mut clients = Vec::with_capacity(division.clients.len());
        for holding in &division.clients {
            clients.push(Shard {
                name: holding.client.clone(),
                train: part(&holding.train),
                validation: part(&holding.validation),
                test: part(&holding.test),
            });
        }
        let central_test = part(&division.central_test);
        Self { task: table.task, labels: table.labels.clone(), clients, central_test }
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

    /// The same conversations, encoded from these rows; where a model is scored on them, it also writes their
    /// last answers.
    pub fn with_last_answers(
        mut self,
        work: &Work<'_>,
        (encoder, writing): (&Encoder<'_>, &Writing),
        (table, division): (&Table, &Division),
    ) -> Result<(Self, LastTurnCounts), DataError> {
        let scored = |holding: &Holding| {
            holding.validation.iter().chain(&holding.test).copied().collect::<Vec<usize>>()
        };
        let mut rows: Vec<usize> = division.clients.iter().flat_map(scored).collect();
        rows.extend(&division.central_test);
        let turn = |row: &usize| encoder.last_turn(&table.examples[*row]);
        let mut turns = work.map(Stage::Tokenising, &rows, turn)?.into_iter();
        let mut counts = LastTurnCounts::default();
        let mut take = |examples: &mut Examples| {
            let mut answers = BTreeMap::new();
            for (place, turn) in turns.by_ref().take(examples.len()).enumerate() {
                counts.conversations += 1;
                match turn {
                    LastTurn::Answered(answer) => drop(answers.insert(place, answer)),
                    LastTurn::Unanswered => counts.unanswered += 1,
                    LastTurn::TooLong => counts.too_long += 1,
                }
            }
            *examples =
                std::mem::take(examples).with_last_answers(answers).with_writing(writing.clone());
        };
        for shard in &mut self.clients {
            take(&mut shard.validation);
            take(&mut shard.test);
        }
        take(&mut self.central_test);
        Ok((self, counts))
    }

    /// The same pairs of answers, to be judged by this loss.
    #[must_use]
    pub fn with_preference(mut self, loss: PreferenceLoss) -> Self {
        for shard in &mut self.clients {
            for examples in [&mut shard.train, &mut shard.validation, &mut shard.test] {
                *examples = std::mem::take(examples).with_preference(loss);
            }
        }
        self.central_test = self.central_test.with_preference(loss);
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
