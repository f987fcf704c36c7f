//! The server's half of a cut model: the blocks between the clients' ends.
//!
//! Clients speak to it through peers, from as many threads as there are clients; who has to wait for
//! whom is decided here and nowhere else, so near and far behave alike.
//!
//! ```text
//! sequential   one copy; a client waits until everybody before it is settled
//! batched      one copy; a step waits for everybody's rows (joint.rs)
//! replicated   a copy a client; with average_every, copies meet after every so many steps
//! ```
//! A client that lost its connection, or was killed, comes back with another one and begins its round
//! again, as long as nobody has learnt together with it. Only the newest connection of a client is
//! listened to, so that what a lost one left behind cannot mix with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use fedra_compute::{Device, Params};
use fedra_engine::{
    ClientInfo, CrossingBytes, EngineError, SegmentHost, SegmentUpdate, SplitConfig, SplitMode,
    TrainRequest, Verdict,
};
use fedra_model::Model;
use fedra_plan::{ByteCount, Cut, Layer, ParamId, Round, Scope, Shape};
use fedra_wire::{ClientId, FrameKind, ParamValues, frame_parts};

use crate::convert::placed;
use crate::error::{ClientError, Result};
use crate::split::clocks::{Clocks, HeldUp};
use crate::split::copies::average;
use crate::split::joint::Joint;
use crate::split::survey::Survey;
use crate::split::turn::{Blocks, Learner, Turn};

/// The middle and everybody's turn at it.
#[derive(Debug)]
pub struct ServerSegment {
    /// The whole model, of which it computes some blocks.
    pub model: Model,
    device: Device,
    /// Blocks that are no part of the exchanged model: on this device.
    base: Params,
    /// How it is cut.
    pub split: SplitConfig,
    clients: BTreeMap<ClientId, ClientInfo>,
    state: Mutex<State>,
    moved: Condvar,
    crossed: Mutex<CrossingBytes>,
    pub(super) clocks: Clocks,
}

#[derive(Debug, Default)]
struct State {
    /// The exact numbers of all blocks that anybody's server side has.
    hosted: Params,
    /// Who trains in this round, in order.
    slots: BTreeMap<ClientId, Slot>,
    /// The one copy, in modes that have one.
    shared: Option<Learner>,
    /// What steps all clients together.
    joint: Joint,
    /// The turn that they share.
    joint_turn: Option<Turn>,
    /// The step after which copies were last averaged.
    averaged: u32,
    /// Connections so far.
    connections: u64,
}

/// A client's place in a round.
#[derive(Debug)]
struct Slot {
    round: Round,
    weight: f64,
    /// What its turn began with.
    first: (Turn, Option<Learner>),
    /// Absent while a thread is at work with it.
    turn: Option<(Turn, Option<Learner>)>,
    scope: Scope,
    presence: Presence,
    /// The connection that is listened to.
    connection: u64,
}

/// Which of a client's connections for which round.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrainingSession {
    pub client: ClientId,
    pub round: Round,
    pub connection: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Here,
    /// It has no more frames, and waits to be settled.
    Left,
    /// It came back when others had learnt with it, so that it cannot begin again.
    Out,
    Settled(Verdict),
}

impl ServerSegment {
    /// The middle of a model that is cut in this way for these clients; it has no numbers yet.
    pub fn new(
        (model, device): (Model, Device),
        split: SplitConfig,
        clients: &[ClientInfo],
    ) -> Self {
        let clients = clients.iter().map(|client| (client.id, client.clone())).collect();
        let (state, moved) = (Mutex::default(), Condvar::new());
        let (crossed, clocks) = (Mutex::default(), Clocks::default());
        let base = Params::default();
        Self { model, device, base, split, clients, state, moved, crossed, clocks }
    }

    /// The same over a base: parameters that everybody has and nobody changes.
    #[must_use]
    pub fn over_base(mut self, base: &Params) -> Self {
        let hosted = base.iter().filter(|(id, _)| self.is_hosted(*id));
        self.base = hosted.map(|(id, tensor)| (id, tensor.to(&self.device))).collect();
        self
    }

    /// How long a client has been waiting for answers from here, be it for others or for the computing
    /// itself: that is no time of its own.
    pub fn held_up(&self, client: ClientId) -> HeldUp {
        self.clocks.of(client)
    }

