//! Safetensors files, honest and hostile. A file either opens or is refused with a message; it
//! never panics and never takes memory for bytes that are not there.

use std::borrow::Cow;
use std::path::PathBuf;

use fedra_model::error::ModelError;
use fedra_model::hf::safetensors::Reader;
use fedra_model::hf::writer::{self, Outline};
use fedra_model::hf::{Dtype, Precision, Tensors as _};

/// A file from its header's text and its data.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// One tensor `a` with the given attributes and `length` bytes of data.
fn one(attributes: &str, length: usize) -> Vec<u8> {
    file(&format!("{{\"a\":{{{attributes}}}}}"), &vec![0; length])
}

fn open(bytes: &[u8]) -> Result<Reader, ModelError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.safetensors");
    std::fs::write(&path, bytes).unwrap();
    // The open handle outlives the folder.
    Reader::open(path)
}

/// Opening `bytes` is refused with a message that contains `expected`, or succeeds where that is
/// empty.
#[track_caller]
fn check(bytes: &[u8], expected: &str) {
    match open(bytes) {
        Ok(_) => assert_eq!(expected, "", "the file was accepted"),
        Err(error) => {
            let message = error.to_string();
            assert!(!expected.is_empty() && message.contains(expected), "{message}");
            assert!(message.len() < 2000, "a message of {} bytes", message.len());
        }
    }
}

/// A small honest file: two tensors, metadata, padding.
fn honest() -> Vec<u8> {
    let header = concat!(
        r#"{"__metadata__":{"format":"pt"},"#,
        r#""a.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"#,
        r#""b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}}   "#
    );
    file(header, &(0..22).collect::<Vec<u8>>())
}

#[test]
fn an_honest_file_opens() {
    let reader = open(&honest()).unwrap();
    assert_eq!(reader.names().collect::<Vec<_>>(), ["a.weight", "b"]);
    assert_eq!(reader.metadata()["format"], "pt");
    let info = reader.info("a.weight").unwrap();
    assert_eq!((info.dtype, info.shape), (Dtype::F32, &[2, 2][..]));
    assert_eq!(reader.read_f32("b").unwrap().len(), 3);
}

