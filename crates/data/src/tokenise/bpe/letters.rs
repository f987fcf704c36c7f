//! A letter for every byte, so that any text is a word of known letters (GPT-2).
//!
//! Printable bytes are their own Latin-1 letter; the other 68 take letters from U+0100 on, in
//! order. A blank becomes `Ġ`, a line's end `Ċ`.

/// The table, both ways.
pub(super) struct ByteLetters;

impl ByteLetters {
    /// The letters of a text's bytes.
    pub fn of(text: &str) -> String {
        text.bytes().map(letter).collect()
    }

    /// The bytes of letters; a letter that stands for no byte keeps its own bytes.
    pub fn bytes(letters: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(letters.len());
        for letter in letters.chars() {
            match byte(letter) {
                Some(byte) => out.push(byte),
                None => out.extend(letter.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        out
    }
}

fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

fn letter(byte: u8) -> char {
    if is_printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&lower| !is_printable(lower)).count() as u32;
    char::from_u32(0x100 + rank).expect("256 to 323 are letters")
}

fn byte(letter: char) -> Option<u8> {
    match u32::from(letter) {
        low @ 0..=0xff => Some(low as u8).filter(|&byte| is_printable(byte)),
        high => (0..=u8::MAX).filter(|&byte| !is_printable(byte)).nth((high - 0x100) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_letter_of_its_own() {
        assert_eq!(ByteLetters::of("a b\n\u{e9}"), "a\u{120}b\u{10a}\u{c3}\u{a9}");
        for number in 0..=u8::MAX {
            assert_eq!(byte(letter(number)), Some(number));
        }
        assert_eq!((byte('\u{144}'), byte(' '), byte('\u{ad}')), (None, None, None));
    }
}
