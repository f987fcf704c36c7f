//! A set of parameters: the part of a model that learns, travels or is measured.
//!
//! It is a plain ordered set, so that every question about "which part" is set algebra: `&`, `|`
//! and `-` combine scopes, and iteration is always in id order, whatever built the set. Clones share
//! the set, and so do results that are equal to an operand: thousands of clients that learn the same
//! part hold it once.
//!
//! ```
//! use fedra_plan::{Layout, Part, ParamId, Role, Scope, Shape, Layer};
//!
//! let query = ParamId::new(Layer::Block(0), Role::Query, Part::Weight);
//! let value = ParamId::new(Layer::Block(0), Role::Value, Part::Weight);
//! let layout = Layout::new([(query, Shape::matrix(4, 4)), (value, Shape::matrix(4, 4))])?;
//!
//! let frozen = Scope::of_roles(&layout, [Role::Query, Role::Key]);
//! let trained = Scope::everything(&layout) - frozen;
//! assert_eq!(trained, Scope::from_iter([value]));
//! assert_eq!(trained.elements(&layout), 16);
//! # Ok::<(), fedra_plan::PlanError>(())
//! ```

mod bitmap;
mod operators;

use std::collections::{BTreeSet, btree_set};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::PlanError;
use crate::id::{Layer, ParamId};
use crate::layout::Layout;
use crate::role::{Part, Role};
use crate::shape::Shape;

/// An ordered set of parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    ids: Arc<BTreeSet<ParamId>>,
}

/// Ways to name a part of a layout. What the layout does not hold is never in the result.
impl Scope {
    /// No parameter.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Every parameter of the layout.
    pub fn everything(layout: &Layout) -> Self {
        layout.ids().collect()
    }

    /// All parameters of the given layers.
    pub fn of_layers(layout: &Layout, layers: impl IntoIterator<Item = Layer>) -> Self {
        let layers: BTreeSet<Layer> = layers.into_iter().collect();
        layout.ids().filter(|id| layers.contains(&id.layer)).collect()
    }

    /// All parameters of the given blocks.
    pub fn of_blocks(layout: &Layout, blocks: impl IntoIterator<Item = u16>) -> Self {
        Self::of_layers(layout, blocks.into_iter().map(Layer::Block))
    }

    /// All parameters with one of the given roles.
    pub fn of_roles(layout: &Layout, roles: impl IntoIterator<Item = Role>) -> Self {
        let roles: BTreeSet<Role> = roles.into_iter().collect();
        layout.ids().filter(|id| roles.contains(&id.role)).collect()
    }

    /// All parameters that are one of the given parts.
    pub fn of_parts(layout: &Layout, parts: impl IntoIterator<Item = Part>) -> Self {
        let parts: BTreeSet<Part> = parts.into_iter().collect();
        layout.ids().filter(|id| parts.contains(&id.part)).collect()
    }
}

/// Questions about the set, and small changes to it.
impl Scope {
    /// Whether the parameter is in the set.
    pub fn contains(&self, id: ParamId) -> bool {
        self.ids.contains(&id)
    }

    /// Adds a parameter; says whether it was new.
    pub fn insert(&mut self, id: ParamId) -> bool {
        !self.ids.contains(&id) && Arc::make_mut(&mut self.ids).insert(id)
    }

