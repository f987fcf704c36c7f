//! What a plan makes a party compute, in multiply-adds for one token per example.
//!
//! Seconds depend on the machine and on what else it does; this count depends on nothing but the
//! plan, so two methods can be compared at equal work. A training example costs, for each of its
//! tokens, one multiply-add per weight in each of three products:
//!
//! ```text
//! forward           every weight
//! through           every weight of the layers from the lowest that learns upwards
//! gradient          every weight that learns
//! ```
//!
//! Embedding tables are looked up, not multiplied. When examples come again in later epochs, the
//! forward pass of a frozen prefix is counted once, as it is computed once. Attention scores and
//! norms are left out: this is an estimate to compare runs of one model by, not a bill.

use crate::cut::Side;
use crate::evidence::Probe;
use crate::id::{Layer, ParamId};
use crate::layout::Layout;
use crate::plan::Plan;
use crate::role::{Part, Role};
use crate::shape::Shape;

/// How often a client looks at its examples in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visits {
    /// Different examples.
    pub examples: u64,
    /// Passes over examples, the same ones again included.
    pub passes: u64,
}

impl Plan {
    /// What a side computes to train.
    pub fn training_work(&self, side: Side, layout: &Layout, visits: Visits) -> u64 {
        let Some(lowest) = self.lowest_trained() else { return 0 };
        let prefix = self.weights(side, layout, |id| id.layer < lowest);
        let rest = self.weights(side, layout, |id| id.layer >= lowest);
        let gradient = self.weights(side, layout, |id| self.learns().contains(id));
        let Visits { examples, passes } = visits;
        passes.min(examples) * prefix + passes * (2 * rest + gradient)
    }

    /// What a side computes to answer a probe on this many examples: an attention score is a
    /// forward pass without the head, a gradient all three products with every block learning.
    pub fn probing_work(
        &self,
        side: Side,
        layout: &Layout,
        (probe, examples): (Probe, u64),
    ) -> u64 {
        let (embedding, blocks, head) = (
            self.weights(side, layout, |id| id.layer == Layer::Embedding),
            self.weights(side, layout, |id| id.layer.block().is_some()),
            self.weights(side, layout, |id| id.layer == Layer::Head),
        );
        examples
            * match probe {
                Probe::Attention { .. } => embedding + blocks,
                Probe::GradientNorm | Probe::RelativeGradient => {
                    embedding + 2 * (blocks + head) + blocks
                }
            }
    }

    /// What a side computes to hear the reference of a preference on this many examples: a forward pass without
    /// adapters.
    pub fn reference_work(&self, side: Side, layout: &Layout, examples: u64) -> u64 {
        let is_base = |id: ParamId| matches!(id.part, Part::Weight | Part::Bias);
        examples * self.weights(side, layout, is_base)
    }

    /// Weights of a side that are multiplied with.
    fn weights(&self, side: Side, layout: &Layout, condition: impl Fn(ParamId) -> bool) -> u64 {
        let counts = |id: &ParamId| {
            !is_looked_up(id.role) && self.cut().side(id.layer) == side && condition(*id)
        };
        let chosen = self.has().iter().filter(counts).filter_map(|id| layout.get(id));
        chosen.map(|shape| Shape::elements(shape) as u64).sum()
    }
}

/// Whether a parameter is a table whose rows are picked.
const fn is_looked_up(role: Role) -> bool {
    matches!(role, Role::Token | Role::Position | Role::Segment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut::Cut;
    use crate::evidence::{AttentionSide, RelevantTokens};
    use crate::scope::Scope;

    /// A table of 100, two blocks of 10 and 20 weights (query and value), a head of 5.
    fn layout() -> Layout {
        let parameter =
            |layer, role, size| (ParamId { layer, role, part: Part::Weight }, Shape::vector(size));
        Layout::new([
            parameter(Layer::Embedding, Role::Token, 100),
            parameter(Layer::Block(0), Role::Query, 10),
            parameter(Layer::Block(0), Role::Value, 20),
            parameter(Layer::Block(1), Role::Query, 10),
            parameter(Layer::Block(1), Role::Value, 20),
            parameter(Layer::Head, Role::Classifier, 5),
        ])
        .expect("legal")
    }

    #[track_caller]
    fn check(learns: &Scope, passes: u64, expected: u64) {
        let layout = layout();
        let plan = |cut| Plan::new(&layout, learns.clone(), cut).expect("legal");
        let visits = Visits { examples: 7, passes };
        let work = |cut, side| plan(cut).training_work(side, &layout, visits);
        assert_eq!(work(Cut::none(), Side::Client), expected);
        // Whoever does it, it is the same work.
        let cut = Cut::server(1..2, 2).expect("legal");
        assert_eq!(work(cut.clone(), Side::Client) + work(cut, Side::Server), expected);
    }

    #[test]
    fn everything_that_learns_costs_three_products() {
        check(&Scope::everything(&layout()), 7, 7 * 3 * 65);
        check(&Scope::everything(&layout()), 8, 8 * 3 * 65);
    }

    #[test]
    fn a_frozen_prefix_costs_one_forward_pass_and_no_more_in_later_epochs() {
        let top = Scope::of_layers(&layout(), [Layer::Block(1), Layer::Head]);
        check(&top, 7, 7 * (30 + 3 * 35));
        check(&top, 21, 7 * 30 + 21 * 3 * 35);
    }

    #[test]
    fn frozen_weights_in_the_middle_save_their_gradient_alone() {
        let values = Scope::of_roles(&layout(), [Role::Value, Role::Classifier]);
        check(&values, 7, 7 * (2 * 65 + 45));
        check(&Scope::empty(), 7, 0);
    }

    #[test]
    fn a_reference_costs_one_forward_pass_without_adapters() {
        let adapter = ParamId { layer: Layer::Block(1), role: Role::Query, part: Part::LoraA };
        let with = layout().iter().map(|(id, shape)| (id, *shape)).collect::<Vec<_>>();
        let with = with.into_iter().chain([(adapter, Shape::vector(4))]);
        let layout = Layout::new(with).expect("legal");
        let learns = Scope::from_iter([adapter]);
        let plan = Plan::new(&layout, learns, Cut::none()).expect("legal");
        assert_eq!(plan.reference_work(Side::Client, &layout, 7), 7 * 65);
        let visits = Visits { examples: 7, passes: 7 };
        // The lowest that learns is in the second block: all of it is gone through again, four weights learn.
        let trained = 7 * (30 + 2 * (35 + 4) + 4);
        assert_eq!(plan.training_work(Side::Client, &layout, visits), trained);
    }

    #[test]
    fn a_probe_costs_the_passes_that_it_takes_and_a_shallow_client_only_its_own_blocks() {
        let layout = layout();
        let attention =
            Probe::Attention { side: AttentionSide::Key, tokens: RelevantTokens::Entities };
        let shallow = Scope::everything(&layout).filter(|id| id.layer != Layer::Block(1));
        for (has, blocks) in [(&Scope::everything(&layout), 60), (&shallow, 30)] {
            let plan = Plan::new(&layout, Scope::empty(), Cut::none()).expect("legal").within(has);
            let work = |probe| plan.probing_work(Side::Client, &layout, (probe, 4));
            assert_eq!(work(attention), 4 * blocks);
            assert_eq!(work(Probe::GradientNorm), 4 * (3 * blocks + 2 * 5));
        }
    }
}
