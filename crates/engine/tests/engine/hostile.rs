//! Bad answers are refused with a reason and counted; the round continues as if without them.

use std::sync::Arc;

use crate::fleet::*;
use fedra_engine::*;
use fedra_plan::Scope;
use fedra_wire::{Header, Kind, encode};

const EXAMPLES: [u64; 3] = [40, 70, 100];

/// Client 1 answers with what `attack` makes of its reply.
#[track_caller]
fn check(attack: impl Fn(&TrainRequest, Reply) -> Vec<Outcome> + 'static, reason: &str) {
    let mut without = Quadratics::new(&EXAMPLES);
    without.tamper = Some(Box::new(|order, reply| match order.client {
        ClientId(1) => vec![Outcome::Failed("absent".into())],
        _ => vec![Outcome::Finished(reply)],
    }));
    let expected = train(recipe("fedavg", "{}"), &mut without, 2);

    let mut fleet = Quadratics::new(&EXAMPLES);
    fleet.tamper = Some(Box::new(move |order, reply| match order.client {
        ClientId(1) => attack(order, reply),
        _ => vec![Outcome::Finished(reply)],
    }));
    let (found, reports) = run(recipe("fedavg", "{}"), &mut fleet, 2);
    assert_eq!(found.model(), &expected);
    for report in reports {
        assert_eq!(report.arrived, [ClientId(0), ClientId(2)]);
        let refused = &report.refused[0];
        assert!(refused.client == ClientId(1) && refused.reason.contains(reason), "{refused:?}");
    }
}

/// A well-formed payload with other claims or values.
fn forged(
    order: &TrainRequest,
    change: impl FnOnce(&mut Header, &mut ParamValues),
) -> Vec<Outcome> {
    let mut header = Header {
        kind: Kind::Change,
        encoding: Encoding::F32,
        round: order.round,
        client: order.client,
        examples: 70,
        steps: 7,
        loss: Some(1.0),
    };
    let mut tensors = ParamValues::zeros(&layout(), order.plan.learns());
    change(&mut header, &mut tensors);
    let payload = encode(&layout(), &header, &tensors, None).expect("well formed");
    vec![Outcome::Finished(Reply {
        payload,
        correction: None,
        seconds: 0.0,
        memory: None,
        noise: None,
    })]
}

/// The same with four raw bytes of the values replaced and the checksum made right again.
fn with_value(order: &TrainRequest, value: f32) -> Vec<Outcome> {
    let mut outcomes = forged(order, |_, _| {});
    if let Outcome::Finished(Reply { payload, .. }) = &mut outcomes[0] {
        let end = payload.len() - 8;
        payload[end - 4..end].copy_from_slice(&value.to_le_bytes());
        let checksum = fedra_wire::checksum(&payload[..end]).to_le_bytes();
        payload[end..].copy_from_slice(&checksum);
    }
    outcomes
}

#[test]
fn values_that_would_spoil_the_sum_are_refused() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38, -3e38] {
        check(move |order, _| with_value(order, value), "expected a finite number");
    }
}

#[test]
fn impossible_claims_are_refused() {
    for examples in [0, 71, u64::MAX] {
        check(
            move |order, _| forged(order, |h, _| h.examples = examples),
            "examples, expected 1 to 70",
        );
    }
    for steps in [0, 71, u32::MAX] {
        check(move |order, _| forged(order, |h, _| h.steps = steps), "steps, expected 1 to 70");
    }
}

#[test]
fn other_rounds_clients_kinds_and_parts_are_refused() {
    check(|order, _| forged(order, |h, _| h.round = h.round.next()), "round is ");
    check(
        |order, _| forged(order, |h, _| h.client = ClientId(0)),
        "sender in the header is 0, expected 1",
    );
    check(|order, _| forged(order, |h, _| h.kind = Kind::Values), "expected 1 (change)");
    check(|order, _| forged(order, |h, _| h.encoding = Encoding::F16), "encoding is 1, expected 0");
    let missing = |tensors: &mut ParamValues| {
        let first = tensors.scope().iter().next().expect("not empty");
        tensors.remove(first);
    };
    check(move |order, _| forged(order, |_, t| missing(t)), "without embedding.token.weight");
    check(|order, _| forged(order, |_, t| *t = ParamValues::new()), "number of parameters is 0");
}

#[test]
fn broken_bytes_are_refused() {
    for cut in [0, 1, 63, 64, 100] {
        let attack = move |_: &TrainRequest, mut reply: Reply| {
            reply.payload.truncate(cut);
            vec![Outcome::Finished(reply)]
        };
        check(attack, "number of bytes is ");
    }
    let longer = |_: &TrainRequest, mut reply: Reply| {
        reply.payload.push(0);
        vec![Outcome::Finished(reply)]
    };
    check(longer, "number of bytes is ");
    let unasked = |_: &TrainRequest, mut reply: Reply| {
        reply.correction = Some(reply.payload.clone());
        vec![Outcome::Finished(reply)]
    };
    check(unasked, "came with a correction");
}

