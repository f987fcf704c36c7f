//! The flags with which a party shows who it is, and when it may go without them.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use fedra_net::{Identity, ServerSecurity};

/// Certificates, or the express wish to have none.
#[derive(Args, Clone, Debug)]
pub struct Tls {
    /// Certificate of this machine, in PEM
    #[arg(long = "tls-cert", value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// The key of the certificate
    #[arg(long = "tls-key", value_name = "FILE")]
    key: Option<PathBuf>,
    /// The certificate of the CA that signed the other side's
    #[arg(long = "tls-ca", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Use no TLS on any address: anyone on the network can read and change everything
    #[arg(long, conflicts_with_all = ["certificate", "key", "ca"])]
    pub insecure: bool,
}

impl Tls {
    /// The flags that name files, and whether they are given.
    fn files(&self) -> [(&'static str, bool); 3] {
        [
            ("--tls-cert", self.certificate.is_some()),
            ("--tls-key", self.key.is_some()),
            ("--tls-ca", self.ca.is_some()),
        ]
    }

    /// Refuses flags where nobody is spoken to.
    pub fn refuse_without(&self, flag: &str) -> Result<()> {
        let given = self.files().into_iter().chain([("--insecure", self.insecure)]);
        if let Some((found, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
            bail!("{found} applies only with {flag}");
        }
        Ok(())
    }

    /// Refuses certificates where another network has its own.
    pub fn refuse_certificates(&self, flag: &str) -> Result<()> {
        if let Some((found, _)) = self.files().into_iter().find(|(_, is_given)| *is_given) {
            bail!(
                "{found} cannot be combined with {flag}, which takes --ca and, for a node, --key"
            );
        }
        Ok(())
    }

    /// How to speak at an address; `flag` is where the address was given.
    pub fn security(&self, flag: &str, address: &str) -> Result<ServerSecurity> {
        let missing = self.files().into_iter().filter(|(_, is_given)| !is_given);
        let missing: Vec<&str> = missing.map(|(flag, _)| flag).collect();
        match (&self.certificate, &self.key, &self.ca) {
            (Some(certificate), Some(key), Some(ca)) => Ok(ServerSecurity::Tls(Identity {
                certificate: certificate.clone(),
                key: key.clone(),
                ca: ca.clone(),
            })),
            (None, None, None) if self.insecure || fedra_net::is_loopback(address) => {
                Ok(ServerSecurity::Plain)
            }
            (None, None, None) => bail!(
                "{flag}: {address} is not a loopback address and needs --tls-cert, --tls-key and --tls-ca\n\
                 hint: `fedra certs` makes them; --insecure disables TLS, and anyone on the network can read and \
                 change everything"
            ),
            (_, _, _) => bail!("missing: {}; TLS needs all three files", missing.join(" and ")),
        }
    }
}
