//! `fedra init`: what it proposes for each task and format, and that `fedra data` and `fedra run` take it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::place::{Place, text};

const DEPARTMENTS: [(&str, &str); 3] = [
    ("chest pain on effort", "cardiology"),
    ("cough and fever", "pulmonology"),
    ("a rash", "skin"),
];

/// Notes of three hospitals.
fn notes() -> Vec<Value> {
    (0..90)
        .map(|row| {
            let (words, department) = DEPARTMENTS[row % 3];
            let hospital = ["north", "south", "east"][row / 3 % 3];
            json!({
                "id": row,
                "note": format!("the patient reports {words} since day {}", row % 7),
                "department": department,
                "codes": if row % 4 == 0 { json!(["I10", "J18"]) } else { json!(["J18"]) },
                "hospital": hospital,
                "answer": format!("seen for {words}"),
            })
        })
        .collect()
}

fn write_jsonl(path: &Path, rows: &[Value]) {
    let lines: String = rows.iter().flat_map(|row| [row.to_string(), "\n".to_owned()]).collect();
    fs::write(path, lines).unwrap();
}

fn write_delimited(path: &Path, rows: &[Value], delimiter: &str) {
    let names = ["id", "note", "department", "hospital"];
    let mut lines = names.join(delimiter) + "\n";
    for row in rows {
        // A text in JSON has the quotes that a cell has, as long as it has none inside.
        let cell = |name: &str| row[name].to_string();
        lines += &(names.map(cell).join(delimiter) + "\n");
    }
    fs::write(path, lines).unwrap();
}

fn write_conll(path: &Path, tags: [&str; 2]) {
    let [begins, goes_on] = tags;
    let sentence =
        |row: usize| format!("# doc = d{row}\nNo\tO\nchest\t{begins}\npain\t{goes_on}\n\n");
    fs::write(path, (0..40).map(sentence).collect::<String>()).unwrap();
}

/// Writes a file with all proposals and has the commands take it as it stands.
#[track_caller]
fn accepted(place: &Place, flags: &[&str], expected: &[&str]) -> String {
    let always = ["--yes", "--out", "made.toml", "--force", "--rounds", "1"];
    place.succeed(&[&["init"], flags, &always].concat());
    let made = fs::read_to_string(place.path("made.toml")).unwrap();
    for part in expected {
        assert!(made.contains(part), "{flags:?}: {part:?} in\n{made}");
    }
    place.succeed(&["data", "made.toml"]);
    place.succeed(&["run", "made.toml", "--quiet", "--force"]);
    made
}

#[test]
fn classes_are_found_in_every_format() {
    let place = Place::new();
    write_jsonl(&place.path("n.jsonl"), &notes());
    write_delimited(&place.path("n.csv"), &notes(), ",");
    write_delimited(&place.path("n.tsv"), &notes(), "\t");
    write_delimited(&place.path("semicolons.csv"), &notes(), ";");
    let shared = [
        "task = \"classes\"",
        "columns = { text = \"note\", label = \"department\", client = \"hospital\" }",
        "partition = { by = \"client\" }",
        "preset = \"tiny-encoder\"",
        "rounds = 1",
    ];
    let jsonl = accepted(&place, &["n.jsonl", "--label", "department"], &["source = \"jsonl\""]);
    assert!(shared.iter().all(|part| jsonl.contains(part)), "{jsonl}");
    for (file, source) in [
        ("n.csv", "source = \"csv\"\ntask"),
        ("n.tsv", "source = \"tsv\"\ntask"),
        ("semicolons.csv", "source = \"csv\"\ndelimiter = \";\"\ntask"),
    ] {
        accepted(&place, &[file], &[&[source], &shared[..]].concat());
    }
    // Latin letters of another encoding.
    let old = fs::read_to_string(place.path("n.csv")).unwrap().replace("fever", "fi\u{e8}vre");
    let bytes: Vec<u8> = old.chars().map(|letter| letter as u8).collect();
    fs::write(place.path("old.csv"), bytes).unwrap();
    accepted(&place, &["old.csv"], &["encoding = \"windows-1252\""]);
    let told = place.succeed_and_hear(&["init", "old.csv", "--yes", "--out", "told.toml"]);
    assert!(told.contains("note: the data is not UTF-8 and is read as windows-1252"), "{told}");
    let zipped = Command::new("gzip").arg("n.jsonl").current_dir(place.folder.path()).status();
    assert!(zipped.is_ok_and(|status| status.success()), "needs the program gzip");
    accepted(&place, &["n.jsonl.gz", "--label", "department"], &["path = \"n.jsonl.gz\""]);
}