    /// Ends a round before its end: whoever waits for others is told that it has ended.
    pub fn close(&self) {
        let mut state = self.lock();
        (state.slots, state.joint) = (BTreeMap::new(), Joint::default());
        self.moved.notify_all();
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks { model: &self.model, device: &self.device, encoding: self.split.encoding }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked left a whole state behind: it works on what it has taken out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, bytes: &[u8], up: bool) {
        let Some(parts) = frame_parts(bytes) else { return };
        let mut crossed = self.crossed.lock().unwrap_or_else(PoisonError::into_inner);
        let (rows, metadata) = (ByteCount(parts.rows as u64), ByteCount(parts.metadata as u64));
        let CrossingBytes {
            hidden_up, hidden_down, gradient_up, gradient_down, metadata_down, ..
        } = &mut *crossed;
        *match (up, parts.kind.is_gradient()) {
            // What the server saw is about rows, and is none itself.
            (_, false) if parts.kind == FrameKind::Told => metadata_down,
            (true, false) => hidden_up,
            (false, false) => hidden_down,
            (true, true) => gradient_up,
            (false, true) => gradient_down,
        } += rows;
        if up {
            crossed.metadata_up += metadata;
            crossed.exchanges += 1;
        } else {
            crossed.metadata_down += metadata;
        }
    }

    /// A new connection of a client: its turn begins, or begins again.
    pub(super) fn enter(&self, client: ClientId, round: Round) -> TrainingSession {
        let mut state = self.lock();
        let State { slots, joint, averaged, connections, .. } = &mut *state;
        *connections += 1;
        let connection = *connections;
        if let Some(slot) = slots.get_mut(&client).filter(|slot| slot.round == round)
            && matches!(slot.presence, Presence::Here | Presence::Left)
        {
            slot.connection = connection;
            let others_learnt = match self.split.mode {
                SplitMode::Sequential => false,
                SplitMode::Replicated => *averaged > 0,
                SplitMode::Batched => joint.begun,
            };
            if others_learnt {
                slot.presence = Presence::Out;
                joint.leave(client);
                self.step_jointly(&mut state);
            } else {
                let (turn, learner) = &slot.first;
                slot.turn = Some((turn.again(), learner.clone()));
                slot.presence = Presence::Here;
                joint.enter(client);
            }
        }
        self.moved.notify_all();
        TrainingSession { client, round, connection }
    }

    /// Answers a frame of a client's training.
    pub(super) fn train(&self, session: TrainingSession, bytes: Vec<u8>) -> Result<Vec<u8>> {
        match self.split.mode {
            SplitMode::Batched => self.train_jointly(session, bytes),
            SplitMode::Sequential | SplitMode::Replicated => {
                let (mut turn, mut learner) = self.begin_work(session)?;
                let answer = turn.exchange(self.blocks(), &mut learner, &bytes);
                let mut state = self.lock();
                // Work for a connection that another one has replaced is lost.
                self.slot(&mut state, session)?.turn = Some((turn, Some(learner)));
                self.moved.notify_all();
                answer
            }
        }
    }

