//! A small decoder with grouped heads, and its halves.

use fedra_client::generate::{
    CachedDecoder, DecodeSessions, DecodeStep, GenerateSettings, Generator, LocalPeer, Sampling,
    SessionKey, SessionLimits, TokenRules,
};
use fedra_compute::{Device, Params, Seed};
use fedra_model::hf::Config;
use fedra_model::{Adapters, Head, LongRope, Model, Positions, Rope, RopeScaling};
use fedra_plan::{Cut, Layer, ParamId, Part, Role};

pub const WORDS: usize = 60;
pub const BLOCKS: u16 = 4;
pub const WIDTH: usize = 32;
pub const LONGEST: usize = 96;

/// A decoder and its numbers.
pub struct Tiny {
    pub device: Device,
    pub model: Model,
    pub params: Params,
}

impl Tiny {
    pub fn new() -> Self {
        Self::with_adapters(None)
    }

    pub fn with_adapters(adapters: Option<Adapters>) -> Self {
        Self::turned_by(RopeScaling::None, adapters)
    }

    /// One whose frequencies are others in texts of more than so many tokens.
    pub fn long_behind(original: usize) -> Self {
        let (short, long) = (vec![1.0, 1.5, 2.0, 3.0], vec![1.0, 4.0, 9.0, 20.0]);
        let scaling = RopeScaling::LongRope(LongRope { short, long, original, attention: 1.2 });
        Self::turned_by(scaling, None)
    }

    fn turned_by(scaling: RopeScaling, adapters: Option<Adapters>) -> Self {
        let config = Config {
            positions: Positions::Rotary(Rope { scaling, ..Rope::plain(10_000.0) }),
            vocab_size: WORDS,
            hidden_size: WIDTH,
            num_hidden_layers: BLOCKS.into(),
            num_attention_heads: 4,
            num_key_value_heads: Some(2),
            head_dim: Some(8),
            intermediate_size: 40,
            max_position_embeddings: LONGEST,
            ..Config::llama()
        };
        let model = Model::new(config, Head::Language, adapters).unwrap();
        let device = Device::cpu();
        let mut params = model.fresh_params(&device, Seed(3)).unwrap();
        // An embedding and a vocabulary of a size at which tokens matter; B of an adapter likewise.
        for (id, tensor) in params.iter_mut() {
            if id.part == Part::LoraB {
                let numbers: Vec<f32> =
                    (0..tensor.elements()).map(|i| ((i * 7) % 11) as f32 * 0.02 - 0.1).collect();
                tensor.overwrite(&numbers).unwrap();
            } else if matches!(id.role, Role::Token | Role::Vocabulary) {
                tensor.scale(50.0);
            }
        }
        Self { device, model, params }
    }

    pub fn whole(&self) -> CachedDecoder<'_> {
        CachedDecoder::whole(&self.device, &self.model, &self.params).unwrap()
    }

    pub fn sessions(&self, first: u16, last: u16, limits: SessionLimits) -> DecodeSessions {
        let blocks = usize::from(first)..usize::from(BLOCKS - last);
        DecodeSessions::new(&self.device, (self.model.clone(), &self.params), blocks, limits)
            .unwrap()
    }

    /// The client's own parameters.
    pub fn near_params(&self, first: u16, last: u16) -> Params {
        let here = |id: ParamId| match id.layer {
            Layer::Embedding | Layer::Head => true,
            Layer::Block(block) => block < first || block >= BLOCKS - last,
        };
        let kept = self.params.iter().filter(|(id, _)| here(*id));
        kept.map(|(id, tensor)| (id, tensor.clone())).collect()
    }

    pub fn local_peer(&self, first: u16, last: u16) -> LocalPeer {
        LocalPeer::open(self.sessions(first, last, SessionLimits::default())).unwrap()
    }
}

pub fn random_tokens(seed: u64, length: usize) -> Vec<u32> {
    let mut draw = Seed(seed).generator();
    (0..length).map(|_| draw.below(WORDS) as u32).collect()
}

pub fn cut(first: u16, last: u16) -> Cut {
    Cut::keep(first, last, BLOCKS).unwrap()
}

pub fn greedy(max_tokens: usize) -> GenerateSettings {
    GenerateSettings {
        sampling: Sampling::Greedy,
        max_tokens,
        stop_tokens: Vec::new(),
        rules: TokenRules::default(),
    }
}

pub fn all_tokens(
    decoder: CachedDecoder<'_>,
    prompt: &[u32],
    settings: GenerateSettings,
) -> Vec<u32> {
    Generator::new(decoder, prompt, settings).unwrap().map(Result::unwrap).collect()
}

pub fn key(owner: &str, id: u64) -> SessionKey {
    SessionKey { owner: owner.into(), id }
}

/// Some rows of hidden states.
pub fn rows(seed: u64, count: usize) -> Vec<f32> {
    let mut draw = Seed(seed).generator();
    (0..count * WIDTH).map(|_| draw.normal() as f32).collect()
}

pub fn step(key: &SessionKey, position: usize, rows: Vec<f32>) -> DecodeStep {
    DecodeStep { key: key.clone(), position, rows, answer: fedra_client::generate::Answer::All }
}

pub fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}
