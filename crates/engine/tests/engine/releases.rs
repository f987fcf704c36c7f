//! Nothing that client-level privacy covers tells who came: releases with and without a client, over
//! all methods, samplers and conditions.
//!
//! The noise of a round does not depend on who took part, so two runs that differ in one client draw the
//! same. At tiny noise the difference of two releases is then what the client moved; at large noise two
//! releases are the same numbers, unless support, divisor or server step follow from who came.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use crate::cases::*;
use crate::fleet::{Quadratics, changed, difference};
use fedra_engine::*;
use fedra_plan::{Round, Scope};
use fedra_privacy::NoiseMultiplier;
use fedra_wire::{Expectation, Kind, decode, encode};

/// The noise under which a client is plain to see, and the one under which nothing is.
const TINY: f64 = 0.001;
const LARGE: f64 = 1e6;
/// What rounding to f32 may add to a number of the order of one.
const ROUNDING: f64 = 1e-5;

/// What becomes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happens {
    Mute,
    Unreachable,
    Huge,
}

/// Lets this happen to these clients in these rounds.
fn with(happens: Happens, who: &[u32], rounds: &[u32]) -> Quadratics {
    let mut fleet = clients();
    let whose =
        who.iter().flat_map(|client| rounds.iter().map(|round| (ClientId(*client), Round(*round))));
    let whose: BTreeSet<(ClientId, Round)> = whose.collect();
    match happens {
        Happens::Mute => fleet.mute = whose,
        Happens::Unreachable => fleet.unreachable = whose,
        Happens::Huge => {
            fleet.tamper = Some(Box::new(move |request, reply| {
                let is_honest = !whose.contains(&(request.client, request.round));
                vec![Outcome::Finished(if is_honest { reply } else { huge(request, reply) })]
            }));
        }
    }
    fleet
}

/// The same answer with numbers as large as the encoding takes them.
fn huge(request: &TrainRequest, reply: Reply) -> Reply {
    let layout = layout();
    let (kind, encoding) = (Kind::Change, request.work.encoding);
    let (round, client) = (request.round, request.client);
    let expected = Expectation { layout: &layout, kind, encoding, round, client, scope: None };
    let (header, mut values) = decode(&reply.payload, &expected).unwrap();
    let most = if encoding == Encoding::F32 { 9e14 } else { 3e4 };
    for (_, values) in values.iter_mut() {
        values.fill(most);
    }
    Reply { payload: encode(&layout, &header, &values, None).unwrap(), ..reply }
}

/// The models before and after each round, and what the rounds reported.
fn follow(recipe: Recipe, fleet: &mut Quadratics, rounds: u32) -> Run {
    let mut federation = federation(recipe);
    let mut run = Run { models: vec![federation.model().clone()], reports: Vec::new() };
    for _ in 0..rounds {
        let mut reports = crate::fleet::Reports::default();
        federation.advance(fleet, &mut [&mut reports], 1000, &|| false).unwrap();
        run.models.push(federation.model().clone());
        run.reports.append(&mut reports.0);
    }
    federation.check_arrivals().expect("a run to which nobody came is a run");
    run
}

struct Run {
    models: Vec<ParamValues>,
    reports: Vec<RoundReport>,
}

impl Run {
    /// What a round moved.
    fn moved(&self, round: usize) -> ParamValues {
        difference(&self.models[round + 1], &self.models[round])
    }

    fn support(&self, round: usize) -> Scope {
        changed(&self.models[round], &self.models[round + 1])
    }
}

/// The norm of all numbers.
fn norm(values: &ParamValues) -> f64 {
    let squares = values.iter().flat_map(|(_, values)| values).map(|v| f64::from(*v).powi(2));
    squares.sum::<f64>().sqrt()
}

fn rate(sampler: Sampler) -> f64 {
    match sampler {
        Sampler::All => 1.0,
        Sampler::Poisson(rate) => rate,
        Sampler::Uniform(_) => unreachable!("it is refused"),
    }
}

