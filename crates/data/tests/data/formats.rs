//! Files as they come, good and bad.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use std::fs;
use std::io::Write;
use std::path::Path;

use fedra_data::{
    AnswerTemplates, Body, ChoiceTemplates, Columns, DataError, Encoding, Format, FoundFormat,
    Labels, Limits, Mimic, Missing, Prompt, PromptTemplate, Reader, Split, Survey, Table,
    TableBuilder, Task, TextColumns, Uncoded,
};
use flate2::{Compression, write::GzEncoder};

fn read_with(reader: &Reader, format: Format, task: Task, text: &str) -> Result<Table, DataError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows");
    fs::write(&path, text).unwrap();
    let mut builder = TableBuilder::new(task);
    reader.read(format, &path, &mut builder)?;
    Ok(builder.finish())
}

fn read(format: Format, task: Task, text: &str) -> Result<Table, DataError> {
    read_with(&Reader::default(), format, task, text)
}

/// The refusal without the directory it was made in.
fn refusal(format: Format, task: Task, text: &str) -> String {
    let message = read(format, task, text).unwrap_err().to_string();
    message[message.find("rows:").unwrap()..].to_owned()
}

fn texts(table: &Table) -> Vec<String> {
    table.examples.iter().map(|example| example.body.to_text()).collect()
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn json_lines_carry_text_label_client_split_and_document() {
    let table = read(
        Format::JsonLines,
        Task::Classes,
        r#"{"text": "cough", "label": 3, "client": "a", "split": "dev", "document": "d1"}

{"label": "x", "text": ["two", "lines"], "client": null}
"#,
    )
    .unwrap();
    assert_eq!(table.labels.names(), ["3", "x"]);
    assert_eq!(texts(&table), ["cough", "two\nlines"]);
    let first = &table.examples[0];
    assert_eq!(first.client.as_deref(), Some("a"));
    assert_eq!(first.split, Some(Split::Validation));
    assert_eq!(first.document.as_deref(), Some("d1"));
    assert_eq!(table.examples[1].client, None);
}

#[test]
fn json_lines_carry_several_labels_as_a_list_or_in_one_cell() {
    let rows = "{\"text\": \"a\", \"labels\": [\"486\", \"4019\"]}\n{\"text\": \"b\", \"label\": \"4019; 5849\"}\n{\"text\": \"c\"}\n";
    let table = read(Format::JsonLines, Task::Diagnosis, rows).unwrap();
    let labels: Vec<&Labels> = table.examples.iter().map(|example| &example.labels).collect();
    assert_eq!(table.labels.names(), ["4019", "486", "5849"]);
    assert_eq!(labels[0], &Labels::Many(vec![0, 1]));
    assert_eq!(labels[1], &Labels::Many(vec![0, 2]));
    assert_eq!(labels[2], &Labels::Many(vec![]));
}

#[test]
fn named_columns_are_used_and_must_exist() {
    let columns =
        Columns { text: Some("note".into()), label: Some("kind".into()), ..Columns::default() };
    let reader = Reader { columns, client: Some("all".into()), ..Reader::default() };
    let good = "{\"note\": \"x\", \"kind\": \"k\"}\n";
    let table = read_with(&reader, Format::JsonLines, Task::Classes, good).unwrap();
    assert_eq!(table.examples[0].client.as_deref(), Some("all"));
    let bad = read_with(&reader, Format::JsonLines, Task::Classes, "{\"text\": \"x\"}\n");
    assert!(
        bad.unwrap_err()
            .to_string()
            .contains(":1: found the columns \"text\", expected column \"note\"")
    );
}

#[test]
fn a_bad_row_names_its_line() {
    let json = |text| refusal(Format::JsonLines, Task::Classes, text);
    assert!(json("{\"text\":\"a\",\"label\":\"x\"}\n\n[1]\n").starts_with("rows:3: found [1] ("));
    assert_eq!(
        json("{\"text\":\"a\"}"),
        "rows:1: found the columns \"text\", expected column \"label\"; data.columns.label names another"
    );
    assert_eq!(
        json("{\"text\":\"a\",\"label\":[\"x\",\"y\"]}"),
        "rows:1: found 2 labels, expected exactly one label"
    );
    assert_eq!(
        json("{\"text\":\"a\",\"label\":\"x\",\"split\":\"rest\"}"),
        "rows:1: found split \"rest\", expected train, validation or test"
    );
    assert!(json("{\"text\":{},\"label\":\"x\"}").starts_with("rows:1: found {} in \"text\""));
    let csv = |text| refusal(Format::Csv, Task::Classes, text);
    assert_eq!(
        csv("text,label\n\"two\nlines\",x\none,y,z\n"),
        "rows:4: found 3 fields, expected 2 as in the header"
    );
    assert_eq!(
        csv("text,label\na,x\n\"open,y\n\n"),
        "rows:3: found a quote that never closes, expected its end"
    );
    assert!(csv("text,label\n\"a\"b,x\n").starts_with("rows:2: found 'b' after a closing quote"));
    let conll = |text| refusal(Format::Conll, Task::Tokens, text);
    assert!(conll("a\tO\n\nb\n").starts_with("rows:3: found \"b\""));
    assert_eq!(
        conll("# doc = 1\na\tO\n\tO\n"),
        "rows:3: found \"\\tO\", expected a word and its tag in separate columns"
    );
}

#[test]
fn csv_reads_quotes_commas_line_ends_and_doubled_quotes() {
    let text = "\u{feff}text,label,client\r\n\"a, \"\"b\"\"\r\n\r\nc\",x,h1\r\n d \"e\",y,\r\n\r\n";
    let table = read(Format::Csv, Task::Classes, text).unwrap();
    assert_eq!(texts(&table), ["a, \"b\"\r\n\r\nc", " d \"e\""]);
    assert_eq!(table.examples[0].client.as_deref(), Some("h1"));
    assert_eq!(table.examples[1].client, None);
    let table = read(Format::Tsv, Task::Tokens, "text\ttags\nno fever\tO B-problem\n").unwrap();
    assert_eq!(table.examples[0].labels, Labels::PerWord(vec![0, 1]));
}

#[test]
fn a_delimiter_and_two_columns_are_read_as_said() {
    let columns = Columns {
        text: Some(TextColumns::Pair(["question".into(), "context".into()])),
        ..Columns::default()
    };
    let reader = Reader { columns, delimiter: Some(';'), ..Reader::default() };
    let text = "question;context;label\n\"pain; where?\";\"chest, left\";a\nx;;b\n";
    let csv = read_with(&reader, Format::Csv, Task::Classes, text).unwrap();
    assert_eq!(csv.examples[0].body, Body::Pair("pain; where?".into(), "chest, left".into()));
    let json = "{\"question\": \"pain; where?\", \"context\": \"chest, left\", \"label\": \"a\"}\n\
                {\"question\": \"x\", \"context\": \"\", \"label\": \"b\"}\n";
    let json = read_with(&reader, Format::JsonLines, Task::Classes, json).unwrap();
    assert_eq!(json, csv);
    let missing = read_with(&reader, Format::Csv, Task::Classes, "question;label\nx;a\n");
    assert!(missing.unwrap_err().to_string().contains("expected column \"context\""));
    let refused = read_with(&reader, Format::Csv, Task::Language, text).unwrap_err().to_string();
    assert!(refused.contains("found two texts, expected one"), "{refused}");

    let wrong = refusal(Format::Csv, Task::Classes, "text;label\nx;y\n");
    assert!(wrong.ends_with("; data.delimiter = \";\" would cut it"), "{wrong}");
    for delimiter in ['"', '\n', '\u{a7}'] {
        let reader = Reader { delimiter: Some(delimiter), ..Reader::default() };
        let error = read_with(&reader, Format::Csv, Task::Classes, text).unwrap_err().to_string();
        assert!(error.contains("expected one ASCII character"), "{error}");
    }
}

#[test]
fn a_first_line_that_declares_the_delimiter_is_no_row() {
    for text in ["sep=;\ntext;label\na, b;x\n", "SEP=;\r\ntext;label\r\na, b;x\r\n"] {
        let table = read(Format::Csv, Task::Classes, text).unwrap();
        assert_eq!((texts(&table), table.labels.names()), (vec!["a, b".into()], &["x".into()][..]));
        let found = survey(text).unwrap();
        assert_eq!(
            found.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
            ["text", "label"]
        );
    }
    // Later, or with more behind it, it is a row like any other.
    let table = read(Format::Csv, Task::Classes, "text,label\nsep=;,x\n").unwrap();
    assert_eq!(texts(&table), ["sep=;"]);
}

#[test]
fn a_table_with_a_name_twice_is_not_surveyed() {
    let told = survey("text,note,note,,\na,b,c,,\n").unwrap_err().to_string();
    assert!(told.contains("found two columns called \"note\", expected every name once"), "{told}");
    assert_eq!(survey("text,note,,\na,b,,\n").unwrap().rows, 1);
}

/// A file is looked at as `FoundFormat` takes it to be written.
fn survey(text: &str) -> Result<Survey, DataError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    fs::write(&path, text).unwrap();
    let found = FoundFormat::of(&path)?;
    let reader = Reader { delimiter: found.delimiter, ..Reader::default() };
    Survey::of(found.format, &path, &reader, 100)
}

