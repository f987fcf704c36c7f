//! Every key that an experiment file may have, found out from the types that read it.
//!
//! Serde tells a deserializer which fields a struct has. So a type is read from a value that does
//! not exist, one path at a time, and the fields it asks for on the way are written down: a list
//! that no one has to keep. A method's settings are asked for by the method's name; keys behind any
//! other tag (an optimiser's) are not seen.

use std::cell::RefCell;

use fedra_engine::methods::Method;
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use crate::config::complaint::{Complaint, nearest};

/// Adds to a complaint about an unknown key where that key, or one like it, is known.
pub fn advise<T: DeserializeOwned>(complaint: Complaint) -> Complaint {
    let Some(key) = complaint.unknown_key().map(str::to_owned) else { return complaint };
    let known = keys::<T>();
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let called = |name: &str| -> Vec<&str> {
        known.iter().map(String::as_str).filter(|key| last(key) == name).collect()
    };
    let mut elsewhere = called(&last(&key));
    let own = complaint.suggestion().map(str::to_owned);
    if elsewhere.is_empty() && own.is_none() {
        let names: Vec<String> = known.iter().map(|key| last(key)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        elsewhere.extend(nearest(&last(&key), &names).into_iter().flat_map(called));
    }
    if elsewhere.is_empty() {
        return complaint;
    }
    let all: Vec<&str> = own.iter().map(String::as_str).chain(elsewhere).collect();
    complaint.suggesting(&all)
}

/// Adds to a complaint about a method's unknown setting whose setting it is.
pub fn advise_method(complaint: Complaint) -> Complaint {
    let key = complaint.unknown_key().and_then(|key| key.strip_prefix("method."));
    let (Some(key), None) = (key, complaint.suggestion()) else { return complaint };
    let knows = |method: &&str| method_keys(method).iter().any(|known| known == key);
    let owners: Vec<&str> = Method::NAMES.into_iter().filter(knows).collect();
    if owners.is_empty() {
        return complaint;
    }
    let hint = format!("{key} is a setting of {}", owners.join(", "));
    complaint.with_hint(hint)
}

/// Every key of a type with its tables, as `work.batch`, in the order of the type.
pub fn keys<T: DeserializeOwned>() -> Vec<String> {
    let mut all = Vec::new();
    // It always fails: there is no value. What matters is what was asked for.
    let ask = |nowhere: Nowhere<'_>| drop(T::deserialize(nowhere));
    explore(&ask, &mut Vec::new(), &mut all);
    all
}

/// Every setting of a method.
pub fn method_keys(name: &str) -> Vec<String> {
    let mut all = Vec::new();
    let ask = |nowhere: Nowhere<'_>| drop(Method::by_name(name, nowhere));
    explore(&ask, &mut Vec::new(), &mut all);
    all
}

fn explore(ask: &dyn Fn(Nowhere<'_>), path: &mut Vec<&'static str>, all: &mut Vec<String>) {
    let fields = RefCell::new(&[][..]);
    ask(Nowhere { path, fields: &fields });
    let fields = *fields.borrow();
    for field in fields {
        path.push(field);
        all.push(path.join("."));
        explore(ask, path, all);
        path.pop();
    }
}

/// A value that has nothing but a way through it.
struct Nowhere<'a> {
    path: &'a [&'static str],
    fields: &'a RefCell<&'static [&'static str]>,
}

impl<'de> Deserializer<'de> for Nowhere<'_> {
    type Error = Complaint;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Complaint> {
        Err(Complaint::custom("nothing"))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Complaint> {
        visitor.visit_some(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Complaint> {
        let Some((field, rest)) = self.path.split_first() else {
            *self.fields.borrow_mut() = fields;
            return Err(Complaint::custom("nothing"));
        };
        let inner = Nowhere { path: rest, fields: self.fields };
        visitor.visit_map(Way { field: Some(field), inner: Some(inner) })
    }

    /// A list has the keys of one of its items.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Complaint> {
        visitor.visit_seq(Item(Some(self)))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct tuple tuple_struct map enum identifier ignored_any
    }
}

struct Item<'a>(Option<Nowhere<'a>>);

impl<'de> SeqAccess<'de> for Item<'_> {
    type Error = Complaint;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Complaint> {
        self.0.take().map(|item| seed.deserialize(item)).transpose()
    }
}

/// The one field that leads on.
struct Way<'a> {
    field: Option<&'static str>,
    inner: Option<Nowhere<'a>>,
}

impl<'de> MapAccess<'de> for Way<'_> {
    type Error = Complaint;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Complaint> {
        let Some(field) = self.field.take() else { return Ok(None) };
        let key: StrDeserializer<'_, Complaint> = field.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Complaint> {
        let inner = self.inner.take().expect("a key comes before its value");
        seed.deserialize(inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::draft::Draft;

    #[test]
    fn keys_are_known_through_tables_and_options() {
        let keys = keys::<Draft>();
        for key in ["seed", "federation.rounds", "data.clinic.notes", "conditions.slow.share"] {
            assert!(keys.iter().any(|known| known == key), "{key} in {keys:?}");
        }
    }

    #[test]
    fn the_settings_of_methods_and_the_items_of_lists_are_known_too() {
        assert_eq!(method_keys("fedadam"), ["rate", "beta1", "beta2", "tau"]);
        assert_eq!(method_keys("fednova"), Vec::<String>::new());
        assert!(method_keys("safl").iter().any(|key| key == "profile_every"));
        assert!(keys::<Draft>().iter().any(|key| key == "compare.variants.tune"));
    }

    #[test]
    fn a_key_in_the_wrong_table_finds_its_own() {
        let advised = |key: &str, known| {
            advise::<Draft>(Complaint::unknown_field(key, known)).suggestion().map(str::to_owned)
        };
        assert_eq!(advised("rounds", &["seed"]).as_deref(), Some("federation.rounds"));
        assert_eq!(advised("ronuds", &["seed"]).as_deref(), Some("federation.rounds"));
        assert_eq!(advised("seeds", &["seed"]).as_deref(), Some("seed or compare.seeds"));
        assert_eq!(advised("epsilons", &["seed"]).as_deref(), Some("privacy.epsilon"));
        assert_eq!(advised("quaternion", &["seed"]), None);
    }
}
