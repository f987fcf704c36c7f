//! What can be chosen about the clinic.

use serde::{Deserialize, Serialize};

use crate::{DataError, Result};

/// The knobs of the clinic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clinic {
    /// How many hospitals; each is a client.
    pub hospitals: usize,
    /// How many notes they hold together. A `concepts` note becomes two to four examples, one a
    /// section; a `diagnosis` note is one example.
    pub notes: usize,
    /// 0: all hospitals write alike; 1: each only in its own abbreviations and turns of phrase.
    pub feature_shift: f64,
    /// 0: all hospitals treat the same diseases; 1: each its own few.
    pub label_shift: f64,
    /// 0: all hospitals are of one size; s: the hospital at rank r holds a share like r^-s.
    pub size_skew: f64,
}

impl Default for Clinic {
    fn default() -> Self {
        Self { hospitals: 8, notes: 800, feature_shift: 0.5, label_shift: 0.5, size_skew: 0.5 }
    }
}

impl Clinic {
    /// Refuses what no clinic can be.
    pub(super) fn check(&self) -> Result<()> {
        if self.hospitals == 0 {
            return Err(DataError::setting("hospitals", &0, "at least 1"));
        }
        if self.notes < self.hospitals {
            let expected = format!("at least one for each of the {} hospitals", self.hospitals);
            return Err(DataError::setting("notes", &self.notes, expected));
        }
        for (name, knob, top) in [
            ("feature_shift", self.feature_shift, 1.0),
            ("label_shift", self.label_shift, 1.0),
            ("size_skew", self.size_skew, 4.0),
        ] {
            if !(0.0..=top).contains(&knob) {
                return Err(DataError::setting(name, &knob, format!("a number from 0 to {top}")));
            }
        }
        Ok(())
    }
}
