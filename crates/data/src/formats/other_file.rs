//! Files that people give in the place of a text: workbooks, documents, archives.
//!
//! They are known by their first bytes. Read as text they would be refused too, but for a byte somewhere
//! in them, which tells nobody that the file has to be saved in another format.

use std::path::Path;

use crate::{DataError, Result};

/// What to do with a table of another program.
const SAVE: &str = "text: save the table as CSV";
/// What to do with a document.
const COPY: &str = "text: copy its rows into a CSV file";
/// What to do with an archive.
const EXTRACT: &str = "text, plain or gzip: extract the file in it";

/// Beginnings of files that are no text, what they are, and what is expected in their place.
const KINDS: [(&[u8], &str, &str); 11] = [
    (b"%PDF-", "a PDF document", COPY),
    (b"{\\rtf", "a document in rich text format (RTF)", COPY),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a file of an old version of Excel or Word", SAVE),
    (b"SQLite format 3\0", "an SQLite database", SAVE),
    (b"PAR1", "a Parquet file", "text: set data.source = \"parquet\""),
    (b"BZh", "a file that bzip2 compressed", EXTRACT),
    (b"\xfd7zXZ\0", "a file that xz compressed", EXTRACT),
    (b"\x28\xb5\x2f\xfd", "a file that zstd compressed", EXTRACT),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", EXTRACT),
    (b"Rar!\x1a\x07", "a RAR archive", EXTRACT),
    (b"PK\x05\x06", "an empty ZIP archive", EXTRACT),
];

/// What a ZIP archive is by the names of the files in it.
const ZIPPED: [(&[u8], &str, &str); 3] = [
    (b"xl/", "an Excel workbook", SAVE),
    (b"opendocument.spreadsheet", "an OpenDocument spreadsheet", SAVE),
    (b"word/", "a Word document", COPY),
];

/// Refuses a file that begins as something else than text.
pub(super) fn refuse(head: &[u8], file: &Path) -> Result<()> {
    let kind = if head.starts_with(b"PK\x03\x04") {
        let holds = |name: &[u8]| head.windows(name.len()).any(|part| part == name);
        let known = ZIPPED.into_iter().find(|(name, ..)| holds(name));
        Some(known.unwrap_or((b"PK", "a ZIP archive", EXTRACT)))
    } else {
        KINDS.into_iter().find(|(start, ..)| head.starts_with(start))
    };
    match kind {
        None => Ok(()),
        Some((_, found, expected)) => Err(DataError::file(file, found, expected)),
    }
}

/// Whether a text is one JSON array of objects.
pub(super) fn is_json_array(head: &[u8]) -> bool {
    let mut letters = head.iter().filter(|byte| !byte.is_ascii_whitespace());
    (letters.next(), letters.next()) == (Some(&b'['), Some(&b'{'))
}

/// The error about such a text.
pub(super) fn json_array(file: &Path) -> DataError {
    let expected = "JSON lines, one object per line (jq -c '.[]' FILE converts it)";
    DataError::file(file, "one JSON array", expected)
}
