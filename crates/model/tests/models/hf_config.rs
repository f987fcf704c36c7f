//! `config.json`, read, refused and written.

use std::path::Path;

use fedra_model::hf::{Architecture, Config, Labels, Precision, Problem};
use fedra_model::{Positions, RopeScaling};
use serde_json::{Value, json};

fn bert() -> Value {
    json!({
        "model_type": "bert", "vocab_size": 100, "hidden_size": 12, "num_hidden_layers": 2,
        "num_attention_heads": 3, "intermediate_size": 24, "max_position_embeddings": 16,
        "hidden_act": "gelu", "classifier_dropout": null, "some_future_key": {"kept": [1, 2.5]}
    })
}

fn llama() -> Value {
    json!({
        "model_type": "llama", "vocab_size": 100, "hidden_size": 12, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 24, "max_position_embeddings": 16
    })
}

fn with(mut base: Value, change: Value) -> Value {
    let Value::Object(change) = change else { panic!("an object") };
    for (key, value) in change {
        base[key] = value;
    }
    base
}

fn parse(json: &Value) -> Result<Config, String> {
    Config::parse(Path::new("config.json"), json.to_string().as_bytes()).map_err(|e| e.to_string())
}

fn parse_llama(change: Value) -> Config {
    parse(&with(llama(), change)).unwrap()
}

fn theta(config: &Config) -> f64 {
    let Positions::Rotary(rope) = &config.positions else { panic!("a decoder") };
    rope.theta
}

#[track_caller]
fn check(base: &Value, change: Value, expected: &str) {
    let message = parse(&with(base.clone(), change)).unwrap_err();
    assert!(message.contains(expected), "{message}");
}

/// The class of this name.
fn class(name: &str) -> Architecture {
    Architecture::parse(name).unwrap()
}

#[test]
fn absent_keys_mean_what_the_library_means() {
    let config = parse(&bert()).unwrap();
    assert_eq!((config.type_vocab_size, config.norm.epsilon), (2, 1e-12));
    assert_eq!((config.pad_token_id, config.labels), (Some(0), None));
    let config = parse_llama(json!({}));
    assert_eq!((config.kv_heads(), config.head_width()), (6, 2));
    assert_eq!((theta(&config), config.norm.epsilon), (10_000.0, 1e-6));
    assert_eq!((config.pad_token_id, config.bos_token_id), (None, Some(1)));
    assert_eq!((config.eos_token_ids, config.tie_word_embeddings), (vec![2], false));
}

