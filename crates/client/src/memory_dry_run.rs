//! What a client holds at once, and the server's half where the model is cut, found by going through
//! their steps on a device without numbers ([`Device::meta`]).
//!
//! The steps are those of a real run: the same ends, the same turns, the same tape. So nothing has to
//! be written down twice, and a step that changes changes its forecast. What a client keeps of hidden
//! states behind a frozen prefix ([`Limits::cache`]) is not in it.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::Arc;

use fedra_compute::{Device, Gradients, Params, Precision, Tape, Tensor, ThreadPool};
use fedra_data::{Encoded, LabelSet, Task};
use fedra_engine::{
    LocalRule, MomentsLife, PrivateSteps, SplitConfig, SplitMode, TrainRequest, Work,
};
use fedra_model::{Model, Packing, Reading};
use fedra_plan::{ByteCount, Plan, Round, Side};
use fedra_seed::{SecretKey, Seed};
use fedra_wire::{ClientId, ExpectedFrame, FrameKind, HiddenFrame, ParamValues, RowEncoding};

use crate::correction::Correction;
use crate::error::Result;
use crate::evaluator::Evaluator;
use crate::examples::Examples;
use crate::meter::Meter;
use crate::split::{
    Blocks, ClientSegments, Crosses, Learner, Pass, Peer, RowNoise, ServerSegment, Turn,
};
use crate::trainer::{TrainTask, Trainer};
use crate::worker::EVALUATION_TOKENS;

/// A round of one client, and of the server with all of them.
#[derive(Clone, Copy, Debug)]
pub struct MemoryDryRun<'a> {
    /// The structure; nobody needs its numbers.
    pub model: &'a Model,
    /// What learns, and where each part lives.
    pub plan: &'a Plan,
    /// How it is cut, if it is; it is not looked at where the plan has no cut.
    pub split: Option<&'a SplitConfig>,
    /// How a client trains.
    pub work: &'a Work,
    /// What the examples ask.
    pub task: Task,
    /// The names of the answers.
    pub labels: &'a LabelSet,
    /// The largest batch of training; of private steps, a batch of the mean size.
    pub batch: &'a [Encoded],
    /// Steps of a client in a round: from the second on its optimiser has moments.
    pub steps: u64,
    /// The largest batch of scoring; none where clients score nothing.
    pub scored: &'a [Encoded],
    /// Clients that train in a round.
    pub clients: u64,
    /// The sequences of all of them in the step that has the most tokens, by their lengths.
    pub joined: &'a [usize],
    /// The precision of the GPU that computes; `None` for the processor.
    pub gpu: Option<Precision>,
    /// Of the processor's matrix products: operands that are packed as bf16 take less.
    pub precision: Precision,
}

