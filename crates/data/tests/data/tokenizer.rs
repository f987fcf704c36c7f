//! Tokenizers against what Hugging Face's libraries give in Python, and files that lie.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use std::path::{Path, PathBuf};

use fedra_data::{
    Body, Clinic, Encoder, Result, Row, TableBuilder, Task, Tokenizer, open_tokenizer,
};
use serde_json::{Value, json};

/// A shared folder beside the repository.
fn shared(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(path)
}

const MINILM: [(&str, &[u32]); 3] = [
    (
        "The patient's CXR: no acute cardiopulmonary process.",
        &[
            1996, 5776, 1005, 1055, 1039, 2595, 2099, 1024, 2053, 11325, 4003, 3695, 14289, 13728,
            7856, 2854, 2832, 1012,
        ],
    ),
    (
        "Caf\u{e9}-au-lait spots, 2\u{d7}3 mm; T2-weighted MRI \u{4f60}\u{597d}",
        &[
            7668, 1011, 8740, 1011, 21110, 2102, 7516, 1010, 1016, 26306, 2509, 3461, 1025, 1056,
            2475, 1011, 18215, 27011, 100, 100,
        ],
    ),
    (
        "Dexmedetomidine 0.5 mcg/kg/hr was titrated\u{2026}",
        &[
            20647, 7583, 18903, 4328, 10672, 1014, 1012, 1019, 11338, 2290, 1013, 4705, 1013,
            17850, 2001, 14841, 6494, 3064, 1529,
        ],
    ),
];

#[test]
#[ignore = "needs ../shared/models/minilm-l6: tools/test-shared"]
fn the_tokenizer_of_minilm_gives_the_same_numbers() {
    let path = shared("models/minilm-l6/tokenizer.json");
    let tokenizer = open_tokenizer(&path).unwrap();
    assert_eq!(tokenizer.vocabulary_size(), 30_522);
    assert_eq!((tokenizer.highest_id(), tokenizer.unknown()), (30_521, Some(100)));
    let templates = tokenizer.templates();
    assert_eq!(templates.single.fill(&[7], &[]), (vec![101, 7, 102], vec![]));
    let pair = templates.pair.as_ref().unwrap().fill(&[7], &[8, 9]);
    assert_eq!(pair, (vec![101, 7, 102, 8, 9, 102], vec![0, 0, 0, 1, 1, 1]));
    for (text, ids) in MINILM {
        assert_eq!(tokenizer.pieces(text).unwrap(), ids, "{text}");
    }
}

fn clinic_tokenizer(limit: usize) -> (Vec<String>, Tokenizer) {
    let clinic = Clinic { hospitals: 2, notes: 100, ..Clinic::default() };
    let table = clinic.generate(Task::Diagnosis, 1).unwrap();
    let texts: Vec<String> = table.examples.iter().map(|e| e.body.to_text()).collect();
    let tokenizer = Tokenizer::grow(texts.iter().map(String::as_str), limit).unwrap();
    (texts, tokenizer)
}

#[test]
fn a_grown_vocabulary_is_a_function_of_the_texts_and_knows_all_of_them() {
    let (texts, tokenizer) = clinic_tokenizer(300);
    assert_eq!(tokenizer.json(), clinic_tokenizer(300).1.json());
    assert!(tokenizer.vocabulary_size() <= 300);
    let unknown = tokenizer.unknown().unwrap();
    for text in &texts {
        assert!(!tokenizer.pieces(text).unwrap().contains(&unknown), "{text}");
    }
    let larger = clinic_tokenizer(1000).1;
    let count = |tokenizer: &Tokenizer| {
        texts.iter().map(|text| tokenizer.pieces(text).unwrap().len()).sum::<usize>()
    };
    assert!(count(&larger) < count(&tokenizer));
}

#[test]
fn every_word_of_the_clinic_keeps_its_label() {
    let table = Clinic::default().generate(Task::Concepts, 4).unwrap();
    let texts: Vec<String> = table.examples.iter().map(|e| e.body.to_text()).collect();
    let tokenizer = Tokenizer::grow(texts.iter().map(String::as_str), 600).unwrap();
    let encoder = Encoder::new(&tokenizer, 512).unwrap();
    for example in &table.examples {
        let encoded = &encoder.encode(example).unwrap()[0];
        let fedra_data::Target::PerToken(target) = &encoded.target else { panic!() };
        let labels: Vec<u32> = target.iter().flatten().copied().collect();
        assert_eq!(fedra_data::Labels::PerWord(labels), example.labels);
        assert_eq!(encoded.dropped, 0);
    }
}

