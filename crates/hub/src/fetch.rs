//! From a name to a complete snapshot: the only place that asks a hub.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use fedra_files::model_folder::INDEX;

use crate::cache::{Repository, Snapshot};
use crate::error::HubError;
use crate::http::Http;
use crate::listing::{Listing, RemoteFile};
use crate::name::ModelName;
use crate::needed::{self, REMEMBERED};
use crate::settings::Hub;
use crate::transfer::Transfer;

/// How far a download is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The file at work; none while the hub is asked what there is.
    pub file: Option<&'a str>,
    /// Bytes of all files that are here, those of earlier attempts among them.
    pub done: u64,
    /// Bytes of all files, as far as they are known.
    pub total: u64,
}

/// Follows a download: told how far it is, says whether to go on.
pub type Follow<'a> = &'a dyn Fn(Progress<'_>) -> bool;

/// What was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The model, now in the cache.
    pub snapshot: Snapshot,
    /// The hub that it came from.
    pub endpoint: String,
    /// How many files were fetched.
    pub files: usize,
    /// Bytes of content that came over the network.
    pub bytes: u64,
}

impl Hub {
    /// Fetches what the cache lacks of a model, and makes a branch or tag mean what it means today. A pinned model
    /// that is complete in the cache costs no connection.
    pub fn fetch(&self, name: &ModelName, follow: Follow<'_>) -> Result<Fetched, HubError> {
        if let Some(snapshot) = name.commit().and_then(|_| self.cached(name)) {
            return Ok(Fetched { snapshot, endpoint: self.endpoint(), files: 0, bytes: 0 });
        }
        if self.is_offline {
            // A branch or tag stays what it was when it was last fetched.
            let snapshot = self.cached(name).ok_or_else(|| HubError::Offline {
                name: name.to_string(),
                state: self.state_of(name),
                cache: self.cache.clone(),
            })?;
            return Ok(Fetched { snapshot, endpoint: self.endpoint(), files: 0, bytes: 0 });
        }
        let idle = || follow(Progress { file: None, done: 0, total: 0 });
        if !idle() {
            return Err(HubError::Stopped(name.to_string()));
        }
        let http = Http::new(self)?;
        let listing = Listing::of(&http, name, &idle)?;
        let repository = Repository::new(self, name);
        let needed = needed::of(&listing)?;
        repository.prepare(&listing.commit)?;
        let mut work = Download { http, listing, repository, follow, files: 0, bytes: 0 };
        let mut wanted: Vec<String> = needed.iter().map(|&file| file.to_owned()).collect();
        if needed.contains(&INDEX) {
            work.bring(&[INDEX.to_owned()])?;
            let index = work.repository.snapshot(&work.listing.commit).join(INDEX);
            wanted.extend(needed::shards(&work.listing, &index)?);
        }
        work.bring(&wanted)?;
        let Download { listing, repository, files, bytes, .. } = work;
        for file in REMEMBERED.into_iter().filter(|file| !listing.has(file)) {
            repository.note_absent(&listing.commit, file);
        }
        // Last: until then the branch stands for what is complete.
        repository.refer(name.revision(), &listing.commit)?;
        let folder = repository.snapshot(&listing.commit);
        let snapshot = Snapshot { name: listing.name, folder };
        Ok(Fetched { snapshot, endpoint: self.endpoint(), files, bytes })
    }
}

/// A download at work.
struct Download<'a> {
    http: Http,
    listing: Listing,
    repository: Repository,
    follow: Follow<'a>,
    files: usize,
    bytes: u64,
}

impl Download<'_> {
    /// Brings those of these files that the snapshot lacks, or has with another length than the hub.
    fn bring(&mut self, files: &[String]) -> Result<(), HubError> {
        let snapshot = self.repository.snapshot(&self.listing.commit);
        let (done, total) = (Cell::new(0), Cell::new(0));
        let idle = || (self.follow)(Progress { file: None, done: 0, total: total.get() });
        let mut remote = Vec::new();
        for file in files {
            let file = self.listing.file(&self.http, file, &idle)?;
            if has_length(&snapshot.join(&file.name), file.size) {
                continue;
            }
            needed::check_size(&self.listing, &file.name, file.size)?;
            total.set(total.get() + file.size);
            remote.push(file);
        }
        for file in &remote {
            let told = |here: u64| {
                let done = done.get() + here;
                (self.follow)(Progress { file: Some(&file.name), done, total: total.get() })
            };
            let bytes = self.one(file, &told)?;
            done.set(done.get() + file.size);
            self.files += usize::from(bytes > 0);
            self.bytes += bytes;
        }
        Ok(())
    }

    /// Brings one file into the cache, unless somebody else does so meanwhile.
    fn one(&self, file: &RemoteFile, told: &dyn Fn(u64) -> bool) -> Result<u64, HubError> {
        let Self { http, listing, repository, .. } = self;
        let lock = repository.lock(&file.hash, &|| told(0))?;
        let place = (listing.commit.as_str(), file.name.as_str());
        let blob = repository.blob(&file.hash);
        // Content is named by its hash and moved there whole: one of this length is it.
        if has_length(&blob, file.size) {
            repository.link(place, &file.hash, false)?;
            return Ok(0);
        }
        if has_length(&repository.snapshot(place.0).join(place.1), file.size) {
            return Ok(0);
        }
        let part = repository.incomplete(&file.hash, &lock);
        let bytes = Transfer { http, listing, file, told }.complete(&part)?;
        fs::rename(&part, &blob).map_err(HubError::disk("move the content to", &blob))?;
        repository.link(place, &file.hash, true)?;
        Ok(bytes)
    }
}

/// Whether a file is there with so many bytes.
fn has_length(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() == size)
}
