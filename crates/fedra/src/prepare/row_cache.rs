//! Rows that were tokenised once, kept for the next time in a folder that the experiment names.
//!
//! Tokens are the text in another form. So nothing is kept unless `data.cache` says where, and files are
//! their owner's alone. A file is named after the digest of all that its content follows from: the rows
//! themselves, the tokenizer, how sequences are cut, and the version of the program. It ends with a digest
//! of its own: what is torn or was changed is ignored and written anew.
//!
//! ```text
//! file    payload | SHA-256 of the payload      the payload of rows is their sequences, as postcard writes them
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use fedra_data::{AnswerRules, ChatTemplate, Encoded, Example, Tokenizer};
use fedra_plan::Digest;
use sha2::{Digest as _, Sha256};

use crate::config::Experiment;

use crate::prepare::fingerprint::digest;

/// Changes whenever the same input would be kept in another form.
const FORMAT: &str = "fedra rows 2";
/// Files that are kept, the least recently used go first.
const MOST_FILES: usize = 8;
/// An unfinished file that is older than this was left by a process that is gone.
const STALE: Duration = Duration::from_hours(24);
/// Bytes of a file's own digest.
const DIGEST: usize = 32;

/// A folder of prepared rows.
#[derive(Clone, Debug)]
pub struct RowCache {
    folder: PathBuf,
}

impl RowCache {
    /// The cache that an experiment names.
    pub fn of(experiment: &Experiment) -> Option<Self> {
        experiment.raw.data.cache.as_ref().map(Self::new)
    }

    /// The cache in a folder that is there.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Sequences of so many rows, if they are there and whole.
    pub fn sequences(&self, key: Digest, rows: usize) -> Option<Vec<Vec<Encoded>>> {
        let payload = self.read(&format!("{key}.rows"))?;
        let (found, rest): (Vec<Vec<Encoded>>, _) = postcard::take_from_bytes(&payload).ok()?;
        (rest.is_empty() && found.len() == rows).then_some(found)
    }

    /// Keeps the sequences of rows.
    pub fn keep_sequences(&self, key: Digest, rows: &[Vec<Encoded>]) -> io::Result<()> {
        let write = |out: &mut dyn Write| postcard::to_io(rows, out).map(drop);
        self.write(&format!("{key}.rows"), &mut |out| write(out).map_err(io::Error::other))
    }

    /// A text, if it is there and whole.
    pub fn text(&self, key: Digest) -> Option<String> {
        String::from_utf8(self.read(&format!("{key}.text"))?).ok()
    }

    /// Keeps a text.
    pub fn keep_text(&self, key: Digest, text: &str) -> io::Result<()> {
        self.write(&format!("{key}.text"), &mut |out| out.write_all(text.as_bytes()))
    }

    /// What a person should know of rows that could not be kept: they are prepared, and a run can go on.
    pub fn unkept(&self, kept: io::Result<()>) -> Option<String> {
        let folder = self.folder.display();
        kept.err().map(|error| format!("data.cache: cannot write to {folder} ({error})"))
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.folder.join(name);
        let mut payload = fs::read(&path).ok()?;
        let end = payload.len().checked_sub(DIGEST)?;
        if <[u8; DIGEST]>::from(Sha256::digest(&payload[..end]))[..] != payload[end..] {
            return None;
        }
        payload.truncate(end);
        // What was used last goes last; a folder that may only be read serves all the same.
        let used = File::options().append(true).open(&path);
        let _unmarked = used.and_then(|file| file.set_modified(SystemTime::now()));
        Some(payload)
    }

    /// Writes a file under a name of this process, and moves it to its place once it is whole.
    fn write(
        &self,
        name: &str,
        content: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let unfinished = self.folder.join(format!("{name}.{}.part", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options.open(&unfinished).and_then(|file| {
            let summed = Summed { out: file, sum: Sha256::new() };
            let mut out = BufWriter::with_capacity(1 << 18, summed);
            content(&mut out)?;
            let Summed { mut out, sum } = out.into_inner()?;
            out.write_all(&<[u8; DIGEST]>::from(sum.finalize()))?;
            out.sync_all()
        });
        let moved = written.and_then(|()| fs::rename(&unfinished, self.folder.join(name)));
        if moved.is_err() {
            let _absent = fs::remove_file(&unfinished);
        }
        moved?;
        self.sweep()
    }

    /// Removes the files that were not used for the longest time, and what others left unfinished.
    fn sweep(&self) -> io::Result<()> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            // Another process may have swept it away.
            let Ok(used) = fs::metadata(&path).and_then(|file| file.modified()) else { continue };
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some((digest, rest)) = name.split_once('.') else { continue };
            // Other files are not ours.
            if digest.len() != 2 * DIGEST || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                continue;
            }
            let is_stale = || used.elapsed().is_ok_and(|age| age > STALE);
            if rest == "rows" || rest == "text" {
                kept.push((used, path));
            } else if rest.strip_suffix(".part").is_some() && is_stale() {
                let _absent = fs::remove_file(&path);
            }
        }
        kept.sort();
        for (_, path) in kept.iter().rev().skip(MOST_FILES) {
            let _absent = fs::remove_file(path);
        }
        Ok(())
    }
}