/// What `tools/tokenizer_fixtures.py` wrote.
fn golden() -> Value {
    serde_json::from_str(include_str!("../fixtures/bpe.json")).unwrap()
}

fn opened(json: &str) -> Result<Tokenizer> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokenizer.json");
    std::fs::write(&path, json).unwrap();
    open_tokenizer(&path)
}

/// A file like the base with some keys replaced, those of the model one by one.
fn changed(base: &Value, changes: &Value) -> Value {
    let mut file = base.clone();
    for (key, value) in changes.as_object().unwrap() {
        match value.as_object().filter(|_| key == "model") {
            Some(inner) => inner.iter().for_each(|(name, value)| {
                file[key][name] = value.clone();
            }),
            None => file[key] = value.clone(),
        }
    }
    file
}

fn agree(name: &str, tokenizer: &Tokenizer, cases: &Value) {
    for case in cases.as_array().unwrap() {
        let text = case[0].as_str().unwrap();
        let ids: Vec<u32> = serde_json::from_value(case[1].clone()).unwrap();
        assert_eq!(tokenizer.pieces(text).unwrap(), ids, "{name}: {text:?}");
    }
}

#[test]
fn byte_pairs_agree_with_the_library_of_hugging_face() {
    let golden = golden();
    for variant in golden["variants"].as_array().unwrap() {
        let name = variant["name"].as_str().unwrap();
        let json = changed(&golden["base"], &variant["changes"]).to_string();
        let tokenizer = opened(&json).unwrap();
        agree(name, &tokenizer, &variant["cases"]);
        assert_eq!(tokenizer.vocabulary_size(), 331, "{name}");
        assert_eq!(tokenizer.json(), json, "{name} saves as it was");
        assert_eq!(tokenizer.highest_id(), 330, "{name}");
        let (start, _) = tokenizer.templates().single.fill(&[], &[]);
        assert_eq!(start, if name == "llama3" { vec![0] } else { vec![] }, "{name}");
    }
}

#[test]
fn a_byte_level_word_has_a_blank_before_it() {
    let tokenizer = opened(&golden()["base"].to_string()).unwrap();
    let (inside, alone) =
        (tokenizer.word("patient").unwrap(), tokenizer.pieces("patient").unwrap());
    assert_eq!(inside, tokenizer.pieces(" patient").unwrap());
    assert_ne!(inside, alone);
}

/// A tokenizer of each kind of model, with the texts and pairs that it was asked in Python.
fn kinds() -> Vec<Value> {
    let whole: Value = serde_json::from_str(include_str!("../fixtures/kinds.json")).unwrap();
    whole["kinds"].as_array().unwrap().clone()
}

#[test]
fn every_kind_of_model_agrees_with_the_library_of_hugging_face() {
    for kind in kinds() {
        let name = kind["name"].as_str().unwrap();
        let tokenizer = opened(&kind["file"].to_string()).unwrap();
        agree(name, &tokenizer, &kind["cases"]);
    }
}

