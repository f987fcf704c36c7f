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

/// How many equal rows are in each place: the client's name and the part.
fn whereabouts(table: &Table, division: &Division) -> BTreeMap<(String, String, Split), usize> {
    let mut counts = BTreeMap::new();
    for (row, (client, split)) in places(division) {
        let client = division.clients.get(client).map_or("", |holding| &holding.client);
        let mut example = table.examples[row].clone();
        // Numbers of labels follow from the set; the name is in the text.
        let Labels::One(label) = example.labels else { panic!("one label per row") };
        example.labels = Labels::Text(table.labels.name(label).to_owned());
        let place = (format!("{example:?}"), client.to_owned(), split);
        *counts.entry(place).or_default() += 1;
    }
    counts
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

    /// Removing a row is adding it to what is left, so both directions are here.
    #[test]
    fn one_row_less_moves_no_other_row(
        table in tables(), partition in partitions(), seed in any::<u64>(), which in any::<usize>()
    ) {
        let by_shards = matches!(partition, Partition::Shards { .. });
        let Some(whole) = divide(&partition, &table, seed).filter(|_| !by_shards) else {
            return Ok(());
        };
        let gone = which % table.examples.len();
        let mut less = table.clone();
        let row = less.examples.remove(gone);
        // Whether there is a declared test or validation set at all is public.
        let last = |split| row.split == Some(split) && less.examples.iter().all(|example| {
            let other = partition == Partition::Client && example.client != row.client;
            example.split != Some(split) || split == Split::Validation && other
        });
        // A document with several rows has one theme, by the votes of all.
        let themed = matches!(partition, Partition::Dirichlet { .. }) && row.document.is_some();
        let Some(rest) = divide(&partition, &less, seed) else { return Ok(()) };
        if last(Split::Test) || last(Split::Validation) || themed {
            return Ok(());
        }
        let (before, after) = (whereabouts(&table, &whole), whereabouts(&less, &rest));
        let mut more = after;
        let mut found = None;
        for (place, count) in before {
            let left = more.remove(&place).unwrap_or(0);
            prop_assert!(count == left || count == left + 1, "{place:?}: {count}, then {left}");
            if count > left {
                prop_assert!(found.is_none(), "{place:?} and {found:?}");
                found = Some(place);
            }
        }
        prop_assert!(more.is_empty(), "{more:?}");
        prop_assert!(found.is_some());
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

/// Every text twice.
fn classes(rows: usize, labels: usize) -> Table {
    let mut builder = TableBuilder::new(Task::Classes);
    for row in 0..rows {
        let text = format!("row {}", row / (2 * labels));
        builder.push(Row::text(text).with_labels([format!("{}", row % labels)])).unwrap();
    }
    builder.finish()
}

/// Shuffled by position, one row less of 600 moved 92 others.
#[test]
fn of_600_rows_none_moves_for_any_one_that_goes() {
    let table = classes(600, 3);
    for partition in [
        Partition::Iid { clients: 6 },
        Partition::Quantity { clients: 6, alpha: 0.5 },
        Partition::Dirichlet { clients: 6, alpha: 0.5 },
    ] {
        let divide = |table: &Table| {
            whereabouts(table, &partition.divide(table, Shares::default(), 1).unwrap())
        };
        let whole = divide(&table);
        for gone in (0..table.examples.len()).step_by(17) {
            let mut less = table.clone();
            less.examples.remove(gone);
            let mut rest = divide(&less);
            let moved: usize = whole
                .iter()
                .map(|(place, count)| count.abs_diff(rest.remove(place).unwrap_or(0)))
                .sum();
            assert!(moved == 1 && rest.is_empty(), "row {gone}: {moved} places, {rest:?}");
        }
    }
}

/// A row more or less of a note leaves the note's other rows where they are, even the first one.
#[test]
fn a_documents_place_follows_from_its_name() {
    let table = |rows: &[usize]| {
        let mut builder = TableBuilder::new(Task::Language);
        for document in 0..50 {
            for row in rows {
                let mut row = Row::text(format!("{document} {row}")).with_client("c");
                row.document = Some(format!("note {document}"));
                builder.push(row).unwrap();
            }
        }
        builder.finish()
    };
    let of_document = |table: &Table| -> BTreeMap<String, (usize, Split)> {
        let division = Partition::Client.divide(table, Shares::default(), 4).unwrap();
        let name = |row: usize| table.examples[row].document.clone().unwrap();
        places(&division).into_iter().map(|(row, place)| (name(row), place)).collect()
    };
    let whole = of_document(&table(&[1, 2, 3]));
    assert!(whole.values().collect::<BTreeSet<_>>().len() == 4, "every part has some: {whole:?}");
    assert_eq!(of_document(&table(&[2, 3])), whole);
    assert_eq!(of_document(&table(&[1, 2, 3, 4])), whole);
}

/// At a site, which has its own rows and knows only declared labels, each row goes where it goes where all are.
#[test]
fn a_client_alone_divides_its_rows_as_everybody_together_does() {
    let mut builder = TableBuilder::new(Task::Classes);
    for row in 0..300 {
        let client = if row % 3 == 0 { "small" } else { "large" };
        let row = Row::text(format!("row {}", row / 4)).with_labels([format!("{}", row % 7)]);
        builder.push(row.with_client(client)).unwrap();
    }
    let all = builder.finish();
    let shares = Shares { central: 0.0, ..Shares::default() };
    let mut own = TableBuilder::new(Task::Classes);
    for example in all.examples.iter().filter(|example| example.client.as_deref() == Some("small"))
    {
        let Labels::One(label) = example.labels else { panic!() };
        let row = Row::text(example.body.to_text()).with_labels([all.labels.name(label)]);
        own.push(row.with_client("small")).unwrap();
    }
    let own = own.finish();
    let everybody = whereabouts(&all, &Partition::Client.divide(&all, shares, 9).unwrap());
    let alone = whereabouts(&own, &Partition::Client.divide(&own, shares, 9).unwrap());
    let of_small: BTreeMap<_, _> =
        everybody.into_iter().filter(|((_, client, _), _)| client == "small").collect();
    assert_eq!(alone, of_small);
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
    // At the smallest alpha a client may draw nothing.
    let held: Vec<_> = division.clients.iter().filter(|holding| !holding.is_empty()).collect();
    held.iter().map(|holding| share(holding)).sum::<f64>() / held.len() as f64
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
    assert!(low > 0.6 && high < 0.3, "{low} {high}");
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
fn iid_clients_are_of_about_one_size_and_quantity_clients_are_not() {
    let table = classes(1000, 4);
    let sizes = |partition: Partition| {
        let division = partition.divide(&table, Shares::default(), 3).unwrap();
        division.clients.iter().map(fedra_data::Holding::len).collect::<Vec<_>>()
    };
    let alike = sizes(Partition::Iid { clients: 9 });
    assert!(alike.iter().all(|size| (65..=135).contains(size)), "{alike:?}");
    let skewed = sizes(Partition::Quantity { clients: 9, alpha: 0.3 });
    assert!(skewed.iter().max().unwrap() > &(4 * skewed.iter().min().unwrap()), "{skewed:?}");
}

/// A fifth of ten thousand rows for everybody, and of four clients' 2000 each a tenth and a quarter, within
/// four standard deviations of what coins give.
#[track_caller]
fn check_shares(table: &Table, declared: bool) {
    let shares = Shares { central: 0.2, validation: 0.1, test: 0.25 };
    let division = Partition::Iid { clients: 4 }.divide(table, shares, 3).unwrap();
    let is_near = |found: usize, of: usize, share: f64| {
        let (mean, deviation) = (of as f64 * share, (of as f64 * share * (1.0 - share)).sqrt());
        assert!((found as f64 - mean).abs() < 4.0 * deviation, "{found} of {of} for {share}");
    };
    if declared {
        assert_eq!(division.central_test.len(), 2000);
    } else {
        is_near(division.central_test.len(), 10_000, 0.2);
    }
    for holding in &division.clients {
        is_near(holding.len(), 8_000, 0.25);
        is_near(holding.train.len(), holding.len(), 0.65);
        is_near(holding.validation.len(), holding.len(), 0.1);
        is_near(holding.test.len(), holding.len(), 0.25);
    }
}

#[test]
fn shares_are_of_a_clients_own_rows() {
    check_shares(&classes(10_000, 4), false);
}

#[test]
fn what_a_file_declares_for_training_may_be_set_aside() {
    let mut table = classes(10_000, 4);
    for (row, example) in table.examples.iter_mut().enumerate() {
        example.split = Some(if row % 5 == 0 { Split::Test } else { Split::Train });
    }
    check_shares(&table, true);
}

#[test]
fn settings_that_make_no_sense_are_named() {
    let table = classes(10, 2);
    let refusal =
        |partition: Partition, shares| partition.divide(&table, shares, 1).unwrap_err().to_string();
    let usual = Shares::default();
    assert_eq!(
        refusal(Partition::Dirichlet { clients: 2, alpha: 0.0 }, usual),
        "cannot use alpha = 0, expected a number above 0"
    );
    let all = Shares { central: 0.0, ..usual };
    assert_eq!(
        refusal(Partition::Iid { clients: 50 }, all),
        "cannot use clients = 50, expected at most the 10 documents of the data"
    );
    assert_eq!(
        refusal(Partition::Iid { clients: 2 }, Shares { test: 0.6, validation: 0.5, ..usual }),
        "cannot use validation + test = 1.1, expected a sum below 1"
    );
    assert!(refusal(Partition::Client, usual).contains("names none"));
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
