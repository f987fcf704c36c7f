//! What a model's own settings make of logits, against `transformers` 5.22 to the bit; and text that follows them.

use fedra_client::generate::{CachedDecoder, GenerateSettings, TextSoFar, TokenRules};

use crate::tiny::{Tiny, all_tokens, cut, greedy, random_tokens};

const MINUS: f32 = f32::NEG_INFINITY;

fn logits() -> Vec<f32> {
    (0..12u8).map(|i| (f32::from(i * 7 % 12) - 5.0) * 0.375).collect()
}

/// The logits that change, of a text whose tokens behind the first `prompt` were written.
#[track_caller]
fn check(rules: &TokenRules, (tokens, prompt): (&[u32], usize), expected: &[(usize, f32)]) {
    let mut found = logits();
    let text = TextSoFar { tokens, written: tokens.len() - prompt, stop_tokens: &[1] };
    rules.apply(&mut found, text);
    let changed: Vec<(usize, f32)> = found.into_iter().enumerate().collect();
    let changed: Vec<_> = changed
        .into_iter()
        .zip(logits())
        .filter(|(new, old)| new.1 != *old)
        .map(|it| it.0)
        .collect();
    assert_eq!(changed, expected, "{rules:?}");
}

#[test]
fn rules_change_the_logits_that_transformers_changes() {
    const TEXT: (&[u32], usize) = (&[3, 5, 3, 5, 2, 3], 4);
    let none = TokenRules::default;
    check(&none(), TEXT, &[]);
    let repetition = |penalty| TokenRules { repetition_penalty: Some(penalty), ..none() };
    check(&repetition(1.3), TEXT, &[(2, -1.462_5), (3, 1.153_846_1), (5, 1.730_769_3)]);
    check(&repetition(0.7), TEXT, &[(2, -0.787_499_96), (3, 2.142_857), (5, 3.214_285_9)]);

    let ngram = |length| TokenRules { no_repeat_ngram: Some(length), ..none() };
    check(&ngram(1), TEXT, &[(2, MINUS), (3, MINUS), (5, MINUS)]);
    check(&ngram(2), TEXT, &[(5, MINUS)]);
    check(&ngram(3), (&[3, 5, 3, 5], 4), &[(3, MINUS)]);
    check(&ngram(3), (&[3], 1), &[]);

    let words: [&[u32]; 7] =
        [&[7], &[1], &[3, 8], &[2, 3, 9], &[5, 3, 10], &[3, 5, 3, 5, 2, 3, 11], &[99]];
    let bad_words = words.map(<[u32]>::to_vec).to_vec();
    let words = TokenRules { bad_words, ..none() };
    check(&words, TEXT, &[(7, MINUS), (8, MINUS), (9, MINUS), (11, MINUS)]);
    check(&words, (&[3], 1), &[(7, MINUS), (8, MINUS)]);

    for (min_length, min_new_tokens, is_held) in
        [(7, 0, true), (6, 0, false), (0, 3, true), (0, 2, false)]
    {
        let rules = TokenRules { min_length, min_new_tokens, ..none() };
        check(&rules, TEXT, if is_held { &[(1, MINUS)] } else { &[] });
    }

    let suppressed = TokenRules { suppressed: vec![0, 11], suppressed_first: vec![4], ..none() };
    check(&suppressed, (TEXT.0, 6), &[(0, MINUS), (4, MINUS), (11, MINUS)]);
    check(&suppressed, TEXT, &[(0, MINUS), (11, MINUS)]);

    let all = TokenRules {
        repetition_penalty: Some(1.3),
        no_repeat_ngram: Some(2),
        bad_words: vec![vec![3, 8]],
        min_new_tokens: 5,
        suppressed: vec![0],
        ..none()
    };
    let expected =
        [(0, MINUS), (1, MINUS), (2, -1.462_5), (3, 1.153_846_1), (5, MINUS), (8, MINUS)];
    check(&all, TEXT, &expected);
}

#[test]
fn text_follows_the_rules_whole_and_cut() {
    let tiny = Tiny::new();
    let prompt = random_tokens(6, 9);
    let free = all_tokens(tiny.whole(), &prompt, greedy(30));
    let mut before = prompt.clone();
    let repeats = free.iter().any(|token| {
        let repeated = before.contains(token);
        before.push(*token);
        repeated
    });
    assert!(repeats, "{free:?}");
    // No token twice, and not the one that would come first.
    let rules = TokenRules {
        no_repeat_ngram: Some(1),
        suppressed_first: vec![free[0]],
        ..TokenRules::default()
    };
    let settings = || GenerateSettings { rules: rules.clone(), ..greedy(30) };
    let found = all_tokens(tiny.whole(), &prompt, settings());
    assert_ne!(found[0], free[0]);
    let mut all = [&prompt[..], &found].concat();
    all.sort_unstable();
    let prompted = prompt.iter().collect::<std::collections::BTreeSet<_>>().len();
    all.dedup();
    assert_eq!(all.len(), prompted + 30);

    let given = (&tiny.model, &tiny.params);
    let peer = Box::new(tiny.local_peer(1, 1));
    let split = CachedDecoder::cut(&tiny.device, given, &cut(1, 1), peer).unwrap();
    assert_eq!(all_tokens(split, &prompt, settings()), found);
}
