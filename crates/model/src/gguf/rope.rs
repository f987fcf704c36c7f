//! Scaled rotary positions of a file, as `rope_scaling` of a folder.
//!
//! Linear and YaRN scaling have keys. Llama 3's has a tensor alone, by whose elements frequencies are divided: 1 in
//! the band of short wavelengths, a constant in that of long ones, and in between
//!
//! ```text
//! 1 / element = (1 - s) / factor + s     s = (turns - low) / (high - low)     turns = original * frequency / 2 pi
//! ```
//!
//! `s` is a line over the frequency, so two elements of the middle band give `low / original` and `high / original`,
//! which is all that the frequencies depend on.

use std::f64::consts::TAU;

use serde_json::{Value, json};

use super::architecture::Architecture;
use super::reader::Reader;
use crate::config::{Rope, RopeScaling};
use crate::error::ModelError;

/// The divisors of Llama 3's frequencies.
pub(super) const DIVISORS: &str = "rope_freqs.weight";
/// The divisors of `longrope`: of short texts, and of long ones.
const FACTORS: [&str; 2] = ["rope_factors_short.weight", "rope_factors_long.weight"];
/// Elements are made in f32.
const TOLERANCE: f64 = 1e-5;
/// The bands of every published model.
const USUAL: (f64, f64, f64) = (1.0, 4.0, 8192.0);

/// Keys that would change frequencies or scores, and the values with which they do not.
const NEUTRAL: [(&str, f64); 3] =
    [("yarn_ext_factor", 1.0), ("attn_factor", 1.0), ("yarn_log_multiplier", 0.0)];

/// Whether a tensor holds no weights but the divisors of frequencies.
pub(super) fn is_of_positions(name: &str) -> bool {
    name == DIVISORS || FACTORS.contains(&name)
}

/// What `rope_scaling` says; none for plain positions.
pub(super) fn scaling(
    reader: &Reader,
    architecture: &Architecture,
    head: u64,
) -> Result<Option<Value>, ModelError> {
    let metadata = reader.metadata();
    let number = |key: &str| metadata.number(&architecture.key(key));
    if FACTORS.iter().any(|name| reader.info(name).is_some()) {
        return long_rope(reader, &number, head).map(Some);
    }
    let key = architecture.key("rope.scaling.type");
    // As the format's own tools: a factor without a type is linear.
    let kind = metadata.text(&key)?.unwrap_or("linear");
    let factor = match number("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => number("rope.scale_linear")?,
    };
    let factor = factor.filter(|factor| *factor != 0.0 && *factor != 1.0);
    let said = match (kind, factor) {
        ("none", _) | ("linear" | "yarn", None) => None,
        ("linear", Some(factor)) => Some(json!({ "rope_type": "linear", "factor": factor })),
        ("yarn", Some(factor)) => Some(yarn(&number, factor)?),
        _ => return Err(metadata.refuse(&key, "\"none\", \"linear\" or \"yarn\"")),
    };
    for (key, neutral) in NEUTRAL {
        let key = architecture.key(&format!("rope.scaling.{key}"));
        if metadata.number(&key)?.is_some_and(|found| found != neutral) {
            return Err(metadata.refuse(&key, neutral.to_string()));
        }
    }
    if reader.info(DIVISORS).is_none() {
        return Ok(said);
    }
    let refuse = |found: &str, expected: &str| {
        Err(ModelError::tensor(reader.path(), DIVISORS, found, expected))
    };
    if said.is_some() {
        return refuse("divisors of frequencies", "one kind of scaling, and the keys say another");
    }
    let theta = number("rope.freq_base")?.unwrap_or(10_000.0);
    let pairs = usize::try_from(head / 2).unwrap_or(0);
    if reader.info(DIVISORS).is_none_or(|(_, shape)| shape != [pairs]) {
        return refuse("another shape", &format!("{pairs} elements, half the width of a head"));
    }
    match bands(&reader.read_f32(DIVISORS)?, theta) {
        Some(RopeScaling::None) => Ok(None),
        Some(RopeScaling::Linear { factor }) => {
            Ok(Some(json!({ "rope_type": "linear", "factor": factor })))
        }
        Some(RopeScaling::Llama3 { factor, low, high, original }) => Ok(Some(json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": original as u64,
        }))),
        Some(RopeScaling::Dynamic { .. } | RopeScaling::Yarn { .. } | RopeScaling::LongRope(_))
        | None => refuse("divisors that no scaling of Llama 3 makes", "three bands of wavelengths"),
    }
}

