//! Which part a client is to train, on its way down.
//!
//! A small [message](Sealed) whose content is the bitmap of the scope, one bit a parameter.
//! The layout needs no digest here: the values that come beside the notice carry it.

use fedra_plan::{Layout, Round, Scope};

use crate::error::WireError;
use crate::id::ClientId;
use crate::sealed::{self, Sealed};

const MAGIC: [u8; 4] = *b"FDMK";

/// The notice of what learns at one client in one round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// The round.
    pub round: Round,
    /// Whom it is for.
    pub client: ClientId,
    /// What learns.
    pub learns: Scope,
}

impl Mask {
    /// The exact length of a notice.
    pub fn length(layout: &Layout) -> usize {
        sealed::length(layout.len().div_ceil(8))
    }

    /// Writes the notice.
    pub fn encode(&self, layout: &Layout) -> Result<Vec<u8>, WireError> {
        let content = self.learns.bitmap(layout)?;
        let Self { round, client, .. } = *self;
        Ok(Sealed { own: 0, round, client, content: &content }.encode(MAGIC))
    }

    /// Reads a notice about a model that both ends know.
    pub fn decode(bytes: &[u8], layout: &Layout) -> Result<Self, WireError> {
        if bytes.len() != Self::length(layout) {
            return Err(WireError::length(bytes.len(), Self::length(layout)));
        }
        let Sealed { own, round, client, content } = Sealed::decode(bytes, MAGIC)?;
        if own != 0 {
            return Err(WireError::reserved(own));
        }
        Ok(Self { round, client, learns: Scope::from_bitmap(layout, content)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_plan::{Layer, ParamId, Part, Role, Shape};

    #[test]
    fn a_notice_comes_back_as_it_went_and_a_damaged_one_does_not() {
        let id = |block| ParamId::new(Layer::Block(block), Role::Query, Part::Weight);
        let layout = Layout::new((0..9).map(|block| (id(block), Shape::vector(2)))).expect("legal");
        let learns = Scope::from_iter([id(1), id(8)]);
        let mask = Mask { round: Round(5), client: ClientId(3), learns };
        let bytes = mask.encode(&layout).expect("inside the layout");
        assert_eq!(bytes.len(), 16 + 2 + 4);
        assert_eq!(Mask::decode(&bytes, &layout), Ok(mask));
        for place in 0..bytes.len() {
            assert!(Mask::decode(&bytes[..place], &layout).is_err(), "cut at {place}");
            let mut bad = bytes.clone();
            bad[place] ^= 0x40;
            assert!(Mask::decode(&bad, &layout).is_err(), "flipped at {place}");
        }
    }
}
