//! What templates use of Python: methods of strings, and values as Python writes them.
//!
//! Most of it is `minijinja-contrib`'s. What differs stands here: Python's blanks, and whatever could
//! make a large text of a small one, which is bounded.

use minijinja::value::{Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Most bytes of a text that a template makes at once.
pub(super) const MOST_BYTES: usize = 16 << 20;

/// A method of a string, a list or a mapping.
pub(super) fn method(
    state: &mut State,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return unknown_method_callback(state, value, name, args);
    };
    let words: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
    match (name, words.as_slice()) {
        ("strip", []) => Ok(text.trim_matches(is_space).into()),
        ("lstrip", []) => Ok(text.trim_start_matches(is_space).into()),
        ("rstrip", []) => Ok(text.trim_end_matches(is_space).into()),
        ("removeprefix", [start]) => Ok(text.strip_prefix(start).unwrap_or(text).into()),
        ("removesuffix", [end]) => Ok(text.strip_suffix(end).unwrap_or(text).into()),
        ("replace", [old, new]) => {
            replaceable(text, (old, new))?;
            unknown_method_callback(state, value, name, args)
        }
        ("join", _) => args.first().map_or(Ok(Value::from("")), |list| join(list, text)),
        ("format", _) => Err(refused("format")),
        (_, _) => unknown_method_callback(state, value, name, args),
    }
}

/// `s | trim`
pub(super) fn trim(value: &Value, chars: Option<String>) -> String {
    let text = value.to_string();
    match chars {
        None => text.trim_matches(is_space).to_owned(),
        Some(chars) => text.trim_matches(|letter| chars.contains(letter)).to_owned(),
    }
}

/// `s | replace(old, new)`
pub(super) fn replace(text: &str, old: &str, new: &str) -> Result<String, Error> {
    replaceable(text, (old, new))?;
    Ok(text.replace(old, new))
}

/// `list | join(between)`
pub(super) fn join_filter(list: &Value, between: Option<String>) -> Result<Value, Error> {
    join(list, &between.unwrap_or_default())
}

/// `x | format`, `x | indent` and whatever else may grow without a bound.
pub(super) fn unbounded(name: &'static str) -> impl Fn(Rest<Value>) -> Result<Value, Error> {
    move |_| Err(refused(name))
}

fn refused(name: &str) -> Error {
    let found = format!("{name:?}, which may write texts of any length, and is not run here");
    Error::new(ErrorKind::InvalidOperation, found)
}

fn join(list: &Value, between: &str) -> Result<Value, Error> {
    let mut joined = String::new();
    for (place, item) in list.try_iter()?.enumerate() {
        if place > 0 {
            joined.push_str(between);
        }
        joined.push_str(&plain(&item));
        bounded(joined.len())?;
    }
    Ok(joined.into())
}

fn replaceable(text: &str, (old, new): (&str, &str)) -> Result<(), Error> {
    bounded(text.matches(old).count().saturating_mul(new.len()).saturating_add(text.len()))
}

/// Refuses a text of so many bytes if they are too many.
pub(super) fn bounded(bytes: usize) -> Result<(), Error> {
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let found = format!("a text of more than {} MiB", MOST_BYTES >> 20);
    Err(Error::new(ErrorKind::InvalidOperation, found))
}

/// Python's blanks: Unicode's, and four separators that Unicode no longer counts.
fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// A value as Python's `str` writes it.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others are written alike")]
pub(super) fn plain(value: &Value) -> String {
    match value.kind() {
        ValueKind::None => "None".to_owned(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.to_owned(),
        _ => value.to_string(),
    }
}

/// `x | tojson`, as `json.dumps` writes it with `ensure_ascii=False`.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others are written alike")]
pub(super) fn json(value: &Value, (indent, level): (Option<usize>, usize)) -> String {
    let inside = |count: usize, items: Vec<String>, (open, close): (char, char)| match indent {
        _ if count == 0 => format!("{open}{close}"),
        None => format!("{open}{}{close}", items.join(", ")),
        Some(width) => {
            let line = |level: usize| format!("\n{}", " ".repeat(width.min(16) * level));
            let between = format!(",{}", line(level + 1));
            format!("{open}{}{}{}{close}", line(level + 1), items.join(&between), line(level))
        }
    };
    let below = (indent, level + 1);
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => "null".to_owned(),
        ValueKind::String => serde_json::Value::from(value.as_str()).to_string(),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter().into_iter().flatten();
            let items: Vec<String> = items.map(|item| json(&item, below)).collect();
            inside(items.len(), items, ('[', ']'))
        }
        ValueKind::Map => {
            let entry = |key: Value| {
                let item = value.get_item(&key).unwrap_or_default();
                format!("{}: {}", serde_json::Value::from(key.to_string()), json(&item, below))
            };
            let items: Vec<String> = value.try_iter().into_iter().flatten().map(entry).collect();
            inside(items.len(), items, ('{', '}'))
        }
        _ => value.to_string(),
    }
}
