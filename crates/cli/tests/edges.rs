//! The map of the house: which crate may know which. Any other edge is a mistake, however handy.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// Each crate and the crates of this workspace that it may depend on.
const EDGES: &[(&str, &[&str])] = &[
    ("fedra-files", &[]),
    ("fedra-hub", &["fedra-files"]),
    ("fedra-plan", &[]),
    ("fedra-seed", &[]),
    ("fedra-compute", &["fedra-plan", "fedra-seed"]),
    ("fedra-model", &["fedra-files", "fedra-plan", "fedra-seed", "fedra-compute"]),
    ("fedra-data", &["fedra-seed"]),
    ("fedra-lab", &["fedra-seed"]),
    ("fedra-report", &[]),
    ("fedra-privacy", &["fedra-plan"]),
    ("fedra-wire", &["fedra-plan"]),
    ("fedra-engine", &["fedra-files", "fedra-plan", "fedra-privacy", "fedra-seed", "fedra-wire"]),
    (
        "fedra-client",
        &[
            "fedra-plan",
            "fedra-seed",
            "fedra-compute",
            "fedra-model",
            "fedra-data",
            "fedra-wire",
            "fedra-engine",
            "fedra-privacy",
        ],
    ),
    // Sockets stand beside the library, not under it: only the command line joins the two.
    ("fedra-net", &["fedra-plan", "fedra-seed", "fedra-wire", "fedra-engine", "fedra-client"]),
    // Another way for the same messages: it stands on the network, which does not know it.
    ("fedra-flower", &["fedra-plan", "fedra-seed", "fedra-wire", "fedra-engine", "fedra-net"]),
    // Attacks stand beside the library too: no run needs them.
    (
        "fedra-audit",
        &[
            "fedra-plan",
            "fedra-privacy",
            "fedra-seed",
            "fedra-compute",
            "fedra-model",
            "fedra-data",
            "fedra-engine",
            "fedra-client",
        ],
    ),
    (
        "fedra",
        &[
            "fedra-plan",
            "fedra-compute",
            "fedra-hub",
            "fedra-model",
            "fedra-data",
            "fedra-wire",
            "fedra-engine",
            "fedra-client",
            "fedra-privacy",
            "fedra-report",
        ],
    ),
    // The other front end: it stands on the library as the command does, and on what the library hands out.
    (
        "fedra-python",
        &[
            "fedra",
            "fedra-audit",
            "fedra-client",
            "fedra-compute",
            "fedra-data",
            "fedra-engine",
            "fedra-plan",
            "fedra-privacy",
            "fedra-wire",
        ],
    ),
    // Nothing but tests.
    ("fedra-tests", &[]),
];

#[test]
fn crates_depend_only_on_the_crates_below_them() {
    let packages = packages();
    assert!(packages.len() > EDGES.len(), "{} packages", packages.len());
    for package in &packages {
        let name = package["name"].as_str().expect("a package has a name");
        if name == "fedra-cli" {
            continue; // the command line stands on everything
        }
        let (_, allowed) = EDGES
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap_or_else(|| panic!("{name} is not on the map: add it to EDGES"));
        let found: BTreeSet<&str> = package["dependencies"]
            .as_array()
            .expect("dependencies are a list")
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .filter_map(|dependency| dependency["name"].as_str())
            .filter(|dependency| dependency.starts_with("fedra"))
            .collect();
        let extra: Vec<_> = found.iter().filter(|name| !allowed.contains(name)).collect();
        assert!(extra.is_empty(), "{name} must not depend on {extra:?}, only on {allowed:?}");
    }
}

/// The packages of the workspace, as cargo describes them.
fn packages() -> Vec<Value> {
    let metadata = cargo(&["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo writes JSON");
    metadata["packages"].as_array().expect("packages are a list").clone()
}

/// What cargo says.
fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")])
        .output()
        .expect("cargo runs while it is running this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

#[test]
fn what_the_command_is_made_of_is_built_once_for_it_and_for_the_workspace() {
    let crates = |whose: &[&str]| -> BTreeSet<String> {
        let how = ["tree", "--offline", "--locked", "--edges", "normal,build", "--prefix", "none"];
        let told = cargo(&[&how[..], &["--format", "{p} {f}"], whose].concat());
        told.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    };
    let (command, workspace) = (crates(&["--package", "fedra-cli"]), crates(&["--workspace"]));
    let other: Vec<_> = command.difference(&workspace).collect();
    assert!(other.is_empty(), "with other features in the workspace: {other:?}");
}

#[test]
fn the_plan_knows_nothing_but_serde_digests_and_errors() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../plan/Cargo.toml");
    let text = std::fs::read_to_string(manifest).expect("the plan crate is part of the workspace");
    let (_, after) = text.split_once("[dependencies]").expect("a manifest has dependencies");
    let section = after.split("\n[").next().unwrap_or_default();
    let names: Vec<&str> =
        section.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["serde", "sha2", "thiserror"]);
}

#[test]
fn the_library_knows_no_command_line() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../fedra/Cargo.toml");
    let text = std::fs::read_to_string(manifest).expect("the library is part of the workspace");
    for name in ["clap", "indicatif", "signal-hook", "anyhow"] {
        assert!(!text.lines().any(|line| line.starts_with(name)), "{name} belongs to the command");
    }
}

#[test]
fn only_the_network_is_asynchronous() {
    // A SuperLink is spoken to in blocking calls: TLS, and no event loop.
    let flower = ("flower", &["tokio", "tonic", "hyper", "rcgen"][..]);
    let all = &["tokio", "tonic", "hyper", "rustls", "rcgen"][..];
    let others = ["cli", "client", "engine", "fedra", "wire"].map(|name| (name, all));
    for (name, dependencies) in others.into_iter().chain([flower]) {
        let manifest = format!("{}/../{name}/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(manifest).expect("the crate is part of the workspace");
        for dependency in dependencies {
            let has = text.lines().any(|line| line.starts_with(dependency));
            assert!(!has, "{dependency} belongs to the network, not to {name}");
        }
    }
}

#[test]
fn the_library_and_the_network_mean_the_same_file() {
    assert_eq!(fedra::run_files::SITES, fedra_net::JOURNAL);
    assert_eq!(fedra::run_files::STATUS, fedra_net::STATUS);
    assert_eq!(fedra::run_files::EVENTS, fedra_net::EVENTS);
}

#[test]
fn what_a_release_build_leaves_unoptimised_is_optimised_for_others() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let text = std::fs::read_to_string(manifest).expect("the workspace has a manifest");
    let manifest: toml::Table = text.parse().expect("a manifest is TOML");
    let levels = |profile: &str| -> BTreeSet<(String, i64)> {
        let packages = manifest["profile"][profile]["package"].as_table().expect("packages");
        let level = |(name, settings): (&String, &toml::Value)| {
            (name.clone(), settings["opt-level"].as_integer().expect("a level"))
        };
        packages.iter().map(level).collect()
    };
    let expected = levels("release").into_iter().map(|(name, _)| (name, 3)).collect();
    assert_eq!(levels("dist"), expected, "[profile.dist.package] lists what release lists, at 3");
}
