//! Models of the Hugging Face hub: a name such as `hf:ORG/NAME@REVISION` becomes a folder on this machine.
//!
//! The cache is the one that Python's `huggingface_hub` keeps, in its place and its layout, so that either reads what
//! the other fetched. [`Hub::cached`] looks there and never makes a connection. [`Hub::fetch`] is the only function
//! of this crate that does; it is called where a person asked for a model by its name.
//!
//! ```text
//! <cache>/models--ORG--NAME/refs/main               the commit that a branch or tag stood for
//!                           snapshots/COMMIT/NAME   a link to its content
//!                           blobs/ETAG              the content, named by its hash
//!                           blobs/ETAG.incomplete   what has arrived of it
//!                           .no_exist/COMMIT/NAME   files that the repository does not have
//! <cache>/.locks/models--ORG--NAME/ETAG.lock        held by whoever fetches it
//! ```
//!
//! Large files of the hub lie in its Xet storage today; the plain addresses (`/resolve/`) that are used here lead
//! there by a redirect, and the hash is the same.

#![forbid(unsafe_code)]

mod cache;
mod endpoint;
mod error;
mod fetch;
mod hash;
mod http;
mod listing;
mod name;
mod needed;
mod settings;
mod transfer;

pub use cache::Snapshot;
pub use error::{CacheState, HubError};
pub use fetch::{Fetched, Follow, Progress};
pub use name::ModelName;
pub use settings::{Hub, Token};
