//! Reading a sequence piece by piece through a cache gives what reading it whole gives.

use crate::golden;
use crate::step::Step;
use fedra_compute::{Device, Params, Seed, Tape, Tensor};
use fedra_model::{Batch, Head, KeyValueCache, Model, ModelError, Packing, Reading, load};
use fedra_plan::Scope;
use std::ops::Range;

/// Both ways add the same products; only blocks of rows differ.
const TOLERANCE: f32 = 1e-6;

/// A decoder with grouped heads and its numbers.
struct Decoder {
    device: Device,
    model: Model,
    params: Params,
}

impl Decoder {
    /// The structure of the tiny golden decoder, with numbers of a seed.
    fn tiny() -> Self {
        let step = Step::every_tiny()
            .into_iter()
            .find(|step| step.model.is_decoder() && step.model.head() == Head::Language);
        let step = step.unwrap();
        let params = step.model.fresh_params(&step.device, Seed(7)).unwrap();
        Self { device: step.device, model: step.model, params }
    }

    fn words(&self) -> u32 {
        self.params.iter().next().unwrap().1.rows() as u32
    }

    fn sequence(&self, seed: u64, length: usize) -> Vec<u32> {
        let mut draw = Seed(seed).generator();
        (0..length).map(|_| draw.below(self.words() as usize) as u32).collect()
    }

    fn cache(&self, blocks: Range<usize>, capacity: usize) -> KeyValueCache {
        KeyValueCache::new(&self.device, &self.model, blocks, capacity).unwrap()
    }

    /// Logits of every token, read at once.
    fn whole(&self, ids: &[u32]) -> Tensor {
        let mut tape = Tape::new(&self.device);
        let batch = Batch::new(&[ids]).unwrap();
        self.model.logits(&mut tape, self.params.frozen(), &batch).unwrap().tensor
    }

    /// Logits of new tokens through caches that cover all blocks between them.
    fn continued(&self, new: &[&[u32]], cuts: &mut [Vec<&mut KeyValueCache>]) -> Tensor {
        let (mut tape, weights) = (Tape::new(&self.device), self.params.frozen());
        let offsets = cuts[0].iter().map(|cache| cache.len()).collect();
        let batch = Batch::new(new).unwrap().continuing(offsets).unwrap();
        let mut hidden = self.model.embed(&mut tape, weights, &batch).unwrap();
        for caches in cuts {
            let given = (hidden, batch.packing());
            hidden = self.model.decode(&mut tape, weights, given, caches).unwrap();
        }
        self.model.head_logits(&mut tape, weights, &hidden).unwrap().tensor
    }
}

#[test]
fn decoding_token_by_token_is_reading_the_whole_sequence() {
    check_steps(&Decoder::tiny(), &[1; 24]);
}

