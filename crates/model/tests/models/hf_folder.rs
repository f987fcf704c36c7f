//! Whole model folders: found, loaded, saved, and real ones where they are at hand.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fedra_model::hf::checkpoint::Reason;
use fedra_model::hf::names::Meaning;
use fedra_model::hf::{
    Architecture, Checkpoint, Companions, Config, Folder, Found, Labels, Precision, Weights, writer,
};
use fedra_plan::{Layer, Layout, ParamId, Shape};

/// Lines of `id rows columns` or `id length`.
fn layout(text: &str) -> Layout {
    Layout::new(text.lines().map(|line| {
        let mut words = line.split_whitespace();
        let id: ParamId = words.next().unwrap().parse().unwrap();
        let dims: Vec<usize> = words.map(|word| word.parse().unwrap()).collect();
        (id, Shape::new(&dims).unwrap())
    }))
    .unwrap()
}

const BERT_BACKBONE: &str = "\
embedding.token.weight 10 4
embedding.position.weight 6 4
embedding.embedding_norm.weight 4
embedding.embedding_norm.bias 4
block.0.query.weight 4 4
block.0.query.bias 4
block.0.key.weight 4 4
block.0.key.bias 4
block.0.value.weight 4 4
block.0.value.bias 4
block.0.output.weight 4 4
block.0.output.bias 4
block.0.attention_norm.weight 4
block.0.attention_norm.bias 4
block.0.up.weight 8 4
block.0.up.bias 8
block.0.down.weight 4 8
block.0.down.bias 4
block.0.mlp_norm.weight 4
block.0.mlp_norm.bias 4
";

const LLAMA_BACKBONE: &str = "\
embedding.token.weight 10 4
block.0.attention_norm.weight 4
block.0.query.weight 4 4
block.0.key.weight 2 4
block.0.value.weight 2 4
block.0.output.weight 4 4
block.0.mlp_norm.weight 4
block.0.gate.weight 8 4
block.0.up.weight 8 4
block.0.down.weight 4 8
head.final_norm.weight 4
";

fn bert() -> Config {
    Config {
        vocab_size: 10,
        hidden_size: 4,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        intermediate_size: 8,
        max_position_embeddings: 6,
        type_vocab_size: 0,
        ..Config::bert()
    }
}

fn llama(tie_word_embeddings: bool) -> Config {
    Config {
        vocab_size: 10,
        hidden_size: 4,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: Some(1),
        head_dim: Some(2),
        intermediate_size: 8,
        max_position_embeddings: 6,
        tie_word_embeddings,
        ..Config::llama()
    }
}

/// Distinct values per parameter, exact in every precision.
fn values(layout: &Layout, id: ParamId) -> Vec<f32> {
    let place = layout.ids().position(|other| other == id).unwrap();
    (0..layout.get(id).unwrap().elements()).map(|i| (place + i) as f32 / 4.0).collect()
}

