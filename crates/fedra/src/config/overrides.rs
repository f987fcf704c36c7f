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
    /// Keys that have a flag of the same name.
    pub(super) flags: Vec<(&'static str, String)>,
    /// Values that a comparison puts over them.
    pub(super) assigned: Vec<(String, toml::Value)>,
    /// Values that a program puts over the file.
    pub(super) given: Vec<(String, toml::Value)>,
}

impl Overrides {
    /// These assignments, and this seed instead of the file's.
    pub fn new(sets: Vec<String>, seed: Option<u64>) -> Self {
        Self { sets, seed, ..Self::default() }
    }

    /// The same with one more key, as in `method.k=3`; of two assignments to a key the later counts.
    pub fn set(mut self, assignment: &str) -> Self {
        self.sets.push(assignment.to_owned());
        self
    }

    /// The same with one more value, which a program has; assignments count more.
    pub fn give(mut self, key: &str, value: impl Into<toml::Value>) -> Self {
        self.given.push((key.to_owned(), value.into()));
        self
    }

    /// The same with this seed.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// The same with a key that has a flag of its name, as in `--device cuda:0`; it counts more than assignments.
    pub fn flag(mut self, key: &'static str, value: &impl ToString) -> Self {
        self.flags.push((key, value.to_string()));
        self
    }

    /// Whether a key is overridden.
    pub(super) fn names(&self, key: &str) -> bool {
        let set = |set: &String| set.split_once('=').is_some_and(|(own, _)| own.trim() == key);
        self.sets.iter().any(set)
            || self.flags.iter().any(|(own, _)| *own == key)
            || self.assigned.iter().chain(&self.given).any(|(own, _)| own == key)
    }

    /// The same with more values over them, and with this seed.
    pub fn with(&self, assigned: &[(String, toml::Value)], seed: u64) -> Self {
        let assigned = [&self.assigned, assigned].concat();
        Self { seed: Some(seed), assigned, ..self.clone() }
    }
}
