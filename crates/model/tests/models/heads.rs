//! Trained heads: found by the names of their classes, kept row by row, or told to be new and why.

use crate::step::{Answers as Right, Step, bits};
use fedra_compute::{Seed, Tape};
use fedra_model::hf::{
    Answers, Checkpoint, Companions, Config, HeadFit, Precision, TrainedHead, WhyFresh,
};
use fedra_model::{
    Adapters, Batch, Classifier, Head, Loaded, Model, ModelError, Saving, Targets, Wanted,
    load_checkpoint, save,
};
use serde_json::{Value, json};
use std::path::Path;

const STORED: [&str; 5] = ["mild", "absent", "severe", "none", "grave"];

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn write(dir: &Path, step: &Step, labels: Option<&[&str]>) {
    let saving = Saving {
        precision: Precision::F32,
        labels: labels.map(owned),
        problem: None,
        companions: &Companions::default(),
    };
    save(dir, &step.model, &step.params, &saving).unwrap();
}

/// Changes keys of a folder's config.json; null takes one away.
fn change_config(dir: &Path, change: &Value) {
    let path = dir.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for (key, value) in change.as_object().unwrap() {
        config[key] = value.clone();
    }
    std::fs::write(&path, config.to_string()).unwrap();
}

fn load(dir: &Path, step: &Step, classifier: Classifier) -> Result<Loaded, ModelError> {
    let wanted = Wanted { head: step.model.head(), classifier, adapters: None };
    load_checkpoint(&Checkpoint::open(dir)?, wanted, (&step.device, Seed(1)))
}

/// The tasks with classes: sequences, several labels, tokens; of both families.
fn classifying() -> impl Iterator<Item = Step> {
    Step::every_tiny().into_iter().filter(|step| step.model.head().answers().is_some())
}

#[test]
fn a_decoder_answers_from_its_last_token_that_is_not_padding() {
    let decoders = classifying().filter(|step| {
        step.model.is_decoder() && matches!(step.model.head(), Head::Sequence { .. })
    });
    let mut seen = 0;
    for step in decoders {
        seen += 1;
        let (padding, ids) = (7, [[3, 9, 4], [5, 7, 6]]);
        let ended = [[3, 9, 4, 7, 7], [5, 7, 6, 7, 7]];
        let config = |pad_token_id| Config { pad_token_id, ..step.model.config().clone() };
        let model = |pad| Model::new(config(pad), step.model.head(), None).unwrap();
        let logits = |model: &Model, batch: &Batch| {
            let mut tape = Tape::new(&step.device);
            bits(&model.logits(&mut tape, step.params.frozen(), batch).unwrap().tensor.to_host())
        };
        let loss = |model: &Model, batch: &Batch| {
            let (mut tape, weights) = (Tape::new(&step.device), step.params.frozen());
            let loss = match &step.answers {
                Right::Labels(_) => {
                    let labels = vec![1.0; 2 * model.head().classes().unwrap()];
                    model.loss(&mut tape, weights, batch, Targets::Labels(&labels))
                }
                Right::Classes(_) => {
                    model.loss(&mut tape, weights, batch, Targets::Classes(&[Some(0), Some(1)]))
                }
            };
            loss.unwrap().tensor.item().to_bits()
        };
        let (whole, ended) = (Batch::new(&ids).unwrap(), Batch::new(&ended).unwrap());
        let (without, with) = (model(None), model(Some(padding)));
        let expected = logits(&without, &whole);
        assert_eq!(logits(&with, &whole), expected, "no text ends with padding");
        assert_eq!(logits(&with, &ended), expected, "{}", step.name);
        assert_ne!(logits(&without, &ended), expected, "without padding the last token is read");
        assert_eq!(loss(&with, &ended), loss(&without, &whole), "{}", step.name);
        // As the library: a text of nothing else is read from its first token.
        let nothing = Batch::new(&[[padding, padding]]).unwrap();
        let first = Batch::new(&[[padding]]).unwrap();
        assert_eq!(logits(&with, &nothing), logits(&with, &first));
    }
    assert!(seen > 0);
}

