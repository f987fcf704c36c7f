//! What is odd about the data of an experiment, said once before it costs a run.
//!
//! Nothing here is an error: a label that only test rows have, or rows that are cut, may be meant. So
//! each is a line of text that `data`, `plan` and `run` print, and no run depends on one.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use fedra_data::{Body, LabelShape, ReadingReport, RowPlace, Split, Trimmed, folded, printable};

use crate::prepare::partitioned_data::PartitionedData;
use crate::text::grid::{counted, grouped, joined, listed};

/// Most labels, or clients, that are named in one line.
const MOST_NAMED: usize = 5;

/// What the rows and their division show, without a tokenizer.
pub fn of_data(holdings: &PartitionedData) -> Vec<String> {
    let data_notes = [
        one_label(holdings),
        only_in_test(holdings),
        without_training(holdings),
        without_test(holdings),
        without_text(holdings),
        seen_in_training(holdings),
        undeclared(holdings),
        not_names(holdings),
    ];
    let found = few_declared(holdings).into_iter().chain(data_notes.into_iter().flatten());
    let found = found.map(|note| format!("note: {note}"));
    of_reading(holdings).into_iter().chain(found).collect()
}

/// What reading the rows changed, and names that look like one another.
pub fn of_reading(holdings: &PartitionedData) -> Vec<String> {
    let ReadingReport { trimmed, left_out } = &holdings.table.reading;
    let mut data_notes: Vec<String> = trimmed_names(*trimmed).into_iter().collect();
    if let (rows @ 1.., Some(place)) = (left_out.rows, left_out.place()) {
        let verb = if rows == 1 { "is" } else { "are" };
        data_notes.push(format!(
            "{} without {} or a label {verb} left out (data.missing), the first at {}",
            counted(rows, "row"),
            if are_images(holdings) { "a readable image" } else { "a text" },
            printable(&place.to_string())
        ));
    }
    data_notes.extend(alike(("labels", "classes"), &labels(holdings)));
    data_notes.extend(alike(("clients", "clients"), &clients(holdings)));
    data_notes.extend(no_values(holdings));
    data_notes.into_iter().map(|note| format!("note: {note}")).collect()
}

fn trimmed_names(trimmed: Trimmed) -> Option<String> {
    let Trimmed { labels, clients, documents, columns } = trimmed;
    let counts = [
        (labels, "label"),
        (clients, "client name"),
        (documents, "document name"),
        (columns, "column name"),
    ];
    let some = counts.into_iter().filter(|(count, _)| *count > 0);
    let some: Vec<String> = some.map(|(count, what)| counted(count, what)).collect();
    (!some.is_empty()).then(|| format!("blanks around {} were trimmed", joined(&some, "and")))
}

/// The labels that rows or words have, each with how many have it.
fn labels(holdings: &PartitionedData) -> Vec<(&str, usize)> {
    let counts = holdings.table.label_counts().into_iter();
    let named = holdings.table.labels.names().iter().map(String::as_str).zip(counts);
    named.filter(|(_, count)| *count > 0).collect()
}

/// The clients that rows name, each with how many do.
fn clients(holdings: &PartitionedData) -> Vec<(&str, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for client in holdings.table.examples.iter().filter_map(|example| example.client.as_deref()) {
        *counts.entry(client).or_default() += 1;
    }
    counts.into_iter().collect()
}

/// Names that differ only in case or in how their letters are spelt: they may be meant as one.
fn alike((what, kinds): (&str, &str), names: &[(&str, usize)]) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<(&str, usize)>> = BTreeMap::new();
    for (name, count) in names {
        groups.entry(folded(name)).or_default().push((name, *count));
    }
    let same: Vec<Vec<(&str, usize)>> =
        groups.into_values().filter(|group| group.len() > 1).collect();
    let said = |group: &Vec<(&str, usize)>| {
        let named = |(name, count): &(&str, usize)| {
            format!("\"{}\" ({})", printable(name), grouped(*count as u64))
        };
        let names: Vec<String> = group.iter().map(named).collect();
        format!(
            "the {what} {} differ only in case or spelling and count as {} {kinds}",
            names.join(", "),
            group.len()
        )
    };
    let mut data_notes: Vec<String> = same.iter().take(MOST_NAMED).map(said).collect();
    if same.len() > MOST_NAMED {
        let more = grouped((same.len() - MOST_NAMED) as u64);
        data_notes.push(format!("{more} more groups of {what} differ only in case or spelling"));
    }
    data_notes
}

/// What programs write for a value that is not there, in small letters.
pub(crate) const NO_VALUES: [&str; 8] = ["nan", "na", "n/a", "null", "none", "-", "?", "nat"];

