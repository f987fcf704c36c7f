//! What example-level privacy stands on: one row more or less in an experiment's file moves what each
//! client releases by that row's clipped gradient, and nothing else.

use std::fmt::Write as _;
use std::path::Path;

use fedra::client::{Correction, TrainTask, Trainer};
use fedra::compute::{Device, SecretKey, Seed};
use fedra::data::Tokenizer;
use fedra::engine::Work;
use fedra::plan::{ByteCount, ParamId, Round, Scope};
use fedra::prepare::partitioned_data::PartitionedData;
use fedra::prepare::prepared::Prepared;
use fedra::{Experiment, Overrides};

const CLIENTS: [&str; 3] = ["east", "north", "west"];
const CLIP: f64 = 0.5;
/// Clipping leaves a margin for its own rounding; this is for the sums of some dozens of f32 gradients in
/// another order and for the step that they are read from.
const ROUNDING: f64 = 1e-6;
/// Of two equal rows another one may stand at a client, and then it sums the same gradients in another order.
const REORDERED: f64 = 1e-5;

/// One row of a file.
fn row(number: usize) -> String {
    let (client, label) = (CLIENTS[number * 7 % 3], ["heart", "lung", "skin"][number % 3]);
    let words = ["days", "notes", "for", "weeks", "pain", "no"];
    let (one, other) = (words[number % 6], words[number / 6 % 6]);
    // Some rows are the same.
    let text = format!("{label} {one} {other} {}", number / 2 % 40);
    format!(
        "{{\"text\": {text:?}, \"label\": {label:?}, \"client\": {client:?}, \"note\": {}}}",
        number / 6
    )
}

fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a folder is made");
    let text = "days notes for weeks pain no heart lung skin 1 2 3 4 5 6 7 8 9 10 20 30";
    let tokenizer = Tokenizer::grow([text], 100).expect("a small vocabulary");
    let json = tokenizer.json();
    std::fs::write(place.path().join("tokenizer.json"), json).expect("a small file is written");
    place
}

/// An experiment over these rows as its file says it: default shares, nothing declared.
fn experiment(folder: &Path, rows: &[String], sets: &[&str]) -> Experiment {
    let mut text = String::new();
    for row in rows {
        writeln!(text, "{row}").expect("a string takes it");
    }
    std::fs::write(folder.join("rows.jsonl"), text).expect("a small file is written");
    let text = format!(
        "[data]\nsource = 'jsonl'\ntask = 'classes'\npath = '{}'\n\
         labels = ['skin', 'heart', 'lung']\nmax_tokens = 16\n\
         [model]\ntokenizer = '{}'\nblocks = 1\nwidth = 8\nheads = 2\n\
         [federation]\nrounds = 1\n\
         [work]\nbatch = 64\noptimiser = {{ name = 'sgd', rate = 64.0 }}\n\
         [privacy]\nnoise = 0.001\nclip = {CLIP}\nrows = 64\n",
        folder.join("rows.jsonl").display(),
        folder.join("tokenizer.json").display()
    );
    let sets = sets.iter().fold(Overrides::default(), |sets, set| sets.set(set));
    Experiment::from_toml(&text, &sets).expect("a legal experiment")
}

/// The sum that each client releases in its first step, by name: the change of every number over the rate, times
/// the divisor. The noise is there, and is the same under one key.
fn released(experiment: &Experiment) -> Vec<(String, Vec<f64>)> {
    let device = Device::cpu();
    let holdings = PartitionedData::of(experiment).expect("legal rows");
    let prepared =
        Prepared::of(experiment, holdings, (&device, None), &fedra::data::Work::default())
            .expect("a small model");
    let recipe = &experiment.recipe;
    let steps = recipe.private_steps().expect("it guarantees something");
    let work = Work { private: Some(steps), max_steps: Some(1), ..recipe.work.clone() };
    let scope = Scope::everything(prepared.model.layout());
    let trainer = Trainer { model: &prepared.model, device: &device, cache: ByteCount(0) };
    let mut all = Vec::new();
    for shard in &prepared.shards.clients {
        let key = SecretKey::simulated(Seed(3));
        let task = TrainTask {
            client: &shard.name,
            examples: shard.train.encoded(),
            round: Round(0),
            scope: &scope,
            work: &work,
            labels: &prepared.shards.labels,
            moments: None,
            correction: Correction::Nothing,
            seed: Seed(5),
            key: Some(&key),
        };
        let change = trainer.train(&mut prepared.params.clone(), &task).expect("it trains").change;
        let mean = steps.mean_batch(work.batch, shard.train.len() as u64) as f64;
        let scale = mean / f64::from(work.solver.rate());
        let numbers = change.iter().flat_map(|(_, values): (ParamId, &[f32])| values.to_vec());
        all.push((shard.name.clone(), numbers.map(|value| f64::from(value) * scale).collect()));
    }
    all
}

