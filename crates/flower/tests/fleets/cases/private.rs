//! Examples that are hidden: sites add the noise of a simulation with the same keys, and count themselves.

use fedra_engine::{
    ClipRule, EvaluationSet, NoiseMultiplier, OptimiserConfig, Privacy, PrivateSelection,
};
use fedra_privacy::{Delta, Guarantee, Head, Ledger, Relation, Unit};

use crate::deployment::{Clients, Deployment, LEDGER, Opened};
use crate::outcome::Outcome;
use crate::world::{World, recipe};

const ROUNDS: u32 = 3;

pub fn example_level(deployment: &dyn Deployment) -> Outcome {
    let delta = Delta::new(1e-3).unwrap();
    let guarantee =
        Guarantee { unit: Unit::Example, relation: Relation::AddRemove, delta, budget: None };
    let recipe = recipe("fedavg", "{}", |recipe| {
        recipe.evaluation.on = vec![EvaluationSet::CentralTest];
        recipe.work.solver = OptimiserConfig::Sgd { rate: 0.1, weight_decay: 0.0 };
        recipe.privacy = Some(Privacy {
            guarantee,
            clip: 1.0,
            clipping: ClipRule::Flat,
            noise: NoiseMultiplier::new(4.0).unwrap(),
            cap: None,
            rows: None,
            selection: PrivateSelection::NoisyUpdate,
            client_scores: false,
        });
    });
    let clients = Clients { guarantee: Some(guarantee), ..Clients::new(World::new(3)) };
    let mut ledgers = Vec::new();
    let outcome = Outcome::of((deployment, &clients), (&recipe, ROUNDS), |round, opened| {
        if round == ROUNDS {
            ledgers = clients.numbers().filter_map(|it| ledger(opened, it, guarantee)).collect();
        }
    });
    let last = outcome.reports.last().unwrap().privacy.as_ref().unwrap();
    assert!(last.epsilon > 0.0 && last.epsilon.is_finite() && !last.layers.is_empty(), "{last:?}");
    if deployment.loses_clients() {
        let spent = ledgers.iter().map(|ledger| ledger.spent().unwrap().pld);
        assert_eq!(spent.reduce(f64::max), Some(last.epsilon), "the client with most to tell");
        assert_eq!(ledgers.iter().map(|it| it.events().len()).collect::<Vec<_>>(), [3; 3]);
    }
    outcome
}

/// What a site has counted, on its own disk.
fn ledger(
    opened: &dyn Opened,
    client: fedra_wire::ClientId,
    guarantee: Guarantee,
) -> Option<Ledger> {
    let file = opened.folder(client)?.join(LEDGER);
    let head = std::fs::read(file.with_extension("end")).unwrap();
    let head: Head = serde_json::from_slice(&head).unwrap();
    let lines = std::fs::read_to_string(file).unwrap();
    Some(Ledger::replay(lines.as_bytes(), Some(guarantee), &[head]).unwrap().ledger)
}
