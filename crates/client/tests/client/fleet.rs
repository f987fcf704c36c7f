//! A fleet gives the same bits whatever runs it, and keeps only what was taken.

use crate::world::{Size, World, kept_by, send, with_threads};
use fedra_client::{LocalFleet, Observer, to_values};
use fedra_data::Task;
use fedra_engine::RoundProgress;
use fedra_engine::{
    Adaptation, Arrival, ClientInfo, Download, Encoding, EvaluationRequest, EvaluationSet, Fleet,
    LocalRule, Outcome, ProbeRequest, SharedPayload, TrainRequest, Verdict,
};
use fedra_plan::{AttentionSide, Probe, RelevantTokens, Round};
use fedra_seed::Seed;
use fedra_wire::{ClientId, Expectation, Header, Kind, ParamValues, decode, encode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn train(fleet: &mut LocalFleet, orders: Vec<TrainRequest>, verdict: Verdict) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    let mut arrive = |arrival| {
        arrivals.push(arrival);
        Ok(verdict)
    };
    fleet.train(orders, &mut arrive).unwrap();
    arrivals
}

fn payload(arrival: &Arrival) -> &[u8] {
    match &arrival.outcome {
        Outcome::Finished(reply) => &reply.payload,
        Outcome::Failed(failure) => panic!("{failure:?}"),
    }
}

fn orders(
    world: &World,
    fleet: &LocalFleet,
    change: impl Fn(&mut TrainRequest),
) -> Vec<TrainRequest> {
    let mut orders = world.orders(fleet.clients(), Round(0));
    orders.iter_mut().for_each(change);
    orders
}

#[test]
fn any_number_of_threads_gives_the_same_bits_in_client_order() {
    let world = World::new(Task::Concepts, Size { hospitals: 5, notes: 40, ..Size::SMALL });
    let run = |threads| {
        with_threads(threads, || {
            let mut fleet = world.fleet();
            let orders = orders(&world, &fleet, |_| {});
            let arrivals = train(&mut fleet, orders, Verdict::Taken);
            let ids: Vec<u32> = arrivals.iter().map(|arrival| arrival.client.0).collect();
            assert_eq!(ids, [0, 1, 2, 3, 4]);
            arrivals.iter().map(|arrival| payload(arrival).to_vec()).collect::<Vec<_>>()
        })
    };
    let alone = run(1);
    for threads in [2, 3, 8] {
        assert!(run(threads) == alone, "{threads} threads");
    }
}

#[test]
fn a_failing_client_is_reported_and_the_others_go_on() {
    let mut world = World::new(Task::Diagnosis, Size::SMALL);
    world.shards.clients[1].train = fedra_client::Examples::default();
    let mut fleet = world.fleet();
    let broken = Download {
        client: ClientId(2),
        round: Round(0),
        encoding: Encoding::F32,
        payload: vec![0; 10].into(),
    };
    let absent = fleet.sync(&[broken]).unwrap();
    assert_eq!(absent[0].absence.client, ClientId(2));
    assert!(!absent[0].absence.reason.is_empty());
    let orders = orders(&world, &fleet, |_| {});
    let arrivals = train(&mut fleet, orders, Verdict::Taken);
    assert!(matches!(arrivals[0].outcome, Outcome::Finished(_)));
    let reason = |arrival: &Arrival| match &arrival.outcome {
        Outcome::Failed(failure) => failure.reason.clone(),
        Outcome::Finished(_) => panic!("it cannot have finished"),
    };
    assert!(reason(&arrivals[1]).contains("no example to train on"), "{}", reason(&arrivals[1]));
}

#[test]
fn an_error_of_the_engine_ends_the_round_and_keeps_nothing() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let mut fleet = world.fleet();
    let orders = orders(&world, &fleet, |order| {
        order.plan = world.plan(world.everything()).keeping(&world.everything());
    });
    let failure = || fedra_engine::EngineError::Sink("full".to_owned());
    let outcome = fleet.train(orders, &mut |_| Err(failure()));
    assert_eq!(outcome.unwrap_err().to_string(), failure().to_string());
    assert!(kept_by(&fleet).is_empty());
}

#[test]
fn a_download_is_written_on_the_shared_model() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let mut fleet = world.fleet();
    let mut values = to_values(&world.params).subset(&world.head());
    values.iter_mut().for_each(|(_, values)| values.fill(0.25));
    send(&mut fleet, Round(3), &values);
    let orders = world.orders(fleet.clients(), Round(3));
    let arrivals = train(&mut fleet, orders, Verdict::Taken);
    assert!(to_values(&fleet.shared).subset(&world.head()) == values);
    let everything = world.everything();
    let expected = Expectation {
        layout: world.model.layout(),
        kind: Kind::Change,
        encoding: Encoding::F32,
        round: Round(3),
        client: ClientId(0),
        scope: Some(&everything),
    };
    let (header, _) = decode(payload(&arrivals[0]), &expected).unwrap();
    assert_eq!(header.examples, fleet.clients()[0].examples);
}