/// Divisors for short texts and for long ones; the keys say how long a short one is.
fn long_rope(
    reader: &Reader,
    number: &dyn Fn(&str) -> Result<Option<f64>, ModelError>,
    head: u64,
) -> Result<Value, ModelError> {
    let pairs = usize::try_from(head / 2).unwrap_or(0);
    let mut said = json!({ "rope_type": "longrope" });
    for (name, key) in FACTORS.into_iter().zip(["short_factor", "long_factor"]) {
        let expected = format!("{pairs} elements, half the width of a head");
        let found = match reader.info(name) {
            None => "nothing",
            Some((_, shape)) if shape != [pairs] => "another shape",
            Some(_) => {
                said[key] = json!(reader.read_f32(name)?);
                continue;
            }
        };
        return Err(ModelError::tensor(reader.path(), name, found, expected));
    }
    let longest = number("context_length")?.unwrap_or(0.0);
    let original = number("rope.scaling.original_context_length")?.unwrap_or(longest);
    said["original_max_position_embeddings"] = json!(original as u64);
    // A file has it in f32: where it is the usual one, that is computed again.
    let usual = (1.0 + (longest / original).max(1.0).ln() / original.ln()).sqrt();
    let factor = number("rope.scaling.attn_factor")?.unwrap_or(1.0);
    if (factor / usual - 1.0).abs() > TOLERANCE {
        said["attention_factor"] = json!(factor);
    }
    Ok(said)
}

fn yarn(
    number: &dyn Fn(&str) -> Result<Option<f64>, ModelError>,
    factor: f64,
) -> Result<Value, ModelError> {
    let mut said = json!({ "rope_type": "yarn", "factor": factor });
    for (theirs, ours) in [
        ("original_context_length", "original_max_position_embeddings"),
        ("yarn_beta_fast", "beta_fast"),
        ("yarn_beta_slow", "beta_slow"),
        ("yarn_attn_factor", "attention_factor"),
    ] {
        if let Some(value) = number(&format!("rope.scaling.{theirs}"))? {
            said[ours] = json!(value);
        }
    }
    Ok(said)
}

