//! An averaged perceptron over named features: the simplest learner that can read context.

use std::collections::HashMap;

use fedra_data::Dice;

/// Items in an order that depends on the epoch.
pub fn shuffled<T>(items: &[T], epoch: u64) -> Vec<&T> {
    let mut order: Vec<&T> = items.iter().collect();
    Dice::new(epoch).shuffle(&mut order);
    order
}

/// One weight a feature and class (Collins 2002).
pub struct Perceptron {
    classes: usize,
    weights: HashMap<String, Vec<(f64, f64)>>,
    steps: f64,
}

impl Perceptron {
    pub fn new(classes: usize) -> Self {
        Self { classes, weights: HashMap::new(), steps: 1.0 }
    }

    pub fn best(&self, features: &[String]) -> u32 {
        let mut scores = vec![0.0; self.classes];
        for weights in features.iter().filter_map(|feature| self.weights.get(feature)) {
            scores.iter_mut().zip(weights).for_each(|(score, weight)| *score += weight.0);
        }
        (0..self.classes).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap() as u32
    }

    /// Predicts, corrects itself if wrong, and returns what it predicted.
    pub fn learn(&mut self, features: &[String], truth: u32) -> u32 {
        let guess = self.best(features);
        self.steps += 1.0;
        if guess != truth {
            for feature in features {
                if !self.weights.contains_key(feature) {
                    self.weights.insert(feature.clone(), vec![(0.0, 0.0); self.classes]);
                }
                let weights = self.weights.get_mut(feature).unwrap();
                for (class, change) in [(truth, 1.0), (guess, -1.0)] {
                    weights[class as usize].0 += change;
                    weights[class as usize].1 += change * self.steps;
                }
            }
        }
        guess
    }

    /// Replaces every weight by its mean over all steps.
    #[expect(clippy::iter_over_hash_type, reason = "each weight is changed on its own")]
    pub fn average(&mut self) {
        for weights in self.weights.values_mut() {
            for weight in weights {
                weight.0 -= weight.1 / self.steps;
            }
        }
    }
}