#[test]
fn only_taken_answers_change_what_a_client_keeps() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let zeros = ParamValues::zeros(world.model.layout(), &world.everything());
    let header = Header::download(Kind::Variate, Encoding::F32, Round(0));
    let variate: SharedPayload =
        encode(world.model.layout(), &header, &zeros, None).unwrap().into();
    let cases: [&dyn Fn(&mut TrainRequest); 3] = [
        &|order| {
            order.work.local = LocalRule::ControlVariate;
            order.correction = Some(variate.clone());
        },
        &|order| order.work.local = LocalRule::Dynamic { alpha: 0.1 },
        &|order| order.work.encoding = Encoding::TopK { share: 0.1, feedback: true },
    ];
    for change in cases {
        let mut fleet = world.fleet();
        let given = orders(&world, &fleet, change);
        let refused = train(&mut fleet, given.clone(), Verdict::Refused);
        assert!(kept_by(&fleet).is_empty());
        let taken = train(&mut fleet, given.clone(), Verdict::Taken);
        assert_eq!(payload(&refused[0]), payload(&taken[0]));
        let states = kept_by(&fleet);
        assert_eq!(states.len(), 3);

        // A second round from a restored state is the second round.
        let second = train(&mut fleet, given.clone(), Verdict::Taken);
        assert_ne!(payload(&second[0]), payload(&taken[0]));
        let mut restored = world.fleet();
        let states = &mut states.into_iter().map(|state| Ok(Arc::new(state)));
        restored.restore(&to_values(&world.params), states).unwrap();
        let again = train(&mut restored, given, Verdict::Taken);
        assert_eq!(payload(&again[0]), payload(&second[0]));
        assert!(kept_by(&fleet) == kept_by(&restored));
    }
}

#[test]
fn the_change_of_a_variate_is_the_mean_gradient_less_the_old_one() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let everything = world.everything();
    let zeros = ParamValues::zeros(world.model.layout(), &everything);
    let header = Header::download(Kind::Variate, Encoding::F32, Round(0));
    let variate: SharedPayload =
        encode(world.model.layout(), &header, &zeros, None).unwrap().into();
    let mut fleet = world.fleet();
    let given = orders(&world, &fleet, |order| {
        order.work.local = LocalRule::ControlVariate;
        order.correction = Some(variate.clone());
    });
    let arrivals = train(&mut fleet, given, Verdict::Taken);
    let Outcome::Finished(reply) = &arrivals[0].outcome else { panic!("it finished") };
    let expected = Expectation {
        layout: world.model.layout(),
        kind: Kind::Variate,
        encoding: Encoding::F32,
        round: Round(0),
        client: ClientId(0),
        scope: Some(&everything),
    };
    let (_, change) = decode(reply.correction.as_ref().unwrap(), &expected).unwrap();
    assert!(change == kept_by(&fleet)[0].correction);
}

#[test]
fn personal_parameters_stay_and_count_at_their_client_only() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let mut fleet = world.fleet();
    let given =
        orders(&world, &fleet, |order| order.plan = order.plan.clone().keeping(&world.head()));
    let arrivals = train(&mut fleet, given, Verdict::Taken);
    let sent = world.everything() - world.head();
    let expected = Expectation {
        layout: world.model.layout(),
        kind: Kind::Change,
        encoding: Encoding::F32,
        round: Round(0),
        client: ClientId(0),
        scope: Some(&sent),
    };
    assert!(decode(payload(&arrivals[0]), &expected).is_ok());
    let states = kept_by(&fleet);
    assert_eq!(states[0].personal.scope(), world.head());
    assert!(states[0].personal != states[1].personal);

    let model = to_values(&world.params);
    let ask = |on, adapt| EvaluationRequest {
        model: &model,
        on,
        adapt,
        round: Round(1),
        seed: Seed(1),
        split: None,
    };
    let test = ask(EvaluationSet::ClientTest, None);
    let own = fleet.evaluate(&test).unwrap();
    let shared = world.fleet().evaluate(&test).unwrap();
    assert_ne!(own[0].loss, shared[0].loss);
    let central = fleet.evaluate(&ask(EvaluationSet::CentralTest, None)).unwrap();
    assert_eq!(central[0].client, None);

    // Adapting works on a copy: scores change, the fleet does not.
    let adaptation = Adaptation { learns: world.head(), work: crate::world::adamw(1e-2) };
    let adapted = fleet.evaluate(&ask(EvaluationSet::ClientTest, Some(&adaptation))).unwrap();
    assert_ne!(adapted[0].loss, own[0].loss);
    assert!(kept_by(&fleet) == states);
}

