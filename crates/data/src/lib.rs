//! Data for federated fine-tuning: where examples come from, who holds them, how they become
//! tokens, and how predictions are scored.
//!
//! The crate knows no model and prints nothing. All it draws at random comes from a seed that the
//! caller passes, and no result depends on the order of a hash map.
//!
//! ```text
//! files --Reader--\
//!                  > Table --Partition--> Division --Encoder--> Encoded --epoch--> batches
//! Clinic ---------/                                                  predictions --> scores
//! ```
//!
//! ```
//! use fedra_data::{Clinic, Encoder, Partition, Shares, Task, Tokenizer, epoch};
//!
//! let table = Clinic { notes: 80, ..Clinic::default() }.generate(Task::Concepts, 1)?;
//! let division = Partition::Client.divide(&table, Shares::default(), 1)?;
//! let texts: Vec<String> = table.examples.iter().map(|e| e.body.to_text()).collect();
//! let tokenizer = Tokenizer::grow(texts.iter().map(String::as_str), 500)?;
//!
//! let rows = division.clients[0].train.iter().map(|&row| &table.examples[row]);
//! let encoder = Encoder::new(&tokenizer, 128)?;
//! let encoded = rows.map(|row| encoder.encode(row)).collect::<Result<Vec<_>, _>>()?.concat();
//! let lengths: Vec<usize> = encoded.iter().map(|sequence| sequence.ids.len()).collect();
//! for indices in epoch(&lengths, 16, 1) {
//!     assert!(indices.len() <= 16);
//! }
//! # Ok::<(), fedra_data::DataError>(())
//! ```

#![forbid(unsafe_code)]

mod caught;
mod error;
mod words;
mod work;

mod chat;
mod example;
mod reading_report;
mod row;
mod row_place;
mod table;
mod task;

mod clinic;
mod formats;
mod images;

mod row_hashes;

mod document;
mod partition;
mod picture;
mod printable;
mod small;

mod batch;
mod tokenise;

mod image_encoder;

mod scores;

pub use batch::epoch;
pub use chat::{
    ChatTemplate, DeclaredTemplate, Message, Preference, Role, SpecialNames, TemplateOrigin,
};
pub use clinic::Clinic;
pub use error::{Advice, DataError, Mismatch, Result};
pub use example::{Body, Choice, Example, Labels, Split};
pub use fedra_seed::Generator as Dice;
pub use formats::{
    AnswerBy, AnswerTemplates, CONVERSATION_PAIRS, Cell, ChoiceTemplates, ClassNames, ColumnSurvey,
    Columns, Encoding, Field, Fields, Format, FoundFormat, IdxFiles, ImageFile, Limits, Mimic,
    Missing, OptionColumns, OptionTemplates, OtherFormats, PREFERENCE_COLUMNS, Prompt,
    PromptTemplate, Reader, Record, Survey, TableFeatures, TextColumns, TextFile, TextFormat,
    TextRow, TextSink, Uncoded, WordsAre, idx_files, image_columns, image_files, messages_of_json,
};
pub use image_encoder::ImageEncoder;
pub use images::{Augment, AugmentDraw, Image, Normalisation, Pixels, Processor};
pub use partition::{Division, Holding, Partition, Shares};
pub use printable::{printable, printable_json, turns_direction};
pub use reading_report::{LeftOut, ReadingReport, Trimmed, folded};
pub use row::{Answers, Row};
pub use row_hashes::{RowHash, RowHashes};
pub use row_place::RowPlace;
pub use scores::{
    ByLabel, Calibration, CalibrationBin, CalibrationScore, ConfusionCounts, ConfusionMatrix,
    Judgement, LabelScore, OneLabel, PositionBias, RESAMPLES, Rate, Rouge, RougeScore, Span,
    SpanScore, WinRate, Winner, spans,
};
pub use small::Small;
pub use table::{Table, TableBuilder};
pub use task::{AnswerForm, LabelSet, LabelShape, Task};
pub use tokenise::{
    AnswerRules, Candidate, CutTurns, EncodeRows, Encoded, EncodedChoice, EncodedPreference,
    EncodedText, Encoder, LastAnswer, LastTurn, LengthNorm, PlacedPiece, Target, Template,
    Templates, TokenSequence, Tokenizer, Window, WordPlace, WordWindows, open_tokenizer,
};
pub use work::{Preparing, Stage, Work};
