//! Answers beside the rows that they are about: JSON lines, CSV, TSV, Parquet, or lines for people.
//!
//! A row that already has a field whose name an answer needs ([`super::cells`]) is refused: it would have two.
//!
//! Rows of JSON lines may have their keys in any order, and lack some. A table has a column for every key,
//! in the order in which keys are first seen ([`super::keys`]); what a row lacks is an empty cell.

use std::collections::BTreeMap;
use std::io::Write;

use fedra_data::{Body, Field, Record, TextFormat, printable};
use serde_json::json;

use super::cells::{Cell, Kind, columns, in_object, in_table};
use super::parquet::ParquetAnswers;
use super::prediction::{FoundSpan, LabelProbability, Prediction};
use crate::apply::trained_model::Reading;
use crate::config::ConfigError;
use crate::error::{Error, Result};
use crate::text::grid::listed;

/// What is written.
#[derive(Clone, Copy, Debug)]
pub struct WriteSettings {
    /// How.
    pub format: TextFormat,
    /// How many labels `probabilities` has; by default 5 in JSON, and the column is absent in a table.
    pub top: Option<usize>,
    /// What the model answers, by which a table has its columns before its first row.
    pub answers: Reading,
}

/// Fields that an answer may have.
const OWN: [&str; 5] = ["predicted", "probability", "probabilities", "tags", "truncated"];
/// Columns that a message names one by one.
const MOST_NAMED: usize = 12;
/// Letters of a text in a line for people.
const SHOWN: usize = 60;

/// Writes answers.
pub struct PredictionWriter<W: Write + Send> {
    output: Output<W>,
    settings: WriteSettings,
    /// The columns of a table, once they are known.
    columns: Option<TableColumns>,
}

enum Output<W: Write + Send> {
    Lines(W),
    /// A table before its first row.
    Waiting(W),
    Delimited(Box<csv::Writer<W>>),
    Parquet(Box<ParquetAnswers<W>>),
    /// A table that could not be begun.
    Lost,
}

impl<W: Write + Send> PredictionWriter<W> {
    /// Nothing written yet.
    pub fn new(output: W, settings: WriteSettings) -> Self {
        let output = match settings.format {
            TextFormat::JsonLines | TextFormat::Lines => Output::Lines(output),
            TextFormat::Csv | TextFormat::Tsv | TextFormat::Parquet => Output::Waiting(output),
        };
        Self { output, settings, columns: None }
    }

    /// Whether a table is written whose columns nobody has told yet.
    pub(super) fn needs_columns(&self) -> bool {
        matches!(self.output, Output::Waiting(_)) && self.columns.is_none()
    }

    /// Takes note of the columns that all rows together have.
    pub(super) fn columns(&mut self, names: &[String]) -> Result<()> {
        check_free(names.iter().map(String::as_str))?;
        self.columns = Some(TableColumns::of(names));
        Ok(())
    }

    /// Writes one row.
    pub(super) fn write(
        &mut self,
        record: &Record,
        body: &Body,
        prediction: &Prediction,
    ) -> Result<()> {
        self.begin()?;
        let top = self.settings.top;
        let columns = self.columns.as_ref();
        let fields = || columns.map_or(Ok(Vec::new()), |columns| columns.fields(record));
        let answer = || in_table(prediction, top).into_iter();
        let written = match &mut self.output {
            Output::Parquet(answers) => {
                let fields = fields()?.into_iter().map(cell_of);
                return answers.write(fields.chain(answer()).collect());
            }
            Output::Delimited(table) => {
                let fields = fields()?.into_iter().map(Field::to_cell);
                let cells = fields.chain(answer().map(|cell| cell.to_text()));
                table.write_record(cells).map_err(std::io::Error::from)
            }
            Output::Lines(output) if self.settings.format == TextFormat::Lines => {
                writeln!(output, "{}", for_people((record, body), prediction))
            }
            Output::Lines(output) => {
                check_free(record.fields.iter().map(|(name, _)| name.as_str()))?;
                let own = record.fields.iter();
                let own = own.map(|(name, field)| format!("{}: {}", json!(name), field.to_json()));
                let answer = in_object(prediction, top).into_iter();
                let answer = answer.map(|(name, cell)| format!("\"{name}\": {}", cell.to_json()));
                writeln!(output, "{{{}}}", own.chain(answer).collect::<Vec<String>>().join(", "))
            }
            Output::Waiting(_) | Output::Lost => {
                Err(std::io::Error::other("an earlier part failed"))
            }
        };
        written.map_err(unwritten)
    }