/// By how much each client's sum differs from its neighbour's.
fn moved(one: &[(String, Vec<f64>)], other: &[(String, Vec<f64>)]) -> Vec<f64> {
    assert_eq!(one.len(), other.len());
    let both = one.iter().zip(other);
    both.map(|((name, one), (other_name, other))| {
        assert_eq!(name, other_name);
        one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
    })
    .collect()
}

/// Takes single rows out of the table and puts new ones in, and holds every client's sum to the clip norm.
fn check(sets: &[&str], step: usize) {
    let place = place();
    let rows: Vec<String> = (0..150).map(row).collect();
    let whole = released(&experiment(place.path(), &rows, sets));
    let mut most = 0.0_f64;
    let mut hold = |neighbour: &[String], what: &str| {
        let moved = moved(&whole, &released(&experiment(place.path(), neighbour, sets)));
        let changed = moved.iter().filter(|norm| **norm > CLIP * REORDERED).count();
        assert!(changed <= 1, "{what} changes what {changed} clients release: {moved:?}");
        for norm in moved {
            assert!(norm <= CLIP * (1.0 + ROUNDING), "{what} moves a sum by {norm}, not by {CLIP}");
            most = most.max(norm);
        }
    };
    for gone in (0..rows.len()).step_by(step) {
        let mut less = rows.clone();
        let row = less.remove(gone);
        hold(&less, &format!("without row {gone}"));
        // One more of the same, elsewhere.
        let mut more = rows.clone();
        more.insert(rows.len() - gone, row);
        hold(&more, &format!("with row {gone} twice"));
        let mut more = rows.clone();
        more.insert(gone, self::row(1000 + gone));
        hold(&more, &format!("with a new row before row {gone}"));
    }
    // Some of them were trained on, and clipped: else the test would say nothing.
    assert!(most > 0.9 * CLIP, "{most}");
}

#[test]
fn one_row_more_or_less_moves_a_released_sum_by_its_clipped_gradient() {
    check(&[], 5);
}

#[test]
fn so_it_is_where_coins_draw_the_batch_and_rows_are_sampled() {
    check(&["work.batch=24", "data.sample=0.8"], 10);
}

#[test]
fn so_it_is_where_rows_are_divided_among_simulated_clients() {
    for by in ["iid", "quantity", "dirichlet"] {
        let by = format!("data.partition.by={by}");
        let alpha = "data.partition.alpha=2.0";
        let sets = ["federation.clients=3", &by, alpha];
        check(if by.ends_with("iid") { &sets[..2] } else { &sets[..] }, 26);
    }
}

/// What cannot be drawn row by row is refused by name, with what works instead.
#[test]
fn what_counts_other_rows_is_refused_where_single_rows_are_hidden() {
    let place = place();
    let rows: Vec<String> = (0..150).map(row).collect();
    let legal = experiment(place.path(), &rows, &[]);
    let refused = |sets: &[&str]| {
        let text = legal.to_toml().expect("it is written");
        let sets = sets.iter().fold(Overrides::default(), |sets, set| sets.set(set));
        let read = Experiment::from_toml(&text, &sets);
        read.and_then(|experiment| PartitionedData::of(&experiment))
            .map(drop)
            .unwrap_err()
            .in_words()
    };
    for (sets, expected) in [
        (&["data.max_examples=20"][..], "data.sample = 0.5 uses a share of the rows"),
        (
            &["data.partition={ by = 'shards', shards = 2 }", "federation.clients=3"],
            "removing one row would move others",
        ),
        (&["data.partition.min_examples=20"], "cannot be combined with privacy.rows"),
        (&["privacy.cap=1.5"], "no such key with privacy.cap"),
        (&["privacy.unit='client'"], "no such key with privacy.unit"),
        (
            &[
                "data.partition={ by = 'dirichlet', alpha = 1.0 }",
                "federation.clients=3",
                "data.columns.document='note'",
            ],
            "removing one row could move the others",
        ),
    ] {
        let refusal = refused(sets);
        assert!(refusal.contains(expected), "{sets:?}: {refusal}");
    }
    // Client-level privacy is about all their rows anyway.
    let sets = ["privacy={ unit = 'client', noise = 1.0 }", "data.max_examples=5"];
    let capped = experiment(place.path(), &rows, &sets);
    let division = PartitionedData::of(&capped).expect("legal rows").division;
    assert!(division.clients.iter().all(|holding| holding.train.len() == 5));
}