fn save(
    dir: &Path,
    config: &Config,
    architecture: Architecture,
    layout: &Layout,
) -> Result<(), String> {
    let companions = Companions::with_tokenizer(br#"{"model": {"type": "WordLevel"}}"#.to_vec());
    let companions = companions.unwrap();
    let folder =
        Folder { config, architecture, precision: Precision::F16, companions: &companions };
    folder
        .save(dir, layout, |id| Ok(Cow::Owned(values(layout, id))))
        .map_err(|error| error.to_string())
}

fn never(_: ParamId) -> bool {
    false
}

fn load(checkpoint: &Checkpoint, found: &Found) -> BTreeMap<ParamId, Vec<f32>> {
    checkpoint.tensors(found).collect::<Result<_, _>>().unwrap()
}

#[track_caller]
fn check_round_trip(config: &Config, architecture: Architecture, layout: &Layout) -> Found {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("new").join("model");
    save(&inner, config, architecture, layout).unwrap();
    let checkpoint = Checkpoint::open(&inner).unwrap();
    assert_eq!(checkpoint.config().architecture(), Some(architecture));
    assert!(checkpoint.companions().tokenizer().is_some());
    let found = checkpoint.find(layout, never).unwrap();
    for (id, read) in load(&checkpoint, &found) {
        assert_eq!(read, values(layout, id), "{id}");
    }
    assert_eq!(found.tensors.len(), layout.len());
    found
}

/// The class of this name.
fn class(name: &str) -> Architecture {
    Architecture::parse(name).unwrap()
}

#[test]
fn every_architecture_survives_saving_and_loading() {
    let segment = "embedding.segment.weight 2 4\n";
    let two = Config { type_vocab_size: 2, ..bert() };
    let pooler = "head.pooler.weight 4 4\nhead.pooler.bias 4\n";
    let classifier = "head.classifier.weight 3 4\nhead.classifier.bias 3\n";
    let predictions = "head.transform.weight 4 4\nhead.transform.bias 4\n\
        head.transform_norm.weight 4\nhead.transform_norm.bias 4\nhead.vocabulary.bias 10\n";
    for (architecture, head) in [
        (class("BertModel"), pooler),
        (class("BertForSequenceClassification"), &[pooler, classifier].concat()),
        (class("BertForTokenClassification"), classifier),
        (class("BertForMaskedLM"), predictions),
    ] {
        check_round_trip(&two, architecture, &layout(&[BERT_BACKBONE, segment, head].concat()));
    }
    let score = "head.classifier.weight 3 4\n";
    let vocabulary = "head.vocabulary.weight 10 4\n";
    for (architecture, tied, head) in [
        (class("LlamaModel"), true, ""),
        (class("LlamaForCausalLM"), true, ""),
        (class("LlamaForCausalLM"), false, vocabulary),
        (class("LlamaForSequenceClassification"), false, score),
        (class("LlamaForTokenClassification"), false, classifier),
    ] {
        let layout = layout(&[LLAMA_BACKBONE, head].concat());
        check_round_trip(&llama(tied), architecture, &layout);
    }
}

#[test]
fn a_model_without_segments_is_saved_with_a_row_of_zeros() {
    let dir = tempfile::tempdir().unwrap();
    save(dir.path(), &bert(), class("BertModel"), &layout(BERT_BACKBONE)).unwrap();
    let weights = Weights::open(dir.path()).unwrap();
    assert_eq!(weights.read_f32("embeddings.token_type_embeddings.weight").unwrap(), [0.0; 4]);
    let config = Config::open(dir.path()).unwrap();
    assert_eq!(config.type_vocab_size, 1);
}

#[test]
fn what_the_class_cannot_hold_is_not_saved() {
    let refused = |config: &Config, architecture, head: &str, expected: &str| {
        let dir = tempfile::tempdir().unwrap();
        let backbone = if config.causal { LLAMA_BACKBONE } else { BERT_BACKBONE };
        let layout = layout(&[backbone, head].concat());
        let message = save(dir.path(), config, architecture, &layout).unwrap_err();
        assert!(message.contains(expected), "{message}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    };
    let adapter = "block.0.query.lora_a 2 4\n";
    let causal = class("LlamaForCausalLM");
    refused(&llama(true), causal, adapter, "cannot save block.0.query.lora_a");
    refused(&llama(false), causal, "", "tie_word_embeddings: found false, expected true");
    refused(
        &llama(true),
        causal,
        "head.vocabulary.weight 10 4\n",
        "expected false for a model with",
    );
    let pooler = "head.pooler.weight 4 4\n";
    refused(&bert(), class("BertForTokenClassification"), pooler, "has no such parameter");
    refused(&bert(), class("LlamaModel"), "", "LlamaModel has no such parameter");
}

#[test]
fn a_new_head_begins_fresh_and_an_old_one_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let old = "head.pooler.weight 4 4\nhead.pooler.bias 4\nhead.classifier.weight 3 4\nhead.classifier.bias 3\n";
    let old = layout(&[BERT_BACKBONE, "embedding.segment.weight 1 4\n", old].concat());
    save(dir.path(), &bert(), class("BertForSequenceClassification"), &old).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let new = "embedding.segment.weight 1 4\nhead.classifier.weight 5 4\nhead.classifier.bias 5\n";
    let new = layout(&[BERT_BACKBONE, new].concat());
    let message = checkpoint.find(&new, never).unwrap_err().to_string();
    let expected = r#"head.classifier.weight as "classifier.weight": found F16 of shape [3, 4], expected F32, F16 or BF16 of shape [5, 4]"#;
    assert!(message.ends_with(expected), "{message}");

    let found = checkpoint.find(&new, |id| id.layer == Layer::Head).unwrap();
    let text = |ids: &[ParamId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text(&found.fresh), ["head.classifier.weight", "head.classifier.bias"]);
    let reason = |reason: &Reason| match reason {
        Reason::OtherShape { id, .. } => format!("other shape of {id}"),
        Reason::UnwantedHead(id) => format!("unwanted {id}"),
        Reason::Buffer
        | Reason::OtherHead
        | Reason::Unread
        | Reason::Copy(_)
        | Reason::OtherMeaning(_) => {
            format!("{reason:?}")
        }
    };
    let ignored: Vec<String> =
        found.ignored.iter().map(|i| format!("{}: {}", i.tensor, reason(&i.reason))).collect();
    assert_eq!(
        ignored,
        [
            "classifier.weight: other shape of head.classifier.weight",
            "classifier.bias: other shape of head.classifier.bias",
            "bert.pooler.dense.weight: unwanted head.pooler.weight",
            "bert.pooler.dense.bias: unwanted head.pooler.bias",
        ]
    );
}

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// A tied LLaMA folder whose tensors were changed before they were written.
fn changed(change: impl FnOnce(&mut Tensors)) -> (tempfile::TempDir, Layout) {
    let dir = tempfile::tempdir().unwrap();
    let layout = layout(LLAMA_BACKBONE);
    save(dir.path(), &llama(true), class("LlamaForCausalLM"), &layout).unwrap();
    let path = dir.path().join("model.safetensors");
    let weights = Weights::open(dir.path()).unwrap();
    let mut tensors: Tensors = weights
        .names()
        .map(|name| {
            let shape = weights.info(name).unwrap().shape.to_vec();
            (name.to_owned(), (shape, weights.read_f32(name).unwrap()))
        })
        .collect();
    change(&mut tensors);
    let slices = tensors.iter().map(|(name, (shape, values))| (&**name, &**shape, &**values));
    writer::write(&path, slices, Precision::F32).unwrap();
    (dir, layout)
}

const QUERY: &str = "model.layers.0.self_attn.q_proj.weight";
const TOKEN: &str = "model.embed_tokens.weight";

#[track_caller]
fn check_refused(change: impl FnOnce(&mut Tensors), expected: &str) {
    let (dir, layout) = changed(change);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let result = checkpoint.find(&layout, |id| id.layer == Layer::Head);
    let result = result.and_then(|found| checkpoint.tensors(&found).collect::<Result<Vec<_>, _>>());
    let message = result.unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
}

#[test]
fn a_backbone_that_does_not_fit_is_refused() {
    check_refused(
        |t| drop(t.remove(QUERY)),
        r#"block.0.query.weight as "model.layers.0.self_attn.q_proj.weight": found no such tensor, expected one of shape [4, 4]"#,
    );
    check_refused(
        |t| t.retain(|name, _| name == TOKEN),
        "found no such tensor, nor 8 others, expected one of shape [4]",
    );
    check_refused(|t| t.get_mut(QUERY).unwrap().0 = vec![2, 8], "found F32 of shape [2, 8]");
    check_refused(|t| t.get_mut(QUERY).unwrap().0 = vec![16], "found F32 of shape [16]");
    check_refused(|t| t.get_mut(QUERY).unwrap().0 = vec![4, 4, 1], "F32 of shape [4, 4, 1]");
    check_refused(|t| t.get_mut(QUERY).unwrap().1[3] = f32::NAN, "found NaN at element 3");
    let add = |name: &'static str| {
        move |t: &mut Tensors| drop(t.insert(name.into(), (vec![1], vec![0.0])))
    };
    check_refused(add("surprise"), r#"tensor "surprise": found an unknown name"#);
    check_refused(
        add("model.layers.0.self_attn.q_proj.bias"),
        "a tensor for which the model has no place",
    );
    check_refused(add("model.layers.1.mlp.up_proj.weight"), "for which the model has no place");
    check_refused(add("layers.0.mlp.up_proj.weight"), "expected one tensor per parameter");
}

#[test]
fn harmless_extras_are_reported() {
    let (dir, layout) = changed(|tensors| {
        let one = (vec![1], vec![0.0]);
        tensors.insert("model.layers.0.self_attn.rotary_emb.inv_freq".into(), one.clone());
        tensors.insert("qa_outputs.weight".into(), one);
        let token = tensors[TOKEN].clone();
        tensors.insert("lm_head.weight".into(), token);
    });
    let found = Checkpoint::open(dir.path()).unwrap().find(&layout, never).unwrap();
    let reasons: Vec<Reason> = found.ignored.iter().map(|ignored| ignored.reason.clone()).collect();
    let token = "embedding.token.weight".parse().unwrap();
    assert_eq!(reasons, [Reason::Buffer, Reason::OtherHead, Reason::Copy(token)]);
}

#[test]
fn a_second_copy_that_differs_is_refused() {
    let copied = |change: fn(&mut (Vec<usize>, Vec<f32>))| {
        move |tensors: &mut Tensors| {
            let mut copy = tensors[TOKEN].clone();
            change(&mut copy);
            tensors.insert("lm_head.weight".into(), copy);
        }
    };
    check_refused(
        copied(|(_, values)| values[7] += 1.0),
        "tensor \"lm_head.weight\": found other values, first at element 7, expected an equal copy \
         of \"model.embed_tokens.weight\"",
    );
    check_refused(copied(|(shape, _)| *shape = vec![4, 10]), "found shape [4, 10], not [10, 4]");
}

#[test]
fn a_quantised_checkpoint_is_called_that_whatever_its_configuration_says() {
    for (tensor, method) in [
        ("model.layers.0.self_attn.q_proj.qweight", "gptq or awq"),
        ("model.layers.0.self_attn.q_proj.g_idx", "gptq"),
        ("model.layers.0.self_attn.q_proj.weight.absmax", "bitsandbytes"),
        ("model.layers.0.self_attn.q_proj.SCB", "bitsandbytes"),
    ] {
        let (dir, _) = changed(|t| drop(t.insert(tensor.into(), (vec![1], vec![0.0]))));
        let message = Checkpoint::open(dir.path()).unwrap_err().to_string();
        let expected = format!(
            "tensor {tensor:?}: found a part of a quantised checkpoint ({method}), expected weights \
             stored as F32, F16 or BF16"
        );
        assert!(message.ends_with(&expected), "{message}");
    }
}

#[test]
fn a_tied_embedding_saved_under_its_other_name_is_found() {
    let (dir, layout) = changed(|tensors| {
        let token = tensors.remove(TOKEN).unwrap();
        tensors.insert("lm_head.weight".into(), token);
    });
    let found = Checkpoint::open(dir.path()).unwrap().find(&layout, never).unwrap();
    assert_eq!(found.tensors[&"embedding.token.weight".parse().unwrap()].tensor, "lm_head.weight");
}

#[test]
fn companions_are_carried_byte_for_byte_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    let tokenizer = b" {\"model\" : {}, \"added\": 1e0}\n";
    write("tokenizer.json", tokenizer);
    write("vocab.txt", b"[PAD]\r\n\xff");
    write("README.md", b"not carried");
    let companions = Companions::open(dir.path()).unwrap();
    assert_eq!(companions.names().collect::<Vec<_>>(), ["tokenizer.json", "vocab.txt"]);
    let copy = tempfile::tempdir().unwrap();
    companions.save(copy.path()).unwrap();
    assert_eq!(fs::read(copy.path().join("tokenizer.json")).unwrap(), tokenizer);
    assert_eq!(Companions::open(copy.path()).unwrap(), companions);

    for (name, bytes, expected) in [
        ("tokenizer.json", "{}", "missing field `model`"),
        ("tokenizer.json", "[1, 2]", "expected a JSON object with a `model`"),
        ("tokenizer.json", "not json", "expected a JSON object with a `model`"),
        ("tokenizer_config.json", "{", "expected JSON"),
    ] {
        write("tokenizer.json", tokenizer);
        write(name, bytes.as_bytes());
        let message = Companions::open(dir.path()).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains(expected), "{message}");
    }
    let large = fs::File::create(dir.path().join("tokenizer.json")).unwrap();
    large.set_len((64 << 20) + 1).unwrap();
    assert!(Companions::open(dir.path()).unwrap_err().to_string().contains("at most 67108864"));
}

