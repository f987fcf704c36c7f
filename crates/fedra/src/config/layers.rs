//! One table out of several layers: the file, `--set key=value`, `--seed`, and `${VARIABLES}`.
//!
//! Layers are joined before anything is checked, so that a value is judged the same wherever it
//! came from and a later layer may mend an earlier one. Words where a table with nothing but a name
//! would do (`method = "fedavg"`, `base = "fedadam"`) are spelt out here too, so that everybody behind
//! this, and the `experiment.toml` of a run, knows one spelling only.

use std::ops::Range;

use toml::{Table, Value};

use super::origin::excerpt;
use crate::config::ConfigError;
use crate::error::{Error, Result};

/// Reads the text of an experiment file.
pub fn parse(text: &str, file: &str) -> Result<Table> {
    text.parse::<Table>().map_err(|error| {
        let shown = |span| format!("\n{}", excerpt(file, text, &span));
        let place = error.span().map_or(String::new(), shown);
        let known = error.span().and_then(|span| in_words(text, span, error.message()));
        let told = known.unwrap_or_else(|| {
            // A parser that found several things wrong says them in several lines.
            format!(
                "found TOML that cannot be read: {}",
                error.message().trim().replace('\n', "; ")
            )
        });
        Error::Refused(format!("{file}: {told}{place}"))
    })
}

/// The commonest slips, for which the parser's words are about something else.
fn in_words(text: &str, span: Range<usize>, message: &str) -> Option<String> {
    let before = text.get(..span.start)?;
    let header = before.lines().rev().map(str::trim).find(|line| line.starts_with('['));
    let table = header.and_then(|line| line.strip_prefix('[')?.split_once(']'));
    let whole = |key: &str| match table {
        Some((table, _)) if !table.starts_with('[') => format!("{}.{key}", table.trim()),
        Some(_) | None => key.to_owned(),
    };
    if message.contains("duplicate key") {
        let key = text.get(span)?.trim();
        // A header that is there twice names its table in full.
        let is_header = before.trim_end_matches([' ', '\t']).ends_with('[');
        return Some(format!(
            "{} is given twice",
            if is_header { format!("[{key}]") } else { whole(key) }
        ));
    }
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next()?.split('#').next()?;
    let key = line.trim_end().strip_suffix('=')?.trim();
    (!key.is_empty() && !key.contains(['=', '"', '\'']))
        .then(|| format!("{} has no value", whole(key)))
}

/// Puts one `key=value` into a table; dots in the key name tables inside tables.
///
/// The value is read as TOML, and as plain text where that fails: quotes are a nuisance in a shell.
pub fn set(table: &mut Table, assignment: &str) -> Result<(), ConfigError> {
    let (key, value) =
        assignment.split_once('=').filter(|(key, _)| !key.trim().is_empty()).ok_or_else(|| {
            ConfigError::sentence("", format!("found {assignment:?}, expected KEY=VALUE"))
        })?;
    put(table, key.trim(), value_of(value.trim()))
}

/// A value on the command line: TOML where it can be, text where not.
pub fn value_of(text: &str) -> Value {
    match format!("value = {text}").parse::<Table>() {
        Ok(mut read) if read.len() == 1 => read.remove("value").expect("it was just spelt"),
        Ok(_) | Err(_) => Value::String(text.to_owned()),
    }
}

/// Puts a value into a table; dots in the key name tables inside tables.
pub fn put(table: &mut Table, key: &str, value: Value) -> Result<(), ConfigError> {
    let mut names: Vec<&str> = key.split('.').map(str::trim).collect();
    let problem = format!("{key:?} is no key: a name before or after a dot is missing");
    ConfigError::sentence("", problem).when(names.iter().any(|name| name.is_empty()))?;
    let last = names.pop().expect("a split has at least one part");
    let mut place = table;
    for (depth, name) in names.iter().enumerate() {
        let inner = place.entry(*name).or_insert_with(|| Value::Table(Table::new()));
        if !inner.is_table() {
            let outer = names[..=depth].join(".");
            let problem = format!("{outer} is {inner} and has no keys inside");
            let inside = names[depth + 1..].iter().chain([&last]).copied().collect::<Vec<_>>();
            let hint = format!("{outer}={{ {} = {value} }} replaces it", inside.join("."));
            return Err(ConfigError::sentence(key, problem).with_hint(hint));
        }
        place = inner.as_table_mut().expect("anything else was refused");
    }
    place.insert(last.to_owned(), value);
    Ok(())
}

/// What the environment says of a name.
type LookUp<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces `${NAME}` by the environment's value in every text of a table.
pub fn expand(table: &mut Table) -> Result<(), ConfigError> {
    expand_with(table, &|name| std::env::var(name).ok())
}

