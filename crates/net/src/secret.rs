//! Numbers that nobody can guess, from the system's own generator.

use std::io;

/// A secret number: sixty-four bits of the generator that also makes keys.
pub fn secret_number() -> io::Result<u64> {
    let provider = rustls::crypto::ring::default_provider();
    let mut bytes = [0; 8];
    provider
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system gave no random bytes"))?;
    Ok(u64::from_le_bytes(bytes))
}
