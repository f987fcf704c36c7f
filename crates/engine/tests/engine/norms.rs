//! Updates far outside their cohort are reported, scaled or refused, whatever the order in which they arrive; a run
//! whose losses left the numbers does not end well.

use crate::fleet::*;
use fedra_engine::*;
use fedra_plan::Round;
use fedra_seed::Seed;
use fedra_wire::{Expectation, Header, Kind, decode, encode};

const EXAMPLES: [u64; 4] = [40, 70, 100, 50];

fn read(order: &TrainRequest, payload: &[u8]) -> (Header, ParamValues) {
    let expected = Expectation {
        layout: &layout(),
        kind: Kind::Change,
        encoding: order.work.encoding,
        round: order.round,
        client: order.client,
        scope: None,
    };
    decode(payload, &expected).expect("an honest update")
}

/// The same update, so many times as long, with another loss.
fn longer(order: &TrainRequest, reply: Reply, factor: f32, loss: Option<f32>) -> Outcome {
    let (header, mut change) = read(order, &reply.payload);
    for (_, values) in change.iter_mut() {
        for value in values.iter_mut() {
            *value *= factor;
        }
    }
    let payload = encode(&layout(), &Header { loss, ..header }, &change, None).expect("finite");
    Outcome::Finished(Reply { payload, ..reply })
}

/// A fleet in which client 1 sends its first update so many times as long.
fn with_giant(factor: f32, reversed: bool) -> Quadratics {
    let mut fleet = Quadratics::new(&EXAMPLES);
    fleet.reversed = reversed;
    fleet.tamper = Some(Box::new(move |order, reply| {
        let is_giant = order.client == ClientId(1) && order.round == Round(0);
        let factor = if is_giant { factor } else { 1.0 };
        vec![longer(order, reply, factor, Some(1.0))]
    }));
    fleet
}

fn limited(limit: NormLimit, above: Above) -> Recipe {
    Recipe { max_norm: Some(MaxNorm { limit, above }), ..recipe("fedavg", "{}") }
}

/// Both orders of arrival come to the same bits.
#[track_caller]
fn both_ways(recipe: &Recipe, factor: f32, rounds: u32) -> (ParamValues, Vec<RoundReport>) {
    let [there, back] = [false, true].map(|reversed| {
        let (found, reports) = run(recipe.clone(), &mut with_giant(factor, reversed), rounds);
        let timeless = |report: &RoundReport| RoundReport {
            seconds: 0.0,
            slowest: 0.0,
            phases: None,
            most_updates_held: 0,
            ..report.clone()
        };
        (found.model().clone(), reports.iter().map(timeless).collect::<Vec<_>>())
    });
    assert_eq!(there, back);
    there
}

fn norm(values: &ParamValues) -> f64 {
    let squares = values.iter().flat_map(|(_, values)| values).map(|v| f64::from(*v).powi(2));
    squares.sum::<f64>().sqrt()
}

#[test]
fn a_far_update_is_reported_and_counts_as_it_is() {
    let (model, reports) = both_ways(&recipe("fedavg", "{}"), 1e14, 1);
    let norms = reports[0].norms.as_ref().expect("a far update");
    assert_eq!(norms.far.iter().map(|far| far.client).collect::<Vec<_>>(), [ClientId(1)]);
    assert!(norms.far[0].norm > 1e13 && norms.median < 100.0, "{norms:?}");
    assert!(norms.scaled.is_empty());
    assert!(norm(&model) > 1e12);
    let words = norms.in_words(|client| format!("client-{client}"));
    assert!(words[0].starts_with("client-1: the update has norm "), "{words:?}");

    // Within ten times the median there is nothing to say.
    let (_, reports) = both_ways(&recipe("fedavg", "{}"), 1.5, 1);
    assert_eq!(reports[0].norms, None);
}

#[test]
fn a_coarse_encoding_is_measured_too() {
    let mut recipe = recipe("fedavg", "{}");
    recipe.work.encoding = Encoding::F16;
    let (_, reports) = both_ways(&recipe, 1e3, 1);
    assert_eq!(reports[0].norms.as_ref().expect("a far update").far[0].client, ClientId(1));
}

#[test]
fn a_norm_scales_down_what_is_larger_and_leaves_the_rest_alone() {
    let honest = train(recipe("fedavg", "{}"), &mut Quadratics::new(&EXAMPLES), 1);
    let wide = limited(NormLimit::Norm(1e6), Above::Scale);
    assert_eq!(both_ways(&wide, 1.0, 1).0, honest);

    let limit = 0.5;
    let tight = limited(NormLimit::Norm(limit), Above::Scale);
    let (model, reports) = both_ways(&tight, 1e14, 1);
    let moved = norm(&difference(&model, &initial()));
    assert!(moved <= limit * 1.000_001 && moved > 0.0, "{moved}");
    assert!(reports[0].norms.as_ref().expect("scaled").scaled.contains(&ClientId(1)));
    assert_eq!(reports[0].arrived.len(), 4);
}

#[test]
fn a_multiple_of_the_median_scales_the_giant_alone() {
    let limit = limited(NormLimit::TimesMedian(3.0), Above::Scale);
    let (model, reports) = both_ways(&limit, 1e14, 2);
    let norms = reports[0].norms.as_ref().expect("a far update");
    assert_eq!(norms.scaled, [ClientId(1)]);
    assert!(norm(&difference(&model, &initial())) < 10.0 * norms.median, "{norms:?}");
    assert_eq!(reports[1].norms, None);
    // With a scratch file for those that wait, the bits are the same.
    let folder = tempfile::tempdir().expect("a folder");
    let mut federation = Federation::new(limit, layout(), initial(), Seed(1)).expect("whole");
    federation.spill_to(folder.path().join("early"));
    federation.run(&mut with_giant(1e14, true), &mut [], 2, &|| false).expect("two rounds");
    assert_eq!(federation.model(), &model);
}

