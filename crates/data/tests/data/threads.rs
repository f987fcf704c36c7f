//! Rows are the same whatever the number of threads that read and tokenise them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use fedra_data::{
    Encoder, Format, Preparing, Reader, Stage, Table, TableBuilder, Task, Tokenizer, Work,
};

fn read(threads: usize, format: Format, path: &Path) -> Result<Table, String> {
    let mut builder = TableBuilder::new(Task::Classes);
    let work = Work::on(Some(threads), &|_| true);
    let read = Reader::default().read_with(&work, (format, path), &mut builder);
    read.map(|()| builder.finish()).map_err(|error| error.to_string())
}

/// Rows of which many hold quoted line ends, delimiters and quotes.
fn csv(rows: usize) -> String {
    let mut text = "text,label,client\n".to_owned();
    for row in 0..rows {
        let note = match row % 4 {
            0 => format!("plain note {row}"),
            1 => format!("\"two\nlines, of {row}\""),
            2 => format!("\"she said \"\"no\"\" {row}\n\n\""),
            _ => format!("  spaces {row} "),
        };
        let _ = writeln!(text, "{note},{},home-{}", ["good", "bad"][row % 2], row % 7);
    }
    text
}

#[test]
fn quoted_line_ends_fall_into_no_gap_between_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    fs::write(&path, csv(3001)).unwrap();
    let one = read(1, Format::Csv, &path).unwrap();
    assert_eq!(one.examples.len(), 3001);
    assert_eq!(one.examples[2997].body.to_text(), "two\nlines, of 2997");
    for threads in [2, 4] {
        assert_eq!(read(threads, Format::Csv, &path).unwrap(), one, "{threads}");
    }
}

#[test]
fn the_first_wrong_line_is_named_for_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    for (name, format, good, wrong) in [
        ("rows.csv", Format::Csv, "note,good\n", "note\n"),
        ("rows.csv", Format::Csv, "note,good\n", "\"note\" x,good\n"),
        ("rows.csv", Format::Csv, "note,good\n", "note,\n"),
        ("rows.jsonl", Format::JsonLines, "{\"text\":\"a\",\"label\":\"b\"}\n", "{\"text\":\n"),
        (
            "rows.jsonl",
            Format::JsonLines,
            "{\"text\":\"a\",\"label\":\"b\"}\n",
            "{\"text\":\"\"}\n",
        ),
    ] {
        let path = folder.path().join(name);
        let header = if name == "rows.csv" { "text,label\n" } else { "" };
        let rows = format!("{header}{}{wrong}{}{wrong}", good.repeat(1200), good.repeat(700));
        fs::write(&path, rows).unwrap();
        let line = 1201 + usize::from(!header.is_empty());
        let one = read(1, format, &path).unwrap_err();
        assert!(one.contains(&format!("{name}:{line}: ")), "{one}");
        assert_eq!(read(4, format, &path).unwrap_err(), one);
    }
}

#[test]
fn a_carriage_return_within_a_line_is_refused_and_loses_no_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    fs::write(&path, "text,label\r\na,good\r\nb\rc,bad\r\nd,good\r\n").unwrap();
    for threads in [1, 3] {
        let error = read(threads, Format::Csv, &path).unwrap_err();
        assert!(error.contains("rows.csv:3: found a carriage return within a line"), "{error}");
    }
    fs::write(&path, "text,label\r\na,good\r\n\"b\r\nc\",bad\r\n").unwrap();
    assert_eq!(read(2, Format::Csv, &path).unwrap().examples.len(), 2);
}

#[test]
fn tokens_and_a_grown_vocabulary_are_the_same_on_one_thread_and_on_four() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    fs::write(&path, csv(1500)).unwrap();
    let table = read(2, Format::Csv, &path).unwrap();
    let texts: Vec<String> = table.examples.iter().map(|row| row.body.to_text()).collect();
    let on = |threads: usize| {
        let work = Work::on(Some(threads), &|_| true);
        let tokenizer = Tokenizer::grow_with(&work, &texts, 200).unwrap();
        let encoder = Encoder::new(&tokenizer, 12).unwrap();
        let rows = work.map(Stage::Tokenising, &table.examples, |row| encoder.encode(row)).unwrap();
        (tokenizer.json().to_owned(), rows)
    };
    assert_eq!(on(1), on(4));
}

#[test]
fn whoever_follows_the_reading_hears_of_all_bytes_and_can_end_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    fs::write(&path, csv(20_000)).unwrap();
    let length = fs::metadata(&path).unwrap().len();
    let told = std::cell::RefCell::new(Vec::new());
    let follow = |step: Preparing| {
        assert_eq!((step.stage, step.total), (Stage::Reading, length));
        told.borrow_mut().push(step.done);
        true
    };
    let mut builder = TableBuilder::new(Task::Classes);
    let work = Work::on(Some(2), &follow);
    Reader::default().read_with(&work, (Format::Csv, &path), &mut builder).unwrap();
    let told = told.into_inner();
    assert!(told.is_sorted() && told.last() == Some(&length), "{:?}", told.last());

    let mut builder = TableBuilder::new(Task::Classes);
    let until_half = |step: Preparing| step.done < length / 2;
    let work = Work::on(Some(2), &until_half);
    let stopped = Reader::default().read_with(&work, (Format::Csv, &path), &mut builder);
    assert!(matches!(stopped, Err(fedra_data::DataError::Stopped)));
    assert!(builder.len() < 15_000, "{}", builder.len());
}
