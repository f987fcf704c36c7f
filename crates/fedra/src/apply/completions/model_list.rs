//! The names of models, as clients ask for them.

use serde_json::{Value, json};

use super::api_error::ApiError;
use crate::error::{Result, refuse};

/// Names, each of another model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelList {
    names: Vec<String>,
    /// Since when they are served, in seconds since 1970.
    since: u64,
}

impl ModelList {
    /// Refuses a name that stands twice.
    pub fn new(names: Vec<String>, since: u64) -> Result<Self> {
        for (place, name) in names.iter().enumerate() {
            if names[..place].contains(name) {
                refuse!("found two models with the name {name:?}, expected another name for each");
            }
        }
        Ok(Self { names, since })
    }

    /// The names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of a model.
    pub fn find(&self, name: &str) -> Result<usize, ApiError> {
        self.names.iter().position(|known| known == name).ok_or_else(|| {
            let told = format!("found {name:?}, expected one of {}", self.names.join(", "));
            ApiError { status: 404, ..ApiError::field("model", told) }.with_code("model_not_found")
        })
    }

    /// The list, as `GET /v1/models` has it.
    pub fn all(&self) -> Value {
        let models: Vec<Value> = self.names.iter().map(|name| self.about(name)).collect();
        json!({ "object": "list", "data": models })
    }

    /// One model, as `GET /v1/models/NAME` has it.
    pub fn one(&self, name: &str) -> Result<Value, ApiError> {
        self.find(name).map(|_| self.about(name))
    }

    fn about(&self, name: &str) -> Value {
        json!({ "id": name, "object": "model", "created": self.since, "owned_by": "fedra" })
    }
}
