//! Tokenizers against what Hugging Face's own library gives (version 0.23).
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "the functions that serve tests are tests too"
)]

use std::path::{Path, PathBuf};

use fedra_data::{Clinic, Encoder, Result, Task, Tokenizer, WordTokenizer, open_tokenizer};
use serde_json::{Value, json};

/// A shared folder beside the repository; absent in most places.
fn shared(path: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(path);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is not there", path.display());
    None
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
fn the_tokenizer_of_minilm_gives_the_same_numbers() {
    let Some(path) = shared("models/minilm-l6/tokenizer.json") else { return };
    let tokenizer = open_tokenizer(&path).unwrap();
    assert_eq!(tokenizer.vocabulary_size(), 30_522);
    let specials = tokenizer.specials();
    assert_eq!((specials.start, specials.end, specials.unknown), (Some(101), Some(102), Some(100)));
    for (text, ids) in MINILM {
        assert_eq!(tokenizer.pieces(text).unwrap(), ids, "{text}");
    }
}

fn clinic_tokenizer(limit: usize) -> (Vec<String>, WordTokenizer) {
    let clinic = Clinic { hospitals: 2, notes: 100, ..Clinic::default() };
    let table = clinic.generate(Task::Diagnosis, 1).unwrap();
    let texts: Vec<String> = table.examples.iter().map(|e| e.body.to_text()).collect();
    let tokenizer = WordTokenizer::grow(texts.iter().map(String::as_str), limit).unwrap();
    (texts, tokenizer)
}

#[test]
fn a_grown_vocabulary_is_a_function_of_the_texts_and_knows_all_of_them() {
    let (texts, tokenizer) = clinic_tokenizer(300);
    assert_eq!(tokenizer, clinic_tokenizer(300).1);
    assert!(tokenizer.vocabulary_size() <= 300);
    let unknown = tokenizer.specials().unknown.unwrap();
    for text in &texts {
        assert!(!tokenizer.pieces(text).unwrap().contains(&unknown), "{text}");
    }
    let larger = clinic_tokenizer(1000).1;
    let count = |tokenizer: &WordTokenizer| {
        texts.iter().map(|text| tokenizer.pieces(text).unwrap().len()).sum::<usize>()
    };
    assert!(count(&larger) < count(&tokenizer));
}

#[test]
fn every_word_of_the_clinic_keeps_its_label() {
    let table = Clinic::default().generate(Task::Concepts, 4).unwrap();
    let texts: Vec<String> = table.examples.iter().map(|e| e.body.to_text()).collect();
    let tokenizer = WordTokenizer::grow(texts.iter().map(String::as_str), 600).unwrap();
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
    serde_json::from_str(include_str!("fixtures/bpe.json")).unwrap()
}

fn opened(json: &str) -> Result<Box<dyn Tokenizer>> {
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

fn agree(name: &str, tokenizer: &dyn Tokenizer, cases: &Value) {
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
        agree(name, tokenizer.as_ref(), &variant["cases"]);
        assert_eq!(tokenizer.vocabulary_size(), 331, "{name}");
        assert_eq!(tokenizer.to_json().unwrap(), json, "{name} saves as it was");
        let start = (name == "llama3").then_some(0);
        assert_eq!((tokenizer.specials().start, tokenizer.specials().end), (start, None), "{name}");
    }
}

#[test]
fn a_byte_level_text_comes_back_as_it_was() {
    let golden = golden();
    let tokenizer = opened(&golden["base"].to_string()).unwrap();
    for case in golden["variants"][0]["cases"].as_array().unwrap() {
        let text = case[0].as_str().unwrap();
        let ids = tokenizer.pieces(text).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    }
    assert_eq!(tokenizer.decode(&[0]).unwrap(), "", "a special token stands for no text");
    assert!(tokenizer.decode(&[5000]).is_err());
    let (inside, alone) =
        (tokenizer.word("patient").unwrap(), tokenizer.pieces("patient").unwrap());
    assert_eq!(inside, tokenizer.pieces(" patient").unwrap());
    assert_ne!(inside, alone);
}

#[test]
fn the_tokenizer_of_stories_gives_the_same_numbers() {
    let Some(path) = shared("models/stories260k/tokenizer.json") else { return };
    let tokenizer = open_tokenizer(&path).unwrap();
    let specials = tokenizer.specials();
    assert_eq!((specials.start, specials.end, specials.unknown), (Some(1), None, Some(0)));
    agree("stories260k", tokenizer.as_ref(), &golden()["stories260k"]);
    let ids = tokenizer.pieces("Once upon a time, there was a cold \u{1f642}").unwrap();
    assert_eq!(ids[..11], [403, 407, 261, 378, 432, 383, 286, 261, 280, 414, 341]);
    let text = tokenizer.decode(&ids).unwrap();
    assert_eq!(text, "Once upon a time, there was a cold \u{1f642}");
}

#[test]
fn what_a_tokenizer_asks_for_beyond_that_is_refused_by_name() {
    let base = golden()["base"].clone();
    let refused = |changes: Value, part: &str| {
        let Err(error) = opened(&changed(&base, &changes).to_string()) else {
            panic!("{part} should be refused")
        };
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(json!({"normalizer": {"type": "NFC"}}), "NFC");
    refused(json!({"pre_tokenizer": {"type": "Whitespace"}}), "Whitespace");
    let split = json!({"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Isolated"});
    refused(json!({"pre_tokenizer": split}), "\\w+");
    let processor = json!({"type": "RobertaProcessing"});
    refused(json!({"post_processor": processor}), "RobertaProcessing");
    refused(json!({"model": {"type": "Unigram"}}), "Unigram");
    refused(json!({"model": {"dropout": 0.1}}), "dropout");
    refused(json!({"model": {"end_of_word_suffix": "</w>"}}), "</w>");
    refused(json!({"model": {"merges": ["a b c"]}}), "\"a b c\"");
    refused(json!({"model": {"merges": [["a", "zzz"]]}}), "\"azzz\"");
    refused(json!({"model": {"unk_token": "<unk>"}}), "<unk>");
    refused(json!({"model": {"vocab": {"a": 1, "b": 1}, "merges": []}}), "same number");
}
