//! One hospital: how it writes, whom it treats and how much it has written.
//!
//! Both shifts are mixtures with what all hospitals share: at a knob of 0 every hospital draws
//! from the shared distribution, at 1 only from its own.

use super::lexicon::{DISEASES, SYMPTOMS};
use super::settings::Clinic;
use super::templates::SECTIONS;
use crate::Dice;

/// Concentration of what is a hospital's own: low, so that a few choices dominate.
const OWN_CONCENTRATION: f64 = 0.3;
/// Prevalence of the disease at rank r is proportional to (r + this)^-1.
const PREVALENCE_OFFSET: f64 = 4.0;

/// A hospital's habits and patients.
pub(super) struct Hospital {
    pub name: String,
    /// How many notes it holds.
    pub notes: usize,
    /// Weight of each disease.
    pub diseases: Vec<f64>,
    /// Weight of each symptom.
    pub symptoms: Vec<f64>,
    /// Weight of each section of a `concepts` note.
    pub sections: Vec<f64>,
    habit: u64,
    feature_shift: f64,
}

impl Hospital {
    /// The hospitals of a clinic, with their sizes.
    pub fn all(clinic: &Clinic, seed: u64) -> Vec<Self> {
        let mut dice = Dice::for_purpose(seed, "hospitals");
        let sizes = sizes(clinic, &mut dice);
        let mut hospitals = Vec::with_capacity(clinic.hospitals);
        for (number, notes) in sizes.into_iter().enumerate() {
            let mix = clinic.label_shift;
            hospitals.push(Self {
                name: format!("hospital-{}", number + 1),
                notes,
                diseases: mixed(&prevalence(DISEASES.len()), mix, &mut dice),
                symptoms: mixed(&vec![1.0; SYMPTOMS.len()], mix, &mut dice),
                sections: mixed(
                    &SECTIONS.iter().map(|s| s.weight).collect::<Vec<_>>(),
                    mix,
                    &mut dice,
                ),
                habit: dice.bits(),
                feature_shift: clinic.feature_shift,
            });
        }
        hospitals
    }

    /// An index below `count`: the hospital's favourite at this point of the language, or any.
    pub fn choose(&self, point: &str, count: usize, dice: &mut Dice) -> usize {
        if dice.chance(self.feature_shift) {
            return Dice::for_purpose(self.habit, point).below(count);
        }
        dice.below(count)
    }

    /// An index below `count`, some much more often than others.
    pub fn lean(&self, point: &str, count: usize, dice: &mut Dice) -> usize {
        if dice.chance(self.feature_shift) {
            let own = Dice::for_purpose(self.habit, point).dirichlet(OWN_CONCENTRATION, count);
            return dice.weighted(&own);
        }
        dice.below(count)
    }
}

fn prevalence(count: usize) -> Vec<f64> {
    (0..count).map(|rank| 1.0 / (rank as f64 + PREVALENCE_OFFSET)).collect()
}

fn mixed(shared: &[f64], shift: f64, dice: &mut Dice) -> Vec<f64> {
    let own = dice.dirichlet(OWN_CONCENTRATION, shared.len());
    let total: f64 = shared.iter().sum();
    shared.iter().zip(own).map(|(s, o)| (1.0 - shift) * s / total + shift * o).collect()
}

/// Notes per hospital, proportional to rank^-skew with ranks dealt at random; at least one each
/// and exactly `clinic.notes` together.
fn sizes(clinic: &Clinic, dice: &mut Dice) -> Vec<usize> {
    let mut weights: Vec<f64> =
        (1..=clinic.hospitals).map(|rank| (rank as f64).powf(-clinic.size_skew)).collect();
    dice.shuffle(&mut weights);
    crate::partition::apportion(clinic.notes, &weights)
}
