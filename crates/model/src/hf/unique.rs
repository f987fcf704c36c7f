//! A JSON object of strings in which a key that comes twice is an error, where a plain map would
//! quietly keep the last.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

/// Strings by distinct keys.
pub struct Unique(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Unique;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique, A::Error> {
                let mut pairs = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if pairs.contains_key(&key) {
                        return Err(A::Error::custom(format!("{key:?} listed twice")));
                    }
                    pairs.insert(key, value);
                }
                Ok(Unique(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}
