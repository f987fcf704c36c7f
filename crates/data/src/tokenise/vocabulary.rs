//! A model folder with `vocab.txt` and no `tokenizer.json`: a BERT from before that file existed.
//!
//! The words are the file; the rules are BERT's, as far as `tokenizer_config.json` does not say
//! otherwise. A folder whose configuration asks for another tokenizer is refused, since `vocab.txt`
//! says nothing about the rules.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::bert::Bert;
use super::tokenizer::{Tokenizer, text};
use crate::{DataError, Result};

/// The words of an older tokenizer, one a line.
pub(super) const VOCABULARY: &str = "vocab.txt";
const CONFIG: &str = "tokenizer_config.json";
/// The classes whose `vocab.txt` means the same.
const CLASSES: [&str; 3] = ["BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"];

/// Opens the tokenizer of a folder by its words.
pub(super) fn open(folder: &Path) -> Result<Tokenizer> {
    let file = folder.join(VOCABULARY);
    let words = text(&file)?;
    let pieces: Vec<String> =
        words.lines().map(|line| line.trim_end_matches(['\r', '\n']).to_owned()).collect();
    let mut seen = BTreeSet::new();
    if let Some((at, piece)) = pieces.iter().enumerate().find(|(_, piece)| !seen.insert(*piece)) {
        let found = format!("{piece:?} for a second time");
        return Err(DataError::row(&file, at as u64 + 1, found, "each piece once"));
    }
    let config = folder.join(CONFIG);
    let (bert, added) = if config.is_file() { rules(&config)? } else { (Bert::default(), vec![]) };
    let mut json = bert.to_json(&pieces).map_err(|name| {
        let expected = format!("it among the pieces, or another name for it in {CONFIG}");
        DataError::file(&file, format!("no token {name}"), expected)
    })?;
    if let Value::Array(tokens) = &mut json["added_tokens"] {
        let known: BTreeSet<String> =
            tokens.iter().map(|token| token["content"].to_string()).collect();
        let new = |token: &Value| !known.contains(&token["content"].to_string());
        tokens.extend(added.into_iter().filter(new));
    }
    Tokenizer::from_json(&file, json.to_string())
}

