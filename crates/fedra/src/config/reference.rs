//! `docs/experiment.md`, held to the code: the keys it lists are the keys there are, and a default
//! that it spells in TOML is the one that a file without the key gets.

use std::collections::{BTreeMap, BTreeSet};

use fedra_engine::methods::Method;
use toml::{Table, Value};

use super::catalogue::{TAGGED, keys, method_keys, tagged_keys};
use super::{RawConfig, reading};

const PAGE: &str = include_str!("../../../../docs/experiment.md");

/// A row of the page.
struct Row {
    /// The table it stands in, without a dot at its end; empty for the file itself.
    table: String,
    /// The keys in its first cell.
    keys: Vec<String>,
    /// What the column `of` says, where there is one.
    of: Option<String>,
    /// The default, as written.
    default: String,
}

/// Every row of every table of keys, and the names of those tables.
fn page() -> (Vec<Row>, BTreeSet<String>) {
    let (mut rows, mut tables) = (Vec::new(), BTreeSet::new());
    let (mut table, mut columns) = (String::new(), Vec::new());
    for line in PAGE.lines() {
        if let Some(heading) = line.strip_prefix('#') {
            let named = heading.split('`').nth(1).unwrap_or_default();
            table = named.trim_matches(['[', ']']).to_owned();
            tables.insert(table.clone());
            continue;
        }
        let Some(cells) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else {
            continue;
        };
        let cells: Vec<&str> = cells.split(" | ").collect();
        if cells[0] == "key" {
            columns = cells.iter().map(|&name| name.to_owned()).collect();
        } else if !cells[0].starts_with("---") {
            let cell = |name: &str| {
                columns.iter().position(|column| column == name).map(|at| cells[at].to_owned())
            };
            let keys = cells[0].split('`').skip(1).step_by(2).map(str::to_owned).collect();
            let default = cell("default").expect("every table has the column");
            rows.push(Row { table: table.clone(), keys, of: cell("of"), default });
        }
    }
    tables.remove("");
    (rows, tables)
}

fn whole(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

#[test]
fn every_key_is_on_the_page_and_every_key_of_the_page_is_known() {
    let (rows, tables) = page();
    let mut listed = tables;
    let is_tagged = |table: &str| table == "method" || TAGGED.iter().any(|it| it.0 == table);
    for row in rows.iter().filter(|row| !is_tagged(&row.table)) {
        listed.extend(row.keys.iter().map(|key| whole(&row.table, key)));
    }
    // Found by its alias as well as by its name.
    listed.remove("data.columns.labels");
    let mut known: BTreeSet<String> = keys::<RawConfig>().into_iter().collect();
    known.remove("data.columns.labels");
    // Its row spells them.
    known.retain(|key| !key.starts_with("federation.max_norm."));
    let missing: Vec<_> = known.difference(&listed).collect();
    let strange: Vec<_> = listed.difference(&known).collect();
    assert!(missing.is_empty() && strange.is_empty(), "missing {missing:?}, strange {strange:?}");
}

/// The keys of a table with a column `of`, by what that column names.
fn by_owner(table: &str, all: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut owners: BTreeMap<String, BTreeSet<String>> =
        all.iter().map(|name| ((*name).to_owned(), BTreeSet::new())).collect();
    let (rows, _) = page();
    for row in rows.iter().filter(|row| row.table == table) {
        let of = row.of.as_deref().expect("the table has the column");
        let named: Vec<&str> = if of == "all" { all.to_vec() } else { of.split(", ").collect() };
        for name in named {
            let keys = owners.get_mut(name).unwrap_or_else(|| panic!("{name} is none of {all:?}"));
            keys.extend(row.keys.iter().cloned());
        }
    }
    owners
}

#[test]
fn every_setting_of_a_method_is_on_the_page() {
    for (method, listed) in by_owner("method", &Method::NAMES) {
        let mut known: BTreeSet<String> = method_keys(&method).into_iter().collect();
        known.insert("name".to_owned());
        assert_eq!(listed, known, "{method}");
    }
}

#[test]
fn every_setting_of_a_tagged_table_is_on_the_page() {
    for (table, tag, words) in TAGGED {
        for (word, listed) in by_owner(table, &words) {
            let known = tagged_keys::<RawConfig>(table, tag, &word).into_iter().chain([tag]);
            let known: BTreeSet<String> = known.map(str::to_owned).collect();
            assert_eq!(listed, known, "{table} {word}");
        }
    }
}

#[test]
fn defaults_that_the_page_spells_are_those_of_the_code() {
    let raw = Table::try_from(RawConfig::default()).expect("it can be written");
    let mut compared = 0;
    let mut compare = |row: &Row, key: &str, held: &Table| {
        let spelt = row.default.trim_matches('`');
        let Ok(spelt) = format!("x = {spelt}").parse::<Table>() else { return };
        let found = key.split('.').try_fold(None, |at: Option<&Value>, name| {
            at.map_or(held.get(name), |at| at.get(name)).map(Some)
        });
        if let Some(Some(found)) = found {
            let (found, spelt) = (number(found), number(&spelt["x"]));
            assert_eq!(found, spelt, "{}.{key}", row.table);
            compared += 1;
        }
    };
    for row in &page().0 {
        let [key] = row.keys.as_slice() else { continue };
        match &row.of {
            Some(of) if row.table == "method" && of != "all" => {
                for name in of.split(", ") {
                    let method = Method::by_name(name, reading::spelt(Table::new()));
                    let method = Table::try_from(method.expect("a method")).expect("TOML");
                    compare(row, key, &method);
                }
            }
            Some(_) | None => compare(row, &whole(&row.table, key), &raw),
        }
    }
    assert!(compared > 35, "only {compared} defaults were compared");
}

/// A value whose numbers are as precise as an f32, which is what most settings are.
fn number(value: &Value) -> String {
    match value {
        Value::Float(float) => (*float as f32).to_string(),
        Value::Integer(integer) => (*integer as f32).to_string(),
        other @ (Value::String(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_)) => other.to_string(),
    }
}
