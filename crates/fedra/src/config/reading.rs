//! TOML values into types, with complaints that name the whole key.
//!
//! The `toml` crate knows lines, but an experiment may come from a file, from `--set` and from the
//! quickstart at once, and then only the key says where a value belongs. So this reader walks a
//! finished table and puts the path in front of whatever serde complains about.

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, Expected, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use toml::{Table, Value};

use crate::config::ConfigError;

/// What reading comes to.
type Result<T> = std::result::Result<T, ConfigError>;

/// The value that a table spells.
pub fn read<T: DeserializeOwned>(table: Table) -> Result<T> {
    T::deserialize(spelt(table))
}

/// A table as something that a type can be read from.
pub fn spelt(table: Table) -> Spelt {
    Spelt(Value::Table(table))
}

/// A value on its way to a type.
pub struct Spelt(Value);

impl<'de> Deserializer<'de> for Spelt {
    type Error = ConfigError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            Value::String(text) => visitor.visit_string(text),
            Value::Integer(number) => match u64::try_from(number) {
                Ok(number) => visitor.visit_u64(number),
                Err(_) => visitor.visit_i64(number),
            },
            Value::Float(number) => visitor.visit_f64(number),
            Value::Boolean(truth) => visitor.visit_bool(truth),
            Value::Datetime(_) => {
                Err(ConfigError::invalid_type(Unexpected::Other("a date"), &visitor))
            }
            Value::Array(items) => visitor.visit_seq(Items(items.into_iter().enumerate())),
            Value::Table(table) => visitor.visit_map(Keys { rest: table.into_iter(), value: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        if self.0.is_table() {
            return self.deserialize_any(visitor);
        }
        Err(ConfigError::value(self.0, format!("a table with keys out of {}", fields.join(", "))))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        // A type may say better than its words how it is written.
        let told = (&visitor as &dyn Expected).to_string();
        let told = Some(told).filter(|told| !told.starts_with("enum "));
        let words = || told.unwrap_or_else(|| format!("one of {}", variants.join(", ")));
        if let Value::String(word) = self.0 {
            return visitor.visit_enum(Choice { word, value: None });
        }
        let entries = self.0.as_table().into_iter().flatten().collect::<Vec<_>>();
        let [(word, value)] = entries[..] else { return Err(ConfigError::value(self.0, words())) };
        visitor.visit_enum(Choice { word: word.clone(), value: Some(value.clone()) })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// Tables with the key that says how to read the others, and its default. Serde would take a number for the place of a
/// word, and a list for the values.
const TAGS: [(&str, &str, Option<&str>); 4] = [
    ("optimiser", "name", Some("adamw")),
    ("method", "name", None),
    ("base", "name", None),
    ("noise", "kind", None),
];

/// A key that nobody writes: the error about it lists those that are known beside it.
pub(super) const STRANGER: &str = "?";

struct Keys {
    rest: toml::map::IntoIter<String, Value>,
    value: Option<(String, Value)>,
}

impl<'de> MapAccess<'de> for Keys {
    type Error = ConfigError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some((key.clone(), value));
        let key: StringDeserializer<ConfigError> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        let (key, mut value) = self.value.take().expect("a key comes before its value");
        let found = value.clone();
        if let Some((_, tag, default)) = TAGS.iter().find(|(table, ..)| *table == key) {
            let table = value.as_table_mut().filter(|table| !table.contains_key(STRANGER));
            if let (Some(default), Some(table)) = (default, table) {
                table.entry(*tag).or_insert_with(|| Value::from(*default));
            }
            let word = value.get(tag).filter(|word| !word.is_str()).cloned();
            if let Some(word) = word {
                return Err(ConfigError::value(word, "a word in quotes").inside(tag).inside(&key));
            }
            if value.is_array() {
                let expected = format!("a word or a table with a {tag}");
                return Err(ConfigError::value(value, expected).inside(&key));
            }
        }
        seed.deserialize(Spelt(value)).map_err(|refusal| refusal.within(&key, &found))
    }
}

struct Items(std::iter::Enumerate<std::vec::IntoIter<Value>>);

impl<'de> SeqAccess<'de> for Items {
    type Error = ConfigError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        let Some((place, item)) = self.0.next() else { return Ok(None) };
        let read = seed.deserialize(Spelt(item.clone()));
        read.map(Some).map_err(|refusal| refusal.within(&format!("[{place}]"), &item))
    }
}

/// A word, or a word with a value: `"all"` or `{ uniform = 4 }`.
struct Choice {
    word: String,
    value: Option<Value>,
}

impl<'de> EnumAccess<'de> for Choice {
    type Error = ConfigError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self)> {
        let word: StringDeserializer<ConfigError> = self.word.clone().into_deserializer();
        Ok((seed.deserialize(word)?, self))
    }
}

impl<'de> VariantAccess<'de> for Choice {
    type Error = ConfigError;

    fn unit_variant(self) -> Result<()> {
        let Self { word, value } = self;
        let Some(value) = value else { return Ok(()) };
        let expected = format!("the word {word:?} alone");
        Err(ConfigError::value(Table::from_iter([(word, value)]).into(), expected))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        let (word, value) = self.with_value(|word| format!("{{ {word} = ... }}"))?;
        seed.deserialize(Spelt(value)).map_err(|refusal| refusal.inside(&word))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        Err(ConfigError::invalid_type(Unexpected::TupleVariant, &visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let expected = (&visitor as &dyn Expected).to_string();
        let (word, value) = self.with_value(|_| expected.clone())?;
        if !value.is_table() {
            return Err(ConfigError::value(value, expected).inside(&word));
        }
        Spelt(value).deserialize_any(visitor).map_err(|refusal| refusal.inside(&word))
    }
}

impl Choice {
    fn with_value(self, expected: impl FnOnce(&str) -> String) -> Result<(String, Value)> {
        let Self { word, value } = self;
        match value {
            Some(value) => Ok((word, value)),
            None => Err(ConfigError::value(word.clone().into(), expected(&word))),
        }
    }
}
