//! What was sent to a device before and need not be sent again: the blocks of a model all read the same spans,
//! which so cost one copy.

use std::collections::VecDeque;
use std::sync::Arc;

/// Tables that are remembered.
const KEPT: usize = 48;
/// Bytes beyond which it costs less to send a table again than to recognise it.
const LARGEST: usize = 256 << 10;

/// Bytes that were sent, and where they are; the last used first.
#[derive(Debug)]
pub(super) struct Uploads<B>(VecDeque<(u64, Vec<u8>, Arc<B>)>);

impl<B> Default for Uploads<B> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<B> Uploads<B> {
    /// Where these bytes are, if they were sent; otherwise `send` sends them.
    pub fn get(&mut self, bytes: &[u8], send: impl FnOnce(&[u8]) -> Arc<B>) -> Arc<B> {
        if bytes.len() > LARGEST {
            return send(bytes);
        }
        let hash = hash(bytes);
        let known = |(known, kept, _): &(u64, Vec<u8>, Arc<B>)| *known == hash && kept == bytes;
        let place = self.0.iter().position(known);
        let entry = place.and_then(|place| self.0.remove(place));
        let entry = entry.unwrap_or_else(|| (hash, bytes.to_vec(), send(bytes)));
        let found = entry.2.clone();
        self.0.push_front(entry);
        self.0.truncate(KEPT);
        found
    }
}

/// Eight bytes at a time: tables of rows are sent many times in a step, and equal hashes are compared byte by byte.
fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mix =
        |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let start = words.iter().map(|word| u64::from_le_bytes(*word)).fold(bytes.len() as u64, mix);
    rest.iter().fold(start, |hash, byte| mix(hash, u64::from(*byte)))
}

/// Numbers without gaps, whose bytes may be copied.
pub(crate) trait Plain: Copy + Sized {
    fn bytes(data: &[Self]) -> &[u8];
}

macro_rules! plain {
    ($($kind:ty),*) => {
        $(impl Plain for $kind {
            fn bytes(data: &[Self]) -> &[u8] {
                // SAFETY: all bytes of these numbers are initialised.
                unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
            }
        })*
    };
}
plain!(u16, u32, u64, f32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_sent_again_only_when_it_was_forgotten() {
        let mut uploads = Uploads::<u32>::default();
        let mut sent = 0;
        let mut get = |number: u32| {
            let mut send = |_: &[u8]| {
                sent += 1;
                Arc::new(number)
            };
            let found = uploads.get(u32::bytes(&[number]), &mut send);
            assert_eq!(*found, number);
            sent
        };
        assert_eq!((get(7), get(7), get(8), get(7)), (1, 1, 2, 2));
        for number in 100..100 + KEPT as u32 {
            get(number);
        }
        assert_eq!(get(7), 3 + KEPT as u32);
    }
}