#[test]
fn training_alone_uploads_nothing_and_keeps_everything() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let mut fleet = world.fleet();
    let given = orders(&world, &fleet, |order| {
        order.plan = world.plan(world.everything()).keeping(&world.everything());
    });
    let first = train(&mut fleet, given.clone(), Verdict::Taken);
    assert!(payload(&first[0]).len() < 128, "nothing but a header and a checksum");
    let after_one = kept_by(&fleet);
    train(&mut fleet, given, Verdict::Taken);
    assert!(kept_by(&fleet)[0].personal != after_one[0].personal);
    assert!(to_values(&fleet.shared) == to_values(&world.params));
}

#[test]
fn pooled_shards_hold_every_example_in_one_pair_of_hands() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let pooled = world.shards.pooled();
    let total: usize = world.shards.clients.iter().map(|client| client.train.len()).sum();
    assert_eq!(pooled.clients[0].train.len(), total);
    assert_eq!(pooled.central_test, world.shards.central_test);
}

#[test]
fn probes_score_every_block_alike_for_any_threads() {
    let world = World::new(Task::Concepts, Size::SMALL);
    let clients: Vec<ClientId> = (0..3).map(ClientId).collect();
    let attention = |tokens| Probe::Attention { side: AttentionSide::Key, tokens };
    let probes = [
        attention(RelevantTokens::Cls),
        attention(RelevantTokens::Entities),
        attention(RelevantTokens::All),
        Probe::GradientNorm,
    ];
    for probe in probes {
        let ask = ProbeRequest {
            probe,
            clients: &clients,
            round: Round(0),
            seed: Seed(2),
            examples: 32,
            noise: None,
            split: None,
        };
        let alone = with_threads(1, || world.fleet().probe(&ask).unwrap());
        assert_eq!(alone, with_threads(3, || world.fleet().probe(&ask).unwrap()));
        assert_eq!(alone.len(), 3);
        for evidence in alone {
            assert_eq!(evidence.scores.as_slice().len(), 2);
            assert!(evidence.scores.as_slice().iter().all(|score| *score > 0.0), "{probe}");
        }
    }
}

#[test]
fn a_probe_that_nobody_can_answer_is_an_error_and_one_that_some_can_is_not() {
    let mut world = World::new(Task::Diagnosis, Size::SMALL);
    world.shards.clients[1].train = fedra_client::Examples::default();
    let clients: Vec<ClientId> = (0..3).map(ClientId).collect();
    let ask = |tokens| {
        let probe = Probe::Attention { side: AttentionSide::Key, tokens };
        ProbeRequest {
            probe,
            clients: &clients,
            round: Round(0),
            seed: Seed(2),
            examples: 32,
            noise: None,
            split: None,
        }
    };
    let some = world.fleet().probe(&ask(RelevantTokens::Cls)).unwrap();
    assert_eq!(some.iter().map(|evidence| evidence.client.0).collect::<Vec<_>>(), [0, 2]);
    let error = world.fleet().probe(&ask(RelevantTokens::Entities)).unwrap_err();
    assert!(error.to_string().contains("the task labels no tokens"), "{error}");
}

#[test]
fn a_head_that_does_not_answer_the_task_is_refused() {
    let mut world = World::new(Task::Diagnosis, Size::SMALL);
    world.shards.task = Task::Concepts;
    let (model, params) = (world.model.clone(), world.params.clone());
    let refused = LocalFleet::new(model, params, world.device.clone(), world.shards.clone());
    let message = refused.err().unwrap().to_string();
    assert!(message.starts_with("targets: found the task concepts with"), "{message}");
}

#[derive(Default)]
struct Counter {
    started: AtomicUsize,
    finished: AtomicUsize,
}

impl Observer for Counter {
    fn started(&self, _client: &ClientInfo, _round: Round) {
        self.started.fetch_add(1, Ordering::SeqCst);
    }

    fn finished(&self, _client: &ClientInfo, _round: Round, _arrival: &Arrival) {
        self.finished.fetch_add(1, Ordering::SeqCst);
    }

    fn progressed(&self, _progress: &RoundProgress) {}

    fn stops(&self) -> bool {
        false
    }
}

#[test]
fn an_observer_hears_of_every_client_twice() {
    let world = World::new(Task::Diagnosis, Size::SMALL);
    let counter = Arc::new(Counter::default());
    let mut fleet = world.fleet();
    fleet.observer = counter.clone();
    let given = orders(&world, &fleet, |order| order.plan = world.plan(world.head()));
    train(&mut fleet, given, Verdict::Taken);
    let heard = (counter.started.load(Ordering::SeqCst), counter.finished.load(Ordering::SeqCst));
    assert_eq!(heard, (3, 3));
}
