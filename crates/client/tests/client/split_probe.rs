//! Blocks of a cut model are measured across the cut as they are in the whole model, and the server
//! does not learn which tokens the client finds relevant.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use fedra_client::{Client, ServerSegment, Shard, to_values};
use fedra_data::{Target, Task};
use fedra_engine::methods::Method;
use fedra_engine::{
    Evidence, Fleet, Noise, NoiseDraw, NoiseKind, ProbeRequest, Recipe, RoundReport, SegmentHost,
    SplitConfig,
};
use fedra_plan::{AttentionSide, Probe, RelevantTokens, Round};
use fedra_seed::Seed;
use fedra_wire::{ClientId, FrameKind, RowEncoding, frame_parts};

use crate::split::{BLOCKS, Tapped, all_cuts, assert_near, cut, encoder, llama, run};
use crate::world::{World, adamw};

fn concepts() -> World {
    encoder(Task::Concepts)
}

fn key(tokens: RelevantTokens) -> Probe {
    Probe::Attention { side: AttentionSide::Key, tokens }
}

fn probe(world: &World, probe: Probe, split: Option<&SplitConfig>) -> Vec<Evidence> {
    let mut fleet = world.fleet();
    if let Some(split) = split {
        let model = (world.model.clone(), world.device.clone());
        let middle = Arc::new(ServerSegment::new(model, split.clone(), fleet.clients()));
        middle.host(&to_values(&world.params)).unwrap();
        fleet = fleet.with_middle(middle, Seed(8));
    }
    let clients: Vec<ClientId> = fleet.clients().iter().map(|client| client.id).collect();
    let (round, seed) = (Round(0), Seed(2));
    // More than a batch of a probe, and not a whole number of batches.
    let asked =
        ProbeRequest { probe, clients: &clients, round, seed, examples: 21, noise: None, split };
    fleet.probe(&asked).unwrap()
}

fn assert_alike(found: &[Evidence], expected: &[Evidence], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.client, expected.client);
        let pairs = found.scores.as_slice().iter().zip(expected.scores.as_slice());
        for (block, (found, expected)) in pairs.enumerate() {
            let apart = (found - expected).abs();
            assert!(
                apart <= tolerance * expected.abs(),
                "{what} block {block}: {found} {expected}"
            );
        }
    }
}

#[test]
fn every_probe_scores_a_cut_model_as_the_whole_one_at_every_cut() {
    let measured = [
        key(RelevantTokens::Cls),
        key(RelevantTokens::Entities),
        key(RelevantTokens::All),
        Probe::GradientNorm,
        Probe::RelativeGradient,
    ];
    let query = Probe::Attention { side: AttentionSide::Query, tokens: RelevantTokens::All };
    let cases = [
        (concepts(), measured.to_vec()),
        (llama(None), vec![query, Probe::GradientNorm, Probe::RelativeGradient]),
    ];
    for (world, probes) in cases {
        for asked in probes {
            let whole = probe(&world, asked, None);
            for (first, last) in all_cuts() {
                let split = cut(first, last);
                let found = probe(&world, asked, Some(&split));
                assert_alike(&found, &whole, 1e-5, &format!("{asked} at {first}, {last}"));
            }
            // Coarser rows measure nearly the same, and what the server saw is not made coarser.
            let coarse = SplitConfig { encoding: RowEncoding::Int8, ..cut(1, 1) };
            let found = probe(&world, asked, Some(&coarse));
            assert_alike(&found, &whole, 0.1, &format!("{asked} in int8"));
        }
    }
}

#[test]
fn safl_chooses_and_trains_inside_a_cut_what_it_does_without_one() {
    let world = concepts();
    for settings in [
        r#"{"k": 1}"#,
        r#"{"k": 2, "mask": "per_client"}"#,
        r#"{"k": 1, "selector": "gradient_norm"}"#,
    ] {
        let given: serde_json::Value = serde_json::from_str(settings).unwrap();
        let method = Method::by_name("safl", given).unwrap();
        let of_method = method.recipe(Recipe::new(adamw(1e-3)));
        let recipe = |split| Recipe { split, ..of_method.clone() };
        let (whole, reports) = run(&world, &recipe(None), 2);
        let (found, cut_reports) = run(&world, &recipe(Some(cut(1, 1))), 2);
        assert_near(&found, &whole, settings);
        for (cut, whole) in cut_reports.iter().zip(&reports) {
            let chosen = |report: &RoundReport| report.selection.clone().unwrap().clients;
            assert_eq!(chosen(cut), chosen(whole), "{settings}");
            assert!(cut.bytes.crossing.hidden_up.0 > 0);
        }
    }
}