#[test]
fn other_tasks_are_proposed_from_the_shape_of_the_data() {
    let place = Place::new();
    write_jsonl(&place.path("n.jsonl"), &notes());
    accepted(
        &place,
        &["n.jsonl", "--label", "codes"],
        &["task = \"diagnosis\"", "label = \"codes\""],
    );
    let several: Vec<Value> = (0..60)
        .map(|row| {
            let labels = ["a|b", "b|c", "a", "b", "c", "a|c", "a|b|c"][row % 7];
            json!({ "text": format!("row {row} of words"), "labels": labels })
        })
        .collect();
    write_jsonl(&place.path("several.jsonl"), &several);
    let dealt = ["separator = \"|\"", "task = \"diagnosis\"", "clients = 4", "by = \"iid\""];
    accepted(&place, &["several.jsonl"], &dealt);
    write_conll(&place.path("w.conll"), ["B-problem", "I-problem"]);
    accepted(&place, &["w.conll"], &["source = \"conll\"", "task = \"concepts\"", "clients = 4"]);
    write_conll(&place.path("plain.conll"), ["drug", "dose"]);
    accepted(&place, &["plain.conll"], &["source = \"conll\"", "task = \"tokens\""]);
    write_conll(&place.path("w.tsv"), ["B-drug", "I-drug"]);
    accepted(&place, &["w.tsv"], &["source = \"conll\"", "task = \"tokens\""]);
    let tagged: Vec<Value> = (0..40)
        .map(|row| json!({ "tokens": ["No", "pain"], "tags": ["O", "B-x"], "site": row % 2 }))
        .collect();
    write_jsonl(&place.path("t.jsonl"), &tagged);
    let columns = "columns = { text = \"tokens\", label = \"tags\", client = \"site\" }";
    accepted(&place, &["t.jsonl"], &["task = \"tokens\"", columns]);
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures/parquet");
    fs::copy(fixture.join("pandas.parquet"), place.path("p.parquet")).unwrap();
    let parquet = ["source = \"parquet\"", "task = \"classes\"", "label = \"kind\""];
    accepted(&place, &["p.parquet", "--label", "kind", "--text", "text"], &parquet);
}

