//! A proposal: the meaning of the columns, a model, and the numbers of a run.

use super::roles::Roles;
use super::sight::Sight;
use super::training::Training;
use super::wishes::Wishes;
use crate::error::Result;

/// An experiment with the reason of each decision.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// What each column means, and the task.
    pub roles: Roles,
    /// The model, and how it is trained.
    pub training: Training,
    pub(super) sight: Sight,
    pub(super) wishes: Wishes,
}

/// Proposes what is not wished for.
pub fn propose(sight: &Sight, wishes: &Wishes) -> Result<Proposal> {
    let roles = Roles::of(sight, wishes)?;
    let training = Training::of(sight, &roles, wishes)?;
    Ok(Proposal { roles, training, sight: sight.clone(), wishes: wishes.clone() })
}

impl Proposal {
    /// Whether rows are divided among clients that nobody named.
    pub fn makes_up_clients(&self) -> bool {
        self.roles.client.is_none() && !self.sight.is_by_client()
    }
}
