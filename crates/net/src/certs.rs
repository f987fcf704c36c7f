//! Certificates: a CA of the parties' own, and what it signs for a server and for clients.
//!
//! A client's name may have any letters, so it is written as a URI (`urn:fedra:client:` and the name,
//! percent-encoded) beside the DNS name that it is where it can be one. A server's certificate cannot
//! be used by a client and a client's cannot be used by a server, whatever names are in them.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use percent_encoding::{
    AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode,
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

use crate::error::NetError;

/// What a client's name begins with in a certificate.
const CLIENT: &str = "urn:fedra:client:";

/// Clocks of two machines differ.
const SKEW: Duration = Duration::from_hours(1);

/// A CA that can sign.
pub struct Authority {
    key: KeyPair,
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The certificate.
    pub certificate: String,
    /// The key: whoever has it is the party.
    pub key: String,
}

/// For how long a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days(pub u32);

impl Authority {
    /// A new one.
    pub fn generate() -> Result<Self, NetError> {
        Ok(Self { key: KeyPair::generate().map_err(failed)? })
    }

    /// The one with this key.
    pub fn from_key(pem: &str) -> Result<Self, NetError> {
        Ok(Self { key: KeyPair::from_pem(pem).map_err(failed)? })
    }

    /// Its own certificate and key.
    pub fn signed(&self, days: Days) -> Result<Signed, NetError> {
        let params = valid(self.params(), days)?;
        let certificate = params.self_signed(&self.key).map_err(failed)?;
        Ok(Signed { certificate: certificate.pem(), key: self.key.serialize_pem() })
    }

    /// A certificate for a server that is reached under these names or addresses.
    pub fn server(&self, hosts: &[String], days: Days) -> Result<Signed, NetError> {
        let names = hosts.iter().map(|host| match host.parse::<IpAddr>() {
            Ok(address) => Ok(SanType::IpAddress(address)),
            Err(_) => Ok(SanType::DnsName(host.as_str().try_into().map_err(failed)?)),
        });
        let names = names.collect::<Result<_, NetError>>()?;
        let common = hosts.first().map_or("server", String::as_str);
        self.sign(common, names, (ExtendedKeyUsagePurpose::ServerAuth, days))
    }

    /// A certificate for the client of this name.
    pub fn client(&self, name: &str, days: Days) -> Result<Signed, NetError> {
        let uri = format!("{CLIENT}{}", encoded(name));
        let names = vec![SanType::URI(uri.as_str().try_into().map_err(failed)?)];
        self.sign(name, names, (ExtendedKeyUsagePurpose::ClientAuth, days))
    }

