//! How much the clients of a round computed, counted from the steps behind their updates.
//!
//! Seconds depend on the machine and on what else it does; this count depends on nothing but the
//! plan, so two methods can be compared at equal work. A training example costs, for each of its
//! tokens, one multiply-add a weight in each of three products:
//!
//! ```text
//! forward           every weight
//! through           every weight of the sites from the lowest that learns upwards
//! gradient          every weight that learns
//! ```
//!
//! Embedding tables are looked up, not multiplied. When examples come again in later epochs, the
//! forward pass of a frozen prefix is counted once, as it is computed once. What clients measure
//! before a choice of blocks is counted too, on the examples they look at: an attention score is a
//! forward pass without the head, a gradient all three products with every block learning.
//! A client that lacks the upper blocks does not pay for them. Attention
//! scores, norms, scoring (attention that is watched by `evaluate.attention` included) and rows
//! that a head does not read are left out: this is an estimate to compare runs of one model by, not
//! a bill.
//!
//! Only those count whose update was taken. A client that failed, was late or was refused may have
//! worked too, but nobody knows how much.

use fedra_plan::{Layout, ParamId, Probe, Role, Scope, Site};

use crate::fleet::ClientInfo;
use crate::recipe::Recipe;
use crate::work::Work;

/// Multiply-adds of those who made so many steps on what learned at them, had every example one
/// token.
pub(crate) fn of<'a>(
    (recipe, layout): (&Recipe, &Layout),
    work: &Work,
    worked: impl IntoIterator<Item = (&'a ClientInfo, &'a Scope, u32)>,
) -> u64 {
    let one = |(client, learns, steps): (&ClientInfo, &Scope, u32)| {
        let model = Multiplied { layout, has: &recipe.reach(&client.name, layout) };
        let done = Work { max_steps: Some(steps), ..work.clone() };
        model.training(learns, &done, client.examples)
    };
    worked.into_iter().map(one).sum()
}

/// The model of one client, as far as it is multiplied with.
pub(crate) struct Multiplied<'a> {
    pub(crate) layout: &'a Layout,
    /// The part that the client has.
    pub(crate) has: &'a Scope,
}

impl Multiplied<'_> {
    fn weights(&self, condition: impl Fn(ParamId) -> bool) -> u64 {
        let counts = |id: ParamId| !is_looked_up(id.role) && self.has.contains(id) && condition(id);
        let chosen = self.layout.iter().filter(|(id, _)| counts(*id));
        chosen.map(|(_, shape)| shape.elements() as u64).sum()
    }

    fn training(&self, learns: &Scope, work: &Work, examples: u64) -> u64 {
        let Some(lowest) = learns.lowest_site() else { return 0 };
        let prefix = self.weights(|id| id.site < lowest);
        let rest = self.weights(|id| id.site >= lowest);
        let gradient = self.weights(|id| learns.contains(id));

        let all = u64::from(work.epochs) * examples;
        let visits = match work.max_steps {
            Some(steps) => all.min(u64::from(steps) * u64::from(work.batch)),
            None => all,
        };
        let watched = work
            .watch
            .map_or(0, |watch| self.probing(watch.probe, examples.min(u64::from(watch.examples))));
        visits.min(examples) * prefix + visits * (2 * rest + gradient) + watched
    }

    /// What it takes to answer a probe on so many examples.
    pub(crate) fn probing(&self, probe: Probe, examples: u64) -> u64 {
        let (embedding, blocks, head) = (
            self.weights(|id| id.site == Site::Embedding),
            self.weights(|id| id.site.block().is_some()),
            self.weights(|id| id.site == Site::Head),
        );
        examples
            * match probe {
                Probe::Attention { .. } => embedding + blocks,
                Probe::GradientNorm | Probe::RelativeGradient => {
                    embedding + 2 * (blocks + head) + blocks
                }
            }
    }
}

/// Whether a parameter is a table whose rows are picked.
const fn is_looked_up(role: Role) -> bool {
    match role {
        Role::Token | Role::Position | Role::Segment => true,
        Role::EmbeddingNorm
        | Role::AttentionNorm
        | Role::Query
        | Role::Key
        | Role::Value
        | Role::Output
        | Role::MlpNorm
        | Role::Gate
        | Role::Up
        | Role::Down
        | Role::FinalNorm
        | Role::Pooler
        | Role::Transform
        | Role::TransformNorm
        | Role::Classifier
        | Role::Vocabulary => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Solver;
    use fedra_plan::{AttentionSide, Part, RelevantTokens, Shape};

    /// A table of 100, two blocks of 10 and 20 weights (query and value), a head of 5.
    fn layout() -> Layout {
        let parameter =
            |site, role, size| (ParamId { site, role, part: Part::Weight }, Shape::vector(size));
        Layout::new([
            parameter(Site::Embedding, Role::Token, 100),
            parameter(Site::Block(0), Role::Query, 10),
            parameter(Site::Block(0), Role::Value, 20),
            parameter(Site::Block(1), Role::Query, 10),
            parameter(Site::Block(1), Role::Value, 20),
            parameter(Site::Head, Role::Classifier, 5),
        ])
        .expect("legal")
    }

    #[track_caller]
    fn check(learns: &Scope, epochs: u32, max_steps: Option<u32>, expected: u64) {
        let solver = Solver::Sgd { rate: 0.1, weight_decay: 0.0 };
        let work = Work { epochs, batch: 2, max_steps, ..Work::new(solver) };
        let layout = layout();
        let model = Multiplied { layout: &layout, has: &Scope::everything(&layout) };
        assert_eq!(model.training(learns, &work, 7), expected);
    }

    #[test]
    fn everything_that_learns_costs_three_products() {
        check(&Scope::everything(&layout()), 1, None, 7 * 3 * 65);
        check(&Scope::everything(&layout()), 2, Some(4), 8 * 3 * 65);
    }

    #[test]
    fn a_frozen_prefix_costs_one_forward_pass_and_no_more_in_later_epochs() {
        let top = Scope::of_sites(&layout(), [Site::Block(1), Site::Head]);
        check(&top, 1, None, 7 * (30 + 3 * 35));
        check(&top, 3, None, 7 * 30 + 21 * 3 * 35);
    }

    #[test]
    fn frozen_weights_in_the_middle_save_their_gradient_alone() {
        let values = Scope::of_roles(&layout(), [Role::Value, Role::Classifier]);
        check(&values, 1, None, 7 * (2 * 65 + 45));
        check(&Scope::empty(), 1, None, 0);
    }

    #[test]
    fn a_probe_costs_the_passes_that_it_takes_and_a_shallow_client_only_its_own_blocks() {
        let layout = layout();
        let attention =
            Probe::Attention { side: AttentionSide::Key, tokens: RelevantTokens::Entities };
        let shallow = Scope::everything(&layout).filter(|id| id.site != Site::Block(1));
        for (has, blocks) in [(&Scope::everything(&layout), 60), (&shallow, 30)] {
            let model = Multiplied { layout: &layout, has };
            assert_eq!(model.probing(attention, 4), 4 * blocks);
            assert_eq!(model.probing(Probe::GradientNorm, 4), 4 * (3 * blocks + 2 * 5));
        }
    }
}
