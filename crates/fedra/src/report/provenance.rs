//! How to repeat a run: the command, what it learned from, and the whole experiment.

use fedra_plan::Digest;
use fedra_report::{Column, Content, Folded, Side, Table};

use crate::folder::run_files::{EXPERIMENT, SITES};
use crate::report::record::RunRecord;

/// The command, the digests, the experiment.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    let mut contents = Vec::new();
    if record.has(SITES) {
        contents.push(Content::Words(
            "This run's clients were on other machines. The server's part, in this folder:"
                .to_owned(),
        ));
        contents.push(Content::Command(format!(
            "fedra serve {EXPERIMENT} --listen ADDRESS --out ../again"
        )));
    } else if record.experiment.is_some() {
        contents.push(Content::Words("In this folder:".to_owned()));
        contents.push(Content::Command(format!("fedra run {EXPERIMENT} --out ../again")));
    } else {
        // Lines below the first show a place in the file.
        let reason = record.unopened.as_deref().and_then(|reason| reason.lines().next());
        let reason = reason.unwrap_or("its files are elsewhere");
        contents.push(Content::Words(format!(
            "The experiment cannot be opened here: {reason}. So there is no command that repeats it; where a program \
             brought rows or a method that no file can name, there never was."
        )));
    }
    contents.extend(digests(record).map(Content::Table));
    let name = format!("The experiment as resolved ({EXPERIMENT})");
    contents.push(Content::Folded(Folded { name, text: record.text.clone() }));
    contents
}

fn digests(record: &RunRecord) -> Option<Table> {
    let inputs = record.inputs.as_ref()?;
    let row = |name: &str, digest: Option<Digest>| Some(vec![name.to_owned(), digest?.to_string()]);
    let rows = [
        row("rows", Some(inputs.rows)),
        row("labels", Some(inputs.labels)),
        row("division over clients", Some(inputs.division)),
        row("model: config.json", inputs.config),
        row("model: weights", inputs.weights),
        row("model: tokenizer", inputs.tokenizer),
        row("model: adapter", inputs.adapter),
        row("log of the rounds", record.summary.as_ref().map(|summary| summary.log.digest)),
    ];
    let left = |name: &str| Column { name: name.to_owned(), side: Side::Left };
    Some(Table {
        caption: "What it learned from, and the log that came of it.".to_owned(),
        columns: vec![left("what"), left("SHA-256")],
        rows: rows.into_iter().flatten().collect(),
    })
}
