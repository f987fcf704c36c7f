//! One place asks which device computes, and one where numbers are.

use std::fs;
use std::path::{Path, PathBuf};

/// Who may name a variant of the device, and why.
const MAY: [&str; 5] = ["arithmetic.rs", "device.rs", "kernels/", "storage.rs", "tensor.rs"];

#[test]
fn only_kernels_and_storage_know_which_device_there_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../compute/src");
    let mut seen = 0;
    for file in files(&root) {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let (code, _tests) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
        seen += 1;
        if MAY.iter().any(|may| name.starts_with(may)) {
            continue;
        }
        for word in ["Device::Cpu(", "Device::Cuda(", "Memory::Cpu"] {
            assert!(!code.contains(word), "{name} names {word}..., expected only {MAY:?} to");
        }
        if name.starts_with("tape/") || name == "optimiser.rs" || name == "gradients.rs" {
            for word in [".read()", ".write()", "&mut [f32]"] {
                assert!(!code.contains(word), "{name} has {word}, expected tensors");
            }
        }
    }
    assert!(seen > 25, "{seen} files were found");
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("the sources are there") {
        let path = entry.expect("and can be listed").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}
