//! A cut decoder writes what the whole one writes, whatever happens on the way.

use crate::tiny::{
    BLOCKS, LONGEST, Tiny, WIDTH, WORDS, all_tokens, bits, cut, greedy, random_tokens,
};
use fedra_client::generate::{
    Answer, CachedDecoder, DecodePeer, Ended, Generator, LocalPeer, RandomSampling, Sampling,
};
use fedra_client::{ClientError, Result};
use fedra_compute::{Seed, ThreadPool};
use fedra_model::{Adapters, Batch};
use fedra_plan::Role;
use std::sync::{Arc, Mutex};

/// Every way to cut four blocks that leaves the server at least one.
fn cuts() -> impl Iterator<Item = (u16, u16)> {
    (0..BLOCKS).flat_map(|first| (0..BLOCKS - first).map(move |last| (first, last)))
}

#[test]
fn a_cut_decoder_gives_the_logits_of_the_whole_one_to_the_bit_at_every_cut() {
    let adapters = Adapters::new(2, 4.0, [Role::Query, Role::Down]).unwrap();
    for tiny in [Tiny::new(), Tiny::with_adapters(Some(adapters))] {
        let prompt = random_tokens(1, 11);
        for (first, last) in cuts() {
            let params = tiny.near_params(first, last);
            let peer = Box::new(tiny.local_peer(first, last));
            let given = (&tiny.model, &params);
            let mut split =
                CachedDecoder::cut(&tiny.device, given, &cut(first, last), peer).unwrap();
            let mut whole = tiny.whole();
            for piece in [&prompt[..], &[5], &[6], &[7, 8]] {
                let (found, expected) = (split.read(piece).unwrap(), whole.read(piece).unwrap());
                assert_eq!(
                    bits(&found.to_host()),
                    bits(&expected.to_host()),
                    "cut {first} + {last}"
                );
            }
        }
    }
}

#[test]
fn cached_logits_are_those_of_the_whole_sequence_read_at_once_to_the_bit() {
    let tiny = Tiny::new();
    let ids = random_tokens(2, 40);
    let mut decoder = tiny.whole().with_chunk(7);
    for end in [13, 14, 15, 40] {
        let from = decoder.tokens.len();
        let found = decoder.read(&ids[from..end]).unwrap();
        let mut tape = fedra_compute::Tape::new(&tiny.device);
        let batch = Batch::new(&[&ids[..end]]).unwrap();
        let all = tiny.model.logits(&mut tape, tiny.params.frozen(), &batch).unwrap().tensor;
        let expected = all.row_range(&tiny.device, end - 1, 1).unwrap();
        assert_eq!(bits(&found.to_host()), bits(&expected.to_host()), "behind {end} tokens");
    }
}

#[test]
fn greedy_and_drawn_tokens_do_not_depend_on_cut_pieces_or_threads() {
    let tiny = Tiny::new();
    let prompt = random_tokens(4, 9);
    let random =
        RandomSampling { temperature: 1.2, top_k: Some(20), top_p: Some(0.9), seed: Seed(5) };
    for sampling in [Sampling::Greedy, Sampling::Random(random)] {
        let settings = || {
            let mut settings = greedy(30);
            settings.sampling = sampling;
            settings
        };
        let expected = all_tokens(tiny.whole(), &prompt, settings());
        assert_eq!(expected.len(), 30);
        for (first, last) in cuts() {
            for (chunk, threads) in [(1, 1), (4, 3), (100, 2)] {
                let found = ThreadPool::new(threads).unwrap().install(|| {
                    let peer = Box::new(tiny.local_peer(first, last));
                    let given = (&tiny.model, &tiny.params);
                    let decoder =
                        CachedDecoder::cut(&tiny.device, given, &cut(first, last), peer).unwrap();
                    all_tokens(decoder.with_chunk(chunk), &prompt, settings())
                });
                assert_eq!(found, expected, "cut {first} + {last}, pieces of {chunk}");
            }
        }
    }
}

#[test]
fn seeds_draw_different_texts_and_the_same_seed_the_same() {
    let tiny = Tiny::new();
    let text = |seed| {
        let mut settings = greedy(20);
        let random =
            RandomSampling { temperature: 1.5, top_k: None, top_p: None, seed: Seed(seed) };
        settings.sampling = Sampling::Random(random);
        all_tokens(tiny.whole(), &[1, 2], settings)
    };
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}

/// Watches what crosses, and fails when it is told to.
struct Watched {
    peer: LocalPeer,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// Position, rows sent, rows received.
    crossings: Vec<(usize, usize, usize)>,
    rows: Vec<(usize, Vec<f32>)>,
    fail_before: Vec<usize>,
    fail_after: Vec<usize>,
}

fn lost() -> ClientError {
    ClientError::Unreachable(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset)))
}

