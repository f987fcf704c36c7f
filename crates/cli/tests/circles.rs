//! No circles of files: in every crate, files can be put in an order in which each knows only those before it.
//!
//! A tie is a path in the code, `use` or not, that begins with `crate`, `self`, `super` or a child module.
//! A name that another file only re-exports counts for the file that defines it. Tests are left out, and so is
//! the front page of a crate (`lib.rs`, `main.rs`), which knows all files and is known to none.
//!
//! The rooms of a crate, each a file with its folder, stand in such an order too, but for two crates.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// A module of a crate, by its names from the root.
type Module = Vec<String>;
/// The files that each file knows, and what it takes from them.
type Ties = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

#[test]
fn no_files_of_a_crate_know_each_other_in_a_circle() {
    let mut found = String::new();
    for (name, ties) in crates() {
        report(&name, "files", &ties, &mut found);
    }
    assert!(found.is_empty(), "circles of files:\n{found}");
}

/// Crates whose rooms do not all stand in an order, though their files do. In `compute` a tensor holds memory of some
/// device, and the code for each device computes with tensors. In `data` a chat template is checked against the
/// tokenizer, whose encoder writes conversations by the template.
const ROOMS_IN_CIRCLES: [&str; 2] = ["compute", "data"];

#[test]
fn no_rooms_of_a_crate_know_each_other_in_a_circle() {
    let mut found = String::new();
    for (name, ties) in crates() {
        if ROOMS_IN_CIRCLES.contains(&name.as_str()) {
            continue;
        }
        report(&name, "rooms", &rooms(&ties), &mut found);
    }
    assert!(found.is_empty(), "circles of rooms:\n{found}");
}

/// Every crate with the ties of its files.
fn crates() -> Vec<(String, Ties)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<_> =
        fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders.retain(|folder| folder.join("src").is_dir());
    let ties = |folder: &Path| {
        let mut files = BTreeMap::new();
        read(&folder.join("src"), "", &mut files);
        ties(&files)
    };
    let name = |folder: &Path| folder.file_name().unwrap().to_string_lossy().into_owned();
    folders.iter().map(|folder| (name(folder), ties(folder))).collect()
}

/// Writes down the circles, each with what ties it.
fn report(name: &str, of: &str, ties: &Ties, found: &mut String) {
    for circle in circles(ties) {
        let _ = writeln!(found, "{name}: {} {of} know each other:", circle.len());
        for from in &circle {
            for (to, names) in ties[from].iter().filter(|(to, _)| circle.contains(*to)) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let _ = writeln!(found, "  {from} -> {to}: {}", names.join(", "));
            }
        }
    }
}

/// The same ties between rooms: a room is what stands under one name in the crate's first module.
fn rooms(ties: &Ties) -> Ties {
    let room =
        |file: &str| file.split('/').next().unwrap_or(file).trim_end_matches(".rs").to_owned();
    let mut rooms = Ties::new();
    for (from, known) in ties {
        let of_room = rooms.entry(room(from)).or_default();
        for (to, names) in known.iter().filter(|(to, _)| room(to) != room(from)) {
            of_room.entry(room(to)).or_default().extend(names.iter().cloned());
        }
    }
    rooms
}

/// The texts of all files below a folder that are not tests, by path.
fn read(folder: &Path, name: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{name}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            read(&entry.path(), &format!("{name}/"), files);
        } else if entry.path().extension().is_some_and(|end| end == "rs")
            && !name.ends_with("tests.rs")
        {
            files.insert(name, fs::read_to_string(entry.path()).unwrap());
        }
    }
}

