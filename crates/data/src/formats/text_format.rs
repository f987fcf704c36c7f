//! How rows to predict are written.

use std::path::Path;

/// How texts are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// One JSON object a line.
    JsonLines,
    /// Comma-separated with a header.
    Csv,
    /// Tab-separated with a header.
    Tsv,
    /// A text a line.
    Lines,
    /// Parquet, flat columns and lists.
    Parquet,
}

impl TextFormat {
    /// The names that it goes by on a command line.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("jsonl", Self::JsonLines),
        ("csv", Self::Csv),
        ("tsv", Self::Tsv),
        ("text", Self::Lines),
        ("parquet", Self::Parquet),
    ];

    /// The format that the end of a file's name says, gzip or not.
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let (_, end) = name.rsplit_once('.')?;
        match end {
            "jsonl" | "ndjson" | "json" => Some(Self::JsonLines),
            "csv" => Some(Self::Csv),
            "tsv" | "tab" => Some(Self::Tsv),
            "txt" | "text" => Some(Self::Lines),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}
