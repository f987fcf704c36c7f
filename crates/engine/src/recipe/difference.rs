//! In which setting two recipes differ, named as an experiment file names it.
//!
//! Recipes are compared as the JSON that a checkpoint holds, so a recipe of which only the text is
//! left can be compared too. Only the first difference is told: a person mends one key at a time.

use serde_json::Value;

/// A setting and its two values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Its key in an experiment file.
    pub(crate) key: String,
    /// On the one side, as JSON.
    pub(crate) left: String,
    /// On the other.
    pub(crate) right: String,
}

/// The first setting in which two recipes differ; the method's name goes before what follows from it.
pub(crate) fn between(left: &Value, right: &Value) -> Option<Difference> {
    let named = |recipe: &Value| recipe.get("method").cloned().unwrap_or_default();
    let name = walk(&named(left), &named(right), &mut vec!["method".to_owned()]);
    name.or_else(|| walk(left, right, &mut Vec::new()))
}

fn walk(left: &Value, right: &Value, path: &mut Vec<String>) -> Option<Difference> {
    if left == right {
        return None;
    }
    if let (Value::Object(one), Value::Object(other)) = (left, right) {
        // A whole table that only one side has comes before what is in both.
        let lone = one.keys().chain(other.keys()).find(|key| {
            let (here, there) = (one.get(*key), other.get(*key));
            here.is_some() != there.is_some() && here.or(there).is_some_and(Value::is_object)
        });
        if let Some(key) = lone {
            path.push(key.clone());
            let told = |side: Option<&Value>| if side.is_some() { "a table" } else { "none" };
            let [left, right] = [one, other].map(|side| told(side.get(key)).to_owned());
            let key = key_of(path);
            path.pop();
            return Some(Difference { key, left, right });
        }
        if one.keys().eq(other.keys()) {
            for (key, value) in one {
                path.push(key.clone());
                let found = walk(value, &other[key], path);
                path.pop();
                if found.is_some() {
                    return found;
                }
            }
        }
    }
    Some(Difference { key: key_of(path), left: left.to_string(), right: right.to_string() })
}

/// The key of an experiment file that stands behind a place in a recipe.
fn key_of(path: &[String]) -> String {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let (table, rest): (&str, &[&str]) = match path.as_slice() {
        ["method"] => ("method.name", &[]),
        ["sampler", rest @ ..] => ("federation.sample", rest),
        ["start" | "depths" | "ranks" | "min_arrivals" | "max_norm" | "retries", ..] => {
            ("federation", &path)
        }
        ["conditions", rest @ ..] => ("conditions", rest),
        ["privacy", "guarantee", "budget"] => ("privacy.epsilon", &[]),
        ["privacy", "guarantee", rest @ ..] | ["privacy", rest @ ..] => ("privacy", rest),
        ["work", "encoding" | "download", ..] => ("wire", &path[1..]),
        ["work", "local" | "damped" | "head_probe", ..] => ("method: its", &path[1..]),
        // A schedule of the rate spans all rounds, so it knows how many there are.
        ["work", "schedule", "rounds"] => ("federation.rounds", &[]),
        ["work", ..] => ("", &path),
        ["evaluation", "on", ..] => ("evaluate.best", &[]),
        ["evaluation", rest @ ..] => ("evaluate", rest),
        // What learns and how answers are put together is the method's choice, or its base's.
        rest => ("method: its", rest),
    };
    let place = rest.join(".");
    match (table, place.as_str()) {
        ("", place) => place.to_owned(),
        (table, "") => table.to_owned(),
        (table, place) if table.contains(' ') => format!("{table} {place}"),
        (table, place) => format!("{table}.{place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cohort::sampler::Sampler;
    use crate::methods::Method;
    use crate::recipe::Recipe;
    use crate::work::{OptimiserConfig, Work};

    fn recipe() -> Recipe {
        Recipe::new(Work::new(OptimiserConfig::Sgd { rate: 0.1, weight_decay: 0.0 }))
    }

    #[track_caller]
    fn check(other: &Recipe, expected: [&str; 3]) {
        let json = |recipe: &Recipe| serde_json::to_value(recipe).expect("JSON");
        let found = between(&json(&recipe()), &json(other)).expect("they differ");
        assert_eq!([found.key, found.left, found.right], expected);
    }

    #[test]
    fn a_difference_has_the_name_of_its_key() {
        let mut other = recipe();
        other.work.batch = 3;
        check(&other, ["work.batch", &recipe().work.batch.to_string(), "3"]);
        let mut other = recipe();
        other.sampler = Sampler::Uniform(4);
        check(&other, ["federation.sample", "\"all\"", "{\"uniform\":4}"]);
        let mut other = recipe();
        other.evaluation.every = 5;
        check(&other, ["evaluate.every", "1", "5"]);
        let lone = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        let private = lone(r#"{ "method": "fedavg", "privacy": { "clip": 1.0 }, "rate": 1 }"#);
        let open = lone(r#"{ "method": "fedavg", "rate": 2 }"#);
        let found = between(&private, &open).expect("they differ");
        assert_eq!([found.key, found.left, found.right], ["privacy", "a table", "none"]);
        let within = |epsilon| {
            let guarantee = serde_json::json!({ "budget": epsilon, "delta": 1e-5 });
            serde_json::json!({ "privacy": { "guarantee": guarantee, "noise": 8.0 / epsilon } })
        };
        let found = between(&within(4.0), &within(8.0)).expect("they differ");
        assert_eq!([found.key, found.left, found.right], ["privacy.epsilon", "4.0", "8.0"]);
        let settings: Value = serde_json::from_str(r#"{ "mu": 0.5 }"#).expect("JSON");
        let prox = Method::by_name("fedprox", settings).expect("a method").recipe(recipe());
        check(&prox, ["method.name", "\"fedavg\"", "\"fedprox\""]);
        let mut other = recipe();
        other.work.solver = OptimiserConfig::Sgd { rate: 0.2, weight_decay: 0.0 };
        let json = |recipe: &Recipe| serde_json::to_value(recipe).expect("JSON");
        let found = between(&json(&recipe()), &json(&other)).expect("they differ");
        assert!(found.key.starts_with("work.optimiser"), "{found:?}");
        assert_eq!(between(&json(&recipe()), &json(&recipe())), None);
    }
}
