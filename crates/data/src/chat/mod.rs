//! Conversations, and the templates by which models read them.
//!
//! A chat model was trained on text in one form: its template writes messages as that text, special
//! tokens included. The form is a program in Jinja that comes with the model, so it is run and never
//! guessed, and it is other people's code: it opens no file, and what it may compute and write is
//! bounded ([`jinja`]).
//!
//! ```text
//! messages --ChatTemplate--> text, and where the assistant speaks in it --Encoder--> tokens, targets
//! ```
//! What a message says is never part of that form: a special token that it spells stays letters.

mod declared;
mod guard;
mod jinja;
mod message;
mod python;
mod template;
mod turns;

pub use declared::{DeclaredTemplate, SpecialNames};
pub(crate) use guard::GUARD;
pub use message::{Message, Preference, Role};
pub(crate) use message::{check, fault, pair_fault};
pub use template::{ChatTemplate, TemplateOrigin};
