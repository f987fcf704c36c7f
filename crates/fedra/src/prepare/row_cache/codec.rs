//! Sequences as bytes and back. What does not read as sequences is none: the file that held it is ignored.

use std::io::{self, Write};

use fedra_data::{Candidate, Encoded, EncodedChoice, EncodedText, Target};

/// Writes the sequences of all rows.
pub fn write(rows: &[Vec<Encoded>], out: &mut dyn Write) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(1 << 16);
    number(rows.len() as u64, &mut bytes);
    for row in rows {
        number(row.len() as u64, &mut bytes);
        for sequence in row {
            add(sequence, &mut bytes);
        }
        if bytes.len() > 1 << 15 {
            out.write_all(&bytes)?;
            bytes.clear();
        }
    }
    out.write_all(&bytes)
}

fn add(Encoded { ids, types, target, dropped }: &Encoded, out: &mut Vec<u8>) {
    list(ids, out);
    list(types, out);
    number(*dropped as u64, out);
    match target {
        Target::One(label) => [0, u64::from(*label)].into_iter().for_each(|n| number(n, out)),
        Target::Many(labels) => {
            number(1, out);
            list(labels, out);
        }
        Target::PerToken(labels) => {
            number(2, out);
            number(labels.len() as u64, out);
            for label in labels {
                number(label.map_or(0, |label| u64::from(label) + 1), out);
            }
        }
        Target::Choice(EncodedChoice { prompt, label, candidates }) => {
            number(3, out);
            number(*prompt as u64, out);
            number(u64::from(*label), out);
            number(candidates.len() as u64, out);
            for Candidate { label, ids, length } in candidates {
                number(u64::from(*label), out);
                list(ids, out);
                number(u64::from(*length), out);
            }
        }
        Target::Text(EncodedText { prompt, reference }) => {
            number(4, out);
            number(*prompt as u64, out);
            number(reference.len() as u64, out);
            out.extend_from_slice(reference.as_bytes());
        }
    }
}

fn number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn list(values: &[u32], out: &mut Vec<u8>) {
    number(values.len() as u64, out);
    for value in values {
        number(u64::from(*value), out);
    }
}

/// The sequences of all rows, if the bytes are that and nothing more.
pub fn read(bytes: &[u8]) -> Option<Vec<Vec<Encoded>>> {
    let mut input = Input(bytes);
    let rows = input.many(|input| input.many(Input::sequence))?;
    input.0.is_empty().then_some(rows)
}

/// Bytes that are still to be read.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    /// A list whose items take a byte or more, so that no claim takes more memory than there are bytes.
    fn many<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.size().filter(|count| *count <= self.0.len())?;
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(one(self)?);
        }
        Some(all)
    }

    fn list(&mut self) -> Option<Vec<u32>> {
        self.many(Self::small)
    }

    fn sequence(&mut self) -> Option<Encoded> {
        let (ids, types, dropped) = (self.list()?, self.list()?, self.size()?);
        Some(Encoded { ids, types, target: self.target()?, dropped })
    }

    fn target(&mut self) -> Option<Target> {
        Some(match self.number()? {
            0 => Target::One(self.small()?),
            1 => Target::Many(self.list()?),
            2 => Target::PerToken(self.many(|input| Some(input.small()?.checked_sub(1)))?),
            3 => {
                let (prompt, label) = (self.size()?, self.small()?);
                let candidates = self.many(|input| {
                    let (label, ids) = (input.small()?, input.list()?);
                    Some(Candidate { label, ids, length: input.small()? })
                })?;
                Target::Choice(EncodedChoice { prompt, label, candidates })
            }
            4 => {
                let prompt = self.size()?;
                let length = self.size()?;
                let (text, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                let reference = String::from_utf8(text.to_vec()).ok()?;
                Target::Text(EncodedText { prompt, reference })
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_target_comes_back() {
        let sequence = |target| Encoded {
            ids: vec![0, 1, 127, 128, 300_000, u32::MAX],
            types: vec![0, 1],
            target,
            dropped: 7,
        };
        let candidate = Candidate { label: 3, ids: vec![9, 1000], length: 5 };
        let choice = EncodedChoice { prompt: 4, label: 3, candidates: vec![candidate] };
        let text = EncodedText { prompt: 2, reference: "né".to_owned() };
        let rows = vec![
            vec![sequence(Target::One(0)), sequence(Target::Many(vec![5, 6]))],
            vec![],
            vec![sequence(Target::PerToken(vec![None, Some(0), Some(70_000)]))],
            vec![sequence(Target::Choice(choice)), sequence(Target::Text(text))],
        ];
        let mut bytes = Vec::new();
        write(&rows, &mut bytes).unwrap();
        assert_eq!(read(&bytes), Some(rows));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), None, "{end}");
        }
        assert_eq!(read(&[bytes, vec![0]].concat()), None);
        assert_eq!(read(&[0xff; 20]), None);
    }
}
