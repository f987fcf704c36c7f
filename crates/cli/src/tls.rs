//! The flags with which a party shows who it is, and when it may go without them.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use fedra_net::{Identity, ServerSecurity};

/// Certificates, or the express wish to have none.
#[derive(Args, Clone, Debug)]
pub struct Tls {
    /// This party's certificate, in PEM
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The key to it
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// The certificate of the CA that signed the other side's
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Speak in the clear, on any address: everybody on the way can read and change everything
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key", "tls_ca"])]
    insecure: bool,
}

impl Tls {
    /// How to speak at an address; `flag` is where the address was given.
    pub fn security(&self, flag: &str, address: &str) -> Result<ServerSecurity> {
        let missing = [
            ("--tls-cert", &self.tls_cert),
            ("--tls-key", &self.tls_key),
            ("--tls-ca", &self.tls_ca),
        ];
        let missing: Vec<&str> =
            missing.iter().filter(|(_, file)| file.is_none()).map(|(flag, _)| *flag).collect();
        match (&self.tls_cert, &self.tls_key, &self.tls_ca) {
            (Some(certificate), Some(key), Some(ca)) => Ok(ServerSecurity::Tls(Identity {
                certificate: certificate.clone(),
                key: key.clone(),
                ca: ca.clone(),
            })),
            (None, None, None) if self.insecure || fedra_net::is_loopback(address) => {
                Ok(ServerSecurity::Plain)
            }
            (None, None, None) => bail!(
                "{flag}: found {address} without certificates, expected --tls-cert, --tls-key and \
                 --tls-ca on an address that is not of this machine alone\n\
                 hint: `fedra certs` makes them; --insecure goes without, for all to read"
            ),
            (_, _, _) => bail!("found no {}, expected all three files", missing.join(" and no ")),
        }
    }
}
