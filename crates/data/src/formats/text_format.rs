//! How rows to predict are written.

use std::path::Path;

use crate::words::words;

words! {
    /// How texts are written.
    pub enum TextFormat {
        /// One JSON object a line.
        JsonLines = "jsonl",
        /// Comma-separated with a header.
        Csv = "csv",
        /// Tab-separated with a header.
        Tsv = "tsv",
        /// A text a line.
        Lines = "text",
        /// Parquet, flat columns and lists.
        Parquet = "parquet",
    }
}

impl TextFormat {
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
