//! Rows at a cut under a guarantee: what one example can change, noise that never comes twice, a ledger
//! that counts every row, and a client that keeps count itself.

use std::sync::{Arc, Mutex};

use fedra_client::{
    Agreed, Client, Connect, Peer, PrivacyGuard, Purpose, Result, ServerSegment, Shard, to_values,
};
use fedra_compute::SecretKey;
use fedra_data::{Encoded, Target, Task};
use fedra_engine::{
    ClientBlocks, EngineError, EvaluationSet, Federation, Fleet, Noise, NoiseDraw, NoiseKind,
    NoiseMultiplier, Privacy, PrivateSelection, Recipe, RoundReport, RowPrivacy, SplitConfig,
    TrainRequest, Work,
};
use fedra_plan::{Cut, Layer, Plan, Round, Rule, Scope};
use fedra_privacy::mechanism::{GRADIENTS_AT_CUT, STATES_AT_CUT};
use fedra_privacy::{Budget, Delta, Guarantee, Relation, Release, Unit, gaussian};
use fedra_seed::Seed;
use fedra_wire::{
    ClientId, Encoding, Expectation, ExpectedFrame, FrameKind, HiddenFrame, Kind, RowEncoding,
    decode,
};

use crate::split::{BLOCKS, encoder};
use crate::world::{Size, World, sgd};

const LONGEST: u32 = Size::SMALL.longest as u32;

fn noise(norm: f64, sigma: f64) -> Noise {
    let kind = NoiseKind::Clipped { norm, sigma };
    Noise { kind, draw: NoiseDraw::Fresh, gradients: true, gradient_norm: None }
}

/// Gradients are small: so is their noise, and the middle survives it.
fn mild(norm: f64, sigma: f64) -> Noise {
    Noise { gradient_norm: Some(norm * 1e-4), ..noise(norm, sigma) }
}

fn split(noise: Noise) -> SplitConfig {
    let privacy = RowPrivacy::Accounted { longest: LONGEST };
    SplitConfig {
        noise: Some(noise),
        privacy,
        ..SplitConfig::new(ClientBlocks { first: 1, last: 1 })
    }
}

fn guarantee(budget: Option<f64>) -> Guarantee {
    Guarantee {
        unit: Unit::Example,
        relation: Relation::AddRemove,
        delta: Delta::new(1e-5).unwrap(),
        budget: budget.map(|budget| Budget::new(budget).unwrap()),
    }
}

/// A cut whose middle alone learns.
fn recipe(noise: Noise) -> Recipe {
    let work = Work { epochs: 2, ..sgd(0.1) };
    Recipe {
        learns: Rule::Blocks([1].into()),
        split: Some(split(noise)),
        privacy: Some(Privacy {
            guarantee: guarantee(None),
            clip: 1.0,
            clipping: fedra_engine::ClipRule::Flat,
            noise: NoiseMultiplier::new(1.0).unwrap(),
            cap: None,
            rows: None,
            selection: PrivateSelection::NoisyUpdate,
            client_scores: false,
        }),
        ..Recipe::new(work)
    }
}

/// Answers each frame by itself: states come back times a number, gradients as they are.
#[derive(Debug)]
struct Echo {
    gain: f32,
    width: usize,
    sent: Mutex<Vec<HiddenFrame>>,
}

impl Connect for Echo {
    fn connect(&self, _client: ClientId, _purpose: Purpose) -> Result<Box<dyn Peer + '_>> {
        Ok(Box::new(Answering(self)))
    }
}

struct Answering<'a>(&'a Echo);

impl Peer for Answering<'_> {
    fn exchange(&mut self, frame: Vec<u8>) -> Result<Vec<u8>> {
        use FrameKind::{Backward, Done, Forward, Gradient, Hidden, Score, Step};
        let expected = ExpectedFrame {
            kinds: &[Forward, Backward, Score, Step],
            encoding: RowEncoding::F32,
            step: None,
            width: self.0.width,
            rows: None,
            most_rows: usize::MAX,
            longest: usize::MAX,
        };
        let asked = HiddenFrame::decode(&frame, &expected)?;
        self.0.sent.lock().unwrap().push(asked.clone());
        let mut rows = asked.rows.into_f32();
        let kind = match asked.kind {
            Forward | Score => {
                for value in &mut rows {
                    *value *= self.0.gain;
                }
                Hidden
            }
            Backward => Gradient,
            Step
            | Hidden
            | Gradient
            | Done
            | FrameKind::Decode
            | FrameKind::DecodeLast
            | FrameKind::Watch
            | FrameKind::WatchLast
            | FrameKind::Trace
            | FrameKind::Ask
            | FrameKind::Told => Done,
        };
        let answer = HiddenFrame::of_rows(kind, asked.step, (asked.width, rows));
        Ok(answer.encode(RowEncoding::F32)?)
    }
}

