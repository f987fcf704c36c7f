//! Jinja as Hugging Face's templates are written in it, within bounds.
//!
//! `transformers` runs them in Jinja 2 with `trim_blocks` and `lstrip_blocks`, loop controls,
//! `raise_exception`, `strftime_now`, a `tojson` that escapes nothing, and blocks
//! `{% generation %}` around what the assistant says. Here the crate `minijinja` runs them with the same.
//!
//! | bound | |
//! | --- | --- |
//! | files | none: one template, no `include`, no `import` |
//! | instructions | two million for a conversation |
//! | nesting | the crate's 500 frames |
//! | text written | 16 MiB, and as much for a text that one call makes |
//! | the date | one day of the past: what a run computes must repeat |
//!
//! Texts that a template joins again and again before it writes them are bounded by instructions alone.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};

use super::guard::{CLOSE, OPEN};
use super::python;

/// Instructions that a template may take for one conversation; known ones take under a hundred a message.
const FUEL: u64 = 2_000_000;
/// The filter that marks what stands in a block `{% generation %}`.
const MARK: &str = "fedra_marks_generation";
/// The name of the one template.
pub(super) const NAME: &str = "chat_template";

/// What a template has around it.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the usual delimiters"));
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(python::method);
    environment.set_formatter(write);
    environment.add_filter("tojson", tojson);
    environment.add_filter("trim", python::trim);
    environment.add_filter("replace", python::replace);
    environment.add_filter("join", python::join_filter);
    for name in ["format", "indent", "pprint", "batch", "slice"] {
        environment.add_filter(name, python::unbounded(name));
    }
    environment.add_filter(MARK, |text: &str| format!("{OPEN}{text}{CLOSE}"));
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", date);
    environment
}

/// The template with its blocks `{% generation %}` as the filter that marks them; whether there are any.
pub(super) fn with_marks(source: &str) -> (String, bool) {
    let (mut out, mut rest, mut any) = (String::with_capacity(source.len()), source, false);
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let inside = tag.trim_start_matches(['-', '+']).trim_start();
        let start = tag.len() - inside.len();
        let word = inside.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        let instead = match word {
            "generation" => format!("filter {MARK}"),
            "endgeneration" => "endfilter".to_owned(),
            _ => {
                rest = tag;
                continue;
            }
        };
        any = true;
        out.push_str(&tag[..start]);
        out.push_str(&instead);
        rest = &tag[start + word.len()..];
    }
    out.push_str(rest);
    (out, any)
}

/// Writes a value as Python does.
fn write(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let _ = state;
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&python::plain(value)),
    };
    written.map_err(|_| Error::new(ErrorKind::WriteFailure, "cannot write a value"))
}

#[expect(clippy::needless_pass_by_value, reason = "the library calls filters with values")]
fn tojson(value: &Value, indent: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let named: Option<usize> = options.get("indent")?;
    // What else `json.dumps` takes is left at its usual values.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let json = python::json(value, (indent.or(named), 0));
    python::bounded(json.len())?;
    Ok(json)
}

/// The day that templates write: the one that LLaMA 3's have where nobody tells them the date.
pub(super) const DAY: &str = "26 July 2024";

/// A fixed moment, the first of [`DAY`], by the letters of `strftime`.
fn date(format: &str) -> Result<String, Error> {
    let (mut out, mut letters) = (String::new(), format.chars());
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        out.push_str(match letters.next() {
            Some('d') => "26",
            Some('m') => "07",
            Some('Y') => "2024",
            Some('y') => "24",
            Some('b' | 'h') => "Jul",
            Some('B') => "July",
            Some('a') => "Fri",
            Some('A') => "Friday",
            Some('j') => "208",
            Some('H' | 'M' | 'S') => "00",
            Some('I') => "12",
            Some('p') => "AM",
            Some('F') => "2024-07-26",
            Some('T') => "00:00:00",
            Some('%') => "%",
            other => {
                let found = format!("the part {other:?} of a date, which is not known here");
                return Err(Error::new(ErrorKind::InvalidOperation, found));
            }
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_generation_become_a_filter_and_nothing_else_changes() {
        let source =
            "{%- for m in messages %}{{ m }}{%- generation -%}x{% endgeneration +%}{% endfor %}";
        let (marked, any) = with_marks(source);
        assert!(any);
        let back = marked.replace(&format!("filter {MARK}"), "generation");
        assert_eq!(back.replace("endfilter", "endgeneration"), source);
        assert!(!with_marks("{% if generation %}{% endif %}").1);
    }

    #[test]
    fn a_date_is_the_same_every_day() {
        assert_eq!(date("%d %b %Y, %A 100%%").unwrap(), "26 Jul 2024, Friday 100%");
        assert!(date("%Q").is_err());
    }
}
