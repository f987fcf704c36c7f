//! `preprocessor_config.json`: what of it is honoured, and what is refused.
//!
//! Two generations of files exist: the older ones of feature extractors (`size` is a number, no rescaling is
//! mentioned) and those of image processors. What a file leaves out is what its class says. A step that is not
//! done here is refused by its key, because a model would then see other images than it was trained on.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::decode::Transparency;
use super::pixels::Normalisation;
use super::processor::{Processor, Size};
use super::resample::Filter;
use crate::error::Mismatch;
use crate::{DataError, Result};

const FACTOR: f64 = 1.0 / 255.0;
/// Largest side of an image that a model reads.
const LONGEST_SIDE: u64 = 8192;

/// What a class does where its file says nothing.
struct Usual {
    /// The names before `ImageProcessor`, or `FeatureExtractor` as it was called before.
    families: &'static [&'static str],
    size: u64,
    /// Whether one number is the side of a square; otherwise it is the shorter side.
    is_square: bool,
    filter: Filter,
    crop: Option<u64>,
    mean: [f64; 3],
    deviation: [f64; 3],
    /// Whether it converts to RGB, which puts what is transparent on white.
    converts: bool,
}

const HALF: [f64; 3] = [0.5; 3];
const CLIP: [[f64; 3]; 2] =
    [[0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_58, 0.275_777_11]];

const CLASSES: [Usual; 3] = [
    Usual {
        families: &["ViT"],
        size: 224,
        is_square: true,
        filter: Filter::Bilinear,
        crop: None,
        mean: HALF,
        deviation: HALF,
        converts: false,
    },
    Usual {
        families: &["DeiT"],
        size: 256,
        is_square: true,
        filter: Filter::Bicubic,
        crop: Some(224),
        mean: HALF,
        deviation: HALF,
        converts: false,
    },
    Usual {
        families: &["Bit", "CLIP"],
        size: 224,
        is_square: false,
        filter: Filter::Bicubic,
        crop: Some(224),
        mean: CLIP[0],
        deviation: CLIP[1],
        converts: true,
    },
];

/// Steps of other classes, which are refused where they are to be done.
const OTHER_STEPS: [&str; 8] = [
    "do_pad",
    "do_flip_channel_order",
    "do_reduce_labels",
    "do_thumbnail",
    "do_align_long_axis",
    "do_grayscale",
    "crop_pct",
    "do_image_splitting",
];

impl Processor {
    /// Reads a `preprocessor_config.json`, for a model of so many channels.
    pub fn from_json(file: &Path, json: &str, channels: usize) -> Result<Self> {
        read(file, json, channels)
    }

    /// What `ViTImageProcessor` does unless it is told otherwise, for images of another height and width:
    /// bilinear resizing, and numbers from -1 to 1.
    pub fn usual((height, width): (usize, usize), channels: usize) -> Self {
        Self {
            json: written((height, width), channels),
            channels,
            resize: Some((Size::Exact(height, width), Filter::Bilinear)),
            crop: None,
            rule: Arc::new(Normalisation::new(FACTOR, &vec![0.5; channels], &vec![0.5; channels])),
            transparency: transparency(channels, true),
        }
    }
}

/// Reads it.
fn read(file: &Path, json: &str, channels: usize) -> Result<Processor> {
    let refuse = |(found, expected): Mismatch| DataError::file(file, found, expected);
    let value: Value = serde_json::from_str(json)
        .map_err(|error| refuse((format!("no JSON ({error})"), "an object".to_owned())))?;
    let Value::Object(object) = value else {
        return Err(refuse(("no JSON object".to_owned(), "an object".to_owned())));
    };
    File(&object).processor(json, channels).map_err(refuse)
}

struct File<'a>(&'a Map<String, Value>);

