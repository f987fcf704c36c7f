//! How many blocks learn, as an experiment file says it.

use std::collections::BTreeMap;
use std::fmt;

use fedra_plan::ByteCount;
use serde::{Deserialize, Serialize};

/// How many blocks learn unless the file says.
pub(super) const USUAL_COUNT: u16 = 2;

/// How many blocks learn: `2`, `{ default = 4, "hospital-3" = 2 }` or `{ memory = "200 MB" }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number of blocks, { default = 4, \"client\" = 2 } or { memory = \"200 MB\" }"
)]
pub enum BlockCount {
    /// So many at every client.
    Everywhere(u16),
    /// So many at the named clients, and a usual number at the others.
    Named {
        /// The usual number.
        default: u16,
        /// The exceptions, by name.
        #[serde(flatten)]
        counts: BTreeMap<String, u16>,
    },
    /// As many as fit into this much memory of a client.
    Memory(#[serde(with = "budget")] ByteCount),
}

impl fmt::Display for BlockCount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everywhere(k) => write!(formatter, "{k}"),
            Self::Named { default, counts } => {
                write!(formatter, "{default} and {} numbers of clients", counts.len())
            }
            Self::Memory(budget) => write!(formatter, "{{ memory = \"{budget}\" }}"),
        }
    }
}

/// A number of bytes as `{ memory = "200 MB" }`.
mod budget {
    use fedra_plan::ByteCount;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Budget {
        memory: String,
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(super) fn serialize<S: Serializer>(bytes: &ByteCount, to: S) -> Result<S::Ok, S::Error> {
        Budget { memory: format!("{} B", bytes.0) }.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ByteCount, D::Error> {
        Budget::deserialize(from)?.memory.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &BlockCount) {
        assert_eq!(serde_json::from_str::<BlockCount>(text).expect(text), *expected);
        let again = serde_json::to_string(expected).expect("plain data");
        assert_eq!(serde_json::from_str::<BlockCount>(&again).expect("just written"), *expected);
    }

    #[test]
    fn k_has_three_spellings() {
        check("3", &BlockCount::Everywhere(3));
        let counts = [("hospital-3".to_owned(), 2)].into();
        let named = BlockCount::Named { default: 4, counts };
        check(r#"{"default":4,"hospital-3":2}"#, &named);
        check(r#"{"memory":"200 MB"}"#, &BlockCount::Memory(ByteCount(200_000_000)));
        for wrong in [
            "-1",
            "70000",
            r#""two""#,
            r#"{"hospital-3":2}"#,
            r#"{"memory":"lots"}"#,
            r#"{"memory":"1 MB","default":2}"#,
        ] {
            assert!(serde_json::from_str::<BlockCount>(wrong).is_err(), "{wrong}");
        }
    }
}
