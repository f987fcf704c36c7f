//! Low-rank adapters on chosen roles (Hu et al. 2021, <https://arxiv.org/abs/2106.09685>), with or without magnitudes of
//! their own (`DoRA`, Liu et al. 2024, <https://arxiv.org/abs/2402.09353>).

use crate::error::ModelError;
use fedra_plan::Role;
use std::collections::BTreeSet;
use std::fmt::Display;

/// Which projections get an adapter, and of what size.
///
/// The correction is `alpha / rank * B A`; `B` starts at zero, so an adapted model starts as the
/// model it adapts. With magnitudes, each row of the corrected weight is given a norm that is learned; it starts as that of
/// the weight's row.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapters {
    rank: usize,
    alpha: f32,
    scale: f32,
    roles: BTreeSet<Role>,
    magnitudes: Magnitudes,
}

/// The norms of adapted weights' rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Magnitudes {
    /// They are what they are.
    None,
    /// They learn.
    Norms,
    /// They have been divided by the norms that the rows have: nothing trains any more.
    Factors,
}

impl Adapters {
    /// Roles inside the blocks that may carry an adapter.
    pub const ROLES: [Role; 7] =
        [Role::Query, Role::Key, Role::Value, Role::Output, Role::Gate, Role::Up, Role::Down];

    /// The role behind the blocks that may carry one: a decoder's output vocabulary.
    pub const HEAD: Role = Role::Vocabulary;

    /// Adapters of the given rank on the given roles, of every block or of the head.
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
        if let Some(role) = roles.iter().find(|role| !Self::may_adapt(**role)) {
            let expected = "a projection inside a block, or the output vocabulary";
            return refuse("LoRA role", role, expected);
        }
        if roles.is_empty() {
            return refuse("LoRA roles", &"none", "at least one projection");
        }
        let scale = alpha / rank as f32;
        Ok(Self { rank, alpha, scale, roles, magnitudes: Magnitudes::None })
    }

    /// Whether a role may carry an adapter.
    pub fn may_adapt(role: Role) -> bool {
        role == Self::HEAD || Self::ROLES.contains(&role)
    }

    /// The same of a lower rank at the same scale, so that its first rows and columns mean the same.
    #[must_use]
    pub fn with_rank(self, rank: usize) -> Self {
        let rank = rank.clamp(1, self.rank);
        Self { rank, alpha: self.scale * rank as f32, ..self }
    }

    /// The same with magnitudes.
    #[must_use]
    pub fn with_magnitudes(self) -> Self {
        Self { magnitudes: Magnitudes::Norms, ..self }
    }

    /// The same whose magnitudes have been divided.
    pub(crate) fn with_factors(self) -> Self {
        Self { magnitudes: Magnitudes::Factors, ..self }
    }

    /// Whether the rows of adapted weights have magnitudes of their own.
    pub fn has_magnitudes(&self) -> bool {
        self.magnitudes != Magnitudes::None
    }

    pub(crate) fn magnitudes(&self) -> Magnitudes {
        self.magnitudes
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
        self.scale
    }

    /// The adapted roles.
    pub fn roles(&self) -> &BTreeSet<Role> {
        &self.roles
    }

    /// Whether the output vocabulary has an adapter.
    pub fn adapts_head(&self) -> bool {
        self.roles.contains(&Self::HEAD)
    }
}
