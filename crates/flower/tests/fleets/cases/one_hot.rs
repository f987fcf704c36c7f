//! Who counted, and how often, read from the sum.
//!
//! Only token embeddings learn, and each client's examples hold a word that nobody else has: in the rows of
//! these words the updates of clients do not overlap. A first step of Adam moves each number by its rate,
//! whatever the gradient is. So a round moves the row of a client's word by its share of the mean times the
//! rate if the client counted once, by nothing if it did not, and by another number if anybody counted twice.

use std::collections::BTreeMap;

use fedra_client::{Examples, to_values};
use fedra_data::{Encoded, Target};
use fedra_engine::{Away, EvaluationSet, OptimiserConfig};
use fedra_plan::{Layer, ParamId, Part, Role, Rule};
use fedra_wire::{ClientId, ParamValues};

use super::absence::absent_in_the_second;
use crate::deployment::{Clients, Deployment};
use crate::outcome::Outcome;
use crate::world::{World, recipe};

const RATE: f32 = 0.25;
/// Client `i` has `i + 1` examples of the word `FIRST + i`.
const FIRST: u32 = 150;
/// f32 keeps seven digits of a table whose numbers are below one, and steps are a twentieth or more.
const CLOSE: f64 = 1e-4;

/// One client is away in the second round. Another leaves in the middle of the first two and comes back, so
/// that requests and answers get lost and are made again.
pub fn counts(deployment: &dyn Deployment) -> Outcome {
    let recipe = recipe("fedavg", "{}", |recipe| {
        recipe.learns = Rule::Roles([Role::Token].into());
        recipe.evaluation.on = vec![EvaluationSet::CentralTest];
        recipe.work.solver = OptimiserConfig::AdamW {
            rate: RATE,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-16,
            weight_decay: 0.0,
        };
        let second = Away { from: 2, to: Some(2) };
        recipe.conditions.away.insert("hospital-2".to_owned(), vec![second]);
    });
    let clients = Clients { restless: Some((ClientId(0), 0..2)), ..Clients::new(one_word_each()) };
    let outcome = Outcome::of((deployment, &clients), (&recipe, 3), absent_in_the_second);
    let expected = [[1, 1, 1], [1, 0, 1], [1, 1, 1]];
    let initial = to_values(&clients.world.params);
    let before = std::iter::once(&initial).chain(&outcome.models);
    for ((before, after), expected) in before.zip(&outcome.models).zip(expected) {
        let weights: u32 = (1..).zip(expected).map(|(examples, count)| examples * count).sum();
        let moved = moved_rows(before, after);
        for (client, count) in (0..).zip(expected) {
            let share = f64::from((client + 1) * count) / f64::from(weights);
            let row = moved.get(&(FIRST + client)).map_or(&[][..], Vec::as_slice);
            assert_eq!(row.is_empty(), count == 0, "client {client}");
            for step in row {
                let found = step / f64::from(RATE);
                let away = (found - share).abs();
                assert!(away < CLOSE, "client {client}: a share of {found}, expected {share}");
            }
        }
        // The words at both ends of every example are everybody's; no other row moves.
        let special = clients.world.shards.clients[0].train.encoded()[0].ids.clone();
        let strangers =
            moved.keys().filter(|row| !special.contains(row) && !(FIRST..FIRST + 3).contains(*row));
        assert_eq!(strangers.count(), 0);
    }
    outcome
}

/// How far the numbers of each row of the token table have moved, for rows that have.
fn moved_rows(before: &ParamValues, after: &ParamValues) -> BTreeMap<u32, Vec<f64>> {
    let id = ParamId::new(Layer::Embedding, Role::Token, Part::Weight);
    let (before, after) = (before.get(id).unwrap(), after.get(id).unwrap());
    let width = before.len() / 200;
    let rows = (0..).zip(before.chunks(width).zip(after.chunks(width)));
    let moved = rows.filter(|(_, (before, after))| before != after);
    let steps = |(row, (before, after)): (u32, (&[f32], &[f32]))| {
        let step = |(before, after): (&f32, &f32)| (f64::from(*after) - f64::from(*before)).abs();
        (row, before.iter().zip(after).map(step).collect())
    };
    moved.map(steps).collect()
}

/// Hospitals whose examples are one word, the same in all of them.
fn one_word_each() -> World {
    let mut world = World::new(3);
    for (number, shard) in (0..).zip(&mut world.shards.clients) {
        let ids = &shard.train.encoded()[0].ids;
        let ids = vec![ids[0], FIRST + number, ids[ids.len() - 1]];
        let target = Target::PerToken(vec![None, Some(1), None]);
        let example = Encoded { ids, types: Vec::new(), target, dropped: 0, pixels: None };
        let train: Examples = std::iter::repeat_n(example, number as usize + 1).collect();
        shard.train = train;
    }
    world
}