/// Labels that stand for no label, by what is usual.
fn no_values(holdings: &PartitionedData) -> Option<String> {
    if !matches!(holdings.table.task.shape(), LabelShape::One | LabelShape::Many) {
        return None;
    }
    let named = labels(holdings);
    let found = named.iter().filter(|(name, _)| NO_VALUES.contains(&folded(name).as_str()));
    let found: Vec<&(&str, usize)> = found.collect();
    let rows: usize = found.iter().map(|(_, count)| *count).sum();
    let names: Vec<String> =
        found.iter().map(|(name, _)| format!("\"{}\"", printable(name))).collect();
    (rows > 0).then(|| {
        let verb = if rows == 1 { "has" } else { "have" };
        format!(
            "{} {verb} the label {}, which is learned like any other: remove these rows if it stands for a missing value",
            counted(rows as u64, "row"),
            names.join(" or ")
        )
    })
}

/// Fewest rows of a set on which a score means something.
const FEWEST_SCORED: usize = 10;

/// Declared sets with so few rows that a slip of the pen may have made them.
fn few_declared(holdings: &PartitionedData) -> Vec<String> {
    let examples = &holdings.table.examples;
    let sets = [
        (Split::Test, "test", "the central test set is too small for a meaningful score"),
        (Split::Validation, "validation", "choices on these few rows are mostly chance"),
    ];
    let mut data_notes = Vec::new();
    for (split, name, why) in sets {
        let declared = || examples.iter().filter(move |example| example.split == Some(split));
        let count = declared().count();
        let Some(first) = declared().next().filter(|_| count < FEWEST_SCORED) else { continue };
        // Where all is small, a small set is no slip; one row alone is nearly always one.
        let usual = if count == 1 { FEWEST_SCORED } else { FEWEST_SCORED * FEWEST_SCORED };
        if examples.len() < usual {
            continue;
        }
        let verb = if count == 1 { "is" } else { "are" };
        let place: &RowPlace = &first.place;
        data_notes.push(format!(
            "{} of {} {verb} declared as {name}, the first at {}: {why}",
            grouped(count as u64),
            counted(examples.len() as u64, "row"),
            printable(&place.to_string())
        ));
    }
    data_notes
}

/// Rows without a split in files where other rows have one.
fn undeclared(holdings: &PartitionedData) -> Option<String> {
    let mut files: BTreeMap<&Path, (u64, Vec<&RowPlace>)> = BTreeMap::new();
    for example in &holdings.table.examples {
        let Some((file, _)) = example.place.get() else { continue };
        let (declared, without) = files.entry(file).or_default();
        match example.split {
            Some(_) => *declared += 1,
            None => without.push(&example.place),
        }
    }
    let mixed = files.values().filter(|(declared, _)| *declared > 0);
    let without: Vec<&RowPlace> = mixed.flat_map(|(_, without)| without).copied().collect();
    let first = printable(&without.first()?.to_string()).into_owned();
    let (verb, they) = if without.len() == 1 { ("has", "it is") } else { ("have", "they are") };
    let rows = counted(without.len() as u64, "row");
    Some(format!(
        "{rows} {verb} no split where others do, the first at {first}: {they} divided by data.shares"
    ))
}

/// Rows in a site's files that are not its own.
pub fn of_others(holdings: &PartitionedData, site: &str) -> Option<String> {
    let clients = holdings.table.examples.iter().filter_map(|example| example.client.as_deref());
    let others: Vec<&str> = clients.filter(|client| *client != site).collect();
    let names: Vec<&str> = others.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let rows = counted(others.len() as u64, "row");
    let verb = if others.len() == 1 { "is" } else { "are" };
    let names = listed(names.iter().map(|name| printable(name)), MOST_NAMED);
    (!others.is_empty()).then(|| format!("{rows} of others ({names}) {verb} left out"))
}

fn without_text(holdings: &PartitionedData) -> Option<String> {
    let blank = holdings.table.examples.iter().filter(|example| example.body.is_blank());
    let (blank, all) = (blank.count() as u64, holdings.table.examples.len() as u64);
    let verb = if blank == 1 { "has" } else { "have" };
    (blank > 0).then(|| format!("{} of {} {verb} no text", grouped(blank), counted(all, "row")))
}

/// Whether rows are images.
fn are_images(holdings: &PartitionedData) -> bool {
    holdings.table.examples.first().is_some_and(|row| matches!(row.body, Body::Image(_)))
}

