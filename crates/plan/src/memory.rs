//! What a plan makes a party hold of the model, in numbers of parameters.
//!
//! Activations depend on the batch and on how a step is computed, so they are the model's to count;
//! what is held, trained, sent and kept follows from the plan alone.

use crate::bytes::ByteCount;
use crate::cut::Side;
use crate::layout::Layout;
use crate::plan::Plan;

/// Parameters of one party in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParamMemory {
    /// Those that live with it.
    pub held: u64,
    /// Those that it trains.
    pub trained: u64,
    /// Those whose change it sends.
    pub sent: u64,
    /// Those that it keeps to itself.
    pub kept: u64,
}

impl ParamMemory {
    /// The model and this many numbers more for each that trains, such as a copy, a gradient or the
    /// moments of an optimiser, in f32.
    pub const fn in_training(self, copies: u64) -> ByteCount {
        ByteCount(4 * (self.held + copies * self.trained))
    }
}

impl Plan {
    /// What a side holds.
    pub fn memory(&self, side: Side, layout: &Layout) -> ParamMemory {
        let here = |scope: &crate::scope::Scope| scope.elements(layout) as u64;
        let (sent, kept) = match side {
            Side::Client => (here(&self.uploads()), here(self.keeps())),
            Side::Server => (0, 0),
        };
        ParamMemory {
            held: here(&self.held_by(side)),
            trained: here(&self.trained_by(side)),
            sent,
            kept,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut::Cut;
    use crate::fixture::layout;
    use crate::id::Layer;
    use crate::scope::Scope;

    #[test]
    fn each_side_holds_its_part_and_trains_what_learns_of_it() {
        let layout = layout(6);
        let learns = Scope::of_blocks(&layout, [1, 3]) | Scope::of_layers(&layout, [Layer::Head]);
        let cut = Cut::server(2..4, 6).expect("legal");
        let head = Scope::of_layers(&layout, [Layer::Head]);
        let plan = Plan::new(&layout, learns, cut).expect("legal").keeping(&head);
        let count = |scope: &Scope| scope.elements(&layout) as u64;
        let block = count(&Scope::of_blocks(&layout, [0]));
        let client = plan.memory(Side::Client, &layout);
        let all = count(&Scope::everything(&layout));
        assert_eq!(client.held, all - 2 * block);
        assert_eq!((client.trained, client.sent), (block + count(&head), block));
        assert_eq!(client.kept, count(&head));
        let server = ParamMemory { held: 2 * block, trained: block, sent: 0, kept: 0 };
        assert_eq!(plan.memory(Side::Server, &layout), server);
        assert_eq!(server.in_training(3), ByteCount(4 * 5 * block));
    }
}