/// What a client is asked, and its rows.
struct Asked<'a> {
    world: &'a World,
    shard: Shard,
    learns: Scope,
    noise: Noise,
    round: Round,
    seed: Seed,
    gain: f32,
}

impl<'a> Asked<'a> {
    /// One epoch in which the middle learns.
    fn new(world: &'a World, noise: Noise) -> Self {
        let (shard, layout) = (world.shards.clients[0].clone(), world.model.layout());
        let learns = Scope::of_layers(layout, [Layer::Block(1)]);
        Self { world, shard, learns, noise, round: Round(0), seed: Seed(2), gain: 1.0 }
    }

    fn client(&self) -> Client {
        let world = self.world;
        let labels = (world.shards.task, world.shards.labels.clone());
        let parts = (world.model.clone(), world.params.clone());
        let device = world.device.clone();
        let client = Client::new(ClientId(0), self.shard.clone(), labels, parts, device);
        let mut client = client.unwrap();
        client.secret = SecretKey::simulated(Seed(6));
        client
    }

    /// Everything that learns at the client stays with it.
    fn request(&self, client: &Client) -> TrainRequest {
        let mut request =
            self.world.orders(std::slice::from_ref(&client.info), self.round).remove(0);
        let (layout, cut) = (self.world.model.layout(), Cut::keep(1, 1, BLOCKS).unwrap());
        let ends = Scope::everything(layout) - Scope::of_layers(layout, [Layer::Block(1)]);
        request.plan = Plan::new(layout, self.learns.clone(), cut).unwrap().keeping(&ends);
        request.work = Work { epochs: 1, ..sgd(0.5) };
        request.seed = self.seed;
        request.split = Some(Arc::new(split(self.noise)));
        request
    }

    fn echo(&self) -> Arc<Echo> {
        let width = self.world.model.width();
        Arc::new(Echo { gain: self.gain, width, sent: Mutex::default() })
    }

    /// The frames that leave.
    fn frames(&self) -> Vec<HiddenFrame> {
        let (mut client, echo) = (self.client(), self.echo());
        let request = self.request(&client);
        client.connect = Some(echo.clone());
        client.train(&request).unwrap();
        std::mem::take(&mut *echo.sent.lock().unwrap())
    }
}

/// The same examples, but for one, which has as many tokens and asks and answers something else.
fn with_another(shard: &Shard, place: usize) -> Shard {
    let mut encoded: Vec<Encoded> = shard.train.encoded().to_vec();
    let Encoded { ids, target, .. } = &mut encoded[place];
    let end = ids.len() - 1;
    ids[1..end].iter_mut().for_each(|id| *id = (*id + 7) % 500 + 10);
    let Target::PerToken(labels) = target else { panic!("tags of words") };
    // Fewer labels and others: what another's gradient is divided by must not follow.
    for (number, label) in labels.iter_mut().enumerate() {
        *label = label.filter(|_| number % 2 == 0).map(|_| 1);
    }
    Shard { train: encoded.into_iter().collect(), ..shard.clone() }
}

fn length(row: &[f32]) -> f64 {
    row.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}

/// Noise of 1e-9 times a norm of 0.05 is less, and a row that depends on an example moves by more.
const NOISE: f64 = 1e-6;

/// Rows of both that differ, with how far, frame by frame.
fn moved(one: &[HiddenFrame], other: &[HiddenFrame]) -> Vec<(FrameKind, usize, Vec<f64>)> {
    assert_eq!(one.len(), other.len());
    let rows = |(one, other): (&HiddenFrame, &HiddenFrame)| {
        assert_eq!(one.lengths, other.lengths);
        let (ours, theirs) = (one.rows.to_f32(), other.rows.to_f32());
        let pairs = ours.chunks(one.width).zip(theirs.chunks(one.width));
        let away: Vec<f64> = pairs
            .map(|(a, b)| length(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>()))
            .collect();
        let all = away.len();
        (one.kind, all, away.into_iter().filter(|far| *far > NOISE).collect())
    };
    one.iter().zip(other).map(rows).collect()
}