fn expand_with(table: &mut Table, look_up: LookUp<'_>) -> Result<(), ConfigError> {
    for (key, value) in table.iter_mut() {
        expand_value(value, look_up).map_err(|refusal| refusal.inside(key))?;
    }
    Ok(())
}

fn expand_value(value: &mut Value, look_up: LookUp<'_>) -> Result<(), ConfigError> {
    match value {
        Value::String(text) => *text = expanded(text, look_up)?,
        Value::Array(items) => {
            items.iter_mut().try_for_each(|item| expand_value(item, look_up))?;
        }
        Value::Table(table) => expand_with(table, look_up)?,
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {}
    }
    Ok(())
}

fn expanded(text: &str, look_up: LookUp<'_>) -> Result<String, ConfigError> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, tail)) = after.split_once('}') else {
            return Err(ConfigError::new("", format!("{text:?}"), "a } after ${"));
        };
        let Some(value) = look_up(name) else {
            let hint = format!("export {name}=DIR, or give the key another value");
            let expected = format!("the environment variable {name} to be set");
            return Err(ConfigError::new("", format!("{text:?}"), expected).with_hint(hint));
        };
        out.push_str(before);
        out.push_str(&value);
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

/// Spells out the method, all methods beneath it, and which noise it is.
pub fn spell_out(table: &mut Table) {
    let mut place = table.get_mut("method");
    while let Some(value) = place {
        if let Value::String(name) = value {
            let named = Table::from_iter([("name".to_owned(), Value::String(name.clone()))]);
            *value = Value::Table(named);
        }
        place = value.as_table_mut().and_then(|method| method.get_mut("base"));
    }
    let split = table.get_mut("split").and_then(Value::as_table_mut);
    let noise = split.and_then(|split| split.get_mut("noise")).and_then(Value::as_table_mut);
    if let Some(noise) = noise {
        noise.entry("kind").or_insert_with(|| "relative".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_value_is_toml_where_it_can_be_and_text_where_not() {
        let mut table = Table::new();
        for assignment in ["a.b=3", "a.c=1e-3", "name=my run", "a.d={ uniform = 4 }", "e=x = y"] {
            set(&mut table, assignment).unwrap();
        }
        let expected = "name = 'my run'\ne = 'x = y'\n[a]\nb = 3\nc = 1e-3\nd = { uniform = 4 }";
        assert_eq!(table, expected.parse::<Table>().unwrap());
    }

    #[test]
    fn what_cannot_be_set_is_said_with_what_can() {
        let mut table: Table = "sample = 'all'".parse().expect("TOML");
        let mut refused = |assignment: &str| set(&mut table, assignment).unwrap_err().to_string();
        assert_eq!(
            refused("sample.uniform=9"),
            "sample.uniform: sample is \"all\" and has no keys inside\n\
             hint: sample={ uniform = 9 } replaces it"
        );
        assert_eq!(refused("rounds"), "found \"rounds\", expected KEY=VALUE");
        assert_eq!(refused("=3"), "found \"=3\", expected KEY=VALUE");
        let expected = "\"work..batch\" is no key: a name before or after a dot is missing";
        assert_eq!(refused("work..batch=3"), expected);
        assert!(refused(".a=1").contains("is no key") && refused("a.=1").contains("is no key"));
    }

    #[test]
    fn a_slip_in_a_file_is_told_with_its_key() {
        for (text, expected) in [
            ("[work]\nbatch = \nepochs = 1\n", "x: work.batch has no value"),
            ("seed =", "x: seed has no value"),
            ("[work]\nbatch = 1\nepochs = 1\nbatch = 2\n", "x: work.batch is given twice"),
            ("seed = 1\nseed = 2\n", "x: seed is given twice"),
            ("[work]\nbatch = 1\n[work]\n", "x: [work] is given twice"),
            ("[work]\nbatch = 1 2\n", "x: found TOML that cannot be read: "),
        ] {
            let refused = parse(text, "x").unwrap_err().to_string();
            assert!(refused.starts_with(expected), "{text}: {refused}");
        }
    }

    #[test]
    fn variables_are_replaced_and_a_missing_one_is_named() {
        let look_up = |name: &str| (name == "DATA").then(|| "/d".to_owned());
        assert_eq!(expanded("${DATA}/x/${DATA}", &look_up).unwrap(), "/d/x//d");
        let refusal = expanded("${OTHER}/x", &look_up).unwrap_err().inside("path");
        assert!(refusal.to_string().starts_with("path: found \"${OTHER}/x\""), "{refusal}");
        assert!(expanded("${DATA", &look_up).is_err());
    }
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
        check("split.noise = { gamma = 0.1 }", "split.noise = { gamma = 0.1, kind = 'relative' }");
    }
}
