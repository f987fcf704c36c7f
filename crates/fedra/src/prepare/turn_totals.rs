//! What becomes of the turns of all conversations: how many are cut, and how much is learned.

use fedra_client::Shards;
use fedra_data::{CutTurns, Encoder};

use crate::error::Result;
use crate::prepare::partitioned_data::PartitionedData;
use crate::text::grid::{counted, grouped};

/// The turns of an experiment's conversations, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnTotals {
    /// Conversations.
    pub conversations: u64,
    /// Messages of the longest.
    pub longest: u64,
    /// All messages.
    pub messages: u64,
    /// Messages that are cut away.
    pub cut: u64,
    /// Conversations that lose messages.
    pub shortened: u64,
    /// Conversations that lose a part of their last exchange.
    pub split: u64,
    /// Answers that are learned.
    pub answers: u64,
    /// Answers that are not.
    pub passed_over: u64,
    /// Tokens that are learned.
    pub targets: u64,
}

impl TurnTotals {
    /// Those of all rows that are used.
    pub fn of(encoder: &Encoder<'_>, holdings: &PartitionedData) -> Result<Self> {
        let mut totals = Self::default();
        for row in Shards::used(&holdings.division) {
            let turns = encoder.turns(&holdings.table.examples[row])?;
            if let Some(turns) = &turns {
                totals.add(turns);
            }
        }
        Ok(totals)
    }

    fn add(&mut self, turns: &CutTurns) {
        self.conversations += 1;
        self.longest = self.longest.max(turns.messages as u64);
        self.messages += turns.messages as u64;
        self.cut += turns.cut as u64;
        self.shortened += u64::from(turns.cut > 0);
        self.split += u64::from(turns.is_split);
        self.answers += turns.answers as u64;
        self.passed_over += turns.passed_over as u64;
        self.targets += turns.targets as u64;
    }

    /// Messages and what is learned of them.
    pub fn in_words(&self) -> String {
        let mean = self.messages as f64 / self.conversations.max(1) as f64;
        format!(
            "{mean:.1} messages in the mean, at most {}; {} and {} are learned",
            grouped(self.longest),
            counted(self.answers, "answer"),
            counted(self.targets, "token"),
        )
    }

    /// What is lost, a sentence each.
    pub fn notes(&self, limit: usize) -> Vec<String> {
        let of = counted(self.conversations, "conversation");
        let mut notes = Vec::new();
        if self.cut > 0 {
            notes.push(format!(
                "note: {} of {of} {} than data.max_tokens = {limit}, and the oldest turns are left out: {} in all",
                grouped(self.shortened),
                if self.shortened == 1 { "is longer" } else { "are longer" },
                counted(self.cut, "message"),
            ));
        }
        if self.split > 0 {
            notes.push(format!(
                "note: the last question and answer of {} of {of} alone are too long: the question loses its \
                 beginning or the answer its end",
                grouped(self.split),
            ));
        }
        if self.passed_over > 0 {
            notes.push(format!(
                "note: {} are not learned: the chat template writes what stands before them otherwise once more turns \
                 follow, or changes what they say",
                counted(self.passed_over, "answer"),
            ));
        }
        notes
    }
}
