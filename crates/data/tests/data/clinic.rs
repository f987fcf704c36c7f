//! How hard the synthetic clinic is: what guessing gets, and what reading in context gets.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use std::collections::{BTreeMap, BTreeSet};

use crate::linear::Perceptron;
use fedra_data::{Body, Clinic, Example, LabelScore, Labels, SpanScore, Table, Task};

fn even_clinic(notes: usize) -> Clinic {
    Clinic { hospitals: 4, notes, feature_shift: 0.4, label_shift: 0.4, size_skew: 0.0 }
}

/// Every fifth document is for testing.
fn split(table: &Table) -> (Vec<&Example>, Vec<&Example>) {
    table.examples.iter().partition(|example| {
        let number = example.document.as_ref().unwrap().rsplit('/').next().unwrap();
        !number.parse::<usize>().unwrap().is_multiple_of(5)
    })
}

fn words(example: &Example) -> Vec<String> {
    match &example.body {
        Body::Words(words) => words.clone(),
        Body::Text(text) => text
            .split_inclusive('\n')
            .flat_map(|line| line.split_whitespace().chain(["\n"]))
            .map(|word| word.trim_end_matches([',', '.', ':', ';']).to_owned())
            .collect(),
        Body::Pair(..) | Body::Image(_) | Body::Conversation(_) => {
            panic!("the clinic writes one text")
        }
    }
}

fn tags(example: &Example) -> Vec<u32> {
    let Labels::PerWord(tags) = &example.labels else { panic!("one tag per word") };
    tags.clone()
}

fn codes(example: &Example) -> Vec<u32> {
    let Labels::Many(codes) = &example.labels else { panic!("a set of codes") };
    codes.clone()
}

fn span_f1(table: &Table, test: &[&Example], guess: impl Fn(&[String]) -> Vec<u32>) -> f64 {
    let mut score = SpanScore::default();
    for example in test {
        let (truth, guess) = (tags(example), guess(&words(example)));
        let names =
            |tags: &[u32]| tags.iter().map(|&tag| table.labels.name(tag)).collect::<Vec<_>>();
        score.add(&names(&truth), &names(&guess));
    }
    score.micro_f1()
}

/// Each word gets the tag it had most often.
fn word_majority(train: &[&Example]) -> BTreeMap<String, u32> {
    let mut counts: BTreeMap<String, BTreeMap<u32, usize>> = BTreeMap::new();
    for example in train {
        for (word, tag) in words(example).into_iter().zip(tags(example)) {
            *counts.entry(word).or_default().entry(tag).or_default() += 1;
        }
    }
    let best = |tags: BTreeMap<u32, usize>| tags.into_iter().max_by_key(|t| t.1).unwrap().0;
    counts.into_iter().map(|(word, tags)| (word, best(tags))).collect()
}

/// What a reader sees around a word: four neighbours each side, the heading, the tag before.
fn surroundings(words: &[String], at: usize, before: u32) -> Vec<String> {
    let word = |offset: isize| {
        at.checked_add_signed(offset).and_then(|i| words.get(i)).map_or("-", String::as_str)
    };
    let ending: String = word(0).chars().rev().take(4).collect();
    let stop = words[..at].iter().rev().take_while(|w| *w != ".").count();
    let opening = format!("{} {}", words[at - stop], words.get(at - stop + 1).map_or("-", |w| w));
    let mut features = vec![
        format!("0 {}", word(0)),
        format!("end {ending} {before}"),
        format!("tag {before} {}", word(0)),
        format!("tag {before} {} {}", word(0), word(1)),
        format!("head {} {}", words[0], word(0)),
        format!("head {} {before}", words[0]),
        format!("opening {opening} {before}"),
    ];
    for offset in [-4, -3, -2, -1, 1, 2, 3, 4] {
        features.push(format!("{offset} {}", word(offset)));
        features.push(format!("{offset} {} {}", word(offset), word(0)));
    }
    features.push(format!("-1 1 {} {}", word(-1), word(1)));
    features.push(format!("-2 -1 {} {} {before}", word(-2), word(-1)));
    features.push(format!("1 2 {} {}", word(1), word(2)));
    features
}

