//! Secrets from the system's own generator, and files that keep them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use fedra_client::DataSecret;
use fedra_plan::Digest;
use fedra_seed::SecretKey;

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

/// A key that nobody else has.
pub fn secret_key() -> io::Result<SecretKey> {
    data_secret().map(SecretKey::new)
}

/// The key in a file that only its owner may read, drawn and written where there is none.
pub fn kept_key(file: &Path) -> io::Result<SecretKey> {
    let text = kept_secret(file, || Ok(format!("{}\n", Digest::from_bytes(data_secret()?))))?;
    let wrong = || io::Error::other("expected one line of 64 hexadecimal digits");
    let text = text.trim();
    let mut bytes = DataSecret::default();
    if text.len() != 2 * bytes.len() || !text.is_ascii() {
        return Err(wrong());
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        let two = &text[2 * place..2 * place + 2];
        *byte = u8::from_str_radix(two, 16).map_err(|_| wrong())?;
    }
    Ok(SecretKey::new(bytes))
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