#[test]
fn rotary_base_is_found_in_either_generation_of_the_file() {
    let theta = |change| theta(&parse_llama(change));
    assert_eq!(theta(json!({"rope_theta": 5e5, "rope_scaling": null})), 5e5);
    assert_eq!(theta(json!({"rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}})), 7.0);
    assert_eq!(theta(json!({"rope_theta": 7, "rope_parameters": {"rope_theta": 7.0}})), 7.0);
}

#[test]
fn several_end_tokens_are_kept() {
    assert_eq!(parse_llama(json!({"eos_token_id": [5, 6]})).eos_token_ids, [5, 6]);
    assert!(parse_llama(json!({"eos_token_id": null})).eos_token_ids.is_empty());
}

#[test]
fn sizes_must_make_sense() {
    for base in [bert(), llama()] {
        for key in [
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
        ] {
            for bad in [json!(0), json!(-1), json!(1.5), json!("8"), json!(null), json!(u64::MAX)] {
                check(&base, json!({ key: bad }), &format!("config.json: {key}: found"));
            }
        }
        check(&base, json!({"num_attention_heads": 5}), "a divisor of hidden_size, which is 12");
        check(&base, json!({"pad_token_id": 100}), "a token below vocab_size, 100");
        check(&base, json!({"pad_token_id": -2}), "a token's number");
    }
    check(&bert(), json!({"layer_norm_eps": 0}), "a finite number above zero");
    check(&bert(), json!({"layer_norm_eps": "1e-12"}), "a finite number above zero");
    check(&llama(), json!({"num_key_value_heads": 4}), "a divisor of num_attention_heads, 6");
    check(&llama(), json!({"head_dim": 3}), "head_dim: found 3, expected an even number, at most");
    check(
        &llama(),
        json!({"num_attention_heads": 4}),
        "head_dim: found nothing, so 3 (hidden_size",
    );
    check(&llama(), json!({"head_dim": 1 << 18}), "head_dim");
    check(&llama(), json!({"rope_theta": -1.0}), "rope_theta: found -1.0");
}

#[test]
fn what_is_not_supported_is_named() {
    check(
        &bert(),
        json!({"model_type": "deberta-v2"}),
        r#"found "deberta-v2", a model with relative positions, expected one of "bert""#,
    );
    check(&bert(), json!({"model_type": null}), "model_type: found null");
    check(
        &bert(),
        json!({"hidden_act": "gelu_new"}),
        r#"found "gelu_new", expected "gelu" or "gelu_python""#,
    );
    check(&bert(), json!({"position_embedding_type": "relative_key"}), r#"expected "absolute""#);
    check(&bert(), json!({"is_decoder": true}), "is_decoder: found true, expected false");
    check(&bert(), json!({"pruned_heads": {"1": [0]}}), "pruned_heads");
    check(&bert(), json!({"tie_word_embeddings": false}), "tie_word_embeddings");
    check(&llama(), json!({"hidden_act": "gelu"}), r#"expected "silu""#);
    for (config, method) in [
        (json!({"quant_method": "gptq", "bits": 4}), "(gptq)"),
        (json!({"load_in_4bit": true}), "(bitsandbytes)"),
        (json!({"bits": 4}), "(by a method that it does not name)"),
    ] {
        let expected = format!(
            "quantization_config: found a quantised checkpoint {method}, expected weights stored as \
             F32, F16 or BF16"
        );
        check(&llama(), json!({ "quantization_config": config }), &expected);
        check(&bert(), json!({ "quantization_config": config }), &expected);
    }
    let other = json!({"type": "ntk", "factor": 2.0});
    check(&llama(), json!({"rope_scaling": other}), r#"rope_scaling.type: found "ntk""#);
    let long = json!({"type": "longrope", "short_factor": [1.0]});
    let list = "rope_scaling.long_factor: found nothing, expected a list of finite numbers above";
    check(&llama(), json!({"rope_scaling": long}), list);
    let long = json!({"type": "su", "short_factor": [1.0], "long_factor": [1.0, 2.0]});
    let found = "short_factor: found 1 numbers, expected 3, half the width of a head";
    check(&llama(), json!({"head_dim": 6, "rope_scaling": long}), found);
    let long = json!({"type": "su", "short_factor": [1.0], "long_factor": [0.0]});
    check(&llama(), json!({"rope_scaling": long}), "rope_scaling.long_factor: found [0.0]");
    let long = json!({"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]});
    let gemma = json!({"model_type": "gemma3_text", "head_dim": 2, "rope_scaling": long});
    check(&llama(), gemma, "rope_type: found \"longrope\", expected another scaling");
    let llama3 = json!({"rope_type": "llama3", "rope_theta": 5e5});
    check(&llama(), json!({"rope_parameters": llama3}), "rope_parameters.factor: found nothing");
    let partial = json!({"partial_rotary_factor": 0.5});
    check(&llama(), json!({"rope_parameters": partial}), "partial_rotary_factor: found 0.5");
    let reason = "expected 1: a model whose positions turn only a part of each head's entries";
    // Older files say it outside of the table.
    let top = json!({"partial_rotary_factor": 0.75});
    check(&llama(), top.clone(), &format!("partial_rotary_factor: found 0.75, {reason}"));
    let long = json!({"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]});
    let phi =
        json!({"model_type": "phi3", "pad_token_id": 0, "bos_token_id": 1, "rope_scaling": long});
    check(&with(llama(), phi), top, reason);
    let local = json!({"sliding_attention": {"partial_rotary_factor": 0.5}});
    let gemma = json!({"model_type": "gemma3_text", "head_dim": 2, "rope_parameters": local});
    check(&llama(), gemma, reason);
    assert!(parse(&with(llama(), json!({"partial_rotary_factor": 1.0}))).is_ok());
    let capped =
        json!({"model_type": "gemma3_text", "head_dim": 2, "attn_logit_softcapping": 50.0});
    check(&llama(), capped, "attn_logit_softcapping: found 50.0, expected null");
    let two = json!({"rope_theta": 1.0, "rope_parameters": {"rope_theta": 2.0}});
    check(&llama(), two, "rope_parameters.rope_theta: found 2.0, expected 1, as said elsewhere");
}

#[test]
fn positions_without_a_base_have_that_of_their_family() {
    for (family, base) in [
        ("llama", 1e4),
        ("mistral", 1e4),
        ("qwen2", 1e4),
        ("qwen3", 1e4),
        ("gemma", 1e4),
        ("gemma2", 1e4),
        ("gemma3_text", 1e6),
        ("phi3", 1e4),
        ("olmo2", 1e4),
        ("smollm3", 2e6),
    ] {
        let tokens = json!({"model_type": family, "head_dim": 4, "pad_token_id": 0,
                            "bos_token_id": 1, "eos_token_id": 2});
        assert_eq!(theta(&parse_llama(tokens.clone())), base, "{family}");
        let said = with(tokens, json!({"rope_theta": 5e5}));
        assert_eq!(theta(&parse_llama(said)), 5e5, "{family}");
    }
}

#[test]
fn gemma_3_has_the_names_of_its_text_classes_and_those_without_text_are_read() {
    let gemma = |name: &str| {
        parse_llama(json!({"model_type": "gemma3_text", "head_dim": 4, "architectures": [name]}))
    };
    for (written, end) in [
        ("Gemma3TextForSequenceClassification", "ForSequenceClassification"),
        ("Gemma3TextModel", "Model"),
        ("Gemma3ForCausalLM", "ForCausalLM"),
    ] {
        let architecture = gemma(written).architecture().unwrap();
        assert_eq!(architecture.class_name(), written);
        assert_eq!(gemma(&format!("Gemma3{end}")).architecture(), Some(architecture));
        let json = gemma(written).to_json(architecture, Precision::F32);
        assert_eq!(json["architectures"], json!([written]));
    }
    assert_eq!(gemma("LlamaForCausalLM").architecture(), None);
    assert_eq!(gemma("Gemma3ForConditionalGeneration").architecture(), None);
}

#[test]
fn other_names_of_what_there_is_are_accepted() {
    assert!(parse(&with(bert(), json!({"hidden_act": "gelu_python"}))).is_ok());
    assert!(parse(&with(llama(), json!({"hidden_act": "swish"}))).is_ok());
    for other in ["gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu"] {
        check(&bert(), json!({ "hidden_act": other }), &format!("hidden_act: found {other:?}"));
        check(&llama(), json!({ "hidden_act": other }), &format!("hidden_act: found {other:?}"));
    }
}

#[test]
fn the_deviation_of_new_weights_is_read_and_kept() {
    for base in [bert(), llama()] {
        assert_eq!(parse(&base).unwrap().initializer_range, 0.02);
        let config = parse(&with(base.clone(), json!({"initializer_range": 0.1}))).unwrap();
        assert_eq!(config.initializer_range, 0.1);
        check(&base, json!({"initializer_range": -0.1}), "initializer_range: found -0.1");
        check(&base, json!({"initializer_range": "0.1"}), "a finite number above zero");
    }
    let config = Config { initializer_range: 0.1, ..Config::llama() };
    let json = config.to_json(class("LlamaModel"), Precision::F32);
    assert_eq!(json["initializer_range"], 0.1);
}

#[test]
fn files_that_are_no_configuration_are_refused() {
    for (text, expected) in [
        ("", "EOF"),
        ("[]", "expected a map"),
        ("{\"model_type\":", "EOF"),
        (&"[".repeat(1_000_000), "a JSON object"),
        (&format!("{{\"a\":{}", "[".repeat(1_000_000)), "recursion limit"),
    ] {
        let message = Config::parse(Path::new("c"), text.as_bytes()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let long = json!({"model_type": "x".repeat(1 << 20)});
    assert!(parse(&long).unwrap_err().len() < 600, "a long value is shortened");
}

#[test]
fn labels_are_read_and_must_be_consistent() {
    let labels = |change| parse(&with(bert(), change)).unwrap().labels.clone().unwrap();
    let read = labels(json!({
        "id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1},
        "problem_type": "multi_label_classification"
    }));
    assert_eq!(read.names, ["no", "yes"]);
    assert_eq!(read.problem, Some(Problem::MultiLabel));
    assert_eq!(labels(json!({"num_labels": 3})).names, ["LABEL_0", "LABEL_1", "LABEL_2"]);
    check(&bert(), json!({"id2label": {"0": "a", "2": "b"}}), "without a gap");
    check(
        &bert(),
        json!({"id2label": {"0": "a", "1": "a"}}),
        "id2label: found {\"0\":\"a\",\"1\":\"a\"}, expected a different name for each class",
    );
    check(&bert(), json!({"id2label": {}}), "without a gap");
    check(&bert(), json!({"id2label": {"0": 1}}), "without a gap");
    let inverse = json!({"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 1, "b": 0}});
    check(&bert(), inverse, "the inverse of id2label");
    check(&bert(), json!({"problem_type": "guess"}), "single_label_classification");
}

#[test]
fn saving_keeps_unknown_keys_and_reads_back_the_same() {
    for base in [bert(), with(llama(), json!({"rope_theta": 5e5}))] {
        let mut config = parse(&base).unwrap();
        let names = vec!["O".to_owned(), "B".to_owned()];
        config.labels = Some(Labels { names, problem: Some(Problem::SingleLabel) });
        let name =
            format!("{}ForTokenClassification", if config.causal { "Llama" } else { "Bert" });
        let architecture = class(&name);
        let saved = config.to_json(architecture, Precision::BF16);
        assert_eq!(saved["architectures"], json!([name]));
        assert_eq!(saved["dtype"], "bfloat16");
        assert_eq!(saved["some_future_key"], base["some_future_key"]);
        let again = parse(&saved).unwrap();
        assert_eq!(again.labels, config.labels);
        assert_eq!(again.architecture(), Some(architecture));
        assert_eq!(again.to_json(architecture, Precision::BF16), saved);
    }
}

#[test]
fn a_configuration_made_in_code_is_checked_like_a_file() {
    let config = Config { num_key_value_heads: Some(3), ..Config::llama() };
    let message = config.check().unwrap_err().to_string();
    assert!(message.contains("num_key_value_heads: found 3"), "{message}");
    let mut config = Config::llama();
    config.labels = Some(Labels { names: vec![], problem: None });
    assert!(config.check().unwrap_err().to_string().contains("id2label: found {}"));
    Config::llama().check().unwrap();
    Config::bert().check().unwrap();
}

#[test]
fn a_kind_of_model_that_is_missing_is_refused_by_what_it_has() {
    for (json, found) in [
        (r#"{"model_type": "deberta-v2"}"#, r#""deberta-v2", a model with relative positions"#),
        (r#"{"model_type": "t5"}"#, r#""t5", a model with an encoder and a decoder"#),
        (r#"{"model_type": "mixtral"}"#, r#""mixtral", a model with a mixture of experts"#),
        (
            r#"{"model_type": "new", "num_local_experts": 8}"#,
            r#""new", a model with a mixture of experts"#,
        ),
        (
            r#"{"model_type": "new", "is_encoder_decoder": true}"#,
            r#""new", a model with an encoder and a decoder"#,
        ),
        (r#"{"model_type": "new", "is_encoder_decoder": false, "num_experts": 1}"#, r#""new""#),
        ("{}", "nothing"),
    ] {
        let error = Config::parse("config.json".as_ref(), json.as_bytes()).unwrap_err();
        let expected = format!(
            "config.json: model_type: found {found}, expected one of \"bert\", \"roberta\""
        );
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

#[test]
fn older_files_scale_the_blocks_without_a_window_and_phi_3_has_one() {
    let gemma = |change| parse(&with(llama(), change)).unwrap();
    let scaling = json!({"rope_type": "linear", "factor": 8.0});
    let old = gemma(json!({"model_type": "gemma3_text", "head_dim": 4, "rope_scaling": scaling}));
    let both = json!({
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}
    });
    let new = gemma(json!({"model_type": "gemma3_text", "head_dim": 4, "rope_parameters": both}));
    assert_eq!(old.positions, new.positions);
    let Positions::Rotary(rope) = &old.positions else { panic!("a decoder") };
    assert_eq!(rope.scaling, RopeScaling::Linear { factor: 8.0 });
    let phi = |change| {
        parse(&with(with(llama(), json!({"model_type": "phi3", "pad_token_id": 0})), change))
            .unwrap()
    };
    assert_eq!(phi(json!({})).window, None);
    assert_eq!(phi(json!({"sliding_window": null})).window, None);
    let window = phi(json!({"sliding_window": 2047})).window.unwrap();
    assert_eq!((window.distance, window.blocks), (2046, vec![true, true]));
}

#[test]
fn factors_of_long_texts_are_found_in_either_generation_of_the_file() {
    let phi = json!({"model_type": "phi3", "pad_token_id": 0, "max_position_embeddings": 64});
    let read = |change| {
        let config = parse(&with(with(llama(), phi.clone()), change)).unwrap();
        let Positions::Rotary(rope) = config.positions else { panic!("a decoder") };
        let RopeScaling::LongRope(scaling) = rope.scaling else { panic!("longrope") };
        scaling
    };
    let (short, long) = (vec![1.25], vec![7.0]);
    let old = |kind: &str| {
        let scaling = json!({"type": kind, "short_factor": short, "long_factor": long});
        json!({"rope_scaling": scaling, "original_max_position_embeddings": 16})
    };
    let found = read(old("longrope"));
    assert_eq!((&found.short, &found.long, found.original), (&short, &long, 16));
    // Four times as long as before: sqrt(1 + ln 4 / ln 16).
    assert!((found.attention - 1.5_f64.sqrt()).abs() < 1e-15, "{}", found.attention);
    assert_eq!(read(old("su")), found);
    assert_eq!(read(old("yarn")), found);
    let new = json!({
        "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": short, "long_factor": long,
        "original_max_position_embeddings": 16
    });
    assert_eq!(read(json!({ "rope_parameters": new })), found);
    let own = with(new.clone(), json!({"attention_factor": 1.5}));
    assert_eq!(read(json!({ "rope_parameters": own })).attention, 1.5);
    let twice = with(new, json!({"factor": 2.0, "original_max_position_embeddings": 99}));
    let twice = read(json!({"rope_parameters": twice, "original_max_position_embeddings": 16}));
    assert_eq!((twice.original, twice.attention), (16, 1.25_f64.sqrt()));
}