#[test]
fn an_encoding_is_read_as_said_or_refused_with_its_line_and_byte() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows");
    let read = |encoding, bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let mut builder = TableBuilder::new(Task::Classes);
        let reader = Reader { encoding, ..Reader::default() };
        reader.read(Format::Csv, &path, &mut builder)?;
        Ok::<_, DataError>(texts(&builder.finish()))
    };
    let latin = b"text,label\ncaf\xe9,x\n";
    assert_eq!(read(Encoding::Latin1, latin).unwrap(), ["caf\u{e9}"]);
    let mut wide = vec![0xff, 0xfe];
    wide.extend("text,label\r\ncaf\u{e9},x\r\n".encode_utf16().flat_map(u16::to_le_bytes));
    assert_eq!(read(Encoding::Utf16, &wide).unwrap(), ["caf\u{e9}"]);
    assert_eq!(read(Encoding::Utf16, &zipped(&wide)).unwrap(), ["caf\u{e9}"]);

    let refused = |encoding, bytes: &[u8]| {
        let message = read(encoding, bytes).unwrap_err().to_string();
        message[message.find("rows:").unwrap()..].to_owned()
    };
    let expected = "rows:2: found the byte 0xe9 at byte 4 of the line, expected UTF-8; \
                    data.encoding = \"windows-1252\" may read it";
    assert_eq!(refused(Encoding::Utf8, latin), expected);
    assert!(refused(Encoding::Utf8, &wide).ends_with("data.encoding = \"utf-16\" may read it"));
    let expected = "rows:2: found the byte 0x93 at byte 12, expected text in latin-1";
    assert_eq!(refused(Encoding::Latin1, b"text,label\n\x93x\x94,y\n"), expected);
}

