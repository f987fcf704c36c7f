//! Settings of rows that are images: which of the others have no meaning then, and which have none for texts.

use fedra_data::{AnswerForm, LabelShape, Task};

use super::values::Result;
use crate::config::ConfigError;
use crate::config::raw_config::{RawConfig, Source};

/// Most pixels by which a crop may move an image.
const MOST_CROP: u16 = 1024;

/// Checks them.
pub(super) fn check(raw: &RawConfig, task: Task, is_images: bool) -> Result<()> {
    let data = &raw.data;
    if !is_images {
        ConfigError::only("data.augment", "to images").when(data.augment.is_some())?;
        for (key, given) in [
            ("model.image_size", raw.model.image_size.is_some()),
            ("model.patch", raw.model.patch.is_some()),
            ("model.channels", raw.model.channels.is_some()),
        ] {
            ConfigError::only(key, "to presets for images").when(given)?;
        }
        return Ok(());
    }
    let answers_whole = task.answer_form() == AnswerForm::Labels
        && matches!(task.shape(), LabelShape::One | LabelShape::Many);
    let expected = "classes or diagnosis: rows are images";
    ConfigError::new("data.task", format_args!("{:?}", task.name()), expected)
        .when(!answers_whole)?;
    let has_columns = matches!(
        data.source,
        Source::Jsonl | Source::Csv | Source::Tsv | Source::Parquet | Source::Rows
    );
    ConfigError::only(
        "data.columns.image",
        "to the sources jsonl, csv, tsv and parquet, and to rows in memory",
    )
    .when(data.columns.image.is_some() && !has_columns)?;
    ConfigError::excludes("data.columns.text", "data.columns.image: a row is one of them")
        .when(data.columns.text.is_some())?;
    for (key, given) in [
        ("data.max_tokens", data.max_tokens.is_some()),
        ("data.cache", data.cache.is_some()),
        ("data.encoding", data.encoding.is_some() && !has_columns),
        ("model.tokenizer", raw.model.tokenizer.is_some()),
        ("model.vocabulary", raw.model.vocabulary.is_some()),
    ] {
        ConfigError::only(key, "to texts, and rows are images").when(given)?;
    }
    let Some(augment) = data.augment else { return Ok(()) };
    let expected = format_args!("at most {MOST_CROP} pixels");
    ConfigError::new("data.augment.crop", augment.crop, expected).when(augment.crop > MOST_CROP)
}