impl File<'_> {
    fn processor(&self, json: &str, channels: usize) -> Result<Processor, Mismatch> {
        let usual = self.class()?;
        for key in OTHER_STEPS {
            let value = self.get(key);
            if value.is_some_and(|value| *value != Value::Bool(false)) {
                let expected = "a step that Fedra does: resize, centre crop, rescale, normalise";
                return Err((
                    format!("{key} = {}", value.unwrap_or(&Value::Null)),
                    expected.into(),
                ));
            }
        }
        if self.flag("do_convert_rgb", false)? && channels == 1 {
            let expected = "false: the model reads one channel".to_owned();
            return Err(("do_convert_rgb = true".to_owned(), expected));
        }
        let transparency = transparency(channels, self.flag("do_convert_rgb", usual.converts)?);
        let resize = if self.flag("do_resize", true)? {
            Some((self.size(usual)?, self.filter(usual)?))
        } else {
            None
        };
        let crop = if self.flag("do_center_crop", usual.crop.is_some())? {
            Some(self.crop(usual)?)
        } else {
            None
        };
        let factor = if self.flag("do_rescale", true)? {
            self.number("rescale_factor")?.unwrap_or(FACTOR)
        } else {
            1.0
        };
        if self.get("offset").is_some_and(|value| *value == Value::Bool(true)) {
            return Err(("offset = true".to_owned(), "false".to_owned()));
        }
        let (means, deviations) = if self.flag("do_normalize", true)? {
            let means = self.per_channel("image_mean", (channels, usual.mean))?;
            let deviations = self.per_channel("image_std", (channels, usual.deviation))?;
            if let Some(bad) = deviations.iter().find(|deviation| **deviation <= 0.0) {
                return Err((format!("image_std = {bad}"), "numbers above 0".to_owned()));
            }
            (means, deviations)
        } else {
            (vec![0.0; channels], vec![1.0; channels])
        };
        let rule = Arc::new(Normalisation::new(factor, &means, &deviations));
        Ok(Processor { json: json.to_owned(), channels, resize, crop, rule, transparency })
    }

    /// A value that is there and not null.
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn class(&self) -> Result<&'static Usual, Mismatch> {
        let named = ["image_processor_type", "feature_extractor_type"];
        let Some(name) = named.iter().find_map(|key| self.get(key)) else { return Ok(&CLASSES[0]) };
        let name = name.as_str().unwrap_or_default();
        // Endings say which library resizes; the numbers are PIL's within a step or two.
        let plain = name.strip_suffix("Fast").or(name.strip_suffix("Pil")).unwrap_or(name);
        let family =
            plain.strip_suffix("ImageProcessor").or(plain.strip_suffix("FeatureExtractor"));
        let class =
            CLASSES.iter().find(|class| family.is_some_and(|it| class.families.contains(&it)));
        class.ok_or_else(|| {
            let known = CLASSES.iter().flat_map(|class| class.families);
            let known: Vec<String> =
                known.map(|family| format!("{family}ImageProcessor")).collect();
            (format!("image_processor_type = {name:?}"), known.join(", "))
        })
    }

    fn flag(&self, key: &str, usual: bool) -> Result<bool, Mismatch> {
        match self.get(key) {
            None => Ok(usual),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err((format!("{key} = {other}"), "true or false".to_owned())),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>, Mismatch> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_f64().filter(|number| number.is_finite());
        number.map(Some).ok_or_else(|| (format!("{key} = {value}"), "a number".to_owned()))
    }

    /// One number for all channels, or one for each.
    fn per_channel(
        &self,
        key: &str,
        (channels, usual): (usize, [f64; 3]),
    ) -> Result<Vec<f64>, Mismatch> {
        let refuse = |found: &Value| {
            (
                format!("{key} = {found}"),
                format!("a number, or one for each of {channels} channels"),
            )
        };
        let numbers = match self.get(key) {
            None => return Ok(usual[..channels.min(3)].to_vec()),
            Some(Value::Array(items)) if items.len() == channels => items.clone(),
            Some(value @ Value::Number(_)) => vec![value.clone(); channels],
            Some(other) => return Err(refuse(other)),
        };
        let number = |value: &Value| {
            let number = value.as_f64().filter(|number| number.is_finite());
            number.ok_or_else(|| refuse(value))
        };
        numbers.iter().map(number).collect()
    }

    fn size(&self, usual: &Usual) -> Result<Size, Mismatch> {
        let of_one = |side: usize| {
            if usual.is_square { Size::Exact(side, side) } else { Size::Shortest(side) }
        };
        match self.get("size") {
            None => Ok(of_one(usual.size as usize)),
            Some(Value::Object(size)) if size.len() == 1 && size.contains_key("shortest_edge") => {
                Ok(Size::Shortest(side("size", &size["shortest_edge"])?))
            }
            Some(value @ Value::Number(_)) => side("size", value).map(of_one),
            Some(value) => {
                let (height, width) = height_width("size", value)?;
                Ok(Size::Exact(height, width))
            }
        }
    }

    fn crop(&self, usual: &Usual) -> Result<(usize, usize), Mismatch> {
        match self.get("crop_size") {
            None => {
                let side = usual.crop.unwrap_or(224) as usize;
                Ok((side, side))
            }
            Some(value @ Value::Number(_)) => side("crop_size", value).map(|side| (side, side)),
            Some(value) => height_width("crop_size", value),
        }
    }

    fn filter(&self, usual: &Usual) -> Result<Filter, Mismatch> {
        let Some(value) = self.get("resample") else { return Ok(usual.filter) };
        value.as_u64().and_then(Filter::numbered).ok_or_else(|| {
            let expected =
                "0 (nearest), 1 (Lanczos), 2 (bilinear), 3 (bicubic), 4 (box) or 5 (Hamming)";
            (format!("resample = {value}"), expected.to_owned())
        })
    }
}

