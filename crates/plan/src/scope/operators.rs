//! `&`, `|` and `-` on scopes, by value and by reference.

use std::ops::{BitAnd, BitOr, Sub};

use super::Scope;

/// Writes one set operator for the four ways to hold its operands.
macro_rules! set_operator {
    ($operator:ident, $method:ident) => {
        impl $operator<&Scope> for &Scope {
            type Output = Scope;

            fn $method(self, other: &Scope) -> Scope {
                Scope { ids: $operator::$method(&self.ids, &other.ids) }
            }
        }

        impl $operator<Scope> for &Scope {
            type Output = Scope;

            fn $method(self, other: Scope) -> Scope {
                $operator::$method(self, &other)
            }
        }

        impl $operator<&Scope> for Scope {
            type Output = Scope;

            fn $method(self, other: &Scope) -> Scope {
                $operator::$method(&self, other)
            }
        }

        impl $operator<Scope> for Scope {
            type Output = Scope;

            fn $method(self, other: Scope) -> Scope {
                $operator::$method(&self, &other)
            }
        }
    };
}

set_operator!(BitAnd, bitand);
set_operator!(BitOr, bitor);
set_operator!(Sub, sub);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::id;

    #[test]
    fn operators_are_those_of_sets() {
        let query = id("block.0.query.weight");
        let key = id("block.0.key.weight");
        let value = id("block.0.value.weight");
        let left = Scope::from_iter([query, key]);
        let right = Scope::from_iter([key, value]);
        assert_eq!(&left & &right, Scope::from_iter([key]));
        assert_eq!(&left | right.clone(), Scope::from_iter([query, key, value]));
        assert_eq!(left.clone() - &right, Scope::from_iter([query]));
        assert_eq!(right - left, Scope::from_iter([value]));
    }
}