    /// Ends the output and gives it back; a table without rows still has its header.
    pub fn finish(mut self) -> Result<W> {
        if self.settings.format == TextFormat::Parquet {
            // Where nobody told of any, the input has none.
            self.columns.get_or_insert_with(|| TableColumns::of(&[]));
        }
        if self.columns.is_some() {
            self.begin()?;
        }
        self.flush()?;
        match self.output {
            Output::Lines(output) | Output::Waiting(output) => Ok(output),
            Output::Delimited(table) => {
                table.into_inner().map_err(|error| unwritten(error.into_error()))
            }
            Output::Parquet(answers) => answers.finish(),
            Output::Lost => {
                Err(unwritten(std::io::Error::other("the output could not be started")))
            }
        }
    }

    /// Lets what was written so far go.
    pub(super) fn flush(&mut self) -> Result<()> {
        let flushed = match &mut self.output {
            Output::Lines(output) => output.flush(),
            Output::Delimited(table) => table.flush(),
            // A file that is cut short is none, so nobody waits for its first rows.
            Output::Parquet(_) | Output::Waiting(_) | Output::Lost => Ok(()),
        };
        flushed.map_err(unwritten)
    }

    /// Begins a table whose columns are known.
    fn begin(&mut self) -> Result<()> {
        let (Output::Waiting(_), Some(known)) = (&self.output, &self.columns) else {
            return Ok(());
        };
        let Output::Waiting(output) = std::mem::replace(&mut self.output, Output::Lost) else {
            return Ok(());
        };
        let own = columns(self.settings.answers, self.settings.top).into_iter();
        let given = known.names.iter().map(|name| (name.clone(), Kind::Text));
        let all = given.chain(own.map(|(name, kind)| (name.to_owned(), kind)));
        let separator = if self.settings.format == TextFormat::Tsv { b'\t' } else { b',' };
        self.output = if self.settings.format == TextFormat::Parquet {
            Output::Parquet(Box::new(ParquetAnswers::new(output, all.collect())?))
        } else {
            let mut table = csv::WriterBuilder::new().delimiter(separator).from_writer(output);
            let header = table.write_record(all.map(|(name, _)| name));
            header.map_err(|error| unwritten(error.into()))?;
            Output::Delimited(Box::new(table))
        };
        Ok(())
    }
}

/// What a row has in a column, as text.
fn cell_of(field: &Field) -> Cell {
    match field {
        Field::Absent => Cell::Absent,
        Field::Json(raw) if raw.get() == "null" => Cell::Absent,
        Field::Text(_) | Field::List(_) | Field::Json(_) => Cell::Text(field.to_cell()),
    }
}

/// The columns of a table, and where each is.
struct TableColumns {
    names: Vec<String>,
    places: BTreeMap<String, usize>,
}

/// What a row has in a column that it lacks.
static LACKING: Field = Field::Absent;

impl TableColumns {
    fn of(names: &[String]) -> Self {
        let places = names.iter().enumerate().map(|(place, name)| (name.clone(), place));
        Self { places: places.collect(), names: names.to_vec() }
    }

    /// The fields of a row in the order of the columns, whatever order they came in.
    fn fields<'r>(&self, record: &'r Record) -> Result<Vec<&'r Field>> {
        let fields = &record.fields;
        // A table may have two columns of one name; their order tells them apart.
        if fields.len() == self.names.len()
            && fields.iter().map(|(name, _)| name).eq(self.names.iter())
        {
            return Ok(fields.iter().map(|(_, field)| field).collect());
        }
        let mut cells: Vec<Option<&Field>> = vec![None; self.names.len()];
        for (name, field) in fields {
            let Some(place) = self.places.get(name) else {
                let found = format!("a new key {name:?} after the table was started");
                let expected = format!("one of {}", listed(self.names.iter(), MOST_NAMED));
                let hint = "use a file, which is scanned for its keys first, or jsonl, which needs no columns";
                return Err(ConfigError::new("output", found, expected).with_hint(hint).into());
            };
            if cells[*place].replace(field).is_some() {
                let found = format!("the key {name:?} twice in a row");
                return Err(ConfigError::new("input", found, "it once in a table").into());
            }
        }
        Ok(cells.into_iter().map(|cell| cell.unwrap_or(&LACKING)).collect())
    }
}

