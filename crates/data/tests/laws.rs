//! What holds for every table, seed and order.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use std::collections::{BTreeMap, BTreeSet};

use fedra_data::{
    Division, Example, LabelScore, Labels, Partition, Row, Shares, SpanScore, Split, Table,
    TableBuilder, Task, epoch,
};
use proptest::prelude::*;
use proptest::sample::select;

/// Rows of (label, client, document, split), each drawn from a handful.
fn tables() -> impl Strategy<Value = Table> {
    let split =
        select(vec![None, None, Some(Split::Train), Some(Split::Validation), Some(Split::Test)]);
    let row = (0..6_u8, 0..12_u8, proptest::option::of(0..20_u8), split);
    (proptest::collection::vec(row, 30..200), any::<bool>()).prop_map(|(rows, declares)| {
        let mut builder = TableBuilder::new(Task::Classes);
        for (label, client, document, split) in rows {
            let mut row = Row::text("x")
                .with_labels([format!("label-{label}")])
                .with_client(format!("c-{client}"));
            row.document = document.map(|document| format!("d-{document}"));
            row.split = split.filter(|_| declares);
            builder.push(row).unwrap();
        }
        builder.finish()
    })
}

fn partitions() -> impl Strategy<Value = Partition> {
    prop_oneof![
        Just(Partition::Client),
        (1..6_usize).prop_map(|clients| Partition::Iid { clients }),
        (1..6_usize, select(vec![0.01, 0.1, 1.0, 100.0]))
            .prop_map(|(clients, alpha)| Partition::Dirichlet { clients, alpha }),
        (1..6_usize, 1..4_usize)
            .prop_map(|(clients, shards)| Partition::Shards { clients, shards }),
        (1..6_usize, select(vec![0.1, 1.0, 100.0]))
            .prop_map(|(clients, alpha)| Partition::Quantity { clients, alpha }),
    ]
}

fn places(division: &Division) -> BTreeMap<usize, (usize, Split)> {
    let mut places = BTreeMap::new();
    let mut put = |row, place| assert_eq!(places.insert(row, place), None, "row {row} twice");
    for (client, holding) in division.clients.iter().enumerate() {
        holding.train.iter().for_each(|&row| put(row, (client, Split::Train)));
        holding.validation.iter().for_each(|&row| put(row, (client, Split::Validation)));
        holding.test.iter().for_each(|&row| put(row, (client, Split::Test)));
    }
    division.central_test.iter().for_each(|&row| put(row, (usize::MAX, Split::Test)));
    places
}

