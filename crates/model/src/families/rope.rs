//! Rotary positions in `config.json`: `rope_parameters`, or `rope_theta` with `rope_scaling` as older files have
//! them.

use serde_json::{Map, Value, json};

use crate::config::{LongRope, Rope, RopeScaling};
use crate::config_json::fields::{Fields, limit};
use crate::error::ModelError;

/// What rotary positions use unless the file says otherwise.
pub(super) const THETA: f64 = 10_000.0;

/// The kinds of scaling, in the library's words.
const KINDS: &str = r#""default", "linear", "dynamic", "llama3", "yarn" or "longrope""#;

/// The positions; `base` is the family's where the file has none.
pub(super) fn read(fields: &Fields<'_>, base: f64) -> Result<Rope, ModelError> {
    refuse_partial(fields)?;
    let mut theta =
        fields.get("rope_theta").map(|_| fields.positive_or("rope_theta", 0.0)).transpose()?;
    let mut scaling = RopeScaling::None;
    for key in ["rope_scaling", "rope_parameters"] {
        let Some(object) = fields.object(key)? else { continue };
        if object.values().any(Value::is_object) {
            // One for each kind of block: `read_two` reads them.
            continue;
        }
        let within = format!("{key}.");
        let nested = Fields { path: fields.path, object, within: &within, family: None };
        scaling = read_scaling(fields, &nested)?;
        if nested.get("rope_theta").is_none() {
            continue;
        }
        let found = nested.positive_or("rope_theta", 0.0)?;
        if let Some(outer) = theta.filter(|outer| *outer != found) {
            return Err(nested.refuse("rope_theta", format!("{outer}, as said elsewhere")));
        }
        theta = Some(found);
    }
    Ok(Rope { scaling, ..Rope::plain(theta.unwrap_or(base)) })
}

/// The positions of a family whose blocks with a window have a base of their own.
pub(super) fn read_two(
    fields: &Fields<'_>,
    global: (&str, f64),
    local: (&str, f64),
) -> Result<Rope, ModelError> {
    let rope = read_both(fields, global, local)?;
    if matches!(rope.scaling, RopeScaling::LongRope(_)) {
        let expected =
            "another scaling, because blocks with a window have frequencies of their own";
        return Err(ModelError::config(fields.path, "rope_type", "\"longrope\"", expected));
    }
    Ok(rope)
}

