//! A plan: what one client has of the model in one round, which part learns, which part it keeps to
//! itself, and where each part lives.
//!
//! A plan is those four choices and nothing else. What travels, how far the backward pass runs, what
//! crosses the cut and what is computed are derived from them here and never configured beside them.
//!
//! The loss is at the head, and the backward pass runs from there down to the lowest trained layer
//! and no further. So a cut is crossed backwards exactly when something below it trains, and
//! gradients pass *through* frozen blocks of the server if the client trains anything beneath.

use crate::cut::{Crossing, Cut, Side};
use crate::error::PlanError;
use crate::id::{Layer, ParamId};
use crate::layout::Layout;
use crate::scope::Scope;
use crate::versions::{Held, Versions};

/// One client's part in one round. Its scopes lie within its layout, what learns lies within what
/// the client has, and so does what it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    has: Scope,
    learns: Scope,
    keeps: Scope,
    cut: Cut,
    // Of the layout the plan was checked against: what "all blocks are frozen" counts.
    blocks: u16,
}

impl Plan {
    /// The whole model, of which a part learns and nothing is personal; refuses a part or a cut
    /// that the layout does not have.
    pub fn new(layout: &Layout, learns: Scope, cut: Cut) -> Result<Self, PlanError> {
        learns.check(layout)?;
        cut.check(layout.blocks())?;
        let (has, keeps) = (Scope::everything(layout), Scope::empty());
        Ok(Self { has, learns, keeps, cut, blocks: layout.blocks() })
    }

    /// The same for a client that has only this part of the model.
    #[must_use]
    pub fn within(mut self, part: &Scope) -> Self {
        self.has = &self.has & part;
        self.learns = &self.learns & part;
        self.keeps = &self.keeps & part;
        self
    }

    /// The same for a client that keeps this part to itself.
    #[must_use]
    pub fn keeping(mut self, personal: &Scope) -> Self {
        self.keeps = &self.has & personal;
        self
    }

    /// The same in a round in which this part of what the client has learns.
    #[must_use]
    pub fn learning(mut self, part: &Scope) -> Self {
        self.learns = &self.has & part;
        self
    }

    /// What the client's model is made of, wherever it lives.
    pub const fn has(&self) -> &Scope {
        &self.has
    }

    /// The part that learns, on either side.
    pub const fn learns(&self) -> &Scope {
        &self.learns
    }

    /// The part that never leaves the client.
    pub const fn keeps(&self) -> &Scope {
        &self.keeps
    }

    /// Where each part lives.
    pub const fn cut(&self) -> &Cut {
        &self.cut
    }
}

/// Who holds and trains what, and what travels for it.
impl Plan {
    /// What lives at a side, trained or frozen.
    pub fn held_by(&self, side: Side) -> Scope {
        self.has.filter(|id| self.cut.side(id.layer) == side)
    }

    /// What a side trains.
    pub fn trained_by(&self, side: Side) -> Scope {
        self.learns.filter(|id| self.cut.side(id.layer) == side)
    }

    /// What a client sends after training: all that it trained except what it keeps. The server's
    /// part is already where it is needed.
    pub fn uploads(&self) -> Scope {
        self.trained_by(Side::Client) - &self.keeps
    }

    /// What a client receives before it trains: of what lives with it, all that has changed since
    /// it was last brought up to date. What it keeps comes once, as the value to start from.
    pub fn downloads(&self, versions: &Versions, held: Held) -> Scope {
        let here = |id: ParamId| self.cut.side(id.layer) == Side::Client;
        match held {
            Held::Nothing => self.has.filter(here),
            Held::After(rounds) => {
                let stale = |id: ParamId| versions.changed_after(id, rounds);
                self.has.filter(|id| here(id) && stale(id) && !self.keeps.contains(id))
            }
        }
    }

    /// The boundaries that hidden states cross, in forward order.
    pub fn crossings(&self) -> Vec<Crossing> {
        self.cut.crossings()
    }

    /// The boundaries that gradients cross, in backward order: those with a trained layer below.
    pub fn gradient_crossings(&self) -> Vec<Crossing> {
        let Some(lowest) = self.lowest_trained() else {
            return Vec::new();
        };
        let needed = |crossing: &Crossing| crossing.comes_after(lowest);
        self.crossings().into_iter().rev().filter(needed).collect()
    }
}

/// How far the backward pass runs.
impl Plan {
    /// The first layer of the forward pass that trains: where the backward pass may stop.
    pub fn lowest_trained(&self) -> Option<Layer> {
        self.learns.lowest_layer()
    }