/// The rules that a configuration states, and the tokens that it adds.
fn rules(file: &Path) -> Result<(Bert, Vec<Value>)> {
    let refuse = |found: String, expected: &str| DataError::file(file, found, expected);
    let config: Value = serde_json::from_str(&text(file)?)
        .map_err(|error| refuse(format!("no JSON ({error})"), "a JSON object"))?;
    if let Some(class) = config["tokenizer_class"].as_str()
        && !CLASSES.contains(&class.trim_end_matches("Fast"))
    {
        let expected = format!("{} beside a vocab.txt, or a tokenizer.json", CLASSES.join(", "));
        return Err(refuse(format!("tokenizer_class {class:?}"), &expected));
    }
    if config["do_basic_tokenize"] == Value::Bool(false) {
        return Err(refuse("do_basic_tokenize = false".into(), "BERT's own cutting into words"));
    }
    let truth = |key: &str| match &config[key] {
        Value::Null => Ok(None),
        Value::Bool(truth) => Ok(Some(*truth)),
        other @ (Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => {
            Err(refuse(format!("{key} = {other}"), "true or false"))
        }
    };
    let mut bert = Bert {
        lowercase: truth("do_lower_case")?.unwrap_or(true),
        strip_accents: truth("strip_accents")?,
        chinese: truth("tokenize_chinese_chars")?.unwrap_or(true),
        ..Bert::default()
    };
    let keys = ["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"];
    for (name, key) in bert.names.iter_mut().zip(keys) {
        // Either the token, or an object around it.
        if let Some(given) = config[key].as_str().or(config[key]["content"].as_str()) {
            given.clone_into(name);
        }
    }
    let mut added = Vec::new();
    for (id, token) in config["added_tokens_decoder"].as_object().into_iter().flatten() {
        let Ok(id) = id.parse::<u32>() else {
            return Err(refuse(format!("the added token number {id:?}"), "a number"));
        };
        let flag = |key: &str| token[key] == Value::Bool(true);
        added.push(json!({
            "id": id, "content": token["content"], "single_word": flag("single_word"),
            "lstrip": flag("lstrip"), "rstrip": flag("rstrip"), "normalized": flag("normalized"),
            "special": flag("special"),
        }));
    }
    added.sort_by_key(|token| token["id"].as_u64());
    Ok((bert, added))
}

#[cfg(test)]
mod tests {
    use super::super::{Tokenizer, open_tokenizer};
    use std::fs;

    const WORDS: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nno\nNo\npain\n##s\ncaf\u{e9}\ncafe\n";

    fn opened(words: &str, config: Option<&str>) -> crate::Result<Tokenizer> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("vocab.txt"), words).unwrap();
        if let Some(config) = config {
            fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        }
        open_tokenizer(folder.path())
    }

    #[test]
    fn a_folder_with_words_alone_is_an_uncased_bert() {
        let tokenizer = opened(WORDS, None).unwrap();
        assert_eq!(tokenizer.pieces("No pains, CAF\u{c9}").unwrap(), [5, 7, 8, 1, 10]);
        assert_eq!(tokenizer.templates().single.fill(&[7], &[]).0, [2, 7, 3]);
        assert_eq!((tokenizer.vocabulary_size(), tokenizer.highest_id()), (11, 10));
        let windows = opened(&WORDS.replace('\n', "\r\n"), None).unwrap();
        assert_eq!(windows.pieces("no pain").unwrap(), [5, 7]);
    }

    #[test]
    fn the_configuration_says_case_accents_names_and_added_tokens() {
        let cased = opened(WORDS, Some(r#"{"do_lower_case": false}"#)).unwrap();
        assert_eq!(cased.pieces("No caf\u{e9}").unwrap(), [6, 9]);
        let accents = opened(WORDS, Some(r#"{"strip_accents": false}"#)).unwrap();
        assert_eq!(accents.pieces("CAF\u{c9}").unwrap(), [9]);
        let named = WORDS.replace("[CLS]", "<s>");
        let config = r#"{"cls_token": {"content": "<s>"}, "added_tokens_decoder":
            {"11": {"content": "HbA1c", "special": false}, "2": {"content": "<s>", "special": true}}}"#;
        let named = opened(&named, Some(config)).unwrap();
        assert_eq!(named.templates().single.before(), [2]);
        assert_eq!(named.pieces("no HbA1c <s>").unwrap()[..2], [5, 11]);
        assert!(!named.pieces("<s>").unwrap().contains(&2), "a spelt special token is text");
        assert_eq!((named.vocabulary_size(), named.highest_id()), (12, 11));
    }

    #[test]
    fn words_that_say_too_little_are_refused() {
        let refused = |words: &str, config: Option<&str>| match opened(words, config) {
            Ok(_) => panic!("{words:?} with {config:?} should be refused"),
            Err(error) => error.to_string(),
        };
        assert!(refused("no\n", None).contains("vocab.txt: found no token [UNK]"));
        assert!(refused(&WORDS.replace("No", "no"), None).contains("vocab.txt:7: found \"no\""));
        let class = refused(WORDS, Some(r#"{"tokenizer_class": "MPNetTokenizer"}"#));
        assert!(class.contains("tokenizer_class \"MPNetTokenizer\""), "{class}");
        let split = refused(WORDS, Some(r#"{"do_lower_case": "yes"}"#));
        assert!(split.contains("do_lower_case = \"yes\", expected true or false"), "{split}");
        let folder = tempfile::tempdir().unwrap();
        let Err(error) = open_tokenizer(folder.path()) else { panic!() };
        assert!(error.to_string().contains("found neither tokenizer.json nor vocab.txt"));
    }
}
