//! Conversations: proposed, shown, learned under every method, and held.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::place::{Place, text};

const EXPERIMENT: &str = r#"
[data]
source = "jsonl"
task = "chat"
path = "talks.jsonl"
columns = { client = "clinic" }
max_tokens = 40
shares = { central = 0.2, validation = 0.0, test = 0.0 }
[model]
preset = "tiny-decoder"
vocabulary = 200
[federation]
rounds = 2
[work]
batch = 4
optimiser = { name = "adamw", rate = 3e-3 }
"#;

fn talk(turns: &[&str]) -> Value {
    let roles = ["user", "assistant"];
    let message =
        |(place, text): (usize, &&str)| json!({"role": roles[place % 2], "content": text});
    turns.iter().enumerate().map(message).collect()
}

/// Forty conversations of two clinics; every tenth is long.
fn write_talks(place: &Place) {
    let mut rows = Vec::new();
    for row in 0..40 {
        let (ill, helps) = [("head", "rest"), ("back", "walk"), ("foot", "sit")][row % 3];
        let (asked, answered) = (format!("my {ill} hurts"), format!("then {helps} well"));
        let turns = [asked.as_str(), answered.as_str()].repeat(if row % 10 == 0 { 6 } else { 1 });
        let clinic = ["north", "south"][row % 2];
        let line = json!({"messages": talk(&turns), "clinic": clinic});
        rows.push(line.to_string());
    }
    fs::write(place.path("talks.jsonl"), rows.join("\n")).unwrap();
    fs::write(place.path("talks.toml"), EXPERIMENT).unwrap();
}

#[test]
fn conversations_are_proposed_and_shown_with_what_is_cut() {
    let place = Place::new();
    write_talks(&place);
    let written = place.succeed(&["init", "talks.jsonl", "--yes", "--out", "-"]);
    for part in ["task = \"chat\"", "messages = \"messages\"", "preset = \"tiny-decoder\""] {
        assert!(written.contains(part), "{part} in {written}");
    }
    let renamed = fs::read_to_string(place.path("talks.jsonl")).unwrap();
    let renamed = renamed.replace("\"messages\"", "\"dialogue\"");
    fs::write(place.path("renamed.jsonl"), renamed).unwrap();
    let named =
        ["init", "renamed.jsonl", "--task", "chat", "--text", "dialogue", "--yes", "--out", "-"];
    let written = place.succeed(&named);
    assert!(written.contains("messages = \"dialogue\""), "{written}");
    let output = place.fedra(&["data", "talks.toml"]);
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    for part in [
        "chat, what the assistant says in conversations",
        "turns",
        "at most 12",
        "  | user: my head hurts\n  | assistant: then rest well",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }
    let part = "4 of 40 conversations are longer than data.max_tokens = 40, and the oldest turns are left out";
    let said = said.replace('\n', " ");
    assert!(said.contains(part), "{part:?} in {said}");
}

#[test]
fn every_layout_reads_as_the_same_conversations() {
    let place = Place::new();
    fs::write(place.path("talks.toml"), EXPERIMENT.replace("client = \"clinic\"", "")).unwrap();
    let pairs: Vec<(String, String)> =
        (0..20).map(|n| (format!("my head hurts {n}"), "then rest well".to_owned())).collect();
    let lines = |row: &dyn Fn(&(String, String)) -> Value| -> String {
        pairs.iter().map(|pair| row(pair).to_string()).collect::<Vec<_>>().join("\n")
    };
    let messages = |(asked, answered): &(String, String)| talk(&[asked, answered]);
    let share = |(asked, answered): &(String, String)| json!([{"from": "human", "value": asked}, {"from": "gpt", "value": answered}]);
    let quoted = |value: Value| value.to_string().replace('"', "\"\"");
    let cell = |pair: &(String, String)| format!("\"{}\"", quoted(messages(pair)));
    let table = pairs.iter().map(cell).collect::<Vec<_>>().join("\n");
    let files = [
        ("messages.jsonl", lines(&|pair| json!({ "messages": messages(pair) })), ""),
        ("shared.jsonl", lines(&|pair| json!({ "conversations": share(pair) })), ""),
        ("pairs.jsonl", lines(&|(a, b)| json!({"prompt": a, "completion": b})), ""),
        (
            "lists.jsonl",
            lines(
                &|(a, b)| json!({"prompt": talk(&[a]), "completion": [{"role": "assistant", "content": b}]}),
            ),
            "",
        ),
        (
            "instructions.jsonl",
            lines(&|(a, b)| json!({"instruction": a, "input": "", "output": b})),
            "",
        ),
        (
            "named.jsonl",
            lines(&|(a, b)| json!({"q": a, "a": b})),
            "{ prompt = \"q\", answer = \"a\" }",
        ),
        ("messages.csv", format!("messages\n{table}"), ""),
    ];
    let mut expected: Option<String> = None;
    for (name, rows, columns) in files {
        fs::write(place.path(name), rows).unwrap();
        let source = format!("data.source={}", name.rsplit('.').next().unwrap());
        let path = format!("data.path={name}");
        let columns = format!("data.columns={}", if columns.is_empty() { "{}" } else { columns });
        let sets =
            [source, path, columns, "data.partition.by=iid".into(), "federation.clients=2".into()];
        let sets = sets.iter().flat_map(|set| ["--set", set.as_str()]);
        let arguments: Vec<&str> = ["data", "talks.toml"].into_iter().chain(sets).collect();
        let shown = place.succeed(&arguments);
        assert!(
            shown.contains("  | user: my head hurts 0\n  | assistant: then rest well"),
            "{name}: {shown}"
        );
        assert_eq!(expected.get_or_insert_with(|| shown.clone()), &shown, "{name}");
    }
}

