//! What the engine asks of its clients in a round, as questions to sites and what their answers come to.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what else an answer may be is listed once, by `unexpected`"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fedra_engine::{
    Absence, Activity, Arrival, AttentionRequest, ClientAttention, ClientInfo, ClientState,
    Download, EngineError, EvaluationRequest, EvaluationSet, Evidence, Fleet, Outcome,
    ProbeRequest, Scored, StateHandle, TrainRequest, Unsynced, Verdict, layout_of, place_of,
};
use fedra_plan::{BlockScores, ParamId, Scope};
use fedra_wire::{ClientId, Expectation, Header, Kind, ParamValues, open};

use super::answers::{no_update, read_evidence, read_reply, unexpected};
use super::{FleetPhase, NetFleet, failure};
use crate::protocol::{Answer, Counts, Request, RoundStage, StateVersion};

/// The longest wait before a round is repeated.
const LONGEST: Duration = Duration::from_mins(10);

impl NetFleet {
    /// Notes that an answer counts.
    fn note_answer(&self, seat: usize, step: RoundStage) {
        let label = StateVersion { round: self.round, step };
        self.host.roster().journal.note_answer(&self.infos[seat].name, label);
    }

    pub(super) fn save_journal(&self) -> Result<(), EngineError> {
        self.host.roster().journal.save().map_err(|error| failure("note answers", &error))
    }

    /// Writes a download on the fleet's copy of the shared model.
    fn receive(&mut self, download: &Download) -> Result<Scope, EngineError> {
        let header = Header::download(Kind::Values, download.encoding, download.round);
        let name = &self.infos[place_of(&self.infos, download.client)?].name;
        let layout = layout_of(&self.ranks, name, &self.layout);
        let values = open(&download.payload, &Expectation::of(&layout, &header))?.tensors();
        let brought = values.scope();
        self.changed = &self.changed | &brought;
        // Adapters of another rank are not the shared ones.
        let of_rank = |id: &ParamId| layout.get(*id) != self.layout.get(*id);
        let (own, shared): (Vec<_>, Vec<_>) = values.into_iter().partition(|(id, _)| of_rank(id));
        if let Some(rank) = self.ranks.get(name) {
            self.narrow.entry(*rank).or_default().absorb(own.into_iter().collect());
        }
        self.shared.absorb(shared.into_iter().collect());
        Ok(brought)
    }
}

impl Fleet for NetFleet {
    fn clients(&self) -> &[ClientInfo] {
        &self.infos
    }

