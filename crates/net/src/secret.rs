//! Secrets from the system's own generator, and files that keep them.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use fedra_engine::durable::Replacing;
use fedra_plan::Digest;
use fedra_seed::SecretKey;

/// A secret number: sixty-four bits of the generator that also makes keys.
pub fn secret_number() -> io::Result<u64> {
    random().map(u64::from_le_bytes)
}

/// A key that nobody else has.
pub fn secret_key() -> io::Result<SecretKey> {
    random().map(SecretKey::new)
}

/// The key in a file that only its owner may read, drawn and written where there is none.
pub fn kept_key(file: &Path) -> io::Result<SecretKey> {
    kept_bytes(file).map(SecretKey::new)
}

/// The same as bytes.
pub(crate) fn kept_bytes(file: &Path) -> io::Result<[u8; 32]> {
    let text = kept_secret(file, || Ok(format!("{}\n", Digest::from_bytes(random()?))))?;
    let wrong = |_| io::Error::other("expected one line of 64 hexadecimal digits");
    let digits = text.trim().parse::<Digest>().map_err(wrong)?;
    Ok(*digits.as_bytes())
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let (provider, mut bytes) = (rustls::crypto::ring::default_provider(), [0; N]);
    let filled = provider.secure_random.fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the operating system returned no random bytes"))?;
    Ok(bytes)
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
    let mut kept = Replacing::begin_private(file)?;
    kept.write_all(text.as_bytes())?;
    kept.finish()?;
    Ok(text)
}