impl DecodePeer for Watched {
    fn decode(&mut self, position: usize, rows: &[f32], answer: Answer) -> Result<Vec<f32>> {
        let mut seen = self.seen.lock().unwrap();
        seen.rows.push((position, rows.to_vec()));
        if let Some(at) = seen.fail_before.iter().position(|at| *at == position) {
            seen.fail_before.remove(at);
            return Err(lost());
        }
        let received = self.peer.decode(position, rows, answer)?;
        seen.crossings.push((position, rows.len() / WIDTH, received.len() / WIDTH));
        if let Some(at) = seen.fail_after.iter().position(|at| *at == position) {
            seen.fail_after.remove(at);
            return Err(lost());
        }
        Ok(received)
    }

    fn position(&mut self) -> Result<usize> {
        self.peer.position()
    }
}

#[test]
fn a_token_moves_one_row_each_way_and_a_prompt_in_front_of_the_head_one_back() {
    let tiny = Tiny::new();
    for (last, back) in [(0, 1), (1, 6)] {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let peer = Watched { peer: tiny.local_peer(1, last), seen: seen.clone() };
        let given = (&tiny.model, &tiny.params);
        let decoder =
            CachedDecoder::cut(&tiny.device, given, &cut(1, last), Box::new(peer)).unwrap();
        all_tokens(decoder, &random_tokens(1, 6), greedy(4));
        let expected = [(0, 6, back), (6, 1, 1), (7, 1, 1), (8, 1, 1)];
        assert_eq!(seen.lock().unwrap().crossings, expected);
    }
}

#[test]
fn a_generation_goes_on_after_lost_requests_lost_answers_and_a_server_that_forgot() {
    let tiny = Tiny::new();
    let prompt = random_tokens(7, 10);
    let given = (&tiny.model, &tiny.params);
    // Noise that differs each time it is drawn: what is sent again must not be drawn again.
    let noise = || {
        let mut draw = Seed(9).generator();
        Box::new(move |rows: &mut [f32], width: usize| {
            assert_eq!(width, WIDTH);
            for x in rows {
                *x += 0.1 * draw.normal() as f32;
            }
        })
    };
    for (first, last) in [(0, 0), (1, 1), (2, 0), (0, 3)] {
        let peer = Box::new(tiny.local_peer(first, last));
        let decoder = CachedDecoder::cut(&tiny.device, given, &cut(first, last), peer).unwrap();
        let decoder = decoder.with_chunk(4).with_leaving(noise());
        let expected = all_tokens(decoder, &prompt, greedy(20));

        let seen = Arc::new(Mutex::new(Seen {
            fail_before: vec![4, 13, 20],
            fail_after: vec![0, 8, 15, 22],
            ..Seen::default()
        }));
        let peer = Watched { peer: tiny.local_peer(first, last), seen: seen.clone() };
        let decoder =
            CachedDecoder::cut(&tiny.device, given, &cut(first, last), Box::new(peer)).unwrap();
        let decoder = decoder.with_chunk(4).with_leaving(noise());
        let mut generator = Generator::new(decoder, &prompt, greedy(20)).unwrap();
        let (mut found, mut failures) = (Vec::new(), 0);
        loop {
            match generator.next_token() {
                Ok(Some(token)) => found.push(token),
                Ok(None) => break,
                Err(_) => {
                    failures += 1;
                    while generator.resume().is_err() {
                        failures += 1;
                    }
                }
            }
        }
        assert_eq!((failures, found), (7, expected), "cut {first} + {last}");
        let seen = seen.lock().unwrap();
        for (position, rows) in &seen.rows {
            let first = seen.rows.iter().find(|(at, _)| at == position).unwrap();
            assert_eq!(bits(&first.1), bits(rows), "rows at {position} were sent twice");
        }
    }
}

/// A server that is started again in between: its sessions are gone.
struct Forgetful<'a> {
    tiny: &'a Tiny,
    peer: LocalPeer,
    steps: usize,
}

impl DecodePeer for Forgetful<'_> {
    fn decode(&mut self, position: usize, rows: &[f32], answer: Answer) -> Result<Vec<f32>> {
        self.steps += 1;
        if self.steps == 9 {
            self.peer = self.tiny.local_peer(1, 1);
            return Err(lost());
        }
        self.peer.decode(position, rows, answer)
    }

    fn position(&mut self) -> Result<usize> {
        self.peer.position()
    }
}

#[test]
fn a_server_that_lost_all_is_sent_everything_again() {
    let tiny = Tiny::new();
    let prompt = random_tokens(8, 5);
    let peer = Forgetful { tiny: &tiny, peer: tiny.local_peer(1, 1), steps: 0 };
    let given = (&tiny.model, &tiny.params);
    let decoder = CachedDecoder::cut(&tiny.device, given, &cut(1, 1), Box::new(peer)).unwrap();
    let mut generator = Generator::new(decoder.with_chunk(3), &prompt, greedy(15)).unwrap();
    let mut found = Vec::new();
    loop {
        match generator.next_token() {
            Ok(Some(token)) => found.push(token),
            Ok(None) => break,
            Err(_) => generator.resume().unwrap(),
        }
    }
    assert_eq!(found, all_tokens(tiny.whole(), &prompt, greedy(15)));
}

/// Answers whatever it was told to.
struct Liar(Vec<f32>);

