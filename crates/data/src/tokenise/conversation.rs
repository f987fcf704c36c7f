//! A conversation as tokens, of which those of the assistant are to be predicted.
//!
//! The template's text is cut into pieces as `transformers` does it: all of it at once, nothing put
//! around it. A piece is a target where any of its letters belongs to an answer. One that is too long
//! loses whole exchanges, the oldest first, and never its system message; an exchange that is too long
//! by itself loses the beginning of its question and the end of its answer, half of the room for each.

use std::ops::Range;

use super::encode::Encoder;
use super::encoded::{Encoded, EncodedPreference, Target};
use super::tokenizer::PlacedPiece;
use crate::{Body, ChatTemplate, DataError, Example, Labels, Message, Preference, Result, Role};

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

/// How a conversation ends, for a model that is to write its last answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastTurn {
    /// With an answer, which can be compared with the model's own.
    Answered(LastAnswer),
    /// With something else, or with an answer that nobody asked for.
    Unanswered,
    /// With an answer to a question that leaves no room for the tokens of an answer.
    TooLong,
}

/// The last answer of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastAnswer {
    /// The tokens that a model reads before it writes its own.
    pub prompt: Vec<u32>,
    /// What the assistant says.
    pub reference: String,
}

/// Messages as tokens.
struct ReadTurns {
    ids: Vec<u32>,
    /// For each token the next one, where that is learned.
    told: Vec<Option<u32>>,
    is_split: bool,
    answers: usize,
    passed_over: usize,
}

impl Encoder<'_> {
    /// What becomes of the turns of an example; `None` where it is no conversation that is learned whole.
    pub fn turns(&self, example: &Example) -> Result<Option<CutTurns>> {
        let (Body::Conversation(messages), Labels::Absent) = (&example.body, &example.labels)
        else {
            return Ok(None);
        };
        let written = self.written_turns(messages).map_err(|error| error.at(&example.place))?;
        Ok(Some(written.1))
    }

    /// How an example ends. What stands before its answer loses whole exchanges, the oldest first, until an answer
    /// fits behind it.
    pub fn last_turn(&self, example: &Example) -> Result<LastTurn> {
        let Body::Conversation(messages) = &example.body else { return Ok(LastTurn::Unanswered) };
        self.asked_last(messages).map_err(|error| error.at(&example.place))
    }

    fn asked_last(&self, messages: &[Message]) -> Result<LastTurn> {
        let template = self.template()?;
        ChatTemplate::check(messages)?;
        let Some((last, before)) = messages.split_last() else { return Ok(LastTurn::Unanswered) };
        let is_answer = last.role == Role::Assistant && !last.content.trim().is_empty();
        if !is_answer || before.iter().all(|message| message.role != Role::User) {
            return Ok(LastTurn::Unanswered);
        }
        let prompt = |kept: &[Message]| template.prompt(kept, self.tokenizer);
        let length = |kept: &[Message]| prompt(kept).map(|ids| ids.len());
        let room = self.longest.saturating_sub(self.rules.max_new_tokens);
        let prompt = prompt(&fitting(before, (length(before)?, room), &length)?)?;
        if prompt.len() > room {
            return Ok(LastTurn::TooLong);
        }
        Ok(LastTurn::Answered(LastAnswer { prompt, reference: last.content.clone() }))
    }

    pub(super) fn conversation(&self, messages: &[Message]) -> Result<Encoded> {
        self.written_turns(messages).map(|(encoded, _)| encoded)
    }

    fn written_turns(&self, messages: &[Message]) -> Result<(Encoded, CutTurns)> {
        let template = self.template()?;
        ChatTemplate::check(messages)?;
        let answered = messages.iter().rposition(|message| message.role == Role::Assistant);
        let all = &messages[..answered.map_or(0, |last| last + 1)];
        let whole = self.length(template, all)?;
        let length = |kept: &[Message]| self.length(template, kept);
        let kept = fitting(all, (whole, self.longest), &length)?;
        let ReadTurns { ids, told, is_split, answers, passed_over } =
            self.read(template, &kept, 0)?;
        let cut = CutTurns {
            messages: messages.len(),
            cut: all.len() - kept.len(),
            is_split,
            answers,
            passed_over,
            targets: told.iter().flatten().count(),
        };
        let dropped = whole.saturating_sub(ids.len());
        let target = Target::PerToken(told);
        Ok((Encoded { ids, types: Vec::new(), target, dropped, pixels: None }, cut))
    }

    /// Two conversations that begin alike and end with the one or the other answer. Both lose the same
    /// exchanges where either is too long.
    pub(super) fn preference(&self, prompt: &[Message], pair: &Preference) -> Result<Encoded> {
        let template = self.template()?;
        let answers = [&pair.chosen, &pair.rejected];
        let lengths = |kept: &[Message]| -> Result<[usize; 2]> {
            let [chosen, rejected] =
                answers.map(|answer| self.length(template, &[kept, answer].concat()));
            Ok([chosen?, rejected?])
        };
        let longer = |kept: &[Message]| lengths(kept).map(|[one, other]| one.max(other));
        let whole = lengths(prompt)?;
        let kept = fitting(prompt, (whole[0].max(whole[1]), self.longest), &longer)?;
        let read = |answer: &Vec<Message>| {
            let all = [kept.as_slice(), answer].concat();
            ChatTemplate::check(&all)?;
            self.read(template, &all, kept.len())
        };
        let (chosen, rejected) = (read(answers[0])?, read(answers[1])?);
        let target = EncodedPreference {
            chosen: chosen.ids.len(),
            told: [chosen.told, rejected.told].concat(),
        };
        let ids = [chosen.ids, rejected.ids].concat();
        let dropped = whole.iter().sum::<usize>().saturating_sub(ids.len());
        let target = Target::Preference(target);
        Ok(Encoded { ids, types: Vec::new(), target, dropped, pixels: None })
    }

    fn template(&self) -> Result<&ChatTemplate> {
        let expected = "an encoder with a chat template";
        self.chat.ok_or_else(|| DataError::setting("conversation", &"messages", expected))
    }

    /// The tokens of messages of which the answers from one on are learned, cut where there are too many.
    fn read(
        &self,
        template: &ChatTemplate,
        messages: &[Message],
        from: usize,
    ) -> Result<ReadTurns> {
        let turns = template.turns(messages, from)?;
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
        let told = next.map(|(&id, &learned)| learned.then_some(id)).chain([None]).collect();
        Ok(ReadTurns { ids, told, is_split, answers, passed_over: turns.passed_over })
    }

    fn length(&self, template: &ChatTemplate, messages: &[Message]) -> Result<usize> {
        Ok(self.tokenizer.written_pieces(&template.text(messages, false)?)?.len())
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

/// The conversation with as few exchanges left out as it takes for its length to have room, or its last one.
fn fitting(
    messages: &[Message],
    (whole, room): (usize, usize),
    length: &dyn Fn(&[Message]) -> Result<usize>,
) -> Result<Vec<Message>> {
    if whole <= room {
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
        if length(&from(starts[middle]))? <= room {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let start = starts.get(low).or(starts.last());
    Ok(start.map_or_else(|| messages.to_vec(), |&start| from(start)))
}

/// The pieces from the first to the last one that has a letter of a range.
fn covering(pieces: &[PlacedPiece], range: &Range<usize>) -> Range<usize> {
    let has = |piece: &PlacedPiece| piece.start < range.end && piece.end > range.start;
    let first = pieces.iter().position(has).unwrap_or(0);
    let last = pieces.iter().rposition(has).map_or(0, |last| last + 1);
    first..last.max(first)
}
