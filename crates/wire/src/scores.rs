//! What a client measured of each block, on its way to the server.
//!
//! ```text
//!  0  magic "FDSC"     5  zero          8  round u32     16  one f32 a block
//!  4  version          6  blocks u16   12  client u32     .  CRC-32 of all before
//! ```
//! Scores are f32: they are only ever compared, and a rank needs no more digits.

use fedra_plan::Round;

use crate::error::WireError;
use crate::id::ClientId;

const MAGIC: [u8; 4] = *b"FDSC";
const VERSION: u8 = 1;
const HEADER: usize = 16;
const CHECKSUM: usize = 4;

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
        HEADER + 4 * blocks + CHECKSUM
    }

    /// Writes the message.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        check(&self.scores)?;
        let most = usize::from(u16::MAX);
        let Ok(blocks) = u16::try_from(self.scores.len()) else {
            return Err(WireError::Length { found: self.scores.len(), expected: most });
        };
        let mut bytes = Vec::with_capacity(Self::length(self.scores.len()));
        bytes.extend(MAGIC);
        bytes.extend([VERSION, 0]);
        bytes.extend(blocks.to_le_bytes());
        bytes.extend(self.round.0.to_le_bytes());
        bytes.extend(self.client.0.to_le_bytes());
        for score in &self.scores {
            bytes.extend(score.to_le_bytes());
        }
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        Ok(bytes)
    }

    /// Reads a message of this round from this client about at most so many blocks.
    pub fn decode(
        bytes: &[u8],
        (round, client): (Round, ClientId),
        most: u16,
    ) -> Result<Self, WireError> {
        let short = WireError::Length { found: bytes.len(), expected: Self::length(0) };
        let (content, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(short.clone())?;
        let (header, values) = content.split_first_chunk::<HEADER>().ok_or(short)?;
        let [a, b, c, d, version, zero, low, high, r0, r1, r2, r3, c0, c1, c2, c3] = *header;
        if [a, b, c, d] != MAGIC {
            return Err(WireError::Magic { found: [a, b, c, d], expected: MAGIC });
        }
        if version != VERSION {
            return Err(WireError::Version { found: version, expected: VERSION });
        }
        if zero != 0 {
            return Err(WireError::Reserved { found: zero });
        }
        let blocks = u16::from_le_bytes([low, high]);
        let expected = Self::length(usize::from(blocks.min(most)));
        if blocks > most || bytes.len() != expected {
            return Err(WireError::Length { found: bytes.len(), expected });
        }
        let (found, computed): (u64, u64) =
            (u32::from_le_bytes(*checksum).into(), crc32fast::hash(content).into());
        if found != computed {
            return Err(WireError::Checksum { found, expected: computed });
        }
        let found = Round(u32::from_le_bytes([r0, r1, r2, r3]));
        if found != round {
            return Err(WireError::OtherRound { found, expected: round });
        }
        let found = ClientId(u32::from_le_bytes([c0, c1, c2, c3]));
        if found != client {
            return Err(WireError::OtherSender { found, expected: client });
        }
        let scores: Vec<f32> =
            values.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
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
        let mut boast = bytes[..HEADER + 4].to_vec();
        boast[6..8].copy_from_slice(&u16::MAX.to_le_bytes());
        boast.extend(crc32fast::hash(&boast).to_le_bytes());
        assert!(
            Measured::decode(&boast, (Round(3), ClientId(2)), 1).is_err(),
            "one score, 65,535 claimed"
        );
        assert!(Measured { scores: vec![f32::NAN], ..measured() }.encode().is_err());
    }
}