#[test]
fn conversations_are_learned_under_every_method_and_a_run_resumes() {
    let place = Place::new();
    write_talks(&place);
    place.succeed(&["run", "talks.toml", "--quiet", "--out", "whole"]);
    let summary = place.summary("whole");
    assert_eq!(summary["score"]["name"], "negative_loss");
    place.succeed(&[
        "run",
        "talks.toml",
        "--quiet",
        "--out",
        "half",
        "--set",
        "federation.rounds=1",
    ]);
    fs::copy(place.path("whole/experiment.toml"), place.path("half/experiment.toml")).unwrap();
    fs::remove_file(place.path("half/summary.json")).unwrap();
    place.succeed(&["run", "--resume", "half", "--quiet"]);
    assert_eq!(place.weights("half"), place.weights("whole"));
    for (name, sets) in [
        ("safl", vec!["method={ name = \"safl\", k = 1 }"]),
        ("frozen", vec!["method={ name = \"fedfrozen\", warmup = 1 }"]),
        ("lora", vec!["model.lora={ rank = 2 }"]),
        ("dora", vec!["model.lora={ rank = 2, dora = true, target_modules = \"all-linear\" }"]),
        ("cut", vec!["split={ first = 0, last = 1 }"]),
        (
            "private",
            vec![
                "privacy={ epsilon = 8.0, noise = 1.0 }",
                "model.tokenizer=whole/model",
                "data.shares={ central = 0.2, validation = 0.0, test = 0.0 }",
            ],
        ),
    ] {
        let base = if name == "private" {
            EXPERIMENT.replace("vocabulary = 200\n", "")
        } else {
            EXPERIMENT.to_owned()
        };
        fs::write(place.path("talks.toml"), base).unwrap();
        let sets = sets.iter().flat_map(|set| ["--set", *set]);
        let arguments: Vec<&str> =
            ["run", "talks.toml", "--quiet", "--out", name].into_iter().chain(sets).collect();
        place.succeed(&arguments);
        // Where a model is cut changes no bit of it.
        let is_same = place.weights(name) == place.weights("whole");
        assert_eq!(is_same, name == "cut", "{name}");
    }
    fs::write(place.path("talks.toml"), EXPERIMENT).unwrap();
    let scored: Value = serde_json::from_str(&place.succeed(&[
        "evaluate",
        "--model",
        "whole",
        "talks.toml",
        "--json",
    ]))
    .unwrap();
    let perplexity = scored["sets"]["central_test"]["scores"]["perplexity"].as_f64().unwrap();
    let logged = summary["scores"]["central_test"]["perplexity"].as_f64().unwrap();
    assert!((logged - perplexity).abs() < 1e-9 * logged, "{scored}");
    assert!(perplexity > 1.0, "{scored}");
}

