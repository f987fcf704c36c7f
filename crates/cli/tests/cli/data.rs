//! `fedra data`, and data from files.

use std::fs;
use std::process::Command;

use crate::place::{Place, text};

#[test]
fn data_shows_rows_labels_and_clients() {
    let shown = Place::new().succeed(&["data", "tiny.toml"]);
    assert_eq!(shown, include_str!("../data.txt"));
}

#[test]
fn files_are_read_through_variables_and_capped() {
    let place = Place::new();
    let mut rows = String::new();
    for row in 0..30 {
        let (label, client) = (["heart", "lung"][row % 2], ["north", "south"][row % 3 / 2]);
        let note = format!("{label} {row}");
        let line = serde_json::json!({ "note": note, "label": label, "client": client });
        rows.extend([line.to_string().as_str(), "\n"]);
    }
    fs::write(place.path("rows.jsonl"), rows).unwrap();
    let experiment = "\
        [data]\nsource = 'jsonl'\ntask = 'classes'\npath = '${HERE}/rows.jsonl'\n\
        columns = { text = 'note' }\nmax_examples = 4\nmax_tokens = 8\n\
        [model]\npreset = 'tiny-encoder'\nblocks = 1\nwidth = 8\nheads = 2\n\
        [federation]\nrounds = 1\n";
    fs::write(place.path("files.toml"), experiment).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
    command.current_dir(place.folder.path()).env("HERE", place.folder.path());
    let output = command.args(["run", "files.toml"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary = place.summary("runs/files");
    assert_eq!((&summary["clients"], &summary["examples"]), (&2.into(), &8.into()));
    assert_eq!(summary["score"]["name"], "macro_f1");
}

#[test]
fn a_site_looks_at_its_own_rows_without_anybody_elses() {
    let place = Place::new();
    place.succeed(&["run", "tiny.toml", "--out", "base"]);
    let row = |label: &str| {
        format!("{{\"text\": \"a {label}\", \"label\": \"{label}\", \"client\": \"north\"}}\n")
    };
    let others = row("skin").replace("north", "west");
    fs::write(place.path("rows.jsonl"), [row("heart"), row("lung")].concat().repeat(5)).unwrap();
    let experiment = "\
        [data]\nsource = 'jsonl'\ntask = 'classes'\ntrain = 'rows.jsonl'\ntest = 'at-the-server.jsonl'\n\
        labels = ['heart', 'lung', 'skin']\nmax_tokens = 8\nshares = { validation = 0.0, test = 0.0 }\n\
        [model]\npath = 'base/model'\n[federation]\nrounds = 1\nnames = ['north', 'west']\n";
    fs::write(place.path("study.toml"), experiment).unwrap();
    let shown = place.succeed(&["data", "study.toml", "--client", "north"]);
    assert!(shown.contains("training rows   10") && shown.contains("north"), "{shown}");
    let told = place.refused(&["data", "study.toml", "--client", "west"]);
    assert!(told.contains("client: found \"west\", expected one of north"), "{told}");
    let told = place.refused(&["data", "study.toml", "--client", "east"]);
    assert!(told.contains("client: found \"east\", expected one of north, west"), "{told}");
    let told = place.refused(&["data", "study.toml"]);
    assert!(told.contains("at-the-server.jsonl"), "{told}");
    // Rows of another in its file change nothing of what is shown.
    let both = fs::read_to_string(place.path("rows.jsonl")).unwrap() + &others.repeat(6);
    fs::write(place.path("rows.jsonl"), both).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
    command.current_dir(place.folder.path()).args(["data", "study.toml", "--client", "north"]);
    let output = command.output().unwrap();
    assert_eq!(text(&output.stdout), shown);
    let said = text(&output.stderr);
    assert!(said.contains("note: 6 rows of others (west) are left out"), "{said}");
}

#[test]
fn pairs_of_texts_in_another_encoding_are_learnt_and_saved_with_their_tokenizer() {
    let place = Place::new();
    let mut rows = "question;context;label;client\n".to_owned();
    for row in 0..30 {
        let (label, client) = (["yes", "no"][row % 2], ["north", "south"][row % 3 / 2]);
        let line = format!("fi\u{e8}vre ?;\"{label}; na\u{ef}ve\";{label};{client}\n");
        rows.push_str(&line);
    }
    let latin: Vec<u8> = rows.chars().map(|letter| letter as u8).collect();
    fs::write(place.path("rows.csv"), latin).unwrap();
    let experiment = "\
        [data]\nsource = 'csv'\ntask = 'classes'\npath = 'rows.csv'\nmax_tokens = 16\n\
        delimiter = ';'\nencoding = 'latin-1'\ncolumns = { text = ['question', 'context'] }\n\
        [model]\npreset = 'tiny-encoder'\nblocks = 1\nwidth = 8\nheads = 2\n\
        [federation]\nrounds = 1\n";
    fs::write(place.path("pairs.toml"), experiment).unwrap();
    place.succeed(&["run", "pairs.toml"]);
    let saved = fs::read_to_string(place.path("runs/pairs/model/tokenizer_config.json")).unwrap();
    let saved: serde_json::Value = serde_json::from_str(&saved).unwrap();
    assert_eq!((&saved["model_max_length"], &saved["pad_token"]), (&16.into(), &"[PAD]".into()));
    let vocabulary = fs::read_to_string(place.path("runs/pairs/model/tokenizer.json")).unwrap();
    assert!(vocabulary.contains("\"fievre\"") && vocabulary.contains("\"naive\""), "{vocabulary}");
    // The resolved file runs again, with the keys as they were.
    let again = fs::read_to_string(place.path("runs/pairs/experiment.toml")).unwrap();
    assert!(again.contains("encoding = \"latin-1\"") && again.contains("delimiter = \";\""));

    for (set, expected) in [
        ("data.encoding=utf-8", "rows.csv:2: found the byte 0xe8 at byte 3 of the line"),
        ("data.encoding=koi8", "data.encoding: found \"koi8\", expected"),
        ("data.delimiter=ab", "data.delimiter: found"),
        ("data.delimiter=\u{a7}", "expected one ASCII character"),
        ("data.source=parquet", "data.delimiter applies only with data.source"),
        ("data.task=language", "data.columns.text: pairs of texts are for"),
        ("data.columns.text=[\"question\"]", "data.columns.text: found [\"question\"], expected"),
        ("data.columns.text=[\"label\", \"label\"]", "or a list of two different ones"),
    ] {
        let message = place.fedra(&["run", "pairs.toml", "--out", "other", "--set", set]);
        let said = text(&message.stderr);
        assert!(!message.status.success() && said.contains(expected), "{set}: {said}");
    }
}

#[test]
fn small_clients_are_merged_or_left_out_and_data_says_so() {
    let place = Place::new();
    let mut rows = String::new();
    for (client, count) in [("north", 6), ("south", 2), ("east", 1), ("west", 5)] {
        for row in 0..count {
            let label = ["heart", "lung"][row % 2];
            let line = serde_json::json!({ "text": "note", "label": label, "client": client });
            rows.extend([line.to_string().as_str(), "\n"]);
        }
    }
    fs::write(place.path("rows.jsonl"), rows).unwrap();
    let experiment = "\
        [data]\nsource = 'jsonl'\ntask = 'classes'\npath = 'rows.jsonl'\n\
        shares = { central = 0.0, validation = 0.0, test = 0.0 }\n\
        partition = { by = 'client', min_examples = 5 }\n[federation]\nrounds = 1\n";
    fs::write(place.path("small.toml"), experiment).unwrap();
    let merged = place.succeed(&["data", "small.toml"]);
    let said = "3 (2 with fewer than 5 training rows merged into \"others\")";
    assert!(merged.contains(said), "{merged}");
    assert!(merged.contains("others        ██████████                 3      0"), "{merged}");
    let dropped = place.succeed(&["data", "small.toml", "--set", "data.partition.small=drop"]);
    assert!(dropped.contains("2 (2 with fewer than 5 training rows left out)"), "{dropped}");
    assert!(dropped.contains("14 (3 left out)"), "{dropped}");
    let without = "data.partition.leave_out=['north']";
    let without = place.succeed(&["data", "small.toml", "--set", without]);
    let said = without.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(" rows 8 ") && said.contains("take no part north"), "{without}");
    assert_eq!(without.matches("north").count(), 1, "{without}");
    let nobody = "data.partition.leave_out=['nobody']";
    let nobody = place.refused(&["data", "small.toml", "--set", nobody]);
    assert!(nobody.contains("leave_out: found \"nobody\", expected only clients"), "{nobody}");
    let set = "data.partition.min_examples=50";
    let error =
        place.refused(&["data", "small.toml", "--set", set, "--set", "data.partition.small=drop"]);
    assert!(error.contains("data.partition.min_examples: found 50"), "{error}");
    let error = place.refused(&["data", "tiny.toml", "--set", "data.partition.small=drop"]);
    assert!(error.contains("data.partition.small"), "{error}");
}

#[test]
fn where_rows_have_several_labels_shares_are_of_rows() {
    let place = Place::new();
    let mut rows = String::new();
    for labels in [vec!["flu", "gout"], vec!["flu", "gout"], vec!["flu"], vec![]] {
        let line = serde_json::json!({ "text": "note", "labels": labels, "client": "north" });
        rows.extend([line.to_string().as_str(), "\n"]);
    }
    fs::write(place.path("rows.jsonl"), rows).unwrap();
    let experiment = "[data]\nsource = 'jsonl'\ntask = 'diagnosis'\npath = 'rows.jsonl'\n\
                      shares = { central = 0.0, validation = 0.0, test = 0.0 }\n\
                      [federation]\nrounds = 1\n";
    fs::write(place.path("codes.toml"), experiment).unwrap();
    let shown = place.succeed(&["data", "codes.toml"]);
    let table = "\
label       count  share of rows
flu             3         75.0 %
gout            2         50.0 %
(no label)      1         25.0 %
";
    assert!(shown.contains(table), "{shown}");
    assert!(shown.contains("the label's share of the client's rows against"), "{shown}");
}

/// The experiments that `docs/data.md` shows, by the name in their first line.
fn documented(name: &str) -> String {
    let page = include_str!("../../../../docs/data.md");
    let start = format!("```toml\n# {name}\n");
    let (_, rest) = page.split_once(&start).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_documented_way_from_a_file_to_a_run_is_passable() {
    let place = Place::new();
    let (mut lines, mut table) = (String::new(), "note,department,hospital\n".to_owned());
    for row in 0..60 {
        let (note, label) = [("chest pain", "cardiology"), ("cough", "pulmonology")][row % 2];
        let hospital = ["north", "south", "west"][row % 3];
        let line = serde_json::json!({ "note": note, "department": label, "hospital": hospital });
        lines.extend([line.to_string().as_str(), "\n"]);
        table.extend([note, ",", label, ",", hospital, "\n"]);
    }
    let words = "# doc 17\nNo\tO\nchest\tB-problem\npain\tI-problem\n\n";
    let words: String = (0..12).map(|doc| words.replace("17", &doc.to_string())).collect();
    for (name, text) in [("notes.jsonl", &lines), ("notes.csv", &table), ("words.conll", &words)] {
        fs::write(place.path(name), text).unwrap();
    }
    for name in ["notes.toml", "words.toml"] {
        fs::write(place.path(name), documented(name)).unwrap();
    }
    let small =
        ["--set", "model.width=16", "--set", "model.blocks=1", "--set", "federation.rounds=1"];
    for file in ["notes.toml", "words.toml"] {
        for command in ["data", "plan", "run"] {
            place.succeed(&[&[command, file], &small[..]].concat());
        }
    }
    assert_eq!(place.summary("runs/notes")["clients"], 3);
    assert_eq!(place.summary("runs/words")["clients"], 2);
    let csv = ["--set", "data.source=csv", "--set", "data.path=notes.csv"];
    let as_csv = place.succeed(&[&["data", "notes.toml"], &csv[..]].concat());
    assert_eq!(as_csv, place.succeed(&["data", "notes.toml"]));
}

/// Rows of a label each, at a client each.
fn labelled(place: &Place, rows: &[(&str, &str)]) {
    let line = |(label, client): &(&str, &str)| {
        serde_json::json!({ "text": "note", "label": label, "client": client }).to_string() + "\n"
    };
    fs::write(place.path("rows.jsonl"), rows.iter().map(line).collect::<String>()).unwrap();
    let experiment = "[data]\nsource = 'jsonl'\ntask = 'classes'\npath = 'rows.jsonl'\n\
                      shares = { central = 0.0, validation = 0.0, test = 0.0 }\nmax_tokens = 8\n\
                      [model]\npreset = 'tiny-encoder'\nblocks = 1\nwidth = 8\nheads = 2\n\
                      [federation]\nrounds = 1\n";
    fs::write(place.path("rows.toml"), experiment).unwrap();
}

#[test]
fn names_out_of_files_cannot_steer_the_terminal() {
    let place = Place::new();
    let red = "\u{1b}[31mred";
    labelled(&place, &[(red, "north\r"), ("b", "north\r"), (red, "so\nuth"), ("b", "so\nuth")]);
    for command in ["data", "plan", "run"] {
        let output = place.fedra(&[command, "rows.toml"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        for said in [text(&output.stdout), text(&output.stderr)] {
            let obeyed = |c: char| c.is_control() && c != '\n';
            assert!(!said.contains(obeyed), "{command}: {said:?}");
        }
    }
    let shown = place.succeed(&["data", "rows.toml"]);
    assert!(shown.contains("\\u{1b}[31mred") && shown.contains("so\\nuth"), "{shown}");
}

#[test]
fn of_many_clients_the_largest_are_shown_unless_all_are_asked_for() {
    let place = Place::new();
    let names: Vec<String> = (0..50).map(|client| format!("c{client}")).collect();
    let mut rows: Vec<(&str, &str)> = names.iter().map(|name| ("a", name.as_str())).collect();
    rows.extend([("b", "c49"), ("b", "c49")]);
    labelled(&place, &rows);
    let output = place.fedra(&["data", "rows.toml"]);
    let shown = text(&output.stdout);
    let clients = |shown: &str| shown.lines().filter(|line| line.starts_with('c')).count();
    // Two lines of facts, the heading of the picture and its last line begin with a c too.
    assert_eq!(clients(&shown), 30 + 4, "{shown}");
    assert!(shown.contains("\nc49 ") && shown.contains("\nand 20 more"), "{shown}");
    assert!(text(&output.stderr).contains("note: --all shows every client"));
    let all = place.succeed(&["data", "rows.toml", "--all"]);
    assert_eq!(clients(&all), 50 + 4, "{all}");
    assert!(!all.contains("more"), "{all}");
}

#[test]
fn what_is_odd_about_the_data_is_said_by_every_command() {
    let place = Place::new();
    labelled(&place, &[("a", "north"), ("a", "south")]);
    for command in ["data", "plan", "run"] {
        let output = place.fedra(&[command, "rows.toml"]);
        let said = text(&output.stderr);
        for note in ["every row has the label \"a\"", "the run will have no score"] {
            assert_eq!(said.matches(note).count(), 1, "{command}: {said}");
        }
    }
    let cut = ["--set", "data.max_tokens=12"];
    let noted = |command: &str| {
        let said = text(&place.fedra(&[&[command, "tiny.toml"], &cut[..]].concat()).stderr);
        let mut notes = said.lines().filter(|line| line.contains("are cut to 12 tokens"));
        let note = notes.next().unwrap_or_else(|| panic!("{command}: {said}")).to_owned();
        assert_eq!(notes.next(), None, "{command}: {said}");
        note
    };
    let said = noted("data");
    assert!(
        said.contains("of 71 rows are cut to 12 tokens (data.max_tokens): 95 % have"),
        "{said}"
    );
    assert_eq!(noted("plan"), said);
}

#[test]
fn a_run_stands_beside_the_commonest_label_and_says_when_it_is_no_better() {
    let place = Place::new();
    let rows: Vec<(&str, &str)> =
        (0..30).map(|row| (["a", "b", "a"][row % 3], ["north", "south"][row % 2])).collect();
    labelled(&place, &rows);
    let sets = ["--set", "data.shares={ central = 0.3, validation = 0.0, test = 0.0 }"];
    // All texts are the same word, so nothing can be learnt but the commonest label.
    let table = place.succeed(&[&["run", "rows.toml"], &sets[..]].concat());
    assert!(table.contains("by always answering \"a\""), "{table}");
    assert!(table.contains("no better than always answering \"a\""), "{table}");
    let baseline = &place.summary("runs/rows")["baseline"];
    assert_eq!(baseline["answer"], "always answering \"a\"");
    assert!(baseline["scores"]["central_test"]["macro_f1"].as_f64() > Some(0.0), "{baseline}");
}

#[test]
fn rows_without_a_label_are_refused_with_their_lines_or_left_out_and_counted() {
    let place = Place::new();
    let labels = ["a", " a", "b", "", "A", "b ", "", "b"];
    let rows: Vec<(&str, &str)> =
        labels.iter().enumerate().map(|(row, label)| (*label, ["n", "s"][row % 2])).collect();
    labelled(&place, &rows);
    for command in ["data", "plan", "run"] {
        let said = place.refused(&[command, "rows.toml"]);
        assert!(
            said.contains(
                "rows.jsonl:4: found an empty label, expected a name: 2 of 8 rows lack a text or a label \
                 (lines 4, 7); data.missing = \"drop\""
            ),
            "{said}"
        );
    }
    let drop = ["data", "rows.toml", "--set", "data.missing=drop"];
    let output = place.fedra(&drop);
    let said = text(&output.stderr);
    for note in [
        "note: blanks around 2 labels were trimmed",
        "note: 2 rows without a text or a label are left out (data.missing), the first at ",
        "note: the labels \"A\" (1), \"a\" (2) differ only in case or spelling and count as 2 classes",
    ] {
        assert_eq!(said.matches(note).count(), 1, "{note}: {said}");
    }
    assert!(text(&output.stdout).contains("rows            6"), "{}", text(&output.stdout));
    let said = place.refused(&["data", "tiny.toml", "--set", "data.missing=drop"]);
    assert!(said.contains("data.missing applies only to files"), "{said}");
    let said = place.refused(&["data", "rows.toml", "--set", "data.missing=guess"]);
    assert!(said.contains("data.missing"), "{said}");
}

#[test]
fn blanks_around_a_column_a_blank_split_and_test_texts_that_were_trained_on_are_said() {
    let place = Place::new();
    let mut rows = "text , label,split\n".to_owned();
    for row in 0..40 {
        let split = ["train", "test", "train", ""][row % 4];
        let line = format!("note {},{},{split}\n", row % 7, ["a", "b"][row % 2]);
        rows.push_str(&line);
    }
    fs::write(place.path("rows.csv"), rows).unwrap();
    let experiment = "[data]\nsource = 'csv'\ntask = 'classes'\npath = 'rows.csv'\nmax_tokens = 8\n\
                      partition = { by = 'iid' }\n[model]\npreset = 'tiny-encoder'\n\
                      [federation]\nrounds = 1\nclients = 2\n";
    fs::write(place.path("rows.toml"), experiment).unwrap();
    let said = place.succeed_and_hear(&["data", "rows.toml"]);
    for note in [
        "note: blanks around 2 column names were trimmed",
        "note: 10 rows have no split where others do, the first at ",
        "have the same text as a training row: their scores say little about new texts",
    ] {
        assert_eq!(said.matches(note).count(), 1, "{note}: {said}");
    }
    assert!(said.contains("rows.csv:5: they are divided by data.shares"), "{said}");
    let said = place.refused(&["data", "rows.toml", "--client", "client-1"]);
    assert!(said.contains("other partitions need all rows on one machine"), "{said}");
}
