//! A real, unmodified SuperLink in a process of its own; sites are its nodes, and the coordinator takes
//! the task of a run that `flwr run` began.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fedra_flower::{Admission, Apps, Endpoint, Membership, NodeKey, Task, join, write_app};
use fedra_net::{Carrier, ClientNode, FleetOptions, NetFleet, Routes, Runtime};

use crate::deployment::{Clients, Deployment, Opened};
use crate::sites::{Join, PATIENCE, Sites};
use crate::world::Told;

/// The folder with `flower-superlink` and `flwr`.
const VARIABLE: &str = "FEDRA_FLOWER";
/// Starts what follows, and ends it with this process, however that ends: then nobody holds the other end
/// of its input any more. Its folder goes with it.
const UNTIL_THIS_PROCESS_ENDS: &str = r#"
folder=$1; shift
"$@" >"$folder/log" 2>&1 </dev/null &
read -r _
kill $!
wait $! 2>/dev/null
rm -rf "$folder"
"#;

/// A SuperLink, and where `flwr` finds what it needs.
pub struct SuperLink {
    bin: PathBuf,
    folder: PathBuf,
    url: String,
    /// It ends when this does.
    _process: Child,
}

impl SuperLink {
    /// The one of this process of tests, for one of them at a time: every node that is online takes part
    /// in every run.
    pub fn shared() -> MutexGuard<'static, Self> {
        static ONE: OnceLock<Mutex<SuperLink>> = OnceLock::new();
        let one = ONE.get_or_init(|| {
            let bin = std::env::var_os(VARIABLE);
            let bin = bin.unwrap_or_else(|| {
                panic!("{VARIABLE} is not set, expected a folder with flower-superlink and flwr")
            });
            Mutex::new(Self::start(PathBuf::from(bin)).ready())
        });
        // A case that failed has cleared up after itself.
        one.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(bin: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap().keep();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        write_app(&folder.join("app")).unwrap();
        std::fs::create_dir(folder.join("flwr")).unwrap();
        let config = format!(
            "[superlink]\ndefault = 'link'\n\n[superlink.link]\n\
             address = '127.0.0.1:{port}'\ninsecure = true\n"
        );
        std::fs::write(folder.join("flwr/config.toml"), config).unwrap();
        let mut command = command(Path::new("sh"), (&bin, &folder));
        command.args(["-c", UNTIL_THIS_PROCESS_ENDS, "sh"]).arg(&folder);
        command.arg(bin.join("flower-superlink"));
        command.args(["--insecure", "--isolation", "process", "--host", "127.0.0.1", "--port"]);
        command.args([&port.to_string(), "--disable-runtime-dependency-installation"]);
        let process = command.stdin(Stdio::piped()).spawn().unwrap();
        let url = format!("http://127.0.0.1:{port}");
        Self { bin, folder, url, _process: process }
    }

    /// Waits until it can be called.
    fn ready(self) -> Self {
        let (log, begun) = (self.folder.join("log"), Instant::now());
        loop {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            if said.contains("Uvicorn running") {
                return self;
            }
            assert!(begun.elapsed() < PATIENCE, "no SuperLink:\n{said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Begins a run, as its operator does.
    fn begin_run(&self) {
        let said = self.folder.join("run.log");
        let mut command = command(&self.bin.join("flwr"), (&self.bin, &self.folder));
        command.args(["run", "app", "link"]).stdin(Stdio::null());
        command.stdout(File::create(&said).unwrap()).stderr(File::create(&said).unwrap());
        let status = command.status().unwrap();
        assert!(status.success(), "flwr run: {}", std::fs::read_to_string(said).unwrap());
    }
}

/// A command with the environment of Flower's own.
fn command(program: &Path, (bin, folder): (&Path, &Path)) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(bin.to_owned()).chain(std::env::split_paths(&path));
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .env("PATH", std::env::join_paths(paths).unwrap())
        .env("FLWR_HOME", folder.join("flwr"))
        .env("FLWR_TELEMETRY_ENABLED", "0")
        .env("FLWR_DISABLE_UPDATE_CHECK", "1");
    command
}

impl Deployment for SuperLink {
    fn loses_clients(&self) -> bool {
        true
    }

    fn open<'c>(&'c self, clients: &'c Clients) -> Box<dyn Opened + 'c> {
        let listen = |folder: &Path, options: FleetOptions, told: &Told| {
            self.begin_run();
            let endpoint = Endpoint::new(&self.url, None).unwrap();
            let task = Task::acquire(&endpoint, (Apps::Any, folder), told).unwrap().unwrap();
            let federated = clients.world.federated(Routes::default());
            let start = |reception, _routes, _runtime: &Runtime| {
                Ok(Box::new(task.start(reception, Admission::default())?) as Box<dyn Carrier>)
            };
            let (listener, central) = (Box::new(told.clone()), clients.world.central());
            let fleet = NetFleet::over(federated, (folder, options), (listener, central), start);
            let way: Join = Arc::new(move |site: &mut ClientNode, folder: &Path, told: &Told| {
                let (endpoint, folder) = (endpoint.clone(), folder.to_owned());
                let key = kept_key(&folder);
                let membership =
                    Membership { endpoint, key, folder, stock: None, give_up_after: None };
                join(site, membership, told).map_err(|error| error.to_string())
            });
            (fleet.unwrap(), way)
        };
        Box::new(Sites::open(clients, listen))
    }
}

/// A node that comes back is the same one.
pub fn kept_key(folder: &Path) -> NodeKey {
    let file = folder.join("node.key");
    if !file.exists() {
        std::fs::write(&file, NodeKey::generate().unwrap()).unwrap();
    }
    NodeKey::open(&file).unwrap()
}