#[test]
fn an_example_moves_its_own_rows_and_no_others_where_the_ends_do_not_learn() {
    let world = encoder(Task::Concepts);
    let norm = 0.05;
    let asked = Asked::new(&world, noise(norm, 1e-9));
    let tokens = asked.shard.train.encoded()[3].ids.len();
    let shard = with_another(&asked.shard, 3);
    // One step, then all: no batch has another weight, nor another gradient.
    let moved =
        moved(&asked.frames(), &Asked { shard, ..Asked::new(&world, asked.noise) }.frames());
    for kind in [FrameKind::Forward, FrameKind::Backward] {
        let of_kind = moved.iter().filter(|(found, ..)| *found == kind);
        let (mut all, mut away) = (0, Vec::new());
        for (_, rows, far) in of_kind {
            all += rows;
            away.extend(far.iter().copied());
        }
        assert!(
            !away.is_empty() && away.len() <= tokens,
            "{kind:?}: {} rows of {tokens}: {away:?}",
            away.len()
        );
        assert!(all > 5 * tokens);
        let most = away.iter().copied().fold(0.0, f64::max);
        assert!(most <= 2.0 * norm * (1.0 + 1e-5), "{kind:?}: {most}");
        assert!(kind == FrameKind::Backward || most > 0.5 * norm, "{kind:?}: {most}");
    }
}

/// Why all rows count where the ends learn.
#[test]
fn an_example_moves_the_rows_of_others_where_the_ends_learn() {
    let world = encoder(Task::Concepts);
    for layer in [Layer::Embedding, Layer::Head] {
        let learns = Scope::of_layers(world.model.layout(), [layer, Layer::Block(1)]);
        let asked = || Asked { learns: learns.clone(), ..Asked::new(&world, noise(0.05, 1e-9)) };
        let tokens = asked().shard.train.encoded()[3].ids.len();
        let shard = with_another(&asked().shard, 3);
        let moved = moved(&asked().frames(), &Asked { shard, ..asked() }.frames());
        let away: usize = moved.iter().map(|(_, _, far)| far.len()).sum();
        assert!(away > 4 * tokens, "{layer}: {away} rows, {tokens} are its own");
        let far = moved.iter().flat_map(|(_, _, far)| far).copied().fold(0.0, f64::max);
        assert!(far <= 0.1 * (1.0 + 1e-5), "{layer}: {far}");
    }
}

#[test]
fn two_requests_that_differ_in_anything_never_share_noise() {
    let world = encoder(Task::Concepts);
    // The norm leaves nothing of a row: what is compared is noise.
    let quiet = noise(1e-20, 1e20);
    let first = Asked::new(&world, quiet).frames();
    assert_eq!(first, Asked::new(&world, quiet).frames(), "the same again is the same release");
    let bits = |frames: &[HiddenFrame]| -> Vec<u32> {
        frames.iter().flat_map(|frame| frame.rows.to_f32().into_owned()).map(f32::to_bits).collect()
    };
    let shares = |frames: &[HiddenFrame]| {
        let seen: std::collections::BTreeSet<u32> = bits(&first).into_iter().collect();
        let all = bits(frames);
        all.iter().filter(|value| seen.contains(value)).count() as f64 / all.len() as f64
    };
    // Of so many numbers in f32 some are the same by chance.
    let chance = 0.1;
    let round = Asked { round: Round(1), ..Asked::new(&world, quiet) };
    let seed = Asked { seed: Seed(3), ..Asked::new(&world, quiet) };
    let other_noise = noise(1e-20, 1.001e20);
    let asked = Asked::new(&world, other_noise);
    for (what, frames) in
        [("round", round.frames()), ("seed", seed.frames()), ("noise", asked.frames())]
    {
        assert!(shares(&frames) < chance, "another {what}: {}", shares(&frames));
    }
    // The same question, answered otherwise: all that follows the first answer is new.
    let answered = Asked { gain: 1.5, ..Asked::new(&world, quiet) }.frames();
    assert_eq!(answered[0], first[0]);
    assert!(shares(&answered[1..]) < chance, "{}", shares(&answered[1..]));
    // No two frames of one request share any.
    for (place, frame) in first.iter().enumerate().skip(1) {
        assert!(frame.rows.to_f32()[..16] != first[place - 1].rows.to_f32()[..16]);
    }
}

