//! `fedra plan` held to what sites take, and to what both sides of a cut measure: a server and its sites, each a
//! process.

use crate::place::{Place, TINY, published, wait};

/// How far a forecast may be from the measurement, either way.
const TOLERANCE: f64 = 0.10;
/// The same of a server whose clients keep a copy each: how many of their steps meet is up to the
/// machine, and passes that wait are most of what it holds.
const MEETING: f64 = 0.30;

/// What a plan foresees for its cut, client and server.
fn foreseen(place: &Place, flags: &[&str]) -> [f64; 2] {
    let output = place.command("plan", flags).env("COLUMNS", "200").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = text.lines().find(|line| line.contains("<- this run")).unwrap();
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    [cells[1], cells[2]].map(bytes)
}

fn bytes(written: &str) -> f64 {
    let (number, unit) = written.split_once(' ').unwrap();
    let factor = match unit {
        "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        other => panic!("{other} for a small model"),
    };
    factor * number.parse::<f64>().unwrap()
}

/// What the last round reports, client and server.
fn measured(place: &Place, sites: u32, flags: &[&str]) -> [f64; 2] {
    let (server, address) = place.serve("far", flags);
    let joined: Vec<_> = (1..=sites).map(|number| place.join(number, &address, flags)).collect();
    server.succeed();
    for site in joined {
        site.succeed();
    }
    let text = std::fs::read_to_string(place.path("far").join("rounds.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    ["client", "server"].map(|side| last["memory"][side].as_f64().unwrap())
}

#[track_caller]
fn check(sites: u32, file: &str, splits: &[&str]) {
    for split in splits {
        let place = Place::new();
        let split = format!("split={split}");
        let flags = [file, "--set", &split];
        let (plan, run) = (foreseen(&place, &flags), measured(&place, sites, &flags));
        for (side, plan, run) in [("client", plan[0], run[0]), ("server", plan[1], run[1])] {
            let meets = side == "server" && !split.contains("mode");
            let tolerance = if meets { MEETING } else { TOLERANCE };
            let near = (plan / run - 1.0).abs() <= tolerance;
            assert!(near, "{split}, {side}: {plan} B foreseen and {run} B measured");
        }
    }
}

const SPLITS: [&str; 4] = [
    "{ first = 1, last = 1 }",
    "{ first = 0, last = 0, mode = 'sequential', encoding = 'int8' }",
    "{ first = 1, last = 1, mode = 'batched' }",
    "{ first = 1, last = 2, mode = 'sequential' }",
];

#[test]
fn an_encoder_holds_what_its_plan_foresees_on_both_sides_of_a_cut() {
    let place = Place::new();
    let text = std::fs::read_to_string(TINY).unwrap();
    let text = text.replace("blocks = 2", "blocks = 4").replace("width = 16", "width = 64");
    let file = place.path("wide.toml");
    std::fs::write(&file, text).unwrap();
    check(3, &file.display().to_string(), &SPLITS);
}

/// Rows of two sites, of many lengths.
fn rows(place: &Place) -> String {
    let row = |number: usize| {
        let words = ["a", "dog", "ran", "to", "the", "big", "tree", "and", "saw", "her"];
        let said: Vec<&str> = (0..6 + 5 * (number % 7))
            .map(|place| words[(number * 7 + place * 3) % words.len()])
            .collect();
        let (site, label) = (1 + number % 2, if number.is_multiple_of(3) { "yes" } else { "no" });
        let text = said.join(" ");
        format!("{{\"text\": \"{text}\", \"label\": \"{label}\", \"site\": \"hospital-{site}\"}}\n")
    };
    let path = place.path("rows.jsonl");
    std::fs::write(&path, (0..48).map(row).collect::<String>()).unwrap();
    path.display().to_string()
}

/// An experiment with a real decoder.
fn decoder(place: &Place, task: &str, lora: &str) -> String {
    let (rows, model) = (rows(place), published("stories260k"));
    let text = format!(
        "seed = 3\n[data]\nsource = 'jsonl'\npath = '{rows}'\npartition = {{ by = 'client' }}\n\
         shares = {{ central = 0.0, validation = 0.0, test = 0.2 }}\nmax_tokens = 64\n{task}\n\
         [model]\npath = '{model}'\n{lora}\n\
         [federation]\nrounds = 2\nnames = ['hospital-1', 'hospital-2']\n\
         [work]\nbatch = 8\noptimiser = {{ name = 'adamw', rate = 1e-3 }}\n"
    );
    let file = place.path("decoder.toml");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn a_decoder_that_learns_text_holds_what_its_plan_foresees() {
    let place = Place::new();
    let task = "task = 'language'\ncolumns = { text = 'text', client = 'site' }";
    check(2, &decoder(&place, task, ""), &SPLITS);
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn a_decoder_whose_adapters_learn_to_choose_holds_what_its_plan_foresees() {
    let place = Place::new();
    let task = "task = 'choice'\ncolumns = { client = 'site' }\n\
                prompt = '{text} Was it her?'\nanswers = { yes = 'Yes, it was.', no = 'No.' }";
    let lora = "lora = { rank = 4, head = 'frozen' }";
    check(2, &decoder(&place, task, lora), &SPLITS);
}

/// What the processes of a site and of its server hold at most, without the program itself: that is what a site
/// holds when it joins, less its model.
#[cfg(target_os = "linux")]
#[test]
fn a_site_that_trains_all_and_its_server_hold_what_their_plan_foresees() {
    let place = Place::new();
    let wide = ["model.width=384", "model.vocabulary=9000", "model.blocks=4", "threads=1"];
    let short = ["federation.clients=1", "federation.rounds=2", "work.batch=2", "work.max_steps=2"];
    for (solver, method) in [("sgd", "fedavg"), ("adamw", "fedavg"), ("sgd", "scaffold")] {
        let work = format!("work.optimiser={{ name = '{solver}', rate = 1e-3 }}");
        let (name, method) = (format!("{solver}-{method}"), format!("method.name={method}"));
        let rows = "data.shares={ central = 0.0, validation = 0.0, test = 0.0 }";
        let sets = [&wide[..], &short, &[&work, &method, rows]].concat();
        let sets = sets.into_iter().flat_map(|set| ["--set", set]);
        let flags: Vec<&str> = [TINY].into_iter().chain(sets).collect();
        let output = place.output("plan", &flags);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let fact = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            let words: Vec<&str> = line.split_whitespace().collect();
            let unit = words.iter().position(|word| word.ends_with('B')).unwrap();
            bytes(&words[unit - 1..=unit].join(" "))
        };
        let model = fact("all");
        let foreseen = [fact("client memory"), fact("server memory")];
        let (server, address) = place.serve(&name, &flags);
        server.wait_for("federation.start = \"shared\" saves this download");
        let line = format!("join --server {address} --client hospital-1 --state {name}-state");
        let site = place.start(&line, &flags);
        site.wait_for("joined");
        let program = site.memory("VmRSS:") - model;
        let mut most = [0.0_f64; 2];
        wait("the end of both", || {
            let so_far = [site.memory("VmHWM:"), server.memory("VmHWM:")];
            most = [most[0].max(so_far[0]), most[1].max(so_far[1])];
            so_far == [0.0; 2]
        });
        for (party, (most, foreseen)) in
            ["site", "server"].into_iter().zip(most.into_iter().zip(foreseen))
        {
            let near = ((most - program) / foreseen - 1.0).abs() <= 0.15;
            let told = format!("{foreseen} B foreseen, {most} B held, {program} B of program");
            assert!(near, "{solver}, {method}, {party}: {told}");
        }
    }
}
