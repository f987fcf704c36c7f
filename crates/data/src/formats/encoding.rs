//! The encoding of a text file, turned into UTF-8 while it is read.
//!
//! What an encoding does not define is refused at its byte, never replaced: a file that was read
//! under the wrong name shows at once and not as odd letters in a model.

use std::io::{self, Read};

use encoding_rs::{DecoderResult, UTF_16BE, UTF_16LE, WINDOWS_1252};

use crate::words::words;

words! {
    /// How the letters of a text file are written, by the name it has in an experiment file.
    #[derive(Default)]
    pub enum Encoding {
        /// UTF-8, with or without a byte order mark.
        #[default]
        Utf8 = "utf-8",
        /// ISO 8859-1. Its control characters 0x80 to 0x9f stand in no text and are refused.
        Latin1 = "latin-1",
        /// Windows-1252: Latin 1 with letters and quotes in 0x80 to 0x9f.
        Windows1252 = "windows-1252",
        /// UTF-16 whose byte order mark says which way round.
        Utf16 = "utf-16",
        /// UTF-16, the low byte first.
        Utf16Le = "utf-16le",
        /// UTF-16, the high byte first.
        Utf16Be = "utf-16be",
    }
}

/// Bytes that Windows-1252 leaves undefined.
const UNDEFINED: [u8; 5] = [0x81, 0x8d, 0x8f, 0x90, 0x9d];
/// Bytes that are decoded at a time.
const CHUNK: usize = 8 << 10;

impl Encoding {
    /// The same text in UTF-8.
    pub(super) fn decoded(self, input: impl Read + 'static) -> Box<dyn Read> {
        if self == Self::Utf8 { Box::new(input) } else { Box::new(Decoded::new(self, input)) }
    }

    /// Whether a byte means nothing, for encodings of one byte a letter.
    fn leaves_out(self, byte: u8) -> bool {
        match self {
            Self::Latin1 => (0x80..0xa0).contains(&byte),
            Self::Windows1252 => UNDEFINED.contains(&byte),
            Self::Utf8 | Self::Utf16 | Self::Utf16Le | Self::Utf16Be => false,
        }
    }
}

/// What a file that is read under the wrong name may be, by its first bytes.
pub(super) fn guess(head: &[u8]) -> Option<Encoding> {
    match head {
        [0xef, 0xbb, 0xbf, ..] => Some(Encoding::Utf8),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some(Encoding::Utf16),
        [a, 0, b, 0, ..] if *a != 0 && *b != 0 => Some(Encoding::Utf16Le),
        [0, a, 0, b, ..] if *a != 0 && *b != 0 => Some(Encoding::Utf16Be),
        _ => None,
    }
}

/// How many letters of several bytes in UTF-8 some bytes have, and how many bytes that are not UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Utf8Letters {
    pub letters: usize,
    pub others: usize,
}

impl Utf8Letters {
    pub fn of(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        for chunk in bytes.utf8_chunks() {
            found.letters += chunk.valid().chars().filter(|letter| !letter.is_ascii()).count();
            found.others += usize::from(!chunk.invalid().is_empty());
        }
        found
    }

    /// Whether the text is UTF-8, perhaps with some damage: letters of one byte each rarely spell it by chance.
    pub const fn are_the_most(self) -> bool {
        self.letters > 0 && self.letters >= self.others
    }
}

/// Letters in UTF-8 for each other byte from which on a text under the name of another encoding is refused.
const SURELY_UTF8: usize = 8;

/// How many bytes at the end begin a letter of UTF-8 whose other bytes are still to come.
fn incomplete(bytes: &[u8]) -> usize {
    let begins = |count: usize| {
        let (lead, rest) = bytes[bytes.len() - count..].split_first().expect("at least one byte");
        let length = match lead {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 0,
        };
        length > count && rest.iter().all(|byte| (0x80..0xc0).contains(byte))
    };
    (1..=bytes.len().min(3)).find(|&count| begins(count)).unwrap_or(0)
}

/// A reader of UTF-8 over one of another encoding.
struct Decoded<R> {
    encoding: Encoding,
    input: R,
    decoder: Option<encoding_rs::Decoder>,
    /// Raw bytes that are read and not yet decoded, and how many went before them.
    raw: Vec<u8>,
    offset: u64,
    is_ended: bool,
    /// What of it, under an encoding of one byte a letter, would be UTF-8.
    utf8: Utf8Letters,
    /// The beginning of a letter of UTF-8 that is not counted yet.
    cut: Vec<u8>,
    /// Decoded text that is not yet handed out.
    text: Vec<u8>,
    given: usize,
    /// What stopped the decoding; told when everything before it is handed out.
    fault: Option<String>,
}

