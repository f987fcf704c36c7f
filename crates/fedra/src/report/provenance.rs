//! How to repeat a run: the command, what it learned from, and the whole experiment.

use fedra_report::{Content, Table};

use crate::report::record::RunRecord;
use crate::run_files::{EXPERIMENT, SITES};
use crate::text::grid::Grid;

/// The command, the digests, the experiment.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    let mut contents = Vec::new();
    if record.folder.join(SITES).exists() {
        contents.push(Content::Words(
            "This run's clients were on other machines. To repeat the server's part, in this folder:"
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
            "The experiment cannot be opened here: {reason}. So no command repeats it. A run with rows or a \
             method from a program can only be repeated by that program."
        )));
    }
    contents.extend(digests(record).map(Content::Table));
    let name = format!("The experiment as resolved ({EXPERIMENT})");
    contents.push(Content::Folded(name, record.text.clone()));
    contents
}

fn digests(record: &RunRecord) -> Option<Table> {
    let inputs = record.inputs.as_ref()?;
    let mut grid = Grid::new(["what", "BLAKE3"]);
    for (name, digest) in [
        ("rows", Some(inputs.rows)),
        ("labels", Some(inputs.labels)),
        ("partition over clients", Some(inputs.partition)),
        ("model: config.json", inputs.config),
        ("model: weights", inputs.weights),
        ("model: tokenizer", inputs.tokenizer),
        ("model: adapter", inputs.adapter),
        ("log of the rounds", record.summary.as_ref().map(|summary| summary.log.digest)),
    ] {
        if let Some(digest) = digest {
            grid.row([name.to_owned(), digest.to_string()]);
        }
    }
    Some(grid.table("Digests of the inputs and of the log."))
}