/// A client that is missing or that shouts moves a release by no more than its norm over the public divisor,
/// and not the support; says whether it moved it at all.
fn check_bound(what: &str, recipe: &Recipe) -> bool {
    // The release itself: the server takes the mean as it is.
    let recipe = Recipe { server: ServerRule::Average { rate: 1.0 }, ..recipe.clone() };
    let divisor = rate(recipe.sampler) * EXAMPLES.len() as f64;
    let whole = follow(recipe.clone(), &mut clients(), ROUNDS);
    let mut seen = false;
    for round in [0, ROUNDS - 1] {
        let at = round as usize;
        for happens in [Happens::Mute, Happens::Unreachable, Happens::Huge] {
            let mut fleet = with(happens, &[2], &[round]);
            let other = follow(recipe.clone(), &mut fleet, round + 1);
            let what = format!("{what}: {happens:?} in round {round}");
            assert_eq!(whole.models[at], other.models[at], "{what}: a round before differs");
            assert_eq!(whole.support(at), other.support(at), "{what}: another support");
            let moved = norm(&difference(&other.models[at + 1], &whole.models[at + 1]));
            // Huge in place of its own: one leaves and another comes.
            let clients = if happens == Happens::Huge { 2.0 } else { 1.0 };
            let bound = clients * CLIP / divisor;
            assert!(moved <= bound * (1.0 + ROUNDING) + ROUNDING, "{what}: {moved} over {bound}");
            seen |= moved > 0.5 * bound;
            check_scores(&what, (&whole.reports[at], &other.reports[at]), (clients, divisor));
        }
    }
    seen
}

/// Scores of blocks that were released under noise differ by no more than a client's.
fn check_scores(
    what: &str,
    (one, other): (&RoundReport, &RoundReport),
    (clients, divisor): (f64, f64),
) {
    let scores = |report: &RoundReport| {
        report.selection.as_ref().map_or(Vec::new(), |selection| selection.scores.clone())
    };
    let (one, other) = (scores(one), scores(other));
    assert_eq!(one.len(), other.len(), "{what}: scores in one of the two");
    let squares = one.iter().zip(&other).map(|(one, other)| (one - other).powi(2));
    let (moved, bound) = (squares.sum::<f64>().sqrt(), clients * 2.0 / divisor);
    // Scores under large noise are large numbers.
    let rounding = 1e-6 * one.iter().copied().map(f64::abs).fold(1.0, f64::max);
    assert!(moved <= bound + rounding, "{what}: scores moved by {moved}, bound {bound}");
}

/// Under large noise every round moves the same parameters by the same numbers, whoever comes.
fn check_scale(what: &str, recipe: &Recipe) {
    let all_rounds: Vec<u32> = (0..ROUNDS).collect();
    let everybody: Vec<u32> = (0..EXAMPLES.len() as u32).collect();
    let whole = follow(recipe.clone(), &mut clients(), ROUNDS);
    let mut gone = recipe.clone();
    for client in [0, 3] {
        away(&mut gone, client, Away { from: 1, to: None });
    }
    let mut none = clients();
    none.clients[2].examples = 0;
    let others = [
        (
            "one is mute",
            follow(recipe.clone(), &mut with(Happens::Mute, &[1], &all_rounds), ROUNDS),
        ),
        ("two are away", follow(gone, &mut clients(), ROUNDS)),
        ("one has no examples", follow(recipe.clone(), &mut none, ROUNDS)),
        (
            "nobody answers",
            follow(recipe.clone(), &mut with(Happens::Mute, &everybody, &all_rounds), ROUNDS),
        ),
        (
            "nobody is reached",
            follow(
                recipe.clone(),
                &mut with(Happens::Unreachable, &everybody, &all_rounds),
                ROUNDS,
            ),
        ),
    ];
    for (who, other) in &others {
        for round in 0..ROUNDS as usize {
            let what = format!("{what}: {who} in round {round}");
            let (here, there) = (whole.moved(round), other.moved(round));
            assert_eq!(whole.support(round), other.support(round), "{what}: another support");
            for (id, values) in here.iter() {
                let rms = norm_of(values) / (values.len() as f64).sqrt();
                let apart = norm(&difference(
                    &ParamValues::from_iter([(id, values.to_vec())]),
                    &ParamValues::from_iter([(id, there.get(id).unwrap().to_vec())]),
                ));
                assert!(apart <= 0.02 * rms, "{what}: {id} moved by {apart} beside {rms}");
            }
            // Where the guarantee is told, it is told alike.
            let layers = |report: &RoundReport| report.privacy.as_ref().unwrap().layers.len();
            assert_eq!(layers(&whole.reports[round]), layers(&other.reports[round]), "{what}");
        }
    }
}