/// Dealing to more clients than documents is refused; that is not what is tested here.
fn divide(partition: &Partition, table: &Table, seed: u64) -> Option<Division> {
    match partition.divide(table, Shares::default(), seed) {
        Ok(division) => Some(division),
        Err(error) => {
            assert!(error.to_string().starts_with("cannot use clients ="), "{error}");
            None
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_partition_covers_every_row_exactly_once(
        table in tables(), partition in partitions(), seed in any::<u64>()
    ) {
        let Some(division) = divide(&partition, &table, seed) else { return Ok(()) };
        let places = places(&division);
        prop_assert_eq!(places.len(), table.examples.len());
        prop_assert!(division.clients.iter().all(|holding| !holding.is_empty()));
        let held = table.examples.iter().filter(|example| example.split != Some(Split::Test));
        let named = held.map(|example| example.client.as_deref()).collect::<BTreeSet<_>>().len();
        prop_assert_eq!(division.clients.len(), partition.clients().unwrap_or(named));
    }

    #[test]
    fn a_document_stays_in_one_place_and_declared_splits_are_kept(
        table in tables(), partition in partitions(), seed in any::<u64>()
    ) {
        let Some(division) = divide(&partition, &table, seed) else { return Ok(()) };
        let declared = |split| table.examples.iter().any(|e| e.split == Some(split));
        let mut homes = BTreeMap::new();
        for (row, place) in places(&division) {
            let example = &table.examples[row];
            if let Some(document) = &example.document {
                let key = (&example.client, document, example.split);
                prop_assert_eq!(*homes.entry(key).or_insert(place), place);
            }
            match example.split {
                Some(Split::Test) => prop_assert_eq!(place.0, usize::MAX),
                Some(Split::Validation) => prop_assert_eq!(place.1, Split::Validation),
                // Training rows give up only what the source has nothing of.
                Some(Split::Train) => {
                    prop_assert!(place.0 != usize::MAX || !declared(Split::Test));
                    // Where clients are given, each declares for itself.
                    let given = partition == Partition::Client;
                    let same = |e: &&Example| !given || e.client == example.client;
                    let mut own = table.examples.iter().filter(same);
                    let declares = own.any(|e| e.split == Some(Split::Validation));
                    prop_assert!(place.1 != Split::Validation || !declares);
                }
                None => {}
            }
            if partition == Partition::Client && place.0 != usize::MAX {
                let home = Some(division.clients[place.0].client.as_str());
                prop_assert_eq!(home, example.client.as_deref());
            }
        }
    }

    #[test]
    fn the_same_seed_divides_alike(table in tables(), partition in partitions(), seed in any::<u64>()) {
        prop_assert_eq!(divide(&partition, &table, seed), divide(&partition, &table, seed));
    }

    #[test]
    fn class_scores_merge_in_any_order(pairs in proptest::collection::vec((0..5_u32, 0..5_u32), 0..60), cut in 0..60_usize) {
        let count = |pairs: &[(u32, u32)]| {
            let mut score = LabelScore::new(5);
            for &(truth, guess) in pairs {
                score.add(&[truth], &[guess]);
            }
            score
        };
        let (left, right) = pairs.split_at(cut.min(pairs.len()));
        let (mut one, mut other) = (count(left), count(right));
        let (first, second) = (one.clone(), other.clone());
        one.merge(&second);
        other.merge(&first);
        prop_assert_eq!(&one, &other);
        prop_assert_eq!(one, count(&pairs));
    }

    #[test]
    fn code_scores_merge_in_any_order(pairs in proptest::collection::vec((code_set(), code_set()), 0..30), cut in 0..30_usize) {
        let count = |pairs: &[(Vec<u32>, Vec<u32>)]| {
            let mut score = LabelScore::new(6);
            for (truth, guess) in pairs {
                score.add(truth, guess);
            }
            score
        };
        let (left, right) = pairs.split_at(cut.min(pairs.len()));
        let (mut one, mut other) = (count(left), count(right));
        let (first, second) = (one.clone(), other.clone());
        one.merge(&second);
        other.merge(&first);
        prop_assert_eq!(&one, &other);
        prop_assert_eq!(one, count(&pairs));
    }

    #[test]
    fn span_scores_merge_in_any_order_and_the_truth_scores_one(
        sentences in proptest::collection::vec(proptest::collection::vec((tag(), tag()), 1..12), 0..20),
        cut in 0..20_usize,
    ) {
        let count = |sentences: &[Vec<(&'static str, &'static str)>], perfect: bool| {
            let mut score = SpanScore::default();
            for sentence in sentences {
                let truth: Vec<&str> = sentence.iter().map(|pair| pair.0).collect();
                let guess: Vec<&str> = sentence.iter().map(|pair| pair.1).collect();
                score.add(&truth, if perfect { &truth } else { &guess });
            }
            score
        };
        let (left, right) = sentences.split_at(cut.min(sentences.len()));
        let (mut one, mut other) = (count(left, false), count(right, false));
        let (first, second) = (one.clone(), other.clone());
        one.merge(&second);
        other.merge(&first);
        prop_assert_eq!(&one, &other);
        prop_assert_eq!(one, count(&sentences, false));
        let perfect = count(&sentences, true);
        prop_assert!(perfect.total().is_empty() || perfect.micro_f1() == 1.0);
    }

    #[test]
    fn an_epoch_visits_every_example_once(
        lengths in proptest::collection::vec(1..300_usize, 0..300), size in 1..40_usize, seed in any::<u64>()
    ) {
        let batches = epoch(&lengths, size, seed);
        let visited: BTreeSet<usize> = batches.iter().flatten().copied().collect();
        prop_assert_eq!(visited.len(), lengths.len());
        prop_assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), lengths.len());
        prop_assert!(batches.iter().all(|batch| !batch.is_empty() && batch.len() <= size));
        prop_assert_eq!(&batches, &epoch(&lengths, size, seed));
    }
}

fn code_set() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(0..6_u32, 0..5)
}

fn tag() -> impl Strategy<Value = &'static str> {
    select(vec!["O", "B-a", "I-a", "B-b", "I-b", "E-a", "S-b"])
}

fn classes(rows: usize, labels: usize) -> Table {
    let mut builder = TableBuilder::new(Task::Classes);
    for row in 0..rows {
        builder.push(Row::text("x").with_labels([format!("{}", row % labels)])).unwrap();
    }
    builder.finish()
}