#[test]
fn pairs_are_written_and_cut_as_by_transformers() {
    let mut compared = 0;
    for kind in kinds() {
        let tokenizer = opened(&kind["file"].to_string()).unwrap();
        for case in kind["pairs"].as_array().unwrap() {
            let text = |place: usize| case[place].as_str().unwrap().to_owned();
            let numbers =
                |place: usize| -> Vec<u32> { serde_json::from_value(case[place].clone()).unwrap() };
            let mut builder = TableBuilder::new(Task::Classes);
            let pair = Row { body: Body::Pair(text(0), text(1)), ..Row::text("") };
            builder.push(pair.with_labels(["x"])).unwrap();
            let longest = usize::try_from(case[2].as_u64().unwrap()).unwrap();
            let encoder = Encoder::new(&tokenizer, longest).unwrap();
            let encoded = encoder.encode(&builder.finish().examples[0]).unwrap().remove(0);
            assert_eq!(encoded.ids, numbers(3), "{}: {case}", kind["name"]);
            let mut types = numbers(4);
            if types.iter().all(|&kind| kind == 0) {
                types.clear();
            }
            assert_eq!(encoded.types, types, "{}: {case}", kind["name"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 45);
}

#[test]
fn a_special_token_that_a_text_spells_is_text() {
    for kind in kinds() {
        let name = kind["name"].as_str().unwrap();
        let tokenizer = opened(&kind["file"].to_string()).unwrap();
        let tokens = kind["file"]["added_tokens"].as_array().unwrap();
        for token in tokens {
            let (content, id) = (token["content"].as_str().unwrap(), token["id"].as_u64().unwrap());
            let id = u32::try_from(id).unwrap();
            let found = tokenizer.pieces(&format!("pain {content} pain")).unwrap();
            // What is added and not special is recognised; so is the unknown, whatever it stands for.
            let is_text = token["special"] == true && Some(id) != tokenizer.unknown();
            assert_eq!(found.contains(&id), !is_text || found.is_empty(), "{name}: {content}");
        }
    }
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn the_tokenizer_of_stories_gives_the_same_numbers() {
    let path = shared("models/stories260k/tokenizer.json");
    let tokenizer = open_tokenizer(&path).unwrap();
    assert_eq!(tokenizer.templates().single.fill(&[7], &[]).0, [1, 7]);
    assert_eq!((tokenizer.unknown(), tokenizer.highest_id()), (Some(0), 511));
    agree("stories260k", &tokenizer, &golden()["stories260k"]);
    let ids = tokenizer.pieces("Once upon a time, there was a cold \u{1f642}").unwrap();
    assert_eq!(ids[..11], [403, 407, 261, 378, 432, 383, 286, 261, 280, 414, 341]);
}

#[test]
fn a_file_that_does_not_read_is_refused_by_its_part() {
    let base = golden()["base"].clone();
    let refused = |changes: Value, part: &str| {
        let Err(error) = opened(&changed(&base, &changes).to_string()) else {
            panic!("{part} should be refused")
        };
        let error = error.to_string();
        assert!(
            error.contains("tokenizer.json: found ") && error.contains(", expected "),
            "{error}"
        );
        assert!(error.contains(part), "{error}");
        assert!(!error.contains("variant"), "{error}");
    };
    let one_of = "found a normalizer of type \"Nfc\", expected what Hugging Face";
    refused(json!({"normalizer": {"type": "Nfc"}}), one_of);
    let inner =
        json!({"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, {"type": "Comma"}]});
    refused(json!({"pre_tokenizer": inner}), "a pre_tokenizer of type \"Comma\"");
    let split = json!({"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated"});
    refused(json!({"pre_tokenizer": split}), "a pre_tokenizer of type \"Split\"");
    let processor = json!({"type": "RobertaProcessing"});
    refused(json!({"post_processor": processor}), "a post_processor of type \"RobertaProcessing\"");
    refused(json!({"model": {"type": "CharBPE"}}), "a model of type \"CharBPE\"");
    refused(json!({"model": {"dropout": 0.1}}), "dropout 0.1");
    refused(json!({"model": {"merges": ["a b c"]}}), "a model of type \"BPE\"");
    refused(json!({"model": {"merges": [["a", "zzz"]]}}), "zzz");
    refused(json!({"model": {"vocab": {"a": 1, "b": 1}, "merges": []}}), "same number");
    refused(json!({"model": 5}), "no `model`");
    refused(json!({"version": "2.0"}), "2.0");
    let token = json!({"id": 4000, "content": "<x>", "special": true, "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false});
    refused(json!({"added_tokens": [token]}), "the added token \"<x>\" with the number 4000");
}

#[test]
fn a_template_that_fails_inside_the_library_is_an_error_and_not_a_panic() {
    let single = json!([{"SpecialToken": {"id": "<none>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]);
    let template = |single: Value| {
        json!({"post_processor": {"type": "TemplateProcessing", "single": single, "pair": single,
            "special_tokens": {}}})
    };
    let base = golden()["base"].clone();
    for single in [
        single,
        json!([{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]),
    ] {
        let Err(error) = opened(&changed(&base, &template(single)).to_string()) else { panic!() };
        assert!(error.to_string().contains("post_processor"), "{error}");
    }
}

/// Cut short, or with a letter changed: opened or refused, never a panic.
#[test]
fn a_damaged_file_is_opened_or_refused() {
    let json = kinds()[2]["file"].to_string();
    let (mut accepted, mut refused) = (0, 0);
    let mut attempt = |json: &str| match opened(json) {
        Ok(tokenizer) => {
            accepted += 1;
            drop(tokenizer.pieces("The patient's pain </s> \u{4f60}"));
        }
        Err(_) => refused += 1,
    };
    for (at, _) in json.char_indices().step_by(7) {
        attempt(&json[..at]);
        let mut changed = json.clone().into_bytes();
        changed[at] ^= [0x01, 0x04, 0x10][at % 3];
        if let Ok(changed) = String::from_utf8(changed) {
            attempt(&changed);
        }
    }
    assert!(accepted > 50 && refused > 500, "{accepted} accepted, {refused} refused");
}

/// A folder with a `tokenizer.json` of words, and a `tokenizer_config.json`.
fn word_level(normalizer: &Value, config: &Value) -> tempfile::TempDir {
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false, "special": true})
    };
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "[UNK]"), special(1, "[DEID]")],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "[UNK]",
                  "vocab": {"[UNK]": 0, "[DEID]": 1, "pain": 2, "fever": 3, "Pain": 4}},
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    folder
}

#[test]
fn a_special_token_that_the_tokenizer_makes_itself_stays_and_one_that_a_text_spells_does_not() {
    let replace = json!({"type": "Replace", "pattern": {"Regex": "[0-9]+"}, "content": "[DEID]"});
    let folder = word_level(&replace, &json!({}));
    let tokenizer = open_tokenizer(folder.path()).unwrap();
    assert_eq!(tokenizer.pieces("pain 2024 fever").unwrap(), [2, 1, 3]);
    // Six letters, none of which is a word.
    let spelt = [vec![2], vec![0; 6], vec![3]].concat();
    assert_eq!(tokenizer.pieces("pain [DEID] fever").unwrap(), spelt);
}

#[test]
fn letter_case_and_the_side_of_a_cut_follow_the_configuration_beside_the_file() {
    let lower = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                       "strip_accents": null, "lowercase": true});
    let pieces = |config: Value| {
        let folder = word_level(&lower, &config);
        open_tokenizer(folder.path()).unwrap().pieces("Pain fever").unwrap()
    };
    assert_eq!(pieces(json!({})), [2, 3]);
    assert_eq!(pieces(json!({"do_lower_case": false})), [2, 3], "only BERT's class obeys");
    let cased = json!({"tokenizer_class": "BertTokenizer", "do_lower_case": false});
    assert_eq!(pieces(cased), [4, 3]);

    let mut builder = TableBuilder::new(Task::Classes);
    builder.push(Row::text("pain fever pain fever fever").with_labels(["a"])).unwrap();
    let table = builder.finish();
    for (side, expected) in [("right", [2, 3, 2]), ("left", [2, 3, 3])] {
        let folder = word_level(&lower, &json!({"truncation_side": side}));
        let tokenizer = open_tokenizer(folder.path()).unwrap();
        let encoder = Encoder::new(&tokenizer, 3).unwrap();
        assert_eq!(encoder.encode(&table.examples[0]).unwrap()[0].ids, expected, "{side}");
    }
}

#[test]
fn types_reach_the_model_only_where_the_tokenizer_hands_them_over() {
    let text = |id: &str, kind: u32| json!({"Sequence": {"id": id, "type_id": kind}});
    let pair = json!({"type": "TemplateProcessing", "single": [text("A", 0)],
                      "pair": [text("A", 0), text("B", 1)], "special_tokens": {}});
    for (config, expected) in [
        (json!({}), &[0, 1][..]),
        (json!({"tokenizer_class": "BertTokenizer"}), &[0, 1]),
        (json!({"tokenizer_class": "ElectraTokenizerFast"}), &[0, 1]),
        (json!({"tokenizer_class": "RobertaTokenizerFast"}), &[]),
        (json!({"tokenizer_class": "PreTrainedTokenizerFast"}), &[]),
        (json!({"tokenizer_class": "TokenizersBackend"}), &[]),
        (json!({"model_input_names": ["input_ids", "attention_mask"]}), &[]),
        (
            json!({"tokenizer_class": "RobertaTokenizer",
                   "model_input_names": ["input_ids", "token_type_ids"]}),
            &[0, 1],
        ),
    ] {
        let folder = word_level(&Value::Null, &config);
        let file = folder.path().join("tokenizer.json");
        let mut json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        json["post_processor"] = pair.clone();
        std::fs::write(&file, json.to_string()).unwrap();
        let tokenizer = open_tokenizer(folder.path()).unwrap();
        let templates = tokenizer.templates();
        assert_eq!(templates.pair.as_ref().unwrap().types(1, 1), expected, "{config}");
    }
}

#[test]
fn a_text_without_a_single_token_is_refused_before_it_reaches_a_model() {
    let folder = word_level(&Value::Null, &json!({}));
    let tokenizer = open_tokenizer(folder.path()).unwrap();
    let mut builder = TableBuilder::new(Task::Classes);
    builder.push(Row::text("  ").with_labels(["a"])).unwrap();
    let table = builder.finish();
    let refused = Encoder::new(&tokenizer, 3).unwrap().encode(&table.examples[0]);
    assert!(refused.unwrap_err().to_string().contains("a text with at least one token"));
}