/// Which file of a crate knows which.
fn ties(texts: &BTreeMap<String, String>) -> Ties {
    let sources: Vec<Source> = texts.iter().map(|(file, text)| Source::new(file, text)).collect();
    let of_tests: BTreeSet<&Module> = sources.iter().flat_map(|source| &source.tests).collect();
    let is_test =
        |module: &Module| (1..=module.len()).any(|end| of_tests.contains(&module[..end].to_vec()));
    let modules: BTreeMap<&Module, &str> =
        sources.iter().map(|source| (&source.module, source.file.as_str())).collect();
    let mut exports = BTreeMap::new();
    for source in &sources {
        for path in source.paths.iter().filter(|path| path.is_export) {
            if let Some(target) = path.absolute(&modules) {
                exports.insert((path.base.clone(), path.name.clone()), target);
            }
        }
    }
    let mut ties = Ties::new();
    for source in sources.iter().filter(|source| !is_test(&source.module)) {
        if source.module.is_empty() {
            continue;
        }
        let known = ties.entry(source.file.clone()).or_default();
        for path in source.paths.iter().filter_map(|path| path.absolute(&modules)) {
            let Some((module, name)) = defined(path, &modules, &exports) else { continue };
            if !module.is_empty() && module != source.module && !is_test(&module) {
                known.entry(modules[&module].to_owned()).or_default().insert(name);
            }
        }
    }
    ties
}

/// The module that defines what a path names, and the name in it; a module itself has the name `*`.
fn defined(
    mut path: Module,
    modules: &BTreeMap<&Module, &str>,
    exports: &BTreeMap<(Module, String), Module>,
) -> Option<(Module, String)> {
    // A re-export may name another one; nobody nests them deeper.
    for _ in 0..8 {
        let end =
            (0..=path.len()).rev().find(|end| modules.contains_key(&path[..*end].to_vec()))?;
        let module = path[..end].to_vec();
        let Some(name) = path.get(end) else { return Some((module, "*".to_owned())) };
        match exports.get(&(module.clone(), name.clone())) {
            Some(target) if *target != path => {
                path = target.iter().chain(&path[end + 1..]).cloned().collect();
            }
            Some(_) | None => return Some((module, name.clone())),
        }
    }
    None
}

