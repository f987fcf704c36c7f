//! `fedra certs`: a CA for one federation, and what it signs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra_net::certs::{Authority, Days, Signed, check_client, check_host, file_name};

use crate::flags::whole;
use crate::{console, files};

const EXAMPLES: &str = "\
Examples:
  fedra certs certs --server server.example 203.0.113.7 --client north --client south
  fedra certs certs --client west                    one more client, with the existing CA

Keep ca.key secret: anyone who has it can make certificates for any client. A client gets only
ca.pem and its own two files.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Certs {
    /// Folder for the certificates
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Names and addresses under which clients reach the server
    #[arg(long, value_name = "HOST", num_args = 1..)]
    server: Vec<String>,
    /// A client of the experiment; may be given several times
    #[arg(long, value_name = "NAME", num_args = 1..)]
    client: Vec<String>,
    /// Days for which they are valid
    #[arg(long, value_name = "DAYS", default_value_t = 365,
          value_parser = whole::<u32>(1, Some(36_525)))]
    days: u32,
}

impl Certs {
    /// Makes them.
    pub fn run(self) -> Result<()> {
        if self.server.is_empty() && self.client.is_empty() {
            bail!("give --server HOST or --client NAME: there is nothing to certify");
        }
        self.server.iter().try_for_each(|host| check_host(host))?;
        self.client.iter().try_for_each(|name| check_client(name))?;
        let clients = self.folder.join("clients");
        let client_file = |name: &str| clients.join(file_name(name));
        let mut wanted: Vec<PathBuf> = self.client.iter().map(|name| client_file(name)).collect();
        if !self.server.is_empty() {
            wanted.push(self.folder.join("server"));
        }
        for place in &wanted {
            refuse_existing(place)?;
        }
        let days = Days(self.days);
        let authority = self.authority(days)?;
        if !self.server.is_empty() {
            write(&self.folder.join("server"), &authority.server(&self.server, days)?)?;
        }
        files::make_folder(&clients)?;
        for name in &self.client {
            if file_name(name) != *name {
                console::say(format_args!(
                    "note: the files of client {name:?} are called {}: its name has characters that file names \
                     cannot have",
                    file_name(name)
                ));
            }
            write(&client_file(name), &authority.client(name, days)?)?;
        }
        Ok(())
    }

    /// The CA of the folder, or a new one.
    fn authority(&self, days: Days) -> Result<Authority> {
        let place = self.folder.join("ca");
        let (key, certificate) = (with_ending(&place, "key"), with_ending(&place, "pem"));
        match (key.exists(), certificate.exists()) {
            (true, true) => {
                let read = |path: &Path| {
                    fs::read_to_string(path)
                        .with_context(|| format!("cannot read {}", path.display()))
                };
                let authority = Authority::from_key(&read(&key)?)
                    .with_context(|| format!("{}: this is not the key of a CA", key.display()))?;
                if !authority.is_of(&read(&certificate)?) {
                    bail!(
                        "{}: this certificate does not belong to the key {}",
                        certificate.display(),
                        key.display()
                    );
                }
                Ok(authority)
            }
            (false, false) => {
                let authority = Authority::generate()?;
                files::make_folder(&self.folder)?;
                write(&place, &authority.signed(days)?)?;
                Ok(authority)
            }
            (true, false) | (false, true) => bail!(
                "{} and {} belong together, and one of them is missing",
                key.display(),
                certificate.display()
            ),
        }
    }
}

fn with_ending(place: &Path, ending: &str) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!("{name}.{ending}"))
}

fn refuse_existing(place: &Path) -> Result<()> {
    for file in [with_ending(place, "pem"), with_ending(place, "key")] {
        if file.exists() {
            bail!(
                "{} exists already, and certificates are not overwritten\n\
                 hint: remove it if it is no longer used",
                file.display()
            );
        }
    }
    Ok(())
}

/// A certificate for all to read, and a key for its owner alone.
fn write(place: &Path, signed: &Signed) -> Result<()> {
    refuse_existing(place)?;
    let (certificate, key) = (with_ending(place, "pem"), with_ending(place, "key"));
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    if let Some(folder) = place.parent() {
        files::make_folder(folder)?;
    }
    options
        .open(&key)
        .and_then(|mut file| file.write_all(signed.key.as_bytes()))
        .with_context(|| format!("cannot write {}", key.display()))?;
    files::write(&certificate, &signed.certificate)?;
    console::data(certificate.display());
    console::data(key.display());
    Ok(())
}