#[test]
fn last_answers_are_written_where_that_is_asked_for_and_nothing_else_changes() {
    let place = Place::new();
    write_talks(&place);
    let mut rows = vec![fs::read_to_string(place.path("talks.jsonl")).unwrap()];
    for row in 0..10 {
        let thanks = format!("thanks {row}");
        let messages = talk(&["my head hurts", "then rest well", &thanks]);
        rows.push(json!({"messages": messages, "clinic": "north"}).to_string());
    }
    fs::write(place.path("talks.jsonl"), rows.join("\n")).unwrap();
    let experiment = EXPERIMENT
        .replace("validation = 0.0, test = 0.0", "validation = 0.1, test = 0.2")
        .replace("rounds = 2", "rounds = 6");
    fs::write(place.path("talks.toml"), &experiment).unwrap();
    place.succeed(&["run", "talks.toml", "--quiet", "--out", "plain"]);
    let written = experiment.replace("max_tokens = 40", "max_tokens = 40\nmax_new_tokens = 8");
    fs::write(place.path("talks.toml"), written).unwrap();
    let output = place.fedra(&["run", "talks.toml", "--out", "written"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr).replace('\n', " ");
    for part in ["that are scored have no ROUGE", "end with no answer to a message"] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    assert_eq!(place.weights("written"), place.weights("plain"));
    let (plain, written) = (place.summary("plain"), place.summary("written"));
    assert_eq!(written["score"], plain["score"]);
    let rouge = ["rouge_1", "rouge_2", "rouge_l"];
    for (set, scores) in written["scores"].as_object().unwrap() {
        for (name, value) in scores.as_object().unwrap() {
            let is_rouge = rouge.iter().any(|rouge| name.ends_with(rouge));
            assert!(is_rouge || plain["scores"][set][name] == *value, "{set} {name}");
            assert!(!is_rouge || plain["scores"][set][name].is_null(), "{set} {name}");
        }
    }
    let rounds = fs::read_to_string(place.path("written/rounds.jsonl")).unwrap();
    assert!(rounds.lines().all(|line| line.contains("rouge_l")), "{rounds}");
    let scored = place.succeed(&["evaluate", "--model", "written", "talks.toml", "--json"]);
    let scored: Value = serde_json::from_str(&scored).unwrap();
    for name in rouge {
        let (found, logged) = (
            &scored["sets"]["central_test"]["scores"][name],
            &written["scores"]["central_test"][name],
        );
        assert!(found == logged && found.as_f64().is_some_and(|it| it > 0.3), "{name}: {scored}");
    }
    let card = fs::read_to_string(place.path("written/model/README.md")).unwrap();
    place.succeed(&["report", "written"]);
    let page = fs::read_to_string(place.path("written/report.html")).unwrap();
    assert!(card.contains("rouge_l") && page.contains("ROUGE by round"), "{card}");
}

#[test]
fn a_bound_on_answers_that_a_conversation_cannot_have_is_refused() {
    let place = Place::new();
    write_talks(&place);
    let split = "split={ first = 0, last = 1 }";
    for (sets, expected) in [
        (&["data.max_new_tokens=40"][..], "less than the 40 of data.max_tokens"),
        (&["data.max_new_tokens=0"], "data.max_new_tokens"),
        (&["data.max_new_tokens=8", split], "data.max_new_tokens cannot be combined with [split]"),
        (&["data.task=language", "data.max_new_tokens=8"], "to the tasks generation and chat"),
    ] {
        let sets = sets.iter().flat_map(|set| ["--set", *set]);
        let arguments: Vec<&str> = ["plan", "talks.toml"].into_iter().chain(sets).collect();
        let refused = place.refused(&arguments);
        assert!(refused.contains(expected), "{expected}: {refused}");
    }
    place.succeed(&["plan", "talks.toml", "--set", "data.max_new_tokens=8"]);
}

fn say(place: &Place, lines: &str, more: &[&str]) -> (String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fedra"))
        .current_dir(place.folder.path())
        .args([&["generate", "--chat", "--model", "run", "--max-tokens", "8"], more].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_conversation_goes_on_from_the_cache_and_says_what_it_would_say_at_once() {
    let place = Place::new();
    write_talks(&place);
    place.succeed(&["run", "talks.toml", "--quiet", "--out", "run"]);
    let template = fs::read_to_string(place.path("run/model/chat_template.jinja")).unwrap();
    assert!(template.contains("add_generation_prompt"), "{template}");
    let (told, _) =
        say(&place, "my head hurts\n\nand my back\n", &["--json", "--system", "be kind"]);
    let answers: Vec<Value> =
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 2, "{told}");
    let count = |answer: &Value, key: &str| answer[key].as_u64().unwrap();
    assert_eq!(count(&answers[0], "read_tokens"), count(&answers[0], "prompt_tokens"));
    assert!(count(&answers[1], "read_tokens") < count(&answers[1], "prompt_tokens"), "{told}");
    // The same conversation from a file, read at once.
    let whole = json!([
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "my head hurts"},
        {"role": "assistant", "content": answers[0]["text"]},
        {"role": "user", "content": "and my back"},
    ]);
    fs::write(place.path("whole.json"), whole.to_string()).unwrap();
    let (once, _) = say(&place, "", &["--json", "--messages", "whole.json"]);
    let once: Value = serde_json::from_str(&once).unwrap();
    assert_eq!(once["tokens"], answers[1]["tokens"]);
    assert_eq!(once["prompt_tokens"], answers[1]["prompt_tokens"]);
    // One question from a flag; draws follow the seed.
    let (plain, said) = say(&place, "", &["--prompt", "my head hurts", "--system", "be kind"]);
    assert_eq!(plain.trim(), answers[0]["text"].as_str().unwrap().trim());
    assert!(said.contains("tokens of the conversation read"), "{said}");
    let drawn = |seed| say(&place, "a\nb\n", &["--temperature", "2", "--seed", seed]).0;
    assert_eq!(drawn("1"), drawn("1"));
    assert_ne!(drawn("1"), drawn("2"));
}

#[test]
fn what_is_no_conversation_is_refused_by_its_key_or_line() {
    let place = Place::new();
    write_talks(&place);
    for (set, expected) in [
        ("data.columns={ text = \"clinic\" }", "data.columns.text"),
        ("data.columns={ prompt = \"clinic\" }", "prompt and answer are named together"),
        ("data.columns={ messages = \"none\" }", "column \"none\""),
        ("data.chat_template=none.jinja", "there is no file or folder none.jinja"),
        ("data.prompt={clinic}", "data.prompt applies only to the tasks choice and generation"),
        ("model.preset=tiny-encoder", "a decoder"),
    ] {
        let refused = place.refused(&["plan", "talks.toml", "--set", set]);
        assert!(refused.contains(expected), "{set}: {refused}");
    }
    let tool = json!({"messages": [{"role": "tool", "content": "x"}], "clinic": "a"});
    fs::write(place.path("talks.jsonl"), format!("{tool}\n")).unwrap();
    let refused = place.refused(&["data", "talks.toml"]);
    assert!(refused.contains("talks.jsonl:1: found a message of \"tool\""), "{refused}");
    fs::write(place.path("strict.jinja"), "{{ raise_exception('only on mondays') }}").unwrap();
    write_talks(&place);
    let refused = place.refused(&["run", "talks.toml", "--set", "data.chat_template=strict.jinja"]);
    assert!(refused.contains("only on mondays"), "{refused}");
    let refused = place.refused(&["generate", "--model", "none"]);
    assert!(refused.contains("--chat holds a conversation"), "{refused}");
    fs::write(place.path("end.json"), talk(&["a", "b"]).to_string()).unwrap();
    let refused =
        place.refused(&["generate", "--chat", "--model", "none", "--messages", "end.json"]);
    assert!(refused.contains("a message of the user at the end"), "{refused}");
}

/// What one set of a report scored.
fn loss(report: &str, set: &str) -> f64 {
    let report: Value = serde_json::from_str(report).unwrap();
    let sets = if report["sets"].is_object() { &report["sets"] } else { &report["scores"] };
    let scores = &sets[set];
    let scores = if scores["scores"].is_object() { &scores["scores"] } else { scores };
    scores["loss"].as_f64().unwrap_or_else(|| panic!("no loss on {set} in {report}"))
}

#[test]
fn adapters_keep_the_template_and_the_special_tokens_that_they_were_trained_with() {
    const TEMPLATE: &str = "{{ cls_token }}{% for m in messages %}{% if m.role == 'user' %}ask {{ m.content }} \
                            {% else %}say {% generation %}{{ m.content }}{{ sep_token }}{% endgeneration %}\
                            {% endif %}{% endfor %}{% if add_generation_prompt %}say {% endif %}";
    let place = Place::new();
    write_talks(&place);
    place.succeed(&["run", "talks.toml", "--quiet", "--out", "first"]);
    fs::rename(place.path("first/model"), place.path("base")).unwrap();
    // Some bases have nothing beside their tokenizer; what a saved model says of special tokens is true of its training.
    for file in ["tokenizer_config.json", "chat_template.jinja"] {
        fs::remove_file(place.path("base").join(file)).unwrap();
    }
    fs::write(place.path("own.jinja"), TEMPLATE).unwrap();
    let sets = |weights: &str| {
        let lora = "lora={rank=2,head=\"frozen\"}";
        let model = format!("model={{path=\"base\",weights=\"{weights}\",{lora}}}");
        [model, "data.chat_template=own.jinja".to_owned()]
    };
    for (weights, out) in [("f32", "whole"), ("int8", "alone")] {
        let sets = sets(weights);
        let sets = sets.iter().flat_map(|set| ["--set", set.as_str()]);
        let run: Vec<&str> =
            ["run", "talks.toml", "--quiet", "--out", out].into_iter().chain(sets).collect();
        place.succeed(&run);
        let summary = fs::read_to_string(place.path(out).join("summary.json")).unwrap();
        let experiment = format!("{out}/experiment.toml");
        let again = place.succeed(&["evaluate", "--model", out, &experiment, "--json"]);
        let scored = [&summary, &again].map(|report| loss(report, "central_test"));
        assert!((scored[0] - scored[1]).abs() < 1e-6, "{out}: {scored:?}");
        let kept = fs::read_to_string(place.path(out).join("adapter/chat_template.jinja")).unwrap();
        assert_eq!(kept, TEMPLATE);
        // A run knows its task, and adapters their template, wherever they lie.
        fs::rename(place.path(out).join("adapter"), place.path(&format!("{out}-adapter"))).unwrap();
        let adapter = format!("{out}-adapter");
        let rows = ["evaluate", "talks.jsonl", "--json", "--model"];
        let named = [adapter.as_str(), "--task", "chat", "--weights", weights];
        let of_adapter = place.succeed(&[&rows[..], &named].concat());
        fs::rename(place.path(&adapter), place.path(out).join("adapter")).unwrap();
        let of_run = place.succeed(&[&rows[..], &[out]].concat());
        let scored = [&of_adapter, &of_run].map(|report| loss(report, "rows"));
        assert!((scored[0] - scored[1]).abs() < 1e-4, "{out}: {scored:?}");
    }
    let ask = ["generate", "--chat", "--model", "alone", "--prompt", "my head hurts", "--json"];
    let template = ["--chat-template", "own.jinja"];
    let [own, named] = [&ask[..], &[&ask[..], &template].concat()].map(|arguments| {
        let told: Value = serde_json::from_str(&place.succeed(arguments)).unwrap();
        (told["prompt_tokens"].clone(), told["text"].clone())
    });
    assert_eq!(own, named);
    let from =
        |lora: &str| format!("model={{path=\"base\",adapter=\"alone/adapter\",lora={lora}}}");
    place.succeed(&["plan", "talks.toml", "--set", &from("{head=\"frozen\"}")]);
    let refused = place.refused(&["plan", "talks.toml", "--set", &from("{rank=4}")]);
    assert!(refused.contains("neither rank, alpha nor roles"), "{refused}");
    let card = fs::read_to_string(place.path("alone/adapter/README.md")).unwrap();
    for part in ["Low-rank adapters for the task chat", "fedra generate --chat --model FOLDER"] {
        assert!(card.contains(part), "{part:?} in {card}");
    }
}

#[test]
fn rows_without_one_of_their_keys_are_dropped_where_that_is_asked_for() {
    let place = Place::new();
    fs::write(place.path("talks.toml"), EXPERIMENT.replace("client = \"clinic\"", "")).unwrap();
    let rows: Vec<String> = (0..20)
        .map(|row| json!({"prompt": format!("my head hurts {row}"), "completion": "then rest"}))
        .chain([json!({"prompt": "my back hurts"})])
        .map(|row| row.to_string())
        .collect();
    fs::write(place.path("talks.jsonl"), rows.join("\n")).unwrap();
    let by = ["--set", "data.partition.by=iid", "--set", "federation.clients=2"];
    let data = [&["data", "talks.toml"][..], &by].concat();
    let refused = place.refused(&data);
    assert!(refused.contains("data.missing") && refused.contains("1 of 21 rows"), "{refused}");
    let dropped = [&data[..], &["--set", "data.missing=drop"]].concat();
    assert!(place.succeed(&dropped).contains("20"), "20 rows are left");
    let refused = place.refused(&["serve", "talks.toml", "--openai"]);
    assert!(refused.contains("--openai needs --model"), "{refused}");
}