/// What rows become under a tokenizer and these rules, as a name.
pub fn key_of_sequences(
    rows: &[&Example],
    (tokenizer, chat): (&Tokenizer, Option<&ChatTemplate>),
    (longest, rules): (usize, AnswerRules),
) -> Digest {
    let AnswerRules { length_norm, max_new_tokens, end } = rules;
    let end = end.map_or(0, |end| end as usize + 1);
    let rules =
        [usize::from(tokenizer.keeps_end()), longest, length_norm as usize, max_new_tokens, end];
    digest(|sum| {
        sum.texts(&[FORMAT, env!("CARGO_PKG_VERSION"), tokenizer.json()]);
        sum.numbers(&rules);
        if let Some(template) = chat {
            sum.text(template.source());
            let names = template.names().iter().flat_map(|(name, token)| [name, token]);
            sum.texts(&names.collect::<Vec<_>>());
        }
        for row in rows {
            sum.row(row);
        }
    })
}

/// The vocabulary of so many pieces that grows from texts, as a name.
pub fn key_of_vocabulary<T: AsRef<str>>(texts: &[T], limit: usize) -> Digest {
    digest(|sum| {
        sum.texts(&[FORMAT, env!("CARGO_PKG_VERSION"), "vocabulary"]);
        sum.numbers(&[limit, texts.len()]);
        for text in texts {
            sum.text(text.as_ref());
        }
    })
}

/// Takes the digest of what is written.
struct Summed<W> {
    out: W,
    sum: Sha256,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.sum.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use fedra_data::{Candidate, EncodedChoice, EncodedText, Target};

    use super::*;

    /// Rows of one sequence or none, with every kind of target.
    fn rows() -> Vec<Vec<Encoded>> {
        let candidate = Candidate { label: 3, ids: vec![9, 1000], length: 5 };
        let choice = EncodedChoice { prompt: 4, label: 3, candidates: vec![candidate] };
        let text = EncodedText { prompt: 2, reference: "né".to_owned() };
        let targets = [
            Target::One(3),
            Target::Many(vec![5, 6]),
            Target::PerToken(vec![None, Some(0), Some(70_000)]),
            Target::Choice(choice),
            Target::Text(text),
        ];
        let row = |id: u32| Encoded {
            ids: vec![2, id, u32::MAX],
            types: vec![0; id as usize % 3],
            target: targets[id as usize % targets.len()].clone(),
            dropped: id as usize,
            pixels: None,
        };
        let mut rows: Vec<_> = (0..299).map(|id| vec![row(id * 1001)]).collect();
        rows.push(Vec::new());
        rows
    }

    fn key(number: u8) -> Digest {
        Digest::from_bytes([number; 32])
    }

    #[test]
    fn what_was_kept_comes_back_and_anything_else_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        let cache = RowCache::new(folder.path());
        cache.keep_sequences(key(1), &rows()).unwrap();
        assert_eq!(cache.sequences(key(1), 300), Some(rows()));
        assert_eq!(cache.sequences(key(1), 299), None);
        assert_eq!(cache.sequences(key(2), 300), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_list_of_rows_or_more_than_that_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = RowCache::new(folder.path());
        let whole = postcard::to_stdvec(&rows()).unwrap();
        for payload in [&whole[..whole.len() - 1], &[&whole[..], &[0]].concat(), &[0xff; 20]] {
            cache.write(&format!("{}.rows", key(1)), &mut |out| out.write_all(payload)).unwrap();
            assert_eq!(cache.sequences(key(1), 300), None);
        }
    }

    #[test]
    fn a_file_that_was_torn_or_changed_is_absent_and_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let cache = RowCache::new(folder.path());
        let file = folder.path().join(format!("{}.rows", key(1)));
        cache.keep_sequences(key(1), &rows()).unwrap();
        let whole = fs::read(&file).unwrap();
        let mut changed = whole.clone();
        changed[40] ^= 1;
        for damaged in [&whole[..whole.len() - 1], &whole[..10], &[], &changed[..]] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(cache.sequences(key(1), 300), None);
        }
        cache.keep_sequences(key(1), &rows()).unwrap();
        assert_eq!(fs::read(&file).unwrap(), whole);
    }

    #[test]
    fn few_files_stay_those_that_were_used_last_and_nobody_elses_are_touched() {
        let folder = tempfile::tempdir().unwrap();
        let cache = RowCache::new(folder.path());
        fs::write(folder.path().join("notes.txt"), "mine").unwrap();
        for number in 0..12 {
            cache.keep_text(key(number), "x").unwrap();
            // The clock of a file system may be coarse.
            let used = SystemTime::now() - Duration::from_secs(100 - u64::from(number));
            let file = folder.path().join(format!("{}.text", key(number)));
            File::options().append(true).open(file).unwrap().set_modified(used).unwrap();
        }
        cache.keep_text(key(20), "y").unwrap();
        let there = |number| cache.text(key(number)).is_some();
        assert!(there(20) && there(11) && there(5) && !there(4) && !there(0));
        assert!(folder.path().join("notes.txt").exists());
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_may_read_what_is_kept() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        RowCache::new(folder.path()).keep_sequences(key(1), &rows()).unwrap();
        let file = folder.path().join(format!("{}.rows", key(1)));
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
