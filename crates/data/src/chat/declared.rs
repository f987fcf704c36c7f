//! What the files of a model say about its conversations: a template, and the names of special tokens.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{DataError, Result};

/// Special tokens by what templates call them (`bos_token`, `eos_token`, ..).
pub type SpecialNames = BTreeMap<String, String>;

/// What stands beside a tokenizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredTemplate {
    /// The template, where there is one.
    pub source: Option<String>,
    /// The names of special tokens.
    pub names: SpecialNames,
}

/// The template's names in the list form, the first that is there counts.
const USUAL: &str = "default";
/// Templates in the list form are listed up to here.
const MOST_NAMES: usize = 8;

impl DeclaredTemplate {
    /// From `tokenizer_config.json` and what may stand beside it: `chat_template.jinja`, which counts more,
    /// `chat_template.json`, and the older `special_tokens_map.json`. Absent files are `None`.
    pub fn of<'f>(file: impl Fn(&str) -> Option<&'f [u8]>) -> Result<Self> {
        let json = |name: &'static str| match file(name) {
            None => Ok(Value::Null),
            Some(bytes) => serde_json::from_slice(bytes)
                .map_err(|error| DataError::setting(name, &error, "a JSON object")),
        };
        let (older, config) = (json("special_tokens_map.json")?, json("tokenizer_config.json")?);
        let mut names = SpecialNames::new();
        for entries in [&older, &config] {
            for (name, value) in entries.as_object().into_iter().flatten() {
                let text = value.as_str().or_else(|| value["content"].as_str());
                if let (Some(text), true) = (text, name.ends_with("_token")) {
                    names.insert(name.clone(), text.to_owned());
                }
            }
        }
        let source = match file("chat_template.jinja") {
            Some(bytes) => Some(String::from_utf8(bytes.to_vec()).map_err(|error| {
                DataError::setting("chat_template.jinja", &error, "a text in UTF-8")
            })?),
            None => match template(&json("chat_template.json")?["chat_template"])? {
                Some(source) => Some(source),
                None => template(&config["chat_template"])?,
            },
        };
        Ok(Self { source, names })
    }
}

/// The template of an entry: a text, or a list of them by name.
fn template(entry: &Value) -> Result<Option<String>> {
    if let Some(source) = entry.as_str() {
        return Ok(Some(source.to_owned()));
    }
    let Some(list) = entry.as_array() else {
        if entry.is_null() {
            return Ok(None);
        }
        let expected = "a text, or a list of templates with names";
        return Err(DataError::setting("chat_template", &entry, expected));
    };
    let named = |wanted: &str| {
        let entry = list.iter().find(|entry| entry["name"] == wanted);
        entry.and_then(|entry| entry["template"].as_str()).map(str::to_owned)
    };
    if let Some(source) = named(USUAL) {
        return Ok(Some(source));
    }
    let names: Vec<&str> = list.iter().filter_map(|entry| entry["name"].as_str()).collect();
    let found = format!("the templates {}", names[..names.len().min(MOST_NAMES)].join(", "));
    Err(DataError::setting("chat_template", &found, "one of the name \"default\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Result<DeclaredTemplate> {
        DeclaredTemplate::of(|name| {
            files.iter().find(|(file, _)| *file == name).map(|(_, text)| text.as_bytes())
        })
    }

    #[test]
    fn a_template_is_found_in_every_place_that_it_has() {
        let config = r#"{"chat_template": "a", "eos_token": {"content": "</s>"}, "bos_token": "<s>",
                         "pad_token": null}"#;
        let found = of(&[("tokenizer_config.json", config)]).unwrap();
        assert_eq!(found.source.as_deref(), Some("a"));
        let names: Vec<_> = found.names.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(names, [("bos_token", "<s>"), ("eos_token", "</s>")]);
        let beside = [("tokenizer_config.json", config), ("chat_template.jinja", "b")];
        assert_eq!(of(&beside).unwrap().source.as_deref(), Some("b"));
        let list = r#"{"chat_template": [{"name": "tool_use", "template": "t"},
                                         {"name": "default", "template": "d"}]}"#;
        assert_eq!(of(&[("tokenizer_config.json", list)]).unwrap().source.as_deref(), Some("d"));
        let list = r#"{"chat_template": [{"name": "tool_use", "template": "t"}]}"#;
        let refused = of(&[("tokenizer_config.json", list)]).unwrap_err().to_string();
        assert!(refused.contains("the templates tool_use"), "{refused}");
        assert_eq!(of(&[]).unwrap(), DeclaredTemplate::default());
    }
}
