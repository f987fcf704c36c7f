//! A published decoder writes what `transformers` 5.22 writes with it, token for token.

use crate::tiny::{all_tokens, bits, greedy};
use fedra_client::generate::{
    CachedDecoder, DecodeSessions, Generator, LocalPeer, RandomSampling, SessionLimits, TextStream,
};
use fedra_compute::{Device, Seed};
use fedra_data::open_tokenizer;
use fedra_model::{Head, Loaded, load};
use fedra_plan::Cut;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

const PROMPT: &str = "Once upon a time";

/// `generate(max_new_tokens=150, do_sample=False)`.
const GREEDY: [u32; 150] = [
    432, 383, 286, 261, 376, 298, 315, 421, 395, 317, 426, 338, 401, 396, 267, 337, 410, 408, 419,
    292, 411, 322, 265, 282, 295, 433, 426, 385, 328, 432, 358, 394, 261, 370, 432, 352, 266, 268,
    388, 426, 338, 391, 266, 267, 337, 335, 312, 432, 398, 312, 286, 267, 414, 270, 333, 415, 426,
    13, 438, 310, 439, 419, 357, 336, 432, 313, 438, 310, 432, 278, 316, 439, 419, 298, 414, 267,
    265, 282, 295, 433, 426, 436, 317, 286, 296, 418, 269, 279, 292, 416, 439, 413, 409, 416, 327,
    263, 415, 294, 267, 400, 426, 338, 336, 432, 313, 442, 391, 267, 337, 335, 364, 420, 268, 388,
    432, 398, 359, 280, 303, 439, 413, 272, 417, 264, 312, 426, 436, 13, 438, 310, 286, 296, 418,
    269, 279, 292, 416, 439, 413, 409, 416, 327, 263, 415, 294, 267, 400, 426, 338, 336,
];

/// Behind the prompt and 33 of these: temperature 0.8, then top-k 40, then top-p 0.9.
const SET: [(u32, f64); 12] = [
    (370, 0.428_014),
    (262, 0.105_694),
    (268, 0.101_066),
    (376, 0.086_276),
    (282, 0.0794),
    (280, 0.052_72),
    (284, 0.040_854),
    (259, 0.024_196),
    (278, 0.023_247),
    (298, 0.022_242),
    (272, 0.020_563),
    (416, 0.015_727),
];

struct Stories {
    device: Device,
    loaded: Loaded,
    folder: PathBuf,
}

/// The decoder beside this checkout.
fn stories() -> Stories {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models/stories260k");
    let device = Device::cpu();
    let loaded = load(&folder, Head::Language, None, (&device, Seed(0))).unwrap();
    Stories { device, loaded, folder }
}

impl Stories {
    fn prompt(&self) -> Vec<u32> {
        let tokenizer = open_tokenizer(&self.folder).unwrap();
        let mut tokens = tokenizer.templates().single.before().clone();
        tokens.extend(tokenizer.pieces(PROMPT).unwrap());
        tokens
    }

    fn whole(&self) -> CachedDecoder<'_> {
        CachedDecoder::whole(&self.device, &self.loaded.model, &self.loaded.params).unwrap()
    }
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn greedy_tokens_are_those_of_the_reference_whole_and_cut() {
    let stories = stories();
    let prompt = stories.prompt();
    assert_eq!(prompt, [1, 403, 407, 261, 378]);
    assert_eq!(all_tokens(stories.whole(), &prompt, greedy(150)), GREEDY);
    let (model, params) = (&stories.loaded.model, &stories.loaded.params);
    for (first, last) in [(0, 0), (1, 1), (2, 0), (0, 4)] {
        let blocks = usize::from(first)..usize::from(5 - last);
        let limits = SessionLimits::default();
        let sessions =
            DecodeSessions::new(&stories.device, (model.clone(), params), blocks, limits).unwrap();
        let peer = Box::new(LocalPeer::open(sessions).unwrap());
        let cut = Cut::keep(first, last, 5).unwrap();
        let decoder = CachedDecoder::cut(&stories.device, (model, params), &cut, peer).unwrap();
        assert_eq!(all_tokens(decoder, &prompt, greedy(150)), GREEDY, "cut {first} + {last}");
    }
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn the_set_that_is_drawn_from_is_that_of_the_reference() {
    let stories = stories();
    let mut decoder = stories.whole();
    let prompt = [&stories.prompt()[..], &GREEDY[..33]].concat();
    let logits = decoder.read(&prompt).unwrap().to_host().into_owned();
    let random =
        RandomSampling { temperature: 0.8, top_k: Some(40), top_p: Some(0.9), seed: Seed(1) };
    let found = random.candidates(&logits);
    assert_eq!(found.len(), SET.len());
    for (found, (token, share)) in found.iter().zip(SET) {
        assert_eq!(found.token, token);
        assert!((found.probability - share).abs() < 1e-5, "{found:?}, expected {share}");
    }
    // Read in pieces, the logits are the same.
    let mut pieces = stories.whole().with_chunk(3);
    assert_eq!(bits(&pieces.read(&prompt).unwrap().to_host()), bits(&logits));
}

#[test]
#[ignore = "needs ../shared/models/stories260k: tools/test-shared"]
fn the_text_comes_in_pieces_and_ends_at_a_stop_string() {
    let stories = stories();
    let (tokenizer, prompt) = (open_tokenizer(&stories.folder).unwrap(), stories.prompt());
    let written = |stops: Vec<String>| {
        let mut generator = Generator::new(stories.whole(), &prompt, greedy(60)).unwrap();
        let stream = TextStream::new(&tokenizer, stops).after(&prompt).unwrap();
        let mut text = String::new();
        let ended = generator.write(stream, &mut |new| {
            text.push_str(new.text);
            ControlFlow::Continue(())
        });
        (text, ended.unwrap().name())
    };
    let (text, ended) = written(Vec::new());
    let expected = ", there was a little girl named Lily. She loved to play outside in the park. One \
                    day, she saw a big, red ball. She wanted to play with it, but it was too high.\n\
                    Lily";
    assert_eq!((text.as_str(), ended), (expected, "max_tokens"));
    let expected = ", there was a little girl named Lily. She loved to play outside in the ";
    assert_eq!(written(vec!["park.".into()]), (expected.into(), "stop_text"));
}
