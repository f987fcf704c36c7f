//! The ledger in words: what is guaranteed, to whom, and what is not.

use std::collections::BTreeSet;

use crate::composition::Spent;
use crate::error::PrivacyError;
use crate::event::{Event, Release, Sampling};
use crate::guarantee::{Guarantee, Relation, Unit};
use crate::ledger::Ledger;
use crate::mechanism::{GRADIENTS_AT_CUT, STATES_AT_CUT};
use crate::shown;

impl Ledger {
    /// A paragraph for people.
    pub fn statement(&self) -> Result<String, PrivacyError> {
        let spent = self.spent()?;
        let mut sentences = vec![guaranteed(self.guarantee(), spent)];
        sentences.extend((spent.pld > NO_PROTECTION).then(|| in_plain_words(spent.pld)));
        sentences.extend(assumed(self.events()));
        sentences.push(not_covered(self.guarantee(), self.events()));
        Ok(sentences.join(" "))
    }
}

fn guaranteed(guarantee: &Guarantee, spent: Spent) -> String {
    let Guarantee { unit, relation, delta, budget } = guarantee;
    let whom = match unit {
        Unit::Example => "each single row of a client's data (example-level)",
        Unit::Client => "each client with all its data (client-level)",
    };
    let against = match relation {
        Relation::AddRemove => "is or is not part of the data (add-remove)",
        Relation::Replace => "is replaced by any other, at a public number of units (replace)",
    };
    let budget = match budget {
        Some(budget) => format!(" of a budget of {budget}"),
        None => String::new(),
    };
    if spent.pld.is_infinite() {
        return format!(
            "No differential privacy can be claimed for {whom}: epsilon is infinite, because something was released without a bound."
        );
    }
    let (pld, rdp) = (shown::up(spent.pld, 4), shown::up(spent.rdp, 4));
    format!(
        "What was released so far is differentially private for {whom}: whether one {unit} {against} changes no probability by more than a factor of exp({pld}), except with probability {delta} (epsilon {pld}{budget}, by privacy loss distributions, rounded up; {rdp} by Rényi divergences).",
    )
}

/// Above this epsilon nobody should call a guarantee a protection: whoever thought an example as likely in
/// the data as not may be 99.995 % sure afterwards.
pub const NO_PROTECTION: f64 = 10.0;

fn in_plain_words(epsilon: f64) -> String {
    let bound = if epsilon.is_finite() { "an epsilon of this size" } else { "an infinite epsilon" };
    format!(
        "In plain words: this is no protection, because {bound} lets an attacker become almost certain."
    )
}

/// What the numbers take for granted.
fn assumed(events: &[Event]) -> Vec<String> {
    let mut sentences = BTreeSet::new();
    for event in events {
        sentences.extend(match &event.release {
            Release::SampledGaussian { sampling: Sampling::Poisson { .. }, .. } => Some(
                "It assumes Poisson sampling: each unit joins each batch independently, by a secret random draw. Shuffled or fixed batches would not be covered.",
            ),
            Release::SampledGaussian { sampling: Sampling::CappedPoisson { .. }, .. } => Some(
                "It assumes Poisson sampling with a cap, and is accounted as such: a batch beyond the cap keeps a random subset of its members.",
            ),
            Release::Gaussian { .. } if is_at_cut(event) => Some(
                "Rows at the cut are accounted one by one, without amplification. The number of sequences that a client sends in each step and their lengths in tokens are visible and not covered: an absent example leaves rows of zeros in its place, and a replaced one has the same length.",
            ),
            Release::Gaussian { .. } | Release::NonPrivate { .. } => None,
        });
    }
    sentences.into_iter().map(str::to_owned).collect()
}

fn is_at_cut(event: &Event) -> bool {
    [STATES_AT_CUT, GRADIENTS_AT_CUT].contains(&event.mechanism.as_str())
}

/// Confessions, by name.
fn not_covered(guarantee: &Guarantee, events: &[Event]) -> String {
    let mut named = BTreeSet::new();
    for event in events {
        if let Release::NonPrivate { what, why } = &event.release {
            named.insert(format!("{what} ({}: {why})", event.mechanism));
        }
    }
    let always = match guarantee.unit {
        Unit::Example => {
            "which clients take part, how many rows and tokens a client has (rates, steps and weights depend on that number, which is treated as public unless privacy.rows declares another), how long it works, digests of rows in the run's own files, all of a client's rows together, rows that are only tested on, and other runs on the same rows"
        }
        Unit::Client => {
            "what the server sees of single updates, the run's files other than the model and the ledger, which name the clients of each round and what they sent (against their readers, sampling gives no amplification), how many rows and tokens there are, digests of rows in the run's own files, how long clients work, rows of clients that are only tested on (the central test set, where it is taken from them), what a client learns from its own rows, and other runs with the same clients"
        }
    };
    if named.is_empty() {
        return format!("Not covered: {always}.");
    }
    let named: Vec<String> = named.into_iter().collect();
    format!("Released without any bound: {}. Not covered either: {always}.", named.join("; "))
}
