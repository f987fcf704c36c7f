//! Low-rank adapters on chosen roles (Hu et al. 2021, <https://arxiv.org/abs/2106.09685>).

use crate::error::ModelError;
use fedra_plan::Role;
use std::collections::BTreeSet;
use std::fmt::Display;

/// Which projections get an adapter, and of what size.
///
/// The correction is `alpha / rank * B A`; `B` starts at zero, so an adapted model starts as the
/// model it adapts.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapters {
    rank: usize,
    alpha: f32,
    roles: BTreeSet<Role>,
}

impl Adapters {
    /// Roles that may carry an adapter.
    pub const ROLES: [Role; 7] =
        [Role::Query, Role::Key, Role::Value, Role::Output, Role::Gate, Role::Up, Role::Down];

    /// Adapters of the given rank on the given roles of every block.
    pub fn new(
        rank: usize,
        alpha: f32,
        roles: impl IntoIterator<Item = Role>,
    ) -> Result<Self, ModelError> {
        let roles: BTreeSet<Role> = roles.into_iter().collect();
        let refuse = |what, found: &dyn Display, expected: &str| {
            Err(ModelError::structure(what, found, &expected))
        };
        if rank == 0 {
            return refuse("LoRA rank", &0, "at least 1");
        }
        if !alpha.is_finite() || alpha <= 0.0 {
            return refuse("LoRA alpha", &alpha, "a positive number");
        }
        if let Some(role) = roles.iter().find(|role| !Self::ROLES.contains(role)) {
            return refuse("LoRA role", role, "a projection inside a block");
        }
        if roles.is_empty() {
            return refuse("LoRA roles", &"none", "at least one projection");
        }
        Ok(Self { rank, alpha, roles })
    }

    /// The rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Numerator of the scale.
    pub fn alpha(&self) -> f32 {
        self.alpha
    }

    /// What the product `B A` is multiplied by.
    pub fn scale(&self) -> f32 {
        self.alpha / self.rank as f32
    }

    /// The adapted roles.
    pub fn roles(&self) -> &BTreeSet<Role> {
        &self.roles
    }
}
