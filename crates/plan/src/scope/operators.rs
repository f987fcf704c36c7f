//! `&`, `|` and `-` on scopes, by value and by reference.
//!
//! A result that is the left operand shares its set.

use std::borrow::Borrow;
use std::ops::{BitAnd, BitOr, Sub};
use std::sync::Arc;

use super::Scope;

/// Writes one set operator, for operands by value and by reference.
macro_rules! set_operator {
    ($operator:ident, $method:ident, $changes_nothing:expr) => {
        impl<S: Borrow<Scope>> $operator<S> for &Scope {
            type Output = Scope;

            fn $method(self, other: S) -> Scope {
                let other = other.borrow();
                if $changes_nothing(self, other) {
                    return self.clone();
                }
                Scope { ids: Arc::new($operator::$method(&*self.ids, &*other.ids)) }
            }
        }

        impl<S: Borrow<Scope>> $operator<S> for Scope {
            type Output = Scope;

            fn $method(self, other: S) -> Scope {
                $operator::$method(&self, other)
            }
        }
    };
}

set_operator!(BitAnd, bitand, Scope::is_subset);
set_operator!(BitOr, bitor, |left: &Scope, right: &Scope| right.is_subset(left));
set_operator!(Sub, sub, |left: &Scope, right: &Scope| left.ids.is_disjoint(&right.ids));

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

    #[test]
    fn a_result_that_is_the_left_operand_shares_its_set() {
        let [query, key] = ["block.0.query.weight", "block.0.key.weight"].map(id);
        let (both, one) = (Scope::from_iter([query, key]), Scope::from_iter([query]));
        let shares = |left: &Scope, right: &Scope| Arc::ptr_eq(&left.ids, &right.ids);
        assert!(shares(&(&one & &both), &one));
        assert!(shares(&(&both | &one), &both));
        assert!(shares(&(&both - &Scope::empty()), &both));
        assert!(!shares(&(&both - &one), &both));
        let mut changed = both.clone();
        assert!(!changed.insert(key) && shares(&changed, &both));
        changed.extend([id("block.0.value.weight")]);
        assert_eq!((changed.len(), both.len()), (3, 2));
    }
}