#[test]
fn a_decoder_is_asked_in_words_and_a_private_run_declares_its_labels() {
    let place = Place::new();
    place.save_decoder("fever cough pain answer department cardiology pulmonology skin");
    write_jsonl(&place.path("n.jsonl"), &notes());
    let with = |flags: &[&'static str]| [&["n.jsonl", "--model", "decoder"], flags].concat();
    for (flags, expected) in [
        (with(&["--task", "language"]), &["task = \"language\"", "text = \"note\""][..]),
        (
            with(&["--task", "generation", "--text", "note", "--label", "answer"]),
            &["prompt = \"{note}\\nAnswer:\"", "target = \"{answer}\""],
        ),
        (
            with(&["--task", "choice", "--label", "department"]),
            &["prompt = \"{note}\\nDepartment:\"", "answers = { \"cardiology\" = \"cardiology\","],
        ),
        (
            with(&["--label", "department", "--private", "8"]),
            &["labels = [\"cardiology\", \"pulmonology\", \"skin\"]", "[privacy]", "epsilon = 8.0"],
        ),
    ] {
        accepted(&place, &flags, expected);
    }
    assert!(place.summary("runs/made")["privacy"]["epsilon"].as_f64().unwrap() <= 8.0);
}

#[test]
fn hospitals_may_have_a_file_each() {
    let place = Place::new();
    fs::create_dir(place.path("hospitals")).unwrap();
    let notes = notes();
    for hospital in ["north", "south", "east"] {
        let own: Vec<Value> =
            notes.iter().filter(|row| row["hospital"] == hospital).cloned().collect();
        write_delimited(&place.path(&format!("hospitals/{hospital}.csv")), &own, ",");
    }
    let expected = ["[data.clients]", "\"north\" = \"hospitals/north.csv\"", "text = \"note\""];
    accepted(&place, &["hospitals"], &expected);
    assert_eq!(place.summary("runs/made")["clients"], 3);
    let named = ["--client", "n=hospitals/north.csv", "--client", "s=hospitals/south.csv"];
    let made = accepted(&place, &named, &["\"n\" = \"hospitals/north.csv\""]);
    assert!(!made.contains("client ="), "{made}");
    let refused = place.fedra(&["run", "made.toml", "--set", "data.path=hospitals/east.csv"]);
    let said = text(&refused.stderr);
    assert!(
        said.contains("data.clients cannot be combined with data.path or data.train"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_asked_or_used_is_refused_and_nothing_is_written_over() {
    let place = Place::new();
    write_delimited(&place.path("n.csv"), &notes(), ",");
    let pair = |row: usize| {
        let (words, department) = DEPARTMENTS[row % 3];
        format!("the patient reports since {row} days {words},{department}\n")
    };
    let pairs: String = (0..30).map(pair).collect();
    for (name, header) in [("pair.csv", "note,department\n"), ("headless.csv", "")] {
        let first = if header.is_empty() { "\"pain, chest, since noon\",skin\n" } else { "" };
        fs::write(place.path(name), [header, first, &pairs].concat()).unwrap();
    }
    let single = "a cough since monday,lung\n".repeat(20);
    fs::write(place.path("single.csv"), format!("text,label\n{single}")).unwrap();
    let letters = "text,label\nFi\u{e8}vre,x\nC\u{153}ur,y\n".as_bytes();
    fs::write(place.path("damaged.csv"), [letters, b"caf\xe9,x\n"].concat()).unwrap();
    let workbook = b"PK\x03\x04\x14\0\x06\0\x08\0[Content_Types].xml..xl/workbook.xml";
    fs::write(place.path("book.xlsx"), workbook).unwrap();
    fs::write(place.path("array.json"), "[{\"text\": \"a\", \"label\": \"b\"}]").unwrap();
    for (flags, expected) in [
        (&["init"][..], "DATA is missing: give a file with rows"),
        (&["init", "--yes"], "DATA is missing"),
        (
            &["init", "n.csv"],
            "these flags are missing: --task classes --text note --label department \
             --client-column hospital\nhint: --yes takes the proposals",
        ),
        (&["init", "n.csv", "--yes", "--text", "nothing"], "found no column \"nothing\", expected"),
        (&["init", "absent.csv", "--yes"], "cannot open absent.csv"),
        (
            &["init", "n.csv", "--yes", "--private", "8"],
            "--private: found no model and no tokenizer",
        ),
        (&["init", "n.csv", "--yes", "--rounds", "0"], "expected a whole number, at least 1"),
        (
            &["init", "n.csv", "--yes", "--text", "note", "--text", "id", "--task", "language"],
            "--text: two columns are read only for tasks with a label of the whole text, and the task is \
             language",
        ),
        (
            &["init", "pair.csv", "--yes", "--text", "note", "--text", "department"],
            "name the column of labels with --label",
        ),
        (
            &["init", "pair.csv", "--yes", "--label", "note"],
            "--label: column \"note\" holds texts (9 words on average), and column \"department\", which is left \
             to be read, holds shorter ones",
        ),
        (
            &["init", "single.csv", "--yes"],
            "--label: column \"label\" has a single value in all rows, so there is no label to learn",
        ),
        (
            &["init", "headless.csv", "--yes"],
            "headless.csv: the first line looks like a row and not like a header: its field 1 reads like a text",
        ),
        (
            &["init", "damaged.csv", "--yes"],
            "damaged.csv:4: found the byte 0xe9 at byte 4 of the line, expected UTF-8 like the letters before it",
        ),
        (&["init", "book.xlsx", "--yes"], "book.xlsx: found an Excel workbook, expected text"),
        (&["init", "array.json", "--yes"], "array.json: found one JSON array, expected JSON lines"),
        (&["init", "n.csv", "--yes", "--private", "-1"], "expected a number above 0"),
        (
            &["init", "n.csv", "--yes", "--task", "class"],
            "possible values: concepts, diagnosis, classes",
        ),
        (&["init", "n.csv", "--yes", "--method", "fedsome"], "--method: found \"fedsome\""),
        (
            &["init", "n.csv", "--yes", "--client", "a=n.csv"],
            "--client cannot be combined with n.csv",
        ),
        (&["init", "n.csv", "--yes", "--model", "."], "--model ."),
        (&["init", "n.csv", "--yes", "--preset", "huge"], "model.preset: found \"huge\""),
    ] {
        let refused = place.refused(flags);
        assert!(refused.contains(expected), "{flags:?}: {refused}");
        assert!(!place.path("n.toml").exists(), "{flags:?} wrote something");
    }
    let whole = ["init", "n.csv", "--task", "classes", "--text", "note", "--label", "department"];
    place.succeed(&[&whole[..], &["--client-column", "hospital", "--quiet"]].concat());
    let first = fs::read_to_string(place.path("n.toml")).unwrap();
    let refused = place.refused(&["init", "n.csv", "--yes", "--clients", "2"]);
    assert!(refused.contains("--out: n.toml exists already"), "{refused}");
    assert_eq!(fs::read_to_string(place.path("n.toml")).unwrap(), first);
    let shown = place.succeed(&["init", "n.csv", "--yes", "--clients", "2", "--out", "-"]);
    assert!(shown.contains("clients = 2") && shown.contains("[data]"), "{shown}");
    // Without labels the next token is learnt, which an encoder cannot.
    fs::write(place.path("texts.csv"), format!("text\n{}", "some words of a note\n".repeat(20)))
        .unwrap();
    let refused = place.refused(&["init", "texts.csv", "--yes", "--preset", "tiny-encoder"]);
    assert!(refused.contains("expected a decoder for the task language"), "{refused}");
    assert!(!place.path("texts.toml").exists());
}

#[test]
fn hostile_files_are_refused_or_escaped() {
    let place = Place::new();
    for (name, bytes) in [
        ("empty.csv", &b""[..]),
        ("header.csv", b"a,b\n"),
        ("binary.csv", &[0, 159, 146, 150, 0, 1, 2, 3][..]),
        ("plain.txt", b"just words\nand more words\n"),
        ("torn.jsonl", b"{\"a\": 1\n{\"a\""),
        ("fake.parquet", b"PAR1 not really PAR1"),
        ("twice.csv", b"a,a\nx,y\nz,w\n"),
    ] {
        fs::write(place.path(name), bytes).unwrap();
        let output = place.fedra(&["init", name, "--yes", "--out", "x.toml"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains("error: ") && !said.contains("panicked"), "{name}: {said}");
        assert!(!place.path("x.toml").exists(), "{name}");
    }
    // Names that would leave their quotes, their line or the terminal.
    let name = "te\"xt\n\u{1b}[31m # = ]".repeat(40);
    let rows: Vec<Value> = (0..60)
        .map(|row| {
            let label = ["x\"]\n[data]", "\\y"][row % 2];
            json!({ name.as_str(): format!("many words stand in row {row}"), "label": label })
        })
        .collect();
    write_jsonl(&place.path("odd.jsonl"), &rows);
    accepted(&place, &["odd.jsonl"], &["task = \"classes\""]);
}

/// Types answers at a terminal; needs the program `script`.
#[test]
fn on_a_terminal_questions_are_asked_and_enter_takes_the_proposal() {
    let place = Place::new();
    write_delimited(&place.path("n.csv"), &notes(), ",");
    let fedra = env!("CARGO_BIN_EXE_fedra");
    let mut command = Command::new("script");
    command.args(["-qec", &format!("{fedra} init n.csv"), "/dev/null"]);
    command.current_dir(place.folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.env("HF_HUB_CACHE", "none");
    let mut child = command.spawn().expect("needs the program script");
    // Task and text as proposed, another label that does not exist, the right one, two clients, the rest.
    let answers = "\n\nnothing\ndepartment\n2\n\nasked.toml\n";
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), answers.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    for part in ["Which task", "[note] > ", "found no column \"nothing\"", "wrote asked.toml"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let made = fs::read_to_string(place.path("asked.toml")).unwrap();
    assert!(made.contains("label = \"department\"") && made.contains("clients = 2"), "{made}");
}

#[test]
fn what_looks_wrong_in_a_table_is_noted_or_refused_before_a_file_is_written() {
    let place = Place::new();
    let table = |name: &str, header: &str, row: &dyn Fn(usize) -> String| {
        let rows: String = (0..60).map(row).collect();
        fs::write(place.path(name), format!("{header}\n{rows}")).unwrap();
    };
    let words = |row: usize| format!("the patient reports {} on day {row}", DEPARTMENTS[row % 3].0);
    // Three patients make no four clients.
    table("few.csv", "patient_id,text,label", &|row| {
        format!("p{},{},{}\n", row % 3, words(row), row % 2)
    });
    let told = place.refused(&["init", "few.csv", "--yes", "--clients", "9", "--out", "few.toml"]);
    assert!(told.contains("--clients: found 9, expected at most 3"), "{told}");
    table("twice.csv", "text,text,label", &|row| format!("{0},{0},{1}\n", words(row), row % 2));
    let told = place.refused(&["init", "twice.csv", "--yes"]);
    assert!(told.contains("found two columns called \"text\""), "{told}");
    // Labels that are none.
    table("ids.csv", "text,label", &|row| format!("{},x{row}\n", words(row)));
    let told = place.succeed_and_hear(&["init", "ids.csv", "--yes", "--out", "ids.toml"]);
    assert!(
        told.contains("60 different values in 60 rows: this looks like free text or an id"),
        "{told}"
    );
    table("nan.csv", "text,label", &|row| {
        format!("{},{}\n", words(row), ["a", "b", "NaN"][row % 3])
    });
    let told = place.succeed_and_hear(&["init", "nan.csv", "--yes", "--out", "nan.toml"]);
    assert!(told.contains("note: 20 values in column \"label\" are \"NaN\""), "{told}");
    table("empty.csv", "text,label", &|row| {
        format!("{},{}\n", words(row), ["a", "b", ""][row % 3])
    });
    let told = place.refused(&["init", "empty.csv", "--yes"]);
    assert!(told.contains("20 of 60 rows have no value in column \"label\""), "{told}");
    for expected in [
        "error: the proposed experiment cannot read its rows: ",
        "empty.csv:4: found an empty label",
        "; --missing drop leaves",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert!(!told.contains("-->"), "no error points into a file that is not there: {told}");
    assert!(!place.path("empty.toml").exists());
    // What is accepted after all runs.
    accepted(&place, &["few.csv"], &["clients = 2", "document = \"patient_id\""]);
    // What spreadsheets put first.
    table("sep.csv", "sep=;\ntext;label", &|row| format!("{};{}\n", words(row), row % 2));
    accepted(&place, &["sep.csv"], &["delimiter = \";\"", "text = \"text\", label = \"label\""]);
}

#[test]
fn a_pretrained_model_beside_the_data_is_proposed_and_others_are_named() {
    let place = Place::new();
    write_delimited(&place.path("n.csv"), &notes(), ",");
    let said = place.succeed_and_hear(&["init", "n.csv", "--yes", "--out", "fresh.toml"]);
    for part in
        ["no pretrained encoder was found in this folder", "--model hf:", "know no language"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    place.succeed(&["run", "tiny.toml", "--out", "base", "--quiet"]);
    fs::create_dir(place.path("models")).unwrap();
    fs::rename(place.path("base/model"), place.path("models/own")).unwrap();
    let other = place.path("models/other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("config.json"), "{\"model_type\": \"mamba\"}").unwrap();
    fs::write(other.join("model.safetensors"), "").unwrap();
    let said = place.succeed_and_hear(&["init", "n.csv", "--yes", "--out", "-"]);
    for part in ["path = \"models/own\"", "proposed\n", "models/other", "cannot be used: "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("no pretrained"), "{said}");
    accepted(
        &place,
        &["n.csv"],
        &["path = \"models/own\"", "are cut to 32 tokens (the model reads no more)"],
    );
    // What somebody asks for is not searched for.
    let said = place.succeed(&["init", "n.csv", "--yes", "--preset", "tiny-encoder", "--out", "-"]);
    assert!(said.contains("preset = \"tiny-encoder\""), "{said}");
}

#[test]
fn a_column_that_says_where_a_row_is_from_is_no_label_and_names_are_quoted() {
    let place = Place::new();
    fs::create_dir(place.path("sites")).unwrap();
    for site in ["north", "south"] {
        let mut rows = "note,where,grade\n".to_owned();
        for row in 0..40 {
            let (kind, grade) = (DEPARTMENTS[row % 3].0, row % 4);
            writeln!(rows, "the patient reports {kind},{site},{grade}").unwrap();
        }
        fs::write(place.path(&format!("sites/{site}.csv")), rows).unwrap();
    }
    let made = place.succeed(&["init", "sites", "--yes", "--out", "-"]);
    assert!(made.contains("label = \"grade\""), "{made}");
    // Not every row names its hospital, so it makes no client; it is no label either.
    let mut rows = "note,hospital code,grade\n".to_owned();
    for row in 0..60 {
        let (hospital, kind, grade) = (["n", "s", ""][row % 3], DEPARTMENTS[row % 3].0, row % 4);
        writeln!(rows, "the patient reports {kind},{hospital},{grade}").unwrap();
    }
    let name = "my $(notes) it's.csv";
    fs::write(place.path(name), rows).unwrap();
    let said = place.succeed_and_hear(&["init", name, "--yes", "--out", "my notes.toml"]);
    assert!(said.contains("fedra run 'my notes.toml'"), "{said}");
    let told =
        "column \"hospital code\" may name the client of a row, but it is empty in 20 of 60 rows";
    assert!(said.contains(told) && said.contains(", 4 clients, simulated, "), "{said}");
    let made = fs::read_to_string(place.path("my notes.toml")).unwrap();
    assert!(
        made.contains("label = \"grade\"") && made.contains("fedra data 'my notes.toml'"),
        "{made}"
    );
}

#[test]
fn rows_without_a_label_are_left_out_only_on_request() {
    let place = Place::new();
    let mut rows = "text,label\n".to_owned();
    for row in 0..60 {
        writeln!(rows, "words of row {row},{}", ["a", "b", ""][row % 3]).unwrap();
    }
    fs::write(place.path("gaps.csv"), rows).unwrap();
    let told = place.refused(&["init", "gaps.csv", "--yes"]);
    assert!(
        told.contains("gaps.csv:4: found an empty label") && told.contains("20 of 60 rows"),
        "{told}"
    );
    accepted(&place, &["gaps.csv", "--missing", "drop"], &["missing = \"drop\""]);
}