    fn sync(&mut self, downloads: &[Download]) -> Result<Vec<Unsynced>, EngineError> {
        self.publication.work = None;
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
            let seat = place_of(&self.infos, download.client)?;
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
            let delivered = self.host.roster().seats[seat].delivered;
            let sent = delivered.is_some_and(|(_, request)| request >= first);
            let absence = Absence { client: ClientId(seat as u32), reason, diverged: false };
            absent.push(Unsynced { absence, sent });
        }
        Ok(absent)
    }

    fn probe(&mut self, request: &ProbeRequest<'_>) -> Result<Vec<Evidence>, EngineError> {
        let ProbeRequest { probe, clients, round, seed, examples, noise, split } = *request;
        let (seed, split) = (seed.0, split.cloned());
        let asked = Request::Probe { probe, round, seed, examples, noise, split };
        let blocks = self.layout.blocks();
        let read = |client, answer, payloads: Vec<Bytes>| match answer {
            Answer::Evidence => {
                let scores = read_evidence(&payloads, (round, client, blocks))?;
                let scores = BlockScores::new(probe, scores).map_err(|error| error.to_string())?;
                Ok(Evidence { client, scores })
            }
            other => Err(unexpected(other, "scores")),
        };
        // A client without an answer follows the others.
        self.survey((Activity::Probing, "measured nothing"), (clients, &asked), read)
    }

    fn compare_attention(
        &mut self,
        request: &AttentionRequest<'_>,
    ) -> Result<Vec<ClientAttention>, EngineError> {
        let asked = Request::CompareAttention { round: self.round, seed: request.seed.0 };
        let read = |client, answer, _| match answer {
            Answer::FirstLook => Ok(ClientAttention { client, moved: None }),
            Answer::Attention(shift) => Ok(ClientAttention { client, moved: Some(shift) }),
            other => Err(unexpected(other, "attention")),
        };
        let looked =
            self.survey((Activity::Probing, "did not answer"), (request.clients, &asked), read)?;
        for ClientAttention { client, .. } in &looked {
            self.note_answer(client.0 as usize, RoundStage::Looked);
        }
        self.save_journal()?;
        Ok(looked)
    }

    fn train(
        &mut self,
        requests: Vec<TrainRequest>,
        arrive: &mut dyn FnMut(Arrival) -> Result<Verdict, EngineError>,
    ) -> Result<(), EngineError> {
        let mut asked = BTreeMap::new();
        for request in &requests {
            let seat = place_of(&self.infos, request.client)?;
            let written = Request::of_training(request, &self.layout);
            let (written, payloads) =
                written.map_err(|error| failure("send a request to a client", &error))?;
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
                self.note_answer(seat, RoundStage::Trained);
            }
            self.tell(seat, &Request::Settle);
        }
        self.save_journal()
    }

    fn evaluate(&mut self, request: &EvaluationRequest<'_>) -> Result<Vec<Scored>, EngineError> {
        let EvaluationRequest { on, model, adapt, round, seed, split } = *request;
        if on == EvaluationSet::CentralTest {
            self.publication.work = None;
            return Ok(vec![(self.central)(model, &*self.observer)?]);
        }
        let (adapt, split) = (adapt.cloned(), split.cloned());
        let asked = Request::Evaluate { on, adapt, round, seed: seed.0, split };
        let read = |client, answer, _| match answer {
            Answer::Scored { scored } => {
                Ok(scored.map(|scored| Scored { client: Some(client), ..scored }))
            }
            other => Err(unexpected(other, "scores")),
        };
        let scorers = self.scorers(on);
        let scored =
            self.survey((Activity::Evaluating, "reported no scores"), (&scorers, &asked), read)?;
        Ok(scored.into_iter().flatten().collect())
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
            let seat = place_of(&self.infos, *client)?;
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
        let absent: BTreeSet<usize> = absent.iter().map(|client| client.0 as usize).collect();
        let longer = 1 << again.saturating_sub(1).min(16);
        let wait = self.options.retry_after.saturating_mul(longer).min(LONGEST);
        let (until, mut is_told) = (Instant::now() + wait, false);
        loop {
            let away = self.away(|seat| absent.contains(&seat));
            if away.is_empty() || Instant::now() >= until || stop() || self.listener.stops() {
                break;
            }
            if !std::mem::replace(&mut is_told, true) {
                let (round, names) = (self.round.0 + 1, self.names_of(&away));
                self.listener.told(&format!(
                    "too few updates for round {round}: it is repeated when {names} are back, after \
                     {:.0} s at the latest",
                    wait.as_secs_f64()
                ));
                self.enter(FleetPhase::Retrying);
            }
            self.publish();
            let severed = |reason| EngineError::Fleet { doing: "reach the clients", reason };
            self.glance(Some(until)).map_err(severed)?;
        }
        if is_told {
            self.enter(FleetPhase::Running);
        }
        Ok(())
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
        self.narrow = BTreeMap::new();
        Ok(())
    }
}

impl NetFleet {
    /// Asks several sites the same; one whose answer cannot be read is left out, and whoever listens is told.
    fn survey<T>(
        &mut self,
        (activity, without): (Activity, &str),
        (clients, request): (&[ClientId], &Request),
        read: impl Fn(ClientId, Answer, Vec<Bytes>) -> Result<T, String>,
    ) -> Result<Vec<T>, EngineError> {
        let asked = clients
            .iter()
            .map(|client| Ok((place_of(&self.infos, *client)?, request.clone(), vec![])));
        let asked = asked.collect::<Result<_, EngineError>>()?;
        self.begin_work(activity, clients.len());
        let mut all = Vec::new();
        for (seat, answer) in self.ask_all(asked, |_| Scope::empty())? {
            let client = ClientId(seat as u32);
            match answer.and_then(|(answer, payloads)| read(client, answer, payloads)) {
                Ok(found) => all.push(found),
                Err(reason) => {
                    let name = &self.infos[seat].name;
                    self.listener.told(&format!("{name} {without}: {reason}"));
                }
            }
        }
        Ok(all)
    }
}
