//! What the engine asks of its clients in a round, as questions to sites and what their answers come to.

use std::collections::BTreeMap;
use std::sync::Arc;

use fedra_engine::{
    Absence, Activity, Arrival, AttentionRequest, AttentionShift, ClientAttention, ClientInfo,
    ClientState, Download, EngineError, EvaluationRequest, EvaluationSet, Evidence, Fleet, Outcome,
    ProbeRequest, Scored, StateHandle, TrainRequest, Unsynced, Verdict,
};
use fedra_plan::{BlockScores, Scope};
use fedra_wire::{ClientId, Expectation, Header, Kind, ParamValues, open};

use super::answers::{no_update, read_evidence, read_reply, unexpected};
use super::{NetFleet, failure};
use crate::protocol::{Adapt, Answer, Counts, Label, Request, Step};

impl NetFleet {
    fn seat(&self, client: ClientId) -> Result<usize, EngineError> {
        let seat = client.0 as usize;
        if seat < self.infos.len() {
            return Ok(seat);
        }
        let reason = format!("found the number {client}, expected one below {}", self.infos.len());
        Err(EngineError::Fleet { doing: "find a client", reason })
    }

    /// Notes that an answer counts.
    fn note_answer(&self, seat: usize, step: Step) {
        let label = Label { round: self.round, step };
        self.host.roster().journal.note_answer(&self.infos[seat].name, label);
    }

    pub(super) fn save_journal(&self) -> Result<(), EngineError> {
        self.host.roster().journal.save().map_err(|error| failure("note answers", &error))
    }

    /// Writes a download on the fleet's copy of the shared model.
    fn receive(&mut self, download: &Download) -> Result<Scope, EngineError> {
        let header = Header::download(Kind::Values, download.encoding, download.round);
        let expected = Expectation::of(&self.layout, &header);
        let values = open(&download.payload, &expected)?.tensors();
        let brought = values.scope();
        self.changed = &self.changed | &brought;
        self.shared.absorb(values);
        Ok(brought)
    }
}

impl Fleet for NetFleet {
    fn clients(&self) -> &[ClientInfo] {
        &self.infos
    }

    fn sync(&mut self, downloads: &[Download]) -> Result<Vec<Unsynced>, EngineError> {
        self.no_work();
        // Clients that lack the same share one payload, which is read once.
        let mut read: BTreeMap<*const u8, Scope> = BTreeMap::new();
        let mut brought = BTreeMap::new();
        let mut requests = Vec::with_capacity(downloads.len());
        for download in downloads {
            self.round = download.round;
            let place = download.payload.as_ptr();
            let scope = match read.get(&place) {
                Some(scope) => scope.clone(),
                None => self.receive(download)?,
            };
            read.insert(place, scope.clone());
            let (request, payloads) = Request::of_download(download);
            let seat = self.seat(download.client)?;
            brought.insert(seat, scope);
            requests.push((seat, request, payloads));
        }
        let first = self.requests + 1;
        let mut absent = Vec::new();
        let brings = |seat: usize| brought.get(&seat).cloned().unwrap_or_default();
        for (seat, answer) in self.ask_all(requests, brings)? {
            let reason = match answer {
                Ok((Answer::Synced, _)) => continue,
                Ok((answer, _)) => unexpected(answer, "that it is up to date"),
                Err(reason) => reason,
            };
            let sent = self.was_delivered(seat, first);
            let absence = Absence { client: ClientId(seat as u32), reason, diverged: false };
            absent.push(Unsynced { absence, sent });
        }
        Ok(absent)
    }

    fn probe(&mut self, request: &ProbeRequest<'_>) -> Result<Vec<Evidence>, EngineError> {
        let ProbeRequest { probe, clients, round, seed, examples, noise, split } = *request;
        let (seed, split) = (seed.0, split.cloned());
        let asked = Request::Probe { probe, round, seed, examples, noise, split };
        let requests =
            clients.iter().map(|client| Ok((self.seat(*client)?, asked.clone(), vec![])));
        let requests = requests.collect::<Result<_, EngineError>>()?;
        let blocks = self.layout.blocks();
        let mut all = Vec::new();
        self.begin_work(Activity::Probing, clients.len());
        for (seat, answer) in self.ask_all(requests, nothing)? {
            let client = ClientId(seat as u32);
            let evidence = match answer {
                Ok((Answer::Evidence, payloads)) => {
                    read_evidence(&payloads, (round, client, blocks)).and_then(|scores| {
                        let scores = BlockScores::new(probe, scores);
                        scores.map_err(|error| error.to_string())
                    })
                }
                Ok((answer, _)) => Err(unexpected(answer, "scores")),
                Err(reason) => Err(reason),
            };
            match evidence {
                Ok(scores) => all.push(Evidence { client, scores }),
                // A client without an answer follows the others.
                Err(reason) => self.told(seat, "measured nothing", &reason),
            }
        }
        Ok(all)
    }

