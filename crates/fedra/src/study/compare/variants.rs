//! Variants: every experiment that is compared, its name, and what it is held against.
//!
//! A variant is a place in a grid of axes: the file, the named variant, and each swept key. Its
//! baseline is the variant at the baseline's place on one axis and its own place on all others, so
//! that a sweep over data compares methods on the same data.

use std::collections::BTreeSet;
use std::path::PathBuf;

use toml::Value;

use super::written::{self, Axis};
use crate::config::{ConfigError, NamedVariant};
use crate::error::Result;

/// A key and its value.
pub type Assignment = (String, Value);

/// One experiment of a comparison, for any seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Its name, which is also its folder's.
    pub name: String,
    /// The file it starts from.
    pub file: PathBuf,
    /// What it puts over the file.
    pub assigned: Vec<Assignment>,
    /// Its place on each axis, in words.
    pub labels: Vec<String>,
    /// The keys that are tuned for it.
    pub tuned: Vec<Axis>,
}

/// One file with all that is to be varied in it.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The file.
    pub file: PathBuf,
    /// The name of its experiment.
    pub name: String,
    /// Its named variants.
    pub variants: Vec<NamedVariant>,
    /// Its swept keys.
    pub sweep: Vec<Axis>,
    /// Its tuned keys.
    pub tune: Vec<Axis>,
}