    /// Takes a client's turn out, once it may go on.
    fn begin_work(&self, session: TrainingSession) -> Result<(Turn, Learner)> {
        let mut state = self.lock();
        loop {
            self.slot(&mut state, session)?;
            if self.may_go_on(&mut state, session.client)? {
                break;
            }
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let shared = state.shared.clone();
        let taken = self.slot(&mut state, session)?.turn.take();
        let (turn, learner) = taken.ok_or_else(|| {
            let name = self.name(session.client);
            ClientError::peer(format!("{name} sent a frame before the last was answered"))
        })?;
        let learner = learner.or(shared).ok_or_else(|| self.over(session))?;
        Ok((turn, learner))
    }

    fn may_go_on(&self, state: &mut State, client: ClientId) -> Result<bool> {
        match (self.split.mode, self.split.average_every) {
            (SplitMode::Sequential, _) => {
                let mut before = state.slots.range(..client);
                Ok(before.all(|(_, slot)| matches!(slot.presence, Presence::Settled(_))))
            }
            (SplitMode::Replicated, Some(every)) => state.meet(client, every),
            (SplitMode::Replicated | SplitMode::Batched, _) => Ok(true),
        }
    }

    fn train_jointly(&self, session: TrainingSession, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let mut state = self.lock();
        self.slot(&mut state, session)?;
        if !state.joint.put(session.client, bytes) {
            let reason = format!("{} takes no part in this step", self.name(session.client));
            return Err(ClientError::peer(reason));
        }
        self.step_jointly(&mut state);
        loop {
            self.slot(&mut state, session)?;
            if let Some(answer) = state.joint.fetch(session.client) {
                return answer;
            }
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A client's place, for the connection that is listened to.
    fn slot<'s>(&self, state: &'s mut State, session: TrainingSession) -> Result<&'s mut Slot> {
        let slot = state.slots.get_mut(&session.client).filter(|slot| slot.round == session.round);
        let Some(slot) = slot else { return Err(self.over(session)) };
        let TrainingSession { client, round: Round(round), connection } = session;
        let name = self.name(client);
        let reason = match slot.presence {
            Presence::Here if slot.connection == connection => return Ok(slot),
            Presence::Here => format!("{name} has opened another connection since"),
            Presence::Out => format!(
                "{name} lost its connection in round {}, and other clients have learned with it since: it is out \
                 of this round",
                round + 1
            ),
            Presence::Left | Presence::Settled(_) => return Err(self.over(session)),
        };
        Err(ClientError::peer(reason))
    }

    fn over(&self, TrainingSession { client, round, .. }: TrainingSession) -> ClientError {
        let (name, round) = (self.name(client), round.0 + 1);
        ClientError::peer(format!("{name} has no turn in round {round}, or no longer"))
    }

    fn name(&self, client: ClientId) -> &str {
        self.clients.get(&client).map_or("a stranger", |client| client.name.as_str())
    }

    /// Takes the joint step if everybody is ready for it.
    fn step_jointly(&self, state: &mut State) {
        if !state.joint.is_complete() {
            return;
        }
        let State { joint, joint_turn, shared, .. } = state;
        if let (Some(turn), Some(learner)) = (joint_turn, shared) {
            joint.run(self.blocks(), turn, learner);
        }
        self.moved.notify_all();
    }

    /// A client has no more frames.
    pub(super) fn leave(&self, session: TrainingSession) {
        let mut state = self.lock();
        if let Ok(slot) = self.slot(&mut state, session) {
            slot.presence = Presence::Left;
            state.joint.leave(session.client);
            self.step_jointly(&mut state);
        }
        self.moved.notify_all();
    }

    /// Answers a frame from which nothing is learnt.
    pub(super) fn score(
        &self,
        (client, round): (ClientId, Round),
        survey: &mut Survey,
        bytes: &[u8],
    ) -> Result<Vec<u8>> {
        let cut = self.split.cut(self.name(client), round, self.model.layout().blocks())?;
        let range = cut.server_blocks().unwrap_or(0..0);
        let range = usize::from(range.start)..usize::from(range.end);
        let hosted = self.lock().hosted.clone();
        survey.exchange(self.blocks(), (&hosted, range), bytes)
    }

    /// Blocks that live at the server for anybody, in any round.
    pub(crate) fn is_hosted(&self, id: ParamId) -> bool {
        let Layer::Block(block) = id.layer else { return false };
        let cuts = self.split.cuts(self.model.layout().blocks()).unwrap_or_default();
        cuts.iter().filter_map(Cut::server_blocks).any(|blocks| blocks.contains(&block))
    }

    fn open(&self, requests: &[TrainRequest], weights: &BTreeMap<ClientId, f64>) -> Result<()> {
        let mut state = self.lock();
        let State { hosted, slots, shared, joint, joint_turn, averaged, .. } = &mut *state;
        (*slots, *shared, *joint_turn, *averaged) = (BTreeMap::new(), None, None, 0);
        *joint = Joint::of(requests.iter().map(|request| request.client));
        let steps = |request: &TrainRequest| {
            let examples = self.clients.get(&request.client).map_or(0, |client| client.examples);
            request.work.steps(examples)
        };
        for request in requests {
            let turn = Turn::new(request, steps(request))?;
            let scope = turn.scope.clone();
            let learner = Learner::new(&self.device, hosted, request)?;
            let own = match self.split.mode {
                SplitMode::Replicated => Some(learner),
                SplitMode::Sequential | SplitMode::Batched => {
                    shared.get_or_insert(learner);
                    None
                }
            };
            if self.split.mode == SplitMode::Batched && joint_turn.is_none() {
                // The one copy follows the client with the most steps.
                let most = requests.iter().map(steps).max().unwrap_or(0);
                *joint_turn = Some(Turn::new(request, most)?);
            }
            let weight = weights.get(&request.client).copied().unwrap_or(1.0);
            let (round, presence) = (request.round, Presence::Here);
            let turns = Some((turn.again(), own.clone()));
            let (first, connection) = ((turn, own), 0);
            let slot = Slot { round, weight, first, turn: turns, scope, presence, connection };
            slots.insert(request.client, slot);
        }
        Ok(())
    }
}

impl State {
    /// Whether a client may begin its next step: where copies are due to meet, they have met.
    fn meet(&mut self, client: ClientId, every: u32) -> Result<bool> {
        let step_of = |slot: &Slot| {
            let (turn, _) = slot.turn.as_ref()?;
            Some((turn.taken, turn.is_between_steps()))
        };
        let Some((step, true)) = self.slots.get(&client).and_then(step_of) else { return Ok(true) };
        if step == 0 || !step.is_multiple_of(every) || self.averaged >= step {
            return Ok(true);
        }
        // Whoever took this step meets the others, whether it has left since or not: who that is does
        // not depend on who is faster.
        let meets = |slot: &&mut Slot| {
            let is_in = slot.presence != Presence::Settled(Verdict::Refused);
            is_in && step_of(slot).is_some_and(|(other, _)| other >= step)
        };
        let arrived = |slot: &Slot| step_of(slot).is_some_and(|(other, _)| other >= step);
        if !self.slots.values().filter(|slot| slot.presence == Presence::Here).all(arrived) {
            return Ok(false);
        }
        let mut copies: Vec<(f64, &mut Params, &Scope)> = self
            .slots
            .values_mut()
            .filter(meets)
            .filter_map(|slot| {
                let (_, learner) = slot.turn.as_mut()?;
                Some((slot.weight, &mut learner.as_mut()?.params, &slot.scope))
            })
            .collect();
        average(&mut copies)?;
        self.averaged = step;
        Ok(true)
    }
}

impl SegmentHost for ServerSegment {
    fn host(&self, model: &ParamValues) -> Result<(), EngineError> {
        let hosted = |(id, shape): (ParamId, &Shape)| {
            if let Some(tensor) = self.base.find(id) {
                return Ok((id, tensor.clone()));
            }
            let values = model.get(id).unwrap_or_default();
            Ok((id, placed(&self.device, shape, values)?))
        };
        let layout = self.model.layout();
        let mut state = self.lock();
        // The numbers before these go first: nobody needs both, and they are most of the memory.
        *state = State { connections: state.connections, ..State::default() };
        let params: Result<Params> =
            layout.iter().filter(|(id, _)| self.is_hosted(*id)).map(hosted).collect();
        let hosted = params.map_err(|error| error.of_fleet("take the model"))?;
        state.hosted = hosted;
        self.moved.notify_all();
        Ok(())
    }