    /// How many leading blocks, after an untrained embedding, nothing in this round changes; their
    /// outputs depend on the input alone. `None` when the embedding trains.
    pub fn frozen_prefix(&self) -> Option<u16> {
        match self.lowest_trained() {
            Some(Layer::Embedding) => None,
            Some(Layer::Block(number)) => Some(number),
            Some(Layer::Head) | None => Some(self.blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{id, layout};
    use crate::role::Part;
    use crate::round::Round;

    /// Six blocks of which the server holds 2 and 3.
    fn cut_plan(scope: impl FnOnce(&Layout) -> Scope) -> (Layout, Plan) {
        let layout = layout(6);
        let cut = Cut::server(2..4, 6).expect("legal");
        let plan = Plan::new(&layout, scope(&layout), cut).expect("legal");
        (layout, plan)
    }

    #[test]
    fn a_plan_must_fit_its_layout() {
        let layout = layout(2);
        let stray = Scope::from_iter([id("block.2.key.weight")]);
        assert!(Plan::new(&layout, stray, Cut::none()).is_err());
        let deep = Cut::server(2..4, 6).expect("legal in a deeper model");
        assert_eq!(
            Plan::new(&layout, Scope::empty(), deep),
            Err(PlanError::unusable("a cut gives the server blocks 2..4", "blocks within 0..2"))
        );
    }

    #[test]
    fn only_what_the_client_trains_travels() {
        let (_, plan) = cut_plan(|layout| Scope::of_parts(layout, [Part::LoraA, Part::LoraB]));
        assert_eq!(Vec::from_iter(plan.uploads().blocks()), [0, 1, 4, 5]);
        assert_eq!(Vec::from_iter(plan.trained_by(Side::Server).blocks()), [2, 3]);
        let everything = plan.downloads(&Versions::default(), Held::Nothing);
        assert_eq!(Vec::from_iter(everything.blocks()), [0, 1, 4, 5]);
    }

    #[track_caller]
    fn check_backward(lowest: Layer, crossed: usize) {
        let (_, plan) = cut_plan(|layout| Scope::of_layers(layout, [lowest, Layer::Head]));
        let backward: Vec<Crossing> = plan.crossings().into_iter().rev().take(crossed).collect();
        assert_eq!(plan.gradient_crossings(), backward);
    }

    #[test]
    fn gradients_run_down_to_the_lowest_trained_layer_and_no_further() {
        check_backward(Layer::Head, 0);
        check_backward(Layer::Block(4), 0);
        check_backward(Layer::Block(3), 1);
        check_backward(Layer::Block(2), 1);
        check_backward(Layer::Block(1), 2);
        check_backward(Layer::Embedding, 2);
    }

    #[test]
    fn a_plan_that_trains_nothing_has_no_backward_pass() {
        let (_, plan) = cut_plan(|_| Scope::empty());
        assert_eq!(plan.gradient_crossings(), []);
        assert_eq!(plan.frozen_prefix(), Some(6));
    }

    #[test]
    fn the_frozen_prefix_ends_at_the_lowest_trained_layer() {
        let prefix = |layer| {
            cut_plan(|layout| Scope::of_layers(layout, [layer, Layer::Head])).1.frozen_prefix()
        };
        assert_eq!(prefix(Layer::Embedding), None);
        assert_eq!(prefix(Layer::Block(0)), Some(0));
        assert_eq!(prefix(Layer::Block(3)), Some(3));
        assert_eq!(prefix(Layer::Head), Some(6));
    }

    #[test]
    fn what_a_client_lacks_or_keeps_does_not_travel() {
        let layout = layout(3);
        let shallow = Scope::everything(&layout).filter(|id| id.layer != Layer::Block(2));
        let head = Scope::of_layers(&layout, [Layer::Head]);
        let plan = Plan::new(&layout, Scope::everything(&layout), Cut::none())
            .expect("legal")
            .within(&shallow)
            .keeping(&head);
        assert_eq!(plan.learns(), &shallow);
        assert_eq!(plan.uploads(), &shallow - &head);
        // Everything comes once, what is kept included; later only what the others changed.
        let mut versions = Versions::default();
        assert_eq!(plan.downloads(&versions, Held::Nothing), shallow);
        versions.change(&Scope::everything(&layout), Round(4));
        assert_eq!(plan.downloads(&versions, Held::After(Round(4))), &shallow - &head);
        assert_eq!(plan.downloads(&versions, Held::After(Round(5))), Scope::empty());
    }
}