#[test]
fn a_damaged_byte_in_utf8_is_refused_and_makes_no_other_encoding() {
    let rows = "Fi\u{e8}vre,x\nC\u{153}ur,y\n";
    for damaged in [
        [b"text,label\n", rows.as_bytes(), b"caf\xe9,x\n"].concat(),
        [b"text,label\ncaf\xe9,x\n", rows.as_bytes()].concat(),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.csv");
        fs::write(&path, &damaged).unwrap();
        let found = FoundFormat::of(&path).unwrap();
        assert_eq!(found.encoding, None);
        let refused = Survey::of(found.format, &path, &Reader::default(), 100).unwrap_err();
        let line = damaged.split(|&byte| byte == b'\n').position(|line| line.contains(&0xe9));
        let place = format!("rows.csv:{}: found the byte 0xe9 at byte 4", line.unwrap() + 1);
        assert!(refused.to_string().contains(&place), "{refused}");
    }
    let damaged = [b"text,label\n", rows.as_bytes(), b"caf\xe9,x\n"].concat();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.csv");
    fs::write(&path, &damaged).unwrap();
    let refused = Survey::of(Format::Csv, &path, &Reader::default(), 100).unwrap_err().to_string();
    assert!(refused.contains("expected UTF-8 like the letters before it"), "{refused}");
    assert!(!refused.contains("windows-1252"), "{refused}");
}

