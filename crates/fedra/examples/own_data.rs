//! Data of your own: rows that a program makes, without a file. Three shops sort what their customers
//! write, and no shop shows its messages to another.
//!
//! A row says its text, its label and whose it is. What it does not say, which rows are for testing, is
//! drawn by `data.shares` from the seed.

use std::path::Path;

use fedra::config::raw_config::{Data, Federation, Model, RawConfig, Work};
use fedra::data::{Row, Shares, Table, TableBuilder, Task};
use fedra::{Experiment, Output, Silent, Summary};

/// Messages of three shops, each with its own way to write.
fn messages() -> fedra::Result<Table> {
    let things = ["parcel", "letter", "chair", "lamp", "book", "coat", "table", "clock"];
    let mut rows = TableBuilder::new(Task::Classes);
    for (shop, greeting) in [("north", "hello"), ("south", "good day"), ("east", "dear shop")] {
        for thing in things {
            for (told, label) in [
                ("has not come yet", "late"),
                ("came in pieces", "broken"),
                ("is just what we wanted", "praise"),
            ] {
                let text = format!("{greeting} our {thing} {told}");
                rows.push(Row::text(text).with_labels([label]).with_client(shop))?;
            }
        }
    }
    Ok(rows.finish())
}

/// Trains on them, and returns what it came to.
pub fn federate(folder: &Path) -> fedra::Result<Summary> {
    let shares = Shares { central: 0.25, validation: 0.0, test: 0.0 };
    let raw = RawConfig {
        name: Some("messages".to_owned()),
        data: Data { shares, ..Data::default() },
        model: Model { blocks: Some(1), width: Some(32), heads: Some(2), ..Model::default() },
        federation: Federation { rounds: Some(6), ..Federation::default() },
        work: Work { epochs: 4, batch: 4, ..Work::default() },
        ..RawConfig::default()
    };
    let experiment = Experiment::of_rows(raw, messages()?)?;
    let ending = fedra::run(&experiment, &Output::new(folder), &Silent)?;
    Ok(ending.complete().expect("nobody stops it"))
}

#[expect(clippy::print_stdout, reason = "an example shows what it found")]
fn main() -> fedra::Result<()> {
    let place = tempfile::tempdir()?;
    let summary = federate(&place.path().join("run"))?;
    println!("{}", summary.table());
    Ok(())
}
