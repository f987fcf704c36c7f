//! Answers beside the rows that they are about: JSON lines, CSV, TSV, Parquet, or lines for people.
//!
//! | key or column | one label | several labels | spans |
//! | --- | --- | --- | --- |
//! | `predicted` | its name | a list of names; joined by `;` in a table | a list of spans; JSON in a table |
//! | `probability` | its probability | joined by `;`, in a table alone | inside each span |
//! | `probabilities` | of the likeliest labels | the same | |
//! | `tags` | | | of words that were given one by one |
//! | `truncated` | pieces that were not seen, if any | the same | |
//!
//! A row that already has a field of such a name is refused: it would have two. Parquet has types of its
//! own ([`super::parquet`]).
//!
//! Rows of JSON lines may have their keys in any order, and lack some. A table has a column for every key,
//! in the order in which keys are first seen ([`super::keys`]); what a row lacks is an empty cell.

use std::collections::BTreeMap;
use std::io::Write;

use fedra_data::{Body, Field, Record, printable};
use serde_json::json;

use super::parquet::ParquetAnswers;
use super::prediction::{FoundSpan, LabelProbability, Prediction};
use crate::error::{Error, Result, refuse};
use crate::trained_model::Reading;

/// How answers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// One JSON object a line.
    JsonLines,
    /// Comma-separated with a header.
    Csv,
    /// Tab-separated with a header.
    Tsv,
    /// Lines for people.
    Text,
    /// Parquet.
    Parquet,
}

impl OutputFormat {
    /// The names that it goes by on a command line.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("jsonl", Self::JsonLines),
        ("csv", Self::Csv),
        ("tsv", Self::Tsv),
        ("text", Self::Text),
        ("parquet", Self::Parquet),
    ];
}

/// What is written.
#[derive(Clone, Copy, Debug)]
pub struct WriteSettings {
    /// How.
    pub format: OutputFormat,
    /// How many labels `probabilities` has; by default 5 in JSON, and the column is absent in a table.
    pub top: Option<usize>,
    /// What the model answers, by which a table has its columns before its first row.
    pub answers: Reading,
}

/// Labels in `probabilities` unless another number is asked for.
const USUAL_TOP: usize = 5;
/// Fields that an answer may have.
const OWN: [&str; 5] = ["predicted", "probability", "probabilities", "tags", "truncated"];
/// Letters of a text in a line for people.
const SHOWN: usize = 60;

/// Writes answers.
pub struct PredictionWriter<W: Write + Send> {
    output: Output<W>,
    settings: WriteSettings,
    /// The columns of a table, once they are known.
    columns: Option<TableColumns>,
    is_begun: bool,
}

enum Output<W: Write + Send> {
    Lines(W),
    Parquet(ParquetAnswers<W>),
}

impl<W: Write + Send> PredictionWriter<W> {
    /// Nothing written yet.
    pub fn new(output: W, settings: WriteSettings) -> Self {
        let output = match settings.format {
            OutputFormat::Parquet => Output::Parquet(ParquetAnswers::new(output, settings)),
            OutputFormat::JsonLines
            | OutputFormat::Csv
            | OutputFormat::Tsv
            | OutputFormat::Text => Output::Lines(output),
        };
        Self { output, settings, columns: None, is_begun: false }
    }

    /// Whether a table is written whose columns nobody has told yet.
    pub(super) fn needs_columns(&self) -> bool {
        let is_table = match self.settings.format {
            OutputFormat::Csv | OutputFormat::Tsv | OutputFormat::Parquet => true,
            OutputFormat::JsonLines | OutputFormat::Text => false,
        };
        is_table && self.columns.is_none()
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
        let line = match self.settings.format {
            OutputFormat::JsonLines => {
                check_free(record.fields.iter().map(|(name, _)| name.as_str()))?;
                self.object(record, prediction)
            }
            OutputFormat::Csv => self.cells(record, prediction, ',')?,
            OutputFormat::Tsv => self.cells(record, prediction, '\t')?,
            OutputFormat::Text => for_people(body, prediction),
            OutputFormat::Parquet => {
                self.know_columns(record)?;
                if let (Output::Parquet(answers), Some(columns)) = (&mut self.output, &self.columns)
                {
                    answers.begin(&columns.names)?;
                    answers.write(&columns.fields(record)?, prediction)?;
                }
                return Ok(());
            }
        };
        self.put(&line)
    }

    /// Ends the output and gives it back; a table without rows still has its header.
    pub fn finish(mut self) -> Result<W> {
        let separator = match self.settings.format {
            OutputFormat::Csv => Some(','),
            OutputFormat::Tsv => Some('\t'),
            OutputFormat::JsonLines | OutputFormat::Text | OutputFormat::Parquet => None,
        };
        if let (Some(separator), false, Some(columns)) = (separator, self.is_begun, &self.columns) {
            let header = self.header(&columns.names, separator);
            self.put(&header)?;
        }
        self.flush()?;
        match self.output {
            Output::Lines(output) => Ok(output),
            Output::Parquet(mut answers) => {
                answers.begin(&self.columns.map_or(Vec::new(), |columns| columns.names))?;
                answers.finish()
            }
        }
    }

