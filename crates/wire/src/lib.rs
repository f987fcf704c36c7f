//! Parameters and their changes as bytes, and back, trusting nobody.
//!
//! There is no socket here: [`encode`] makes one payload and [`open`] checks one, so that every
//! byte a federation moves can be counted, fuzzed and replayed. The length of a payload follows
//! from the layout, the scope and the encoding alone ([`payload_length`]), hence a receiver knows
//! how long an honest payload is before it takes memory for any of it.
//!
//! ```
//! use fedra_plan::{Layout, ParamId, Part, Role, Round, Scope, Shape, Layer};
//! use fedra_wire::{ClientId, Encoding, Expectation, Header, Kind, ParamValues, decode, encode};
//!
//! let bias = ParamId::new(Layer::Head, Role::Classifier, Part::Bias);
//! let layout = Layout::new([(bias, Shape::vector(3))])?;
//! let change = ParamValues::from_iter([(bias, vec![0.5, -1.0, 0.0])]);
//!
//! let header = Header {
//!     kind: Kind::Change,
//!     encoding: Encoding::F32,
//!     round: Round(4),
//!     client: ClientId(2),
//!     examples: 100,
//!     steps: 7,
//!     loss: Some(0.25),
//! };
//! let payload = encode(&layout, &header, &change, None)?;
//!
//! let scope = Scope::everything(&layout);
//! let expected = Expectation {
//!     layout: &layout,
//!     kind: Kind::Change,
//!     encoding: Encoding::F32,
//!     round: Round(4),
//!     client: ClientId(2),
//!     scope: Some(&scope),
//! };
//! assert_eq!(decode(&payload, &expected)?, (header, change));
//! assert!(decode(&payload[..payload.len() - 1], &expected).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod numbers;
mod param_values;

mod encoding;
mod header;
mod heads;
mod id;

mod codec;
mod payload;

mod kernels;

mod low_rank;
mod ranks;
mod server_rule;
mod sum;

mod hidden;
mod mask;
mod scores;
mod sealed;

mod error;

pub use encoding::{Encoding, kept};
pub use error::WireError;
pub use header::Header;
pub use heads::HeadSlices;
pub use hidden::{
    ExpectedFrame, FRAME_HEADER, FrameKind, FrameParts, HiddenFrame, RowEncoding, RowValues,
    frame_parts,
};
pub use id::{ClientId, Kind};
pub use kernels::checksum;
pub use low_rank::{LowRank, nearest_mean};
pub use mask::Mask;
pub use numbers::{from_bytes, to_bytes};
pub use param_values::ParamValues;
pub use payload::{
    Expectation, Opened, decode, encode, encode_in_place, encode_owned, encode_part, open,
    payload_length, rewrite,
};
pub use ranks::{narrowed, widened};
pub use scores::Measured;
pub use server_rule::{SecondMoment, ServerInput, ServerRule, ServerState};
pub use sum::{Mean, Sum, Taken};