#[test]
fn files_of_another_kind_are_named_and_none_is_read_in_silence() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows");
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let found = FoundFormat::of(&path).map(drop);
        let mut builder = TableBuilder::new(Task::Classes);
        let read = Reader::default().read(Format::Csv, &path, &mut builder);
        let read = read.unwrap_err().to_string();
        if let Err(found) = found {
            assert_eq!(found.to_string(), read);
        }
        read[read.find("rows:").unwrap()..].to_owned()
    };
    let zip = |name: &[u8]| [b"PK\x03\x04\x14\0\0\0\x08\0", name, b"\x8f\x9d"].concat();
    for (bytes, found) in [
        (zip(b"[Content_Types].xml..xl/workbook.xml"), "an Excel workbook"),
        (zip(b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet"), "an OpenDocument"),
        (zip(b"[Content_Types].xml..word/document.xml"), "a Word document"),
        (zip(b"notes.csv"), "a ZIP archive"),
        (b"%PDF-1.7\n".to_vec(), "a PDF document"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0".to_vec(), "a file of an old version of Excel"),
        (b"[\n  {\"text\": \"a\", \"label\": \"b\"}\n]\n".to_vec(), "one JSON array"),
        (b"text,label\ra,x\rb,y\r".to_vec(), "lines that end with a carriage return alone"),
        (b"text,label\na\0b,x\n".to_vec(), "the byte 0x00 at byte 2 of the line, expected text"),
    ] {
        let told = refused(&bytes);
        assert!(told.contains(&format!("found {found}")), "{told}");
    }
    let lines = refusal(Format::JsonLines, Task::Classes, "[{\"text\": \"a\"}]");
    assert!(lines.contains("found one JSON array, expected JSON lines"), "{lines}");
    // The letters of UTF-16 are bytes of UTF-8 too, where they are ASCII.
    let wide: Vec<u8> = "text,label\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(&path, wide).unwrap();
    let mut builder = TableBuilder::new(Task::Classes);
    let refused = Reader::default().read(Format::Csv, &path, &mut builder).unwrap_err();
    assert!(refused.to_string().ends_with("data.encoding = \"utf-16le\" may read it"), "{refused}");
}

#[test]
fn conll_reads_documents_clients_and_a_hash_as_a_word() {
    let text = "# doc = 7\n# client = h1\nno\tO\nfever\tB-problem\n\n#\tO\n\n# doc 8\nx NN O\n";
    let table = read(Format::Conll, Task::Concepts, text).unwrap();
    let documents: Vec<_> = table.examples.iter().map(|e| e.document.as_deref().unwrap()).collect();
    assert_eq!(documents, ["7", "7", "8"]);
    assert_eq!(texts(&table), ["no fever", "#", "x"]);
    assert!(table.examples.iter().all(|example| example.client.as_deref() == Some("h1")));
    assert_eq!(table.labels.names(), ["O", "B-problem", "I-problem"]);
}

#[test]
fn gzip_is_read_whatever_the_name_and_in_several_members() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.jsonl");
    let mut bytes = zipped(b"{\"text\":\"a\",\"label\":\"x\"}\n");
    bytes.extend(zipped(b"{\"text\":\"b\",\"label\":\"y\"}\n"));
    fs::write(&path, &bytes).unwrap();
    let mut builder = TableBuilder::new(Task::Classes);
    Reader::default().read(Format::JsonLines, &path, &mut builder).unwrap();
    assert_eq!(texts(&builder.finish()), ["a", "b"]);

    fs::write(&path, &bytes[..bytes.len() - 12]).unwrap();
    let mut builder = TableBuilder::new(Task::Classes);
    let error = Reader::default().read(Format::JsonLines, &path, &mut builder).unwrap_err();
    assert!(error.to_string().contains("rows.jsonl:2: found unreadable data"), "{error}");
}

#[test]
fn a_decompression_bomb_stops_at_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bomb");
    let limits = Limits { expanded_bytes: 1 << 20, record_bytes: 1 << 16 };
    let reader = Reader { limits, ..Reader::default() };
    let stop = |bytes: &[u8], format| {
        fs::write(&path, zipped(bytes)).unwrap();
        let mut builder = TableBuilder::new(Task::Tokens);
        let error = reader.read(format, &path, &mut builder).unwrap_err();
        let DataError::TooLarge { what, line, .. } = error else { panic!("{error}") };
        (what, line)
    };
    assert_eq!(stop(&vec![b'a'; 50 << 20], Format::JsonLines), ("one record", 1));
    assert_eq!(stop(&b"x\tO\n".repeat(1 << 19), Format::Conll), ("expanded data", (1 << 18) + 1));
    let open_quote = ["text,tags\n\"".as_bytes(), &b"x\n".repeat(1 << 19)].concat();
    assert_eq!(stop(&open_quote, Format::Csv), ("one record", 2));
}