/// A client whose frames are recorded, and the server's half.
fn tapped(world: &World, shard: Shard, split: &SplitConfig) -> (Client, Arc<Tapped>) {
    let labels = (world.shards.task, world.shards.labels.clone());
    let model = (world.model.clone(), world.params.clone());
    let mut client = Client::new(ClientId(0), shard, labels, model, world.device.clone()).unwrap();
    let model = (world.model.clone(), world.device.clone());
    let middle =
        Arc::new(ServerSegment::new(model, split.clone(), std::slice::from_ref(&client.info)));
    middle.host(&to_values(&world.params)).unwrap();
    let tapped = Arc::new(Tapped { middle, sent: Mutex::default() });
    client.connect = Some(tapped.clone());
    (client, tapped)
}

fn asked(probe: Probe, split: &SplitConfig) -> ProbeRequest<'_> {
    let (clients, round, seed) = (&[ClientId(0)], Round(0), Seed(2));
    ProbeRequest { probe, clients, round, seed, examples: 8, noise: None, split: Some(split) }
}

/// Two clients whose examples differ only in their labels ask the server the very same thing.
#[test]
fn the_server_is_not_told_which_tokens_are_relevant() {
    let world = concepts();
    let sent = |turned: bool| {
        let mut shard = world.shards.clients[0].clone();
        if turned {
            let mut encoded = shard.train.encoded().to_vec();
            for example in &mut encoded {
                let Target::PerToken(labels) = &mut example.target else { unreachable!() };
                labels.iter_mut().flatten().for_each(|label| *label = u32::from(*label == 0));
            }
            shard.train = encoded.into_iter().collect();
        }
        let split = cut(1, 1);
        let (mut client, tapped) = tapped(&world, shard, &split);
        let scores = client.probe(&asked(key(RelevantTokens::Entities), &split)).unwrap().scores;
        (scores, tapped.sent.lock().unwrap().clone())
    };
    let ((scores, plain), (other, turned)) = (sent(false), sent(true));
    assert_ne!(scores, other, "the labels decide what counts");
    let kinds: Vec<_> = plain.iter().map(|frame| frame_parts(frame).unwrap().kind).collect();
    assert_eq!(kinds, [FrameKind::Watch, FrameKind::Ask]);
    assert!(plain == turned, "no frame depends on a label");
}

/// Noise that is drawn once for an example is the same in a probe as in training, else two sights of
/// one text would show more than one; fresh noise is never the same twice.
#[test]
fn a_probe_shows_an_example_with_the_noise_that_its_draw_asks_for() {
    let world = concepts();
    for (draw, again) in [(NoiseDraw::Cached, true), (NoiseDraw::Fresh, false)] {
        let kind = NoiseKind::Relative { gamma: 0.5 };
        let split = SplitConfig {
            noise: Some(Noise { kind, draw, gradients: true, gradient_norm: None }),
            ..cut(1, 1)
        };
        let (mut client, tapped) = tapped(&world, world.shards.clients[0].clone(), &split);
        let mut request = world.orders(&[client.info.clone()], Round(0)).remove(0);
        let ends = fedra_plan::Cut::keep(1, 1, BLOCKS).unwrap();
        request.plan =
            fedra_plan::Plan::new(world.model.layout(), world.everything(), ends).unwrap();
        request.split = Some(Arc::new(split.clone()));
        client.probe(&asked(key(RelevantTokens::Cls), &split)).unwrap();
        tapped.middle.begin(&[request.clone()], &std::collections::BTreeMap::new()).unwrap();
        client.train(&request).unwrap();
        let rows = |wanted: FrameKind| -> BTreeSet<Vec<u8>> {
            let sent = tapped.sent.lock().unwrap();
            let parts = sent.iter().map(|frame| (frame, frame_parts(frame).unwrap()));
            let wanted = parts.filter(|(_, parts)| parts.kind == wanted);
            let rows = wanted.flat_map(|(frame, parts)| frame[parts.metadata..].chunks(4 * 16));
            rows.map(<[u8]>::to_vec).collect()
        };
        let (probed, trained) = (rows(FrameKind::Watch), rows(FrameKind::Forward));
        assert!(probed.len() > 8 && trained.len() > 8);
        // Only the first step of training has the numbers with which the probe began.
        assert_eq!(probed.iter().any(|row| trained.contains(row)), again, "{draw:?}");
    }
}
