//! Words of a text that nobody has labelled, in sequences that a head for tokens can answer.
//!
//! A word is what the tokenizer tells apart before it cuts words into pieces; where it cuts running
//! text at once, a word is what stands between blanks. A word's answer is that of its first piece, as
//! in training. Where words are given as a list, they are the words.
//!
//! A text that is longer than a sequence is read in windows that overlap by a quarter. Inside of an
//! overlap the first half of the words is answered by the earlier window and the rest by the later
//! one, so no word is answered at the very end of what the model sees:
//!
//! ```text
//! words     a b c d e f g h i j k l
//! window 1  a b c d e f g h              answers a .. f
//! window 2              e f g h i j k l  answers g .. l
//! ```

use super::encode::Encoder;
use super::tokenizer::PlacedPiece;
use crate::{Body, DataError, Result};

/// The words of a text, and the sequences that answer for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordWindows {
    /// Where each word stands.
    pub words: Vec<WordPlace>,
    /// One, or several where the text is too long for one; none where it has no word.
    pub windows: Vec<Window>,
}

/// Where a word stands in its text: `start..end` in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordPlace {
    /// The first character.
    pub start: usize,
    /// The character behind the last.
    pub end: usize,
}

/// A sequence, and the words that it answers for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The tokens, special ones included.
    pub ids: Vec<u32>,
    /// The type of each token; empty where all are 0.
    pub types: Vec<u32>,
    /// The places of tokens in the sequence whose answers count, one a word.
    pub answers: Vec<usize>,
    /// The first of the words that they are for; the others follow it.
    pub first_word: usize,
}

/// A word and its pieces.
struct Word {
    place: WordPlace,
    pieces: Vec<u32>,
    /// The piece that answers for it; others may stand before it only where a text opens with blanks.
    first: usize,
}

impl Encoder<'_> {
    /// Every word of a text or of a list of words, in as many sequences as it takes.
    pub fn word_windows(&self, body: &Body) -> Result<WordWindows> {
        let mut words = match body {
            Body::Text(text) => self.words_of_text(text)?,
            Body::Words(words) => self.given_words(words)?,
            Body::Pair(..) | Body::Image(_) | Body::Conversation(_) => {
                let expected = "one text: words of a pair have no tags";
                return Err(DataError::setting("text", &"several texts", expected));
            }
        };
        let room = self.longest - self.single().added();
        // A word that fills more than a whole sequence is known by how it begins.
        for word in &mut words {
            word.pieces.truncate(room);
            word.first = word.first.min(room - 1);
        }
        let lengths: Vec<usize> = words.iter().map(|word| word.pieces.len()).collect();
        let before = self.single().before().len();
        let windows = cuts(&lengths, room).into_iter().map(|cut| {
            let (mut pieces, mut answers) = (Vec::new(), Vec::new());
            for (number, word) in (cut.read.start..).zip(&words[cut.read.clone()]) {
                if cut.answered.contains(&number) {
                    answers.push(before + pieces.len() + word.first);
                }
                pieces.extend_from_slice(&word.pieces);
            }
            let (ids, types) = self.single().fill(&pieces, &[]);
            Window { ids, types, answers, first_word: cut.answered.start }
        });
        let windows = windows.collect();
        Ok(WordWindows { words: words.into_iter().map(|word| word.place).collect(), windows })
    }

    fn words_of_text(&self, text: &str) -> Result<Vec<Word>> {
        let letters: Vec<char> = text.chars().collect();
        let mut words: Vec<Word> = Vec::new();
        let mut blanks: Vec<PlacedPiece> = Vec::new();
        let (mut last, mut behind) = (None, 0);
        for piece in self.tokenizer.placed_pieces(text)? {
            let (start, end) = (piece.start.min(letters.len()), piece.end.min(letters.len()));
            let inked = trimmed(&letters, start, end);
            if start < end && inked.start == inked.end {
                blanks.push(piece);
                behind = end;
                continue;
            }
            // Between this piece and the one before it, or at its own beginning.
            let is_apart = letters[behind.min(inked.start)..inked.start]
                .iter()
                .any(|letter| letter.is_whitespace());
            let goes_on = blanks.is_empty() && last == Some(piece.word) && !is_apart;
            if let Some(open) = words.last_mut().filter(|_| goes_on) {
                open.place.end = open.place.end.max(inked.end);
                open.pieces.push(piece.id);
            } else {
                // The blank before a word may be a piece of that word, and then it is its first.
                let is_own = |blank: &&PlacedPiece| blank.word == piece.word;
                let own = blanks.iter().rev().take_while(is_own).count();
                let of_word = blanks.split_off(blanks.len() - own);
                let mut word = Word { place: inked, pieces: Vec::new(), first: 0 };
                let others = blanks.drain(..).map(|blank| blank.id);
                if let Some(before) = words.last_mut() {
                    before.pieces.extend(others);
                } else {
                    word.pieces.extend(others);
                    word.first = word.pieces.len();
                }
                word.pieces.extend(of_word.iter().map(|blank| blank.id).chain([piece.id]));
                words.push(word);
            }
            (last, behind) = (Some(piece.word), end);
        }
        if let Some(before) = words.last_mut() {
            before.pieces.extend(blanks.iter().map(|blank| blank.id));
        }
        Ok(words)
    }

    /// Places in the words joined by single blanks.
    fn given_words(&self, words: &[String]) -> Result<Vec<Word>> {
        let mut start = 0;
        let mut all = Vec::with_capacity(words.len());
        for word in words {
            let end = start + word.chars().count();
            let (place, pieces) = (WordPlace { start, end }, self.word_pieces(word)?);
            all.push(Word { place, pieces, first: 0 });
            start = end + 1;
        }
        Ok(all)
    }
}

