//! What a client measured of each block, on its way to the server.
//!
//! A small [message](Sealed) whose number of its own is that of the blocks, and whose content is one f32 a block.
//! Scores are f32: they are only ever compared, and a rank needs no more digits.

use fedra_plan::Round;

use crate::error::WireError;
use crate::id::ClientId;
use crate::sealed::{self, Sealed};

const MAGIC: [u8; 4] = *b"FDSC";

/// One client's scores of the blocks it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The round they were measured for.
    pub round: Round,
    /// Who measured.
    pub client: ClientId,
    /// One score a block, from block 0 on.
    pub scores: Vec<f32>,
}

impl Measured {
    /// The exact length of the message about so many blocks.
    pub const fn length(blocks: usize) -> usize {
        sealed::length(4 * blocks)
    }

    /// Writes the message.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        check(&self.scores)?;
        let many = || WireError::payload("number of scores", self.scores.len(), u16::MAX);
        let own = u16::try_from(self.scores.len()).map_err(|_| many())?;
        let content: Vec<u8> = self.scores.iter().flat_map(|score| score.to_le_bytes()).collect();
        let Self { round, client, .. } = *self;
        Ok(Sealed { own, round, client, content: &content }.encode(MAGIC))
    }

    /// Reads a message of this round from this client about at most so many blocks.
    pub fn decode(
        bytes: &[u8],
        (round, client): (Round, ClientId),
        most: u16,
    ) -> Result<Self, WireError> {
        let found = Sealed::decode(bytes, MAGIC)?;
        let expected = Self::length(usize::from(found.own.min(most)));
        if found.own > most || bytes.len() != expected {
            return Err(WireError::length(bytes.len(), expected));
        }
        if found.round != round {
            return Err(WireError::payload("round", found.round, round));
        }
        if found.client != client {
            return Err(WireError::payload("sender in the header", found.client, client));
        }
        let scores = found.content.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let scores: Vec<f32> = scores.collect();
        check(&scores)?;
        Ok(Self { round, client, scores })
    }
}

fn check(scores: &[f32]) -> Result<(), WireError> {
    match scores.iter().position(|score| !score.is_finite()) {
        None => Ok(()),
        Some(block) => Err(WireError::Score { block, found: scores[block] }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        Measured { round: Round(3), client: ClientId(2), scores: vec![0.25, 0.5, 0.125] }
    }

    #[test]
    fn scores_come_back_as_they_went_and_take_four_bytes_a_block() {
        let bytes = measured().encode().expect("finite");
        assert_eq!(bytes.len(), 16 + 3 * 4 + 4);
        assert_eq!(Measured::decode(&bytes, (Round(3), ClientId(2)), 3), Ok(measured()));
    }

    #[test]
    fn a_cut_flipped_or_foreign_message_is_refused() {
        let bytes = measured().encode().expect("finite");
        let read = |bytes: &[u8]| Measured::decode(bytes, (Round(3), ClientId(2)), 3);
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "cut at {length}");
        }
        for place in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[place] ^= 0x40;
            assert!(read(&bad).is_err(), "flipped at {place}");
        }
        for (key, most) in [
            ((Round(4), ClientId(2)), 3),
            ((Round(3), ClientId(1)), 3),
            ((Round(3), ClientId(2)), 2),
        ] {
            assert!(Measured::decode(&bytes, key, most).is_err(), "{key:?} {most}");
        }
        let mut boast = bytes[..16 + 4].to_vec();
        boast[6..8].copy_from_slice(&u16::MAX.to_le_bytes());
        boast.extend(crc32fast::hash(&boast).to_le_bytes());
        assert!(
            Measured::decode(&boast, (Round(3), ClientId(2)), 1).is_err(),
            "one score, 65,535 claimed"
        );
        assert!(Measured { scores: vec![f32::NAN], ..measured() }.encode().is_err());
    }
}
