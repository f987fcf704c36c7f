//! The names of the files of a model folder in Hugging Face layout.

/// What the model is.
pub const CONFIG: &str = "config.json";
/// All weights in one file.
pub const WEIGHTS: &str = "model.safetensors";
/// Which shard holds which weight, where they are in several files.
pub const INDEX: &str = "model.safetensors.index.json";
/// The tokenizer in one file.
pub const TOKENIZER: &str = "tokenizer.json";
/// How other libraries use the tokenizer.
pub const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// How conversations are written for the model.
pub const CHAT_TEMPLATE: &str = "chat_template.jinja";
/// What happens to images before a model sees them.
pub const PROCESSOR: &str = "preprocessor_config.json";

/// What a tokenizer, a writer of text or a reader of images needs beside the weights.
pub const COMPANIONS: [&str; 13] = [
    TOKENIZER,
    TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "generation_config.json",
    CHAT_TEMPLATE,
    "chat_template.json",
    PROCESSOR,
    "processor_config.json",
];
