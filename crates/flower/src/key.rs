//! A node's key: who it is to a SuperLink.
//!
//! Every call of a node carries its public key and a signature over the time. ECDSA on P-256 with SHA-256,
//! because the SuperLink verifies with SHA-256 on any curve and this is the pair that is made for it. Nodes
//! of others may have keys on P-384, which is what Flower's own documents make, or P-521.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use crate::error::FlowerError;
use crate::openssh::{Curve, P256, pem};

/// A key on P-256.
pub struct NodeKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl NodeKey {
    /// A new key, as PKCS#8 in PEM.
    pub fn generate() -> Result<String, FlowerError> {
        let wrong =
            |_| FlowerError::file("a new key", "the operating system returned no random bytes");
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        Ok(pem("PRIVATE KEY", document.map_err(wrong)?.as_ref()))
    }

    /// The key in a file: PKCS#8 in PEM.
    pub fn open(file: &Path) -> Result<Self, FlowerError> {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
        text.and_then(|text| Self::read(&text))
            .map_err(|reason| FlowerError::file(file.display(), reason))
    }

    /// The key in a text.
    pub fn read(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected an ECDSA key on P-256: `fedra flower key FILE` makes one";
        let random = SystemRandom::new();
        if text.contains("BEGIN OPENSSH PRIVATE KEY") {
            return Err("found a key in OpenSSH's own form, expected PKCS#8: `ssh-keygen -p -m PKCS8 -f FILE` \
                        rewrites it"
                .to_owned());
        }
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|error| format!("found no private key ({error}), {EXPECTED}"))?;
        let PrivateKeyDer::Pkcs8(key) = key else {
            return Err(format!("found a key that is not PKCS#8, {EXPECTED}"));
        };
        let pair = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_ASN1_SIGNING,
            key.secret_pkcs8_der(),
            &random,
        );
        let pair =
            pair.map_err(|error| format!("found another kind of key ({error}), {EXPECTED}"))?;
        Ok(Self { pair, random })
    }

    /// The public key in PEM, as a SuperLink names the node.
    pub fn public_pem(&self) -> String {
        P256.public_pem(self.pair.public_key().as_ref())
    }

    /// The public key as OpenSSH writes it, which is what an operator registers.
    pub fn public_ssh(&self, comment: &str) -> String {
        let (Curve { kind, name, .. }, mut blob) = (P256, Vec::new());
        for part in [kind.as_bytes(), name.as_bytes(), self.pair.public_key().as_ref()] {
            blob.extend_from_slice(&(part.len() as u32).to_be_bytes());
            blob.extend_from_slice(part);
        }
        format!("{kind} {} {comment}\n", STANDARD.encode(blob))
    }

    /// A signature in DER.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, FlowerError> {
        let signed = self.pair.sign(&self.random, message);
        let wrong = |_| {
            FlowerError::file("the node's key", "the operating system returned no random bytes")
        };
        Ok(signed.map_err(wrong)?.as_ref().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

    #[test]
    fn a_key_comes_back_from_its_text_and_signs() {
        let text = NodeKey::generate().unwrap();
        let (key, again) = (NodeKey::read(&text).unwrap(), NodeKey::read(&text).unwrap());
        assert_eq!(key.public_pem(), again.public_pem());
        assert!(key.public_pem().starts_with("-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0C"));
        assert!(
            key.public_ssh("north")
                .starts_with("ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTY")
        );
        let signature = key.sign(b"now").unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, again.pair.public_key());
        public.verify(b"now", &signature).unwrap();
        assert!(public.verify(b"then", &signature).is_err());
    }

    #[test]
    fn a_key_of_another_kind_is_refused_with_what_to_do() {
        let told = |text: &str| NodeKey::read(text).err().unwrap();
        assert!(told("").contains("expected an ECDSA key on P-256"));
        assert!(
            told("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
                .contains("P-256")
        );
        let own = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
        assert!(told(own).contains("ssh-keygen -p -m PKCS8"));
    }
}