#[test]
fn concepts_need_context() {
    let table = even_clinic(800).generate(Task::Concepts, 32).unwrap();
    let (train, test) = split(&table);
    let outside = table.labels.index("O").unwrap();

    let majority = span_f1(&table, &test, |words| vec![outside; words.len()]);
    let memory = word_majority(&train);
    let by_word = span_f1(&table, &test, |words| {
        words.iter().map(|word| *memory.get(word).unwrap_or(&outside)).collect()
    });

    let mut tagger = Perceptron::new(table.labels.len());
    for epoch in 0..5 {
        for example in crate::linear::shuffled(&train, epoch) {
            let (words, tags) = (words(example), tags(example));
            let mut before = outside;
            for (at, &truth) in tags.iter().enumerate() {
                before = tagger.learn(&surroundings(&words, at, before), truth);
            }
        }
    }
    tagger.average();
    let in_context = span_f1(&table, &test, |words| {
        let mut before = outside;
        let step = |at| {
            before = tagger.best(&surroundings(words, at, before));
            before
        };
        (0..words.len()).map(step).collect()
    });

    eprintln!("concepts span F1: all O {majority:.3}, word {by_word:.3}, context {in_context:.3}");
    assert_eq!(majority, 0.0);
    assert!((0.4..0.75).contains(&by_word), "word by word {by_word}");
    assert!(in_context > 0.93, "in context {in_context}");
}

fn code_f1(table: &Table, test: &[&Example], guess: impl Fn(&Example) -> Vec<u32>) -> f64 {
    let mut score = LabelScore::new(table.labels.len());
    for example in test {
        score.add(&codes(example), &guess(example));
    }
    score.micro_f1()
}

/// One yes-or-no perceptron a code over the words of a note.
fn code_readers(table: &Table, train: &[&Example]) -> Vec<Perceptron> {
    let seen: Vec<(Vec<String>, Vec<u32>)> =
        train.iter().map(|example| (bag(example), codes(example))).collect();
    let learn = |code: u32| {
        let mut reader = Perceptron::new(2);
        for epoch in 0..8 {
            for (features, codes) in crate::linear::shuffled(&seen, epoch) {
                reader.learn(features, u32::from(codes.contains(&code)));
            }
        }
        reader.average();
        reader
    };
    (0..table.labels.len() as u32).map(learn).collect()
}

fn read_codes(readers: &[Perceptron], features: &[String]) -> Vec<u32> {
    let yes =
        |(code, reader): (usize, &Perceptron)| (reader.best(features) == 1).then_some(code as u32);
    readers.iter().enumerate().filter_map(yes).collect()
}

