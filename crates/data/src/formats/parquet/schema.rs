//! Which columns a file offers, and how levels become rows and lists.
//!
//! A leaf's path tells how many of its ancestors may be absent (definition levels) and how many
//! repeat (repetition levels). A flat column repeats nowhere and a list once; the three shapes that
//! writers give a list differ only in where along the path the repeating node stands, so one rule
//! reads them all. Structures, maps and lists of lists are refused, but only when asked for.

use super::bytes::{Read, complaint};
use super::footer::{Element, Meaning, Repetition};

/// A column by the name it has at the top of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub name: String,
    /// How it reads, or what it is that this reader cannot read.
    pub leaf: Result<Leaf, &'static str>,
}

/// How the values of a column become rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// Which of the file's leaves it is.
    pub index: usize,
    pub physical: i64,
    pub meaning: Meaning,
    /// The definition level of a value that is there.
    pub present: u32,
    /// For a list, the definition level from which on there is an element, even if it is null.
    pub element: Option<u32>,
}

/// The columns of a schema, and how many leaves a row group must have.
pub(super) fn columns(schema: &[Element]) -> Read<(Vec<Column>, usize)> {
    let root = schema.first().map_or(0, |root| root.children);
    let mut walk = Walk { rest: schema.iter().skip(1), leaves: 0 };
    let mut columns = Vec::new();
    for _ in 0..root {
        let top = walk.next()?;
        let leaf = walk.column(top)?;
        columns.push(Column { name: top.name.clone(), leaf });
    }
    Ok((columns, walk.leaves))
}

struct Walk<'a> {
    rest: std::iter::Skip<std::slice::Iter<'a, Element>>,
    leaves: usize,
}

impl<'a> Walk<'a> {
    fn next(&mut self) -> Read<&'a Element> {
        self.rest.next().ok_or_else(|| complaint("fewer columns", "those that the schema counts"))
    }

    fn column(&mut self, top: &Element) -> Read<Result<Leaf, &'static str>> {
        let index = self.leaves;
        // The path while it does not branch; what branches is only counted.
        let mut path = vec![top.clone()];
        let mut branches = top.children > 1;
        let mut open = top.children;
        if top.children == 0 {
            self.leaves += 1;
        }
        while open > 0 {
            let node = self.next()?;
            open = (open - 1)
                .checked_add(node.children)
                .ok_or_else(|| complaint("a schema of countless columns", "one that ends"))?;
            branches |= open > 1;
            if node.children == 0 {
                self.leaves += 1;
            }
            if !branches && path.len() < 4 {
                path.push(node.clone());
            }
        }
        Ok(if branches { Err("a structure or map") } else { shaped(index, &path) })
    }
}

/// The leaf at the end of a path of at most three nodes.
fn shaped(index: usize, path: &[Element]) -> Result<Leaf, &'static str> {
    let (mut levels, mut element) = (0, None);
    for node in path {
        match node.repetition {
            Repetition::Required => {}
            Repetition::Optional => levels += 1,
            Repetition::Repeated if element.is_some() => return Err("a list of lists"),
            Repetition::Repeated => {
                levels += 1;
                element = Some(levels);
            }
        }
    }
    let Some(leaf @ Element { physical: Some(physical), meaning, .. }) = path.last() else {
        return Err("an empty structure");
    };
    if leaf.children > 0 || path.len() > 3 {
        return Err("a nested structure");
    }
    if path.len() > 1 && element.is_none() {
        return Err("a structure");
    }
    Ok(Leaf { index, physical: *physical, meaning: *meaning, present: levels, element })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Repetition::{Optional, Repeated, Required};

    fn node(name: &str, repetition: Repetition, children: usize) -> Element {
        let physical = (children == 0).then_some(6);
        Element { name: name.into(), physical, repetition, children, meaning: Meaning::Plain }
    }

    fn only(nodes: &[(Repetition, usize)]) -> Result<Leaf, &'static str> {
        let mut schema = vec![node("root", Required, 1)];
        schema.extend(nodes.iter().map(|&(repetition, children)| node("x", repetition, children)));
        let (columns, leaves) = columns(&schema).unwrap();
        assert_eq!((columns.len(), columns[0].name.as_str()), (1, "x"));
        assert_eq!(leaves, nodes.iter().filter(|node| node.1 == 0).count());
        columns[0].leaf
    }

    fn leaf(present: u32, element: Option<u32>) -> Leaf {
        Leaf { index: 0, physical: 6, meaning: Meaning::Plain, present, element }
    }

    #[test]
    fn every_shape_of_a_list_is_seen_as_one() {
        assert_eq!(only(&[(Required, 0)]), Ok(leaf(0, None)));
        assert_eq!(only(&[(Optional, 0)]), Ok(leaf(1, None)));
        // Three levels, then the two older shapes, then a repeated leaf alone.
        assert_eq!(only(&[(Optional, 1), (Repeated, 1), (Optional, 0)]), Ok(leaf(3, Some(2))));
        assert_eq!(only(&[(Optional, 1), (Repeated, 1), (Required, 0)]), Ok(leaf(2, Some(2))));
        assert_eq!(only(&[(Optional, 1), (Repeated, 0)]), Ok(leaf(2, Some(2))));
        assert_eq!(only(&[(Repeated, 0)]), Ok(leaf(1, Some(1))));
    }

    #[test]
    fn deeper_shapes_are_named() {
        assert_eq!(only(&[(Optional, 2), (Required, 0), (Required, 0)]), Err("a structure or map"));
        assert_eq!(only(&[(Optional, 1), (Optional, 0)]), Err("a structure"));
        let lists = [(Optional, 1), (Repeated, 1), (Repeated, 0)];
        assert_eq!(only(&lists), Err("a list of lists"));
        let inside = [(Optional, 1), (Repeated, 1), (Optional, 1), (Optional, 0)];
        assert_eq!(only(&inside), Err("a nested structure"));
    }

    #[test]
    fn a_schema_that_ends_early_or_never_is_refused() {
        let schema = [node("root", Required, 2), node("a", Required, 0)];
        assert!(columns(&schema).is_err());
        let huge = Element { children: usize::MAX, ..node("a", Required, 1) };
        assert!(columns(&[node("root", Required, 1), huge.clone(), huge]).is_err());
    }
}
