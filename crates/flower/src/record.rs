//! Records of words and numbers: what a message says beside its arrays.

use bytes::Bytes;
use prost::Message as _;

use crate::proto::{BytesList, Item, Record, Scalar, Value};

/// Values by key, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(Vec<(String, Scalar)>);

impl Fields {
    pub(crate) fn with(mut self, key: &str, value: Scalar) -> Self {
        self.0.push((key.to_owned(), value));
        self
    }

    pub(crate) fn encode(&self) -> Bytes {
        let item = |(key, scalar): &(String, Scalar)| Item {
            key: key.clone(),
            value: Some(Value { scalar: Some(scalar.clone()) }),
        };
        Record { items: self.0.iter().map(item).collect() }.encode_to_vec().into()
    }

    pub(crate) fn decode(body: Bytes) -> Result<Self, String> {
        let record = Record::decode(body).map_err(|error| error.to_string())?;
        // A value of a kind that nobody here reads is as if it were not there.
        let read = |Item { key, value }: Item| Some((key, value?.scalar?));
        Ok(Self(record.items.into_iter().filter_map(read).collect()))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Scalar> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(crate) fn text(&self, key: &str) -> Result<&str, String> {
        match self.get(key) {
            Some(Scalar::Text(text)) => Ok(text),
            found => Err(expected(key, found, "a text")),
        }
    }

    pub(crate) fn integer(&self, key: &str) -> Result<i64, String> {
        match self.get(key) {
            Some(Scalar::Sint(number)) => Ok(*number),
            found => Err(expected(key, found, "an integer")),
        }
    }

    /// A number, whole or not, if there is one; it need not be finite.
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Scalar::Double(number) => Some(*number),
            Scalar::Sint(number) => Some(*number as f64),
            Scalar::Uint(number) => Some(*number as f64),
            Scalar::Bool(_) | Scalar::Text(_) | Scalar::Bytes(_) | Scalar::BytesList(_) => None,
        }
    }

    /// The fields of both.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// A list of bytes; an empty one where there is none.
    pub(crate) fn bytes_list(&self, key: &str) -> Result<Vec<Bytes>, String> {
        match self.get(key) {
            Some(Scalar::BytesList(BytesList { vals })) => Ok(vals.clone()),
            None => Ok(Vec::new()),
            found => Err(expected(key, found, "a list of bytes")),
        }
    }
}

fn expected(key: &str, found: Option<&Scalar>, expected: &str) -> String {
    let found = match found {
        None => "nothing",
        Some(Scalar::Double(_)) => "a fraction",
        Some(Scalar::Sint(_) | Scalar::Uint(_)) => "an integer",
        Some(Scalar::Bool(_)) => "a truth value",
        Some(Scalar::Text(_)) => "a text",
        Some(Scalar::Bytes(_)) => "bytes",
        Some(Scalar::BytesList(_)) => "a list of bytes",
    };
    format!("{key}: found {found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_and_a_wrong_kind_is_named() {
        let list = vec![Bytes::from_static(b"a"), Bytes::new()];
        let fields = Fields::default()
            .with("kind", Scalar::Text("hello".to_owned()))
            .with("n", Scalar::Sint(-3))
            .with("list", Scalar::BytesList(BytesList { vals: list.clone() }));
        let read = Fields::decode(fields.encode()).unwrap();
        assert_eq!(read, fields);
        assert_eq!((read.text("kind"), read.integer("n")), (Ok("hello"), Ok(-3)));
        assert_eq!(read.bytes_list("list"), Ok(list));
        assert_eq!(read.bytes_list("none"), Ok(vec![]));
        assert_eq!(read.text("n"), Err("n: found an integer, expected a text".to_owned()));
        assert!(Fields::decode(Bytes::from_static(b"\xff\xff")).is_err());
    }
}