impl<R: Read> Decoded<R> {
    fn new(encoding: Encoding, input: R) -> Self {
        let (raw, text) = (Vec::new(), Vec::new());
        let (is_ended, fault, decoder) = (false, None, None);
        let (utf8, cut) = (Utf8Letters::default(), Vec::new());
        let (offset, given) = (0, 0);
        Self { encoding, input, decoder, raw, offset, is_ended, utf8, cut, text, given, fault }
    }

    /// Decodes one more chunk into `text`.
    fn advance(&mut self) -> io::Result<()> {
        let start = self.raw.len();
        self.raw.resize(start + CHUNK, 0);
        let count = self.input.read(&mut self.raw[start..])?;
        self.raw.truncate(start + count);
        self.is_ended = count == 0;
        self.count_utf8(start);
        if self.decoder.is_none() && (self.raw.len() >= 4 || self.is_ended) {
            self.decoder = self.start();
        }
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        let bad = self.raw.iter().position(|&byte| self.encoding.leaves_out(byte));
        let good = bad.unwrap_or(self.raw.len());
        let most = decoder.max_utf8_buffer_length_without_replacement(good);
        self.text.resize(most.unwrap_or(4 * CHUNK), 0);
        let last = self.is_ended || bad.is_some();
        let (result, read, written) =
            decoder.decode_to_utf8_without_replacement(&self.raw[..good], &mut self.text, last);
        self.text.truncate(written);
        match (result, bad) {
            (DecoderResult::Malformed(length, after), _) => {
                let place = self.offset + (read as u64) - u64::from(length) - u64::from(after);
                self.fault = Some(format!("an incomplete character at byte {}", place + 1));
            }
            (DecoderResult::InputEmpty | DecoderResult::OutputFull, Some(place)) => {
                let (byte, place) = (self.raw[place], self.offset + place as u64 + 1);
                self.fault = Some(format!("the byte {byte:#04x} at byte {place}"));
            }
            (DecoderResult::InputEmpty | DecoderResult::OutputFull, None) => {}
        }
        self.offset += read as u64;
        self.raw.drain(..read);
        Ok(())
    }

    /// Counts what is UTF-8 in bytes under the name of an encoding that gives every byte a letter; a fault at the
    /// end where they are it: nothing else would say that the letters are wrong.
    fn count_utf8(&mut self, start: usize) {
        if !matches!(self.encoding, Encoding::Latin1 | Encoding::Windows1252) {
            return;
        }
        // A letter that is cut at the end is counted when the rest of it has come.
        let bytes = [&self.cut[..], &self.raw[start..]].concat();
        let cut = if self.is_ended { 0 } else { incomplete(&bytes) };
        let (whole, cut) = bytes.split_at(bytes.len() - cut);
        let Utf8Letters { letters, others } = Utf8Letters::of(whole);
        self.cut = cut.to_vec();
        self.utf8.letters += letters;
        self.utf8.others += others;
        if self.is_ended && self.utf8.letters >= SURELY_UTF8 * self.utf8.others.max(1) {
            self.fault = Some("letters that are UTF-8 in the whole file".to_owned());
        }
    }