fn unwritten(source: std::io::Error) -> Error {
    Error::Unwritten { what: "the answers".to_owned(), source }
}

/// Refuses fields that an answer needs for itself.
fn check_free<'a>(mut names: impl Iterator<Item = &'a str>) -> Result<()> {
    if let Some(name) = names.find(|name| OWN.contains(name)) {
        let expected = "no column of that name: the answer goes there";
        let refusal = ConfigError::new("input", format!("a column {name:?}"), expected);
        return Err(refusal.with_hint("rename the column").into());
    }
    Ok(())
}

fn for_people((record, body): (&Record, &Body), prediction: &Prediction) -> String {
    // An image is named by where it lies; nothing of it is shown.
    let text = match body {
        Body::Image(_) => {
            let named = record.fields.iter().find(|(name, _)| name == "image");
            excerpt(&named.map_or(String::new(), |(_, field)| field.to_cell()))
        }
        Body::Text(_) | Body::Pair(..) | Body::Words(_) | Body::Conversation(_) => {
            excerpt(&body.to_text())
        }
    };
    let label =
        |one: &LabelProbability| format!("{} {:.3}", printable(&one.label), one.probability);
    match prediction {
        Prediction::One { labels, .. } => {
            format!("{}  {text}", labels.first().map_or(String::new(), label))
        }
        Prediction::Several { labels, answered, .. } => {
            let all: Vec<String> = labels[..*answered].iter().map(label).collect();
            let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
            format!("{all}  {text}")
        }
        Prediction::Spans { spans, .. } => {
            let line = |span: &FoundSpan| {
                let (label, found) = (printable(&span.label).into_owned(), excerpt(&span.text));
                let FoundSpan { start, end, probability, .. } = span;
                format!("  {start}..{end}  {label} {probability:.3}  {found}")
            };
            let lines: Vec<String> = spans.iter().map(line).collect();
            [vec![text], lines].concat().join("\n")
        }
    }
}

