//! Against PIL and `transformers` (`tools/image_fixtures.py`).

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::decode::Transparency;
use super::raster::Raster;
use super::resample::Filter;
use super::{Augment, Image, Normalisation, Pixels, Processor};

fn fixtures() -> Value {
    serde_json::from_str(include_str!("../../tests/fixtures/images.json")).unwrap()
}

/// What a text in base64 stands for.
fn bytes(text: &Value) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let letters: Vec<u8> = text.as_str().unwrap().bytes().filter(|byte| *byte != b'=').collect();
    let mut bytes = Vec::new();
    for four in letters.chunks(4) {
        let bits = four.iter().fold(0_u32, |bits, letter| bits << 6 | u32::from(digit(*letter)));
        let bits = bits << (6 * (4 - four.len()));
        bytes.extend(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

fn sizes(value: &Value) -> (usize, usize) {
    (number(&value[0]), number(&value[1]))
}

fn furthest(found: &[u8], expected: &[u8]) -> u8 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(one, other)| one.abs_diff(*other)).max().unwrap_or(0)
}

#[test]
fn every_form_of_png_and_jpeg_is_decoded_as_pil_converts_it() {
    for case in fixtures()["decoded"].as_array().unwrap() {
        let name = &case["name"];
        let raster =
            Image::encoded(bytes(&case["file"])).unwrap().raster(Transparency::Dropped).unwrap();
        assert_eq!((raster.width, raster.height), sizes(&case["size"]), "{name}");
        let within = number(&case["within"]);
        for (channels, key) in [(3, "rgb"), (1, "grey")] {
            let found = raster.clone().with_channels(channels).pixels;
            let off = furthest(&found, &bytes(&case[key]));
            assert!(usize::from(off) <= within, "{name}: off by {off}, allowed {within}");
        }
    }
}

#[test]
fn what_is_transparent_is_put_on_white_where_the_processor_converts_to_rgb() {
    let mut transparent = 0;
    for case in fixtures()["decoded"].as_array().unwrap() {
        let (image, within) =
            (Image::encoded(bytes(&case["file"])).unwrap(), number(&case["within"]));
        for (json, key) in [
            (r#"{"do_convert_rgb": true}"#, "white"),
            (r#"{"image_processor_type": "CLIPImageProcessor"}"#, "white"),
            (r#"{"do_convert_rgb": false}"#, "rgb"),
            (r#"{"image_processor_type": "ViTImageProcessor"}"#, "rgb"),
        ] {
            let processor = Processor::from_json(Path::new("p"), json, 3).unwrap();
            let found = image.raster(processor.transparency).unwrap().with_channels(3).pixels;
            let off = furthest(&found, &bytes(&case[key]));
            assert!(usize::from(off) <= within, "{}: {json}: off by {off}", case["name"]);
        }
        transparent += usize::from(case["white"] != case["rgb"]);
    }
    assert!(transparent >= 3, "only {transparent} images of the fixtures are transparent");
}

#[test]
fn every_filter_resizes_to_the_pixels_of_pil() {
    for image in fixtures()["resized"].as_array().unwrap() {
        let channels = number(&image["channels"]);
        let raster = Raster::new(sizes(&image["size"]), channels, bytes(&image["pixels"]));
        for case in image["cases"].as_array().unwrap() {
            let filter = Filter::numbered(case[0].as_u64().unwrap()).unwrap();
            let size = (number(&case[1]), number(&case[2]));
            let found = raster.clone().resized(size, filter).pixels;
            let off = furthest(&found, &bytes(&case[3]));
            assert_eq!(off, 0, "{filter:?} to {size:?}");
        }
    }
}

#[test]
fn processors_hand_over_what_those_of_transformers_do() {
    for image in fixtures()["processed"].as_array().unwrap() {
        let raster = Raster::new(sizes(&image["size"]), 3, bytes(&image["pixels"]));
        for case in image["cases"].as_array().unwrap() {
            let config = case[0].as_str().unwrap();
            let processor = Processor::from_json(Path::new("p"), config, 3).unwrap();
            let pixels = processor.prepare(raster.clone());
            let shape: Vec<usize> = case[1].as_array().unwrap().iter().map(number).collect();
            assert_eq!(pixels.shape().to_vec(), shape, "{config}");
            let mut found = Vec::new();
            pixels.extend(&mut found);
            let floats = bytes(&case[2]);
            let expected =
                floats.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap()));
            for (one, other) in found.iter().zip(expected) {
                assert!(
                    (one - other).abs() <= 1e-6 * other.abs().max(1.0),
                    "{one} {other} {config}"
                );
            }
        }
    }
}

#[test]
fn broken_images_are_errors_and_never_panics() {
    for case in fixtures()["decoded"].as_array().unwrap() {
        let whole = bytes(&case["file"]);
        for length in 0..whole.len() {
            let cut = Image::encoded(whole[..length].to_vec());
            let is_error =
                cut.is_err() || cut.is_ok_and(|image| image.raster(Transparency::OnWhite).is_err());
            // What stands behind the last pixels of a PNG is not looked at.
            assert!(is_error || length + 16 > whole.len(), "{} cut to {length}", case["name"]);
        }
        for place in (0..whole.len()).step_by(3) {
            let mut changed = whole.clone();
            changed[place] ^= 0x55;
            if let Ok(image) = Image::encoded(changed) {
                let _either = image.raster(Transparency::OnWhite);
            }
        }
    }
}

#[test]
fn nothing_printed_shows_an_image() {
    let image = Image::plain((2, 1, 1), vec![201, 202]).unwrap();
    assert_eq!(format!("{image:?}"), "Image(2 x 1)");
    let pixels = Pixels::blank([3, 4, 5]);
    assert_eq!(format!("{pixels:?}"), "Pixels(3 x 4 x 5)");
}

#[test]
fn a_drawn_image_is_a_crop_of_the_padded_one() {
    let rule = Arc::new(Normalisation::new(1.0, &[0.0], &[1.0]));
    let pixels = Pixels::new(vec![1, 2, 3, 4, 5, 6], [1, 2, 3], rule);
    let drawn = |flip, down, right| {
        let mut found = Vec::new();
        pixels.extend_drawn(super::AugmentDraw { flip, down, right }, &mut found);
        found
    };
    assert_eq!(drawn(false, 0, 0), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(drawn(true, 0, 0), [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
    assert_eq!(drawn(false, 1, 0), [4.0, 5.0, 6.0, 0.0, 0.0, 0.0]);
    assert_eq!(drawn(false, -1, 1), [0.0, 0.0, 0.0, 2.0, 3.0, 0.0]);
    assert_eq!(drawn(true, 0, 1), [0.0, 3.0, 2.0, 0.0, 6.0, 5.0]);
    assert!(Augment::default().is_nothing());
}