#[test]
fn truncation_at_every_byte_is_refused() {
    let bytes = honest();
    for length in 0..bytes.len() {
        assert!(open(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
    }
    check(&[bytes, vec![0]].concat(), "found 23 bytes of data, expected 22");
}

#[test]
fn a_flipped_bit_gives_an_error_or_a_readable_file() {
    let bytes = honest();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let Ok(reader) = open(&flipped) else { continue };
        for name in reader.names() {
            let elements: usize = reader.info(name).unwrap().shape.iter().product();
            if let Ok(values) = reader.read_f32(name) {
                assert_eq!(values.len(), elements);
            }
        }
    }
}

#[test]
fn header_lengths_are_held_against_the_file() {
    let with_length = |length: u64| {
        let mut bytes = honest();
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    let all = honest().len() as u64 - 8;
    check(&[], "found 0 bytes");
    check(&[0; 8], "does not begin with `{`");
    check(&with_length(0), "does not begin with `{`");
    check(&with_length(1), "header: EOF");
    check(&with_length(all), "header:");
    check(&with_length(all + 1), &format!("expected at most {all}"));
    check(&with_length(1 << 63), "a header of 9223372036854775808 bytes");
    check(&with_length(u64::MAX), "a header of 18446744073709551615 bytes");
}

#[test]
fn a_header_longer_than_the_format_allows_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.safetensors");
    std::fs::write(&path, 100_000_001_u64.to_le_bytes()).unwrap();
    let sparse = std::fs::File::options().write(true).open(&path).unwrap();
    sparse.set_len(1 << 30).unwrap();
    let message = Reader::open(&path).unwrap_err().to_string();
    assert!(message.contains("expected at most 100000000"), "{message}");
}

#[test]
fn headers_that_are_no_headers_are_refused() {
    check(&file("not json", &[]), "does not begin with `{`");
    check(&file("[]", &[]), "does not begin with `{`");
    check(&file("{", &[]), "header: EOF");
    check(&file("{} {}", &[]), "header: trailing characters");
    check(&file("{}\0\0\0", &[]), "header: trailing characters");
    check(&file(r#"{"a":1}"#, &[]), "invalid type");
    check(&file(r#"{"a":{}}"#, &[]), "missing field `dtype`");
    check(&file(r#"{"__metadata__":{"a":1}}"#, &[]), "expected a string");
    check(&file(r#"{"__metadata__":{},"__metadata__":{}}"#, &[]), "a second __metadata__");
    check(&file(r#"{"__metadata__":{"a":"","a":""}}"#, &[]), r#""a" listed twice"#);
    check(&file("{}", &[]), "");
    check(&file("{}      ", &[]), "");
    let mut bad_utf8 = file(r#"{"abc":{}}"#, &[]);
    bad_utf8[11] = 0xff;
    check(&bad_utf8, "header: invalid unicode");
}

#[test]
fn deep_nesting_is_refused_without_a_deep_stack() {
    let deep = 1_000_000;
    check(&file(&format!("{{\"a\":{}", "[".repeat(deep)), &[]), "header: tensor");
    check(&file(&format!("{{\"a\":{}", "{\"a\":".repeat(deep)), &[]), "header: tensor");
    let shape = format!("{{\"a\":{{\"shape\":{}", "[".repeat(deep));
    check(&file(&shape, &[]), "invalid type");
}

#[test]
fn many_entries_are_read_quickly_and_too_many_are_refused() {
    let header = |count: usize| {
        let entry = |i| format!(r#""{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
        format!("{{{}}}", (0..count).map(entry).collect::<Vec<_>>().join(","))
    };
    let reader = open(&file(&header(100_000), &[])).unwrap();
    assert_eq!(reader.names().count(), 100_000);
    check(&file(&header(300_000), &[]), "more than 262144 tensors");
}

#[test]
fn offsets_must_cover_the_data_exactly() {
    let two = |a: &str, b: &str, length: usize| {
        let entry = |offsets| format!(r#"{{"dtype":"U8","shape":[4],"data_offsets":{offsets}}}"#);
        file(&format!("{{\"a\":{},\"b\":{}}}", entry(a), entry(b)), &vec![0; length])
    };
    check(&two("[0,4]", "[4,8]", 8), "");
    check(&two("[4,8]", "[0,4]", 8), "");
    check(&two("[0,4]", "[2,6]", 6), r#"tensor "b": found data beginning at byte 2, an overlap"#);
    check(&two("[0,4]", "[0,4]", 4), "an overlap");
    check(
        &two("[0,4]", "[5,9]", 9),
        r#"tensor "b": found data beginning at byte 5, an overlap or a gap"#,
    );
    check(
        &two("[1,5]", "[5,9]", 9),
        r#"tensor "a": found data beginning at byte 1, an overlap or a gap"#,
    );
    check(&two("[0,4]", "[4,8]", 9), "found 9 bytes of data, expected 8");
    check(&two("[0,4]", "[8,4]", 8), "expected an ascending range");
    check(&two("[0,4]", "[4,8]", 7), "within 7 bytes of data");
    check(&two("[0,4]", "[4,18446744073709551615]", 8), "expected an ascending range");
    check(&two("[0,4]", "[-4,0]", 8), "invalid value");
    check(&two("[0,4]", "[4,18446744073709551616]", 8), "invalid type: floating point");
    check(&two("[0,4]", "[4.0,8]", 8), "invalid type: floating point");
    check(&two("[0,4]", "[4]", 8), "invalid length");
    check(&two("[0,4]", "[4,8,12]", 8), r#"tensor "b""#);
}

#[test]
fn shapes_must_match_the_data() {
    let shaped = |shape: &str, length: usize| {
        one(&format!(r#""dtype":"F32","shape":{shape},"data_offsets":[0,{length}]"#), length)
    };
    check(&shaped("[]", 4), "");
    check(&shaped("[0]", 0), "");
    check(&shaped("[0,18446744073709551615]", 0), "");
    check(&shaped("[1,1,1,1,1,1,1,1]", 4), "");
    check(
        &shaped("[1,1,1,1,1,1,1,1,1]", 4),
        r#"tensor "a": found 9 dimensions, expected at most 8"#,
    );
    check(&shaped(&format!("[{}1]", "1,".repeat(63)), 4), "found 64 dimensions");
    check(&shaped("[2]", 4), "found 4 bytes of data, expected as many as F32 of shape [2] needs");
    check(&shaped("[2]", 9), "found 9 bytes of data, expected as many as F32 of shape [2]");
    check(&shaped("[4294967296,4294967296]", 0), "as many as F32 of shape");
    check(&shaped("[4611686018427387905]", 4), "as many as F32 of shape");
    check(&shaped("[-1]", 4), "invalid value");
    check(&shaped("[1.5]", 4), "invalid type");
    check(&shaped("7", 4), "expected a sequence");
}

#[test]
fn a_zero_size_tensor_reads_as_nothing_unless_its_dimensions_overflow() {
    let shaped =
        |shape: &str| one(&format!(r#""dtype":"F16","shape":{shape},"data_offsets":[0,0]"#), 0);
    let reader = open(&shaped("[0,18446744073709551615]")).unwrap();
    assert!(reader.read_f32("a").unwrap().is_empty());
    check(&shaped("[18446744073709551615,18446744073709551615,0]"), "found 0 bytes of data");
}

#[test]
fn a_tensor_of_any_type_of_the_format_may_be_there_and_is_refused_only_when_read() {
    for (dtype, bytes) in [
        ("BOOL", 2),
        ("U8", 2),
        ("I64", 16),
        ("F64", 16),
        ("F8_E4M3", 2),
        ("F8_E8M0", 2),
        ("C64", 16),
        ("F4", 1),
    ] {
        let odd = format!(r#""odd":{{"dtype":"{dtype}","shape":[2],"data_offsets":[0,{bytes}]}}"#);
        let (begin, end) = (bytes, bytes + 4);
        let even = format!(r#""w":{{"dtype":"F32","shape":[1],"data_offsets":[{begin},{end}]}}"#);
        let reader = open(&file(&format!("{{{odd},{even}}}"), &vec![0; end])).unwrap();
        assert_eq!(reader.read_f32("w").unwrap(), [0.0], "{dtype}");
        let message = reader.read_f32("odd").unwrap_err().to_string();
        let expected = format!("found {dtype}, expected F32, F16 or BF16");
        assert!(message.ends_with(&expected), "{message}");
    }
}

#[test]
fn attributes_must_be_known_and_single() {
    let rest = r#""shape":[1],"data_offsets":[0,4]"#;
    check(&one(&format!(r#""dtype":"F32",{rest}"#), 4), "");
    check(
        &one(&format!(r#""dtype":"F31",{rest}"#), 4),
        r#"tensor "a": dtype `F31`, which the format does not have"#,
    );
    check(&one(&format!(r#""dtype":"f32",{rest}"#), 4), "dtype `f32`, which");
    check(&one(&format!(r#""dtype":7,{rest}"#), 4), "expected value");
    check(&one(&format!(r#""dtype":"F32","dtype":"F32",{rest}"#), 4), "duplicate field `dtype`");
    let long = "x".repeat(1 << 20);
    check(&one(&format!(r#""dtype":"{long}",{rest}"#), 4), "dtype `xxx");
    let a = r#""a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    check(&file(&format!("{{{a},{a}}}"), &[0]), r#"a second tensor "a""#);
}

#[test]
fn names_are_short_and_printable() {
    let named = |name: &str| {
        file(&format!(r#"{{"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#), &[0])
    };
    check(&named("../../etc/passwd"), ""); // never a path
    check(&named("größe"), "");
    check(&named(""), "a tensor name of 0 bytes");
    check(&named(r"a\u0000b"), r#"a control character in the tensor name "a\0b""#);
    check(&named(r"a\nb"), "a control character");
    check(&named(&"x".repeat(1 << 20)), "a tensor name of 1048576 bytes, not 1 to 1024");
}

#[test]
fn only_floats_are_read_as_floats() {
    let reader = open(&one(r#""dtype":"I64","shape":[1],"data_offsets":[0,8]"#, 8)).unwrap();
    let message = reader.read_f32("a").unwrap_err().to_string();
    assert!(message.ends_with(r#"tensor "a": found I64, expected F32, F16 or BF16"#), "{message}");
    assert!(reader.read_f32("b").unwrap_err().to_string().contains("no such tensor"));
}

#[test]
fn every_precision_survives_a_round_trip_across_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    // Longer than the chunks of reader and writer, and no multiple of them.
    let long: Vec<f32> = (0..600_001_u32).map(|i| (i % 251) as f32 - 125.0).collect();
    let short = [0.5, -0.0];
    for precision in [Precision::F32, Precision::F16, Precision::BF16] {
        let tensors: [(&str, &[usize], &[f32]); 3] =
            [("z.long", &[600_001], &long), ("a.empty", &[0, 3], &[]), ("m", &[2, 1], &short)];
        writer::write(&path, tensors, precision).unwrap();
        let reader = Reader::open(&path).unwrap();
        assert_eq!(reader.info("m").unwrap().dtype, precision.dtype());
        assert_eq!(reader.info("a.empty").unwrap().shape, [0, 3]);
        assert!(reader.read_f32("z.long").unwrap() == long);
        assert_eq!(reader.read_f32("m").unwrap().map_bits(), short.to_vec().map_bits());
        assert!(reader.read_f32("a.empty").unwrap().is_empty());
    }
}

trait Bits {
    fn map_bits(self) -> Vec<u32>;
}

impl Bits for Vec<f32> {
    fn map_bits(self) -> Vec<u32> {
        self.into_iter().map(f32::to_bits).collect()
    }
}

fn written(name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    (dir, path)
}

#[test]
fn the_same_tensors_in_any_order_are_the_same_bytes() {
    let (_dir, path) = written("x");
    let a: (&str, &[usize], &[f32]) = ("a", &[1], &[1.0]);
    let b: (&str, &[usize], &[f32]) = ("b", &[2], &[2.0, 3.0]);
    writer::write(&path, [a, b], Precision::F32).unwrap();
    let first = std::fs::read(&path).unwrap();
    writer::write(&path, [b, a], Precision::F32).unwrap();
    assert_eq!(first, std::fs::read(&path).unwrap());
    let header = u64::from_le_bytes(first[..8].try_into().unwrap());
    assert!(header.is_multiple_of(8));
    assert_eq!(first.len() as u64, 8 + header + 12);
}

#[test]
fn the_writer_refuses_what_it_cannot_keep() {
    let refused = |tensors: &[(&str, &[usize], &[f32])], precision, expected: &str| {
        let (dir, path) = written("x");
        let error = writer::write(&path, tensors.iter().copied(), precision).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something was left behind");
    };
    refused(&[("a", &[2], &[1.0])], Precision::F32, "found 1 values, expected 2 for shape [2]");
    refused(&[("a", &[1], &[1e6])], Precision::F16, "found 1000000, expected a value within");
    refused(&[("a", &[1], &[1.0]), ("a", &[1], &[1.0])], Precision::F32, "a second tensor");
    refused(&[("", &[1], &[1.0])], Precision::F32, "a tensor name of 0 bytes");
    refused(&[("a", &[usize::MAX, 2], &[])], Precision::F32, "a size this machine can address");
}

#[test]
fn streamed_values_are_asked_for_once_each_in_order() {
    let (_dir, path) = written("x");
    let outline = |name: &str| Outline { name: name.into(), shape: vec![1] };
    let mut asked = Vec::new();
    writer::stream(&path, vec![outline("b"), outline("a")], Precision::F32, |name| {
        asked.push(name.to_owned());
        Ok(Cow::Owned(vec![1.0]))
    })
    .unwrap();
    assert_eq!(asked, ["a", "b"]);
}

#[test]
fn a_file_that_shrinks_after_opening_is_an_error() {
    let (_dir, path) = written("x");
    writer::write(&path, [("a", &[100][..], &[1.0; 100][..])], Precision::F32).unwrap();
    let reader = Reader::open(&path).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(200).unwrap();
    assert!(reader.read_f32("a").unwrap_err().to_string().starts_with("cannot read"));
}