#[test]
fn bytes_that_are_not_utf8_are_placed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows");
    fs::write(&path, b"x\tO\nca\xff\tO\n").unwrap();
    let mut builder = TableBuilder::new(Task::Tokens);
    let error = Reader::default().read(Format::Conll, &path, &mut builder).unwrap_err();
    assert!(
        error.to_string().ends_with(
            "rows:2: found the byte 0xff at byte 3 of the line, expected UTF-8; \
                data.encoding = \"windows-1252\" may read it"
        ),
        "{error}"
    );
}

fn i2b2(concepts: &str) -> Result<Table, DataError> {
    let root = tempfile::tempdir().unwrap();
    for institution in ["beth", "partners"] {
        let part = root.path().join(institution);
        fs::create_dir_all(part.join("txt")).unwrap();
        fs::create_dir_all(part.join("concept")).unwrap();
        let text = "Discharge Summary\n\nThe chest  x-ray showed a left \"mass\" .\n";
        fs::write(part.join("txt/r1.txt"), text).unwrap();
        fs::write(part.join("concept/r1.con"), concepts).unwrap();
    }
    let mut builder = TableBuilder::new(Task::Concepts);
    Reader::default().read(Format::I2b2, root.path(), &mut builder)?;
    Ok(builder.finish())
}

#[test]
fn i2b2_reads_lines_from_one_and_words_from_zero() {
    let table = i2b2(
        "c=\"the chest x-ray\" 3:0 3:2||t=\"test\"\nc=\"a left \"mass\"\" 3:4 3:6||t=\"problem\"\nc=\"left\" 3:5 3:5||t=\"test\"\n",
    )
    .unwrap();
    assert_eq!(table.examples.len(), 4);
    let line = &table.examples[1];
    assert_eq!(line.client.as_deref(), Some("beth"));
    assert_eq!(line.document.as_deref(), Some("beth/r1"));
    let Labels::PerWord(tags) = &line.labels else { panic!() };
    let tags: Vec<&str> = tags.iter().map(|&tag| table.labels.name(tag)).collect();
    assert_eq!(
        tags,
        ["B-test", "I-test", "I-test", "O", "B-problem", "I-problem", "I-problem", "O"]
    );
}

#[test]
fn i2b2_refuses_marks_that_slipped() {
    let message = |concepts: &str| {
        let message = i2b2(concepts).unwrap_err().to_string();
        message[message.find("r1.con").unwrap()..].to_owned()
    };
    assert_eq!(
        message("\nc=\"chest x-ray\" 3:0 3:1||t=\"test\"\n"),
        "r1.con:2: found concept \"chest x-ray\", expected the words there, \"the chest\""
    );
    assert!(message("c=\"mass\" 9:0 9:0||t=\"test\"\n").contains("found line 9"));
    assert!(message("c=\"mass\" 3:6 3:60||t=\"test\"\n").contains("found word 3:60"));
    let huge = format!("c=\"mass\" 3:6 3:{}||t=\"test\"\n", usize::MAX);
    assert!(message(&huge).contains("expected a place in the 3 lines"));
    assert!(message("c=\"mass\" 3:6\n").contains("expected c=\"WORDS\" LINE:WORD"));
    assert!(message("c=\"mass\" 0:6 3:6||t=\"test\"\n").contains("found line 0"));
}