fn read_both(
    fields: &Fields<'_>,
    (global_key, global): (&str, f64),
    (local_key, local): (&str, f64),
) -> Result<Rope, ModelError> {
    let mut rope = Rope {
        // Older files scale the blocks without a window by `rope_scaling`.
        scaling: read(fields, THETA)?.scaling,
        local_theta: Some(fields.positive_or(local_key, local)?),
        ..Rope::plain(fields.positive_or(global_key, global)?)
    };
    let Some(both) = fields.object("rope_parameters")? else { return Ok(rope) };
    let both = Fields { path: fields.path, object: both, within: "rope_parameters.", family: None };
    for (kind, is_local) in [("full_attention", false), ("sliding_attention", true)] {
        let Some(object) = both.object(kind)? else { continue };
        let within = format!("rope_parameters.{kind}.");
        let nested = Fields { path: fields.path, object, within: &within, family: None };
        let scaling = read_scaling(fields, &nested)?;
        if is_local {
            rope.local_theta = Some(nested.positive_or("rope_theta", local)?);
            if scaling != RopeScaling::None {
                return Err(nested.refuse("rope_type", r#""default""#));
            }
        } else {
            rope.theta = nested.positive_or("rope_theta", global)?;
            rope.scaling = scaling;
        }
    }
    Ok(rope)
}

/// Refuses positions that turn only a part of each head; older files say so outside of the table.
fn refuse_partial(fields: &Fields<'_>) -> Result<(), ModelError> {
    let key = "partial_rotary_factor";
    if fields.positive_or(key, 1.0)? == 1.0 {
        return Ok(());
    }
    let expected =
        "1: a model whose positions turn only a part of each head's entries is not supported";
    Err(fields.refuse(key, expected))
}

/// Refuses factors that are not one for each pair of a head's entries.
pub(super) fn check(fields: &Fields<'_>, rope: &Rope, head_width: usize) -> Result<(), ModelError> {
    let RopeScaling::LongRope(scaling) = &rope.scaling else { return Ok(()) };
    for (key, factors) in [("short_factor", &scaling.short), ("long_factor", &scaling.long)] {
        if factors.len() != head_width / 2 {
            let found = format!("{} numbers", factors.len());
            let expected = format!("{}, half the width of a head", head_width / 2);
            return Err(ModelError::config(fields.path, key, found, expected));
        }
    }
    Ok(())
}

pub(super) fn read_scaling(
    fields: &Fields<'_>,
    nested: &Fields<'_>,
) -> Result<RopeScaling, ModelError> {
    refuse_partial(nested)?;
    let key = if nested.get("rope_type").is_some() { "rope_type" } else { "type" };
    let longest = fields.get("max_position_embeddings").and_then(Value::as_f64).unwrap_or(0.0);
    let number = |key: &str| -> Result<f64, ModelError> {
        match nested.get(key) {
            Some(_) => nested.positive_or(key, 0.0),
            None => Err(nested.refuse(key, "a finite number above zero")),
        }
    };
    let original = || nested.positive_or("original_max_position_embeddings", longest);
    match nested.text(key)? {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear { factor: number("factor")? }),
        Some("dynamic") => Ok(RopeScaling::Dynamic { factor: number("factor")? }),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            original: number("original_max_position_embeddings")?,
        }),
        Some("longrope" | "su") => long_rope(fields, nested),
        // What the first Phi-3 folders called it.
        Some("yarn") if nested.get("short_factor").is_some() => long_rope(fields, nested),
        Some("yarn") => {
            let factor = number("factor")?;
            let scale = |scale: f64| 0.1 * scale * factor.ln() + 1.0;
            let usual = if factor <= 1.0 { 1.0 } else { scale(1.0) };
            let usual = match (nested.get("mscale"), nested.get("mscale_all_dim")) {
                (Some(_), Some(_)) if factor > 1.0 => {
                    scale(number("mscale")?) / scale(number("mscale_all_dim")?)
                }
                _ => usual,
            };
            if !nested.flag_or("truncate", true)? {
                return Err(nested.refuse("truncate", "true"));
            }
            Ok(RopeScaling::Yarn {
                factor,
                original: original()?,
                fast: nested.positive_or("beta_fast", 32.0)?,
                slow: nested.positive_or("beta_slow", 1.0)?,
                attention: nested.positive_or("attention_factor", usual)?,
            })
        }
        Some(_) => Err(nested.refuse(key, KINDS)),
    }
}

fn long_rope(fields: &Fields<'_>, nested: &Fields<'_>) -> Result<RopeScaling, ModelError> {
    let (key, texts) = ("original_max_position_embeddings", 2..=limit::POSITIONS);
    let longest = fields.size("max_position_embeddings", 1..=limit::POSITIONS)?;
    // As in the library, the outer one comes first.
    let original = match fields.get(key) {
        Some(_) => fields.size(key, texts)?,
        None => nested.size_or(key, texts, longest.max(2))?,
    };
    let factor = nested.positive_or("factor", longest as f64 / original as f64)?;
    let usual =
        if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original as f64).ln()).sqrt() };
    let factors = |key: &str| -> Result<Vec<f64>, ModelError> {
        let number = |value: &Value| value.as_f64().filter(|it| it.is_finite() && *it > 0.0);
        let list = nested.get(key).and_then(Value::as_array);
        let found = list.and_then(|list| list.iter().map(number).collect());
        found.ok_or_else(|| nested.refuse(key, "a list of finite numbers above zero"))
    };
    Ok(RopeScaling::LongRope(LongRope {
        short: factors("short_factor")?,
        long: factors("long_factor")?,
        original,
        attention: nested.positive_or("attention_factor", usual)?,
    }))
}