fn norm_of(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}

/// The key of a refusal.
fn refused(recipe: &Recipe) -> Option<&'static str> {
    match recipe.check(EXAMPLES.len()) {
        Ok(()) => None,
        Err(EngineError::Setting { key, .. }) => Some(key),
        Err(other) => panic!("{other}"),
    }
}

/// A written method under a way of selecting, as it is or refused.
fn check(what: &str, written: Written, sampler: Sampler, beside: &dyn Fn(&mut Recipe)) -> bool {
    let expected = written.2;
    let tiny = recipe(written, (sampler, TINY), beside);
    assert_eq!(refused(&tiny), expected, "{what}");
    if expected.is_some() {
        return true;
    }
    check_scale(what, &recipe(written, (sampler, LARGE), beside));
    check_bound(what, &tiny)
}

#[test]
fn no_method_and_no_sampler_tells_who_came() {
    let named: BTreeSet<&str> = METHODS.iter().chain(MEASURED).map(|(name, ..)| *name).collect();
    assert_eq!(named, BTreeSet::from(methods::Method::NAMES), "the table has every method");
    for sampler in SAMPLERS {
        let mut moved = BTreeSet::new();
        for written in METHODS {
            let what = format!("{} {} {sampler:?}", written.0, written.1);
            if check(&what, *written, sampler, &|_| {}) {
                moved.insert(what);
            }
        }
        // A bound that nobody comes near would be no test; local-only releases nothing.
        if sampler == Sampler::All {
            assert_eq!(moved.len(), METHODS.len() - 1, "{moved:?}");
        }
    }
}

