//! Every method of the trait, asked without an engine, in an order that makes state matter.

use std::collections::BTreeMap;

use fedra_client::to_values;
use fedra_compute::Seed;
use fedra_engine::{
    AttentionRequest, Download, EvaluationRequest, EvaluationSet, Fleet, ProbeRequest,
    SharedPayload, TrainRequest, Verdict, Work,
};
use fedra_plan::{AttentionSide, Cut, Layout, Plan, Probe, RelevantTokens, Round, Scope};
use fedra_wire::{ClientId, Encoding, Header, Kind, ParamValues, encode};

use crate::deployment::{Clients, Deployment};
use crate::noted::{Call, Noted, Trained};
use crate::outcome::Outcome;
use crate::world::{World, recipe};

pub fn every_question(deployment: &dyn Deployment) -> Outcome {
    let clients = Clients::new(World::new(3));
    let layout = clients.world.model.layout().clone();
    let mut model = to_values(&clients.world.params);
    let mut calls = Vec::new();
    let mut opened = deployment.open(&clients);
    let mut fleet = Noted::new(opened.fleet(), &mut calls);
    let mut engine = Engine { fleet: &mut fleet, layout: &layout };

    engine.sync(Round(0), &model, &Scope::everything(&layout));
    engine.look();
    engine.train(Round(0), Verdict::Taken);
    // As if it had not been asked: the same work again gives the same answer, and what is seen is new again.
    engine.fleet.revoke(&ALL).unwrap();
    engine.look();
    engine.train(Round(0), Verdict::Taken);
    engine.score(Round(1), &model);

    let changed = Scope::of_blocks(&layout, [1]);
    for (id, values) in model.iter_mut() {
        if changed.contains(id) {
            for value in values {
                *value *= 1.5;
            }
        }
    }
    engine.sync(Round(1), &model, &changed);
    engine.look();
    engine.probe(Round(1));
    // What was refused leaves no trace either.
    engine.train(Round(1), Verdict::Refused);
    engine.train(Round(1), Verdict::Taken);
    engine.fleet.forget(&changed).unwrap();
    engine.sync(Round(2), &model, &Scope::empty());
    engine.train(Round(2), Verdict::Taken);
    engine.score(Round(3), &model);
    opened.finish();

    let answers = |all: &BTreeMap<ClientId, Trained>| -> Vec<_> {
        all.values().map(|it| it.answer.clone()).collect()
    };
    let trained: Vec<_> = calls.iter().filter_map(Call::trained).map(answers).collect();
    assert!(trained.iter().flatten().all(Result::is_ok), "{trained:?}");
    let looks: Vec<_> =
        calls.iter().filter(|call| matches!(call, Call::CompareAttention(_))).collect();
    assert!(looks[0] == looks[1] && looks[1] != looks[2], "{looks:?}");
    assert_eq!(trained[0], trained[1], "revoked, and asked again");
    assert_eq!(trained[2], trained[3], "refused, and asked again");
    Outcome { models: vec![model], reports: Vec::new(), calls }
}

const ALL: [ClientId; 3] = [ClientId(0), ClientId(1), ClientId(2)];

/// Asks as an engine does.
struct Engine<'e, 'f> {
    fleet: &'e mut Noted<'f>,
    layout: &'e Layout,
}

impl Engine<'_, '_> {
    fn sync(&mut self, round: Round, model: &ParamValues, part: &Scope) {
        let header = Header::download(Kind::Values, Encoding::F32, round);
        let payload: SharedPayload =
            encode(self.layout, &header, &model.subset(part), None).unwrap().into();
        let downloads = ALL.map(|client| Download {
            client,
            round,
            encoding: Encoding::F32,
            payload: payload.clone(),
        });
        assert_eq!(self.fleet.sync(&downloads).unwrap(), []);
    }

    /// What is answered within a round can be taken back, or nothing of it can.
    fn look(&mut self) {
        let request = AttentionRequest { clients: &ALL, revocable: true, seed: Seed(9) };
        assert_eq!(self.fleet.compare_attention(&request).unwrap().len(), 3);
    }

    /// Each client trains another part, and keeps what rounding took from its answer.
    fn train(&mut self, round: Round, verdict: Verdict) {
        let encoding = Encoding::Int8 { feedback: true };
        let work = Work { encoding, ..recipe("fedavg", "{}", |_| {}).work };
        let scopes = [
            Scope::everything(self.layout),
            Scope::of_blocks(self.layout, [1]),
            Scope::of_blocks(self.layout, [0, 1]),
        ];
        let request = |(client, learns): (ClientId, Scope)| TrainRequest {
            client,
            round,
            seed: Seed(7).with(u64::from(client.0)),
            correction: None,
            plan: Plan::new(self.layout, learns, Cut::none()).unwrap(),
            work: work.clone(),
            revocable: true,
            split: None,
        };
        let requests = ALL.into_iter().zip(scopes).map(request).collect();
        self.fleet.train(requests, &mut |_| Ok(verdict)).unwrap();
    }

    fn probe(&mut self, round: Round) {
        let attention = |side, tokens| Probe::Attention { side, tokens };
        let probes = [
            attention(AttentionSide::Key, RelevantTokens::Cls),
            attention(AttentionSide::Query, RelevantTokens::All),
            Probe::GradientNorm,
            Probe::RelativeGradient,
        ];
        for probe in probes {
            let (seed, clients) = (Seed(5), &ALL[..]);
            let request =
                ProbeRequest { probe, clients, round, seed, examples: 3, noise: None, split: None };
            assert_eq!(self.fleet.probe(&request).unwrap().len(), 3);
        }
    }

    fn score(&mut self, round: Round, model: &ParamValues) {
        use EvaluationSet::{CentralTest, ClientTest, ClientValidation};
        for on in [CentralTest, ClientValidation, ClientTest] {
            let (seed, adapt, split) = (Seed(6), None, None);
            let request = EvaluationRequest { on, model, adapt, round, seed, split };
            assert!(!self.fleet.evaluate(&request).unwrap().is_empty());
        }
    }
}