/// The scaling by which the frequencies of base `theta` are divided so.
fn bands(divisors: &[f32], theta: f64) -> Option<RopeScaling> {
    let divisors: Vec<f64> = divisors.iter().map(|divisor| f64::from(*divisor)).collect();
    if !divisors.iter().all(|divisor| divisor.is_finite() && *divisor > 0.0) {
        return None;
    }
    let plain = Rope::plain(theta).frequencies(2 * divisors.len());
    let factor = divisors.iter().copied().fold(1.0, f64::max);
    let is = |divisor: f64, wanted: f64| (divisor / wanted - 1.0).abs() < TOLERANCE;
    let has_all = |wanted| divisors.iter().all(|divisor| is(*divisor, wanted));
    if has_all(1.0) {
        return Some(RopeScaling::None);
    }
    if has_all(factor) {
        return Some(RopeScaling::Linear { factor });
    }
    let share = |divisor: f64| (1.0 / divisor - 1.0 / factor) / (1.0 - 1.0 / factor);
    let middle: Vec<(f64, f64)> = (plain.iter().zip(&divisors))
        .filter(|(_, divisor)| !is(**divisor, 1.0) && !is(**divisor, factor))
        .map(|(frequency, divisor)| (*frequency, share(*divisor)))
        .collect();
    // Turns per unit of `original`, where the middle band begins and ends.
    let (low, high, original) = USUAL;
    let fitted = match middle[..] {
        [(first, above), .., (last, below)] => {
            let slope = (above - below) / (first - last);
            let begin = (first - above / slope) / TAU;
            Some((begin, begin + 1.0 / (slope * TAU)))
        }
        // One element gives one number: the bands are as wide as usual.
        [(frequency, share)] => {
            let begin = frequency / (TAU * (low + share * (high - low)));
            Some((begin * low, begin * high))
        }
        [] => {
            // The band lies between two frequencies; any text length that puts it there will do.
            let end = plain.iter().zip(&divisors).rfind(|(_, divisor)| is(**divisor, 1.0));
            end.map(|(frequency, _)| (frequency / (TAU * high) * low, frequency / TAU))
        }
    };
    let fitted = fitted.filter(|(begin, end)| *begin > 0.0 && end > begin && end.is_finite());
    // The same numbers with the shorter spelling first: as published, then with low = 1, then as they are.
    let candidates = fitted.into_iter().flat_map(|(begin, end)| {
        let whole = (1.0 / begin).round();
        let tidy = |number: f64| (number * 1024.0).round() / 1024.0;
        [
            (1.0, tidy(end / begin), whole),
            (1.0, whole * end, whole),
            (original * begin, original * end, original),
        ]
    });
    let makes = |&(low, high, original): &(f64, f64, f64)| {
        let scaling = RopeScaling::Llama3 { factor, low, high, original };
        let scaled = Rope { scaling, ..Rope::plain(theta) }.frequencies(2 * divisors.len());
        let pairs = plain.iter().zip(&scaled).zip(&divisors);
        low > 0.0
            && high > low
            && original >= 1.0
            && pairs.into_iter().all(|((plain, scaled), divisor)| is(plain / scaled, *divisor))
    };
    let (low, high, original) = std::iter::once(USUAL).chain(candidates).find(makes)?;
    Some(RopeScaling::Llama3 { factor, low, high, original })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The elements as the format's tools make them, from parameters.
    fn divisors(theta: f64, head: usize, scaling: &RopeScaling) -> Vec<f32> {
        let plain = Rope::plain(theta).frequencies(head);
        let scaling = scaling.clone();
        let scaled = Rope { scaling, ..Rope::plain(theta) }.frequencies(head);
        plain.iter().zip(&scaled).map(|(plain, scaled)| (plain / scaled) as f32).collect()
    }

    #[track_caller]
    fn check(theta: f64, head: usize, (factor, low, high, original): (f64, f64, f64, f64)) {
        let scaling = RopeScaling::Llama3 { factor, low, high, original };
        let made = divisors(theta, head, &scaling);
        let found = bands(&made, theta).unwrap();
        let again = divisors(theta, head, &found);
        for (made, again) in made.iter().zip(&again) {
            assert!((made / again - 1.0).abs() < 2e-5, "{found:?}: {again} instead of {made}");
        }
        if low == 1.0 && (original == 8192.0 || original == 16.0) {
            assert_eq!(found, scaling);
        }
    }

    #[test]
    fn parameters_of_llama_3_come_out_of_its_divisors() {
        check(500_000.0, 128, (8.0, 1.0, 4.0, 8192.0));
        check(500_000.0, 64, (32.0, 1.0, 4.0, 8192.0));
        check(500_000.0, 128, (7.5, 1.5, 9.0, 6000.0));
        check(500_000.0, 128, (4.0, 1.3, 2.1, 777.0));
        check(100.0, 6, (8.0, 1.0, 4.0, 16.0));
        check(1000.0, 4, (8.0, 1.0, 4.0, 60.0));
    }

    #[test]
    fn divisors_that_say_nothing_or_one_thing_are_no_bands() {
        assert_eq!(bands(&[1.0; 8], 1e4), Some(RopeScaling::None));
        assert_eq!(bands(&[2.0; 8], 1e4), Some(RopeScaling::Linear { factor: 2.0 }));
        for lie in [vec![2.0, 1.0, 2.0, 1.0], vec![1.0, f32::NAN], vec![1.0, -1.0], vec![0.0, 1.0]]
        {
            assert_eq!(bands(&lie, 1e4), None, "{lie:?}");
        }
    }
}