/// All variants: files in order, named variants in order, then the swept keys, the last fastest.
pub fn expand(subjects: &[Subject]) -> Result<Vec<Variant>> {
    let mut all = Vec::new();
    for subject in subjects {
        let unnamed = [NamedVariant::default()];
        let named = if subject.variants.is_empty() { &unnamed[..] } else { &subject.variants };
        for variant in named {
            let mut tuned = subject.tune.clone();
            for axis in written::axes(&variant.tune, "compare.variants.tune")? {
                tuned.retain(|other| other.key != axis.key);
                tuned.push(axis);
            }
            let set: Vec<Assignment> = variant.set.clone().into_iter().collect();
            for point in combinations(&subject.sweep) {
                let swept: Vec<String> = point.iter().map(|one| label(one, &point)).collect();
                let file = if subjects.len() > 1 { &subject.name } else { "" };
                let labels: Vec<String> =
                    [file.to_owned(), variant.name.clone()].into_iter().chain(swept).collect();
                let spoken = labels.iter().filter(|label| !label.is_empty()).cloned();
                let name = folder_name(&spoken.collect::<Vec<_>>().join(" "));
                all.push(Variant {
                    name: if name.is_empty() { folder_name(&subject.name) } else { name },
                    file: subject.file.clone(),
                    assigned: [set.clone(), point].concat(),
                    labels,
                    tuned: tuned.clone(),
                });
            }
        }
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = all.iter().find(|variant| !names.insert(variant.name.clone())) {
        let found = format!("two variants {:?}", twice.name);
        return Err(ConfigError::new("compare", found, "every name once").into());
    }
    Ok(all)
}

/// Every choice of one value an axis; without axes, the one choice of nothing.
pub fn combinations(axes: &[Axis]) -> Vec<Vec<Assignment>> {
    let mut points = vec![Vec::new()];
    for axis in axes {
        let longer = |point: &Vec<Assignment>| -> Vec<Vec<Assignment>> {
            let with = |value: &Value| [point.clone(), vec![(axis.key.clone(), value.clone())]];
            axis.values.iter().map(|value| with(value).concat()).collect()
        };
        points = points.iter().flat_map(longer).collect();
    }
    points
}

/// `k=2`; the whole key where its last part alone would name two of them.
pub fn label((key, value): &Assignment, among: &[Assignment]) -> String {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let alike = among.iter().filter(|(other, _)| last(other) == last(key)).count();
    let key = if alike > 1 { key.clone() } else { last(key) };
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    // A method's name says what it is.
    if key == "name" { value } else { format!("{key}={value}") }
}

/// A name that is a folder on every system.
pub fn folder_name(text: &str) -> String {
    let legal = |c: char| c.is_alphanumeric() || "-_.=+".contains(c);
    let mapped: String = text.chars().map(|c| if legal(c) { c } else { '_' }).collect();
    mapped.trim_start_matches('.').to_owned()
}

/// For each variant the place of the one it is held against; `None` for a baseline itself and for
/// a variant that has none beside it.
pub fn baselines(
    variants: &[Variant],
    wanted: Option<&str>,
) -> Result<Vec<Option<usize>>, ConfigError> {
    let at = |name: &str| variants.iter().position(|variant| variant.name == name);
    let everywhere = |place: usize| -> Vec<Option<usize>> {
        (0..variants.len()).map(|own| (own != place).then_some(place)).collect()
    };
    let axes = variants.iter().map(|variant| variant.labels.len()).max().unwrap_or(0);
    let labels = |axis: usize| variants.iter().filter_map(move |v| v.labels.get(axis));
    let (axis, label) = if let Some(name) = wanted {
        if let Some(place) = at(name) {
            return Ok(everywhere(place));
        }
        let Some(axis) = (0..axes).find(|axis| labels(*axis).any(|label| label == name)) else {
            let names: Vec<&str> = variants.iter().map(|v| v.name.as_str()).collect();
            let expected = format!("one of {}", names.join(", "));
            return Err(ConfigError::new("compare.baseline", format!("{name:?}"), expected));
        };
        (axis, name.to_owned())
    } else {
        // The first file or the first named variant, where there are several.
        let several = |axis: &usize| labels(*axis).collect::<BTreeSet<_>>().len() > 1;
        match (0..axes.min(2)).find(several) {
            Some(axis) => (axis, labels(axis).next().cloned().unwrap_or_default()),
            None => return Ok(everywhere(0)),
        }
    };
    let beside = |variant: &Variant| {
        let mut place = variant.labels.clone();
        place.get_mut(axis)?.clone_from(&label);
        let found = variants.iter().position(|other| other.labels == place)?;
        (variants[found].name != variant.name).then_some(found)
    };
    Ok(variants.iter().map(beside).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(variants: &[&str], sweep: &[&str]) -> Subject {
        let named = |name: &&str| NamedVariant {
            name: (*name).to_owned(),
            set: format!("'method.name' = '{name}'").parse().expect("TOML"),
            tune: toml::Table::new(),
        };
        Subject {
            file: "x.toml".into(),
            name: "x".to_owned(),
            variants: variants.iter().map(named).collect(),
            sweep: sweep.iter().map(|axis| written::axis(axis, "sweep").expect("legal")).collect(),
            tune: Vec::new(),
        }
    }

    fn names(variants: &[Variant]) -> Vec<&str> {
        variants.iter().map(|variant| variant.name.as_str()).collect()
    }

    #[test]
    fn the_last_swept_key_varies_fastest() {
        let all = expand(&[subject(&[], &["method.k=2,1", "work.epochs=1,3"])]).expect("legal");
        assert_eq!(names(&all), ["k=2_epochs=1", "k=2_epochs=3", "k=1_epochs=1", "k=1_epochs=3"]);
        let keys: Vec<&str> = all[0].assigned.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["method.k", "work.epochs"]);
    }

    #[test]
    fn a_key_is_named_in_full_where_its_end_is_not_enough() {
        let all = expand(&[subject(&[], &["a.rate=1", "b.rate=2"])]).expect("legal");
        assert_eq!(names(&all), ["a.rate=1_b.rate=2"]);
    }

    #[test]
    fn named_variants_come_before_swept_keys_and_nothing_varied_is_the_file() {
        let all = expand(&[subject(&["b", "a"], &["k=1,2"])]).expect("legal");
        assert_eq!(names(&all), ["b_k=1", "b_k=2", "a_k=1", "a_k=2"]);
        assert_eq!(names(&expand(&[subject(&[], &[])]).expect("legal")), ["x"]);
        assert!(expand(&[subject(&["a", "a"], &[])]).is_err());
    }

    #[test]
    fn a_variant_may_be_tuned_in_a_grid_of_its_own() {
        let mut subject = subject(&["avg", "adam"], &[]);
        let axis = |text: &str| written::axis(text, "tune").expect("legal");
        subject.tune = vec![axis("work.rate=1,2"), axis("work.batch=4,8")];
        subject.variants[1].tune =
            "'work.rate' = [3, 4]\n'method.rate' = [5, 6]".parse().expect("TOML");
        let all = expand(&[subject.clone()]).expect("legal");
        assert_eq!(all[0].tuned, subject.tune);
        let own = ["work.batch=4,8", "method.rate=5,6", "work.rate=3,4"].map(axis);
        assert_eq!(all[1].tuned, own);
    }

    #[test]
    fn a_baseline_is_found_at_the_same_place_of_the_sweep() {
        let all = expand(&[subject(&["avg", "prox"], &["alpha=0.1,1.0"])]).expect("legal");
        let expected = [None, None, Some(0), Some(1)];
        assert_eq!(baselines(&all, None).expect("legal"), expected);
        assert_eq!(baselines(&all, Some("avg")).expect("legal"), expected);
        let by_alpha = [Some(1), None, Some(3), None];
        assert_eq!(baselines(&all, Some("alpha=1.0")).expect("legal"), by_alpha);
        let by_name = [Some(3), Some(3), Some(3), None];
        assert_eq!(baselines(&all, Some("prox_alpha=1.0")).expect("legal"), by_name);
        assert!(baselines(&all, Some("pro")).is_err());
    }
}