/// A server that can make a client fail for some labels and not for others would learn them.
#[test]
fn a_client_goes_on_whatever_the_server_answers_and_tells_no_loss() {
    let world = encoder(Task::Concepts);
    let plain = Asked::new(&world, noise(1.0, 0.01));
    let wild = Asked { gain: 1e38, ..Asked::new(&world, noise(1.0, 0.01)) };
    let (frames, usual) = (wild.frames(), plain.frames());
    assert_eq!(frames.len(), usual.len());
    for frame in frames {
        assert!(frame.rows.is_finite());
    }
    let mut client = plain.client();
    let request = plain.request(&client);
    client.connect = Some(plain.echo());
    let reply = client.train(&request).unwrap();
    let expected = Expectation {
        layout: world.model.layout(),
        kind: Kind::Change,
        encoding: Encoding::F32,
        round: Round(0),
        client: ClientId(0),
        scope: Some(&Scope::empty()),
    };
    let (header, _) = decode(&reply.payload, &expected).unwrap();
    assert_eq!((header.loss, header.steps), (None, usual.len() as u32 / 2));
}

fn run(
    world: &World,
    recipe: &Recipe,
    rounds: u32,
) -> Result<(Federation, Vec<RoundReport>), EngineError> {
    struct Reports(Vec<RoundReport>);
    impl fedra_engine::Sink for Reports {
        fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
            self.0.push(report.clone());
            Ok(())
        }
    }
    let mut fleet = world.fleet();
    let (layout, initial) = (world.model.layout().clone(), to_values(&world.params));
    let mut federation = Federation::new(recipe.clone(), layout, initial, Seed(3))?;
    let model = (world.model.clone(), world.device.clone());
    let middle = ServerSegment::new(model, recipe.split.clone().unwrap(), fleet.clients());
    let middle = Arc::new(middle);
    federation.with_middle(middle.clone());
    fleet = fleet.with_middle(middle, Seed(8));
    let mut reports = Reports(Vec::new());
    federation.run(&mut fleet, &mut [&mut reports], rounds, &|| false)?;
    Ok((federation, reports.0))
}

#[test]
fn the_ledger_counts_every_row_of_an_example_in_every_pass() {
    let world = encoder(Task::Concepts);
    let sigma = 16.0;
    // So much noise takes the server's half away at the usual rate.
    let calm = |mut recipe: Recipe| {
        recipe.work.solver = recipe.work.solver.scaled(1e-4);
        recipe
    };
    let (federation, reports) = run(&world, &calm(recipe(mild(4.0, sigma))), 2).unwrap();
    let ledger = federation.ledger().unwrap();
    // States and gradients of three clients in two rounds.
    assert_eq!(ledger.events().len(), 12);
    let rows = 2 * u64::from(LONGEST);
    for event in ledger.events() {
        assert!([STATES_AT_CUT, GRADIENTS_AT_CUT].contains(&event.mechanism.as_str()));
        assert!(event.client.is_some());
        let count = std::num::NonZeroU64::new(rows).unwrap();
        let norm = if event.mechanism == STATES_AT_CUT { 4.0 } else { 4e-4 };
        let expected = Release::Gaussian { sensitivity: norm, deviation: 16.0 * norm, count };
        assert_eq!(event.release, expected);
    }
    let mu = (2.0 * 2.0 * rows as f64).sqrt() / sigma;
    let epsilon = reports[1].privacy.as_ref().unwrap().epsilon;
    assert!((epsilon / gaussian::epsilon(mu, 1e-5) - 1.0).abs() < 1e-9, "{epsilon}");
    assert_eq!(reports[1].loss, None);
    let statement = ledger.statement().unwrap();
    assert!(statement.contains("are visible and not covered"), "{statement}");

    // Ends that learn: every row of the client, and twice as far.
    let mut personal = recipe(mild(4.0, sigma));
    personal.learns = Rule::Everything;
    let ends = [Layer::Embedding, Layer::Block(0), Layer::Block(2), Layer::Head];
    personal.personal = Rule::Layers(ends.into());
    let (federation, _) = run(&world, &calm(personal), 1).unwrap();
    let ledger = federation.ledger().unwrap();
    for (event, shard) in ledger.events().iter().step_by(2).zip(&world.shards.clients) {
        let Release::Gaussian { sensitivity, count, .. } = event.release else { panic!() };
        assert_eq!((sensitivity, count.get()), (8.0, rows * shard.train.len() as u64));
    }
    let statement = ledger.statement().unwrap();
    assert!(statement.contains("this is no protection"), "{statement}");
}

