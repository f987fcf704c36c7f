//! Secrets from the system's own generator, and files that keep them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use fedra_client::DataSecret;

/// A secret number: sixty-four bits of the generator that also makes keys.
pub fn secret_number() -> io::Result<u64> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// What a site's digests are mixed with.
pub(crate) fn data_secret() -> io::Result<DataSecret> {
    let mut secret = [0; 32];
    fill(&mut secret)?;
    Ok(secret)
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let provider = rustls::crypto::ring::default_provider();
    let filled = provider.secure_random.fill(bytes);
    filled.map_err(|_| io::Error::other("the system gave no random bytes"))
}

/// The text of a file that only its owner may read; where there is none it is drawn and written, whole
/// or not at all.
pub fn kept_secret(file: &Path, draw: impl FnOnce() -> io::Result<String>) -> io::Result<String> {
    match fs::read_to_string(file) {
        Ok(text) => return Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let text = draw()?;
    // Written beside its place: what is cut short is no secret, and is written anew.
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = file.with_file_name(format!("{name}.part"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut part = options.open(&unfinished)?;
    part.write_all(text.as_bytes())?;
    part.sync_all()?;
    fs::rename(&unfinished, file)?;
    Ok(text)
}