#[test]
fn labels_travel_with_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = llama(false);
    config.labels = Some(Labels { names: vec!["O".into(), "I".into(), "B".into()], problem: None });
    let head = "head.classifier.weight 3 4\nhead.classifier.bias 3\n";
    let layout = layout(&[LLAMA_BACKBONE, head].concat());
    save(dir.path(), &config, class("LlamaForTokenClassification"), &layout).unwrap();
    assert_eq!(Config::open(dir.path()).unwrap().labels, config.labels);
}

/// A published model beside this checkout.
fn published(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models").join(name)
}

/// Every tensor of a real folder has a meaning, can be read, and survives being saved again.
#[track_caller]
fn check_published(dir: &Path, tensors: usize, elements: usize, ignored: &[&str]) {
    let checkpoint = Checkpoint::open(dir).unwrap();
    let weights = checkpoint.weights();
    let layout =
        Layout::new(weights.names().filter_map(
            |name| match checkpoint.config().family.meaning(name) {
                Meaning::Parameters(ids) => {
                    let [id] = ids[..] else { panic!("{name}") };
                    Some((id, Shape::new(weights.info(name).unwrap().shape).unwrap()))
                }
                Meaning::Buffer => None,
                other @ (Meaning::Copy(_)
                | Meaning::OtherHead
                | Meaning::Unread
                | Meaning::Unknown) => {
                    panic!("{name}: {other:?}")
                }
            },
        ))
        .unwrap();
    assert_eq!((layout.len(), layout.elements()), (tensors, elements));
    assert_eq!(usize::from(layout.blocks()), checkpoint.config().num_hidden_layers);
    let found = checkpoint.find(&layout, never).unwrap();
    assert!(found.ignored.iter().map(|i| &*i.tensor).eq(ignored.iter().copied()));

    let loaded = load(&checkpoint, &found);
    let copy = tempfile::tempdir().unwrap();
    let folder = Folder {
        config: checkpoint.config(),
        architecture: checkpoint.config().architecture().unwrap(),
        precision: Precision::F32,
        companions: checkpoint.companions(),
    };
    folder.save(copy.path(), &layout, |id| Ok(Cow::Borrowed(&*loaded[&id]))).unwrap();
    let again = Checkpoint::open(copy.path()).unwrap();
    let whole = checkpoint.companions().completed(checkpoint.config());
    assert_eq!(again.companions(), whole.as_ref(), "only what was missing is added");
    assert!(load(&again, &again.find(&layout, never).unwrap()) == loaded);
}

#[test]
#[ignore = "needs ../shared/models/minilm-l6: tools/test-shared"]
fn minilm_maps_completely() {
    check_published(&published("minilm-l6"), 103, 22_713_216, &["embeddings.position_ids"]);
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn stories260k_maps_completely() {
    check_published(&published("stories260k"), 47, 260_032, &[]);
}
