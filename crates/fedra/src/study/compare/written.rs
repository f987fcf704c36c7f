//! Keys and the values they take, as written in `[compare]` tables and after `--sweep` and `--tune`.

use toml::{Table, Value};

use crate::config::{ConfigError, read_value};

/// What reading an axis comes to.
type Result<T> = std::result::Result<T, ConfigError>;

/// A key and the values it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The key with its tables, as `method.k`.
    pub key: String,
    /// In the order written.
    pub values: Vec<Value>,
}

/// The axes of a table, quoted keys and tables in tables alike, in the order of their keys.
pub fn axes(table: &Table, place: &str) -> Result<Vec<Axis>> {
    let mut axes = Vec::new();
    gather(table, "", place, &mut axes)?;
    Ok(axes)
}

fn gather(table: &Table, above: &str, place: &str, axes: &mut Vec<Axis>) -> Result<()> {
    for (key, value) in table {
        let key = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
        if let Some(inner) = value.as_table() {
            gather(inner, &key, place, axes)?;
            continue;
        }
        let Some(values) = value.as_array() else {
            let expected = "a list of values, as in [1, 2, 3]";
            return Err(ConfigError::new(&format!("{place}.{key}"), value, expected));
        };
        axes.push(checked(key, values.clone(), place)?);
    }
    Ok(())
}

/// An axis on the command line: `key=v1,v2,...`.
pub fn axis(assignment: &str, place: &str) -> Result<Axis> {
    let Some((key, text)) = assignment.split_once('=').filter(|(key, _)| !key.trim().is_empty())
    else {
        return Err(ConfigError::new(place, assignment, "key=value,value,..."));
    };
    // Values that hold commas themselves are legal TOML; bare words are not and hold none.
    let values = match format!("list = [{text}]").parse::<Table>().map(|mut t| t.remove("list")) {
        Ok(Some(Value::Array(values))) => values,
        Ok(_) | Err(_) => text.split(',').map(|word| read_value(word.trim())).collect(),
    };
    checked(key.trim().to_owned(), values, place)
}

fn checked(key: String, values: Vec<Value>, place: &str) -> Result<Axis> {
    let whole = format!("{place}.{key}");
    ConfigError::new(&whole, "an empty list", "at least one value").when(values.is_empty())?;
    if let Some(twice) = values.iter().enumerate().find(|(i, v)| values[..*i].contains(v)) {
        return Err(ConfigError::new(&whole, format!("{} twice", twice.1), "every value once"));
    }
    let names_run =
        ["name", "seed", "compare"].contains(&key.split('.').next().unwrap_or_default());
    let expected = "another key; seeds are counted by compare.seeds";
    ConfigError::new(&whole, "a key that names the run", expected).when(names_run)?;
    Ok(Axis { key, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_keys_and_tables_in_tables_spell_the_same_axes() {
        let quoted: Table = "'work.epochs' = [1, 2]\n'method.k' = [3]".parse().expect("TOML");
        let nested: Table = "work.epochs = [1, 2]\nmethod.k = [3]".parse().expect("TOML");
        let found = axes(&quoted, "compare.sweep").expect("legal");
        assert_eq!(found, axes(&nested, "compare.sweep").expect("legal"));
        let keys: Vec<&str> = found.iter().map(|axis| axis.key.as_str()).collect();
        assert_eq!(keys, ["method.k", "work.epochs"]);
    }

    #[test]
    fn values_on_the_command_line_are_toml_or_words() {
        let values = |text: &str| axis(text, "sweep").expect("legal").values;
        assert_eq!(values("k=1,2"), [Value::Integer(1), Value::Integer(2)]);
        assert_eq!(values("s=even, last"), ["even", "last"].map(|w| Value::String(w.into())));
        assert_eq!(values("x={ uniform = 4 },{ uniform = 5 }").len(), 2);
    }

    #[test]
    fn what_is_no_list_of_different_values_is_refused() {
        let refused = |text: &str| axis(text, "sweep").expect_err("refused").to_string();
        assert_eq!(refused("k=1,2,1"), "sweep.k: found 1 twice, expected every value once");
        assert!(refused("seed=1,2").contains("compare.seeds"));
        assert!(refused("k").contains("expected key=value,value"));
        let table: Table = "method.k = 3".parse().expect("TOML");
        let refusal = axes(&table, "compare.sweep").expect_err("refused").to_string();
        assert!(refusal.starts_with("compare.sweep.method.k: found 3, expected a list"));
    }
}
