//! What stands around a text: the special tokens of a sequence, and which part each token is in.
//!
//! A `tokenizer.json` describes this by one of several post-processors. Instead of knowing them all,
//! two marks are sent through whichever the file has, and where they come out is the template:
//!
//! ```text
//! single   [CLS] A [SEP]                    types 0 0 0
//! pair     [CLS] A [SEP] B [SEP]            types 0 0 0 1 1
//! ```

/// The templates of one text and of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Templates {
    /// Around one text.
    pub single: Template,
    /// Around two; absent where the tokenizer has no way to write both.
    pub pair: Option<Template>,
}

/// Special tokens in their order, with the places of the text or texts among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Slot>);

/// One place of a template; each kind of token has its type (BERT's segment).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Special { id: u32, kind: u32 },
    First { kind: u32 },
    Second { kind: u32 },
}

impl Templates {
    /// The same with type 0 everywhere.
    pub(super) fn without_types(&self) -> Self {
        let plain =
            |template: &Template| Template(template.0.iter().map(Slot::of_type_0).collect());
        Self { single: plain(&self.single), pair: self.pair.as_ref().map(plain) }
    }
}

impl Template {
    /// A template that names the first text once and, for two texts, the second once.
    pub(super) fn new(slots: Vec<Slot>, texts: usize) -> Option<Self> {
        let count = |wanted: fn(&Slot) -> bool| slots.iter().filter(|slot| wanted(slot)).count();
        let first = count(|slot| matches!(slot, Slot::First { .. }));
        let second = count(|slot| matches!(slot, Slot::Second { .. }));
        (first == 1 && second + 1 == texts).then_some(Self(slots))
    }

    /// How many special tokens it adds.
    pub fn added(&self) -> usize {
        self.0.iter().filter(|slot| matches!(slot, Slot::Special { .. })).count()
    }

    /// The special tokens before the first text.
    pub fn before(&self) -> Vec<u32> {
        self.0.iter().map_while(Slot::special).collect()
    }

    /// The special tokens behind the last text.
    pub fn after(&self) -> Vec<u32> {
        let mut after: Vec<u32> = self.0.iter().rev().map_while(Slot::special).collect();
        after.reverse();
        after
    }

    /// The largest number of its special tokens.
    pub fn highest_id(&self) -> Option<u32> {
        self.0.iter().filter_map(Slot::special).max()
    }

    /// The whole sequence, and the type of each token; no types stands for all 0.
    pub fn fill(&self, first: &[u32], second: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let mut ids = Vec::with_capacity(first.len() + second.len() + self.0.len());
        for slot in &self.0 {
            match slot {
                Slot::Special { id, .. } => ids.push(*id),
                Slot::First { .. } => ids.extend_from_slice(first),
                Slot::Second { .. } => ids.extend_from_slice(second),
            }
        }
        (ids, self.types(first.len(), second.len()))
    }

    /// The types of a sequence whose texts have so many tokens; none stands for all 0.
    pub fn types(&self, first: usize, second: usize) -> Vec<u32> {
        let kind = |slot: &Slot| match *slot {
            Slot::Special { kind, .. } => (kind, 1),
            Slot::First { kind } => (kind, first),
            Slot::Second { kind } => (kind, second),
        };
        if self.0.iter().all(|slot| kind(slot).0 == 0) {
            return Vec::new();
        }
        let runs = self.0.iter().map(kind);
        runs.flat_map(|(kind, count)| std::iter::repeat_n(kind, count)).collect()
    }
}

impl Slot {
    fn of_type_0(&self) -> Self {
        match *self {
            Self::Special { id, .. } => Self::Special { id, kind: 0 },
            Self::First { .. } => Self::First { kind: 0 },
            Self::Second { .. } => Self::Second { kind: 0 },
        }
    }

    fn special(&self) -> Option<u32> {
        match *self {
            Self::Special { id, .. } => Some(id),
            Self::First { .. } | Self::Second { .. } => None,
        }
    }
}

/// How many tokens of two texts fit into `room`: the longer loses first, and where both must, the
/// second keeps the odd one, or the first if it was the longer.
pub(super) fn longest_first(first: usize, second: usize, room: usize) -> (usize, usize) {
    if first + second <= room {
        return (first, second);
    }
    let shorter = first.min(second);
    let (short, long) =
        if 2 * shorter <= room { (shorter, room - shorter) } else { (room / 2, room - room / 2) };
    if first > second { (long, short) } else { (short, long) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bert_pair() -> Template {
        let (cls, sep) = (Slot::Special { id: 2, kind: 0 }, Slot::Special { id: 3, kind: 0 });
        let (first, second) = (Slot::First { kind: 0 }, Slot::Second { kind: 1 });
        let end = Slot::Special { id: 3, kind: 1 };
        Template::new(vec![cls, first, sep, second, end], 2).unwrap()
    }

    #[test]
    fn a_pair_without_types_has_none() {
        let single = Template(vec![Slot::First { kind: 1 }]);
        let plain = Templates { single, pair: Some(bert_pair()) }.without_types();
        let (ids, types) = plain.pair.unwrap().fill(&[7, 8], &[9]);
        assert_eq!((ids, types), (bert_pair().fill(&[7, 8], &[9]).0, vec![]));
        assert!(plain.single.types(3, 0).is_empty());
    }

    #[test]
    fn a_pair_is_written_with_the_types_of_its_parts() {
        let (ids, types) = bert_pair().fill(&[7, 8], &[9]);
        assert_eq!(ids, [2, 7, 8, 3, 9, 3]);
        assert_eq!(types, [0, 0, 0, 0, 1, 1]);
        assert_eq!(
            (bert_pair().added(), bert_pair().before(), bert_pair().after()),
            (3, vec![2], vec![3])
        );
    }

    #[test]
    fn a_template_names_each_text_once() {
        let first = Slot::First { kind: 0 };
        assert!(Template::new(vec![first], 1).is_some());
        assert!(Template::new(vec![first, first], 1).is_none());
        assert!(Template::new(vec![first], 2).is_none());
        assert_eq!(Template::new(vec![first], 1).unwrap().fill(&[5], &[]), (vec![5], vec![]));
    }

    #[test]
    fn the_longer_text_is_cut_first() {
        // Lengths and room as `transformers` cuts them with longest_first.
        for (texts, room, expected) in [
            ((3, 4), 7, (3, 4)),
            ((3, 9), 8, (3, 5)),
            ((9, 3), 8, (5, 3)),
            ((9, 9), 8, (4, 4)),
            ((9, 9), 7, (3, 4)),
            ((10, 9), 7, (4, 3)),
            ((0, 9), 4, (0, 4)),
        ] {
            assert_eq!(longest_first(texts.0, texts.1, room), expected, "{texts:?} in {room}");
        }
    }
}