const NOTES: &str = r#""ROW_ID","SUBJECT_ID","HADM_ID","CHARTDATE","CHARTTIME","STORETIME","CATEGORY","DESCRIPTION","CGID","ISERROR","TEXT"
1,10,100,2101-01-01,,,"Nursing","Report",,,"not a summary"
2,10,100,2101-01-01,,,"Discharge summary","Report",,,"Admission Date:  [**2101-1-1**]

Known ""htn"", stable."
3,10,100,2101-01-01,,,"Discharge summary","Addendum",,,"more"
4,11,101,2101-01-01,,,"Discharge summary","Report",,1,"withdrawn"
5,11,101,2101-01-01,,,"Discharge summary","Report",,,"renal"
6,12,102,2101-01-01,,,"Discharge summary","Report",,,"rare"
7,12,,2101-01-01,,,"Discharge summary","Report",,,"no stay"
"#;
const CODES: &str = "ROW_ID,SUBJECT_ID,HADM_ID,SEQ_NUM,ICD9_CODE\n1,10,100,1,\"4019\"\n2,10,100,2,\"5849\"\n3,11,101,1,\"5849\"\n4,11,101,2,\n5,12,102,1,\"V3001\"\n6,13,103,1,\"4019\"\n";

fn mimic(options: &Mimic, notes: &str) -> Result<Table, DataError> {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("NOTEEVENTS.csv.gz"), zipped(notes.as_bytes())).unwrap();
    fs::write(directory.path().join("DIAGNOSES_ICD.csv"), CODES).unwrap();
    let mut builder = TableBuilder::new(Task::Diagnosis);
    options.read(directory.path(), Limits::default(), &mut builder)?;
    Ok(builder.finish())
}

#[test]
fn mimic_takes_one_summary_a_stay_with_the_commonest_codes() {
    let table = mimic(&Mimic { codes: 2, ..Mimic::default() }, NOTES).unwrap();
    assert_eq!(table.labels.names(), ["4019", "5849"]);
    assert_eq!(
        texts(&table),
        ["Admission Date:  [**2101-1-1**]\n\nKnown \"htn\", stable.", "renal"]
    );
    assert_eq!(table.examples[0].labels, Labels::Many(vec![0, 1]));
    assert_eq!(table.examples[0].document.as_deref(), Some("subject-10"));
    assert_eq!(table.examples[1].labels, Labels::Many(vec![1]));

    let options = Mimic { codes: 2, uncoded: Uncoded::Keep, characters: Some(3), notes: Some(3) };
    let table = mimic(&options, NOTES).unwrap();
    assert_eq!(texts(&table), ["Adm", "ren", "rar"]);
    assert_eq!(table.examples[2].labels, Labels::Many(vec![]));
}

#[test]
fn mimic_names_a_missing_column_and_a_broken_record() {
    let error = mimic(&Mimic::default(), &NOTES.replace("ISERROR", "OTHER")).unwrap_err();
    assert!(error.to_string().contains("expected a column ISERROR"), "{error}");
    let error = mimic(&Mimic::default(), &NOTES.replace(",\"renal\"", "")).unwrap_err();
    assert!(error.to_string().contains("csv.gz:8: found 10 fields, expected 11"), "{error}");
}

