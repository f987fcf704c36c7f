//! A decoder with its caches: tokens in, logits of the next one out.
//!
//! Whole, it runs all blocks here. Cut, the embedding and the first blocks, the last blocks and the
//! head are here, and the middle is at a [`DecodePeer`]. Rows that leave for the peer are kept as
//! they left: after a lost connection the same rows are sent again, so noise that was put on them is
//! never drawn twice for the same text.
//!
//! ```text
//! tokens -> embedding -> first blocks -> leaving -> peer -> last blocks -> norm, head -> logits
//!                        near cache       sent      cache    far cache
//! ```

use super::peer::DecodePeer;
use super::sessions::Answer;
use crate::{ClientError, Result};
use fedra_compute::{Device, Params, Tape, Tensor, Value};
use fedra_model::{Batch, Head, KeyValueCache, Model, ModelError, Packing};
use fedra_plan::Cut;

/// Tokens of a prompt that are read at once, unless said otherwise: enough for products at full
/// speed, few enough that several prompts at one server take turns.
const CHUNK: usize = 256;

/// Changes rows of hidden states, of the given width, before they leave for the peer.
pub type Leaving<'a> = Box<dyn FnMut(&mut [f32], usize) + Send + 'a>;

/// A decoder that has read some tokens.
pub struct CachedDecoder<'a> {
    device: Device,
    /// Its structure.
    pub model: &'a Model,
    params: &'a Params,
    /// All tokens that were given, read or not.
    pub tokens: Vec<u32>,
    near: KeyValueCache,
    far: KeyValueCache,
    middle: Option<RemoteBlocks<'a>>,
    /// Tokens that have passed all blocks.
    done: usize,
    /// The last of them behind the last block.
    last: Option<Tensor>,
    chunk: usize,
}

/// The other side of the cut.
struct RemoteBlocks<'a> {
    peer: Box<dyn DecodePeer + 'a>,
    leaving: Option<Leaving<'a>>,
    /// Every row as it left.
    sent: Vec<f32>,
}

impl<'a> CachedDecoder<'a> {
    /// A decoder with all its blocks here.
    pub fn whole(device: &Device, model: &'a Model, params: &'a Params) -> Result<Self> {
        let blocks = model.blocks();
        Self::of(device, (model, params), (0..blocks, blocks..blocks), None)
    }

    /// A decoder whose middle blocks, which the cut puts at the server, are at a peer. Their
    /// parameters need not be among `params`.
    pub fn cut(
        device: &Device,
        (model, params): (&'a Model, &'a Params),
        cut: &Cut,
        peer: Box<dyn DecodePeer + 'a>,
    ) -> Result<Self> {
        let Some(server) = cut.server_blocks() else {
            return Err(ClientError::generate("cut", "no blocks at the server", "some"));
        };
        let ends = (0..usize::from(server.start), usize::from(server.end)..model.blocks());
        let middle = RemoteBlocks { peer, leaving: None, sent: Vec::new() };
        Self::of(device, (model, params), ends, Some(middle))
    }

    fn of(
        device: &Device,
        (model, params): (&'a Model, &'a Params),
        (first, last): (std::ops::Range<usize>, std::ops::Range<usize>),
        middle: Option<RemoteBlocks<'a>>,
    ) -> Result<Self> {
        if model.head() != Head::Language {
            let found = format!("{:?}", model.head());
            return Err(ClientError::generate("head", found, "a language head"));
        }
        Ok(Self {
            near: KeyValueCache::new(device, model, first, 0)?,
            far: KeyValueCache::new(device, model, last, 0)?,
            device: device.clone(),
            model,
            params,
            tokens: Vec::new(),
            middle,
            done: 0,
            last: None,
            chunk: CHUNK,
        })
    }

    /// The same decoder, which reads a prompt in pieces of so many tokens (at least one).
    #[must_use]
    pub fn with_chunk(self, tokens: usize) -> Self {
        Self { chunk: tokens.max(1), ..self }
    }

    /// The same decoder, whose rows are changed by `leaving` before they are sent, each once.
    #[must_use]
    pub fn with_leaving(mut self, leaving: Leaving<'a>) -> Self {
        if let Some(middle) = &mut self.middle {
            middle.leaving = Some(leaving);
        }
        self
    }

    /// Whether its middle blocks are at a peer.
    pub fn is_cut(&self) -> bool {
        self.middle.is_some()
    }

    /// Bytes of the caches on this side, rows kept for the peer included.
    pub fn bytes(&self) -> usize {
        let sent = self.middle.as_ref().map_or(0, |middle| size_of_val(&middle.sent[..]));
        self.near.bytes() + self.far.bytes() + sent
    }

    /// Reads further tokens; returns the logits of the one that follows, as one row.
    ///
    /// If the peer fails on the way, the tokens stay given: [`CachedDecoder::resume`] continues.
    pub fn read(&mut self, tokens: &[u32]) -> Result<Tensor> {
        let total = self.tokens.len() + tokens.len();
        if total == 0 || total > self.longest() {
            let expected = format!("1 to {}, the model's longest", self.longest());
            return Err(ClientError::generate("number of tokens", total, expected));
        }
        let words = self.model.vocabulary();
        if let Some(token) = tokens.iter().find(|token| **token as usize >= words) {
            return Err(ClientError::generate("token", token, format!("less than {words}")));
        }
        self.tokens.extend_from_slice(tokens);
        if self.near.must_restart(self.model, total) {
            self.near.restart_long();
            self.done = 0;
        }
        self.finish()
    }

