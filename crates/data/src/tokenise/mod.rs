//! Text to token numbers.
//!
//! A [`Tokenizer`] is small on purpose: pieces of a text and the [`Template`]s that stand around
//! them. The cutting itself is done by Hugging Face's `tokenizers`, because a pretrained model only
//! means something under the rules it was trained with: [`open_tokenizer`] takes any
//! `tokenizer.json` or a BERT's `vocab.txt`, and a tokenizer grown here is one such file
//! made from a corpus. Special tokens are never recognised inside a text: a note that contains the
//! characters `[SEP]` contains five characters and no separator.

mod answers;
mod bert;
mod blame;
mod conversation;
mod encode;
mod encoded;
mod open;
mod template;
mod tokenizer;
mod vocabulary;
mod windows;
mod word;

pub use conversation::{CutTurns, LastAnswer, LastTurn};
pub use encode::Encoder;
pub use encoded::{
    AnswerRules, Candidate, EncodeRows, Encoded, EncodedChoice, EncodedPreference, EncodedText,
    LengthNorm, Target, TokenSequence,
};
pub use open::open_tokenizer;
pub use template::{Template, Templates};
pub use tokenizer::{PlacedPiece, Tokenizer};
pub use windows::{Window, WordPlace, WordWindows};
