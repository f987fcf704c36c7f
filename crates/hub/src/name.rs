//! The name of a model of the hub: `hf:ORG/NAME`, or `hf:ORG/NAME@REVISION`.
//!
//! Names become paths and addresses, so nothing passes here that could climb out of a folder or mean another address.

use std::fmt;
use std::str::FromStr;

use crate::error::HubError;

/// A repository, and perhaps a revision of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelName {
    repository: String,
    revision: Option<String>,
}

/// What stands before the name.
const PREFIX: &str = "hf:";
/// The branch that is meant where no revision is named.
const MAIN: &str = "main";
/// Most characters of either part of a repository's name, as the hub has it.
const LONGEST_PART: usize = 96;
/// Most characters of a branch or tag.
const LONGEST_REVISION: usize = 200;
/// Digits of a commit's hash.
const COMMIT: usize = 40;

impl ModelName {
    /// Whether a path is meant as such a name.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// The repository, `ORG/NAME`; old ones have no organisation.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The branch, tag or commit.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }

    /// The commit, where the name says which: it then always means the same files.
    pub fn commit(&self) -> Option<&str> {
        self.revision.as_deref().filter(|revision| is_commit(revision))
    }

    /// The same repository at this commit.
    pub(crate) fn at(&self, commit: &str) -> Self {
        Self { revision: Some(commit.to_owned()), ..self.clone() }
    }

    /// The folder of the repository in the cache.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}", self.repository.replace('/', "--"))
    }
}

impl FromStr for ModelName {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self, HubError> {
        let wrong = |expected| HubError::Name { found: text.to_owned(), expected };
        let named =
            || wrong("hf:ORG/NAME or hf:ORG/NAME@REVISION, as in hf:google-bert/bert-base-uncased");
        let rest = text.strip_prefix(PREFIX).ok_or_else(named)?;
        if rest.contains("://") || rest.starts_with('/') {
            return Err(wrong(
                "hf:ORG/NAME, without the address of a server (HF_ENDPOINT names another one)",
            ));
        }
        let (repository, revision) = match rest.split_once('@') {
            Some((repository, revision)) => (repository, Some(revision)),
            None => (rest, None),
        };
        let parts: Vec<&str> = repository.split('/').collect();
        if parts.len() > 2 || !parts.iter().all(|part| is_part(part)) {
            return Err(named());
        }
        if revision.is_some_and(|revision| !is_revision(revision)) {
            return Err(wrong(
                "a branch, a tag or the 40 hexadecimal digits of a commit behind the @",
            ));
        }
        Ok(Self { repository: repository.to_owned(), revision: revision.map(str::to_owned) })
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PREFIX}{}", self.repository)?;
        self.revision.as_ref().map_or(Ok(()), |revision| write!(formatter, "@{revision}"))
    }
}

/// Whether a text is the hash of a commit.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == COMMIT && is_hexadecimal(text)
}

/// Whether a text is digits of a hash, as git and the hub write them.
pub(crate) fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// The hub's own rule for either part of a repository's name.
fn is_part(part: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_edge = |letter: char| letter == '-' || letter == '.';
    !part.is_empty()
        && part.len() <= LONGEST_PART
        && part.chars().all(is_letter)
        && !part.starts_with(is_edge)
        && !part.ends_with(is_edge)
        && !part.contains("--")
        && !part.contains("..")
        && !part.strip_suffix("git").is_some_and(|rest| rest.ends_with('.'))
}

/// What git takes for a branch or a tag, less what would be odd in a path.
fn is_revision(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.+".contains(letter);
    text.len() <= LONGEST_REVISION
        && text.split('/').all(|part| {
            !part.is_empty()
                && part.chars().all(is_letter)
                && !part.starts_with(['.', '-'])
                && !part.ends_with('.')
                && !part.contains("..")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_and_written_alike() {
        let commit = "a".repeat(40);
        for (text, repository, revision) in [
            ("hf:gpt2", "gpt2", "main"),
            ("hf:org/name", "org/name", "main"),
            ("hf:org-1/Name_2.5@v1.0", "org-1/Name_2.5", "v1.0"),
            ("hf:org/name@refs/pr/3", "org/name", "refs/pr/3"),
        ] {
            let name: ModelName = text.parse().unwrap();
            assert_eq!((name.repository(), name.revision()), (repository, revision));
            assert_eq!(name.to_string(), text);
            assert_eq!(name.commit(), None);
            assert_eq!(name.at(&commit).commit(), Some(commit.as_str()));
        }
        let name: ModelName = "hf:org/name".parse().unwrap();
        assert_eq!(name.folder(), "models--org--name");
    }

    #[test]
    fn a_name_that_climbs_or_is_an_address_is_refused() {
        for text in [
            "hf:",
            "hf:/",
            "hf:org/",
            "hf:/name",
            "hf:../name",
            "hf:org/..",
            "hf:a/b/c",
            "hf:org/na me",
            "hf:org/name.git",
            "hf:org--x/name",
            "hf:org/name@",
            "hf:org/name@../x",
            "hf:org/name@a//b",
            "hf:org/name@a\\b",
            "hf:org/name@-x",
            "hf:org/name@a\0b",
            "hf:https://huggingface.co/org/name",
            "hf://org/name",
            "hf:org/näme",
        ] {
            let error = text.parse::<ModelName>().unwrap_err().to_string();
            assert!(error.contains("expected"), "{error}");
        }
    }
}