/// Test rows whose text is also in a training row of any client.
fn seen_in_training(holdings: &PartitionedData) -> Option<String> {
    let (division, examples) = (&holdings.division, &holdings.table.examples);
    let train = division.clients.iter().flat_map(|holding| &holding.train);
    let train: HashSet<&Body> = train.map(|&row| &examples[row].body).collect();
    let test = division.clients.iter().flat_map(|holding| &holding.test);
    let test: Vec<usize> = test.chain(&division.central_test).copied().collect();
    let is_seen =
        |row: &&usize| !examples[**row].body.is_blank() && train.contains(&examples[**row].body);
    let seen = test.iter().filter(is_seen).count() as u64;
    let verb = if seen == 1 { "has" } else { "have" };
    let what = if are_images(holdings) { "image" } else { "text" };
    (seen > 0).then(|| {
        format!(
            "{} of {} {verb} the same {what} as a training row: their scores say little about new {what}s",
            grouped(seen),
            counted(test.len() as u64, "test row")
        )
    })
}

/// Labels that look like something else than names: a row of zeros and ones, a list as text.
fn not_names(holdings: &PartitionedData) -> Option<String> {
    let names = holdings.table.labels.names();
    if let Some(list) = names.iter().find(|name| name.starts_with('[') && name.ends_with(']')) {
        let list = printable(list);
        return Some(format!("the label \"{list}\" looks like a list: it counts as one name"));
    }
    let binary = names.len() <= 2 && names.iter().all(|name| name == "0" || name == "1");
    (binary && holdings.table.task.shape() == LabelShape::Many).then(|| {
        "all labels are 0 or 1: lists of labels contain names, not one value per label".to_owned()
    })
}

fn one_label(holdings: &PartitionedData) -> Option<String> {
    let table = &holdings.table;
    let [only] = table.labels.names() else { return None };
    let (what, everywhere) = match table.task.shape() {
        LabelShape::One => ("row", true),
        LabelShape::PerWord => ("word", true),
        LabelShape::Many => ("row", table.label_counts() == [table.examples.len()]),
        LabelShape::Absent => return None,
    };
    everywhere.then(|| {
        format!("every {what} has the label \"{}\": there is nothing to learn", printable(only))
    })
}

fn only_in_test(holdings: &PartitionedData) -> Option<String> {
    let division = &holdings.division;
    let train = present(holdings, division.clients.iter().flat_map(|holding| &holding.train));
    let tested = division.clients.iter().flat_map(|holding| &holding.test);
    let test = present(holdings, tested.chain(&division.central_test));
    let strange: Vec<&String> = holdings
        .table
        .labels
        .names()
        .iter()
        .zip(train.iter().zip(&test))
        .filter(|(_, (train, test))| **test && !**train)
        .map(|(name, _)| name)
        .collect();
    if strange.is_empty() {
        return None;
    }
    let quoted = strange.iter().map(|name| format!("\"{}\"", printable(name)));
    let named = listed(quoted, MOST_NAMED);
    let (what, verb) = if strange.len() == 1 { ("label", "is") } else { ("labels", "are") };
    Some(format!(
        "the {what} {named} {verb} in test rows but in no training row: the model cannot learn {}",
        if strange.len() == 1 { "it" } else { "them" },
    ))
}

/// Which labels some rows have.
fn present<'a>(holdings: &PartitionedData, rows: impl Iterator<Item = &'a usize>) -> Vec<bool> {
    let mut present = vec![false; holdings.table.labels.len()];
    for &label in rows.flat_map(|&row| holdings.table.examples[row].labels.numbers()) {
        present[label as usize] = true;
    }
    present
}

/// Clients whose rows were all drawn for something else: each row is drawn by itself, so few rows may.
pub fn without_training(holdings: &PartitionedData) -> Option<String> {
    let clients = &holdings.division.clients;
    let without: Vec<&str> =
        clients.iter().filter(|it| it.train.is_empty()).map(|it| it.client.as_str()).collect();
    let (verb, part) = if without.len() == 1 { ("has", "takes") } else { ("have", "take") };
    (!without.is_empty()).then(|| {
        format!(
            "{} {verb} no training row and {part} no part in rounds: there are too few rows for data.shares, \
             which place each row independently, or for this number of clients; you can declare a split \
             (data.columns.split, data.train)",
            listed(without.iter().map(|name| printable(name)), MOST_NAMED)
        )
    })
}

