//! `[privacy]`: a guarantee, as written.

use std::num::NonZeroU64;
use std::path::PathBuf;

use fedra_engine::{ClipRule, NoiseMultiplier, Privacy, PrivateSelection, settings};
use fedra_privacy::{Budget, Delta, Guarantee, PrivacyError, Relation, Unit};

use crate::config::ConfigError;
use crate::config::split_table::{NoiseTable, SplitTable};

settings! {
    /// The table.
    pub struct PrivacyTable {
        /// Whose presence is hidden: one example, or a client with all of its.
        pub unit: Unit = Unit::Example,
        /// The most that may be spent; noise is found for it unless given.
        pub epsilon: Option<f64> = None,
        /// The chance with which the guarantee may fail.
        pub delta: f64 = 1e-5,
        /// How neighbouring datasets differ.
        pub relation: Relation = Relation::AddRemove,
        /// Deviation of the noise over the clip norm.
        pub noise: Option<f64> = None,
        /// The norm down to which a contribution is scaled.
        pub clip: f64 = 1.0,
        /// How an example's gradient is scaled down.
        pub clipping: ClipRule = ClipRule::Flat,
        /// Batches of more than so many times `work.batch` are cut down.
        pub cap: Option<f64> = None,
        /// A public number of training rows of a client, from which rate, steps and weight follow in place of the
        /// true one; only for examples.
        pub rows: Option<NonZeroU64> = None,
        /// Where the ranking of blocks comes from, where a method would let clients measure.
        pub selection: PrivateSelection = PrivateSelection::NoisyUpdate,
        /// Text that anybody may have, in the format of the data, for `selection = "public"`.
        pub public: Option<PathBuf> = None,
        /// Whether clients score the model on validation and test examples of their own, which nothing hides.
        pub client_scores: bool = false,
    }
}

impl PrivacyTable {
    /// The guarantee as the engine takes it. Beside a cut it is the rows' noise that keeps it to examples.
    pub fn privacy(&self, split: Option<&SplitTable>) -> Result<Privacy, ConfigError> {
        // What is out of its range is said before what is missing.
        let delta = number("privacy.delta", Delta::new(self.delta))?;
        let budget = self.epsilon.map(|epsilon| number("privacy.epsilon", Budget::new(epsilon)));
        let budget = budget.transpose()?;
        let (noise, clip) = match split.filter(|_| self.unit == Unit::Example) {
            None => {
                let expected = "a budget such as 8.0, or privacy.noise";
                ConfigError::missing("privacy.epsilon", expected)
                    .when(self.epsilon.is_none() && self.noise.is_none())?;
                // Where noise is still to be found, one stands for it.
                (self.noise.unwrap_or(1.0), self.clip)
            }
            Some(split) => {
                let of_rows = "[split], where the noise of rows is split.noise.sigma";
                ConfigError::excludes("privacy.noise", of_rows).when(self.noise.is_some())?;
                match split.noise {
                    // What is wrong with a sigma is said of split.noise.
                    Some(NoiseTable::Clipped { norm, sigma, .. }) => {
                        (if NoiseMultiplier::new(sigma).is_ok() { sigma } else { 1.0 }, norm)
                    }
                    Some(NoiseTable::Relative { .. } | NoiseTable::Absolute { .. }) | None => {
                        (1.0, 1.0)
                    }
                }
            }
        };
        ConfigError::only("privacy.public", "with privacy.selection = \"public\"")
            .when(self.public.is_some() && self.selection != PrivateSelection::Public)?;
        let noise = number("privacy.noise", NoiseMultiplier::new(noise))?;
        Ok(Privacy {
            guarantee: Guarantee { unit: self.unit, relation: self.relation, delta, budget },
            clip,
            clipping: self.clipping,
            noise,
            cap: self.cap,
            rows: self.rows,
            selection: self.selection,
            client_scores: self.client_scores,
        })
    }
}

/// A number that privacy has no use for, under its key.
fn number<T>(key: &'static str, read: Result<T, PrivacyError>) -> Result<T, ConfigError> {
    read.map_err(|error| {
        if let PrivacyError::Number { found, expected, .. } = error {
            return ConfigError::new(key, found, expected);
        }
        ConfigError::sentence(key, error)
    })
}