/// A place without the blanks around it; some tokenizers count the blank before a word as its own.
fn trimmed(letters: &[char], mut start: usize, mut end: usize) -> WordPlace {
    while start < end && letters[start].is_whitespace() {
        start += 1;
    }
    while start < end && letters[end - 1].is_whitespace() {
        end -= 1;
    }
    WordPlace { start, end }
}

/// The words of a window, and those of them that it answers for.
#[derive(Debug, PartialEq, Eq)]
struct CutWindow {
    read: std::ops::Range<usize>,
    answered: std::ops::Range<usize>,
}

/// Words of these lengths in windows of so much room; every length is at most the room.
fn cuts(lengths: &[usize], room: usize) -> Vec<CutWindow> {
    let mut cuts: Vec<CutWindow> = Vec::new();
    let (mut start, mut answered) = (0, 0);
    while answered < lengths.len() {
        let (mut end, mut taken) = (start, 0);
        while end < lengths.len() && taken + lengths[end] <= room {
            taken += lengths[end];
            end += 1;
        }
        if end == lengths.len() {
            cuts.push(CutWindow { read: start..end, answered: answered..end });
            break;
        }
        let (mut next, mut shared) = (end, 0);
        while next > start + 1 && shared + lengths[next - 1] <= room / 4 {
            next -= 1;
            shared += lengths[next];
        }
        let middle = next + (end - next) / 2;
        // Where the next word hardly fits, a window may hold only what the one before it answered.
        if middle > answered {
            cuts.push(CutWindow { read: start..end, answered: answered..middle });
        }
        (start, answered) = (next, middle);
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tokenizer;

    fn tokenizer() -> Tokenizer {
        Tokenizer::grow(["no chest pain no chest pain, x (b) \u{e9}t\u{e9}"], 90).unwrap()
    }

    #[test]
    fn words_stand_where_they_stand_in_the_text_and_are_cut_as_in_training() {
        let (tokenizer, text) = (tokenizer(), "  No chest\tpain, \u{c9}T\u{c9} (nosixt)");
        let encoder = Encoder::new(&tokenizer, 40).unwrap();
        let found = encoder.word_windows(&Body::Text(text.to_owned())).unwrap();
        let letters: Vec<char> = text.chars().collect();
        let words: Vec<String> =
            found.words.iter().map(|word| letters[word.start..word.end].iter().collect()).collect();
        assert_eq!(words, ["No", "chest", "pain", ",", "\u{c9}T\u{c9}", "(", "nosixt", ")"]);
        let [window] = &found.windows[..] else { panic!("{found:?}") };
        let mut ids = tokenizer.templates().single.before();
        ids.extend(tokenizer.pieces(text).unwrap());
        ids.extend(tokenizer.templates().single.after());
        assert_eq!(window.ids, ids);
        let given = encoder.word_windows(&Body::Words(words)).unwrap();
        assert_eq!(given.windows, found.windows);
        assert_eq!(given.words[1], WordPlace { start: 3, end: 8 });
    }

    #[test]
    fn every_word_is_answered_once_however_long_the_text_is() {
        for room in 1..9 {
            for words in 0..30 {
                let lengths: Vec<usize> = (0..words).map(|word| 1 + word % room.min(3)).collect();
                let mut next = 0;
                for cut in cuts(&lengths, room) {
                    assert_eq!(cut.answered.start, next, "{room} {words}");
                    assert!(cut.read.start <= next && cut.answered.end <= cut.read.end);
                    assert!(lengths[cut.read.clone()].iter().sum::<usize>() <= room);
                    next = cut.answered.end;
                }
                assert_eq!(next, words);
            }
        }
        let halves = cuts(&[1; 12], 8);
        assert_eq!(halves[0], CutWindow { read: 0..8, answered: 0..7 });
        assert_eq!(halves[1], CutWindow { read: 6..12, answered: 7..12 });
    }

    #[test]
    fn a_text_without_a_word_has_no_window_and_a_pair_is_refused() {
        let tokenizer = tokenizer();
        let encoder = Encoder::new(&tokenizer, 12).unwrap();
        assert_eq!(encoder.word_windows(&Body::Text(" ".into())).unwrap(), WordWindows::default());
        assert!(encoder.word_windows(&Body::Pair("a".into(), "b".into())).is_err());
        let long = encoder.word_windows(&Body::Text("b".repeat(60))).unwrap();
        assert_eq!((long.words.len(), long.windows.len()), (1, 1));
        assert_eq!(long.windows[0].ids.len(), 12);
    }
}