fn bag(example: &Example) -> Vec<String> {
    words(example).into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn diagnosis_cannot_be_told_from_a_bag_of_words() {
    let table = even_clinic(2000).generate(Task::Diagnosis, 12).unwrap();
    let (train, test) = split(&table);

    let mut counts = vec![0; table.labels.len()];
    train.iter().flat_map(|e| codes(e)).for_each(|code| counts[code as usize] += 1);
    let mut common: Vec<u32> = (0..table.labels.len() as u32).collect();
    common.sort_by_key(|&code| std::cmp::Reverse(counts[code as usize]));
    common.truncate(3);
    let majority = code_f1(&table, &test, |_| common.clone());

    let readers = code_readers(&table, &train);
    let by_bag = code_f1(&table, &test, |example| read_codes(&readers, &bag(example)));

    eprintln!("diagnosis micro F1: three commonest {majority:.3}, bag of words {by_bag:.3}");
    assert!(majority < 0.4, "commonest codes {majority}");
    assert!((0.4..0.75).contains(&by_bag), "bag of words {by_bag}");
}

#[test]
fn the_same_word_carries_different_labels() {
    let table = even_clinic(800).generate(Task::Concepts, 11).unwrap();
    let mut senses: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for example in &table.examples {
        for (word, tag) in words(example).into_iter().zip(tags(example)) {
            let kind = table.labels.name(tag).trim_start_matches(['B', 'I', '-']);
            senses.entry(word).or_default().insert(kind);
        }
    }
    for word in ["cold", "culture", "discharge", "pressure", "stool", "block", "the", "potassium"] {
        assert!(senses[word].len() >= 2, "{word}: {:?}", senses[word]);
    }
    for word in ["ms", "pt"] {
        assert!(senses[word].len() >= 3, "{word}: {:?}", senses[word]);
    }
}

#[test]
fn some_words_of_the_test_notes_were_never_seen_in_training() {
    let table = even_clinic(800).generate(Task::Concepts, 11).unwrap();
    let (train, test) = split(&table);
    let known: BTreeSet<String> = train.iter().flat_map(|example| words(example)).collect();
    let unseen: BTreeSet<String> = test
        .iter()
        .flat_map(|example| words(example))
        .filter(|word| !known.contains(word))
        .collect();
    assert!(unseen.len() >= 10, "{unseen:?}");
}

#[test]
fn the_same_seed_writes_the_same_notes_and_another_seed_others() {
    let clinic = Clinic::default();
    for task in [Task::Concepts, Task::Diagnosis] {
        assert_eq!(clinic.generate(task, 5).unwrap(), clinic.generate(task, 5).unwrap());
        assert_ne!(clinic.generate(task, 5).unwrap(), clinic.generate(task, 6).unwrap());
    }
}

#[test]
fn size_skew_skews_sizes_and_only_sizes_add_up() {
    for skew in [0.0, 1.5] {
        let clinic = Clinic { hospitals: 5, notes: 500, size_skew: skew, ..Clinic::default() };
        let table = clinic.generate(Task::Diagnosis, 1).unwrap();
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        for example in &table.examples {
            *sizes.entry(example.client.as_deref().unwrap()).or_default() += 1;
        }
        assert_eq!(sizes.values().sum::<usize>(), 500);
        let (least, most) = (sizes.values().min().unwrap(), sizes.values().max().unwrap());
        if skew == 0.0 {
            assert_eq!((*least, *most), (100, 100));
        } else {
            assert!(most > &(4 * least), "{sizes:?}");
        }
    }
}

/// Total variation distance between what two hospitals show, averaged over pairs.
fn distance(table: &Table, features: impl Fn(&Example) -> Vec<String>) -> f64 {
    let mut shown: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for example in &table.examples {
        let counts = shown.entry(example.client.clone().unwrap()).or_default();
        for feature in features(example) {
            *counts.entry(feature).or_default() += 1.0;
        }
    }
    let (mut sum, mut pairs) = (0.0, 0.0);
    for (name, first) in &shown {
        for (_, second) in
            shown.range::<String, _>((std::ops::Bound::Excluded(name), std::ops::Bound::Unbounded))
        {
            let total = |counts: &BTreeMap<String, f64>| counts.values().sum::<f64>();
            let keys: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
            let share = |counts: &BTreeMap<String, f64>, key: &str| {
                counts.get(key).copied().unwrap_or(0.0) / total(counts)
            };
            sum +=
                keys.iter().map(|key| (share(first, key) - share(second, key)).abs()).sum::<f64>()
                    / 2.0;
            pairs += 1.0;
        }
    }
    sum / pairs
}

#[test]
fn each_shift_moves_what_it_names_and_little_else() {
    let write = |feature_shift, label_shift| {
        let clinic =
            Clinic { hospitals: 4, notes: 1200, feature_shift, label_shift, size_skew: 0.0 };
        clinic.generate(Task::Diagnosis, 2).unwrap()
    };
    let labels = |example: &Example| codes(example).iter().map(u32::to_string).collect();
    let (none, features, both) = (write(0.0, 0.0), write(0.9, 0.0), write(0.0, 0.9));
    assert!(distance(&none, words) < 0.12, "{}", distance(&none, words));
    assert!(distance(&features, words) > 3.0 * distance(&none, words));
    assert!(distance(&features, labels) < 0.1);
    assert!(distance(&both, labels) > 3.0 * distance(&none, labels));
}