/// Files that know each other, directly or through others.
fn circles(ties: &Ties) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            let known = ties.get(file).into_iter().flat_map(BTreeMap::keys);
            next.extend(known.filter(|file| reached.insert((*file).clone())));
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        ties.keys().map(|file| (file, reached(file))).collect();
    let mut circles = BTreeSet::new();
    for (file, others) in &reached {
        let is_mutual =
            |other: &&String| reached.get(*other).is_some_and(|back| back.contains(*file));
        let circle: BTreeSet<String> = others.iter().filter(is_mutual).cloned().collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

/// A file, and the paths in it.
struct Source {
    file: String,
    module: Module,
    paths: Vec<Named>,
    /// Modules that it declares for tests alone.
    tests: Vec<Module>,
}

/// A path as it is written somewhere.
struct Named {
    /// The module that it is written in.
    base: Module,
    parts: Vec<String>,
    /// What it is called there.
    name: String,
    /// Whether others get it from there.
    is_export: bool,
}

impl Named {
    /// The same path from the root of the crate; `None` if it leads to another crate.
    fn absolute(&self, modules: &BTreeMap<&Module, &str>) -> Option<Module> {
        let first = self.parts.first()?;
        let ups = self.parts.iter().take_while(|part| *part == "super").count();
        let (base, rest) = match first.as_str() {
            "crate" => (&[][..], &self.parts[1..]),
            "self" => (&self.base[..], &self.parts[1..]),
            "super" => (&self.base[..self.base.len().checked_sub(ups)?], &self.parts[ups..]),
            child => {
                let child: Module = self.base.iter().cloned().chain([child.to_owned()]).collect();
                modules.get(&child)?;
                (&self.base[..], &self.parts[..])
            }
        };
        Some(base.iter().chain(rest).filter(|part| *part != "*").cloned().collect())
    }
}

impl Source {
    fn new(file: &str, text: &str) -> Self {
        let mut module: Module =
            file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        let mut source =
            Self { file: file.to_owned(), module, paths: Vec::new(), tests: Vec::new() };
        source.walk(&tokens(text));
        source
    }

    fn walk(&mut self, tokens: &[String]) {
        let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token == text);
        // Modules inside this file that are open, each with the depth of its braces.
        let mut inner: Vec<(String, usize)> = Vec::new();
        let (mut at, mut depth) = (0, 0);
        while at < tokens.len() {
            let base: Module =
                self.module.iter().chain(inner.iter().map(|(name, _)| name)).cloned().collect();
            if let Some(end) = test_item(tokens, at) {
                if let [.., key, name, semicolon] = &tokens[at..end]
                    && (key.as_str(), semicolon.as_str()) == ("mod", ";")
                {
                    self.tests.push(base.into_iter().chain([name.clone()]).collect());
                }
                at = end;
                continue;
            }
            match tokens[at].as_str() {
                "use" => {
                    let is_export = at > 0 && (is(at - 1, "pub") || is(at - 1, ")"));
                    at += 1;
                    self.tree(tokens, &mut at, (&base, Vec::new()), is_export);
                    continue;
                }
                "mod" if is(at + 2, "{") => inner.push((tokens[at + 1].clone(), depth)),
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    inner.retain(|(_, open)| *open < depth);
                }
                part if is_name(part) && is(at + 1, "::") && !(at > 0 && is(at - 1, "::")) => {
                    let mut parts = vec![part.to_owned()];
                    while is(at + 1, "::") && tokens.get(at + 2).is_some_and(|next| is_name(next)) {
                        parts.push(tokens[at + 2].clone());
                        at += 2;
                    }
                    self.add(&base, parts, None, false);
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Reads a tree of `use` up to its end.
    fn tree(
        &mut self,
        tokens: &[String],
        at: &mut usize,
        (base, mut parts): (&Module, Vec<String>),
        is_export: bool,
    ) {
        while let Some(token) = tokens.get(*at) {
            *at += 1;
            match token.as_str() {
                "::" => {}
                "{" => {
                    while tokens.get(*at).is_some_and(|token| token != "}") {
                        self.tree(tokens, at, (base, parts.clone()), is_export);
                    }
                    *at += 1;
                    // What follows is the end of this tree, or of the one around it.
                    if tokens.get(*at).is_some_and(|token| token == "," || token == ";") {
                        *at += 1;
                    }
                    return;
                }
                "as" => {
                    let alias = tokens.get(*at).cloned();
                    *at += 1;
                    self.add(base, parts, alias, is_export);
                    if tokens.get(*at).is_some_and(|token| token == "," || token == ";") {
                        *at += 1;
                    }
                    return;
                }
                "," | ";" => return self.add(base, parts, None, is_export),
                "}" => {
                    *at -= 1;
                    return self.add(base, parts, None, is_export);
                }
                part => parts.push(part.to_owned()),
            }
        }
    }

    fn add(
        &mut self,
        base: &Module,
        mut parts: Vec<String>,
        alias: Option<String>,
        is_export: bool,
    ) {
        if parts.len() > 1 && parts.last().is_some_and(|last| last == "self") {
            parts.pop();
        }
        let Some(last) = parts.last() else { return };
        let name = alias.unwrap_or_else(|| last.clone());
        self.paths.push(Named { base: base.clone(), parts, name, is_export });
    }
}

/// Where an item for tests ends that begins here with its attribute.
fn test_item(tokens: &[String], at: usize) -> Option<usize> {
    let begins = |text: &[&str]| {
        tokens.len() >= at + text.len() && tokens[at..].iter().zip(text).all(|(a, b)| a == b)
    };
    let cfg = begins(&["#", "[", "cfg", "(", "test", ")"])
        || begins(&["#", "[", "cfg", "(", "all", "(", "test"]);
    if !cfg {
        return None;
    }
    let mut depth = 0;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth -= 1;
                if depth == 0 && token == "}" {
                    return Some(place + 1);
                }
            }
            ";" | "," if depth == 0 => return Some(place + 1),
            _ => {}
        }
    }
    Some(tokens.len())
}

