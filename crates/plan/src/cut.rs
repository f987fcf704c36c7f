//! Where each part lives: all of it at the client, or the middle blocks at the server.
//!
//! The client always keeps the embedding and the head, because text goes in at one and labels at
//! the other, and neither may leave. A cut is therefore one range of blocks, and hidden states
//! cross it at two places:
//!
//! ```text
//! client  embedding  block 0 .. a-1                     block b .. L-1  head
//!                               \                      /
//!                     IntoServer { before: a }   IntoClient { after: b-1 }
//!                                 \                  /
//! server                           block a .. b-1 --
//! ```

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::PlanError;
use crate::id::Layer;

/// No cut, or a range of blocks that lives at the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cut {
    server: Option<Range<u16>>,
}

impl Cut {
    /// The whole model lives at the client.
    pub const fn none() -> Self {
        Self { server: None }
    }

    /// The blocks of `range`, out of `blocks` in the model, live at the server.
    ///
    /// Refuses a range that is empty or leaves the model. The client may be left with no block,
    /// but never without the embedding and the head.
    pub fn server(range: Range<u16>, blocks: u16) -> Result<Self, PlanError> {
        let cut = Self { server: Some(range) };
        cut.check(blocks)?;
        Ok(cut)
    }

    /// The client keeps the `first` and the `last` blocks (p and q in FedSEA-LLaMA).
    pub fn keep(first: u16, last: u16, blocks: u16) -> Result<Self, PlanError> {
        Self::server(first..blocks.saturating_sub(last), blocks)
    }

    /// Refuses a cut that does not fit a model of this many blocks.
    pub(crate) fn check(&self, blocks: u16) -> Result<(), PlanError> {
        let Some(Range { start, end }) = self.server else {
            return Ok(());
        };
        let expected = if start >= end {
            "at least one block".to_owned()
        } else if end > blocks {
            format!("blocks within 0..{blocks}")
        } else {
            return Ok(());
        };
        let found = format!("a cut gives the server blocks {start}..{end}");
        Err(PlanError::unusable(found, expected))
    }

    /// The blocks that live at the server, if any do.
    pub fn server_blocks(&self) -> Option<Range<u16>> {
        self.server.clone()
    }

    /// Where a layer lives.
    pub fn side(&self, layer: Layer) -> Side {
        match (layer, &self.server) {
            (Layer::Block(number), Some(range)) if range.contains(&number) => Side::Server,
            (Layer::Embedding | Layer::Block(_) | Layer::Head, _) => Side::Client,
        }
    }

    /// The boundaries that hidden states cross, in forward order; gradients cross them backwards.
    pub fn crossings(&self) -> Vec<Crossing> {
        let both = |Range { start, end }: &Range<u16>| {
            [Crossing::IntoServer { before: *start }, Crossing::IntoClient { after: end - 1 }]
        };
        self.server.iter().flat_map(both).collect()
    }
}

/// One of the two parties that can hold a part of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The party with the data.
    Client,
    /// The party without.
    Server,
}

/// A boundary between two blocks at which the forward pass changes sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Crossing {
    /// From the client to the server.
    IntoServer {
        /// The server's first block.
        before: u16,
    },
    /// From the server back to the client.
    IntoClient {
        /// The server's last block.
        after: u16,
    },
}

impl Crossing {
    /// Whether a layer comes before this boundary in the forward pass.
    pub fn comes_after(self, layer: Layer) -> bool {
        match self {
            Self::IntoServer { before } => layer < Layer::Block(before),
            Self::IntoClient { after } => layer <= Layer::Block(after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_puts_the_middle_at_the_server_and_the_ends_at_the_client() {
        let cut = Cut::keep(1, 2, 6).expect("three blocks are left");
        assert_eq!(cut.server_blocks(), Some(1..4));
        let at_server: Vec<u16> =
            (0..6).filter(|number| cut.side(Layer::Block(*number)) == Side::Server).collect();
        assert_eq!(at_server, [1, 2, 3]);
        assert_eq!(cut.side(Layer::Embedding), Side::Client);
        assert_eq!(cut.side(Layer::Head), Side::Client);
        let crossings = [Crossing::IntoServer { before: 1 }, Crossing::IntoClient { after: 3 }];
        assert_eq!(cut.crossings(), crossings);
    }

    #[test]
    fn the_server_may_hold_every_block_but_neither_embedding_nor_head() {
        let cut = Cut::keep(0, 0, 4).expect("the client keeps both ends");
        assert_eq!(cut.server_blocks(), Some(0..4));
        assert_eq!(cut.side(Layer::Embedding), Side::Client);
    }

    #[test]
    fn a_cut_that_is_empty_or_leaves_the_model_is_refused() {
        let empty = |blocks: &str| {
            let found = format!("a cut gives the server blocks {blocks}");
            Err(PlanError::unusable(found, "at least one block"))
        };
        assert_eq!(Cut::server(2..2, 4), empty("2..2"));
        assert_eq!(Cut::keep(2, 2, 4), empty("2..2"));
        assert_eq!(Cut::keep(1, 9, 4), empty("1..0"));
        let refused = Cut::server(2..5, 4).expect_err("block 4 does not exist");
        assert_eq!(
            refused.to_string(),
            "a cut gives the server blocks 2..5, expected blocks within 0..4"
        );
    }

    #[test]
    fn without_a_cut_nothing_crosses() {
        assert_eq!(Cut::none().crossings(), []);
        assert_eq!(Cut::none().side(Layer::Block(3)), Side::Client);
    }
}
