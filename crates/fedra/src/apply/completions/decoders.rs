//! Decoders that have read something, kept for who continues it.
//!
//! A client sends the whole conversation each time. The decoder that answered it before has read most of it, and a
//! decoder that takes up what it has read gives the same text as a new one. As many are kept as answers are written at a
//! time, so caches are bounded.

use std::sync::{Mutex, PoisonError};

use fedra_client::generate::CachedDecoder;

use crate::error::Result;

/// Makes a decoder of a model, by its number, that has read nothing.
pub type MakeDecoder<'m> = Box<dyn Fn(usize) -> Result<CachedDecoder<'m>> + Sync + 'm>;

/// Decoders of all models.
pub struct Decoders<'m> {
    make: MakeDecoder<'m>,
    most: usize,
    /// Those that rest, with the number of their model; the one that rests longest is first.
    idle: Mutex<Vec<(usize, CachedDecoder<'m>)>>,
}

impl<'m> Decoders<'m> {
    /// Keeps at most so many.
    pub fn new(make: MakeDecoder<'m>, most: usize) -> Self {
        Self { make, most, idle: Mutex::default() }
    }

    /// A decoder of a model that has read the beginning of a prompt, as much of it as one has, and nothing else. The
    /// last token is always left to be read.
    pub(super) fn take(&self, model: usize, prompt: &[u32]) -> Result<CachedDecoder<'m>> {
        let shared = |decoder: &CachedDecoder<'_>| {
            let same = decoder.tokens.iter().zip(prompt).take_while(|(old, new)| old == new);
            same.count().min(prompt.len().saturating_sub(1))
        };
        let found = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let places = idle.iter().enumerate().filter(|(_, (of, _))| *of == model);
            let best = places.max_by_key(|(_, (_, decoder))| shared(decoder));
            let place =
                best.filter(|(_, (_, decoder))| shared(decoder) > 0).map(|(place, _)| place);
            place.map(|place| idle.remove(place).1)
        };
        if let Some(mut decoder) = found {
            let tokens = shared(&decoder);
            if decoder.keep(tokens) {
                return Ok(decoder);
            }
        }
        (self.make)(model)
    }

    /// Keeps a decoder for who continues what it has read. A cut one holds a session at its server, and is not kept.
    pub(super) fn put(&self, model: usize, decoder: CachedDecoder<'m>) {
        if decoder.is_cut() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push((model, decoder));
        if idle.len() > self.most {
            idle.remove(0);
        }
    }
}
