//! A model cut between a client and the server: the client's ends, the server's middle, and what
//! passes between them.
//!
//! ```text
//! client (ClientSegments)                      server (ServerSegment)
//!   A: embedding, first blocks
//!      hidden states, noised   -->   B: the blocks between, one turn a client
//!   C: last blocks, head       <--      hidden states
//!      gradient of them, noised -->     backward; B's own step
//!   A: backward                <--      gradient of what the client sent
//! ```
//! Both halves speak in frames of bytes ([`HiddenFrame`](fedra_wire::HiddenFrame)), near and far, so
//! a run in one process and one over a network compute the same bits and report real lengths. The
//! server sees rows and lengths: no token id, no label and no mask.

mod accounted;
mod client_segments;
mod clocks;
mod copies;
mod joint;
mod local_peer;
mod noise;
mod peer;
mod probing;
mod rows;
mod server_segment;
mod survey;
mod turn;

pub(crate) use client_segments::{
    ClientSegments, CutStep, Passing, RowNoise, StepDivisor, StepPart,
};
pub use clocks::HeldUp;
pub use local_peer::LocalPeer;
pub use noise::{Occasion, Perturbation};
pub use peer::{Connect, Peer, Purpose};
pub use server_segment::ServerSegment;
pub use turn::MOST_ROWS as MOST_ROWS_CROSSING;
pub(crate) use turn::{Blocks, Crosses, Learner, Pass, Turn};