    /// The decoder by the first bytes, whose mark is dropped; a fault where they cannot be it.
    fn start(&mut self) -> Option<encoding_rs::Decoder> {
        let mark = self.raw.first_chunk::<2>();
        let named = match self.encoding {
            Encoding::Latin1 | Encoding::Windows1252 => match guess(&self.raw) {
                None => WINDOWS_1252,
                Some(other) => {
                    self.fault = Some(format!("the beginning of a file in {}", other.name()));
                    return None;
                }
            },
            Encoding::Utf16Le => UTF_16LE,
            Encoding::Utf16Be => UTF_16BE,
            Encoding::Utf8 | Encoding::Utf16 => match mark {
                Some([0xfe, 0xff]) => UTF_16BE,
                Some([0xff, 0xfe]) => UTF_16LE,
                None if self.raw.is_empty() => UTF_16LE,
                Some(_) | None => {
                    self.fault = Some("no byte order mark".to_owned());
                    return None;
                }
            },
        };
        Some(named.new_decoder_with_bom_removal())
    }
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.given == self.text.len() {
            if let Some(fault) = &self.fault {
                return Err(io::Error::new(io::ErrorKind::InvalidData, fault.clone()));
            }
            if self.is_ended {
                return Ok(0);
            }
            self.given = 0;
            self.text.clear();
            self.advance()?;
        }
        let count = out.len().min(self.text.len() - self.given);
        out[..count].copy_from_slice(&self.text[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out one byte at a time, so that every letter is cut somewhere.
    struct Slow(std::vec::IntoIter<u8>);

    impl Read for Slow {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let Some(byte) = self.0.next() else { return Ok(0) };
            out[0] = byte;
            Ok(1)
        }
    }

    fn decode(encoding: Encoding, bytes: &[u8]) -> Result<String, String> {
        let read = |mut reader: Box<dyn Read>| {
            let mut text = Vec::new();
            let outcome = reader.read_to_end(&mut text);
            let text = String::from_utf8(text).unwrap();
            outcome.map(|_| text.clone()).map_err(|error| format!("{text}|{error}"))
        };
        let whole = read(encoding.decoded(io::Cursor::new(bytes.to_vec())));
        let slow: Vec<u8> = bytes.to_vec();
        let slow = read(encoding.decoded(Slow(slow.into_iter())));
        assert_eq!(whole, slow);
        whole
    }

    fn utf16(text: &str, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(order).collect()
    }

    #[test]
    fn every_encoding_gives_the_same_text() {
        let text = "na\u{ef}ve caf\u{e9} \u{b5}g\n";
        let latin: Vec<u8> = text.chars().map(|letter| letter as u8).collect();
        assert_eq!(decode(Encoding::Latin1, &latin).unwrap(), text);
        assert_eq!(decode(Encoding::Windows1252, &latin).unwrap(), text);
        let long = format!("{text}\u{1f642}\u{4f60}").repeat(3000);
        for encoding in [Encoding::Utf16Le, Encoding::Utf16] {
            let marked = [vec![0xff, 0xfe], utf16(&long, u16::to_le_bytes)].concat();
            assert_eq!(decode(encoding, &marked).unwrap(), long);
        }
        for encoding in [Encoding::Utf16Be, Encoding::Utf16] {
            let marked = [vec![0xfe, 0xff], utf16(&long, u16::to_be_bytes)].concat();
            assert_eq!(decode(encoding, &marked).unwrap(), long);
        }
        assert_eq!(
            decode(Encoding::Utf16Be, &utf16("x\u{e9}", u16::to_be_bytes)).unwrap(),
            "x\u{e9}"
        );
        assert_eq!(
            decode(Encoding::Windows1252, b"\x93x\x94 \x80").unwrap(),
            "\u{201c}x\u{201d} \u{20ac}"
        );
        assert_eq!(decode(Encoding::Utf16, b"").unwrap(), "");
    }

    #[test]
    fn a_text_in_utf8_under_another_name_is_refused_at_its_end() {
        let text = "Fi\u{e8}vre, c\u{153}ur, \u{e9}t\u{e9}\n".repeat(3);
        let refused = decode(Encoding::Windows1252, text.as_bytes()).unwrap_err();
        assert!(refused.ends_with("|letters that are UTF-8 in the whole file"), "{refused}");
        // A capital before a quote looks like UTF-8 by chance.
        let by_chance = b"a \x93MEN\xdc\x94 and caf\xe9\n".repeat(3);
        assert!(decode(Encoding::Windows1252, &by_chance).is_ok());
        assert!(!Utf8Letters::of(&by_chance).are_the_most());
        let damaged = [text.as_bytes(), b"caf\xe9\n"].concat();
        assert!(Utf8Letters::of(&damaged).are_the_most());
    }

    #[test]
    fn what_an_encoding_does_not_define_is_refused_at_its_byte() {
        let refused = |encoding, bytes: &[u8]| decode(encoding, bytes).unwrap_err();
        assert_eq!(refused(Encoding::Latin1, b"say \x93x"), "say |the byte 0x93 at byte 5");
        assert_eq!(refused(Encoding::Windows1252, b"ab\x81"), "ab|the byte 0x81 at byte 3");
        assert_eq!(refused(Encoding::Utf16, b"text"), "|no byte order mark");
        assert_eq!(refused(Encoding::Utf16Le, b"a\0b\0c"), "ab|an incomplete character at byte 5");
        let lone = [utf16("ab", u16::to_le_bytes), vec![0x00, 0xd8], utf16("c", u16::to_le_bytes)];
        assert_eq!(
            refused(Encoding::Utf16Le, &lone.concat()),
            "ab|an incomplete character at byte 5"
        );
        let marked = refused(Encoding::Latin1, b"\xef\xbb\xbftext");
        assert_eq!(marked, "|the beginning of a file in utf-8");
    }
}