    fn compare_attention(
        &mut self,
        request: &AttentionRequest<'_>,
    ) -> Result<Vec<ClientAttention>, EngineError> {
        let asked = Request::CompareAttention { round: self.round, seed: request.seed.0 };
        let requests =
            request.clients.iter().map(|client| Ok((self.seat(*client)?, asked.clone(), vec![])));
        let requests = requests.collect::<Result<_, EngineError>>()?;
        let mut all = Vec::new();
        self.begin_work(Activity::Probing, request.clients.len());
        for (seat, answer) in self.ask_all(requests, nothing)? {
            let moved = match answer {
                Ok((Answer::FirstLook, _)) => None,
                Ok((Answer::Attention { since_first, since_last }, _)) => {
                    Some(AttentionShift { since_first, since_last })
                }
                Ok((answer, _)) => {
                    self.told(seat, "did not look", &unexpected(answer, "attention"));
                    continue;
                }
                Err(reason) => {
                    self.told(seat, "did not look", &reason);
                    continue;
                }
            };
            self.note_answer(seat, Step::Looked);
            all.push(ClientAttention { client: ClientId(seat as u32), moved });
        }
        self.save_journal()?;
        Ok(all)
    }

    fn train(
        &mut self,
        requests: Vec<TrainRequest>,
        arrive: &mut dyn FnMut(Arrival) -> Result<Verdict, EngineError>,
    ) -> Result<(), EngineError> {
        let mut asked = BTreeMap::new();
        for request in &requests {
            let seat = self.seat(request.client)?;
            let written = Request::of_training(request, &self.layout);
            let (written, payloads) = written.map_err(|error| failure("ask a site", &error))?;
            self.observer.started(&self.infos[seat], request.round);
            asked.insert(seat, self.ask(seat, (&written, payloads), Scope::empty())?);
        }
        self.begin_work(Activity::Training, requests.len());
        while let Some((seat, answer)) = self.next(&mut asked)? {
            let outcome = match answer {
                Ok((Answer::Trained { seconds, memory, noise }, payloads)) => {
                    read_reply(payloads, (seconds, memory, noise))
                }
                Ok((answer, _)) => Outcome::Failed(no_update(answer, "an update")),
                Err(reason) => Outcome::Failed(reason.into()),
            };
            let arrival = Arrival { client: ClientId(seat as u32), outcome };
            self.observer.finished(&self.infos[seat], self.round, &arrival);
            self.end_work();
            let verdict = arrive(arrival)?;
            if verdict == Verdict::Taken {
                self.note_answer(seat, Step::Trained);
            }
            self.tell(seat, &Request::Settle);
        }
        self.save_journal()
    }

    fn evaluate(&mut self, request: &EvaluationRequest<'_>) -> Result<Vec<Scored>, EngineError> {
        let EvaluationRequest { on, model, adapt, round, seed, split } = *request;
        if on == EvaluationSet::CentralTest {
            self.no_work();
            return Ok(vec![(self.central)(model, &*self.observer)?]);
        }
        let adapt = adapt.map(Adapt::from);
        let split = split.cloned();
        let asked = Request::Evaluate { on, adapt, round, seed: seed.0, split };
        let scorers = self.scorers(on).into_iter();
        let requests: Vec<_> =
            scorers.map(|client| (client.0 as usize, asked.clone(), vec![])).collect();
        self.begin_work(Activity::Evaluating, requests.len());
        let mut all = Vec::new();
        for (seat, answer) in self.ask_all(requests, nothing)? {
            let client = Some(ClientId(seat as u32));
            match answer {
                Ok((Answer::Scored { scored }, _)) => {
                    all.extend(scored.map(|scored| Scored { client, ..scored }));
                }
                Ok((answer, _)) => {
                    self.told(seat, "scored nothing", &unexpected(answer, "scores"));
                }
                Err(reason) => self.told(seat, "scored nothing", &reason),
            }
        }
        Ok(all)
    }

    fn scorers(&self, on: EvaluationSet) -> Vec<ClientId> {
        let has_some = |counts: &Counts| match on {
            EvaluationSet::CentralTest => false,
            EvaluationSet::ClientValidation => counts.validation > 0,
            EvaluationSet::ClientTest => counts.test > 0,
        };
        let census = self.census();
        let seats = (0..).zip(&census).filter(|(_, (_, counts))| has_some(counts));
        seats.map(|(seat, _)| ClientId(seat)).collect()
    }

    fn forget(&mut self, part: &Scope) -> Result<(), EngineError> {
        let forget = self.host.roster().journal.note_forget(part);
        self.save_journal()?;
        self.tell_all(&Request::Forget(forget));
        Ok(())
    }

    fn revoke(&mut self, clients: &[ClientId]) -> Result<(), EngineError> {
        for client in clients {
            let seat = self.seat(*client)?;
            let name = &self.infos[seat].name;
            let _base = self.host.roster().journal.revoke(name, self.round);
            self.tell(seat, &Request::Settle);
        }
        self.save_journal()
    }

    fn await_return(
        &mut self,
        absent: &[ClientId],
        again: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), EngineError> {
        self.wait_for_return(absent, again, stop)
    }

    /// They keep it themselves.
    fn states(&self) -> Vec<StateHandle> {
        Vec::new()
    }

    /// Sites have their states; what they lack of the model they are sent when they are asked.
    fn restore(
        &mut self,
        shared: &ParamValues,
        _states: &mut dyn Iterator<Item = Result<Arc<ClientState>, EngineError>>,
    ) -> Result<(), EngineError> {
        let differs = |(id, values): &(_, &[f32])| self.shared.get(*id) != Some(values);
        self.changed = shared.iter().filter(differs).map(|(id, _)| id).collect();
        self.shared = shared.clone();
        Ok(())
    }
}

impl NetFleet {
    fn told(&self, seat: usize, what: &str, reason: &str) {
        self.listener.told(&format!("{} {what}: {reason}", self.infos[seat].name));
    }
}

/// What a request brings of the shared model that is no download.
fn nothing(_seat: usize) -> Scope {
    Scope::empty()
}
