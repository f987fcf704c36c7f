//! Tokenizers against what Hugging Face's own library gives (version 0.23).
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "the functions that serve tests are tests too"
)]

use std::path::{Path, PathBuf};

use fedra_data::{Clinic, Encoder, Task, Tokenizer, WordTokenizer, open_tokenizer};

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

#[cfg(not(feature = "tokenizers"))]
#[test]
fn a_tokenizer_of_another_kind_says_what_it_needs() {
    let Some(path) = shared("models/stories260k/tokenizer.json") else { return };
    let Err(error) = open_tokenizer(&path) else { panic!("BPE is not WordPiece") };
    assert!(error.to_string().contains("the feature `tokenizers`"), "{error}");
}

#[cfg(feature = "tokenizers")]
mod through_the_crate {
    use super::*;
    use fedra_data::HuggingFaceTokenizer;

    #[test]
    fn what_is_saved_here_reads_alike_there() {
        let (texts, tokenizer) = clinic_tokenizer(400);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokenizer.json");
        std::fs::write(&path, tokenizer.to_json().unwrap()).unwrap();
        let other = HuggingFaceTokenizer::open(&path).unwrap();
        assert_eq!(tokenizer.specials(), other.specials());
        assert_eq!(tokenizer.vocabulary_size(), other.vocabulary_size());
        for text in texts.iter().map(String::as_str).chain(["[SEP] unseen w\u{f6}rds", ""]) {
            assert_eq!(tokenizer.pieces(text).unwrap(), other.pieces(text).unwrap(), "{text}");
        }
    }

    #[test]
    fn a_llama_tokenizer_opens_with_a_start_and_no_end() {
        let Some(path) = shared("models/stories260k/tokenizer.json") else { return };
        let tokenizer = open_tokenizer(&path).unwrap();
        let specials = tokenizer.specials();
        assert_eq!((specials.start, specials.end, specials.unknown), (Some(1), None, Some(0)));
        let ids = tokenizer.pieces("Once upon a time, there was a cold").unwrap();
        assert_eq!(ids, [403, 407, 261, 378, 432, 383, 286, 261, 280, 414, 341]);
        assert_eq!(tokenizer.decode(&ids).unwrap(), "Once upon a time, there was a cold");
    }
}
