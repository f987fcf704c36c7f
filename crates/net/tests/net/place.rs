//! A folder with certificates, a server that echoes, and whoever dials it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fedra_net::certs::{Authority, Days, Signed};
use fedra_net::{
    Dialer, Identity, Limits, Link, NetError, Peer, Routes, Runtime, Server, ServerOptions,
    ServerSecurity,
};

pub const ECHO: &str = "/fedra.v1.Fedra/Echo";
pub const LIMITS: Limits = Limits::of_bytes(8 << 20);

/// A folder of certificates.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The files of a party whose certificate one CA signed, and who trusts another or the same.
    pub fn identity(&self, name: &str, signed: &Signed, trusted: &Authority) -> Identity {
        let ca = trusted.signed(Days(1)).unwrap();
        Identity {
            certificate: self.write(&format!("{name}.pem"), &signed.certificate),
            key: self.write(&format!("{name}.key"), &signed.key),
            ca: self.write(&format!("{name}-ca.pem"), &ca.certificate),
        }
    }
}

/// A server that sends every message back, and what it was told about connections that failed.
pub struct Echo {
    pub runtime: Arc<Runtime>,
    pub server: Server,
    pub failures: Arc<Mutex<Vec<String>>>,
    pub peers: Arc<Mutex<Vec<Peer>>>,
}

impl Echo {
    pub fn start(security: ServerSecurity) -> Self {
        let runtime = Arc::new(Runtime::start().unwrap());
        let (failures, peers) =
            (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<Vec<Peer>>>::default());
        let (handle, noted) = (runtime.handle.clone(), Arc::clone(&peers));
        let routes = Routes::default().with(ECHO, move |peer: Peer, inbound, outbound| {
            let (handle, noted) = (handle.clone(), Arc::clone(&noted));
            async move {
                noted.lock().unwrap().push(peer.clone());
                let explain = |status: &_| NetError::Lost(format!("{status:?}"));
                let streams = (inbound, outbound);
                let mut link = Link::over(handle, streams, LIMITS, peer.traffic, explain);
                std::thread::spawn(move || {
                    while let Ok(message) = link.receive(None) {
                        link.send(message).unwrap();
                    }
                });
            }
        });
        let told = Arc::clone(&failures);
        let options = ServerOptions::new("127.0.0.1:0".parse().unwrap(), security);
        let server = Server::start(&runtime, &options, routes, move |_, reason| {
            told.lock().unwrap().push(reason.to_owned());
        });
        Self { server: server.unwrap(), runtime, failures, peers }
    }

    pub fn dial(&self, security: &ServerSecurity) -> Result<Link, NetError> {
        let address = self.server.address.to_string();
        Dialer::new(&address, security)?.open(&self.runtime, ECHO, LIMITS)
    }
}
