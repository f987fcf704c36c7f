//! Parquet as other libraries write it, and as nobody should.
//!
//! `tools/parquet_fixtures.py` writes the same 40 rows in many ways; the rows are spelt again here.

use std::path::{Path, PathBuf};

use fedra_data::{
    Body, Columns, DataError, Format, Labels, Limits, Reader, Result, Survey, Table, TableBuilder,
    Task, TextColumns,
};

const FILES: [&str; 9] =
    ["delta", "delta_v2", "gzip_v2", "pandas", "plain", "polars", "small_pages", "snappy", "zstd"];
const ROWS: usize = 40;

fn fixture(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parquet");
    folder.join(format!("{name}.parquet"))
}

fn open(path: &Path, task: Task, columns: Columns, limits: Limits) -> Result<Table> {
    let mut builder = TableBuilder::new(task);
    let reader = Reader { columns, limits, ..Reader::default() };
    reader.read(Format::Parquet, path, &mut builder)?;
    Ok(builder.finish())
}

/// The classes stand in `kind`; the codes in `labels`, which needs no name.
fn columns(task: Task) -> Columns {
    let label = (task == Task::Classes).then(|| "kind".to_owned());
    Columns { label, ..Columns::default() }
}

fn read(name: &str, task: Task) -> Result<Table> {
    open(&fixture(name), task, columns(task), Limits::default())
}

fn text(i: usize) -> String {
    format!(
        "note {} of {}",
        i / 3,
        ["cough", "fever", "na\u{ef}ve pain", "\u{4f60}\u{597d}"][i % 4]
    )
}

#[test]
fn every_writer_encoding_and_compression_gives_the_same_classes() {
    for name in FILES {
        let table = read(name, Task::Classes).unwrap();
        assert_eq!(table.examples.len(), ROWS, "{name}");
        for (i, example) in table.examples.iter().enumerate() {
            assert_eq!(example.body.to_text(), text(i), "{name}");
            let Labels::One(label) = example.labels else { panic!("one label") };
            let expected = i32::try_from(i * i % 7).unwrap() - 3;
            assert_eq!(table.labels.name(label), expected.to_string(), "{name} row {i}");
            let client = (i % 5 != 4).then(|| format!("site-{}", i % 3));
            assert_eq!(example.client, client, "{name} row {i}");
        }
    }
}

#[test]
fn every_shape_of_a_list_gives_the_same_codes() {
    for name in FILES.into_iter().chain(["two_level"]) {
        let table = read(name, Task::Diagnosis).unwrap();
        for (i, example) in table.examples.iter().enumerate() {
            let count = if i % 6 == 5 { 0 } else { i % 4 };
            let Labels::Many(codes) = &example.labels else { panic!("many labels") };
            let codes: Vec<&str> = codes.iter().map(|&code| table.labels.name(code)).collect();
            assert_eq!(codes, ["c0", "c1", "c2"][..count], "{name} row {i}");
        }
        assert_eq!(table.examples.len(), ROWS, "{name}");
    }
}

