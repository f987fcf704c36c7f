//! What overrides the keys of a file: assignments, a seed, and the values of a comparison.

/// What overrides the keys of a file.
///
/// ```
/// let overrides = fedra::Overrides::default().set("work.epochs=2").set("method.name=fedprox").seed(7);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Assignments as given.
    pub(super) sets: Vec<String>,
    pub(super) seed: Option<u64>,
    /// Values that a comparison puts over them.
    pub(super) assigned: Vec<(String, toml::Value)>,
}

impl Overrides {
    /// These assignments, and this seed instead of the file's.
    pub fn new(sets: Vec<String>, seed: Option<u64>) -> Self {
        Self { sets, seed, assigned: Vec::new() }
    }

    /// The same with one more key, as in `method.k=3`; of two assignments to a key the later counts.
    pub fn set(mut self, assignment: &str) -> Self {
        self.sets.push(assignment.to_owned());
        self
    }

    /// The same with this seed.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// The same with more values over them, and with this seed.
    pub fn with(&self, assigned: &[(String, toml::Value)], seed: u64) -> Self {
        let assigned = [&self.assigned, assigned].concat();
        Self { sets: self.sets.clone(), seed: Some(seed), assigned }
    }
}