    /// Parameters in id order.
    pub fn iter(&self) -> std::iter::Copied<btree_set::Iter<'_, ParamId>> {
        self.ids.iter().copied()
    }

    /// The number of parameters, that is, of tensors.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether no parameter is in the set.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether every parameter of this set is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ids, &other.ids) || self.ids.is_subset(&other.ids)
    }

    /// The parameters for which the condition holds.
    pub fn filter(&self, mut condition: impl FnMut(ParamId) -> bool) -> Self {
        let kept: Vec<ParamId> = self.iter().filter(|id| condition(*id)).collect();
        // Where everything stays, so does the set that others may share.
        if kept.len() == self.len() { self.clone() } else { kept.into_iter().collect() }
    }

    /// The first layer of the forward pass that has a parameter in the set.
    pub fn lowest_layer(&self) -> Option<Layer> {
        self.ids.first().map(|id| id.layer)
    }

    /// The blocks that have a parameter in the set.
    pub fn blocks(&self) -> BTreeSet<u16> {
        self.iter().filter_map(|id| id.layer.block()).collect()
    }

    /// The number of elements, counting what the layout holds; [`Scope::check`] finds the rest.
    pub fn elements(&self, layout: &Layout) -> usize {
        self.iter().filter_map(|id| layout.get(id)).map(Shape::elements).sum()
    }

    /// Refuses a set that names a parameter the layout does not hold.
    pub fn check(&self, layout: &Layout) -> Result<(), PlanError> {
        match self.iter().find(|id| !layout.contains(*id)) {
            None => Ok(()),
            Some(id) => {
                let expected = format!("one of its {} parameters", layout.len());
                let found = format!("{id} is in the scope but not in the layout");
                Err(PlanError::unusable(found, expected))
            }
        }
    }
}

impl FromIterator<ParamId> for Scope {
    fn from_iter<I: IntoIterator<Item = ParamId>>(ids: I) -> Self {
        Self { ids: Arc::new(ids.into_iter().collect()) }
    }
}

impl Extend<ParamId> for Scope {
    fn extend<I: IntoIterator<Item = ParamId>>(&mut self, ids: I) {
        Arc::make_mut(&mut self.ids).extend(ids);
    }
}

impl IntoIterator for Scope {
    type Item = ParamId;
    type IntoIter = btree_set::IntoIter<ParamId>;

    fn into_iter(self) -> Self::IntoIter {
        Arc::unwrap_or_clone(self.ids).into_iter()
    }
}

impl<'scope> IntoIterator for &'scope Scope {
    type Item = ParamId;
    type IntoIter = std::iter::Copied<btree_set::Iter<'scope, ParamId>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.ids.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeSet::deserialize(deserializer).map(|ids| Self { ids: Arc::new(ids) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{id, layout};

    #[test]
    fn each_constructor_selects_along_its_own_axis() {
        let layout = layout(3);
        assert_eq!(Scope::of_layers(&layout, [Layer::Head]).lowest_layer(), Some(Layer::Head));
        assert_eq!(Scope::of_blocks(&layout, [0, 2]).blocks(), BTreeSet::from([0, 2]));
        assert!(Scope::of_roles(&layout, [Role::Key]).iter().all(|id| id.role == Role::Key));
        assert!(Scope::of_parts(&layout, [Part::Bias]).iter().all(|id| id.part == Part::Bias));
        assert_eq!(Scope::everything(&layout).elements(&layout), layout.elements());
    }

    #[test]
    fn what_the_layout_lacks_is_never_selected() {
        let layout = layout(2);
        assert!(Scope::of_blocks(&layout, [2]).is_empty());
        assert!(Scope::of_roles(&layout, [Role::Vocabulary]).is_empty());
    }

    #[test]
    fn check_names_the_first_stray_parameter() {
        let layout = layout(2);
        let mut scope = Scope::everything(&layout);
        assert_eq!(scope.check(&layout), Ok(()));
        assert!(scope.insert(id("block.7.query.weight")));
        assert!(scope.insert(id("block.9.query.weight")));
        let message = scope.check(&layout).expect_err("two strays").to_string();
        assert!(message.starts_with("block.7.query.weight is in the scope but not"), "{message}");
    }

    #[test]
    fn a_scope_is_a_list_of_ids_in_json() {
        let scope = Scope::from_iter([id("head.classifier.bias"), id("block.0.key.weight")]);
        let text = serde_json::to_string(&scope).expect("a list");
        assert_eq!(text, r#"["block.0.key.weight","head.classifier.bias"]"#);
        assert_eq!(serde_json::from_str::<Scope>(&text).expect("just written"), scope);
    }
}
