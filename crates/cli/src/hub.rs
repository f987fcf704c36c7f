//! Models of the Hugging Face hub on the command line: what a command lacks is fetched before it begins, with a live
//! line.
//!
//! A connection is announced before it is made, and afterwards it is said what came from where.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fedra::folder::summary::duration;
use fedra::prepare::hub::{self, Fetched, Hub, ModelName, Progress};
use fedra_plan::ByteCount;

use crate::flags::Verbosity;
use crate::interrupt;
use crate::live::fitted;
use crate::screen::{Line, locked};

/// Fetches a model, or what the cache lacks of it.
pub fn fetch(name: &ModelName, voice: Verbosity) -> fedra::Result<Fetched> {
    let hub = Hub::from_env()?;
    if !hub.is_offline() {
        voice.say(format_args!("note: fetching {name} from {}", hub.endpoint()));
    }
    let state = Arc::new(Mutex::new(Download::new(name)));
    let line = Line::new(voice == Verbosity::Lively, &state, |download: &Download, width| {
        download.line(Instant::now(), width)
    });
    let fetched = hub::fetch(name, &|step| {
        locked(&state).step(step);
        !interrupt::told()
    });
    line.remove();
    let fetched = fetched?;
    voice.say(format_args!("note: {}", hub::in_words(&fetched)));
    Ok(fetched)
}

/// Fetches every model that something lacks which is about to be opened.
pub fn provide(voice: Verbosity, open: impl FnMut() -> fedra::Result<()>) -> fedra::Result<()> {
    hub::provide(&mut |name| fetch(name, voice).map(drop), open)
}

/// Opens something; models that it names and this machine lacks are fetched first.
pub fn opened<T>(voice: Verbosity, open: impl Fn() -> fedra::Result<T>) -> fedra::Result<T> {
    provide(voice, || open().map(drop))?;
    open()
}

/// The folder behind a flag's path, which may be a name of the hub.
pub fn folder(key: &str, path: &Path, voice: Verbosity) -> fedra::Result<PathBuf> {
    opened(voice, || Ok(hub::folder(key, path)?))
}

/// How far a download is.
struct Download {
    name: String,
    file: Option<String>,
    done: u64,
    total: u64,
    /// When bytes began to come, and how many were here by then.
    since: Option<(Instant, u64)>,
}

impl Download {
    fn new(name: &ModelName) -> Self {
        Self { name: name.to_string(), file: None, done: 0, total: 0, since: None }
    }

    fn step(&mut self, step: Progress<'_>) {
        if self.file.as_deref() != step.file {
            self.file = step.file.map(str::to_owned);
        }
        (self.done, self.total) = (step.done, step.total);
        if step.file.is_some() {
            self.since.get_or_insert((Instant::now(), step.done));
        }
    }

    fn line(&self, now: Instant, width: usize) -> String {
        let share = (self.done as f64 / self.total.max(1) as f64).min(1.0);
        let left = self.since.and_then(|(since, before)| {
            let spent = now.saturating_duration_since(since).as_secs_f64();
            let came = self.done.saturating_sub(before) as f64;
            let remaining = self.total.saturating_sub(self.done) as f64;
            (came > 0.0 && spent > 1.0).then(|| spent / came * remaining)
        });
        let parts = [
            (1, Some(format!("fetching {}", self.name))),
            (0, Some(format!("{:.0} %", (share * 100.0).floor()))),
            (2, Some(format!("of {}", ByteCount(self.total)))),
            (3, left.map(|left| format!("{} left", duration(left)))),
            (4, self.file.clone()),
        ];
        fitted(&parts, share, width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_line_says_what_comes_how_much_of_it_is_here_and_the_time_left() {
        let mut download = Download::new(&"hf:org/name".parse().unwrap());
        download.step(Progress { file: None, done: 0, total: 0 });
        assert!(download.line(Instant::now(), 100).contains("fetching hf:org/name"));
        // What an earlier attempt brought says nothing about the pace.
        download.step(Progress { file: Some("a.json"), done: 500_000, total: 1_000_000 });
        let since = download.since.unwrap().0;
        download.step(Progress {
            file: Some("model.safetensors"),
            done: 750_000,
            total: 1_000_000,
        });
        let line = download.line(since + Duration::from_secs(9), 120);
        for part in ["75 %", "of 1.0 MB", "9.0 s left", "model.safetensors"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}