pub(super) fn write(rope: &Rope, object: &mut Map<String, Value>) {
    let parameters = match rope.local_theta {
        None => parameters(rope),
        Some(local) => json!({
            "full_attention": parameters(rope),
            "sliding_attention": parameters(&Rope::plain(local)),
        }),
    };
    object.insert("rope_parameters".into(), parameters);
    // What these said stands in `rope_parameters` now; versions before 5 read the base alone.
    object.remove("rope_scaling");
    object.insert("rope_theta".into(), json!(rope.theta));
    if let RopeScaling::LongRope(LongRope { original, .. }) = &rope.scaling {
        // The library looks for it here first.
        object.insert("original_max_position_embeddings".into(), json!(original));
    }
}

fn parameters(rope: &Rope) -> Value {
    let mut parameters = match &rope.scaling {
        RopeScaling::None => json!({ "rope_type": "default" }),
        RopeScaling::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
        RopeScaling::Dynamic { factor } => json!({ "rope_type": "dynamic", "factor": factor }),
        RopeScaling::Llama3 { factor, low, high, original } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": *original as u64,
        }),
        RopeScaling::Yarn { factor, original, fast, slow, attention } => json!({
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": *original as u64,
            "beta_fast": fast,
            "beta_slow": slow,
            "attention_factor": attention,
        }),
        RopeScaling::LongRope(LongRope { short, long, original, attention }) => json!({
            "rope_type": "longrope",
            "short_factor": short,
            "long_factor": long,
            "original_max_position_embeddings": original,
            "attention_factor": attention,
        }),
    };
    parameters["rope_theta"] = json!(rope.theta);
    parameters
}

impl Rope {
    /// The turn per position of each pair of a head's entries, without any scaling.
    fn unscaled(&self, head_width: usize) -> impl Fn(usize) -> f64 {
        let (theta, width) = (self.theta, head_width as f64);
        move |pair| theta.powf(-2.0 * pair as f64 / width)
    }

    /// The turns in texts that are longer than those of the pre-training, where they are others, and the length
    /// of the latter.
    pub(crate) fn long_frequencies(&self, head_width: usize) -> Option<(Vec<f64>, usize)> {
        let RopeScaling::LongRope(LongRope { long, original, .. }) = &self.scaling else {
            return None;
        };
        let plain = self.unscaled(head_width);
        let scaled = long.iter().enumerate().map(|(pair, factor)| plain(pair) / factor);
        Some((scaled.collect(), *original))
    }

    /// The turn per position of each pair of a head's entries.
    pub(crate) fn frequencies(&self, head_width: usize) -> Vec<f64> {
        let pairs = head_width / 2;
        let width = head_width as f64;
        let plain = self.unscaled(head_width);
        let scaled = |pair: usize| {
            let frequency = plain(pair);
            match self.scaling {
                RopeScaling::None | RopeScaling::Dynamic { .. } => frequency,
                RopeScaling::LongRope(LongRope { ref short, .. }) => frequency / short[pair],
                RopeScaling::Linear { factor } => frequency / factor,
                RopeScaling::Llama3 { factor, low, high, original } => {
                    // How often a pair turns in the longest text of the pre-training.
                    let turns = original * frequency / std::f64::consts::TAU;
                    let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - smooth) * frequency / factor + smooth * frequency
                }
                RopeScaling::Yarn { factor, original, fast, slow, .. } => {
                    let pair_of = |turns: f64| {
                        width * (original / (turns * std::f64::consts::TAU)).ln()
                            / (2.0 * self.theta.ln())
                    };
                    let low = pair_of(fast).floor().max(0.0);
                    let high = pair_of(slow).ceil().min(width - 1.0);
                    let length = if low == high { 0.001 } else { high - low };
                    let divided = ((pair as f64 - low) / length).clamp(0.0, 1.0);
                    frequency / factor * divided + frequency * (1.0 - divided)
                }
            }
        };
        (0..pairs).map(scaled).collect()
    }

    /// What queries and keys are multiplied by.
    pub(crate) fn attention_factor(&self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn { attention, .. }
            | RopeScaling::LongRope(LongRope { attention, .. }) => attention,
            RopeScaling::None
            | RopeScaling::Linear { .. }
            | RopeScaling::Dynamic { .. }
            | RopeScaling::Llama3 { .. } => 1.0,
        }
    }
}