#[test]
fn a_budget_ends_a_run_before_rows_pass_it() {
    let world = encoder(Task::Concepts);
    let mut small = recipe(mild(4.0, 16.0));
    small.work.solver = small.work.solver.scaled(1e-4);
    let one = run(&world, &small, 1).unwrap().1[0].privacy.as_ref().unwrap().epsilon;
    small.privacy.as_mut().unwrap().guarantee = guarantee(Some(1.1 * one));
    assert!(run(&world, &small, 1).is_ok());
    let Err(refused) = run(&world, &small, 2) else { panic!("two rounds pass it") };
    assert!(refused.to_string().contains(STATES_AT_CUT), "{refused}");
}

#[test]
fn what_rows_do_not_cover_is_refused_with_the_reason() {
    let world = encoder(Task::Concepts);
    let ends =
        || Rule::Layers([Layer::Embedding, Layer::Block(0), Layer::Block(2), Layer::Head].into());
    let check = |change: &dyn Fn(&mut Recipe), words: &str| {
        let mut recipe = recipe(noise(1.0, 1.0));
        change(&mut recipe);
        let Err(error) = run(&world, &recipe, 1) else { panic!("{words}: not refused") };
        assert!(error.to_string().contains(words), "{error}");
    };
    let of_noise = |recipe: &mut Recipe, noise: Option<Noise>| {
        recipe.split.as_mut().unwrap().noise = noise;
    };
    let relative = Noise { kind: NoiseKind::Relative { gamma: 1.0 }, ..noise(1.0, 1.0) };
    let absolute = Noise { kind: NoiseKind::Absolute { scale: 1.0 }, ..noise(1.0, 1.0) };
    let cached = Noise { draw: NoiseDraw::Cached, ..noise(1.0, 1.0) };
    let bare = Noise { gradients: false, ..noise(1.0, 1.0) };
    check(&|recipe| of_noise(recipe, None), "rows would leave the client without noise");
    check(&|recipe| of_noise(recipe, Some(relative)), "only a bounded norm bounds");
    check(&|recipe| of_noise(recipe, Some(absolute)), "only a bounded norm bounds");
    check(&|recipe| of_noise(recipe, Some(cached)), "split.noise.draw");
    check(&|recipe| of_noise(recipe, Some(bare)), "gradients would leave the client without noise");
    check(&|recipe| of_noise(recipe, Some(noise(1.0, 0.0))), "at least 0.01");
    check(
        &|recipe| recipe.learns = Rule::Everything,
        "clients would send their ends without noise",
    );
    check(
        &|recipe| recipe.split.as_mut().unwrap().privacy = RowPrivacy::Empirical,
        "noise that is not accounted for",
    );
    let of_clients = |recipe: &mut Recipe| {
        recipe.min_arrivals = fedra_engine::MinArrivals::Count(0);
        recipe.privacy.as_mut().unwrap().guarantee.unit = Unit::Client;
    };
    check(&of_clients, "noise on rows at a cut hides single examples");
    check(&|recipe| recipe.privacy.as_mut().unwrap().cap = Some(2.0), "neither with [split]");
    let learning = |recipe: &mut Recipe| {
        (recipe.learns, recipe.personal) = (Rule::Everything, ends());
    };
    let clipped = |recipe: &mut Recipe| {
        learning(recipe);
        recipe.work.clip = Some(1.0);
    };
    check(&clipped, "the scale factor would reveal the norm");
    let scored = |recipe: &mut Recipe| {
        learning(recipe);
        recipe.privacy.as_mut().unwrap().client_scores = true;
    };
    check(&scored, "privacy.client_scores");
    let measured = |recipe: &mut Recipe| {
        let method = fedra_engine::methods::Method::by_name("safl", serde_json::json!({ "k": 1 }));
        let safl = method.unwrap().recipe(recipe.clone());
        *recipe = safl;
    };
    check(&measured, "clients would measure across the cut");
}

#[test]
fn frozen_ends_may_clip_steps_and_score_at_clients() {
    let world = encoder(Task::Concepts);
    let mut recipe = recipe(noise(1.0, 1.0));
    recipe.work.clip = Some(0.5);
    recipe.privacy.as_mut().unwrap().client_scores = true;
    recipe.evaluation.on = vec![EvaluationSet::CentralTest, EvaluationSet::ClientTest];
    let (_, reports) = run(&world, &recipe, 1).unwrap();
    assert_eq!(reports[0].scores.len(), 2);
}