#[test]
#[ignore = "needs ../shared/data: tools/test-shared"]
fn real_files_read_whole() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let open = |file: &str, format, task, columns| {
        let path = data.join(file);
        let mut builder = TableBuilder::new(task);
        Reader { columns, ..Reader::default() }.read(format, &path, &mut builder).unwrap();
        builder.finish()
    };
    let plain = Columns::default;
    let table = open("agnews/test.jsonl.gz", Format::JsonLines, Task::Classes, plain());
    assert_eq!((table.examples.len(), table.labels.len()), (7600, 4));
    let note = Columns { document: Some("note".into()), ..plain() };
    let table = open("mtsamples/sections16_train.jsonl.gz", Format::JsonLines, Task::Classes, note);
    assert_eq!((table.examples.len(), table.labels.len()), (7533, 16));
    assert!(table.examples.iter().all(|e| e.client.is_some() && e.document.is_some()));
    let lines = Columns { text: Some("lines".into()), ..plain() };
    let table = open("tinyshakespeare/clients.jsonl", Format::JsonLines, Task::Language, lines);
    assert_eq!(table.examples.len(), 180);
    let table = open("bc5cdr/train.tsv", Format::Conll, Task::Tokens, plain());
    assert_eq!((table.examples.len(), table.labels.len()), (4560, 5));
    let table = open("maccrobat2020/concept3_train.tsv", Format::Conll, Task::Concepts, plain());
    assert_eq!((table.examples.len(), table.labels.len()), (3139, 7));
    let starts = |example: &fedra_data::Example| {
        let Labels::PerWord(tags) = &example.labels else { panic!("one tag per word") };
        tags.iter().filter(|&&tag| table.labels.name(tag).starts_with("B-")).count()
    };
    assert_eq!(table.examples.iter().map(starts).sum::<usize>(), 7834);
    let documents: std::collections::BTreeSet<_> =
        table.examples.iter().map(|example| example.document.clone()).collect();
    assert_eq!(documents.len(), 140);
    assert!(matches!(table.examples[0].body, Body::Words(_)));
}

#[test]
fn numbers_that_were_rounded_and_columns_of_one_name_are_refused() {
    let row =
        |client: &str| format!("{{\"text\": \"a\", \"label\": \"x\", \"client\": {client}}}\n");
    for wide in ["12345678901234567890121", "9007199254740993.0", "-1e300"] {
        let said = refusal(Format::JsonLines, Task::Classes, &row(wide));
        assert!(said.contains("in \"client\", expected text, or numbers"), "{said}");
    }
    for exact in ["18446744073709551615", "0.5", "-7"] {
        let table = read(Format::JsonLines, Task::Classes, &row(exact)).unwrap();
        assert_eq!(table.examples[0].client.as_deref(), Some(exact));
    }
    let said = refusal(Format::Csv, Task::Classes, "text,label,label\na,x,y\n");
    assert!(said.contains("found two columns called \"label\", expected one"), "{said}");
}

/// Every row inside a record repeats what the record says once, so a small file can make large rows.
#[test]
fn rows_inside_a_record_are_bounded_by_what_they_become() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    let items: Vec<serde_json::Value> =
        (0..50).map(|number| serde_json::json!({ "q": number, "l": number % 2 })).collect();
    let record = serde_json::json!({ "text": "x".repeat(1000), "items": items });
    fs::write(&path, record.to_string()).unwrap();
    let answers = [("0", "no"), ("1", "yes")];
    let answers = answers.map(|(l, text)| (l.to_owned(), PromptTemplate::parse(text).unwrap()));
    let prompt = Prompt {
        prompt: PromptTemplate::parse("{text} {items.q}?").unwrap(),
        answers: AnswerTemplates::Choices(ChoiceTemplates::ByLabel(answers.into())),
    };
    let columns = Columns {
        rows: Some("items".to_owned()),
        label: Some("items.l".to_owned()),
        ..Columns::default()
    };
    let read = |expanded_bytes| {
        let limits = Limits { expanded_bytes, ..Limits::default() };
        let (prompt, columns) = (Some(prompt.clone()), columns.clone());
        let reader = Reader { prompt, columns, limits, ..Reader::default() };
        let mut builder = TableBuilder::new(Task::Choice);
        reader.read(Format::JsonLines, &path, &mut builder).map(|()| builder.finish())
    };
    let table = read(100_000).unwrap();
    assert_eq!((table.examples.len(), table.label_counts()), (50, vec![25, 25]));
    assert!(table.examples[49].body.to_text().ends_with("x 49?"));
    let refused = read(20_000).unwrap_err().to_string();
    assert!(refused.contains("more than 20000 bytes of expanded data"), "{refused}");
}

