//! Being told to stop: Ctrl-C, SIGTERM, or the end of standard input for a run on a leash.
//!
//! A run looks between two rounds whether it was told, so that what it leaves is a complete round.
//! Being told twice ends the process at once. SIGHUP keeps its own meaning: who closes a terminal
//! ends the process, and who begins it with `nohup` does not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::{console, screen};

/// The status of a process that was told to stop, which a comparison knows its runs by.
pub const STATUS: u8 = fedra::compare::INTERRUPTED;

/// How often it is looked whether there is something to say.
const GLANCE: Duration = Duration::from_millis(50);

static TOLD: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// What is finished before the process stops.
static WITHIN: OnceLock<&str> = OnceLock::new();

/// Whether nothing is on that would have to be finished.
static IDLE: AtomicBool = AtomicBool::new(false);

/// Says whether nothing is on that would have to be finished.
pub fn idle(is_idle: bool) {
    IDLE.store(is_idle, Ordering::SeqCst);
}

/// Says what is finished before the process stops, if it is not a round.
pub fn within(what: &'static str) {
    let _first = WITHIN.set(what);
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

/// Stops after the round that is on once standard input ends: a comparison holds the other end and
/// lets go of it when it stops or dies.
pub fn stop_with_standard_input() {
    let listening = std::thread::Builder::new().spawn(|| {
        let _ended = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        TOLD.store(true, Ordering::SeqCst);
    });
    if listening.is_err() {
        // Nobody would notice that the comparison is gone: better to stop at once.
        TOLD.store(true, Ordering::SeqCst);
    }
}

fn listen() -> bool {
    let signal = Arc::new(AtomicBool::new(false));
    let registered = [SIGINT, SIGTERM].into_iter().try_for_each(|number| {
        // In this order, so that the first signal sets the flag and the second finds it set.
        flag::register_conditional_shutdown(number, STATUS.into(), Arc::clone(&signal))?;
        flag::register(number, Arc::clone(&signal))?;
        flag::register(number, Arc::clone(&TOLD)).map(drop)
    });
    // A handler can only set a flag; this tells the person who pressed the key.
    let _silent = std::thread::Builder::new().spawn(move || {
        while !signal.load(Ordering::SeqCst) {
            std::thread::sleep(GLANCE);
        }
        let what = WITHIN.get().unwrap_or(&"round");
        // A second signal ends the process at once, whatever is on the screen then.
        screen::close();
        if IDLE.load(Ordering::SeqCst) {
            console::say("\nstopping; press Ctrl-C again to stop at once");
            return;
        }
        console::say(format_args!(
            "\nstopping after this {what}; press Ctrl-C again to stop at once"
        ));
    });
    registered.is_ok()
}
