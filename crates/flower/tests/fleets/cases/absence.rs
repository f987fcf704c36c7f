//! Clients that are away, and clients that are started again.

use std::time::Duration;

use fedra_engine::{Away, Encoding, EvaluationSet, MomentsLife, Recipe};
use fedra_wire::ClientId;

use crate::deployment::{Clients, Deployment, Opened};
use crate::outcome::Outcome;
use crate::world::{World, recipe};

const LOST: ClientId = ClientId(1);

/// The client is away in the second of three rounds; only the server scores the model.
fn away_in_the_second(recipe: &mut Recipe) {
    let second = Away { from: 2, to: Some(2) };
    recipe.conditions.away.insert("hospital-2".to_owned(), vec![second]);
}

/// And really is not there then.
pub fn absent_in_the_second(round: u32, opened: &mut dyn Opened) {
    match round {
        1 => opened.leave(LOST),
        2 => opened.come_back(LOST),
        _ => {}
    }
}

/// The engine knows that a client is away, and asks nothing of it; when it comes back it downloads what it
/// missed, and its correction is what it was.
pub fn away(deployment: &dyn Deployment) -> Outcome {
    let recipe = recipe("scaffold", "{}", |recipe| {
        recipe.evaluation.on = vec![EvaluationSet::CentralTest];
        away_in_the_second(recipe);
    });
    let clients = Clients::new(World::new(3));
    let outcome = Outcome::of((deployment, &clients), (&recipe, 3), absent_in_the_second);
    let arrived = outcome.reports.iter().map(|report| report.arrived.len());
    assert_eq!(arrived.collect::<Vec<_>>(), [3, 2, 3]);
    outcome
}

/// Nobody knows that it is away: it is drawn, waited for and missed. The model is that of a run in which it
/// was known to be away; reports and calls tell of somebody who failed, so they are not compared.
pub fn vanished(deployment: &dyn Deployment) -> Outcome {
    let recipe = recipe("fedavg", "{}", |recipe| {
        recipe.evaluation.on = vec![EvaluationSet::CentralTest];
        recipe.work.encoding = Encoding::TopK { share: 0.1, feedback: true };
        if !deployment.loses_clients() {
            away_in_the_second(recipe);
        }
    });
    let clients = Clients { grace: Duration::from_millis(500), ..Clients::new(World::new(3)) };
    let outcome = Outcome::of((deployment, &clients), (&recipe, 3), absent_in_the_second);
    let second = &outcome.reports[1];
    assert_eq!(second.arrived, [ClientId(0), ClientId(2)]);
    if deployment.loses_clients() {
        assert_eq!((second.cohort.len(), second.failed.len()), (3, 1), "{second:?}");
        assert!(second.failed[0].reason.starts_with("is not connected: "), "{second:?}");
    }
    assert_eq!(outcome.reports[2].arrived.len(), 3);
    Outcome { models: outcome.models, ..Outcome::default() }
}

/// All sites end after a round and go on from their disks: corrections, residuals, moments and what they
/// remember of attention are there.
pub fn restarted(deployment: &dyn Deployment) -> Outcome {
    let recipe = recipe("scaffold", "{}", |recipe| {
        recipe.work.encoding = Encoding::Int8 { feedback: true };
        recipe.work.moments = MomentsLife::Kept;
        recipe.evaluation.attention = true;
    });
    let clients = Clients::new(World::new(3));
    Outcome::of((deployment, &clients), (&recipe, 3), |round, opened| {
        if round == 1 || round == 2 {
            clients.numbers().for_each(|client| opened.leave(client));
            clients.numbers().for_each(|client| opened.come_back(client));
        }
    })
}