#[test]
fn rows_follow_the_names_of_their_classes_in_every_task() {
    assert_eq!(classifying().count(), 5);
    for step in classifying() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &step, Some(&STORED));
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        let head = checkpoint.trained_head(step.model.head().answers().unwrap()).unwrap();
        let mut sorted = owned(&STORED);
        sorted.sort();
        let HeadFit::Kept(names) = head.fit(&sorted) else { panic!("{}", step.name) };
        let place = |name| names.iter().position(|other| other == name).unwrap();
        let rows: Vec<usize> = sorted.iter().map(place).collect();
        let loaded = load(dir.path(), &step, Classifier::Rows(rows.clone())).unwrap();
        assert_eq!(loaded.report.lines(), Vec::<String>::new(), "{}", step.name);

        // The answer for a class is what it was, at the class's new place.
        let before = step.logits();
        let sorted = Step { model: loaded.model, params: loaded.params, ..step };
        let (before, after) = (before.to_host(), sorted.logits().to_host().into_owned());
        let expected: Vec<f32> =
            before.chunks(5).flat_map(|row| rows.iter().map(|&at| row[at])).collect();
        assert_eq!(bits(&after), bits(&expected), "{}", sorted.name);
    }
}

#[test]
fn rows_that_are_no_order_are_refused() {
    let step = classifying().next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &step, None);
    for rows in [vec![0, 1, 2, 3], vec![0, 1, 2, 3, 3], vec![0, 1, 2, 3, 5]] {
        let error = load(dir.path(), &step, Classifier::Rows(rows)).unwrap_err().to_string();
        assert!(error.ends_with("expected each of 0..5 once"), "{error}");
    }
}

#[test]
fn a_folder_says_what_its_head_is() {
    let check = |step: &Step, change: &Value, expected: &TrainedHead| {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), step, Some(&STORED));
        change_config(dir.path(), change);
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        let found = checkpoint.trained_head(Answers::Sequences).unwrap();
        assert_eq!(found, *expected, "{} {change}", step.name);
    };
    let named = TrainedHead::Named(owned(&STORED));
    for step in Step::every_tiny() {
        match step.model.head() {
            Head::Sequence { .. } => {
                check(&step, &json!({}), &named);
                check(&step, &json!({"architectures": null}), &named);
                let nameless = json!({"id2label": null, "label2id": null});
                check(&step, &nameless, &TrainedHead::Numbered(5));
                let regression = json!({"problem_type": "regression"});
                check(&step, &regression, &TrainedHead::OtherTask("regression"));
            }
            Head::Tokens { .. } => {
                check(&step, &json!({}), &TrainedHead::OtherTask("token classification"));
            }
            Head::Language | Head::Bare => check(&step, &json!({}), &TrainedHead::Absent),
        }
    }
}

#[test]
fn a_head_that_contradicts_its_labels_is_refused() {
    let refused = |change: &Value, expected: &str| {
        let step = classifying().next().unwrap();
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &step, Some(&STORED));
        change_config(dir.path(), change);
        let message = load(dir.path(), &step, Classifier::Stored).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    let two = json!({"id2label": {"0": "a", "1": "b"}, "label2id": null});
    refused(
        &two,
        "tensor \"classifier.weight\": found 5 rows, expected the 2 classes of id2label in config.json",
    );
    let twice =
        json!({"id2label": {"0": "a", "1": "b", "2": "a", "3": "c", "4": "d"}, "label2id": null});
    refused(&twice, "a different name for each class");
    let hole = json!({"id2label": {"0": "a", "2": "b"}, "label2id": null});
    refused(&hole, "without a gap");
}

#[test]
fn a_head_of_another_type_is_refused_where_it_is_needed_and_said_where_it_is_not() {
    let step = classifying().next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &step, Some(&STORED));
    // 5 x 24 numbers in four bytes each: the same file with another name for their type.
    let path = dir.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let text = std::str::from_utf8(&bytes[8..8 + header]).unwrap();
    let entry = text.find("\"classifier.weight\"").unwrap();
    let dtype = entry + text[entry..].find("F32").unwrap();
    bytes[8 + dtype..8 + dtype + 3].copy_from_slice(b"I32");
    std::fs::write(&path, bytes).unwrap();
    let message = load(dir.path(), &step, Classifier::Rows(vec![4, 3, 2, 1, 0])).unwrap_err();
    let message = message.to_string();
    assert!(message.contains("found I32 of shape [5, 24], expected F32, F16 or BF16"), "{message}");
    let lines = load(dir.path(), &step, Classifier::Stored).unwrap().report.lines();
    assert_eq!(
        lines,
        ["reinitialised: classifier.weight (the folder's is not stored as F32, F16 or BF16)"]
    );
}

