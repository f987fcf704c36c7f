//! A Markdown file as its tests need it: fenced blocks, code spans, headings, links.
//!
//! Only what our documents use is understood, and nothing is rendered: a parser of the whole language
//! would be a dependency for four tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A file and what stands in it.
#[derive(Debug, Default)]
pub struct Document {
    /// From the root of the repository, with `/`.
    pub path: String,
    /// All text outside fenced blocks.
    pub prose: String,
    /// Fenced blocks.
    pub blocks: Vec<Block>,
    /// What stands in backticks, with its line; line ends inside are blanks.
    pub spans: Vec<(usize, String)>,
    /// Targets of links, with their lines.
    pub links: Vec<(usize, String)>,
    /// The anchor of each heading.
    pub anchors: Vec<String>,
}

/// A fenced block.
#[derive(Debug, Default, PartialEq)]
pub struct Block {
    /// The line of its first fence.
    pub line: usize,
    /// What stands behind the fence.
    pub info: String,
    /// Its lines.
    pub text: String,
    /// The paragraph right before it.
    pub before: String,
}

impl Document {
    /// A place in the file, what stands there, and what is wrong with it.
    pub fn at(&self, line: usize, found: &str, said: &str) -> String {
        format!("{}:{line}: `{found}`: {said}", self.path)
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents of the repository, in the order of their paths.
pub fn all() -> Vec<Document> {
    let top = [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "README.md",
        "SECURITY.md",
        "experiments/README.md",
    ];
    let mut paths: Vec<String> = top.map(str::to_owned).to_vec();
    pages("docs", &mut paths);
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(root().join(&path)).unwrap();
            Document { path, ..read(&text) }
        })
        .collect()
}

fn pages(folder: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            pages(&path, found);
        } else if entry.path().extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

/// Reads a text.
pub fn read(text: &str) -> Document {
    let mut page = Document::default();
    let mut seen = BTreeMap::new();
    let mut block: Option<Block> = None;
    // The paragraph that is being read, and whether a blank line ended it.
    let (mut paragraph, mut first, mut is_over) = (String::new(), 1, false);
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            if let Some(whole) = block.take() {
                page.blocks.push(whole);
            } else {
                take_spans(&mut page, first, &paragraph);
                let before = std::mem::take(&mut paragraph);
                let info = info.trim().to_owned();
                block = Some(Block { line: number, info, text: String::new(), before });
            }
            continue;
        }
        if let Some(block) = &mut block {
            block.text.extend([line, "\n"]);
            continue;
        }
        page.prose.extend([line, "\n"]);
        if let Some(heading) = line.strip_prefix('#') {
            page.anchors.push(anchor(heading.trim_start_matches('#'), &mut seen));
        }
        let is_blank = line.trim().is_empty();
        // Rows of a table are paragraphs of their own: a backtick in one closes none in another.
        if !is_blank && (is_over || line.starts_with(['|', '#'])) {
            take_spans(&mut page, first, &paragraph);
            paragraph.clear();
        }
        if !is_blank {
            if paragraph.is_empty() {
                first = number;
            }
            paragraph.extend([line, " "]);
        }
        is_over = is_blank || line.starts_with(['|', '#']);
    }
    take_spans(&mut page, first, &paragraph);
    page
}

/// Takes code spans and links out of a paragraph that begins in a line.
fn take_spans(page: &mut Document, line: usize, paragraph: &str) {
    let mut bare = String::new();
    let mut rest = paragraph;
    while let Some(open) = rest.find('`') {
        bare.push_str(&rest[..open]);
        let ticks = rest[open..].chars().take_while(|&c| c == '`').count();
        let fence = "`".repeat(ticks);
        let inside = &rest[open + ticks..];
        let Some(close) = inside.find(&fence) else { break };
        page.spans.push((line, inside[..close].trim().to_owned()));
        rest = &inside[close + ticks..];
    }
    bare.push_str(rest);
    for link in bare.split("](").skip(1) {
        let target = link.split(')').next().unwrap_or_default();
        page.links.push((line, target.to_owned()));
    }
}

/// The anchor that a heading gets, here and in the book: letters and digits, `-` for a blank; a number
/// behind the second of two equal ones.
fn anchor(heading: &str, seen: &mut BTreeMap<String, usize>) -> String {
    let bare: String = heading.trim().to_lowercase();
    let kept = bare.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
    let before = seen.entry(name.clone()).or_insert(0);
    *before += 1;
    if *before == 1 { name } else { format!("{name}-{}", *before - 1) }
}

#[test]
fn a_document_has_its_blocks_spans_links_and_anchors() {
    let text = "# A `[table]` of 2\nUse `fedra\nrun` ([how](a.md#b)).\n\n```sh run\nfedra `x`\n```\n\
                ## Again\n| `a` | [b](c.md) |\n\nWhy not: it waits.\n\n```text\n# no heading\n```\n## Again\n";
    let page = read(text);
    assert_eq!(page.anchors, ["a-table-of-2", "again", "again-1"]);
    let spans: Vec<&str> = page.spans.iter().map(|(_, span)| span.as_str()).collect();
    assert_eq!(spans, ["[table]", "fedra run", "a"]);
    assert_eq!(page.links, [(2, "a.md#b".to_owned()), (9, "c.md".to_owned())]);
    let infos: Vec<&str> = page.blocks.iter().map(|block| block.info.as_str()).collect();
    assert_eq!(infos, ["sh run", "text"]);
    assert_eq!((page.blocks[0].line, page.blocks[0].text.as_str()), (5, "fedra `x`\n"));
    assert_eq!(page.blocks[1].before.trim(), "Why not: it waits.");
}