/// The beginning of a text in one line.
fn excerpt(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let mut shown: String = line.chars().take(SHOWN).collect();
    if shown.len() < line.len() {
        shown.push_str("..");
    }
    printable(&shown).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_data::{TextFile, TextRow, TextSink, WordsAre};

    fn one(label: &str) -> Prediction {
        let likely =
            |label: &str, probability| LabelProbability { label: label.into(), probability };
        Prediction::One { labels: vec![likely(label, 0.75), likely("b", 0.25)], truncated: 0 }
    }

    fn written(format: TextFormat, top: Option<usize>, lines: &[&str]) -> Result<String> {
        let settings = WriteSettings { format, top, answers: Reading::OneLabel };
        let mut writer = PredictionWriter::new(Vec::new(), settings);
        for line in lines {
            let record = Record::parse(line).unwrap();
            if writer.needs_columns() {
                let names = record.fields.iter().map(|(name, _)| name.clone());
                writer.columns(&names.collect::<Vec<_>>())?;
            }
            writer.write(&record, &Body::Text("x".into()), &one("a;\"q\""))?;
        }
        Ok(String::from_utf8(writer.finish()?).unwrap())
    }

    #[test]
    fn a_row_keeps_its_fields_and_gets_its_answer() {
        let row = r#"{"id": 1.50, "text": "x, y"}"#;
        assert_eq!(
            written(TextFormat::JsonLines, None, &[row]).unwrap(),
            "{\"id\": 1.50, \"text\": \"x, y\", \"predicted\": \"a;\\\"q\\\"\", \"probability\": 0.75, \
             \"probabilities\": {\"a;\\\"q\\\"\": 0.75, \"b\": 0.25}}\n"
        );
        assert_eq!(
            written(TextFormat::Csv, None, &[row]).unwrap(),
            "id,text,predicted,probability\n1.50,\"x, y\",\"a;\"\"q\"\"\",0.75\n"
        );
        let tsv = written(TextFormat::Tsv, Some(1), &[row]).unwrap();
        assert!(tsv.starts_with("id\ttext\tpredicted\tprobability\tprobabilities\n"), "{tsv}");
        assert_eq!(written(TextFormat::Lines, None, &[row]).unwrap(), "a;\"q\" 0.750  x\n");
    }

    #[test]
    fn a_field_that_the_answer_needs_and_rows_that_make_no_table_are_refused() {
        let taken = written(TextFormat::JsonLines, None, &[r#"{"text": "x", "predicted": 1}"#]);
        assert!(taken.unwrap_err().to_string().contains("found a column \"predicted\""));
        let rows = [r#"{"text": "x"}"#, r#"{"text": "x", "id": 2}"#];
        let told = written(TextFormat::Csv, None, &rows).unwrap_err().to_string();
        assert!(told.contains("found a new key \"id\" after the table was started"), "{told}");
        assert_eq!(written(TextFormat::JsonLines, None, &rows).unwrap().lines().count(), 2);
        let twice = Record::parse(r#"{"id": 1, "text": "x", "id": 2}"#);
        assert!(twice.unwrap_err().0.contains("the key \"id\" twice"));
    }

    #[test]
    fn keys_in_another_order_are_the_same_columns_and_a_missing_key_is_an_empty_cell() {
        let rows = [
            r#"{"id": 1, "text": "x", "note": "n"}"#,
            r#"{"note": "m", "text": "y", "id": 2}"#,
            r#"{"text": "z"}"#,
        ];
        let csv =
            written(TextFormat::Csv, None, &rows).unwrap().replace(",\"a;\"\"q\"\"\",0.75", "");
        assert_eq!(csv, "id,text,note,predicted,probability\n1,x,n\n2,y,m\n,z,\n");
    }

    #[derive(Default)]
    struct ReadBack(Vec<Vec<String>>);

    impl TextSink for ReadBack {
        type Error = fedra_data::DataError;

        fn columns(&mut self, names: &[String]) -> Result<(), Self::Error> {
            self.0.push(names.to_vec());
            Ok(())
        }

        fn row(&mut self, row: TextRow) -> Result<(), Self::Error> {
            self.0.push(row.record.fields.iter().map(|(_, field)| field.to_json()).collect());
            Ok(())
        }

        fn bad_row(&mut self, error: Self::Error) -> Result<(), Self::Error> {
            Err(error)
        }
    }

    fn parquet(answers: Reading, rows: &[(&str, Prediction)]) -> Vec<Vec<String>> {
        let settings = WriteSettings { format: TextFormat::Parquet, top: None, answers };
        let mut writer = PredictionWriter::new(Vec::new(), settings);
        writer.columns(&["text".to_owned(), "id".to_owned()]).unwrap();
        for (line, prediction) in rows {
            let record = Record::parse(line).unwrap();
            writer.write(&record, &Body::Text("x".into()), prediction).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers.parquet");
        std::fs::write(&path, writer.finish().unwrap()).unwrap();
        let file = TextFile {
            path,
            format: TextFormat::Parquet,
            columns: None,
            image: None,
            words: WordsAre::Joined,
            encoding: fedra_data::Encoding::Utf8,
            delimiter: None,
            anywhere: false,
            column_hint: "",
        };
        let mut read = ReadBack::default();
        file.read(None, &mut read).unwrap();
        read.0
    }

    #[test]
    fn parquet_holds_what_was_read_as_text_and_answers_as_what_they_are() {
        let told = parquet(
            Reading::OneLabel,
            &[
                (r#"{"text": "x, y", "id": 7}"#, one("a")),
                (r#"{"text": "", "id": null}"#, one("\u{e9}")),
            ],
        );
        assert_eq!(told[0], ["text", "id", "predicted", "probability"]);
        assert_eq!(told[1], [r#""x, y""#, r#""7""#, r#""a""#, r#""0.75""#]);
        assert_eq!(told[2], [r#""""#, "null", "\"\u{e9}\"", r#""0.75""#]);
        let several = |answered| {
            let Prediction::One { labels, truncated } = one("a") else { panic!("it is one") };
            Prediction::Several { labels, answered, truncated }
        };
        let row = r#"{"text": "x", "id": 1}"#;
        let told = parquet(
            Reading::SeveralLabels,
            &[(row, several(2)), (row, several(0)), (row, several(1))],
        );
        assert_eq!(told[1][2..], [r#"["a","b"]"#, r#"["0.75","0.25"]"#]);
        assert_eq!((told[2][2].as_str(), told[3][2].as_str()), ("[]", r#"["a"]"#));
        // Without a row there are still the columns.
        let empty = parquet(Reading::Words, &[]);
        assert_eq!(empty, [["text", "id", "predicted"]]);
    }
}
