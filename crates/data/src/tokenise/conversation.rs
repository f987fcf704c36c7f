//! A conversation as tokens, of which those of the assistant are to be predicted.
//!
//! The template's text is cut into pieces as `transformers` does it: all of it at once, nothing put
//! around it. A piece is a target where any of its letters belongs to an answer. One that is too long
//! loses whole exchanges, the oldest first, and never its system message; an exchange that is too long
//! by itself loses the beginning of its question and the end of its answer, half of the room for each.

use std::ops::Range;

use super::encode::Encoder;
use super::encoded::{Encoded, Target};
use super::tokenizer::PlacedPiece;
use crate::{Body, ChatTemplate, DataError, Example, Message, Result, Role};

/// What became of the turns of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutTurns {
    /// Messages that it has.
    pub messages: usize,
    /// Of them, those that were left out because it is too long.
    pub cut: usize,
    /// Whether what is left was still too long and lost a part.
    pub is_split: bool,
    /// Answers of which something is learned.
    pub answers: usize,
    /// Answers that are not learned, because the template writes otherwise what stands before them once more
    /// turns follow.
    pub passed_over: usize,
    /// Tokens that are learned.
    pub targets: usize,
}

impl Encoder<'_> {
    /// What becomes of the turns of an example; `None` where it is no conversation.
    pub fn turns(&self, example: &Example) -> Result<Option<CutTurns>> {
        let Body::Conversation(messages) = &example.body else { return Ok(None) };
        let written = self.written_turns(messages).map_err(|error| error.at(&example.place))?;
        Ok(Some(written.1))
    }

    pub(super) fn conversation(&self, messages: &[Message]) -> Result<Encoded> {
        self.written_turns(messages).map(|(encoded, _)| encoded)
    }

    fn written_turns(&self, messages: &[Message]) -> Result<(Encoded, CutTurns)> {
        let Some(template) = self.chat else {
            let expected = "an encoder with a chat template";
            return Err(DataError::setting("conversation", &"messages", expected));
        };
        ChatTemplate::check(messages)?;
        let answered = messages.iter().rposition(|message| message.role == Role::Assistant);
        let all = &messages[..answered.map_or(0, |last| last + 1)];
        let whole = self.length(template, all)?;
        let kept = self.fitting(template, all, whole)?;
        let turns = template.turns(&kept)?;
        let pieces = self.tokenizer.written_pieces(&turns.text)?;
        let mut is_learned = vec![false; pieces.len()];
        let mut answers = 0;
        for answer in &turns.answers {
            let range = covering(&pieces, answer);
            answers += usize::from(!range.is_empty());
            is_learned[range].fill(true);
        }
        let mut ids: Vec<u32> = pieces.iter().map(|piece| piece.id).collect();
        if ids.len() < 2 || !is_learned[1..].contains(&true) {
            let found = "answers that the chat template does not write";
            return Err(DataError::setting("conversation", &found, "one that can be learned"));
        }
        let is_split = ids.len() > self.longest;
        if is_split {
            let keep = self.halves(&is_learned);
            let mut places = keep.iter().flat_map(Clone::clone);
            (ids, is_learned) = places.by_ref().map(|at| (ids[at], is_learned[at])).unzip();
        }
        let next = ids.iter().zip(&is_learned).skip(1);
        let target: Vec<Option<u32>> =
            next.map(|(&id, &learned)| learned.then_some(id)).chain([None]).collect();
        let cut = CutTurns {
            messages: messages.len(),
            cut: all.len() - kept.len(),
            is_split,
            answers,
            passed_over: turns.passed_over,
            targets: target.iter().flatten().count(),
        };
        let dropped = whole.saturating_sub(ids.len());
        let target = Target::PerToken(target);
        Ok((Encoded { ids, types: Vec::new(), target, dropped, pixels: None }, cut))
    }

    fn length(&self, template: &ChatTemplate, messages: &[Message]) -> Result<usize> {
        Ok(self.tokenizer.written_pieces(&template.text(messages, false)?)?.len())
    }

    /// The conversation with as few exchanges left out as it takes to fit, or its last one.
    fn fitting(
        &self,
        template: &ChatTemplate,
        messages: &[Message],
        whole: usize,
    ) -> Result<Vec<Message>> {
        if whole <= self.longest {
            return Ok(messages.to_vec());
        }
        let system = usize::from(messages.first().is_some_and(|it| it.role == Role::System));
        // Where an exchange begins that an answer follows.
        let begins = |place: &usize| {
            messages[*place].role == Role::User && messages[place - 1].role != Role::User
        };
        let starts: Vec<usize> = (system + 1..messages.len()).filter(begins).collect();
        let from = |start: usize| [&messages[..system], &messages[start..]].concat();
        let (mut low, mut high) = (0, starts.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.length(template, &from(starts[middle]))? <= self.longest {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let start = starts.get(low).or(starts.last());
        Ok(start.map_or_else(|| messages.to_vec(), |&start| from(start)))
    }

    /// The pieces to keep of an exchange that is too long: its first, the end of what is in front of the answer,
    /// and the beginning of the answer.
    fn halves(&self, is_learned: &[bool]) -> [Range<usize>; 3] {
        let first = is_learned.iter().skip(1).position(|&it| it).map_or(1, |at| at + 1);
        let answer = (is_learned.len() - first).min(self.longest - (self.longest / 2).min(first));
        let before = self.longest - answer;
        [0..1, first - (before - 1).min(first - 1)..first, first..first + answer]
    }
}

/// The pieces from the first to the last one that has a letter of a range.
fn covering(pieces: &[PlacedPiece], range: &Range<usize>) -> Range<usize> {
    let has = |piece: &PlacedPiece| piece.start < range.end && piece.end > range.start;
    let first = pieces.iter().position(has).unwrap_or(0);
    let last = pieces.iter().rposition(has).map_or(0, |last| last + 1);
    first..last.max(first)
}
