//! Event files of `TensorBoard`, in a few protobuf fields and `TFRecord` framing of our own.
//!
//! ```text
//! record   length u64 | masked CRC-32C of it u32 | event | masked CRC-32C of it u32   little-endian
//! Event    1 wall_time double, 2 step int64, 3 file_version string, 5 Summary, 7 SessionLog
//! Summary  1 repeated Value { 1 tag string, 2 simple_value float }
//! ```
//!
//! There is one file. A resumed run begins a new one with all its rounds and removes the old: the
//! new name is larger, and the session's start at step 0 tells a `TensorBoard` that is watching to
//! forget what it read before. The step of a round is the number of rounds that are complete with it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::row::{ROUND, Row, Rows, SECONDS};
use fedra_engine::durable;

/// The file of a run that is on.
pub struct EventFile {
    file: File,
}

/// How the names of our files begin and end; the seconds since 1970 stand in between.
const NAME: (&str, &str) = ("events.out.tfevents.", ".fedra");

/// Whether a file of this name was written here.
pub fn is_event_file(name: &str) -> bool {
    number_in(name).is_some()
}

fn number_in(name: &str) -> Option<u64> {
    let number = name.strip_prefix(NAME.0)?.strip_suffix(NAME.1)?;
    let digits = number.len() == 10 && number.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| number.parse().ok()).flatten()
}

impl EventFile {
    /// Begins a file with all rounds so far, and removes those of earlier processes.
    pub fn create(folder: &Path, rows: &Rows) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut earlier = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            earlier
                .extend(number_in(&entry.file_name().to_string_lossy()).map(|n| (n, entry.path())));
        }
        let last = earlier.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
        let now = now();
        let number = last.max(now as u64);
        // Rounds that were complete before get times as if they had just gone by without a pause.
        let mut at = now - rows.rows.iter().map(seconds).sum::<f64>();
        let mut bytes = Vec::new();
        // The version of the file, and `SessionLog { status: START }` at step 0.
        for (field, content) in [(3, &b"brain.Event:2"[..]), (7, &[1 << 3, 1])] {
            let mut event = wall_time(at);
            bytes_field(&mut event, field, content);
            bytes.extend(record(&event));
        }
        for row in &rows.rows {
            at += seconds(row);
            bytes.extend(record(&round(at, row)));
        }
        let path = folder.join(format!("{}{number:010}{}", NAME.0, NAME.1));
        durable::write(&path, &bytes)?;
        for (_, path) in earlier {
            durable::remove(&path)?;
        }
        Ok(Self { file: File::options().append(true).open(&path)? })
    }

    /// Adds the last round.
    pub fn append(&mut self, rows: &Rows) -> io::Result<()> {
        let Some(last) = rows.rows.last() else { return Ok(()) };
        self.file.write_all(&record(&round(now(), last)))
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn cell(row: &Row, name: &str) -> f64 {
    let found = row.iter().find(|(column, _)| column.name == name);
    found.map_or(0.0, |(_, number)| number.as_f64())
}

fn seconds(row: &Row) -> f64 {
    Some(cell(row, SECONDS)).filter(|seconds| seconds.is_finite()).unwrap_or(0.0)
}

fn round(at: f64, row: &Row) -> Vec<u8> {
    let mut summary = Vec::new();
    for (column, number) in row.iter().filter(|(column, _)| column.name != ROUND) {
        let mut value = Vec::new();
        bytes_field(&mut value, 1, column.name.replace('.', "/").as_bytes());
        value.push((2 << 3) | 5);
        value.extend((number.as_f64() as f32).to_le_bytes());
        bytes_field(&mut summary, 1, &value);
    }
    let mut event = wall_time(at);
    event.push(2 << 3);
    varint(&mut event, cell(row, ROUND) as u64 + 1);
    bytes_field(&mut event, 5, &summary);
    event
}

fn wall_time(at: f64) -> Vec<u8> {
    let mut event = vec![(1 << 3) | 1];
    event.extend(at.to_le_bytes());
    event
}

fn bytes_field(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push((field << 3) | 2);
    varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

fn varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

fn record(event: &[u8]) -> Vec<u8> {
    let length = (event.len() as u64).to_le_bytes();
    let mut record = length.to_vec();
    record.extend(masked_crc(&length).to_le_bytes());
    record.extend_from_slice(event);
    record.extend(masked_crc(event).to_le_bytes());
    record
}

/// The checksum of a file that may hold checksums itself: turned, and moved by a constant.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn crc32c(bytes: &[u8]) -> u32 {
    /// Castagnoli's polynomial, its bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let bit = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        // The check value of CRC-32C, and the vectors of RFC 3720, B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn long_lengths_take_several_bytes() {
        let mut message = Vec::new();
        varint(&mut message, 300);
        assert_eq!(message, [0xac, 2]);
    }

    #[test]
    fn only_our_own_names_are_taken_for_ours() {
        assert!(is_event_file("events.out.tfevents.1700000000.fedra"));
        for name in ["events.out.tfevents.1700000000.host.1.0", "events.out.tfevents.x.fedra", "a"]
        {
            assert!(!is_event_file(name), "{name}");
        }
    }
}