    fn sign(
        &self,
        common: &str,
        names: Vec<SanType>,
        (usage, days): (ExtendedKeyUsagePurpose, Days),
    ) -> Result<Signed, NetError> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = valid(CertificateParams::default(), days)?;
        params.distinguished_name.push(DnType::CommonName, common);
        params.subject_alt_names = names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let issuer = Issuer::new(self.params(), &self.key);
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        Ok(Signed { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// What it says of itself follows from its key, so that the key is all it needs to go on signing.
    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::default();
        let id = params.key_identifier(&self.key);
        let short = id.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        params.distinguished_name.push(DnType::CommonName, format!("fedra CA {short:08x}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    /// Whether a certificate in PEM is that of this CA's key.
    pub fn is_of(&self, certificate: &str) -> bool {
        use rustls::pki_types::pem::PemObject;
        let Ok(der) = CertificateDer::from_pem_slice(certificate.as_bytes()) else { return false };
        let key = self.key.subject_public_key_info();
        der.windows(key.len()).any(|part| part == key)
    }
}

/// The clients that a certificate is for: by its URIs, or as DNS names where another CA made it.
pub(crate) fn client_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Vec::new() };
    let uris = certificate.valid_uri_names().filter_map(|uri| decoded(uri.strip_prefix(CLIENT)?));
    let hosts = certificate.valid_dns_names().map(str::to_owned);
    uris.chain(hosts).collect()
}

fn valid(mut params: CertificateParams, Days(days): Days) -> Result<CertificateParams, NetError> {
    let now = SystemTime::now();
    let end = now.checked_add(Duration::from_secs(u64::from(days) * 24 * 3600));
    // A hundred years: what lies behind them cannot be written in a certificate of today.
    let end = end.filter(|_| days <= 36_525).ok_or_else(|| NetError::Certificate {
        file: "--days".to_owned(),
        reason: format!("found {days}, expected at most 36525"),
    })?;
    params.not_before = (now - SKEW).into();
    params.not_after = end.into();
    Ok(params)
}

/// Refuses what is neither an address nor a name under which a server can be reached.
pub fn check_host(host: &str) -> Result<(), NetError> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    if ServerName::try_from(name).is_ok() {
        return Ok(());
    }
    let reason = format!("found {host:?}, expected a host name or an IP address");
    Err(NetError::Certificate { file: "--server".to_owned(), reason })
}

/// Refuses what nobody can be called.
pub fn check_client(name: &str) -> Result<(), NetError> {
    if !name.trim().is_empty() {
        return Ok(());
    }
    let reason = format!("found {name:?}, expected the name of a client");
    Err(NetError::Certificate { file: "--client".to_owned(), reason })
}

/// A client's name as that of a file.
pub fn file_name(name: &str) -> String {
    // A name of dots would lead elsewhere.
    let dots = name.bytes().take_while(|byte| *byte == b'.').count();
    format!("{}{}", "%2E".repeat(dots), encoded(&name[dots..]))
}

/// Letters, digits and `-._~` stay; every other byte becomes `%` and two digits.
fn encoded(name: &str) -> PercentEncode<'_> {
    const ODD: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(name, &ODD)
}

/// `None` where a `%` is without its two digits, or the bytes are no text.
fn decoded(text: &str) -> Option<String> {
    let name = percent_decode_str(text).decode_utf8().ok()?;
    let is_whole = text.len() == name.len() + 2 * text.matches('%').count();
    is_whole.then(|| name.into_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` takes it")]
fn failed(error: rcgen::Error) -> NetError {
    NetError::Certificate { file: "making a certificate".to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn a_client_is_found_in_its_certificate_whatever_its_letters() {
        let authority = Authority::generate().unwrap();
        for name in ["hospital-3", "St. Mary's, Ward 4", "Kraków/ICU", "50%"] {
            let signed = authority.client(name, Days(1)).unwrap();
            let der = CertificateDer::from_pem_slice(signed.certificate.as_bytes()).unwrap();
            assert_eq!(client_names(&der), [name]);
        }
        let server = authority.server(&["localhost".to_owned()], Days(1)).unwrap();
        assert!(server.key.contains("PRIVATE KEY"));
        assert_eq!(file_name("../Ward 4"), "%2E%2E%2FWard%204");
        assert_eq!(decoded("%4"), None);
        assert_eq!(decoded("%zz"), None);
    }

    #[test]
    fn names_that_nobody_can_be_reached_under_are_refused() {
        for host in ["server.example", "203.0.113.7", "::1", "localhost", "*.example.org"] {
            check_host(host).unwrap();
        }
        for host in ["", "bad host", "http://server", "a:7400"] {
            let told = check_host(host).unwrap_err().to_string();
            assert!(told.contains("expected a host name or an IP address"), "{told}");
        }
        check_client("Ward 4").unwrap();
        assert!(check_client(" ").is_err());
    }

    #[test]
    fn a_ca_goes_on_from_its_key_and_knows_its_certificate() {
        let authority = Authority::generate().unwrap();
        let own = authority.signed(Days(10)).unwrap();
        let again = Authority::from_key(&own.key).unwrap();
        assert!(again.is_of(&own.certificate));
        assert!(!Authority::generate().unwrap().is_of(&own.certificate));
        assert!(authority.signed(Days(u32::MAX)).is_err());
    }
}
