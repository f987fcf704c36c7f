//! `generation_config.json`: what ends a text, and the rules that a model's author set for every token.
//!
//! How tokens are drawn (`do_sample`, `temperature`, `top_k`, `top_p` and their like) is the caller's choice and not read
//! here. What would change the text and is not applied is listed, so that somebody can be told.

use std::path::Path;

use fedra_client::generate::{GenerateSettings, Sampling, TokenRules};
use fedra_model::Loaded;
use fedra_model::hf::Companions;
use serde_json::{Map, Value, json};

use crate::error::{Context, Result, refuse};

const FILE: &str = "generation_config.json";

/// Settings that change a text and are not applied, each with the values under which they do nothing.
const NOT_APPLIED: [(&str, &[f64]); 15] = [
    ("num_beams", &[1.0]),
    ("num_beam_groups", &[1.0]),
    ("diversity_penalty", &[0.0]),
    ("penalty_alpha", &[0.0]),
    ("guidance_scale", &[1.0]),
    ("encoder_repetition_penalty", &[1.0]),
    ("encoder_no_repeat_ngram_size", &[0.0]),
    ("sequence_bias", &[]),
    ("exponential_decay_length_penalty", &[]),
    ("forced_bos_token_id", &[]),
    ("forced_eos_token_id", &[]),
    ("stop_strings", &[]),
    ("dola_layers", &[]),
    ("watermarking_config", &[]),
    ("remove_invalid_values", &[]),
];

/// What a model's folder says about text that it writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// Tokens that end a text.
    pub stop_tokens: Vec<u32>,
    /// What holds for every token.
    pub rules: TokenRules,
    /// Names of settings that the file has and that are not applied.
    pub not_applied: Vec<&'static str>,
}

impl GenerationConfig {
    /// That of a model; end tokens that the file does not name are those of `config.json`.
    pub fn of(folder: &Path, loaded: &Loaded) -> Result<Self> {
        let declared = loaded.model.config().eos_token_ids.clone();
        let found = Self::of_files(&loaded.companions, declared);
        found.with_context(|| folder.join(FILE).display().to_string())
    }

    /// That of a model with these files, whose `config.json` declares these end tokens.
    pub(crate) fn of_files(companions: &Companions, declared: Vec<u32>) -> Result<Self> {
        match companions.get(FILE) {
            Some(bytes) => Self::parse(bytes, declared),
            None => Ok(Self { stop_tokens: declared, ..Self::default() }),
        }
    }

    /// What the bytes of the file say.
    fn parse(bytes: &[u8], declared: Vec<u32>) -> Result<Self> {
        let written: Map<String, Value> =
            serde_json::from_slice(bytes).context("expected a JSON object")?;
        let settings = Settings(&written);
        let rules = TokenRules {
            repetition_penalty: settings.penalty("repetition_penalty")?,
            no_repeat_ngram: settings.count("no_repeat_ngram_size")?,
            bad_words: settings.words("bad_words_ids")?,
            min_length: settings.count("min_length")?.unwrap_or(0),
            min_new_tokens: settings.count("min_new_tokens")?.unwrap_or(0),
            suppressed: settings.tokens("suppress_tokens")?.unwrap_or_default(),
            suppressed_first: settings.tokens("begin_suppress_tokens")?.unwrap_or_default(),
        };
        Ok(Self {
            stop_tokens: settings.tokens("eos_token_id")?.unwrap_or(declared),
            rules,
            not_applied: settings.not_applied(),
        })
    }

    /// How to write with this model.
    pub fn settings(&self, sampling: Sampling, max_tokens: usize) -> GenerateSettings {
        let Self { stop_tokens, rules, .. } = self.clone();
        GenerateSettings { sampling, max_tokens, stop_tokens, rules }
    }

    /// A sentence about what is not applied, if there is something.
    pub fn note(&self) -> Option<String> {
        let names = self.not_applied.join(", ");
        (!names.is_empty()).then(|| format!("{FILE} sets {names}, which Fedra does not apply"))
    }
}

/// The file's object.
struct Settings<'w>(&'w Map<String, Value>);

