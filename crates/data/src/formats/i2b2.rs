//! The layout of the i2b2 2010 challenge: `txt/NAME.txt` and `concept/NAME.con`.
//!
//! A line of text is a sentence of blank-separated words; a line of a concept file marks words by
//! line (from 1) and word (from 0): `c="the chest x-ray" 12:3 12:5||t="test"`. A root that holds
//! several such pairs of directories, as the original does for its institutions, gives each
//! institution as a client. The quoted words must be the words at that place: annotation that has
//! slipped by a word would otherwise be learnt without a sound.

use std::fs;
use std::path::{Path, PathBuf};

use super::reader::Reader;
use super::source::Source;
use crate::{DataError, Result, Row, TableBuilder};

/// Reads all notes, institutions and files in the order of their names.
pub(super) fn read(reader: &Reader, root: &Path, builder: &mut TableBuilder) -> Result<()> {
    if root.join("txt").is_dir() {
        return institution(reader, root, None, builder);
    }
    let mut found = false;
    for part in entries(root)? {
        if part.join("txt").is_dir() {
            let client = part.file_name().map(|name| name.to_string_lossy().into_owned());
            institution(reader, &part, client.as_deref(), builder)?;
            found = true;
        }
    }
    if found {
        return Ok(());
    }
    Err(DataError::file(root, "no directory txt", "txt/*.txt and concept/*.con"))
}

fn institution(
    reader: &Reader,
    root: &Path,
    client: Option<&str>,
    builder: &mut TableBuilder,
) -> Result<()> {
    for text in entries(&root.join("txt"))? {
        if text.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let name = text.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let mut note = Note::read(reader, &text)?;
        note.mark(reader, &root.join("concept").join(format!("{name}.con")))?;
        let document = client.map_or_else(|| name.clone(), |client| format!("{client}/{name}"));
        for (number, (words, tags)) in note.words.into_iter().zip(note.tags).enumerate() {
            if words.is_empty() {
                continue;
            }
            let mut row = Row::words(words).with_labels(tags).with_document(&document);
            row.client = client.map(str::to_owned);
            reader.push(Ok(row), (&text, number as u64 + 1), builder)?;
        }
    }
    Ok(())
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let listed = fs::read_dir(directory)
        .and_then(|list| list.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>());
    let mut paths = listed.map_err(|e| DataError::io("list", directory, e))?;
    paths.sort();
    Ok(paths)
}

/// A note line by line.
struct Note {
    words: Vec<Vec<String>>,
    tags: Vec<Vec<String>>,
}

impl Note {
    fn read(reader: &Reader, file: &Path) -> Result<Self> {
        let mut source = Source::open(file, reader)?;
        let mut words = Vec::new();
        while let Some(line) = source.next_line()? {
            words.push(line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        }
        let tags = words.iter().map(|line| vec!["O".to_owned(); line.len()]).collect();
        Ok(Self { words, tags })
    }

    /// Writes the concepts of a file into the tags; of two that overlap the longer stays.
    fn mark(&mut self, reader: &Reader, file: &Path) -> Result<()> {
        let mut source = Source::open(file, reader)?;
        let mut concepts = Vec::new();
        while let Some(line) = source.next_line()? {
            if line.trim().is_empty() {
                continue;
            }
            let concept = Concept::parse(line.trim_end())
                .ok_or_else(|| {
                    let expected = "c=\"WORDS\" LINE:WORD LINE:WORD||t=\"TYPE\"".to_owned();
                    (format!("{line:?}"), expected)
                })
                .and_then(|concept| self.place(&concept).map(|places| (concept.kind, places)))
                .map_err(|(found, expected)| DataError::row(file, source.line, found, expected))?;
            concepts.push(concept);
        }
        concepts.sort_by_key(|(_, places)| std::cmp::Reverse(places.len()));
        for (kind, places) in concepts {
            if places.iter().any(|&(line, word)| self.tags[line][word] != "O") {
                continue;
            }
            let mut before = None;
            for (line, word) in places {
                let prefix = if before == Some(line) { 'I' } else { 'B' };
                self.tags[line][word] = format!("{prefix}-{kind}");
                before = Some(line);
            }
        }
        Ok(())
    }

    /// The words of a concept as (line, word) from 0, after comparing them with its quotation.
    fn place(&self, concept: &Concept) -> Result<Vec<(usize, usize)>, (String, String)> {
        let outside = |found: String| (found, format!("a place in the {} lines", self.words.len()));
        let mut places = Vec::new();
        for line in concept.start.0..=concept.end.0 {
            let number = line.checked_sub(1).filter(|&number| number < self.words.len());
            let number = number.ok_or_else(|| outside(format!("line {line}")))?;
            let count = self.words[number].len();
            let first = if line == concept.start.0 { concept.start.1 } else { 0 };
            let last = if line == concept.end.0 { concept.end.1.saturating_add(1) } else { count };
            if last > count {
                return Err(outside(format!("word {line}:{}", last - 1)));
            }
            places.extend((first..last).map(|word| (number, word)));
        }
        let there = places.iter().map(|&(line, word)| self.words[line][word].to_lowercase());
        let there = there.collect::<Vec<_>>().join(" ");
        let quoted = concept.text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        if there != quoted || places.is_empty() {
            return Err((format!("concept {quoted:?}"), format!("the words there, {there:?}")));
        }
        Ok(places)
    }
}

struct Concept {
    text: String,
    start: (usize, usize),
    end: (usize, usize),
    kind: String,
}

impl Concept {
    fn parse(line: &str) -> Option<Self> {
        let (marked, kind) = line.strip_prefix("c=\"")?.rsplit_once("||t=\"")?;
        let (text, places) = marked.rsplit_once("\" ")?;
        let (start, end) = places.split_once(' ')?;
        let place = |text: &str| {
            let (line, word) = text.split_once(':')?;
            Some((line.parse().ok()?, word.parse().ok()?))
        };
        let kind = kind.strip_suffix('"')?.to_owned();
        let (start, end) = (place(start)?, place(end)?);
        (start <= end && !kind.is_empty()).then(|| Self { text: text.to_owned(), start, end, kind })
    }
}