impl MemoryDryRun<'_> {
    /// Who counts.
    fn device(&self) -> Device {
        match (self.gpu, self.precision) {
            (Some(precision), _) => Device::meta_gpu(precision),
            (None, Precision::F32 | Precision::Tf32) => Device::meta(),
            (None, Precision::Bf16) => Device::meta().with_emulated_bf16(),
        }
    }

    /// The most tensor memory of whoever scores the whole model, its weights among it.
    pub fn scoring(&self) -> Result<ByteCount> {
        let device = self.device();
        let params = self.model.fresh_params(&device, Seed(0))?;
        let (model, task, labels) = (self.model, self.task, self.labels);
        let evaluator =
            Evaluator { model, device: &device, task, labels, tokens: EVALUATION_TOKENS };
        evaluator.rehearse(&params, &self.scored())?;
        Ok(ByteCount(device.usage().peak_bytes as u64))
    }

    /// The most tensor memory of a client.
    pub fn client(&self) -> Result<ByteCount> {
        let device = self.device();
        let held = self.plan.held_by(Side::Client);
        let shared = self.model.fresh_part(&device, Seed(0), |id| held.contains(id))?;
        let mut params = shared.clone();
        for id in &(&held & self.plan.keeps()) {
            let (rows, cols) = params.get(id)?.shape();
            params.insert(id, Tensor::zeros(&device, rows, cols));
        }
        if !self.scored.is_empty() {
            self.score((self.model, &device), &params)?;
        }
        let own = self.plan.trained_by(Side::Client);
        let (work, batch) = self.work();
        let zeros = |id| Ok((id, vec![0.0; params.get(id)?.elements()]));
        let remembers = matches!(work.local, LocalRule::ControlVariate | LocalRule::Dynamic { .. });
        let kept: ParamValues =
            own.iter().filter(|_| remembers).map(zeros).collect::<Result<_>>()?;
        let key = work.private.map(|_| SecretKey::simulated(Seed(0)));
        let task = TrainTask {
            client: "a client",
            examples: &batch,
            round: Round(0),
            scope: &own,
            work: &work,
            labels: self.labels,
            moments: None,
            correction: Correction::of(work.local, &kept, &kept),
            seed: Seed(0),
            key: key.as_ref(),
        };
        let trainer = Trainer { model: self.model, device: &device, cache: ByteCount(0) };
        let mut ends = self.ends(&device)?;
        let cut = ends.as_mut().map(|ends| (self.plan, ends));
        trainer.train_cut(&mut params, &task, (cut, &Meter::unwatched()))?;
        Ok(ByteCount(device.usage().peak_bytes as u64))
    }

    /// The largest batch of scoring, with what judges it.
    fn scored(&self) -> Examples {
        let examples: Examples = self.scored.iter().cloned().collect();
        match self.work.preference {
            None => examples,
            Some(loss) => examples.with_preference(loss),
        }
    }

    fn score(&self, (model, device): (&Model, &Device), params: &Params) -> Result<()> {
        let (labels, tokens) = (self.labels, EVALUATION_TOKENS);
        let evaluator = Evaluator { model, device, task: self.task, labels, tokens };
        let examples = self.scored();
        let Some(ends) = &mut self.ends(device)? else {
            return evaluator.rehearse(params, &examples);
        };
        evaluator.score_cut(params, &examples, (ends, &Meter::unwatched()))?;
        Ok(())
    }

    fn ends<'d>(&self, device: &'d Device) -> Result<Option<ClientSegments<'d>>>
    where
        Self: 'd,
    {
        let Some(split) = self.split else { return Ok(None) };
        let peer = Box::new(ZeroPeer { encoding: split.encoding, width: self.model.width() });
        let noise = RowNoise::of(split, Seed(0), || SecretKey::simulated(Seed(0)))?;
        Ok(ClientSegments::new((self.model, device), (split, self.plan), (Seed(0), noise), peer))
    }

    /// The work of as many steps as it takes to have seen everything there is to hold, and its examples.
    /// A private step's batch that came out larger than usual is summed in parts: two show what that takes.
    fn work(&self) -> (Work, Cow<'_, [Encoded]>) {
        // Moments that live on are there in the first step too.
        let kept = self.work.moments == MomentsLife::Kept;
        let steps = if kept { 2 } else { self.steps.clamp(1, 2) };
        let (batch, epochs) = (self.batch.len() as u32, steps as u32);
        // Weights of classes take no memory, and labels need not be known.
        let kept = Work { class_weights: None, ..self.work.clone() };
        let accumulate = kept.accumulate.min(2);
        let work = Work { batch, accumulate, epochs, max_steps: None, ..kept };
        let Some(private) = work.private else {
            let shortest = self.batch.iter().min_by_key(|example| example.ids.len());
            let Some(shortest) = shortest.filter(|_| accumulate > 1) else {
                return (work, self.batch.into());
            };
            // A step begins with its shortest examples: the batch is the second one, whose gradients are
            // added to those of a first.
            let first = vec![shortest.clone(); self.batch.len()];
            return (work, [&first, self.batch].concat().into());
        };
        let rows = NonZeroU64::new(u64::from(batch));
        let private = Some(PrivateSteps { cap: None, rows, ..private });
        (Work { private, ..work }, [self.batch, self.batch].concat().into())
    }

    /// The most tensor memory of the server's half; nothing where the model is not cut.
    pub fn server(&self) -> Result<ByteCount> {
        let Some(split) = self.split else { return Ok(ByteCount(0)) };
        let device = self.device();
        let middle = ServerSegment::new((self.model.clone(), device.clone()), split.clone(), &[]);
        let hosted = self.model.fresh_part(&device, Seed(0), |id| middle.is_hosted(id))?;
        let base = device.usage().live_bytes as u64;
        let request = TrainRequest {
            client: ClientId(0),
            round: Round(0),
            seed: Seed(0),
            correction: None,
            plan: self.plan.clone(),
            work: self.work().0,
            revocable: false,
            split: Some(Arc::new(split.clone())),
        };
        let server = Server { model: self.model, device: &device, hosted: &hosted, request };
        let lengths: Vec<usize> = self.batch.iter().map(|one| one.ids.len()).collect();
        let at_once = self.clients.min(ThreadPool::current_threads() as u64);
        let training = match split.mode {
            SplitMode::Sequential => {
                // A client's copy beside that of the clients before it, which is gone back to if its
                // answer is refused.
                let shared = server.teach(server.learner()?, &lengths, self.steps)?.learner;
                let second = if self.clients > 1 { shared.clone() } else { server.learner()? };
                server.teach(second, &lengths, self.steps)?.peak
            }
            SplitMode::Batched => server.teach(server.learner()?, self.joined, self.steps)?.peak,
            SplitMode::Replicated => {
                let Taught { learner: _learner, peak, before, waiting } =
                    server.teach(server.learner()?, &lengths, self.steps)?;
                // Everybody's pass waits for its gradient. Who goes back when is up to the network:
                // at the least one does, and in the end everybody has moments.
                let tokens = |lengths: &[usize]| lengths.iter().sum::<usize>().max(1) as u64;
                let passes = (waiting - before) * tokens(self.joined) / tokens(&lengths);
                let after = device.usage().live_bytes as u64 - base;
                let during = self.clients * (before - base) + passes + (peak - waiting);
                base + during.max(self.clients * after)
            }
        };
        let lengths = self.scored.iter().flat_map(Encoded::scored_lengths).collect();
        let scoring = base + at_once * (server.score(lengths)? - base);
        Ok(ByteCount(training.max(scoring)))
    }
}