#[test]
fn no_choice_of_blocks_tells_who_came() {
    // The noise of scores is large: the choice is accounted, and here it is to be the same.
    let noise = NoiseMultiplier::new(LARGE).unwrap();
    let ways = [
        PrivateSelection::NoisyUpdate,
        PrivateSelection::Public,
        PrivateSelection::Gaussian { noise },
    ];
    for (way, sampler) in ways.into_iter().flat_map(|way| SAMPLERS.map(|sampler| (way, sampler))) {
        for written in MEASURED {
            let what = format!("{} {way:?} {sampler:?}", written.1);
            check(&what, *written, sampler, &|recipe| privacy_of(recipe).selection = way);
        }
    }
    for (settings, way, key) in [
        (r#"{"selector":"bottom"}"#, ways[0], "method.selector"),
        (r#"{"selector":"corrected"}"#, ways[0], "method.selector"),
        (r#"{"selector":"gradient_norm"}"#, ways[2], "method.selector"),
    ] {
        let recipe = recipe(("safl", settings, None), (Sampler::All, 1.0), &|recipe| {
            privacy_of(recipe).selection = way;
        });
        assert_eq!(refused(&recipe), Some(key), "{settings}");
    }
}

#[test]
fn what_is_measured_without_noise_is_confessed_whoever_comes() {
    let everybody: Vec<u32> = (0..5).collect();
    for written in [("safl", r#"{"k":1}"#, None), ("safl", r#"{"k":1,"mask":"per_client"}"#, None)]
    {
        let recipe = recipe(written, (Sampler::All, 1.0), &|recipe| {
            privacy_of(recipe).selection = PrivateSelection::PrivateUnaccounted;
        });
        for mut fleet in [clients(), with(Happens::Mute, &everybody, &[0, 1])] {
            let run = follow(recipe.clone(), &mut fleet, 2);
            let spent = |report: &RoundReport| report.privacy.as_ref().unwrap().epsilon;
            assert!(run.reports.iter().all(|report| spent(report).is_infinite()));
        }
    }
}

#[test]
fn no_condition_and_no_encoding_tells_who_came() {
    let methods: [Written; 6] = [
        ("fedavg", "{}", None),
        ("feddyn", r#"{"alpha":0.1}"#, None),
        ("fedadam", "{}", None),
        ("safl", r#"{"k":{"default":1,"client-2":3}}"#, None),
        ("safl", r#"{"k":1,"selector":"cyclic"}"#, None),
        ("fedfrozen", r#"{"warmup":1}"#, None),
    ];
    for (name, beside, key) in BESIDE {
        for written in methods {
            // Clients of other depths can have no correction of their own, and all others may.
            let key = match *name {
                "depths" if written.0 != "feddyn" => None,
                _ => *key,
            };
            // Query and key have no adapters here, so that nothing would freeze.
            if written.0 == "fedfrozen" && ["lora", "frozen a"].contains(name) {
                continue;
            }
            for sampler in [Sampler::All, Sampler::Poisson(0.3)] {
                let what = format!("{name}: {} {} {sampler:?}", written.0, written.1);
                check(&what, (written.0, written.1, key), sampler, beside);
            }
        }
    }
}

#[test]
fn a_clip_norm_that_arithmetic_does_not_bear_is_refused() {
    for clip in [0.0, -1.0, 1e-320, 1e-30, 1e-7, 1e7, 1e30, f64::MAX, f64::INFINITY, f64::NAN] {
        let recipe = recipe(METHODS[2], (Sampler::All, 1.0), &|recipe| {
            privacy_of(recipe).clip = clip;
        });
        assert_eq!(refused(&recipe), Some("privacy.clip"), "{clip:e}");
        let said = recipe.check(5).unwrap_err().to_string();
        assert!(said.len() < 300, "{said}");
    }
    for clip in [1e-6, 1e-3, 1.0, 1e6] {
        let recipe = recipe(METHODS[2], (Sampler::All, 1.0), &|recipe| {
            privacy_of(recipe).clip = clip;
        });
        assert_eq!(refused(&recipe), None, "{clip:e}");
        let run = follow(recipe, &mut clients(), 1);
        assert!(norm(&run.moved(0)) > 0.0, "{clip:e}");
    }
    let rare = recipe(METHODS[2], (Sampler::Poisson(1e-300), 1.0), &|_| {});
    assert_eq!(refused(&rare), Some("federation.sample"));
}

/// `FedDyn`'s pull is the share that is drawn on average, which is public, and not the one that came.
#[test]
fn feddyn_pulls_by_the_share_that_is_drawn_on_average() {
    let everybody: Vec<u32> = (0..5).collect();
    for sampler in [Sampler::All, Sampler::Poisson(0.5)] {
        let share = rate(sampler);
        for mut fleet in [clients(), with(Happens::Mute, &everybody, &[0])] {
            let written = ("feddyn", r#"{"alpha":0.1}"#, None);
            let mut federation = federation(recipe(written, (sampler, LARGE), &|_| {}));
            federation.advance(&mut fleet, &mut [], 9, &|| false).unwrap();
            // h = -alpha q d, and the model moved by d - h / alpha = (1 + q) d.
            let moved = difference(federation.model(), &start());
            let (found, expected) = (norm(&federation.server().first), share / (1.0 + share));
            let found = found / (0.1 * norm(&moved));
            assert!((found / expected - 1.0).abs() < 1e-3, "{sampler:?}: {found}, {expected}");
        }
    }
}

#[test]
fn a_run_to_which_nobody_came_is_complete_only_under_client_level_privacy() {
    let everybody: Vec<u32> = (0..5).collect();
    let nobody = || with(Happens::Mute, &everybody, &[0, 1]);
    let run = |recipe: Recipe| federation(recipe).run(&mut nobody(), &mut [], 2, &|| false);
    let private = recipe(METHODS[2], (Sampler::All, 1.0), &|_| {});
    assert!(run(private.clone()).is_ok());
    let open = Recipe { privacy: None, ..private.clone() };
    assert!(matches!(run(open), Err(EngineError::NobodyArrived { rounds: 2 })));
    let mut of_examples = private;
    privacy_of(&mut of_examples).guarantee.unit = fedra_privacy::Unit::Example;
    assert!(matches!(run(of_examples), Err(EngineError::NobodyArrived { rounds: 2 })));
}