fn without_test(holdings: &PartitionedData) -> Option<String> {
    let division = &holdings.division;
    let clients = division.clients.len();
    let without = division.clients.iter().filter(|holding| holding.test.is_empty()).count();
    if without < clients {
        let clients = counted(clients as u64, "client");
        return (without > 0).then(|| {
            let (verb, part) = if without == 1 { ("has", "takes") } else { ("have", "take") };
            let without = grouped(without as u64);
            format!(
                "{without} of {clients} {verb} no test rows and {part} no part in clients' scores"
            )
        });
    }
    division.central_test.is_empty().then(|| {
        "there are no test rows, central or at clients (data.test, data.shares): the run will \
         have no score"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use fedra_data::{Division, Holding, Row, TableBuilder, Task};

    use super::*;

    /// Rows of one label each; a client holds some for training and some for testing.
    fn held(
        labels: &[&str],
        clients: &[(&[usize], &[usize])],
        central: &[usize],
    ) -> PartitionedData {
        let mut builder = TableBuilder::new(Task::Classes);
        for (row, label) in labels.iter().enumerate() {
            let text = format!("three plain words {row}");
            builder.push(Row::text(text).with_labels([*label])).unwrap();
        }
        let holding = |(train, test): &(&[usize], &[usize])| Holding {
            train: train.to_vec(),
            test: test.to_vec(),
            ..Holding::default()
        };
        let clients = clients.iter().map(holding).collect();
        let division = Division { clients, central_test: central.to_vec() };
        PartitionedData { table: builder.finish(), division, small: 0 }
    }

    #[test]
    fn nothing_is_said_of_data_without_oddities() {
        let data = held(&["a", "b", "a", "b"], &[(&[0, 1], &[2])], &[3]);
        assert_eq!(of_data(&data), Vec::<String>::new());
    }

    #[test]
    fn test_rows_with_the_text_of_a_training_row_are_counted() {
        let mut data = held(&["a", "b", "a", "b"], &[(&[0, 1], &[2])], &[3]);
        data.table.examples[3].body = data.table.examples[0].body.clone();
        let expected = "note: 1 of 2 test rows has the same text as a training row: their scores say little \
                        about new texts";
        assert_eq!(of_data(&data), [expected]);
    }

    #[test]
    fn one_label_in_the_whole_set_is_said() {
        let said = of_data(&held(&["a\u{7}", "a\u{7}"], &[(&[0], &[])], &[1]));
        assert_eq!(said, ["note: every row has the label \"a\\u{7}\": there is nothing to learn"]);
    }

    #[test]
    fn labels_of_test_rows_alone_are_named_and_the_rest_counted() {
        let said = of_data(&held(&["a", "b"], &[(&[0], &[])], &[1]));
        let expected = "note: the label \"b\" is in test rows but in no training row: the model cannot \
                        learn it";
        assert_eq!(said, [expected]);
        let labels = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let said = of_data(&held(&labels, &[(&[0], &[1, 2])], &[3, 4, 5, 6, 7]));
        assert!(said[0].contains("\"f\" and 2 more are in test rows"), "{said:?}");
    }

    #[test]
    fn a_client_without_training_rows_is_named() {
        let mut data = held(&["a", "b", "a"], &[(&[0, 1], &[2]), (&[], &[])], &[]);
        data.division.clients[1].client = "tiny".to_owned();
        let said = of_data(&data);
        assert!(
            said[0].starts_with("note: tiny has no training row and takes no part"),
            "{said:?}"
        );
    }

    #[test]
    fn missing_test_rows_are_said() {
        let said = of_data(&held(&["a", "b", "a"], &[(&[0], &[2]), (&[1], &[])], &[]));
        assert!(said[0].contains("1 of 2 clients has no test rows"), "{said:?}");
        let said = of_data(&held(&["a", "b"], &[(&[0], &[]), (&[1], &[])], &[]));
        assert!(said[0].contains("the run will have no score"), "{said:?}");
    }

    #[test]
    fn names_that_look_like_one_are_pointed_out_with_their_rows() {
        let labels = ["Asthma", "asthma", "asthma ", "flu", "NaN"];
        let mut data = held(&labels, &[(&[0, 1, 2, 3], &[])], &[4]);
        for (example, client) in data.table.examples.iter_mut().zip(["North", "north", "n"]) {
            example.client = Some(client.to_owned());
        }
        assert_eq!(
            of_reading(&data),
            [
                "note: blanks around 1 label were trimmed",
                "note: the labels \"Asthma\" (1), \"asthma\" (2) differ only in case or spelling and \
                 count as 2 classes",
                "note: the clients \"North\" (1), \"north\" (1) differ only in case or spelling and count \
                 as 2 clients",
                "note: 1 row has the label \"NaN\", which is learned like any other: remove these rows if it \
                 stands for a missing value",
            ]
        );
    }

    #[test]
    fn a_test_set_of_one_row_is_pointed_out_where_there_are_many_rows() {
        let declared = |rows: usize| {
            let labels: Vec<&str> = (0..rows).map(|row| ["a", "b"][row % 2]).collect();
            let train: Vec<usize> = (1..rows).collect();
            let mut data = held(&labels, &[(&train, &[])], &[0]);
            data.table.examples[0].split = Some(Split::Test);
            of_data(&data)
        };
        let said = declared(120);
        assert!(
            said[0].starts_with("note: 1 of 120 rows is declared as test, the first at"),
            "{said:?}"
        );
        assert!(declared(30)[0].starts_with("note: 1 of 30 rows is declared as test"));
        assert_eq!(declared(8), Vec::<String>::new());
    }
}