/// The server's half on paper.
struct Server<'a> {
    model: &'a Model,
    device: &'a Device,
    hosted: &'a Params,
    request: TrainRequest,
}

/// What teaching came to, in bytes.
struct Taught {
    learner: Learner,
    /// The most at once.
    peak: u64,
    /// Before the last step.
    before: u64,
    /// While a pass waits for its gradient.
    waiting: u64,
}

impl Server<'_> {
    fn learner(&self) -> Result<Learner> {
        Learner::new(self.device, self.hosted, &self.request)
    }

    /// Takes a client's steps on sequences of these lengths, as a turn does.
    fn teach(&self, mut learner: Learner, lengths: &[usize], steps: u64) -> Result<Taught> {
        self.device.reset_peak();
        let used = || self.device.usage();
        let encoding = RowEncoding::F32;
        let blocks = Blocks { model: self.model, device: self.device, encoding };
        let mut turn = Turn::new(&self.request, steps)?;
        let (rows, width) = (lengths.iter().sum(), self.model.width());
        let zeros = || Tensor::zeros(self.device, rows, width);
        let (mut before, mut waiting) = (0, 0);
        let parts = if self.request.work.accumulate > 1 { 2 } else { 1 };
        for _ in 0..steps.clamp(1, 2) {
            let mut sum = Gradients::default();
            for _ in 0..parts {
                before = used().live_bytes as u64;
                let pass = turn.run(blocks, &learner, (zeros(), lengths.to_vec()))?;
                waiting = used().live_bytes as u64;
                if turn.crosses != Crosses::Nowhere {
                    let Pass { tape, input, output } = pass;
                    sum.add(tape.backward(&[(&output, zeros())])?)?;
                    drop((input, output));
                }
            }
            if turn.crosses != Crosses::Nowhere {
                turn.learn(&mut learner, &mut sum)?;
            }
        }
        Ok(Taught { learner, peak: used().peak_bytes as u64, before, waiting })
    }

    /// The most at once while sequences of these lengths are answered.
    fn score(&self, lengths: Vec<usize>) -> Result<u64> {
        self.device.reset_peak();
        if !lengths.is_empty() {
            let mut tape = Tape::new(self.device);
            let rows = lengths.iter().sum();
            let hidden = tape.constant(Tensor::zeros(self.device, rows, self.model.width()));
            let range = self.request.plan.cut().server_blocks().unwrap_or(0..0);
            let range = usize::from(range.start)..usize::from(range.end);
            let (packing, weights) = (Packing::new(lengths)?, self.hosted.frozen());
            self.model.run_blocks(&mut tape, weights, hidden, &packing, range, &Reading::All)?;
        }
        Ok(self.device.usage().peak_bytes as u64)
    }
}

/// A server that answers zeros.
struct ZeroPeer {
    encoding: RowEncoding,
    width: usize,
}

impl Peer for ZeroPeer {
    fn exchange(&mut self, frame: Vec<u8>) -> Result<Vec<u8>> {
        use FrameKind::{Backward, Done, Forward, Gradient, Hidden, Score, Step};
        let expected = ExpectedFrame {
            kinds: &[Forward, Score, Backward, Step],
            encoding: self.encoding,
            step: None,
            width: self.width,
            rows: None,
            most_rows: usize::MAX,
            longest: usize::MAX,
        };
        let asked = HiddenFrame::decode(&frame, &expected)?;
        let kind = if asked.kind == Backward {
            Gradient
        } else if asked.kind == Step {
            Done
        } else {
            Hidden
        };
        let answer = HiddenFrame::of_rows(kind, asked.step, (self.width, asked.rows));
        Ok(answer.encode(self.encoding)?)
    }
}
