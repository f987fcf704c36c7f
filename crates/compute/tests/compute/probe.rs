//! Reading the attention that passes by.

use crate::draw::{numbers, of, spans, tensor};
use fedra_compute::{Attention, AttentionProbe, Device, Mask, Projected, Span, Tape};

const WIDTH: usize = 4;
fn both() -> Attention {
    Attention::new(3, 3, WIDTH, Mask::Bidirectional)
}
fn grouped() -> Attention {
    Attention::new(4, 2, WIDTH, Mask::Causal)
}

/// Shares are sums of at most a few hundred f32 probabilities.
const TOLERANCE: f64 = 1e-6;

#[test]
fn queries_of_zero_look_at_every_key_alike() {
    let lengths = [5, 1, 9];
    let x = zero_queries(both(), 15);
    // Key side: how much every query looks at the first key of its sequence.
    let scores = probe(both(), &x, &lengths, (&[1.0; 15], &first_of_each(&lengths)));
    close(&scores, &[1.0 / 5.0, 1.0, 1.0 / 9.0]);
    // Query side: how much the first query looks at all keys but the first.
    let others: Vec<f32> = first_of_each(&lengths).iter().map(|first| 1.0 - first).collect();
    let scores = probe(both(), &x, &lengths, (&first_of_each(&lengths), &others));
    close(&scores, &[4.0 / 5.0, 0.0, 8.0 / 9.0]);
}

#[test]
fn a_causal_query_of_zero_divides_itself_among_the_keys_so_far() {
    let x = zero_queries(grouped(), 3);
    let scores = probe(grouped(), &x, &[3], (&[1.0; 3], &[1.0, 0.0, 0.0]));
    close(&scores, &[(1.0 + 1.0 / 2.0 + 1.0 / 3.0) / 3.0]);
    let scores = probe(grouped(), &x, &[3], (&[0.0, 1.0, 0.0], &[0.0, 0.0, 1.0]));
    close(&scores, &[0.0]);
}

#[test]
fn a_strong_key_takes_all_attention() {
    let (geometry, tokens) = (both(), 7);
    let mut numbers = vec![0.0; tokens * 3 * geometry.heads * WIDTH];
    for (row, columns) in numbers.chunks_exact_mut(3 * geometry.heads * WIDTH).enumerate() {
        let (queries, keys) = columns.split_at_mut(geometry.heads * WIDTH);
        queries.fill(10.0);
        keys[..geometry.heads * WIDTH].fill(if row == 2 { 10.0 } else { -10.0 });
    }
    let x = (tokens, numbers);
    let strong = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0];
    close(&probe(geometry, &x, &[7], (&[1.0; 7], &strong)), &[1.0]);
    let weak = strong.map(|one| 1.0 - one);
    close(&probe(geometry, &x, &[7], (&[1.0; 7], &weak)), &[0.0]);
}

#[test]
fn all_keys_together_get_everything() {
    for (geometry, length) in [(both(), 131), (grouped(), 61)] {
        let x = random(geometry, length, 1);
        let queries = numbers(5, length, (0.5, 0.5));
        close(&probe(geometry, &x, &[length], (&queries, &vec![1.0; length])), &[1.0]);
    }
}

#[test]
fn a_score_does_not_depend_on_the_other_sequences_of_the_batch() {
    for geometry in [both(), grouped()] {
        let lengths = [7, 1, 67, 3];
        let parts: Vec<_> =
            lengths.iter().enumerate().map(|(i, &n)| random(geometry, n, i as u64 + 1)).collect();
        let together = (78, parts.iter().flat_map(|(_, x)| x.clone()).collect::<Vec<f32>>());
        let (ones, firsts) = (vec![1.0; 78], first_of_each(&lengths));
        for (queries, keys) in [(&ones, &firsts), (&firsts, &ones)] {
            let packed = probe(geometry, &together, &lengths, (queries, keys));
            let mut row = 0;
            for (i, &length) in lengths.iter().enumerate() {
                let rows = row..row + length;
                let weights = (&queries[rows.clone()], &keys[rows]);
                let alone = probe(geometry, &parts[i], &[length], weights);
                assert_eq!(alone[0].to_bits(), packed[i].to_bits(), "{geometry:?} sequence {i}");
                row += length;
            }
        }
    }
}

#[test]
fn a_probe_watches_without_changing_and_keeps_one_list_per_attention() {
    let device = Device::cpu();
    let x = random(both(), 9, 1);
    let mut watching = AttentionProbe {
        queries: vec![1.0; 9],
        keys: vec![1.0; 9],
        scores: Vec::new(),
        heads: Vec::new(),
        received: None,
        patterns: None,
    };
    let mut tape = Tape::new(&device);
    let value = tape.constant(of(&device, (9, x.1.len() / 9), &x.1));
    let spans = spans(&[4, 5]);
    let projected = Projected::Together(&value);
    let unwatched = tape.attention(both(), projected, &spans, None).unwrap();
    for number in 1..=2 {
        let watched = tape.attention(both(), projected, &spans, Some(&mut watching)).unwrap();
        assert_eq!(watched.tensor.to_host(), unwatched.tensor.to_host());
        assert_eq!(watching.scores.len(), number);
    }
    assert_eq!(watching.scores[0], watching.scores[1]);
    assert_eq!(watching.scores[0].len(), 2);
}

