//! How many blocks a rule takes: read, and replaced for a client that can carry more or fewer.

use super::Rule;

impl Rule {
    /// How many blocks the rule ranks and takes, wherever that stands in it; `None` if it ranks none.
    pub fn block_count(&self) -> Option<u16> {
        let ranked =
            |rule: &Self| if let Self::TopBlocks { k, .. } = rule { Some(*k) } else { None };
        self.all().into_iter().find_map(ranked)
    }

    /// The same rule with another number of ranked blocks; a rule that ranks none stays as it is.
    #[must_use]
    pub fn with_block_count(&self, count: u16) -> Self {
        let all = |rules: &[Self]| rules.iter().map(|rule| rule.with_block_count(count)).collect();
        let boxed = |rule: &Self| Box::new(rule.with_block_count(count));
        match self {
            Self::TopBlocks { k: _, probe } => Self::TopBlocks { k: count, probe: *probe },
            Self::Union(rules) => Self::Union(all(rules)),
            Self::Intersection(rules) => Self::Intersection(all(rules)),
            Self::Without { of, minus } => Self::Without { of: boxed(of), minus: boxed(minus) },
            Self::Drawn { from, like, draw } => {
                Self::Drawn { from: boxed(from), like: boxed(like), draw: *draw }
            }
            Self::Switch { before, at, after } => {
                Self::Switch { before: boxed(before), at: *at, after: boxed(after) }
            }
            Self::Everything
            | Self::Nothing
            | Self::Sites(_)
            | Self::Roles(_)
            | Self::Parts(_)
            | Self::Blocks(_) => self.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::evidence::Probe;
    use crate::id::Site;
    use crate::round::Round;
    use crate::rule::Rule;

    #[test]
    fn a_count_is_found_and_replaced_however_deep_it_lies() {
        let rule = |k| {
            let top = Rule::TopBlocks { k, probe: Probe::GradientNorm };
            let part = Rule::Everything & (top | Rule::Sites([Site::Head].into()));
            Rule::switch(Rule::Everything, Round(3), part - Rule::Nothing)
        };
        assert_eq!(rule(2).block_count(), Some(2));
        assert_eq!(rule(2).with_block_count(5), rule(5));
        assert_eq!(Rule::Everything.block_count(), None);
        assert_eq!(Rule::Everything.with_block_count(5), Rule::Everything);
    }
}
