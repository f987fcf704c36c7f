//! Rotary positions in `config.json`: `rope_parameters`, or `rope_theta` with `rope_scaling` as older files have
//! them.

use serde_json::{Map, Value, json};

use crate::config::{Rope, RopeScaling};
use crate::error::ModelError;
use crate::hf::config::fields::Fields;

/// What rotary positions use unless the file says otherwise.
pub(super) const THETA: f64 = 10_000.0;

/// The kinds of scaling, in the library's words.
const KINDS: &str = r#""default", "linear", "dynamic", "llama3" or "yarn""#;

pub(super) fn read(fields: &Fields<'_>) -> Result<Rope, ModelError> {
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
        if nested.positive_or("partial_rotary_factor", 1.0)? != 1.0 {
            return Err(nested.refuse("partial_rotary_factor", "1"));
        }
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
    Ok(Rope { scaling, ..Rope::plain(theta.unwrap_or(THETA)) })
}

/// The positions of a family whose blocks with a window have a base of their own.
pub(super) fn read_two(
    fields: &Fields<'_>,
    (global_key, global): (&str, f64),
    (local_key, local): (&str, f64),
) -> Result<Rope, ModelError> {
    let mut rope = Rope {
        // Older files scale the blocks without a window by `rope_scaling`.
        scaling: read(fields)?.scaling,
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

pub(super) fn read_scaling(
    fields: &Fields<'_>,
    nested: &Fields<'_>,
) -> Result<RopeScaling, ModelError> {
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
}

fn parameters(rope: &Rope) -> Value {
    let mut parameters = match rope.scaling {
        RopeScaling::None => json!({ "rope_type": "default" }),
        RopeScaling::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
        RopeScaling::Dynamic { factor } => json!({ "rope_type": "dynamic", "factor": factor }),
        RopeScaling::Llama3 { factor, low, high, original } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": original as u64,
        }),
        RopeScaling::Yarn { factor, original, fast, slow, attention } => json!({
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": original as u64,
            "beta_fast": fast,
            "beta_slow": slow,
            "attention_factor": attention,
        }),
    };
    parameters["rope_theta"] = json!(rope.theta);
    parameters
}

impl Rope {
    /// The turn per position of each pair of a head's entries.
    pub(crate) fn frequencies(&self, head_width: usize) -> Vec<f64> {
        let pairs = head_width / 2;
        let width = head_width as f64;
        let plain = |pair: usize| self.theta.powf(-2.0 * pair as f64 / width);
        let scaled = |pair: usize| {
            let frequency = plain(pair);
            match self.scaling {
                RopeScaling::None | RopeScaling::Dynamic { .. } => frequency,
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
            RopeScaling::Yarn { attention, .. } => attention,
            RopeScaling::None
            | RopeScaling::Linear { .. }
            | RopeScaling::Dynamic { .. }
            | RopeScaling::Llama3 { .. } => 1.0,
        }
    }
}
