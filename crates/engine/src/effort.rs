//! How much the clients of a round computed, counted from their orders.
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
//! forward pass of a frozen prefix is counted once, as it is computed once. Attention scores,
//! norms, probes, scoring and rows that a head does not read are left out: this is an estimate
//! to compare runs of one model by, not a bill.

use std::collections::BTreeMap;

use fedra_plan::{Layout, ParamId, Role, Scope};
use fedra_wire::ClientId;

use crate::fleet::{ClientInfo, Order};
use crate::work::Work;

/// Multiply-adds of all orders, had every example one token.
pub(crate) fn of(layout: &Layout, orders: &[Order], clients: &[ClientInfo]) -> u64 {
    let examples: BTreeMap<ClientId, u64> =
        clients.iter().map(|client| (client.id, client.examples)).collect();
    let one = |order: &Order| {
        let examples = examples.get(&order.client).copied().unwrap_or(0);
        effort(layout, &order.learns, &order.work, examples)
    };
    orders.iter().map(one).sum()
}

fn effort(layout: &Layout, learns: &Scope, work: &Work, examples: u64) -> u64 {
    let Some(lowest) = learns.lowest_site() else { return 0 };
    let multiplied = |condition: &dyn Fn(ParamId) -> bool| -> u64 {
        let chosen = layout.iter().filter(|(id, _)| !is_looked_up(id.role) && condition(*id));
        chosen.map(|(_, shape)| shape.elements() as u64).sum()
    };
    let prefix = multiplied(&|id| id.site < lowest);
    let rest = multiplied(&|id| id.site >= lowest);
    let gradient = multiplied(&|id| learns.contains(id));

    let all = u64::from(work.epochs) * examples;
    let visits = match work.max_steps {
        Some(steps) => all.min(u64::from(steps) * u64::from(work.batch)),
        None => all,
    };
    visits.min(examples) * prefix + visits * (2 * rest + gradient)
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
    use fedra_plan::{Part, Shape, Site};

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
        assert_eq!(effort(&layout(), learns, &work, 7), expected);
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
}
