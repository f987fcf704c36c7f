//! A node's key: who it is to a SuperLink.
//!
//! Every call of a node carries its public key and a signature over the time. ECDSA on P-256 with SHA-256,
//! because the SuperLink verifies with SHA-256 on any curve and this is the pair that is made for it. Nodes
//! of others may have keys on P-384, which is what Flower's own documents make, or P-521.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use crate::error::FlowerError;

/// A curve of NIST's, on which a node's key may be.
struct Curve {
    /// What OpenSSH calls keys on it.
    kind: &'static str,
    /// What OpenSSH calls the curve.
    name: &'static str,
    /// What comes before a point in a public key's DER.
    before: &'static [u8],
    /// Bytes of a point.
    point: usize,
}

const P256: Curve = Curve {
    kind: "ecdsa-sha2-nistp256",
    name: "nistp256",
    before: &[
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
        0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ],
    point: 65,
};
const P384: Curve = Curve {
    kind: "ecdsa-sha2-nistp384",
    name: "nistp384",
    before: &[
        0x30, 0x76, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05,
        0x2b, 0x81, 0x04, 0x00, 0x22, 0x03, 0x62, 0x00,
    ],
    point: 97,
};
const P521: Curve = Curve {
    kind: "ecdsa-sha2-nistp521",
    name: "nistp521",
    before: &[
        0x30, 0x81, 0x9b, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06,
        0x05, 0x2b, 0x81, 0x04, 0x00, 0x23, 0x03, 0x81, 0x86, 0x00,
    ],
    point: 133,
};

impl Curve {
    /// A public key in PEM, as a SuperLink names its node.
    fn public_pem(&self, point: &[u8]) -> String {
        pem("PUBLIC KEY", &[self.before, point].concat())
    }
}

/// A key on P-256.
pub struct NodeKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("NodeKey").finish_non_exhaustive()
    }
}

impl NodeKey {
    /// A new key, as PKCS#8 in PEM.
    pub fn generate() -> Result<String, FlowerError> {
        let wrong = |_| unusable("a new key", &"the system gave no random bytes");
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        Ok(pem("PRIVATE KEY", document.map_err(wrong)?.as_ref()))
    }

    /// The key in a file: PKCS#8 in PEM, or OpenSSH's own form without a passphrase.
    pub fn open(file: &Path) -> Result<Self, FlowerError> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| unusable(&name, &error))?;
        Self::read(&text).map_err(|reason| unusable(&name, &reason))
    }

    /// The key in a text.
    pub fn read(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected an ECDSA key on P-256: `fedra flower key FILE` makes one";
        let random = SystemRandom::new();
        if text.contains("BEGIN OPENSSH PRIVATE KEY") {
            let (secret, point) = read_openssh(text)?;
            let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
            let pair =
                EcdsaKeyPair::from_private_key_and_public_key(algorithm, &secret, &point, &random);
            let pair = pair.map_err(|error| format!("found {error}, {EXPECTED}"))?;
            return Ok(Self { pair, random });
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
        let wrong = |_| unusable("the node's key", &"the system gave no random bytes");
        Ok(signed.map_err(wrong)?.as_ref().to_vec())
    }
}

/// The public keys of an experiment's clients: a node is who its key says.
#[derive(Clone, Debug, Default)]
pub struct NodeKeys {
    /// In PEM, as a SuperLink names nodes, with the clients that a key stands for.
    names: BTreeMap<String, Vec<String>>,
}

impl NodeKeys {
    /// The keys in a folder: `north.pub` or `north.key.pub` is that of the client `north`.
    pub fn open(folder: &Path) -> Result<Self, FlowerError> {
        let shown = folder.display().to_string();
        let entries = std::fs::read_dir(folder).map_err(|error| unusable(&shown, &error))?;
        let mut keys = Self::default();
        for entry in entries {
            let path = entry.map_err(|error| unusable(&shown, &error))?.path();
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(name) = file.strip_suffix(".pub") else { continue };
            let name = name.strip_suffix(".key").unwrap_or(name);
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(|error| unusable(&path.display().to_string(), &error))?;
            let key = public_pem(&text);
            let key = key.map_err(|reason| unusable(&path.display().to_string(), &reason))?;
            keys.names.entry(key).or_default().push(name.to_owned());
        }
        if keys.names.is_empty() {
            return Err(unusable(
                &shown,
                &"found no file that ends in .pub, expected one a client",
            ));
        }
        Ok(keys)
    }

    /// What a person may want to know of these keys, where the experiment has these clients.
    pub fn remarks(&self, clients: &[String]) -> Vec<String> {
        let mut remarks = Vec::new();
        let listed = |names: Vec<&String>| {
            let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
            names.join(", ")
        };
        let without: Vec<&String> = clients.iter().filter(|client| !self.has(client)).collect();
        if !without.is_empty() {
            let names = listed(without);
            remarks.push(format!("--node-keys has no key of {names}, who therefore cannot join"));
        }
        let of_nobody: Vec<&String> =
            self.names.values().flatten().filter(|name| !clients.contains(name)).collect();
        if !of_nobody.is_empty() {
            let names = listed(of_nobody);
            remarks.push(format!("--node-keys has keys of {names}, whom the experiment lacks"));
        }
        for names in self.names.values().filter(|names| names.len() > 1) {
            let names = listed(names.iter().collect());
            remarks
                .push(format!("--node-keys has one key for {names}: its node may be any of them"));
        }
        remarks
    }