#[test]
fn a_second_answer_is_refused_and_counted_once_in_the_model() {
    let mut fleet = Quadratics::new(&EXAMPLES);
    fleet.tamper =
        Some(Box::new(|_, reply| vec![Outcome::Finished(reply.clone()), Outcome::Finished(reply)]));
    let (found, reports) = run(recipe("fedavg", "{}"), &mut fleet, 2);
    let expected = train(recipe("fedavg", "{}"), &mut Quadratics::new(&EXAMPLES), 2);
    assert_eq!(found.model(), &expected);
    assert!(reports.iter().all(|report| report.refused.len() == 3));
    assert_eq!(reports[0].refused[0].reason, "a second answer");
}

/// Delivers a stranger's answer before the ordered ones.
struct Intruder(Quadratics);

impl Fleet for Intruder {
    fn clients(&self) -> &[ClientInfo] {
        self.0.clients()
    }

    fn train(
        &mut self,
        orders: Vec<TrainRequest>,
        arrive: &mut dyn FnMut(Arrival) -> Result<Verdict, EngineError>,
    ) -> Result<(), EngineError> {
        for client in [ClientId(2), ClientId(77), ClientId::SERVER] {
            let outcome = forged(&orders[0], |header, _| header.client = client).remove(0);
            assert_eq!(arrive(Arrival { client, outcome })?, Verdict::Refused);
        }
        self.0.train(orders, arrive)
    }

    fn evaluate(&mut self, request: &EvaluationRequest<'_>) -> Result<Vec<Scored>, EngineError> {
        self.0.evaluate(request)
    }

    fn scorers(&self, on: EvaluationSet) -> Vec<ClientId> {
        self.0.scorers(on)
    }

    fn probe(&mut self, request: &ProbeRequest<'_>) -> Result<Vec<Evidence>, EngineError> {
        self.0.probe(request)
    }

    fn compare_attention(
        &mut self,
        look: &AttentionRequest<'_>,
    ) -> Result<Vec<ClientAttention>, EngineError> {
        self.0.compare_attention(look)
    }

    fn sync(&mut self, downloads: &[Download]) -> Result<Vec<Unsynced>, EngineError> {
        self.0.sync(downloads)
    }

    fn forget(&mut self, part: &Scope) -> Result<(), EngineError> {
        self.0.forget(part)
    }

    fn revoke(&mut self, clients: &[ClientId]) -> Result<(), EngineError> {
        self.0.revoke(clients)
    }

    fn await_return(
        &mut self,
        absent: &[ClientId],
        again: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), EngineError> {
        self.0.await_return(absent, again, stop)
    }

    fn states(&self) -> Vec<StateHandle> {
        self.0.states()
    }

    fn restore(
        &mut self,
        shared: &ParamValues,
        states: &mut dyn Iterator<Item = Result<Arc<ClientState>, EngineError>>,
    ) -> Result<(), EngineError> {
        self.0.restore(shared, states)
    }
}

#[test]
fn who_was_not_asked_is_not_heard() {
    // Client 2 exists but has nothing to train on, so it is never drawn.
    let examples = [40, 70, 0];
    let expected = train(recipe("fedavg", "{}"), &mut Quadratics::new(&examples), 1);
    let mut federation =
        Federation::new(recipe("fedavg", "{}"), layout(), initial(), fedra_seed::Seed(1))
            .expect("whole");
    let mut reports = Reports::default();
    federation
        .run(&mut Intruder(Quadratics::new(&examples)), &mut [&mut reports], 1, &|| false)
        .expect("the round goes on");
    assert_eq!(federation.model(), &expected);
    assert_eq!(reports.0[0].refused.len(), 3);
    assert!(reports.0[0].refused.iter().all(|one| one.reason == "was not selected in this round"));
}

#[test]
fn one_hot_updates_show_that_each_client_counts_once() {
    let mut fleet = Quadratics::new(&[10, 20, 70]);
    fleet.reversed = true;
    fleet.tamper = Some(Box::new(|order, _| {
        let examples = [10, 20, 70][order.client.0 as usize];
        forged(order, |header, tensors| {
            (header.examples, header.steps) = (examples, 1);
            let first = tensors.scope().iter().next().expect("not empty");
            tensors.get_mut(first).expect("just named")[order.client.0 as usize] = 1.0;
        })
    }));
    let after = train(recipe("fedavg", "{}"), &mut fleet, 1);
    let first = Scope::everything(&layout()).iter().next().expect("not empty");
    let moved: Vec<f32> = (after.get(first).expect("whole").iter())
        .zip(initial().get(first).expect("whole"))
        .map(|(after, before)| after - before)
        .collect();
    for (found, expected) in moved.iter().zip([0.1, 0.2, 0.7, 0.0, 0.0, 0.0]) {
        assert!((found - expected).abs() < 1e-6, "{moved:?}");
    }
}