    /// Forgets all tokens behind the first so many, to go on from there; whether that could be done. A cut decoder
    /// cannot forget what its peer has read, nor a text that has become a long one be short again.
    pub fn keep(&mut self, tokens: usize) -> bool {
        if tokens >= self.tokens.len() {
            return tokens == self.tokens.len();
        }
        let short = self.model.longest_short_text();
        if self.middle.is_some() || short.is_some_and(|short| self.tokens.len() > short) {
            return false;
        }
        self.near.truncate(tokens);
        self.tokens.truncate(tokens);
        self.done = self.done.min(tokens);
        true
    }

    /// The most tokens. Where a text that becomes a long one has to be read again, a cut decoder ends before that:
    /// rows that have left do not leave twice.
    pub fn longest(&self) -> usize {
        let longest = self.model.longest();
        match self.model.longest_short_text() {
            Some(short) if self.middle.is_some() => short.min(longest),
            Some(_) | None => longest,
        }
    }

    /// Continues where the peer is, after a failure; returns the logits of the token that follows.
    ///
    /// What the peer lacks is sent again as it was sent before.
    pub fn resume(&mut self) -> Result<Tensor> {
        if let Some(middle) = &mut self.middle {
            let mut at = middle.peer.position()?;
            if at > self.near.len() {
                let expected = format!("at most {}, the rows that were sent", self.near.len());
                return Err(ClientError::generate("the peer's position", at, expected));
            }
            let width = self.model.width();
            while at < self.done {
                let end = self.done.min(at + self.chunk);
                let rows = &middle.sent[at * width..end * width];
                middle.peer.decode(at, rows, Answer::Last)?;
                at = end;
            }
        }
        self.finish()
    }

    /// Reads what was given and not read; returns the logits behind the last token.
    fn finish(&mut self) -> Result<Tensor> {
        while self.done < self.tokens.len() {
            if self.near.len() == self.done {
                self.enter()?;
            }
            self.cross()?;
        }
        let Some(last) = self.last.clone() else {
            return Err(ClientError::generate("number of tokens", 0, "at least 1"));
        };
        let mut tape = Tape::new(&self.device);
        let last = tape.constant(last);
        let logits = self.model.head_logits(&mut tape, self.params.frozen(), &last)?;
        Ok(logits.tensor)
    }

    /// The next piece through the first blocks.
    fn enter(&mut self) -> Result<()> {
        let (from, mut tape) = (self.done, Tape::new(&self.device));
        let piece = &self.tokens[from..self.tokens.len().min(from + self.chunk)];
        let batch = Batch::new(&[piece])?.continuing(vec![from])?;
        let weights = self.params.frozen();
        let hidden = self.model.embed(&mut tape, weights, &batch)?;
        let given = (hidden, batch.packing());
        let hidden = self.model.decode(&mut tape, weights, given, &mut [&mut self.near])?;
        if let Some(middle) = &mut self.middle {
            middle.send(&hidden.tensor);
            return Ok(());
        }
        self.done = self.near.len();
        self.keep_last(&hidden.tensor)
    }

    /// What has entered through the middle and the last blocks.
    fn cross(&mut self) -> Result<()> {
        let (from, to, width) = (self.done, self.near.len(), self.model.width());
        let Some(middle) = &mut self.middle else { return Ok(()) };
        if from == to {
            return Ok(());
        }
        let answer = if self.far.blocks().is_empty() { Answer::Last } else { Answer::All };
        let rows = match answer {
            Answer::All => to - from,
            Answer::Last => 1,
        };
        let received = middle.peer.decode(from, &middle.sent[from * width..to * width], answer)?;
        check_rows(&received, rows, width)?;
        let received = Tensor::from_slice(&self.device, rows, width, &received)?;
        let behind = match answer {
            Answer::Last => received,
            Answer::All => {
                let packing = Packing::new(vec![rows])?.with_offsets(vec![from])?;
                let mut tape = Tape::new(&self.device);
                let hidden: Value = tape.constant(received);
                let (weights, given) = (self.params.frozen(), (hidden, &packing));
                self.model.decode(&mut tape, weights, given, &mut [&mut self.far])?.tensor
            }
        };
        self.done = to;
        self.keep_last(&behind)
    }

    fn keep_last(&mut self, hidden: &Tensor) -> Result<()> {
        let last = hidden.rows().saturating_sub(1);
        self.last = Some(hidden.row_range(&self.device, last, 1).map_err(ModelError::from)?);
        Ok(())
    }
}

impl RemoteBlocks<'_> {
    fn send(&mut self, hidden: &Tensor) {
        let from = self.sent.len();
        self.sent.extend_from_slice(&hidden.to_host());
        if let Some(leaving) = &mut self.leaving {
            leaving(&mut self.sent[from..], hidden.cols());
        }
    }
}

/// What a peer sends is from outside.
fn check_rows(received: &[f32], rows: usize, width: usize) -> Result<()> {
    if received.len() != rows * width {
        let found = format!("{} numbers", received.len());
        let expected = format!("{rows} rows of {width}");
        return Err(ClientError::generate("the peer's answer", found, expected));
    }
    if let Some(at) = received.iter().position(|x| !x.is_finite()) {
        let found = format!("{} in row {}", received[at], at / width);
        return Err(ClientError::generate("the peer's answer", found, "finite numbers"));
    }
    Ok(())
}
