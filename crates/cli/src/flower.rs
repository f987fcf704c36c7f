//! `fedra flower`: what a SuperLink's operator and a site need once; and the flags with which a party
//! says that it meets the others at a SuperLink.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use fedra_flower::{Endpoint, NodeKey, write_app};

use crate::tls::Tls;
use crate::{console, files};

const EXAMPLES: &str = "\
Examples:
  fedra flower app federation          then `flwr run federation LINK` starts a run
  fedra flower key north.key           north.key stays at the client, north.key.pub is registered
  flwr supernode register north.key.pub LINK

LINK is a SuperLink in Flower's own configuration. docs/deploy.md describes a whole deployment.";

/// The commands.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Flower {
    /// Write the small app with which `flwr run` starts a run that `fedra serve --superlink` coordinates
    App {
        /// The folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Make the key of a node, and the public key that an operator registers
    Key {
        /// The file; the public key goes to FILE.pub
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

impl Flower {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        match self {
            Self::App { folder } => {
                write_app(&folder)?;
                console::say(format_args!("wrote {}", folder.display()));
                let shown = folder.display();
                console::say(format_args!("hint: `flwr run {shown} LINK` starts a run at LINK"));
                Ok(())
            }
            Self::Key { file } => {
                if file.exists() {
                    bail!("{} exists already, and keys are not overwritten", file.display());
                }
                if let Some(folder) = file.parent() {
                    files::make_folder(folder)?;
                }
                let draw = || NodeKey::generate().map_err(std::io::Error::other);
                let text = fedra_net::kept_secret(&file, draw)
                    .with_context(|| format!("cannot write {}", file.display()))?;
                let key = NodeKey::read(&text).map_err(anyhow::Error::msg)?;
                let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let mut public = file.clone().into_os_string();
                public.push(".pub");
                let public = PathBuf::from(public);
                files::write(&public, key.public_ssh(&name))?;
                console::say(format_args!("wrote {} and {}", file.display(), public.display()));
                Ok(())
            }
        }
    }
}

/// Where the others are met.
#[derive(Args, Clone, Debug)]
pub struct AtSuperLink {
    /// Connect through this Flower SuperLink (1.40 to 1.42), as in `https://link.example:8000`
    #[arg(long, value_name = "URL")]
    superlink: Option<String>,
    /// Certificate of the CA that signed the SuperLink's
    #[arg(long = "ca", value_name = "FILE", requires = "superlink")]
    superlink_ca: Option<PathBuf>,
}

impl AtSuperLink {
    /// The SuperLink, if there is one. Without it none of these flags means anything.
    pub fn endpoint(&self, tls: &Tls, flags: &[(bool, &str)]) -> Result<Option<Endpoint>> {
        let Some(url) = &self.superlink else {
            let ca = (self.superlink_ca.is_some(), "--ca");
            if let Some((_, flag)) = flags.iter().chain([&ca]).find(|(is_given, _)| *is_given) {
                bail!("{flag} applies only with --superlink");
            }
            return Ok(None);
        };
        tls.refuse_certificates("--superlink")?;
        let endpoint = Endpoint::new(url, self.superlink_ca.as_deref())?;
        let address = &endpoint.authority;
        if !endpoint.is_encrypted() && !tls.insecure && !fedra_net::is_loopback(address) {
            bail!(
                "--superlink: found {url}, expected https:// and --ca for an address other than loopback\nhint: \
                 --insecure disables TLS, and anyone on the network can read and change everything"
            );
        }
        Ok(Some(endpoint))
    }
}