    /// Whether a client has a key.
    pub(crate) fn has(&self, client: &str) -> bool {
        self.names.values().flatten().any(|name| name == client)
    }

    /// The clients that a node with this key may be.
    pub(crate) fn names(&self, public_key: &[u8]) -> Vec<String> {
        let key = std::str::from_utf8(public_key).ok();
        key.and_then(|key| self.names.get(key)).cloned().unwrap_or_default()
    }
}

/// A public key in PEM, from the line in which OpenSSH writes it.
fn public_pem(line: &str) -> Result<String, String> {
    const EXPECTED: &str = "expected a line that begins with ecdsa-sha2-nistp256, ecdsa-sha2-nistp384 or ecdsa-sha2-nistp521";
    let mut words = line.split_whitespace();
    let kind = words.next().unwrap_or_default();
    let curve = [P256, P384, P521].into_iter().find(|curve| curve.kind == kind);
    let Some(curve) = curve else {
        let found: String = kind.chars().take(40).collect();
        return Err(format!("found {found:?}, {EXPECTED}"));
    };
    let read = |text: &str| {
        let blob = STANDARD.decode(text).ok()?;
        let (kind, rest) = field(&blob)?;
        let (name, rest) = field(rest)?;
        let (point, _) = field(rest)?;
        let is_of_curve = kind == curve.kind.as_bytes() && name == curve.name.as_bytes();
        (is_of_curve && point.len() == curve.point).then(|| curve.public_pem(point))
    };
    words.next().and_then(read).ok_or_else(|| format!("found a broken key of kind {kind}"))
}

fn unusable(file: &str, reason: &dyn std::fmt::Display) -> FlowerError {
    FlowerError::File { file: file.to_owned(), reason: reason.to_string() }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut lines = format!("-----BEGIN {label}-----\n");
    for at in (0..text.len()).step_by(64) {
        lines += &text[at..text.len().min(at + 64)];
        lines.push('\n');
    }
    lines + &format!("-----END {label}-----\n")
}

/// The secret and the point in a private key of OpenSSH.
fn read_openssh(text: &str) -> Result<([u8; 32], Vec<u8>), String> {
    const WRONG: &str = "found a broken OpenSSH key";
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("-----"));
    let bytes = STANDARD.decode(lines.collect::<String>()).map_err(|_| WRONG.to_owned())?;
    let rest = bytes.strip_prefix(b"openssh-key-v1\0").ok_or(WRONG)?;
    let (cipher, rest) = field(rest).ok_or(WRONG)?;
    if cipher != b"none" {
        return Err("found a key with a passphrase, expected one without: a node starts by itself"
            .to_owned());
    }
    let (_kdf, rest) = field(rest).ok_or(WRONG)?;
    let (_options, rest) = field(rest).ok_or(WRONG)?;
    let rest = rest.strip_prefix(&[0, 0, 0, 1]).ok_or(WRONG)?;
    let (_public, rest) = field(rest).ok_or(WRONG)?;
    let (private, _) = field(rest).ok_or(WRONG)?;
    let (kind, rest) = field(private.get(8..).ok_or(WRONG)?).ok_or(WRONG)?;
    if kind != P256.kind.as_bytes() {
        let (kind, expected) = (String::from_utf8_lossy(kind), P256.kind);
        return Err(format!(
            "found a key of kind {kind}, expected {expected}: `fedra flower key FILE` makes one"
        ));
    }
    let (_curve, rest) = field(rest).ok_or(WRONG)?;
    let (point, rest) = field(rest).ok_or(WRONG)?;
    let (number, _) = field(rest).ok_or(WRONG)?;
    let number = number.strip_prefix(&[0]).unwrap_or(number);
    let mut secret = [0; 32];
    let at = secret.len().checked_sub(number.len()).ok_or(WRONG)?;
    secret[at..].copy_from_slice(number);
    Ok((secret, point.to_vec()))
}

