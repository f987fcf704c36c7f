//! Tasks that are answered in text: shown, refused, learnt, and the files of the repository for them.

use std::fs;
use std::path::Path;

use crate::place::{Place, shared};

/// Rows whose words tell their label.
fn write_rows(place: &Place) {
    let mut rows = String::new();
    for row in 0..40 {
        let (glad, who) = [(true, "Lily was happy"), (false, "Tom was sad")][row % 2];
        let line = serde_json::json!({
            "story": { "text": format!("{who}. The end number {row}.") },
            "glad": glad, "both": ["joy", "woe"], "place": row % 2, "home": format!("h{}", row % 4),
        });
        rows.extend([line.to_string().as_str(), "\n"]);
    }
    fs::write(place.path("rows.jsonl"), rows).unwrap();
}

const PROMPT: &str = "prompt = '''{story.text}\nQuestion: Was it good?\nAnswer:'''";
const YES_NO: &str = "answers = { true = 'yes', false = 'no' }";

fn experiment(place: &Place, model: &str, keys: &[&str]) {
    let keys = keys.join("\n");
    let columns =
        if keys.contains("columns") { "" } else { "columns = { label = 'glad', client = 'home' }" };
    let text = format!(
        "[data]\nsource = 'jsonl'\npath = 'rows.jsonl'\nmax_tokens = 96\n{columns}\n{keys}\n\
         [model]\n{model}\n[federation]\nrounds = 4\n\
         [work]\nbatch = 4\noptimiser = {{ name = 'adamw', rate = 3e-3 }}\n"
    );
    fs::write(place.path("text.toml"), text).unwrap();
}

#[test]
fn data_shows_what_a_model_will_read_and_may_answer() {
    let place = Place::new();
    write_rows(&place);
    experiment(&place, "", &["task = 'choice'", PROMPT, YES_NO]);
    let shown = place.succeed(&["data", "text.toml"]);
    for part in [
        "choice, the likeliest of several answers",
        "  | Lily was happy. The end number 0.\n  | Question: Was it good?\n  | Answer:\n",
        "  answer false: no\n  answer true (right): yes\n",
        "true      20         50.0 %",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }
    experiment(
        &place,
        "",
        &["task = 'generation'", "prompt = '{home}:'", "target = '{story.text}'"],
    );
    let shown = place.succeed(&["data", "text.toml"]);
    assert!(shown.contains("  | h0:\n  to write: Lily was happy. The end number 0."), "{shown}");
}

#[test]
fn what_a_task_in_text_lacks_or_ignores_is_refused_by_its_key() {
    let place = Place::new();
    write_rows(&place);
    let (choice, generation) = ("task = 'choice'", "task = 'generation'");
    let target = "target = '{home}'";
    for (keys, expected) in [
        (&[choice, YES_NO][..], "data.prompt is missing, expected a template"),
        (&[choice, PROMPT], "data.answers is missing, expected a text for each label"),
        (&[choice, "prompt = 'Hello'", YES_NO], "expected at least one column in braces"),
        (&[choice, "prompt = '{story.text'", YES_NO], "expected a column between braces"),
        (&[choice, PROMPT, "answers = ['yes']"], "data.answers: found 1, expected at least 2"),
        (&[choice, PROMPT, YES_NO, target], "data.target applies only to the task generation"),
        (&[choice, PROMPT, YES_NO, "max_new_tokens = 3"], "data.max_new_tokens"),
        (
            &[choice, PROMPT, YES_NO, "labels = ['true', 'false']"],
            "data.labels cannot be combined with data.answers",
        ),
        (&[choice, PROMPT, YES_NO, "length_norm = 'words'"], "data.length_norm"),
        (
            &[choice, PROMPT, "answers = { true = 'yes', other = 'no' }"],
            "rows.jsonl:2: found the label \"false\"",
        ),
        (
            &[choice, PROMPT, "answers = ['{both}', '{none}']", "columns = { label = 'place' }"],
            "column \"none\"",
        ),
        (
            &[choice, PROMPT, "answers = 'home'", "columns = { label = 'place' }"],
            "expected a list of answers",
        ),
        (
            &[choice, PROMPT, YES_NO, "columns = { label = 'glad', text = 'home' }"],
            "data.columns.text cannot be combined with data.prompt",
        ),
        (
            &[choice, PROMPT, YES_NO, "columns = { label = 'glad', rows = 'home' }"],
            "no list in \"home\"",
        ),
        (&[generation, PROMPT], "data.target is missing"),
        (&[generation, PROMPT, target, YES_NO], "data.answers applies only to the task choice"),
        (
            &[generation, PROMPT, target, "max_new_tokens = 96"],
            "less than the 96 of data.max_tokens",
        ),
        (
            &["task = 'classes'", PROMPT],
            "data.prompt applies only to the tasks choice and generation",
        ),
    ] {
        experiment(&place, "", keys);
        let refused = place.refused(&["data", "text.toml"]);
        assert!(refused.contains(expected), "{keys:?}: {refused}");
    }
    experiment(&place, "", &[choice, PROMPT, YES_NO]);
    let refused = place.refused(&["plan", "text.toml"]);
    assert!(refused.contains("or a decoder"), "{refused}");
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn a_decoder_learns_to_choose_and_its_saved_model_still_does() {
    let (place, folder) = (Place::new(), shared("models/stories260k"));
    write_rows(&place);
    let model = format!("path = '{}'", folder.display());
    experiment(&place, &model, &["task = 'choice'", PROMPT, YES_NO]);
    place.succeed(&["run", "text.toml", "--quiet"]);
    let summary = place.summary("runs/text");
    assert_eq!(summary["score"]["name"], "macro_f1");
    let score = summary["score"]["value"].as_f64().unwrap();
    assert!(score > 0.9, "one word tells the answers apart: {score}");

    // Answers of a row's own, by their place in a list, with the model that was saved.
    let keys = ["task = 'choice'", PROMPT, "answers = 'both'", "length_norm = 'characters'"];
    let columns = "columns = { label = 'place', client = 'home' }";
    experiment(&place, "path = 'runs/text/model'", &[&keys[..], &[columns]].concat());
    place.succeed(&["run", "text.toml", "--quiet", "--out", "listed"]);
    assert_eq!(place.summary("listed")["score"]["name"], "macro_f1");
}

#[test]
#[ignore = "needs ../shared/data and ../shared/models: tools/test-shared"]
fn the_files_for_tasks_in_text_run_on_real_rows() {
    let (data, models) = (shared("data"), shared("models"));
    let place = Place::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    for (file, score) in [
        ("superglue-copa.toml", "macro_f1"),
        ("superglue-multirc.toml", "macro_f1"),
        ("mts-dialog-notes.toml", "rouge_l"),
    ] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let text = text.replace("${FEDRA_DATA}", &data.display().to_string());
        let text = text.replace("${FEDRA_MODELS}", &models.display().to_string());
        fs::write(place.path(file), text).unwrap();
        let small = ["federation.rounds=1", "data.max_examples=4", "data.max_test=3"];
        let small = small.iter().flat_map(|set| ["--set", set]);
        let arguments: Vec<&str> = ["run", file, "--quiet"].into_iter().chain(small).collect();
        place.succeed(&arguments);
        let summary = place.summary(&format!("runs/{}", file.trim_end_matches(".toml")));
        assert_eq!(summary["score"]["name"], score, "{file}");
    }
}
