//! Every key that an experiment file may have, found out from the types that read it.
//!
//! Whoever refuses an unknown key says which ones it knows. So each table is asked for a key that none
//! has, and the answer is written down: a list that no one has to keep. A method's settings are asked
//! for by the method's name, those of other tagged tables ([`TAGGED`]) by their tag.

use fedra_engine::methods::Method;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::reading;
use crate::error::config_error::{ConfigError, Problem, nearest};

/// Tables whose other keys depend on one of them, and the words that this one takes.
pub const TAGGED: [(&str, &str, [&str; 3]); 2] = [
    ("work.optimiser", "name", ["adamw", "momentum", "sgd"]),
    ("split.noise", "kind", ["relative", "clipped", "absolute"]),
];

/// Adds to an error about an unknown key where that key, or one like it, is known.
pub fn advise<T: DeserializeOwned>(mut refusal: ConfigError) -> ConfigError {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let name = last(&refusal.key);
    if refusal.near_mut().is_some_and(|near| near.is_empty()) {
        for (table, tag, words) in TAGGED {
            let knows = |word: &&str| tagged_keys::<T>(table, tag, word).contains(&name.as_str());
            let owners: Vec<&str> = words.into_iter().filter(knows).collect();
            if refusal.key == format!("{table}.{name}") && !owners.is_empty() {
                let owners = owners.join(", ");
                return refusal.with_hint(format!("{name} is a setting of the {tag} {owners}"));
            }
        }
    }
    let Some(near) = refusal.near_mut() else { return refusal };
    let known = keys::<T>();
    let called = |name: &str| known.iter().filter(|key| last(key) == name).cloned().collect();
    let mut elsewhere: Vec<String> = called(&name);
    if elsewhere.is_empty() && near.is_empty() {
        let names: Vec<String> = known.iter().map(|key| last(key)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        elsewhere = nearest(&name, &names).map(called).unwrap_or_default();
    }
    near.extend(elsewhere);
    refusal
}

/// Adds to an error about a method's unknown setting whose setting it is.
pub fn advise_method(mut refusal: ConfigError) -> ConfigError {
    if refusal.near_mut().is_none_or(|near| !near.is_empty()) {
        return refusal;
    }
    let Some(key) = refusal.key.strip_prefix("method.").map(str::to_owned) else {
        return refusal;
    };
    let knows = |method: &&str| method_keys(method).contains(&key);
    let owners: Vec<&str> = Method::NAMES.into_iter().filter(knows).collect();
    if owners.is_empty() {
        return refusal;
    }
    refusal.with_hint(format!("{key} is a setting of {}", owners.join(", ")))
}

/// Every key of a type with its tables, as `work.batch`, in the order of the type.
pub fn keys<T: DeserializeOwned>() -> Vec<String> {
    let mut all = Vec::new();
    explore(&|table| reading::read::<T>(table).err(), &mut Vec::new(), &mut all);
    all
}

/// Every setting of a method.
pub fn method_keys(name: &str) -> Vec<String> {
    let mut all = Vec::new();
    let read = |table| Method::read(name, reading::spelt(table))?.err();
    explore(&read, &mut Vec::new(), &mut all);
    all
}

/// Every setting beside this word in a tagged table.
pub fn tagged_keys<T: DeserializeOwned>(path: &str, tag: &str, word: &str) -> Vec<&'static str> {
    let tag = (tag.to_owned(), Value::from(word));
    let stranger = Table::from_iter([tag, (reading::STRANGER.to_owned(), Value::from(1))]);
    let path: Vec<&str> = path.split('.').collect();
    let refused = reading::read::<T>(nested(&path, stranger.into())).err();
    refused.as_ref().and_then(known_there).unwrap_or_default().to_vec()
}

/// Writes down the keys of the table at a path, which may be one of a list, and of the tables in it.
fn explore(
    refused: &dyn Fn(Table) -> Option<ConfigError>,
    path: &mut Vec<&'static str>,
    all: &mut Vec<String>,
) {
    let stranger = Table::from_iter([(reading::STRANGER.to_owned(), Value::from(1))]);
    let in_list = Value::from(vec![stranger.clone()]);
    let known = [stranger.into(), in_list]
        .into_iter()
        .find_map(|stranger| known_there(&refused(nested(path, stranger))?));
    for field in known.into_iter().flatten() {
        path.push(field);
        all.push(path.join("."));
        explore(refused, path, all);
        path.pop();
    }
}

/// A table with this value behind a path.
fn nested(path: &[&str], value: Value) -> Table {
    let wrap = |inner, name: &&str| Table::from_iter([((*name).to_owned(), inner)]).into();
    let whole = path.iter().rev().fold(value, wrap);
    whole.as_table().cloned().unwrap_or_default()
}

fn known_there(refusal: &ConfigError) -> Option<&'static [&'static str]> {
    if let Problem::Unknown { known, .. } = &*refusal.problem { Some(known) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::raw_config::RawConfig;
    use serde::de::Error;

    #[test]
    fn keys_are_known_through_tables_and_options() {
        let keys = keys::<RawConfig>();
        for key in ["seed", "federation.rounds", "data.clinic.notes", "conditions.slow.share"] {
            assert!(keys.iter().any(|known| known == key), "{key} in {keys:?}");
        }
    }

    #[test]
    fn the_settings_of_methods_and_the_items_of_lists_are_known_too() {
        assert_eq!(method_keys("fedadam"), ["rate", "beta1", "beta2", "tau"]);
        assert_eq!(method_keys("fednova"), Vec::<String>::new());
        assert!(method_keys("safl").iter().any(|key| key == "profile_every"));
        assert!(keys::<RawConfig>().iter().any(|key| key == "compare.variants.tune"));
    }

    #[test]
    fn a_key_in_the_wrong_table_finds_its_own() {
        let advised = |key: &str, known| {
            advise::<RawConfig>(ConfigError::unknown_field(key, known))
                .near_mut()
                .unwrap()
                .join(" or ")
        };
        assert_eq!(advised("rounds", &["seed"]), "federation.rounds");
        assert_eq!(advised("ronuds", &["seed"]), "federation.rounds");
        assert_eq!(advised("seeds", &["seed"]), "seed or compare.seeds");
        assert_eq!(advised("epsilons", &["seed"]), "privacy.epsilon");
        assert_eq!(advised("quaternion", &["seed"]), "");
    }
}