impl DecodePeer for Liar {
    fn decode(&mut self, _: usize, _: &[f32], _: Answer) -> Result<Vec<f32>> {
        Ok(self.0.clone())
    }

    fn position(&mut self) -> Result<usize> {
        Ok(1000)
    }
}

#[test]
fn answers_of_another_size_or_without_numbers_are_refused() {
    let tiny = Tiny::new();
    let given = (&tiny.model, &tiny.params);
    let refused = |answer: Vec<f32>| {
        let decoder =
            CachedDecoder::cut(&tiny.device, given, &cut(1, 1), Box::new(Liar(answer))).unwrap();
        let mut generator = Generator::new(decoder, &[1, 2], greedy(3)).unwrap();
        let words = generator.next_token().unwrap_err().to_string();
        (words, generator.resume().unwrap_err().to_string())
    };
    let (words, position) = refused(vec![0.0; WIDTH]);
    assert_eq!(words, "the peer's answer: found 32 numbers, expected 2 rows of 32");
    let expected = "the peer's position: found 1000, expected at most 2, the rows that were sent";
    assert_eq!(position, expected);
    let mut broken = vec![0.0; 2 * WIDTH];
    broken[WIDTH] = f32::NAN;
    let (words, _) = refused(broken);
    assert_eq!(words, "the peer's answer: found NaN in row 1, expected finite numbers");
}

#[test]
fn a_generation_ends_at_a_stop_token_at_the_most_tokens_and_at_the_last_position() {
    let tiny = Tiny::new();
    let run = |prompt: &[u32], settings| {
        let mut generator = Generator::new(tiny.whole(), prompt, settings).unwrap();
        let tokens: Vec<u32> = generator.by_ref().map(Result::unwrap).collect();
        (tokens, generator.ended)
    };
    let (tokens, ended) = run(&[3, 1], greedy(12));
    assert_eq!((tokens.len(), ended), (12, Some(Ended::MaxTokens)));
    let mut settings = greedy(12);
    settings.stop_tokens = vec![tokens[5]];
    let at = tokens.iter().position(|token| *token == tokens[5]).unwrap();
    assert_eq!(run(&[3, 1], settings), (tokens[..at].to_vec(), Some(Ended::StopToken)));
    let prompt = random_tokens(1, LONGEST - 2);
    let (tokens, ended) = run(&prompt, greedy(100));
    assert_eq!((tokens.len(), ended), (3, Some(Ended::ContextFull)));
}

#[test]
fn prompts_that_cannot_be_read_are_refused() {
    let tiny = Tiny::new();
    let refused = |prompt: &[u32], settings| {
        let mut generator = match Generator::new(tiny.whole(), prompt, settings) {
            Err(error) => return error.to_string(),
            Ok(generator) => generator,
        };
        generator.next_token().unwrap_err().to_string()
    };
    assert_eq!(refused(&[], greedy(1)), "prompt: found no token, expected at least one");
    assert_eq!(refused(&[1], greedy(0)), "most tokens: found 0, expected at least 1");
    let long = vec![1; LONGEST + 1];
    let expected = "prompt: found 97 tokens, expected at most 96, the model's longest";
    assert_eq!(refused(&long, greedy(1)), expected);
    let unknown = [1, WORDS as u32];
    assert_eq!(refused(&unknown, greedy(1)), "token: found 60, expected less than 60");
}

#[test]
fn a_text_that_becomes_a_long_one_is_read_again_and_a_cut_decoder_ends_before_that() {
    let short = 16;
    let tiny = Tiny::long_behind(short);
    let ids = random_tokens(6, 30);
    for pieces in [vec![10, 16, 17, 18, 30], vec![20, 30]] {
        let mut decoder = tiny.whole().with_chunk(7);
        for end in pieces {
            let from = decoder.tokens.len();
            let found = decoder.read(&ids[from..end]).unwrap();
            let mut tape = fedra_compute::Tape::new(&tiny.device);
            let batch = Batch::new(&[&ids[..end]]).unwrap();
            let all = tiny.model.logits(&mut tape, tiny.params.frozen(), &batch).unwrap().tensor;
            let expected = all.row_range(&tiny.device, end - 1, 1).unwrap();
            assert_eq!(bits(&found.to_host()), bits(&expected.to_host()), "behind {end} tokens");
        }
    }
    let params = tiny.near_params(1, 1);
    let given = (&tiny.model, &params);
    let peer = Box::new(tiny.local_peer(1, 1));
    let split = CachedDecoder::cut(&tiny.device, given, &cut(1, 1), peer).unwrap();
    let mut writing = Generator::new(split, &ids[..10], greedy(30)).unwrap();
    let written: Vec<u32> = writing.by_ref().map(Result::unwrap).collect();
    assert_eq!(writing.ended, Some(Ended::ContextFull));
    let whole = all_tokens(tiny.whole(), &ids[..10], greedy(30));
    assert_eq!((written.len(), whole.len()), (short - 10 + 1, 30));
    assert_eq!(written, whole[..written.len()]);
}