#[test]
fn rows_without_a_value_are_refused_together_or_left_out() {
    let table = "text,label\na,x\nb,\n ,y\nc, x \n,\n\"\",z\nd, \n";
    let json = r#"{"text": "a", "label": "x"}
{"text": "b", "label": null}
{"text": " ", "label": "y"}
{"text": "c", "label": " x "}
{"label": "z"}
{"text": [], "label": "z"}
{"text": "d", "label": []}
"#;
    for (format, text, first) in [(Format::Csv, table, 3), (Format::JsonLines, json, 2)] {
        let refused = refusal(format, Task::Classes, text);
        assert!(refused.starts_with(&format!("rows:{first}: found ")), "{refused}");
        let lines: Vec<String> = (first..first + 4)
            .map(|line| if line < first + 2 { line } else { line + 1 }.to_string())
            .collect();
        let counted = format!(
            "5 of 7 rows lack a text or a label (lines {}, ..); data.missing = \"drop\" leaves such rows \
             out",
            lines.join(", ")
        );
        assert!(refused.ends_with(&counted), "{refused}");
        let reader = Reader { missing: Missing::Drop, ..Reader::default() };
        let kept = read_with(&reader, format, Task::Classes, text).unwrap();
        assert_eq!(texts(&kept), ["a", "c"]);
        assert_eq!(kept.labels.names(), ["x"]);
        assert_eq!((kept.reading.left_out.rows, kept.reading.trimmed.labels), (5, 1));
        let places: Vec<u64> =
            kept.examples.iter().filter_map(|example| Some(example.place.get()?.1)).collect();
        assert_eq!(places, [first - 1, first + 2]);
    }
    // What no row has is a column under another name, whatever is to be left out.
    let reader = Reader { missing: Missing::Drop, ..Reader::default() };
    let none = "{\"text\": \"a\", \"lable\": \"x\"}\n";
    let refused =
        read_with(&reader, Format::JsonLines, Task::Classes, none).unwrap_err().to_string();
    assert!(refused.contains(":1: found the columns \"lable\", \"text\""), "{refused}");
    let refused = read_with(&reader, Format::Csv, Task::Classes, "text,lable\na,x\n").unwrap_err();
    assert!(refused.to_string().contains("expected column \"label\""), "{refused}");
    // Several labels may be none, and a text may not.
    let several = read(Format::JsonLines, Task::Diagnosis, "{\"text\": \"a\"}\n").unwrap();
    assert_eq!(several.examples.len(), 1);
    let rows = "{\"text\": \"a\"}\n{\"text\": \"\"}\n";
    let refused = refusal(Format::JsonLines, Task::Diagnosis, rows);
    assert!(
        refused.starts_with("rows:2: found no text, expected at least one word: 1 of 2 rows lacks")
    );
}

#[test]
fn a_key_that_stands_twice_is_refused_with_its_line() {
    let rows = "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"b\", \"label\": \"x\", \"label\": \"y\"}\n";
    assert_eq!(
        refusal(Format::JsonLines, Task::Classes, rows),
        "rows:2: found the key \"label\" twice, expected every key once"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    fs::write(&path, rows).unwrap();
    let looked = Survey::of(Format::JsonLines, &path, &Reader::default(), 10).unwrap_err();
    assert!(
        looked.to_string().ends_with(":2: found the key \"label\" twice, expected every key once")
    );
}

#[test]
fn blanks_around_names_make_no_other_class_client_or_split() {
    let table = "text,label,client,split,document\na,x, north ,train ,d\nb,x ,north,\ttrain,d \nc, x,north, test,e\n";
    let table = read(Format::Csv, Task::Classes, table).unwrap();
    assert_eq!(table.labels.names(), ["x"]);
    assert!(table.examples.iter().all(|example| example.client.as_deref() == Some("north")));
    let splits: Vec<Option<Split>> = table.examples.iter().map(|example| example.split).collect();
    assert_eq!(splits, [Some(Split::Train), Some(Split::Train), Some(Split::Test)]);
    assert_eq!(table.examples[0].document, table.examples[1].document);
}