    /// Lets what was written so far go.
    pub(super) fn flush(&mut self) -> Result<()> {
        match &mut self.output {
            Output::Lines(output) => output.flush().map_err(unwritten),
            // A file that is cut short is none, so nobody waits for its first rows.
            Output::Parquet(_) => Ok(()),
        }
    }

    fn put(&mut self, line: &str) -> Result<()> {
        match &mut self.output {
            Output::Lines(output) => {
                let written = output.write_all(line.as_bytes());
                written.and_then(|()| output.write_all(b"\n")).map_err(unwritten)
            }
            Output::Parquet(_) => Ok(()),
        }
    }

    fn object(&self, record: &Record, prediction: &Prediction) -> String {
        let mut fields: Vec<String> = record
            .fields
            .iter()
            .map(|(name, field)| format!("{}: {}", json!(name), field.to_json()))
            .collect();
        let mut add = |name: &str, value: String| fields.push(format!("\"{name}\": {value}"));
        let top = self.settings.top.unwrap_or(USUAL_TOP);
        match prediction {
            Prediction::One { labels, .. } => {
                if let Some(best) = labels.first() {
                    add("predicted", json!(best.label).to_string());
                    add("probability", shown(best.probability));
                }
                if top > 0 {
                    add("probabilities", likeliest(labels, top));
                }
            }
            Prediction::Several { labels, answered, .. } => {
                let names: Vec<&str> =
                    labels[..*answered].iter().map(|one| one.label.as_str()).collect();
                add("predicted", json!(names).to_string());
                // What is answered always has its probability.
                if top > 0 || *answered > 0 {
                    add("probabilities", likeliest(labels, top.max(*answered)));
                }
            }
            Prediction::Spans { spans, tags } => {
                add("predicted", as_json(spans));
                if let Some(tags) = tags {
                    add("tags", json!(tags).to_string());
                }
            }
        }
        if prediction.truncated() > 0 {
            add("truncated", prediction.truncated().to_string());
        }
        format!("{{{}}}", fields.join(", "))
    }

    fn cells(
        &mut self,
        record: &Record,
        prediction: &Prediction,
        separator: char,
    ) -> Result<String> {
        self.know_columns(record)?;
        let columns = self.columns.as_ref().expect("they are known by now");
        let mut lines = Vec::new();
        if !self.is_begun {
            self.is_begun = true;
            lines.push(self.header(&columns.names, separator));
        }
        let fields = columns.fields(record)?;
        let mut cells: Vec<String> = fields.into_iter().map(Field::to_cell).collect();
        match prediction {
            Prediction::One { labels, .. } => {
                let best = labels.first();
                cells.push(best.map_or(String::new(), |one| one.label.clone()));
                cells.push(best.map_or(String::new(), |one| shown(one.probability)));
                if let Some(top) = self.settings.top.filter(|top| *top > 0) {
                    cells.push(likeliest(labels, top));
                }
            }
            Prediction::Several { labels, answered, .. } => {
                let answered = &labels[..*answered];
                let names: Vec<&str> = answered.iter().map(|one| one.label.as_str()).collect();
                let is_clear = names.iter().all(|name| !name.contains(';'));
                cells.push(if is_clear { names.join(";") } else { json!(names).to_string() });
                let numbers: Vec<String> =
                    answered.iter().map(|one| shown(one.probability)).collect();
                cells.push(numbers.join(";"));
                if let Some(top) = self.settings.top.filter(|top| *top > 0) {
                    cells.push(likeliest(labels, top));
                }
            }
            Prediction::Spans { spans, .. } => cells.push(as_json(spans)),
        }
        lines.push(joined(&cells, separator));
        Ok(lines.join("\n"))
    }

    /// Where nobody told the columns of a table, they are those of the first row.
    fn know_columns(&mut self, record: &Record) -> Result<()> {
        if self.columns.is_some() {
            return Ok(());
        }
        let names: Vec<String> = record.fields.iter().map(|(name, _)| name.clone()).collect();
        self.columns(&names)
    }

    fn header(&self, columns: &[String], separator: char) -> String {
        let mut names = columns.to_vec();
        names.push("predicted".to_owned());
        match self.settings.answers {
            Reading::OneLabel | Reading::SeveralLabels => {
                names.push("probability".to_owned());
                if self.settings.top.is_some_and(|top| top > 0) {
                    names.push("probabilities".to_owned());
                }
            }
            Reading::Words => {}
        }
        joined(&names, separator)
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
                refuse!(
                    "--output: found the key {name:?} for the first time when the table had begun, expected one \
                     of {}\nhint: a file given as --input is looked through before its answers are written, a \
                     stream cannot be; jsonl needs no columns",
                    listed(&self.names)
                );
            };
            if cells[*place].replace(field).is_some() {
                refuse!(
                    "--input: found the key {name:?} twice in a row, expected it once in a table"
                );
            }
        }
        Ok(cells.into_iter().map(|cell| cell.unwrap_or(&LACKING)).collect())
    }
}

