//! Every link between documents leads somewhere, and the book has every page once.
//!
//! Links of `docs/` stay inside of it, because nothing else is in the book.

use std::collections::BTreeMap;

use super::markdown::{Document, all, root};

/// The path of a link's target from the root, and its anchor; none for another site.
fn target(page: &Document, link: &str) -> Option<(String, String)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    if path.is_empty() {
        return Some((page.path.clone(), anchor.to_owned()));
    }
    let mut parts: Vec<&str> = page.path.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some((parts.join("/"), anchor.to_owned()))
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let pages = all();
    let by_path: BTreeMap<&str, &Document> =
        pages.iter().map(|page| (page.path.as_str(), page)).collect();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for page in &pages {
        for (line, link) in &page.links {
            let Some((path, anchor)) = target(page, link) else { continue };
            seen += 1;
            let said = if !root().join(&path).exists() {
                "no such file"
            } else if page.path.starts_with("docs/") && !path.starts_with("docs/") {
                "it leads out of docs/, which the book does not have: write the path as code"
            } else if anchor.is_empty() {
                continue;
            } else if by_path.get(path.as_str()).is_none_or(|page| !page.anchors.contains(&anchor))
            {
                "no such heading"
            } else {
                continue;
            };
            wrong.push(page.at(*line, link, said));
        }
    }
    assert!(seen > 100, "{seen} links: they were not found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_documented_page_is_in_the_book_once() {
    let pages = all();
    let summary = pages.iter().find(|page| page.path == "docs/SUMMARY.md").unwrap();
    let listed: Vec<String> = summary
        .links
        .iter()
        .filter_map(|(_, link)| target(summary, link))
        .map(|(path, _)| path)
        .collect();
    let in_docs = |page: &&Document| page.path.starts_with("docs/") && page.path != summary.path;
    for page in pages.iter().filter(in_docs) {
        let times = listed.iter().filter(|path| **path == page.path).count();
        assert_eq!(times, 1, "docs/SUMMARY.md lists {} {times} times, expected once", page.path);
    }
    for part in ["# Tutorial", "# How-to guides", "# Reference", "# Explanation"] {
        assert!(summary.prose.lines().any(|line| line == part), "docs/SUMMARY.md has no {part}");
    }
}

#[test]
fn links_are_followed_from_the_page_where_a_document_has_them() {
    let page = Document { path: "docs/methods/a.md".to_owned(), ..Document::default() };
    let to = |link: &str| target(&page, link).map(|(path, anchor)| format!("{path} {anchor}"));
    assert_eq!(to("../b.md#c").as_deref(), Some("docs/b.md c"));
    assert_eq!(to("#d").as_deref(), Some("docs/methods/a.md d"));
    assert_eq!(to("e.md").as_deref(), Some("docs/methods/e.md "));
    assert_eq!(to("https://example.org/x.md"), None);
}