#[test]
fn a_pattern_holds_the_attention_that_the_scores_add_up() {
    let device = Device::cpu();
    let lengths = [4, 5];
    let shaped = Attention { window: Some(1), scale: 0.3, soft_cap: Some(0.8), ..both() };
    for (mask, geometry) in [
        (Mask::Bidirectional, both()),
        (Mask::Causal, both()),
        (Mask::Bidirectional, shaped),
        (Mask::Causal, shaped),
    ] {
        let geometry = Attention { mask, ..geometry };
        let x = random(geometry, 9, 1);
        // Each key by itself: its score is the sum of its column over heads and queries.
        for key in 0..9 {
            let mut keys = vec![0.0; 9];
            keys[key] = 1.0;
            let mut probe = AttentionProbe {
                queries: vec![1.0; 9],
                keys,
                scores: Vec::new(),
                heads: Vec::new(),
                received: Some(Vec::new()),
                patterns: Some(Vec::new()),
            };
            let mut tape = Tape::new(&device);
            let value = tape.constant(of(&device, (9, x.1.len() / 9), &x.1));
            let projected = Projected::Together(&value);
            tape.attention(geometry, projected, &spans(&lengths), Some(&mut probe)).unwrap();
            let received = f64::from(probe.received.unwrap()[0][key]);
            let pattern = &probe.patterns.unwrap()[0];
            assert_eq!(pattern.len(), geometry.heads * (16 + 25));
            let (sequence, place) = if key < 4 { (0, key) } else { (1, key - 4) };
            let (start, length) = [(0, 4), (geometry.heads * 16, 5)][sequence];
            let rows = || pattern[start..][..geometry.heads * length * length].chunks(length);
            let column: f64 = rows().map(|row| f64::from(row[place])).sum();
            let queries = (geometry.heads * length) as f64;
            close(&[column / queries], &[probe.scores[0][sequence]]);
            // What a key receives is said of every key at once, whichever of them count.
            close(&[received], &[probe.scores[0][sequence]]);
            for row in rows() {
                close(&[row.iter().map(|weight| f64::from(*weight)).sum()], &[1.0]);
            }
        }
    }
}

#[test]
fn a_sequence_without_a_counted_query_scores_zero() {
    let x = random(both(), 4, 1);
    let scores = probe(both(), &x, &[2, 2], (&[0.0, 0.0, 1.0, 1.0], &[1.0; 4]));
    close(&scores, &[0.0, 1.0]);
}

#[test]
fn one_query_per_sequence_scores_as_the_same_query_among_all() {
    let device = Device::cpu();
    let (queries, keys_values) = (tensor(&device, (2, 12), 1), tensor(&device, (9, 24), 2));
    let mut tape = Tape::new(&device);
    let (queries, keys_values) = (tape.constant(queries), tape.constant(keys_values));
    let content = numbers(3, 9, (0.5, 0.5));
    let spans = [
        Span { queries: 0..1, keys: 0..4, offset: 0 },
        Span { queries: 1..2, keys: 4..9, offset: 0 },
    ];
    let mut apart = AttentionProbe {
        queries: vec![1.0; 2],
        keys: content.clone(),
        scores: Vec::new(),
        heads: Vec::new(),
        received: None,
        patterns: None,
    };
    let projected = Projected::Apart { queries: &queries, keys_values: &keys_values };
    tape.attention(both(), projected, &spans, Some(&mut apart)).unwrap();

    let mut all = vec![0.0; 9 * 36];
    for (row, columns) in all.chunks_exact_mut(36).enumerate() {
        let query = usize::from(row >= 4);
        columns[..12].copy_from_slice(&queries.tensor.to_host()[query * 12..][..12]);
        columns[12..].copy_from_slice(&keys_values.tensor.to_host()[row * 24..][..24]);
    }
    let firsts = first_of_each(&[4, 5]);
    close(&probe(both(), &(9, all), &[4, 5], (&firsts, &content)), &apart.scores[0]);
}

type Rows = (usize, Vec<f32>);

/// Scores of one attention over queries, keys and values side by side.
fn probe(
    geometry: Attention,
    (rows, numbers): &Rows,
    lengths: &[usize],
    (queries, keys): (&[f32], &[f32]),
) -> Vec<f64> {
    let device = Device::cpu();
    let mut tape = Tape::new(&device);
    let x = tape.constant(of(&device, (*rows, numbers.len() / rows), numbers));
    let mut probe = AttentionProbe {
        queries: queries.to_vec(),
        keys: keys.to_vec(),
        scores: Vec::new(),
        heads: Vec::new(),
        received: None,
        patterns: None,
    };
    tape.attention(geometry, Projected::Together(&x), &spans(lengths), Some(&mut probe))
        .expect("sizes agree");
    probe.scores.remove(0)
}

fn random(geometry: Attention, rows: usize, seed: u64) -> Rows {
    let columns = (geometry.heads + 2 * geometry.kv_heads) * geometry.width;
    (rows, numbers(seed, rows * columns, (3.0, 0.0)))
}

fn zero_queries(geometry: Attention, rows: usize) -> Rows {
    let (rows, mut numbers) = random(geometry, rows, 1);
    for row in numbers.chunks_exact_mut((geometry.heads + 2 * geometry.kv_heads) * WIDTH) {
        row[..geometry.heads * WIDTH].fill(0.0);
    }
    (rows, numbers)
}

fn first_of_each(lengths: &[usize]) -> Vec<f32> {
    let first = |i| if i == 0 { 1.0 } else { 0.0 };
    lengths.iter().flat_map(|&length| (0..length).map(first)).collect()
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    let near = |(x, y): (&f64, &f64)| (x - y).abs() < TOLERANCE;
    assert!(found.iter().zip(expected).all(near), "{found:?} instead of {expected:?}");
}
