//! Public keys as OpenSSH writes them, on the curves that a SuperLink knows, and as PEM.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A curve of NIST's, on which a node's key may be.
pub(crate) struct Curve {
    /// What OpenSSH calls keys on it.
    pub(crate) kind: &'static str,
    /// What OpenSSH calls the curve.
    pub(crate) name: &'static str,
    /// What comes before a point in a public key's DER.
    before: &'static [u8],
    /// Bytes of a point.
    point: usize,
}

pub(crate) const P256: Curve = Curve {
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
    pub(crate) fn public_pem(&self, point: &[u8]) -> String {
        pem("PUBLIC KEY", &[self.before, point].concat())
    }
}

/// A public key in PEM, from the line in which OpenSSH writes it.
pub(crate) fn public_pem(line: &str) -> Result<String, String> {
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

/// A field of OpenSSH: its length in four bytes, then itself.
fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

/// Bytes between the lines of PEM.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut lines = format!("-----BEGIN {label}-----\n");
    for at in (0..text.len()).step_by(64) {
        lines += &text[at..text.len().min(at + 64)];
        lines.push('\n');
    }
    lines + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