#[test]
fn a_head_of_other_labels_is_drawn_anew_and_both_lists_are_told() {
    let step = classifying().next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &step, Some(&STORED));
    let (wanted, stored) = (owned(&["a", "b", "c", "d", "e"]), owned(&STORED));
    let why = WhyFresh::OtherLabels { wanted, stored };
    let loaded = load(dir.path(), &step, Classifier::Fresh(why)).unwrap();
    assert_eq!(
        loaded.report.lines(),
        [
            "reinitialised: classifier.weight, classifier.bias (the labels are a, b, c, d, e; the folder's \
          head answers with mild, absent, severe, none, grave)"
        ]
    );
    let id = "head.classifier.weight".parse().unwrap();
    let weight = |params: &fedra_compute::Params| params.get(id).unwrap().to_host().into_owned();
    assert_ne!(weight(&loaded.params), weight(&step.params));
    let body = "head.pooler.weight".parse().unwrap();
    let pooler = |params: &fedra_compute::Params| params.get(body).unwrap().to_host().into_owned();
    assert_eq!(pooler(&loaded.params), pooler(&step.params));
}

#[test]
fn a_fresh_head_is_as_wide_as_the_folder_says() {
    let step = classifying().next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &step, Some(&STORED));
    let drawn = |range: Option<f64>| {
        change_config(dir.path(), &json!({ "initializer_range": range }));
        let loaded = load(dir.path(), &step, Classifier::Fresh(WhyFresh::Asked)).unwrap();
        assert_eq!(loaded.model.config().initializer_range, range.unwrap_or(0.02));
        let id = "head.classifier.weight".parse().unwrap();
        loaded.params.get(id).unwrap().to_host().into_owned()
    };
    let (usual, absent, wide) = (drawn(Some(0.02)), drawn(None), drawn(Some(0.5)));
    assert_eq!(bits(&usual), bits(&absent));
    for (usual, wide) in usual.iter().zip(&wide) {
        assert!((usual * 25.0 - wide).abs() < 1e-6, "{usual} {wide}");
    }
}

#[test]
fn an_output_vocabulary_is_neither_drawn_nor_ignored_in_silence() {
    let decoder = |step: &Step| step.model.is_decoder();
    let language = |step: &Step| step.model.head() == Head::Language;
    let step = Step::every_tiny().into_iter().find(|s| decoder(s) && language(s)).unwrap();
    let config = step.model.config();
    let with = |tied| {
        let config = Config { tie_word_embeddings: tied, ..config.clone() };
        let model = Model::new(config, Head::Language, None).unwrap();
        let params = model.fresh_params(&step.device, Seed(5)).unwrap();
        Step { model, params, ..step.clone() }
    };
    let dir = tempfile::tempdir().unwrap();
    // Saved without lm_head.weight, and then said to be untied.
    write(dir.path(), &with(true), None);
    change_config(dir.path(), &json!({"tie_word_embeddings": false}));
    let message = load(dir.path(), &with(false), Classifier::Stored).unwrap_err().to_string();
    assert!(message.contains("\"lm_head.weight\": found no such tensor, expected one of shape"));
    assert!(message.contains("or \"tie_word_embeddings\": true in config.json"), "{message}");
    // Saved with one of its own, and then said to be tied.
    write(dir.path(), &with(false), None);
    change_config(dir.path(), &json!({"tie_word_embeddings": true}));
    let message = load(dir.path(), &with(true), Classifier::Stored).unwrap_err().to_string();
    let found =
        "tensor \"lm_head.weight\": found other values, first at element 0, expected an equal copy";
    assert!(message.contains(found), "{message}");
}

#[test]
fn a_configuration_takes_no_memory_for_positions_that_no_sequence_has() {
    let step = Step::every_tiny().pop().unwrap();
    let config = Config { max_position_embeddings: 1 << 26, ..step.model.config().clone() };
    let model = Model::new(config, step.model.head(), None).unwrap();
    // A table for all of them would be gigabytes, and its cosines minutes.
    let long = Step { model, ..step.clone() };
    assert_eq!(bits(&long.logits().to_host()), bits(&step.logits().to_host()));
}

#[test]
fn a_rank_above_the_matrix_is_refused() {
    for step in Step::every_tiny() {
        let with = |rank| {
            let roles = [fedra_plan::Role::Query, fedra_plan::Role::Down];
            let adapters = Adapters::new(rank, 1.0, roles).unwrap();
            Model::new(step.model.config().clone(), step.model.head(), Some(adapters))
        };
        assert!(with(24).is_ok(), "{}", step.name);
        for rank in [25, 1_000_000] {
            let message = with(rank).unwrap_err().to_string();
            let expected = format!(
                "LoRA rank: found {rank}, expected at most 24, the smaller side of \
                 block.0.query.weight (24 x 24)"
            );
            assert_eq!(message, expected, "{}", step.name);
        }
    }
}
