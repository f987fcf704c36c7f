//! What a decoder writes behind a prompt.

use std::ops::ControlFlow;
use std::path::PathBuf;

use fedra::apply::text_decoder::{TextDecoder, prompt_tokens};
use fedra_client::generate::{CachedDecoder, Generator, RandomSampling, Sampling, TextStream};
use fedra_compute::Seed;
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::{failed, raised, refused};
use crate::predict::{choice, opened};
use crate::values::python_of;

/// Writes a text behind a prompt; `heard` is called with each piece as it is made.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the Python half has names and defaults for them")]
pub fn generate<'py>(
    py: Python<'py>,
    path: PathBuf,
    best: bool,
    base: Option<PathBuf>,
    prompt: &str,
    max_tokens: usize,
    sampling: (Option<f64>, Option<usize>, Option<f64>, Option<u64>),
    stop: Vec<String>,
    device: Option<&str>,
    precision: Option<&str>,
    heard: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if max_tokens == 0 {
        return Err(refused(py, "max_tokens", "found 0, expected at least 1"));
    }
    if stop.iter().any(String::is_empty) {
        return Err(refused(py, "stop", "found an empty text, expected at least one letter"));
    }
    let (temperature, top_k, top_p, seed) = sampling;
    let sampling = match (temperature, top_k, top_p, seed) {
        (None, None, None, None) => Sampling::Greedy,
        (None, None, None, Some(_)) => {
            return Err(refused(py, "seed", "applies only with temperature, top_k or top_p"));
        }
        _ => Sampling::Random(RandomSampling {
            temperature: temperature.unwrap_or(1.0),
            top_k,
            top_p,
            seed: Seed(seed.unwrap_or(0)),
        }),
    };
    sampling.check().map_err(|error| failed(py, error))?;
    let choice = choice(py, path, best, base)?;
    let device = opened(py, device, precision)?;
    let open = || TextDecoder::open(&choice.folders()?, &device);
    let decoder = py.detach(open).map_err(|error| raised(py, &error))?;
    let TextDecoder { loaded, tokenizer, generation } = decoder;
    let prompt = prompt_tokens(&tokenizer, prompt).map_err(|error| raised(py, &error))?;
    let heard = heard.map(|heard| heard.clone().unbind());
    let write = || -> Result<Result<serde_json::Value, PyErr>, fedra::Error> {
        let settings = generation.settings(sampling, max_tokens);
        let cached = CachedDecoder::whole(&device, &loaded.model, &loaded.params)?;
        let mut generator = Generator::new(cached, &prompt, settings)?;
        let stream = TextStream::new(&tokenizer, stop).after(&prompt)?;
        let (mut text, mut tokens, mut thrown) = (String::new(), Vec::new(), None);
        let ended = generator.write(stream, &mut |written| {
            tokens.extend(written.token);
            text.push_str(written.text);
            // Callbacks and Ctrl-C, between two tokens.
            let told = Python::attach(|py| {
                if let Some(heard) = &heard {
                    heard.call1(py, (written.text,))?;
                }
                py.check_signals()
            });
            match told {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    thrown = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        let prompt_tokens = prompt.len();
        Ok(thrown.map_or_else(
            || Ok(json!({ "text": text, "tokens": tokens, "prompt_tokens": prompt_tokens, "ended": ended.name() })),
            Err,
        ))
    };
    let written = py.detach(write).map_err(|error| raised(py, &error))??;
    python_of(py, &written)
}
