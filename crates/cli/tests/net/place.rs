//! A folder, and processes in it that end with the test.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Long enough for a busy machine; nothing waits for it unless something is wrong.
const PATIENCE: Duration = Duration::from_mins(1);

pub const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fedra/tests/tiny.toml");

pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self, line: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedra"));
        command.args(line.split_whitespace()).args(more).current_dir(self.folder.path());
        command
    }

    /// Runs a command to its end.
    pub fn output(&self, line: &str, more: &[&str]) -> Output {
        self.command(line, more).output().unwrap()
    }

    /// Runs a command that has to succeed.
    #[track_caller]
    pub fn run(&self, line: &str, more: &[&str]) {
        let output = self.output(line, more);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// What a command says that is refused.
    #[track_caller]
    pub fn refusal(&self, line: &str, more: &[&str]) -> String {
        let output = self.output(line, more);
        assert_eq!(output.status.code(), Some(2), "{line}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// What becomes of a command that may have so many files open.
    pub fn end_with_files(&self, files: u32, line: &str, more: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new("sh");
        let limited = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        command.args(["-c", &limited, env!("CARGO_BIN_EXE_fedra")]);
        command.args(line.split_whitespace()).args(more).current_dir(self.folder.path());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// What a command says that is refused, where it may have so many files open.
    #[track_caller]
    pub fn refusal_with_files(&self, files: u32, line: &str, more: &[&str]) -> String {
        let (status, said) = self.end_with_files(files, line, more);
        assert_eq!(status, Some(2), "{said}");
        said
    }

    /// Starts a command.
    pub fn start(&self, line: &str, more: &[&str]) -> Process {
        self.start_into(Stdio::null(), line, more)
    }

    /// Starts a command whose output goes somewhere.
    pub fn start_into(&self, output: impl Into<Stdio>, line: &str, more: &[&str]) -> Process {
        let mut command = self.command(line, more);
        let mut child = command.stdout(output).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::<Mutex<String>>::default();
        let (stderr, heard) = (child.stderr.take().unwrap(), Arc::clone(&said));
        let listening = Some(std::thread::spawn(move || listen(stderr, &heard)));
        Process { child, said, listening }
    }

    /// Starts a server on a free port and returns its address.
    pub fn serve(&self, out: &str, more: &[&str]) -> (Process, String) {
        let server = self.start(&format!("serve --listen 127.0.0.1:0 --out {out}"), more);
        let said = server.wait_for("listening on ");
        let (_, rest) = said.split_once("listening on ").unwrap();
        let address = rest.split_whitespace().next().unwrap().to_owned();
        (server, address)
    }

    /// Starts the three hospitals of the synthetic clinic.
    pub fn join_all(&self, address: &str, more: &[&str]) -> Vec<Process> {
        let one = |number: u32| self.join(number, address, more);
        (1..=3).map(one).collect()
    }

    pub fn join(&self, number: u32, address: &str, more: &[&str]) -> Process {
        let line =
            format!("join --server {address} --client hospital-{number} --state state-{number}");
        self.start(&line, more)
    }

    /// The model that a run came to.
    pub fn model(&self, run: &str) -> Vec<u8> {
        std::fs::read(self.path(run).join("model/model.safetensors")).unwrap()
    }

    /// The log of a run without what depends on the clock.
    pub fn log(&self, run: &str) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.path(run).join("rounds.jsonl")).unwrap();
        let line = |line: &str| {
            let mut report: serde_json::Value = serde_json::from_str(line).unwrap();
            for key in ["seconds", "slowest", "phases", "most_updates_held", "memory"] {
                report.as_object_mut().unwrap().remove(key);
            }
            report
        };
        text.lines().map(line).collect()
    }

    /// Waits until a run has so many rounds in its log.
    #[track_caller]
    pub fn wait_for_rounds(&self, run: &str, rounds: usize) {
        let log = self.path(run).join("rounds.jsonl");
        wait(&format!("{rounds} rounds"), || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.lines().count() >= rounds)
        });
    }
}

fn listen(stderr: impl Read, said: &Mutex<String>) {
    for line in BufReader::new(stderr).lines() {
        let Ok(line) = line else { return };
        let mut said = said.lock().unwrap();
        said.push_str(&line);
        said.push('\n');
    }
}

#[track_caller]
pub fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that is killed with the value.
pub struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
    listening: Option<JoinHandle<()>>,
}

impl Process {
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits until it has said something; all that it has said by then.
    #[track_caller]
    pub fn wait_for(&self, part: &str) -> String {
        let begun = Instant::now();
        loop {
            let said = self.said();
            if said.contains(part) {
                return said;
            }
            assert!(begun.elapsed() < PATIENCE, "waited in vain for {part:?} in\n{said}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the system says of its memory, in bytes; zero once it has ended.
    #[cfg(target_os = "linux")]
    pub fn memory(&self, what: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        let found = status.lines().find_map(|line| line.strip_prefix(what));
        let kilobytes = found.and_then(|found| found.split_whitespace().next());
        kilobytes.map_or(0.0, |number| 1024.0 * number.parse::<f64>().unwrap())
    }

    /// Waits for its end; its status.
    #[track_caller]
    pub fn end(mut self) -> (Option<i32>, String) {
        let mut status = None;
        wait("the end of a process", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        // The last lines may still be on their way.
        self.listening.take().unwrap().join().unwrap();
        (status.unwrap().code(), self.said())
    }

    /// Ends as it should.
    #[track_caller]
    pub fn succeed(self) {
        let (status, said) = self.end();
        assert_eq!(status, Some(0), "{said}");
    }

    /// As `kill -9` does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// As Ctrl-C does.
    pub fn interrupt(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Who may do what with a file.
pub fn mode_of(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The folder of a published model beside this checkout.
#[track_caller]
pub fn published(name: &str) -> String {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/models");
    let folder = models.join(name).canonicalize();
    folder.unwrap_or_else(|_| panic!("needs {name} in {}", models.display())).display().to_string()
}