#[test]
fn labels_have_the_names_that_the_file_gives_to_their_numbers() {
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;

    let schema = "message root { required binary text (STRING); required int64 label; }";
    let schema = parquet::schema::parser::parse_message_type(schema).unwrap();
    let features = r#"{"info": {"features": {"text": {"dtype": "string", "_type": "Value"},
                       "label": {"names": ["negative", "positive"], "_type": "ClassLabel"}}}}"#;
    let write = |path: &Path, numbers: &[i64], entry: Option<&str>| {
        let entries = entry.map(|it| vec![KeyValue::new("huggingface".to_owned(), it.to_owned())]);
        let how = WriterProperties::builder().set_key_value_metadata(entries).build();
        let file = std::fs::File::create(path).unwrap();
        let mut writer =
            SerializedFileWriter::new(file, schema.clone().into(), how.into()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let text = |number: &i64| ByteArray::from(format!("text {number}").as_str());
        let texts: Vec<ByteArray> = numbers.iter().map(text).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(numbers, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let names = |entry: Option<&str>| {
        write(&path, &[1, 0, 1], entry);
        let table = open(&path, Task::Classes, Columns::default(), Limits::default()).unwrap();
        table.labels.names().to_vec()
    };
    assert_eq!(names(Some(features)), ["negative", "positive"]);
    assert_eq!(names(None), ["0", "1"]);
    assert_eq!(names(Some("not JSON")), ["0", "1"]);
    write(&path, &[1, 2], Some(features));
    let error = open(&path, Task::Classes, Columns::default(), Limits::default()).unwrap_err();
    assert!(error.to_string().contains("found the class 2, expected 0 to 1"), "{error}");
}

fn column(name: &str, label: &str) -> Result<Vec<String>> {
    let columns = Columns { label: Some(label.to_owned()), ..Columns::default() };
    let table = open(&fixture(name), Task::Classes, columns, Limits::default())?;
    let label = |labels: &Labels| {
        let Labels::One(label) = labels else { panic!("one label") };
        table.labels.name(*label).to_owned()
    };
    Ok(table.examples.iter().map(|example| label(&example.labels)).collect())
}

#[test]
fn two_columns_are_a_pair_in_parquet_too() {
    let text = Some(TextColumns::Pair(["text".into(), "kind".into()]));
    let columns = Columns { text, ..Columns::default() };
    let table = open(&fixture("snappy"), Task::Diagnosis, columns, Limits::default()).unwrap();
    assert_eq!(table.examples[3].body, Body::Pair(self::text(3), "-1".into()));
}

#[test]
fn numbers_and_truth_values_print_as_in_json() {
    for name in ["plain", "zstd", "delta", "delta_v2"] {
        let flags = column(name, "flag").unwrap();
        assert!((0..ROWS).all(|i| flags[i] == (i % 3 == 0).to_string()), "{name}: {flags:?}");
        let wide = column(name, "wide").unwrap();
        assert_eq!((wide[2].as_str(), wide[3].as_str()), ("2", "9223372036854775811"), "{name}");
    }
    for name in ["plain", "zstd"] {
        for (label, step) in [("share", 0.25), ("half", 0.5)] {
            let numbers = column(name, label).unwrap();
            let expected = |i: usize| serde_json::json!(i as f64 * step).to_string();
            assert!((0..ROWS).all(|i| numbers[i] == expected(i)), "{name}: {numbers:?}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_named_with_column_and_row_group() {
    let refused = |name: &str, label: &str, parts: &[&str]| {
        let error = column(name, label).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        assert!(error.contains(&format!("{name}.parquet")), "{error}");
    };
    refused("brotli", "kind", &["Brotli", "column \"text\" of row group 1", "Zstandard"]);
    refused("plain", "day", &["a date", "column \"day\" of row group 1"]);
    refused("plain", "pair", &["a structure", "column \"pair\""]);
    refused("plain", "missing", &["plain.parquet:1", "column \"missing\""]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    for (bytes, part) in [
        (&b"PAR1"[..], "4 bytes"),
        (b"PAR1 is not enough", "other first or last bytes"),
        (b"PAR1\xff\xff\xff\x7fPAR1", "a footer of 2147483647 bytes"),
        (b"PAR1....\x04\x00\x00\x00PARE", "encrypted"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = open(&path, Task::Classes, Columns::default(), Limits::default()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn what_rows_expand_to_is_held_to_the_limits() {
    for (limits, what) in [
        (Limits { expanded_bytes: 200, ..Limits::default() }, "expanded data"),
        (Limits { record_bytes: 20, ..Limits::default() }, "one record"),
    ] {
        let error = open(&fixture("snappy"), Task::Classes, columns(Task::Classes), limits);
        let error = error.unwrap_err();
        assert!(matches!(error, DataError::TooLarge { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
}

/// Every second byte changed, each in one of three ways, and the file cut or shortened at many places.
#[test]
fn a_damaged_file_is_read_or_refused_but_never_believed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged.parquet");
    // Small, so that a runaway shows as an error and not as a full memory.
    let limits = Limits { expanded_bytes: 1 << 20, record_bytes: 1 << 16 };
    let (mut accepted, mut refused) = (0, 0);
    for name in ["delta_v2", "gzip_v2", "snappy", "two_level", "zstd"] {
        let whole = std::fs::read(fixture(name)).unwrap();
        let mut attempt = |bytes: &[u8], tasks: &[Task]| {
            std::fs::write(&path, bytes).unwrap();
            for &task in tasks {
                match open(&path, task, columns(task), limits) {
                    Ok(_) => accepted += 1,
                    Err(_) => refused += 1,
                }
            }
        };
        let tasks = [Task::Classes, Task::Diagnosis];
        for at in (0..whole.len()).step_by(2) {
            let mut bytes = whole.clone();
            bytes[at] ^= [0x01, 0x80, 0xff][at % 3];
            attempt(&bytes, &tasks[at / 2 % 2..=at / 2 % 2]);
            if at % 58 == 0 {
                attempt(&whole[..at], &tasks);
                attempt(&[&whole[..at], &whole[(at + 3).min(whole.len())..]].concat(), &tasks);
            }
        }
    }
    assert!(accepted > 250 && refused > 1250, "{accepted} accepted, {refused} refused");
}

#[test]
fn a_survey_names_the_fields_of_structures_by_the_paths_that_read_them() {
    let survey = Survey::of(Format::Parquet, &fixture("plain"), &Reader::default(), 100).unwrap();
    let values = |name: &str| {
        let column = survey.column(name).unwrap_or_else(|| panic!("no {name}"));
        (column.filled, column.values.len())
    };
    assert_eq!((values("pair.a"), values("pair.b")), ((ROWS, ROWS), (ROWS, 1)));
    let named = Columns { label: Some("pair.b".to_owned()), ..Columns::default() };
    let table = open(&fixture("plain"), Task::Classes, named, Limits::default()).unwrap();
    assert_eq!(table.examples.len(), ROWS);
}