/// Mean over clients of the share of the client's commonest label.
fn one_sidedness(table: &Table, division: &Division) -> f64 {
    let share = |holding: &fedra_data::Holding| {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for row in holding.rows() {
            let Labels::One(label) = table.examples[row].labels else { panic!() };
            *counts.entry(label).or_default() += 1;
        }
        *counts.values().max().unwrap() as f64 / holding.len() as f64
    };
    division.clients.iter().map(share).sum::<f64>() / division.clients.len() as f64
}

#[test]
fn a_smaller_alpha_is_more_one_sided() {
    let table = classes(2000, 5);
    let sided = |alpha| {
        let partition = Partition::Dirichlet { clients: 8, alpha };
        one_sidedness(&table, &partition.divide(&table, Shares::default(), 3).unwrap())
    };
    let (low, middle, high) = (sided(0.05), sided(0.5), sided(1000.0));
    assert!(low > middle && middle > high, "{low} {middle} {high}");
    assert!(low > 0.7 && high < 0.3, "{low} {high}");
}

#[test]
fn a_client_of_two_shards_sees_few_labels() {
    let table = classes(2000, 10);
    let partition = Partition::Shards { clients: 10, shards: 2 };
    let division = partition.divide(&table, Shares::default(), 3).unwrap();
    for holding in &division.clients {
        let labels: BTreeSet<_> =
            holding.rows().map(|row| format!("{:?}", table.examples[row].labels)).collect();
        assert!(labels.len() <= 4, "{labels:?}");
    }
}

#[test]
fn iid_clients_are_of_one_size_and_quantity_clients_are_not() {
    let table = classes(1000, 4);
    let sizes = |partition: Partition| {
        let division = partition.divide(&table, Shares::default(), 3).unwrap();
        division.clients.iter().map(fedra_data::Holding::len).collect::<Vec<_>>()
    };
    assert_eq!(sizes(Partition::Iid { clients: 9 }), [100; 9]);
    let skewed = sizes(Partition::Quantity { clients: 9, alpha: 0.3 });
    assert!(skewed.iter().max().unwrap() > &(4 * skewed.iter().min().unwrap()), "{skewed:?}");
}

/// A fifth of a thousand rows for everybody, and of four clients' 200 each a tenth and a quarter.
#[track_caller]
fn check_shares(table: &Table) {
    let shares = Shares { central: 0.2, validation: 0.1, test: 0.25 };
    let division = Partition::Iid { clients: 4 }.divide(table, shares, 3).unwrap();
    assert_eq!(division.central_test.len(), 200);
    for holding in &division.clients {
        assert_eq!(
            (holding.train.len(), holding.validation.len(), holding.test.len()),
            (130, 20, 50)
        );
    }
}

#[test]
fn shares_are_of_a_clients_own_rows() {
    check_shares(&classes(1000, 4));
}

#[test]
fn what_a_file_declares_for_training_may_be_set_aside() {
    let mut table = classes(1000, 4);
    for (row, example) in table.examples.iter_mut().enumerate() {
        example.split = Some(if row % 5 == 0 { Split::Test } else { Split::Train });
    }
    check_shares(&table);
}

#[test]
fn settings_that_make_no_sense_are_named() {
    let table = classes(10, 2);
    let complaint =
        |partition: Partition, shares| partition.divide(&table, shares, 1).unwrap_err().to_string();
    let usual = Shares::default();
    assert_eq!(
        complaint(Partition::Dirichlet { clients: 2, alpha: 0.0 }, usual),
        "cannot use alpha = 0: expected a number above 0"
    );
    assert_eq!(
        complaint(Partition::Iid { clients: 50 }, usual),
        "cannot use clients = 50: expected at most the 9 documents there are to deal"
    );
    assert_eq!(
        complaint(Partition::Iid { clients: 2 }, Shares { test: 0.6, validation: 0.5, ..usual }),
        "cannot use validation + test = 1.1: expected a sum below 1"
    );
    assert!(complaint(Partition::Client, usual).contains("names none"));
}

#[test]
fn clients_come_in_natural_order() {
    let mut builder = TableBuilder::new(Task::Language);
    for client in ["h-10", "h-2", "h-1", "a"] {
        builder.push(Row::text("x").with_client(client)).unwrap();
    }
    let whole = Shares { central: 0.0, validation: 0.0, test: 0.0 };
    let division = Partition::Client.divide(&builder.finish(), whole, 1).unwrap();
    let names: Vec<&str> = division.clients.iter().map(|holding| holding.client.as_str()).collect();
    assert_eq!(names, ["a", "h-1", "h-2", "h-10"]);
}