#[test]
fn decoding_in_pieces_of_any_size_is_reading_the_whole_sequence() {
    check_steps(&Decoder::tiny(), &[7, 1, 1, 5, 2, 8]);
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn stories260k_decodes_token_by_token_as_it_reads() {
    let dir = golden::published("stories260k");
    let device = Device::cpu();
    let loaded = load(&dir, Head::Language, None, (&device, Seed(1))).unwrap();
    let decoder = Decoder { device, model: loaded.model, params: loaded.params };
    let mut pieces = vec![1; 150];
    pieces.insert(0, 70); // a prompt longer than a tile of queries
    check_steps(&decoder, &pieces);
}

#[track_caller]
fn check_steps(decoder: &Decoder, pieces: &[usize]) {
    let ids = decoder.sequence(3, pieces.iter().sum());
    let expected = decoder.whole(&ids);
    let mut cache = decoder.cache(0..decoder.model.blocks(), ids.len());
    let room = cache.bytes();
    let mut at = 0;
    for &piece in pieces {
        let found = decoder.continued(&[&ids[at..at + piece]], &mut [vec![&mut cache]]);
        close(&found, &expected.row_range(&decoder.device, at, piece).unwrap(), at);
        at += piece;
        assert_eq!(cache.len(), at);
    }
    assert_eq!(cache.bytes(), room, "a cache with room enough never moves");
}

#[test]
fn sequences_of_different_lengths_are_decoded_together() {
    let decoder = Decoder::tiny();
    let ids: Vec<_> = [(1, 9), (2, 4), (3, 15)].map(|(s, n)| decoder.sequence(s, n + 3)).into();
    let mut caches: Vec<_> =
        ids.iter().map(|_| decoder.cache(0..decoder.model.blocks(), 1)).collect();
    let read: Vec<&[u32]> = ids.iter().map(|ids| &ids[..ids.len() - 3]).collect();
    decoder.continued(&read, &mut [caches.iter_mut().collect()]);
    for step in 0..3 {
        let new: Vec<&[u32]> = ids.iter().map(|ids| &ids[ids.len() - 3 + step..][..1]).collect();
        let found = decoder.continued(&new, &mut [caches.iter_mut().collect()]);
        for (number, ids) in ids.iter().enumerate() {
            let last = ids.len() - 3 + step;
            let expected = decoder.whole(&ids[..=last]);
            let expected = expected.row_range(&decoder.device, last, 1).unwrap();
            close(&found.row_range(&decoder.device, number, 1).unwrap(), &expected, step);
        }
    }
}

#[test]
fn the_two_halves_of_a_cut_decoder_keep_caches_of_their_own() {
    let decoder = Decoder::tiny();
    let ids = decoder.sequence(5, 12);
    let expected = decoder.whole(&ids);
    for cut in 0..=decoder.model.blocks() {
        let mut near = decoder.cache(0..cut, 12);
        let mut far = decoder.cache(cut..decoder.model.blocks(), 12);
        for at in 0..ids.len() {
            let (mut tape, weights) = (Tape::new(&decoder.device), decoder.params.frozen());
            let batch = Batch::new(&[&ids[at..=at]]).unwrap().continuing(vec![at]).unwrap();
            let mut hidden = decoder.model.embed(&mut tape, weights, &batch).unwrap();
            for cache in [&mut near, &mut far] {
                let given = (hidden, batch.packing());
                hidden = decoder.model.decode(&mut tape, weights, given, &mut [cache]).unwrap();
            }
            let found = decoder.model.head_logits(&mut tape, weights, &hidden).unwrap().tensor;
            close(&found, &expected.row_range(&decoder.device, at, 1).unwrap(), at);
        }
    }
}

#[test]
fn a_cache_that_was_cut_back_goes_on_as_if_nothing_had_followed() {
    let decoder = Decoder::tiny();
    let ids = decoder.sequence(6, 10);
    let mut cache = decoder.cache(0..decoder.model.blocks(), 2);
    decoder.continued(&[&decoder.sequence(8, 20)[..4]], &mut [vec![&mut cache]]);
    cache.truncate(0);
    decoder.continued(&[&ids[..6]], &mut [vec![&mut cache]]);
    decoder.continued(&[&decoder.sequence(9, 3)], &mut [vec![&mut cache]]);
    cache.truncate(6);
    let found = decoder.continued(&[&ids[6..]], &mut [vec![&mut cache]]);
    let expected = decoder.whole(&ids).row_range(&decoder.device, 6, 4).unwrap();
    close(&found, &expected, 6);
}

#[test]
fn blocks_see_positions_and_not_tokens() {
    let decoder = Decoder::tiny();
    let (mut tape, weights) = (Tape::new(&decoder.device), decoder.params.frozen());
    let hidden = Tensor::zeros(&decoder.device, 3, decoder.model.width());
    let hidden = tape.constant(hidden);
    let late = Packing::new(vec![3]).unwrap().with_offsets(vec![5]).unwrap();
    let all = 0..decoder.model.blocks();
    let run = decoder.model.run_blocks(&mut tape, weights, hidden, &late, all, &Reading::All);
    assert_eq!(run.unwrap().tensor.rows(), 3);
}

#[test]
fn wrong_caches_are_refused_and_stay_as_they_were() {
    let decoder = Decoder::tiny();
    let blocks = decoder.model.blocks();
    let mut cache = decoder.cache(0..blocks, 4);
    decoder.continued(&[&[1, 2]], &mut [vec![&mut cache]]);
    let check = |offsets: Vec<usize>, caches: &mut [&mut KeyValueCache], expected: &str| {
        let sequences = vec![vec![1]; offsets.len()];
        let batch = Batch::new(&sequences).unwrap().continuing(offsets).unwrap();
        let (mut tape, weights) = (Tape::new(&decoder.device), decoder.params.frozen());
        let hidden = decoder.model.embed(&mut tape, weights, &batch).unwrap();
        let given = (hidden, batch.packing());
        let error = decoder.model.decode(&mut tape, weights, given, caches).unwrap_err();
        assert_eq!(error.to_string(), format!("batch: {expected}"));
    };
    let past = "positions to continue from is [1], expected [2]";
    check(vec![1], &mut [&mut cache], past);
    let future = "positions to continue from is [3], expected [2]";
    check(vec![3], &mut [&mut cache], future);
    check(vec![2, 0], &mut [&mut cache], "number of caches is 1, expected 2");
    let mut other = decoder.cache(1..blocks, 4);
    let expected = format!("blocks of a cache is 1..{blocks}, expected 0..{blocks}");
    check(vec![2, 0], &mut [&mut cache, &mut other], &expected);
    assert_eq!((cache.len(), other.len()), (2, 0));
}

#[test]
fn nothing_trains_through_a_cache_and_a_failed_step_adds_nothing_to_it() {
    let decoder = Decoder::tiny();
    let mut cache = decoder.cache(0..decoder.model.blocks(), 4);
    decoder.continued(&[&[1, 2]], &mut [vec![&mut cache]]);
    let scope = Scope::of_blocks(decoder.model.layout(), [1]);
    let mut tape = Tape::new(&decoder.device);
    let weights = decoder.params.training(&scope);
    let batch = Batch::new(&[[3]]).unwrap().continuing(vec![2]).unwrap();
    let hidden = decoder.model.embed(&mut tape, weights, &batch).unwrap();
    let given = (hidden, batch.packing());
    let error = decoder.model.decode(&mut tape, weights, given, &mut [&mut cache]).unwrap_err();
    let expected = "attention over a cache: something below it trains, but it has no backward pass";
    assert_eq!(error.to_string(), expected);
    // Block 0 had its row already.
    assert_eq!(cache.len(), 2);
    decoder.continued(&[&[3]], &mut [vec![&mut cache]]);
}

#[test]
fn an_encoder_has_no_cache() {
    let step = Step::every_tiny().into_iter().next().unwrap();
    let made: Result<_, ModelError> = KeyValueCache::new(&step.device, &step.model, 0..1, 4);
    let message = made.unwrap_err().to_string();
    assert_eq!(message, "model: found an encoder, expected a decoder, which can write text");
}

#[track_caller]
fn close(found: &Tensor, expected: &Tensor, at: usize) {
    assert_eq!(found.shape(), expected.shape());
    let (found, expected) = (found.to_host(), expected.to_host());
    let size = expected.iter().fold(1.0f32, |size, x| size.max(x.abs()));
    for (found, expected) in found.iter().zip(&*expected) {
        let off = (found - expected).abs() / size;
        assert!(off <= TOLERANCE, "at {at}: {found} instead of {expected}");
    }
}

#[test]
fn long_texts_have_other_positions_than_short_ones_whoever_shares_their_batch() {
    let cases = golden::cases::<golden::TinyCase>("families.json");
    let case = cases.iter().find(|case| case.family == "phi3 longrope").unwrap();
    let Step { device, model, params, .. } = Step::tiny(case);
    let decoder = Decoder { device, model, params };
    let (short, long) = (decoder.sequence(3, 8), decoder.sequence(4, 11));
    let alone = [decoder.whole(&short), decoder.whole(&long)];
    let batch = Batch::new(&[&short, &long]).unwrap();
    let mut tape = Tape::new(&decoder.device);
    let weights = decoder.params.frozen();
    let together = decoder.model.logits(&mut tape, weights, &batch).unwrap().tensor;
    let expected = Tensor::stack(&decoder.device, &alone).unwrap();
    close(&together, &expected, 1);

    // The first eight of eleven tokens are another text than eight tokens.
    let words = decoder.words() as usize;
    let prefix = decoder.whole(&long[..8]);
    assert_ne!(prefix.to_host()[words..], alone[1].to_host()[words..8 * words]);

    let blocks = 0..decoder.model.blocks();
    let mut cache = decoder.cache(blocks.clone(), 16);
    let read = decoder.continued(&[&long[..8]], &mut [vec![&mut cache]]);
    close(&read, &prefix, 2);
    assert!(cache.must_restart(&decoder.model, 9) && !cache.must_restart(&decoder.model, 8));
    let (mut tape, one) = (Tape::new(&decoder.device), &long[8..9]);
    let next = Batch::new(&[one]).unwrap().continuing(vec![8]).unwrap();
    let hidden = decoder.model.embed(&mut tape, weights, &next).unwrap();
    let given = (hidden, next.packing());
    let refused = decoder.model.decode(&mut tape, weights, given, &mut [&mut cache]).unwrap_err();
    let expected =
        "length of a text in a cache is 9, expected at most 8: a longer one has to be read again";
    assert!(refused.to_string().contains(expected), "{refused}");
    // Read again in pieces, as a long one; beside a short text whose cache is empty.
    cache.restart_long();
    let mut other = decoder.cache(blocks, 16);
    let first = decoder.continued(&[&long[..5], &short], &mut [vec![&mut cache, &mut other]]);
    let rest = decoder.continued(&[&long[5..]], &mut [vec![&mut cache]]);
    let first_rows = decoder.whole(&long).row_range(&decoder.device, 0, 5).unwrap();
    let expected = Tensor::stack(&decoder.device, &[first_rows, alone[0].clone()]).unwrap();
    close(&first, &expected, 3);
    let expected = alone[1].row_range(&decoder.device, 5, 6).unwrap();
    close(&rest, &expected, 4);
}