    fn begin(
        &self,
        requests: &[TrainRequest],
        weights: &BTreeMap<ClientId, f64>,
    ) -> Result<(), EngineError> {
        self.open(requests, weights).map_err(|error| error.of_fleet("begin a round"))
    }

    fn settle(&self, client: ClientId, verdict: Verdict) {
        let mut state = self.lock();
        let State { slots, shared, joint, .. } = &mut *state;
        if let Some(slot) = slots.get_mut(&client) {
            slot.presence = Presence::Settled(verdict);
            let learner = slot.turn.as_mut().and_then(|(_, learner)| match self.split.mode {
                SplitMode::Sequential => learner.take(),
                SplitMode::Batched | SplitMode::Replicated => None,
            });
            match (verdict, learner) {
                (Verdict::Taken, Some(learner)) => *shared = Some(learner),
                (Verdict::Taken, None) | (Verdict::Refused, _) => {}
            }
        }
        joint.leave(client);
        self.step_jointly(&mut state);
        self.moved.notify_all();
    }

    fn updates(&self) -> Result<Vec<SegmentUpdate>, EngineError> {
        let state = self.lock();
        let taken = || {
            let is_taken = |slot: &Slot| slot.presence == Presence::Settled(Verdict::Taken);
            state.slots.iter().filter(move |(_, slot)| is_taken(slot))
        };
        let change = |params: &Params, scope: &Scope| -> Result<ParamValues> {
            let one = |id| {
                let change = params.get(id)?.minus(state.hosted.get(id)?)?;
                Ok((id, change.to_host().into_owned()))
            };
            scope.iter().map(one).collect()
        };
        let made: Result<Vec<SegmentUpdate>> = if let Some(shared) = &state.shared {
            // Parameters that the same clients taught make one update.
            let mut groups: BTreeMap<Vec<ClientId>, Scope> = BTreeMap::new();
            let learned: BTreeSet<ParamId> =
                taken().flat_map(|(_, slot)| slot.scope.iter()).collect();
            for id in learned {
                let from = taken().filter(|(_, slot)| slot.scope.contains(id));
                let clients: Vec<ClientId> = from.map(|(client, _)| *client).collect();
                let group = groups.entry(clients).or_insert_with(Scope::empty);
                *group = &*group | &Scope::from_iter([id]);
            }
            let update = |(clients, scope): (Vec<ClientId>, Scope)| {
                Ok(SegmentUpdate { clients, change: change(&shared.params, &scope)? })
            };
            groups.into_iter().map(update).collect()
        } else {
            let update = |(client, slot): (&ClientId, &Slot)| {
                let learner = slot.turn.as_ref().and_then(|(_, learner)| learner.as_ref())?;
                let clients = vec![*client];
                let change = change(&learner.params, &slot.scope);
                Some(change.map(|change| SegmentUpdate { clients, change }))
            };
            taken().filter_map(update).collect()
        };
        let mut made = made.map_err(|error| error.of_fleet("gather the middle's change"))?;
        made.retain(|update| !update.change.is_empty());
        Ok(made)
    }

    fn memory(&self) -> ByteCount {
        ByteCount(self.device.usage().peak_bytes as u64)
    }

    fn crossed(&self) -> CrossingBytes {
        std::mem::take(&mut *self.crossed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