fn is_name(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

/// Names, `::` and single characters; comments and what stands in quotes are left out.
fn tokens(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let is = |at: usize, letter: char| letters.get(at) == Some(&letter);
    let word = |letter: &char| letter.is_alphanumeric() || *letter == '_';
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < letters.len() {
        let letter = letters[at];
        if is(at, '/') && is(at + 1, '/') {
            at += letters[at..].iter().take_while(|letter| **letter != '\n').count();
        } else if is(at, '/') && is(at + 1, '*') {
            let end = (at + 2..letters.len()).find(|end| is(*end, '*') && is(end + 1, '/'));
            at = end.map_or(letters.len(), |end| end + 2);
        } else if let Some(end) = raw_text(&letters, at) {
            at = end;
        } else if letter == '"' {
            at += 1;
            while at < letters.len() && letters[at] != '"' {
                at += if letters[at] == '\\' { 2 } else { 1 };
            }
            at += 1;
        } else if letter == '\'' && is(at + 1, '\\') {
            at += 3;
            at += letters[at..].iter().take_while(|letter| **letter != '\'').count() + 1;
        } else if letter == '\'' && is(at + 2, '\'') {
            at += 3;
        } else if word(&letter) {
            let name: String = letters[at..].iter().take_while(|letter| word(letter)).collect();
            at += name.chars().count();
            tokens.push(name);
        } else if letter == ':' && is(at + 1, ':') {
            tokens.push("::".to_owned());
            at += 2;
        } else {
            if !letter.is_whitespace() {
                tokens.push(letter.to_string());
            }
            at += 1;
        }
    }
    tokens
}

/// Where a raw text ends that begins here.
fn raw_text(letters: &[char], at: usize) -> Option<usize> {
    let starts = if letters[at] == 'b' { at + 1 } else { at };
    if letters.get(starts) != Some(&'r') {
        return None;
    }
    let hashes = letters[starts + 1..].iter().take_while(|letter| **letter == '#').count();
    let open = starts + 1 + hashes;
    if letters.get(open) != Some(&'"') || at > 0 && letters[at - 1].is_alphanumeric() {
        return None;
    }
    let closes = |end: usize| {
        letters[end] == '"'
            && letters[end + 1..].iter().take(hashes).filter(|l| **l == '#').count() == hashes
    };
    (open + 1..letters.len()).find(|end| closes(*end)).map(|end| end + 1 + hashes)
}

/// The files of a crate with these texts that know each other.
fn circles_of(texts: &[(&str, &str)]) -> Vec<BTreeSet<String>> {
    let texts = texts.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned()));
    circles(&ties(&texts.collect()))
}

#[test]
fn a_circle_is_found_however_a_file_is_named() {
    let all = |files: &[&str]| vec![files.iter().map(|file| (*file).to_owned()).collect()];
    let found = circles_of(&[
        ("lib.rs", "mod a; mod b; pub use b::Thing;"),
        ("a.rs", "use crate::Thing; pub struct A;"),
        ("b/mod.rs", "mod c; pub struct Thing(c::C);"),
        ("b/c.rs", "pub struct C(pub crate::a::A);"),
    ]);
    assert_eq!(found, all(&["a.rs", "b/c.rs", "b/mod.rs"]));
    let found = circles_of(&[("a.rs", "mod b; use b::{B, C as D};"), ("a/b.rs", "use super::A;")]);
    assert_eq!(found, all(&["a.rs", "a/b.rs"]));
}

#[test]
fn what_is_only_re_exported_quoted_or_for_tests_makes_no_circle() {
    let parent = "mod b; mod c; pub use b::B; pub(crate) use c::{C, D as E};";
    let child = "//! [`super::X`]\nuse super::{C, E};\nconst TEXT: &str = \"super::X\";\n\
                 #[cfg(test)]\nmod tests { use super::super::X; }\nmod inner { use super::B; }";
    let found = circles_of(&[("a/mod.rs", parent), ("a/b.rs", child), ("a/c.rs", "struct C;")]);
    assert!(found.is_empty(), "{found:?}");
    let parent = "mod b; #[cfg(test)] mod examples;";
    let found =
        circles_of(&[("a/mod.rs", parent), ("a/b.rs", ""), ("a/examples.rs", "use super::A;")]);
    assert!(found.is_empty(), "{found:?}");
}
