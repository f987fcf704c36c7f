//! Names of classes in what Hugging Face `datasets` says beside a table, in a file or in memory.
//!
//! Such a table stores a label as a number and says under the key `huggingface` which name each number has
//! (`ClassLabel`). Labels are the names: so a model says `positive` and not 1.

use std::sync::Arc;

use serde_json::Value;

use super::fields::Cell;
use crate::error::Mismatch;

/// What a row without a label has.
const NO_LABEL: &str = "-1";

/// The names of a column's classes, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassNames(Arc<[String]>);

/// What a table says of its columns: the value of its entry [`KEY`](TableFeatures::KEY). An entry that is not
/// understood is left alone, like any other.
#[derive(Clone, Debug, Default)]
pub struct TableFeatures(Value);

impl TableFeatures {
    /// The key of the entry.
    pub const KEY: &str = "huggingface";

    /// Reads the entry's text.
    pub fn parse(text: &str) -> Self {
        let mut said = serde_json::from_str::<Value>(text).unwrap_or_default();
        Self(said.pointer_mut("/info/features").map(Value::take).unwrap_or_default())
    }

    /// The names of a column's classes, where it has classes.
    pub fn classes(&self, column: &str) -> Option<ClassNames> {
        names(&self.0[column])
    }
}

/// The names that a feature has, or the elements of a list.
fn names(feature: &Value) -> Option<ClassNames> {
    // A list is an object around its elements' feature; older files have an array of one.
    let inner = if feature["feature"].is_null() { &feature[0] } else { &feature["feature"] };
    let feature = if inner.is_null() { feature } else { inner };
    if feature["_type"] != "ClassLabel" {
        return None;
    }
    let names = feature["names"].as_array()?;
    let names: Option<Vec<String>> =
        names.iter().map(|name| Some(name.as_str()?.to_owned())).collect();
    names.filter(|names| !names.is_empty()).map(|names| ClassNames(names.into()))
}

impl ClassNames {
    /// The names in the place of their numbers; none for a row without a label.
    pub fn of(&self, cell: Cell) -> Result<Option<Cell>, Mismatch> {
        let name = |number: &String| {
            let place = number.parse::<usize>().ok();
            place.and_then(|place| self.0.get(place)).cloned().ok_or_else(|| {
                let most = self.0.len() - 1;
                (
                    format!("the class {number}"),
                    format!("0 to {most}: the file names these classes"),
                )
            })
        };
        match cell {
            Cell::One(number) if number == NO_LABEL => Ok(None),
            Cell::One(number) => Ok(Some(Cell::One(name(&number)?))),
            Cell::List(numbers) => {
                Ok(Some(Cell::List(numbers.iter().map(name).collect::<Result<_, _>>()?)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_found_in_columns_and_in_lists_and_numbers_beyond_them_are_refused() {
        let class = json!({"names": ["neg", "pos"], "_type": "ClassLabel"});
        let list = json!({"feature": class, "_type": "List"});
        for feature in [&class, &list, &json!([class])] {
            let names = names(feature).unwrap();
            let one = |number: &str| names.of(Cell::One(number.to_owned()));
            assert_eq!(one("1"), Ok(Some(Cell::One("pos".to_owned()))));
            assert_eq!(one("-1"), Ok(None));
            let (found, expected) = one("2").unwrap_err();
            assert_eq!((&*found, expected.starts_with("0 to 1")), ("the class 2", true));
            let both = Cell::List(vec!["1".to_owned(), "0".to_owned()]);
            let named = Cell::List(vec!["pos".to_owned(), "neg".to_owned()]);
            assert_eq!(names.of(both), Ok(Some(named)));
        }
        assert_eq!(names(&json!({"dtype": "int64", "_type": "Value"})), None);
        assert_eq!(names(&json!({"names": [1], "_type": "ClassLabel"})), None);
    }
}