/// A field of OpenSSH: its length in four bytes, then itself.
fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
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
    fn a_node_is_who_its_key_says() {
        let folder = tempfile::tempdir().unwrap();
        let key = |name: &str| {
            let key = NodeKey::read(&NodeKey::generate().unwrap()).unwrap();
            std::fs::write(folder.path().join(name), key.public_ssh("a comment")).unwrap();
            key.public_pem()
        };
        assert!(NodeKeys::open(folder.path()).is_err());
        let (north, west) = (key("north.key.pub"), key("west.pub"));
        std::fs::write(folder.path().join("north.key"), "not read").unwrap();
        let keys = NodeKeys::open(folder.path()).unwrap();
        assert_eq!(keys.names(north.as_bytes()), ["north"]);
        assert_eq!(keys.names(west.as_bytes()), ["west"]);
        assert_eq!(keys.names(b"another"), Vec::<String>::new());
        let clients =
            |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(keys.remarks(&clients(&["north", "west"])), Vec::<String>::new());
        assert_eq!(
            keys.remarks(&clients(&["north", "south"])),
            [
                "--node-keys has no key of south, who therefore cannot join",
                "--node-keys has keys of west, whom the experiment lacks"
            ]
        );
        std::fs::copy(folder.path().join("west.pub"), folder.path().join("south.pub")).unwrap();
        let both = NodeKeys::open(folder.path()).unwrap();
        let told = both.remarks(&clients(&["north", "south", "west"]));
        assert!(told.len() == 1 && told[0].contains("has one key for "), "{told:?}");
        std::fs::remove_file(folder.path().join("south.pub")).unwrap();
        std::fs::write(folder.path().join("bad.pub"), "ssh-ed25519 AAAA x").unwrap();
        let told = NodeKeys::open(folder.path()).unwrap_err().to_string();
        assert!(told.contains("bad.pub: found \"ssh-ed25519\", expected a line that"), "{told}");
    }

    /// The public halves of keys that `ssh-keygen -t ecdsa` made, and what OpenSSL makes of them.
    #[test]
    fn keys_of_others_may_be_on_any_curve() {
        let keys = [
            (
                "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBG+c06xn14qb\
                 g7E7db9IrmGnsOPEB4VD3P51fH6cUqxbX2RQxiw7fCRXU6oOmDzKPKqEZEHnbT9DgNMTcpCh8eKOdu7Ltb+l\
                 tnZsj5IG5X+TDellcg8VeXRyPc+hPwDVEQ==",
                "-----BEGIN PUBLIC KEY-----\nMHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEb5zTrGfXipuDsTt1v0iuYaew\
                 48QHhUPc\n/nV8fpxSrFtfZFDGLDt8JFdTqg6YPMo8qoRkQedtP0OA0xNykKHx4o527su1v6W2\ndmyPkgbl\
                 f5MN6WVyDxV5dHI9z6E/ANUR\n-----END PUBLIC KEY-----\n",
            ),
            (
                "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBAF79qXzAIA1\
                 KgmXA2F87DMZLXqsJzF7v4RuFxrVb+sbE4Jvh721miDy00ZWuZXRvuD+0CUE/+AJS9pEsUFmXsh9XgG3yQUA\
                 YC6c+SxoRIYdZFVR+DHjQTxXbcEUD6Hp5WP8IxkDsBB7YaAbFbgw8zynd2pjJYWWCZn6lr2DO10Q66BgIg==",
                "-----BEGIN PUBLIC KEY-----\nMIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQBe/al8wCANSoJlwNhfOwz\
                 GS16rCcx\ne7+Ebhca1W/rGxOCb4e9tZog8tNGVrmV0b7g/tAlBP/gCUvaRLFBZl7IfV4Bt8kF\nAGAunPks\
                 aESGHWRVUfgx40E8V23BFA+h6eVj/CMZA7AQe2GgGxW4MPM8p3dqYyWF\nlgmZ+pa9gztdEOugYCI=\n----\
                 -END PUBLIC KEY-----\n",
            ),
        ];
        for (line, pem) in keys {
            assert_eq!(public_pem(line).unwrap(), pem);
            let (kind, rest) = line.split_once(' ').unwrap();
            let cut = format!("{kind} {}", &rest[..rest.len() - 8]);
            assert_eq!(public_pem(&cut).unwrap_err(), format!("found a broken key of kind {kind}"));
            let other = keys.iter().find(|(other, _)| !other.starts_with(kind)).unwrap().0;
            let mixed = format!("{kind} {}", other.split_once(' ').unwrap().1);
            assert!(public_pem(&mixed).is_err());
        }
    }

    #[test]
    fn a_key_of_another_kind_is_refused_with_what_to_do() {
        let told = |text: &str| NodeKey::read(text).unwrap_err();
        assert!(told("").contains("expected an ECDSA key on P-256"));
        assert!(
            told("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
                .contains("P-256")
        );
        let ssh = |body: &[u8]| {
            let text = STANDARD.encode(body);
            format!(
                "-----BEGIN OPENSSH PRIVATE KEY-----\n{text}\n-----END OPENSSH PRIVATE KEY-----\n"
            )
        };
        assert_eq!(told(&ssh(b"x")), "found a broken OpenSSH key");
        let locked = b"openssh-key-v1\0\0\0\0\x0aaes256-ctr".to_vec();
        assert!(told(&ssh(&locked)).contains("passphrase"));
        let giant = b"openssh-key-v1\0\xff\xff\xff\xffnone".to_vec();
        assert_eq!(told(&ssh(&giant)), "found a broken OpenSSH key");
    }
}