/// Names, the first few of many.
fn listed(names: &[String]) -> String {
    const MOST: usize = 12;
    let first = names.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn unwritten(source: std::io::Error) -> Error {
    Error::Unwritten { what: "the answers".to_owned(), source }
}

/// Refuses fields that an answer needs for itself.
fn check_free<'a>(mut names: impl Iterator<Item = &'a str>) -> Result<()> {
    if let Some(name) = names.find(|name| OWN.contains(name)) {
        refuse!(
            "--input: found a column {name:?}, expected none of that name: the answer goes there\n\
             hint: rename the column"
        );
    }
    Ok(())
}

/// A probability with the digits that f32 has.
fn shown(probability: f64) -> String {
    as_json(&(probability as f32))
}

/// A value in JSON; f32 has fewer digits this way than as part of a [`serde_json::Value`], and what is no
/// number is null.
pub(super) fn as_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

pub(super) fn likeliest(labels: &[LabelProbability], top: usize) -> String {
    let one = |one: &LabelProbability| format!("{}: {}", json!(one.label), shown(one.probability));
    let all: Vec<String> = labels.iter().take(top).map(one).collect();
    format!("{{{}}}", all.join(", "))
}

/// A line of a table, cells quoted where they have to be.
fn joined(cells: &[String], separator: char) -> String {
    let special = [separator, '"', '\n', '\r'];
    let quoted = |cell: &String| {
        if cell.contains(special) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell.clone()
        }
    };
    let cells: Vec<String> = cells.iter().map(quoted).collect();
    // A blank line would be no row.
    if cells.len() == 1 && cells[0].is_empty() {
        "\"\"".to_owned()
    } else {
        cells.join(&separator.to_string())
    }
}

fn for_people(body: &Body, prediction: &Prediction) -> String {
    let text = excerpt(&body.to_text());
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
    use fedra_data::{TextFile, TextFormat, TextRow, TextSink, WordsAre};

    fn one(label: &str) -> Prediction {
        let likely =
            |label: &str, probability| LabelProbability { label: label.into(), probability };
        Prediction::One { labels: vec![likely(label, 0.75), likely("b", 0.25)], truncated: 0 }
    }

    fn written(format: OutputFormat, top: Option<usize>, lines: &[&str]) -> Result<String> {
        let settings = WriteSettings { format, top, answers: Reading::OneLabel };
        let mut writer = PredictionWriter::new(Vec::new(), settings);
        for line in lines {
            let record = Record::parse(line).unwrap();
            writer.write(&record, &Body::Text("x".into()), &one("a;\"q\""))?;
        }
        Ok(String::from_utf8(writer.finish()?).unwrap())
    }

    #[test]
    fn a_row_keeps_its_fields_and_gets_its_answer() {
        let row = r#"{"id": 1.50, "text": "x, y"}"#;
        assert_eq!(
            written(OutputFormat::JsonLines, None, &[row]).unwrap(),
            "{\"id\": 1.50, \"text\": \"x, y\", \"predicted\": \"a;\\\"q\\\"\", \"probability\": 0.75, \
             \"probabilities\": {\"a;\\\"q\\\"\": 0.75, \"b\": 0.25}}\n"
        );
        assert_eq!(
            written(OutputFormat::Csv, None, &[row]).unwrap(),
            "id,text,predicted,probability\n1.50,\"x, y\",\"a;\"\"q\"\"\",0.75\n"
        );
        let tsv = written(OutputFormat::Tsv, Some(1), &[row]).unwrap();
        assert!(tsv.starts_with("id\ttext\tpredicted\tprobability\tprobabilities\n"), "{tsv}");
        assert_eq!(written(OutputFormat::Text, None, &[row]).unwrap(), "a;\"q\" 0.750  x\n");
    }

    #[test]
    fn a_field_that_the_answer_needs_and_rows_that_make_no_table_are_refused() {
        let taken = written(OutputFormat::JsonLines, None, &[r#"{"text": "x", "predicted": 1}"#]);
        assert!(taken.unwrap_err().to_string().contains("found a column \"predicted\""));
        let rows = [r#"{"text": "x"}"#, r#"{"text": "x", "id": 2}"#];
        let told = written(OutputFormat::Csv, None, &rows).unwrap_err().to_string();
        assert!(told.contains("found the key \"id\" for the first time"), "{told}");
        assert_eq!(written(OutputFormat::JsonLines, None, &rows).unwrap().lines().count(), 2);
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
            written(OutputFormat::Csv, None, &rows).unwrap().replace(",\"a;\"\"q\"\"\",0.75", "");
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
        let settings = WriteSettings { format: OutputFormat::Parquet, top: None, answers };
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
            words: WordsAre::Joined,
            encoding: fedra_data::Encoding::Utf8,
            delimiter: None,
            column_hint: "",
        };
        let mut read = ReadBack::default();
        file.read(&mut read).unwrap();
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
