//! `CoNLL`: one word a line, its tag in the last column, a blank line after each sentence.
//!
//! Lines `# doc = NAME` (or `-DOCSTART-`) open a document and `# client = NAME` says who owns what
//! follows. A word may itself be `#`, so only those lines and `# key = value` comments are taken
//! as comments.

use std::path::Path;

use super::reader::Reader;
use super::source::Source;
use crate::{DataError, Result, Row, Stage, TableBuilder, Work};

/// Reads sentences as rows; documents without a name are numbered.
pub(super) fn read(
    reader: &Reader,
    (path, work): (&Path, &Work<'_>),
    builder: &mut TableBuilder,
) -> Result<()> {
    let mut source = Source::open(path, reader)?;
    let total = std::fs::metadata(path).map_or(0, |file| file.len());
    let mut sentence = Sentence::default();
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    loop {
        let line = source.next_line()?.map(str::to_owned);
        let content = line.as_deref().unwrap_or("").trim_end();
        let number = source.line;
        if content.trim().is_empty() {
            sentence.flush(reader, (path, number.saturating_sub(1)), builder)?;
            work.tell(Stage::Reading, source.taken().min(total), total)?;
            if line.is_none() {
                return Ok(());
            }
        } else if let Some(comment) = Comment::parse(content) {
            sentence.flush(reader, (path, number.saturating_sub(1)), builder)?;
            match comment {
                Comment::Document(name) => {
                    sentence.documents += 1;
                    let numbered = || format!("{stem}/{}", sentence.documents);
                    sentence.document = Some(name.unwrap_or_else(numbered));
                }
                Comment::Client(name) => sentence.client = Some(name),
                Comment::Other => {}
            }
        } else {
            let (word, tag) = cells(content).ok_or_else(|| {
                let found = format!("{content:?}");
                DataError::row(path, number, found, "a word and its tag in separate columns")
            })?;
            sentence.words.push(word.to_owned());
            sentence.tags.push(tag.to_owned());
        }
    }
}

#[derive(Default)]
struct Sentence {
    words: Vec<String>,
    tags: Vec<String>,
    document: Option<String>,
    documents: usize,
    client: Option<String>,
}

impl Sentence {
    fn flush(
        &mut self,
        reader: &Reader,
        place: (&Path, u64),
        builder: &mut TableBuilder,
    ) -> Result<()> {
        if self.words.is_empty() {
            return Ok(());
        }
        let words = std::mem::take(&mut self.words);
        let mut row = Row::words(words).with_labels(std::mem::take(&mut self.tags));
        row.document.clone_from(&self.document);
        row.client.clone_from(&self.client);
        reader.push(Ok(row), place, builder)
    }
}

enum Comment {
    Document(Option<String>),
    Client(String),
    Other,
}

impl Comment {
    fn parse(line: &str) -> Option<Self> {
        if line.starts_with("-DOCSTART-") {
            return Some(Self::Document(None));
        }
        let rest = line.strip_prefix("# ").filter(|_| !line.contains('\t'))?;
        if let Some((key, value)) = rest.split_once(" = ") {
            let value = value.trim().to_owned();
            return Some(match key.trim() {
                "doc" | "newdoc" | "newdoc id" => Self::Document(Some(value)),
                "client" => Self::Client(value),
                _ => Self::Other,
            });
        }
        let name = rest.strip_prefix("doc")?.trim();
        Some(Self::Document((!name.is_empty()).then(|| name.to_owned())))
    }
}

/// First and last column; tabs separate where there is one, otherwise blanks.
fn cells(line: &str) -> Option<(&str, &str)> {
    let (word, tag) = if line.contains('\t') {
        (line.split('\t').next()?, line.rsplit('\t').next()?)
    } else {
        let mut parts = line.split_whitespace();
        (parts.next()?, parts.next_back()?)
    };
    (!word.is_empty() && !tag.is_empty()).then_some((word, tag))
}
