//! Which files of a repository are needed, and whether a folder has them.
//!
//! A repository also holds the same weights in formats of other libraries, which may be ten times the size; none of
//! these is fetched. Pickles are refused: to open one is to run a program of whoever wrote it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use fedra_files::model_folder::{COMPANIONS, CONFIG, INDEX, PROCESSOR, TOKENIZER, WEIGHTS};
use serde::Deserialize;

use crate::error::HubError;
use crate::listing::Listing;

const ADAPTER_CONFIG: &str = "adapter_config.json";
const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";
/// Files whose absence is remembered: without them a folder would never count as complete.
pub(crate) const REMEMBERED: [&str; 2] = [TOKENIZER, PROCESSOR];

/// Most shards of a model, and most bytes of the file that lists them.
const MOST_SHARDS: usize = 512;
const LONGEST_INDEX: u64 = 64 << 20;
/// Most bytes of a file that holds no weights, and of one that does.
const MOST_COMPANION: u64 = 256 << 20;
const MOST_WEIGHTS: u64 = 1 << 41;

/// The files to fetch, small ones first; shards are added once their index is here.
pub(crate) fn of(listing: &Listing) -> Result<Vec<&'static str>, HubError> {
    let unusable = |found: &str, expected: &str| HubError::Unusable {
        name: listing.name.to_string(),
        found: found.to_owned(),
        expected: expected.to_owned(),
    };
    let present = |names: &[&'static str]| -> Vec<&'static str> {
        names.iter().copied().filter(|name| listing.has(name)).collect()
    };
    let mut files = present(&[CONFIG, ADAPTER_CONFIG]);
    files.extend(present(&COMPANIONS));
    let weights = match present(&[WEIGHTS, INDEX]).first() {
        // The one file that every library prefers; an index beside it lists the same weights again.
        Some(first) if listing.has(CONFIG) => vec![*first],
        Some(_) | None => Vec::new(),
    };
    let adapters = present(&[ADAPTER_WEIGHTS]);
    let is_adapter = listing.has(ADAPTER_CONFIG) && !adapters.is_empty();
    if weights.is_empty() && !is_adapter {
        return Err(match kind_of_weights(listing) {
            _ if !listing.has(CONFIG) && !listing.has(ADAPTER_CONFIG) => unusable(
                "no config.json",
                "a model for Transformers: config.json with model.safetensors, or adapters",
            ),
            Some((kind, hint)) => {
                unusable(&format!("only {kind}"), &format!("model.safetensors{hint}"))
            }
            None => unusable("no weights", "model.safetensors, or adapters"),
        });
    }
    files.extend(weights);
    if is_adapter {
        files.extend(adapters);
    }
    Ok(files)
}

/// Weights in a format that is not read.
fn kind_of_weights(listing: &Listing) -> Option<(&'static str, &'static str)> {
    let has =
        |ends: &[&str]| listing.files.iter().any(|file| ends.iter().any(|end| file.ends_with(end)));
    if has(&[".bin", ".pt", ".pth", ".ckpt"]) {
        return Some((
            "pickled PyTorch weights, which can run code when they are opened",
            "; many repositories have a pull request with them: @refs/pr/N",
        ));
    }
    if has(&[".gguf"]) {
        return Some(("GGUF files", ", or the path of a GGUF file that you downloaded"));
    }
    has(&[".h5", ".msgpack", ".onnx"]).then_some(("weights of other libraries", ""))
}

/// Refuses a file of an absurd size.
pub(crate) fn check_size(listing: &Listing, file: &str, size: u64) -> Result<(), HubError> {
    let most = if file.ends_with(".safetensors") { MOST_WEIGHTS } else { MOST_COMPANION };
    if size <= most {
        return Ok(());
    }
    Err(HubError::Unusable {
        name: listing.name.to_string(),
        found: format!("{file} of {size} bytes"),
        expected: format!("at most {most}"),
    })
}

/// The shards that an index lists; all of them have to be files of the repository.
pub(crate) fn shards(listing: &Listing, index: &Path) -> Result<BTreeSet<String>, HubError> {
    let unusable = |found: String, expected: &str| HubError::Unusable {
        name: listing.name.to_string(),
        found,
        expected: expected.to_owned(),
    };
    let shards = shards_of(index)
        .ok_or_else(|| unusable(format!("an {INDEX} that cannot be read"), "a list of shards"))?;
    if shards.is_empty() || shards.len() > MOST_SHARDS {
        return Err(unusable(format!("{} shards", shards.len()), "1 to 512"));
    }
    match shards.iter().find(|shard| !listing.has(shard) || !shard.ends_with(".safetensors")) {
        Some(shard) => Err(unusable(
            format!("the shard {shard:?} in {INDEX}"),
            "a .safetensors file in the repository's top folder",
        )),
        None => Ok(shards),
    }
}

fn shards_of(index: &Path) -> Option<BTreeSet<String>> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    if fs::metadata(index).ok()?.len() > LONGEST_INDEX {
        return None;
    }
    let index: Index = serde_json::from_slice(&fs::read(index).ok()?).ok()?;
    Some(index.weight_map.into_values().collect())
}

/// Whether a snapshot has what a model or adapters need. `absent` says which files the repository is known not to
/// have. Another library may have fetched only some files, so the folder alone does not tell.
pub(crate) fn is_complete(folder: &Path, absent: &dyn Fn(&str) -> bool) -> bool {
    let has = |name: &str| folder.join(name).is_file();
    let has_weights = || {
        let all = |shards: BTreeSet<String>| !shards.is_empty() && shards.iter().all(|it| has(it));
        has(WEIGHTS) || shards_of(&folder.join(INDEX)).is_some_and(all)
    };
    let reads = || has(TOKENIZER) || has("vocab.txt") || has(PROCESSOR);
    let is_known = || REMEMBERED.iter().all(|name| has(name) || absent(name));
    let is_model = has(CONFIG) && has_weights() && (reads() || is_known());
    is_model || has(ADAPTER_CONFIG) && has(ADAPTER_WEIGHTS)
}
