//! Being told to stop: Ctrl-C, SIGTERM, or the end of standard input for a run on a leash.
//!
//! A run looks between two steps whether it was told. The round that is on is then as if it had not begun, so
//! that what is left are complete rounds. Being told twice ends the process at once. SIGHUP keeps its own meaning: who closes a terminal
//! ends the process, and who begins it with `nohup` does not.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::{console, screen};

/// The status of a process that was told to stop, which a comparison knows its runs by.
pub const STATUS: u8 = fedra::study::compare::INTERRUPTED;

/// How often it is looked whether there is something to say.
const GLANCE: Duration = Duration::from_millis(50);

static TOLD: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// What is finished before the process stops, in words; a step unless something else is named.
static AFTER: Mutex<Option<String>> = Mutex::new(None);

/// Says that nothing has to be finished, unless something is named later: others are waited for.
pub fn waits_for_others() {
    *screen::locked(&AFTER) = Some(String::new());
}

/// Says what is finished before the process stops, if it is not a step.
pub fn within(what: &str) {
    *screen::locked(&AFTER) = Some(format!(" after this {what}"));
}

/// Whether a comparison holds the other end of standard input.
static LEASHED: AtomicBool = AtomicBool::new(false);

/// Whether this process is one of a comparison's.
pub fn is_on_leash() -> bool {
    LEASHED.load(Ordering::SeqCst)
}

/// Whether the process was told to stop.
pub fn interrupted() -> bool {
    static LISTENING: LazyLock<bool> = LazyLock::new(listen);
    *LISTENING && TOLD.load(Ordering::SeqCst)
}

/// Whether the process was told to stop, for work that leaves nothing behind: signals that nobody listens to
/// yet keep their usual meaning and end it at once.
pub fn told() -> bool {
    TOLD.load(Ordering::SeqCst)
}

/// Stops after the step that is on once standard input ends: a comparison holds the other end and
/// lets go of it when it stops or dies.
pub fn stop_with_standard_input() {
    LEASHED.store(true, Ordering::SeqCst);
    let listening = std::thread::Builder::new().spawn(|| {
        let _ended = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        TOLD.store(true, Ordering::SeqCst);
    });
    if listening.is_err() {
        // Nobody would notice that the comparison is gone: better to stop at once.
        TOLD.store(true, Ordering::SeqCst);
    }
}

/// Removes a file that is written for another place, if there is one, when the process is told to stop: what
/// is in it was to be there whole or not at all. The process then ends at once.
pub fn removes(part: Option<&Path>) {
    let Some(part) = part.map(Path::to_owned) else { return };
    let signal = Arc::new(AtomicBool::new(false));
    for number in [SIGINT, SIGTERM] {
        // Where it cannot be heard, a signal keeps its usual meaning.
        let _deaf = flag::register(number, Arc::clone(&signal));
    }
    once(signal, move || {
        let _absent = std::fs::remove_file(&part);
        std::process::exit(STATUS.into());
    });
}

/// Does something once a flag is set that a handler has set: a handler itself can do nothing else. Live lines
/// are gone by then, for a second signal may end the process at once.
fn once(signal: Arc<AtomicBool>, then: impl FnOnce() + Send + 'static) {
    let _unheard = std::thread::Builder::new().spawn(move || {
        while !signal.load(Ordering::SeqCst) {
            std::thread::sleep(GLANCE);
        }
        screen::close();
        then();
    });
}

fn listen() -> bool {
    let signal = Arc::new(AtomicBool::new(false));
    let registered = [SIGINT, SIGTERM].into_iter().try_for_each(|number| {
        // In this order, so that the first signal sets the flag and the second finds it set.
        flag::register_conditional_shutdown(number, STATUS.into(), Arc::clone(&signal))?;
        flag::register(number, Arc::clone(&signal))?;
        flag::register(number, Arc::clone(&TOLD)).map(drop)
    });
    once(signal, || {
        let after = screen::locked(&AFTER).take().unwrap_or_else(|| " after this step".to_owned());
        console::say(format_args!("\nstopping{after}; press Ctrl-C again to stop at once"));
    });
    registered.is_ok()
}
