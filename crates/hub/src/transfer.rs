//! One file from the hub to a place on the disk: it resumes, and nothing is believed that was not hashed.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Duration;

use ureq::Body;
use ureq::http::{HeaderMap, Response};

use crate::error::HubError;
use crate::http::{ATTEMPTS, Ask, Failure, Http};
use crate::listing::{Listing, RemoteFile, refusal};

/// Bytes that are read at a time.
const PIECE: usize = 1 << 16;

/// A file on its way.
pub(crate) struct Transfer<'a> {
    pub(crate) http: &'a Http,
    pub(crate) listing: &'a Listing,
    pub(crate) file: &'a RemoteFile,
    /// Told how many bytes of the file are here; says whether to go on.
    pub(crate) told: &'a dyn Fn(u64) -> bool,
}

impl Transfer<'_> {
    /// Brings the whole file to this place, where a part of it may be. Returns how many bytes came over the network.
    pub(crate) fn complete(&self, path: &Path) -> Result<u64, HubError> {
        let mut fetched = 0;
        loop {
            let had = fs::metadata(path).map_or(0, |it| it.len()).min(self.file.size);
            fetched += self.bring(path)?;
            let content = File::open(path).map_err(HubError::disk("read", path))?;
            let found = self.file.hash.of(self.file.size, content);
            let found = found.map_err(HubError::disk("read", path))?;
            if found == self.file.hash {
                return Ok(fetched);
            }
            fs::remove_file(path).map_err(HubError::disk("remove", path))?;
            // What an earlier attempt left may have been the wrong part.
            if had == 0 {
                return Err(HubError::Hash {
                    name: self.listing.name.to_string(),
                    file: self.file.name.clone(),
                    found: found.digits().to_owned(),
                    expected: self.file.hash.digits().to_owned(),
                });
            }
        }
    }

    /// Brings bytes until there are as many as the file has.
    fn bring(&self, path: &Path) -> Result<u64, HubError> {
        let options = OpenOptions::new().write(true).create(true).truncate(false).clone();
        let mut part = options.open(path).map_err(HubError::disk("write", path))?;
        let (mut fetched, mut failed) = (0, 0);
        loop {
            let mut have = part.metadata().map_err(HubError::disk("read", path))?.len();
            if have > self.file.size {
                part.set_len(0).map_err(HubError::disk("write", path))?;
                have = 0;
            }
            if !(self.told)(have) {
                return Err(HubError::Stopped(self.file.name.clone()));
            }
            if have == self.file.size {
                part.sync_all().map_err(HubError::disk("write", path))?;
                return Ok(fetched);
            }
            let before = fetched;
            match self.attempt((&mut part, path), have, &mut fetched) {
                Ok(()) => {}
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Again(error, wait)) => {
                    // A connection that breaks after it brought something may break as often as it likes.
                    failed = if fetched > before { 1 } else { failed + 1 };
                    if failed >= ATTEMPTS {
                        return Err(error);
                    }
                    self.wait(failed, wait, have)?;
                }
            }
        }
    }

    fn wait(&self, failed: u32, wait: Option<Duration>, have: u64) -> Result<(), HubError> {
        let stopped = |_| HubError::Stopped(self.file.name.clone());
        self.http.wait(failed, wait, &|| (self.told)(have)).map_err(stopped)
    }

    /// One request for the bytes that are missing.
    fn attempt(
        &self,
        (part, path): (&mut File, &Path),
        have: u64,
        fetched: &mut u64,
    ) -> Result<(), Failure> {
        let address = self.listing.address(&self.file.name);
        let odd = |found: &str, expected: &str| self.http.odd(&address, found, expected);
        let disk = || HubError::disk("write", path);
        let reply = self.http.ask(&address, Ask::From(have))?;
        let start = match reply.status().as_u16() {
            // Without a range, or from a server that knows none: everything from the beginning.
            200 => 0,
            206 if is_rest(reply.headers(), have, self.file.size) => have,
            status @ (206 | 416) => {
                // Whatever this part is, it does not continue ours.
                part.set_len(0).map_err(disk())?;
                let found = format!("another range than the bytes from {have} on (HTTP {status})");
                return Err(Failure::Again(odd(&found, "these bytes"), None));
            }
            status => {
                let told = (status, reply.headers());
                return Err(
                    refusal(self.http, &self.listing.name, told, Some(&self.file.name)).into()
                );
            }
        };
        if let Some(coding) = reply.headers().get("content-encoding").filter(|it| *it != "identity")
        {
            return Err(odd(&format!("content in the encoding {coding:?}"), "plain content").into());
        }
        if start == 0 {
            part.set_len(0).map_err(disk())?;
        }
        part.seek(SeekFrom::Start(start)).map_err(disk())?;
        self.copy(reply, (part, path), start, fetched)
    }

    fn cut_off(&self, have: u64, error: &std::io::Error) -> HubError {
        self.http.cut_off((&self.file.name, self.file.size), have, error)
    }

    fn copy(
        &self,
        reply: Response<Body>,
        (part, path): (&mut File, &Path),
        mut have: u64,
        fetched: &mut u64,
    ) -> Result<(), Failure> {
        let mut body = reply.into_body().into_with_config().limit(u64::MAX).reader();
        let mut piece = vec![0; PIECE];
        loop {
            let count = body
                .read(&mut piece)
                .map_err(|error| Failure::Again(self.cut_off(have, &error), None))?;
            if count == 0 {
                break;
            }
            have += count as u64;
            if have > self.file.size {
                let _removed = part.set_len(0);
                let found = format!("more than the {} bytes of the file", self.file.size);
                return Err(self.http.odd(&self.file.name, &found, "as many as announced").into());
            }
            part.write_all(&piece[..count]).map_err(HubError::disk("write", path))?;
            *fetched += count as u64;
            if !(self.told)(have) {
                return Err(HubError::Stopped(self.file.name.clone()).into());
            }
        }
        if have < self.file.size {
            let error = std::io::ErrorKind::UnexpectedEof.into();
            return Err(Failure::Again(self.cut_off(have, &error), None));
        }
        Ok(())
    }
}

/// Whether a part of a file is the rest that was asked for: `bytes 5-9/10`.
fn is_rest(headers: &HeaderMap, from: u64, size: u64) -> bool {
    let range = headers.get("content-range").and_then(|range| range.to_str().ok());
    let Some((range, whole)) =
        range.and_then(|range| range.strip_prefix("bytes ")?.split_once('/'))
    else {
        return false;
    };
    let start = range.split_once('-').and_then(|(start, _)| start.trim().parse().ok());
    let is_whole = whole.trim() == "*" || whole.trim().parse() == Ok(size);
    from > 0 && start == Some(from) && is_whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_counts_only_where_ours_ends() {
        let is = |range: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("content-range", range.parse().unwrap());
            is_rest(&headers, 5, 10)
        };
        assert!(is("bytes 5-9/10") && is("bytes 5-9/*"));
        for wrong in
            ["bytes 0-9/10", "bytes 5-9/11", "bytes 6-9/10", "items 5-9/10", "bytes */10", ""]
        {
            assert!(!is(wrong), "{wrong}");
        }
        assert!(!is_rest(&HeaderMap::new(), 5, 10));
    }
}