/// Converting to RGB puts transparency on white; a grey image is never converted so.
fn transparency(channels: usize, converts: bool) -> Transparency {
    if converts && channels == 3 { Transparency::OnWhite } else { Transparency::Dropped }
}

/// Height and width, by their names or in this order.
fn height_width(key: &str, value: &Value) -> Result<(usize, usize), Mismatch> {
    match value {
        Value::Object(size) if size.len() == 2 => {
            if let (Some(height), Some(width)) = (size.get("height"), size.get("width")) {
                return Ok((side(key, height)?, side(key, width)?));
            }
        }
        Value::Array(sides) => {
            if let [height, width] = sides.as_slice() {
                return Ok((side(key, height)?, side(key, width)?));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {}
    }
    let expected = "a number, height and width, or (for size) shortest_edge alone";
    Err((format!("{key} = {value}"), expected.to_owned()))
}

fn side(key: &str, value: &Value) -> Result<usize, Mismatch> {
    let side = value.as_u64().filter(|side| (1..=LONGEST_SIDE).contains(side));
    side.map(|side| side as usize)
        .ok_or_else(|| (format!("{key} = {value}"), format!("1 to {LONGEST_SIDE} pixels")))
}

/// The file of [`Processor::usual`].
fn written((height, width): (usize, usize), channels: usize) -> String {
    let file = json!({
        "image_processor_type": "ViTImageProcessor",
        "do_resize": true,
        "size": { "height": height, "width": width },
        "resample": 2,
        "do_rescale": true,
        "rescale_factor": FACTOR,
        "do_normalize": true,
        "image_mean": vec![0.5; channels],
        "image_std": vec![0.5; channels],
        "do_convert_rgb": channels == 3,
    });
    format!("{file:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processor(json: &str) -> Result<Processor> {
        Processor::from_json(Path::new("p.json"), json, 3)
    }

    #[test]
    fn both_generations_of_files_are_read() {
        let new = processor(
            r#"{"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 256},
                "crop_size": {"height": 224, "width": 200}, "resample": 3, "do_convert_rgb": true,
                "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}"#,
        )
        .unwrap();
        assert_eq!(new.resize, Some((Size::Shortest(256), Filter::Bicubic)));
        assert_eq!((new.crop, new.output()), (Some((224, 200)), Some((224, 200))));
        let old = processor(
            r#"{"do_normalize": true, "do_resize": true, "feature_extractor_type": "ViTFeatureExtractor",
                "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2, "size": 384}"#,
        )
        .unwrap();
        assert_eq!(old.resize, Some((Size::Exact(384, 384), Filter::Bilinear)));
        assert_eq!((old.crop, old.rule.value(0, 255)), (None, 1.0));
        let deit = processor(r#"{"feature_extractor_type": "DeiTFeatureExtractor", "size": 256}"#);
        assert_eq!(deit.unwrap().crop, Some((224, 224)));
        let plain = processor(r#"{"do_resize": false, "do_normalize": false}"#).unwrap();
        assert_eq!((plain.resize, plain.output(), plain.rule.value(1, 255)), (None, None, 1.0));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_its_key() {
        for (json, part) in [
            (r#"{"image_processor_type": "ConvNextImageProcessor"}"#, "image_processor_type"),
            (r#"{"do_pad": true}"#, "do_pad"),
            (r#"{"crop_pct": 0.875}"#, "crop_pct"),
            (r#"{"size": {"longest_edge": 10}}"#, "size ="),
            (r#"{"size": {"shortest_edge": 10, "longest_edge": 20}}"#, "size ="),
            (r#"{"size": 0}"#, "size = 0"),
            (r#"{"size": 1000000}"#, "size = 1000000"),
            (r#"{"resample": 9}"#, "resample = 9"),
            (r#"{"image_std": [1, 1, 0]}"#, "image_std = 0"),
            (r#"{"image_mean": [1, 1]}"#, "image_mean = [1,1]"),
            (r#"{"do_resize": "yes"}"#, "do_resize = \"yes\""),
            (r#"{"rescale_factor": "x"}"#, "rescale_factor"),
            ("[1]", "no JSON object"),
        ] {
            let error = processor(json).unwrap_err().to_string();
            assert!(error.contains(part) && error.starts_with("p.json: found"), "{error}");
        }
        let grey = Processor::from_json(Path::new("p"), r#"{"do_convert_rgb": true}"#, 1);
        assert!(grey.unwrap_err().to_string().contains("do_convert_rgb"));
    }

    #[test]
    fn what_is_written_for_fresh_models_reads_as_it_was_meant() {
        for channels in [1, 3] {
            let usual = Processor::usual((28, 32), channels);
            let read = Processor::from_json(Path::new("p"), usual.json(), channels).unwrap();
            assert_eq!(read, usual);
        }
    }
}
