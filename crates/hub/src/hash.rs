//! The hash that the hub names a file by: SHA-256 of a large file, git's SHA-1 of a small one.

use std::fmt::Write as _;
use std::io::{self, Read};

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

use crate::name::is_hexadecimal;

/// Digits of either.
const SHA256_DIGITS: usize = 64;
const SHA1_DIGITS: usize = 40;
/// Bytes that are read at a time.
const PIECE: usize = 1 << 16;

/// An `ETag` that is a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileHash(String);

impl FileHash {
    /// Reads a header's value; none where it is not a hash, so that nothing could be checked.
    pub(crate) fn parse(etag: &str) -> Option<Self> {
        let etag = etag.trim();
        let digits = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
        let is_hash = [SHA1_DIGITS, SHA256_DIGITS].contains(&digits.len());
        (is_hash && is_hexadecimal(digits)).then(|| Self(digits.to_owned()))
    }

    /// Its digits, which are also the name of the content in the cache.
    pub(crate) fn digits(&self) -> &str {
        &self.0
    }

    /// The same hash of other content with this many bytes.
    pub(crate) fn of(&self, size: u64, mut content: impl Read) -> io::Result<Self> {
        let mut context = if self.0.len() == SHA256_DIGITS {
            Context::new(&SHA256)
        } else {
            let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
            // git hashes what a file is before what is in it.
            context.update(format!("blob {size}\0").as_bytes());
            context
        };
        let mut piece = vec![0; PIECE];
        loop {
            match content.read(&mut piece)? {
                0 => break,
                count => context.update(&piece[..count]),
            }
        }
        let mut digits = String::new();
        for byte in context.finish().as_ref() {
            let _written = write!(digits, "{byte:02x}");
        }
        Ok(Self(digits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hashes_are_those_of_git_and_sha256sum() {
        let git = FileHash::parse("\"ce013625030ba8dba906f756967f9e9ca394464a\"").unwrap();
        assert_eq!(git.of(6, &b"hello\n"[..]).unwrap(), git);
        let large = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let large = FileHash::parse(&format!("W/\"{large}\"")).unwrap();
        assert_eq!(large.of(6, &b"hello\n"[..]).unwrap(), large);
        assert_ne!(large.of(6, &b"hellO\n"[..]).unwrap(), large);
    }

    #[test]
    fn what_is_no_hash_names_no_content() {
        for etag in ["", "\"abc\"", "../../../../etc/passwd", &"g".repeat(64), &"A".repeat(40)] {
            assert_eq!(FileHash::parse(etag), None, "{etag}");
        }
    }
}