#[test]
fn what_is_refused_for_its_norm_is_as_if_it_had_not_come() {
    let mut without = Quadratics::new(&EXAMPLES);
    without.tamper = Some(Box::new(|order, reply| match (order.client, order.round) {
        (ClientId(1), Round(0)) => vec![Outcome::Failed("gone".into())],
        _ => vec![longer(order, reply, 1.0, Some(1.0))],
    }));
    let mut feedback = recipe("fedavg", "{}");
    feedback.work.encoding = Encoding::TopK { share: 0.5, feedback: true };
    let expected = train(feedback.clone(), &mut without, 3);
    for limit in [NormLimit::Norm(1e4), NormLimit::TimesMedian(10.0)] {
        let max_norm = Some(MaxNorm { limit, above: Above::Refuse });
        let recipe = Recipe { max_norm, ..feedback.clone() };
        let (model, reports) = both_ways(&recipe, 1e14, 3);
        assert_eq!(model, expected, "{limit:?}");
        let refused = &reports[0].refused[0];
        assert_eq!(refused.client, ClientId(1));
        assert!(refused.reason.contains("federation.max_norm") && !refused.diverged, "{refused:?}");
        // What the client keeps for later is what it had before.
        let mut fleet = with_giant(1e14, false);
        run(recipe, &mut fleet, 1);
        assert!(!fleet.states.contains_key(&ClientId(1)), "{limit:?}");
    }
}

#[test]
fn limits_that_mean_nothing_or_bound_nothing_are_refused() {
    let refused = |recipe: &Recipe| recipe.check(4).expect_err("refused").to_string();
    for limit in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = refused(&limited(NormLimit::Norm(limit), Above::Scale));
        assert!(error.contains("federation.max_norm"), "{error}");
    }
    let error = refused(&limited(NormLimit::TimesMedian(0.5), Above::Scale));
    assert!(error.contains("at least 1"), "{error}");
    let max_norm = Some(MaxNorm { limit: NormLimit::Norm(1.0), above: Above::Scale });
    let error = refused(&Recipe { max_norm, ..recipe("scaffold", "{}") });
    assert!(error.contains("control variates"), "{error}");
}

#[test]
fn a_loss_of_zero_is_a_loss_and_one_that_is_not_told_is_none() {
    for (loss, expected) in [(Some(0.0), Some(0.0)), (None, None), (Some(2.0), Some(2.0))] {
        let mut fleet = Quadratics::new(&EXAMPLES);
        fleet.tamper = Some(Box::new(move |order, reply| vec![longer(order, reply, 1.0, loss)]));
        let (_, reports) = run(recipe("fedavg", "{}"), &mut fleet, 1);
        assert_eq!(reports[0].loss, expected);
    }
}

/// Client 2's loss is no number in these rounds.
fn diverging(rounds: &'static [u32]) -> Quadratics {
    let mut fleet = Quadratics::new(&EXAMPLES);
    fleet.tamper = Some(Box::new(move |order, reply| {
        if order.client == ClientId(2) && rounds.contains(&order.round.0) {
            return vec![Outcome::Failed(Failure {
                reason: "its loss is NaN".to_owned(),
                diverged: true,
            })];
        }
        vec![Outcome::Finished(reply)]
    }));
    fleet
}

#[test]
fn a_run_whose_losses_left_the_numbers_does_not_end_well_unless_they_came_back() {
    let ended = |rounds: &'static [u32]| {
        let recipe = recipe("fedavg", "{}");
        let mut federation = Federation::new(recipe, layout(), initial(), Seed(1)).expect("whole");
        let ended = federation.run(&mut diverging(rounds), &mut [], 4, &|| false);
        assert_eq!(federation.completed(), Round(4));
        ended
    };
    let error = ended(&[2, 3]).expect_err("diverged");
    assert!(error.diverged_in() == Some(4), "{error}");
    assert!(error.to_string().contains("the loss of client-2"), "{error}");
    assert!(ended(&[1, 2]).is_ok());
    assert!(ended(&[]).is_ok());
}

#[test]
fn divergence_of_all_is_told_by_a_type() {
    let mut fleet = Quadratics::new(&EXAMPLES);
    fleet.tamper = Some(Box::new(|order, _| {
        vec![Outcome::Failed(match order.client {
            ClientId(0) => "lost its way, expected a finite number of turns".into(),
            _ => Failure { reason: "its loss is NaN".to_owned(), diverged: true },
        })]
    }));
    let mut federation =
        Federation::new(recipe("fedavg", "{}"), layout(), initial(), Seed(1)).expect("whole");
    let error = federation.run(&mut fleet, &mut [], 1, &|| false).expect_err("nobody came");
    assert!(error.diverged_in().is_some(), "{error}");
    // The words alone are no divergence.
    fleet.tamper = Some(Box::new(|_, _| vec![Outcome::Failed("expected a finite number".into())]));
    let error = federation.run(&mut fleet, &mut [], 1, &|| false).expect_err("nobody came");
    assert!(error.diverged_in().is_none(), "{error}");
}
