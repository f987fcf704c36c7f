//! Which part a client is to train, on its way down.
//!
//! ```text
//!  0  magic "FDMK"     8  round u32     16  bitmap of the scope, one bit a parameter
//!  4  version         12  client u32     .  CRC-32 of all before
//!  5  three zeros
//! ```
//! The layout needs no digest here: the values that come beside the notice carry it.

use fedra_plan::{Layout, Round, Scope};

use crate::error::WireError;
use crate::id::ClientId;

const MAGIC: [u8; 4] = *b"FDMK";
const VERSION: u8 = 1;
const HEADER: usize = 16;
const CHECKSUM: usize = 4;

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
        HEADER + layout.len().div_ceil(8) + CHECKSUM
    }

    /// Writes the notice.
    pub fn encode(&self, layout: &Layout) -> Result<Vec<u8>, WireError> {
        let mut bytes = Vec::with_capacity(Self::length(layout));
        bytes.extend(MAGIC);
        bytes.extend([VERSION, 0, 0, 0]);
        bytes.extend(self.round.0.to_le_bytes());
        bytes.extend(self.client.0.to_le_bytes());
        bytes.extend(self.learns.bitmap(layout)?);
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        Ok(bytes)
    }

    /// Reads a notice about a model that both ends know.
    pub fn decode(bytes: &[u8], layout: &Layout) -> Result<Self, WireError> {
        let wrong = WireError::Length { found: bytes.len(), expected: Self::length(layout) };
        if bytes.len() != Self::length(layout) {
            return Err(wrong);
        }
        let (content, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(wrong.clone())?;
        let (header, bitmap) = content.split_first_chunk::<HEADER>().ok_or(wrong)?;
        let [a, b, c, d, version, z0, z1, z2, r0, r1, r2, r3, c0, c1, c2, c3] = *header;
        if [a, b, c, d] != MAGIC {
            return Err(WireError::Magic { found: [a, b, c, d], expected: MAGIC });
        }
        if version != VERSION {
            return Err(WireError::Version { found: version, expected: VERSION });
        }
        if let Some(found) = [z0, z1, z2].into_iter().find(|byte| *byte != 0) {
            return Err(WireError::Reserved { found });
        }
        let (found, expected): (u64, u64) =
            (u32::from_le_bytes(*checksum).into(), crc32fast::hash(content).into());
        if found != expected {
            return Err(WireError::Checksum { found, expected });
        }
        Ok(Self {
            round: Round(u32::from_le_bytes([r0, r1, r2, r3])),
            client: ClientId(u32::from_le_bytes([c0, c1, c2, c3])),
            learns: Scope::from_bitmap(layout, bitmap)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_plan::{ParamId, Part, Role, Shape, Site};

    #[test]
    fn a_notice_comes_back_as_it_went_and_a_damaged_one_does_not() {
        let id = |block| ParamId::new(Site::Block(block), Role::Query, Part::Weight);
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