#[test]
fn a_client_counts_its_own_rows_and_refuses_what_breaks_its_guarantee() {
    let world = encoder(Task::Concepts);
    let folder = tempfile::tempdir().unwrap();
    let asked = Asked::new(&world, noise(1.0, 16.0));
    let guard = |file: &str, budget| {
        let agreed = Agreed { client_scores: true, ..Agreed::default() };
        PrivacyGuard::open(guarantee(budget), folder.path().join(file), agreed).unwrap()
    };
    let echo = asked.echo();
    let mut client = asked.client();
    client.connect = Some(echo.clone());
    client.guard = Some(guard("one", Some(4.0)));
    let spent = |client: &Client| client.guard.as_ref().unwrap().ledger().spent().unwrap().pld;
    let usual = asked.request(&client);

    let refused = |client: &mut Client, request: &TrainRequest, words: &str| {
        let error = client.train(request).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    let (layout, cut) = (world.model.layout(), Cut::keep(1, 1, BLOCKS).unwrap());
    let sends = Plan::new(layout, world.everything(), cut).unwrap();
    let with_split = |change: &dyn Fn(&mut SplitConfig)| {
        let mut split = split(noise(1.0, 16.0));
        change(&mut split);
        TrainRequest { split: Some(Arc::new(split)), ..usual.clone() }
    };
    let ends = world.everything() - Scope::of_layers(layout, [Layer::Block(1)]);
    let kept = sends.clone().keeping(&ends);
    let clipped = Work { clip: Some(1.0), ..usual.work.clone() };
    refused(&mut client, &TrainRequest { plan: sends, ..usual.clone() }, "updates of its ends");
    refused(
        &mut client,
        &TrainRequest { plan: kept, work: clipped, ..usual.clone() },
        "norm of its ends' gradient",
    );
    refused(&mut client, &with_split(&|split| split.noise = None), "split.noise");
    refused(
        &mut client,
        &with_split(&|split| split.privacy = RowPrivacy::Empirical),
        "is not accounted for",
    );
    refused(
        &mut client,
        &with_split(&|split| split.noise = Some(noise(1.0, 0.5))),
        "hidden states at the cut",
    );
    refused(&mut client, &TrainRequest { split: None, ..usual.clone() }, "steps without noise");
    let whole = world.plan(world.everything());
    refused(&mut client, &TrainRequest { plan: whole, ..usual.clone() }, "more than rows at a cut");
    assert!(echo.sent.lock().unwrap().is_empty(), "nothing left before it was counted");
    assert_eq!(spent(&client), 0.0);

    client.train(&usual).unwrap();
    let once = spent(&client);
    let own = asked.shard.train.encoded().iter().map(|one| one.ids.len()).max().unwrap();
    let mu = (2.0 * own as f64).sqrt() / 16.0;
    assert!((once / gaussian::epsilon(mu, 1e-5) - 1.0).abs() < 1e-9, "{once}");
    // The server may answer otherwise: the same question counts again.
    let again = client.train(&usual);
    assert!(again.is_ok() && spent(&client) > once, "{again:?}");
    let frames = echo.sent.lock().unwrap().len();
    for round in 1..99 {
        if client.train(&TrainRequest { round: Round(round), ..usual.clone() }).is_err() {
            assert!(spent(&client) <= 4.0);
            assert!(echo.sent.lock().unwrap().len() < frames * 10);
            return;
        }
    }
    panic!("the budget was never reached");
}

/// Ends that learned once make every later row depend on every example, also where they are at rest.
#[test]
fn a_client_remembers_that_its_ends_have_learned() {
    let world = encoder(Task::Concepts);
    let folder = tempfile::tempdir().unwrap();
    let asked = Asked::new(&world, noise(1.0, 16.0));
    let guard =
        PrivacyGuard::open(guarantee(None), folder.path().join("two"), Agreed::default()).unwrap();
    let mut client = asked.client();
    client.connect = Some(asked.echo());
    client.guard = Some(guard);
    let at_rest = asked.request(&client);
    let learns = Scope::of_layers(world.model.layout(), [Layer::Head, Layer::Block(1)]);
    let learning = Asked { learns, ..Asked::new(&world, asked.noise) }.request(&client);
    let rows = |client: &Client| {
        let events = client.guard.as_ref().unwrap().ledger().events();
        let Release::Gaussian { count, .. } = events.last().unwrap().release else { panic!() };
        count.get()
    };
    client.train(&at_rest).unwrap();
    let own = rows(&client);
    client.train(&learning).unwrap();
    client.settle(fedra_engine::Verdict::Taken);
    assert_eq!(rows(&client), own * asked.shard.train.len() as u64);
    client.train(&at_rest).unwrap();
    assert_eq!(rows(&client), own * asked.shard.train.len() as u64);
}