impl Settings<'_> {
    /// A key's value; null is none.
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn penalty(&self, key: &str) -> Result<Option<f32>> {
        let Some(found) = self.get(key) else { return Ok(None) };
        let penalty = found.as_f64().map(|number| number as f32);
        match penalty.filter(|number| *number > 0.0 && number.is_finite()) {
            Some(penalty) => Ok((penalty != 1.0).then_some(penalty)),
            None => refuse!("{key}: found {found}, expected a number above 0"),
        }
    }

    /// A number of tokens; 0 is none.
    fn count(&self, key: &str) -> Result<Option<usize>> {
        let Some(found) = self.get(key) else { return Ok(None) };
        let count = found.as_u64().and_then(|number| usize::try_from(number).ok());
        match count {
            Some(count) => Ok((count > 0).then_some(count)),
            None => refuse!("{key}: found {found}, expected a number of tokens"),
        }
    }

    /// One token or a list of them.
    fn tokens(&self, key: &str) -> Result<Option<Vec<u32>>> {
        let Some(found) = self.get(key) else { return Ok(None) };
        let tokens: Option<Vec<u32>> = match found.as_array() {
            Some(ids) => ids.iter().map(token).collect(),
            None => token(found).map(|id| vec![id]),
        };
        Ok(Some(tokens.with_context(|| {
            format!("{key}: found {found}, expected a token or a list of tokens")
        })?))
    }

    /// A list of lists of tokens.
    fn words(&self, key: &str) -> Result<Vec<Vec<u32>>> {
        let Some(found) = self.get(key) else { return Ok(Vec::new()) };
        let word = |word: &Value| -> Option<Vec<u32>> {
            word.as_array()?
                .iter()
                .map(token)
                .collect::<Option<_>>()
                .filter(|it: &Vec<u32>| !it.is_empty())
        };
        let words = found.as_array().and_then(|words| words.iter().map(word).collect());
        words.with_context(|| format!("{key}: found {found}, expected a list of lists of tokens"))
    }

    fn not_applied(&self) -> Vec<&'static str> {
        let sets = |(key, neutral): &(&'static str, &[f64])| {
            let value = self.get(key)?;
            let is_neutral = value.as_f64().is_some_and(|number| neutral.contains(&number));
            let is_empty = value == &json!(false) || value == &json!([]);
            (!is_neutral && !is_empty).then_some(*key)
        };
        NOT_APPLIED.iter().filter_map(sets).collect()
    }
}

fn token(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_settings_that_are_not_applied_are_named() {
        let bytes = br#"{"eos_token_id": [2, 7], "repetition_penalty": 1.25, "no_repeat_ngram_size": 3,
            "bad_words_ids": [[4], [5, 6]], "suppress_tokens": [9], "begin_suppress_tokens": [8], "min_length": 0,
            "min_new_tokens": 2, "num_beams": 4, "guidance_scale": 1.0, "stop_strings": null,
            "remove_invalid_values": false, "do_sample": true, "temperature": 0.6}"#;
        let found = GenerationConfig::parse(bytes, vec![1]).unwrap();
        let rules = TokenRules {
            repetition_penalty: Some(1.25),
            no_repeat_ngram: Some(3),
            bad_words: vec![vec![4], vec![5, 6]],
            min_length: 0,
            min_new_tokens: 2,
            suppressed: vec![9],
            suppressed_first: vec![8],
        };
        let expected =
            GenerationConfig { stop_tokens: vec![2, 7], rules, not_applied: vec!["num_beams"] };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_file_that_says_nothing_leaves_the_declared_end_and_no_rule() {
        let bytes = br#"{"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "num_beams": 1, "bad_words_ids": null}"#;
        let found = GenerationConfig::parse(bytes, vec![1]).unwrap();
        assert_eq!(found, GenerationConfig { stop_tokens: vec![1], ..GenerationConfig::default() });
        assert!(found.rules.is_empty() && found.note().is_none());
    }

    #[test]
    fn values_that_are_none_are_refused_with_their_key() {
        for (written, expected) in [
            (
                r#"{"repetition_penalty": 0}"#,
                "repetition_penalty: found 0, expected a number above 0",
            ),
            (r#"{"repetition_penalty": "2"}"#, "repetition_penalty: found \"2\""),
            (r#"{"no_repeat_ngram_size": -1}"#, "no_repeat_ngram_size: found -1"),
            (
                r#"{"bad_words_ids": [[]]}"#,
                "bad_words_ids: found [[]], expected a list of lists of tokens",
            ),
            (r#"{"suppress_tokens": [1, -1]}"#, "suppress_tokens: found [1,-1]"),
            (r#"{"eos_token_id": "</s>"}"#, "eos_token_id: found \"</s>\", expected a token"),
            ("[]", "expected a JSON object"),
        ] {
            let error = GenerationConfig::parse(written.as_bytes(), Vec::new()).unwrap_err();
            assert!(error.in_words().contains(expected), "{written}: {}", error.in_words());
        }
    }
}
