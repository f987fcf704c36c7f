//! The streaming fold against the definition, in f64, over ragged scopes.

use crate::fleet::{layout, normal};
use fedra_engine::{ClientId, Contribution, Denominator, Encoding, Fold, ParamValues};
use fedra_plan::{Round, Scope};
use fedra_seed::Seed;
use fedra_wire::{Expectation, Header, Kind, encode, open};
use proptest::prelude::*;

/// Sums of a few f32 products stay this near the exact ones.
const TOLERANCE: f64 = 1e-5;

fn header(client: u32) -> Header {
    Header {
        kind: Kind::Change,
        encoding: Encoding::F32,
        round: Round(0),
        client: ClientId(client),
        examples: 1,
        steps: 1,
        loss: None,
    }
}

fn fold(updates: &[(ParamValues, Contribution)], denominator: Denominator) -> ParamValues {
    let layout = layout();
    let mut fold = Fold::new(denominator);
    for (client, (update, contribution)) in (0..).zip(updates) {
        let bytes = encode(&layout, &header(client), update, None).expect("finite");
        let expected = Expectation {
            layout: &layout,
            kind: Kind::Change,
            encoding: Encoding::F32,
            round: Round(0),
            client: ClientId(client),
            scope: None,
        };
        fold.add(&open(bytes, &expected).expect("just written"), *contribution);
    }
    fold.mean().tensors()
}

proptest! {
    #[test]
    fn a_fold_is_the_weighted_mean_over_those_who_sent(
        clients in prop::collection::vec((0_u8..16, 1_u32..1000, 1_u32..50), 1..8),
        everyone: bool,
    ) {
        let layout = layout();
        let denominator = if everyone { Denominator::Everyone } else { Denominator::Participants };
        let updates: Vec<(ParamValues, Contribution)> = (0..).zip(&clients).map(|(k, client)| {
            let scope = Scope::from_bitmap(&layout, &[client.0]).expect("four parameters");
            let contribution =
                Contribution { weight: f64::from(client.1), pace: f64::from(client.2) };
            (normal(Seed(k)).subset(&scope), contribution)
        }).collect();
        let found = fold(&updates, denominator);

        let sent = updates.iter().fold(Scope::empty(), |all, (update, _)| all | update.scope());
        prop_assert_eq!(found.scope(), sent);
        for (id, values) in found.iter() {
            let counted = || updates.iter().filter(|(update, _)| everyone || update.get(id).is_some());
            let total: f64 = counted().map(|(_, c)| c.weight).sum();
            let pace: f64 = counted().map(|(_, c)| c.weight * c.pace / total).sum();
            for (j, value) in values.iter().enumerate() {
                let expected: f64 = counted()
                    .filter_map(|(update, c)| Some((f64::from(update.get(id)?[j]), c)))
                    .map(|(value, c)| pace * c.weight / total * value / c.pace)
                    .sum();
                let scale = 1.0 + 50.0 * clients.len() as f64;
                prop_assert!((f64::from(*value) - expected).abs() < TOLERANCE * scale);
            }
        }
    }
}

#[test]
fn one_update_comes_out_as_it_went_in() {
    let update = normal(Seed(3));
    let contribution = Contribution { weight: 123.0, pace: 17.0 };
    assert_eq!(fold(&[(update.clone(), contribution)], Denominator::Participants), update);
}

#[test]
fn of_nothing_there_is_no_mean() {
    assert!(fold(&[], Denominator::Everyone).is_empty());
}
