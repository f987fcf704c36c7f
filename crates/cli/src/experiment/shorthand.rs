//! Words where a table with nothing but a name would do.
//!
//! `method = "fedavg"` and `base = "fedadam"` are spelt out before anything is read, so that
//! everybody behind this, and the `experiment.toml` of a run, knows one spelling only.

use toml::{Table, Value};

/// Spells out the method and all methods beneath it.
pub fn spell_out(table: &mut Table) {
    let mut place = table.get_mut("method");
    while let Some(value) = place {
        if let Value::String(name) = value {
            let named = Table::from_iter([("name".to_owned(), Value::String(name.clone()))]);
            *value = Value::Table(named);
        }
        place = value.as_table_mut().and_then(|method| method.get_mut("base"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(short: &str, long: &str) {
        let mut table: Table = short.parse().expect("TOML");
        spell_out(&mut table);
        assert_eq!(table, long.parse::<Table>().expect("TOML"));
    }

    #[test]
    fn a_word_is_a_method_without_settings_at_every_depth() {
        check("method = 'fedavg'", "method = { name = 'fedavg' }");
        check(
            "method = { name = 'fedfrozen', base = { name = 'safl', base = 'fedadam' } }",
            "method = { name = 'fedfrozen', base = { name = 'safl', base = { name = 'fedadam' } } }",
        );
        check("seed = 1", "seed = 1");
    }
}
