//! Live lines at the end of a terminal, and everything else above them.
//!
//! All that is drawn goes through one screen, so that a line that is said from any thread scrolls by
//! above the live lines and never into them. There is a screen only where standard error is a terminal
//! that can be drawn on: in a pipe, and where `TERM` is `dumb`, lines are said one after the other. No
//! colours are used, so `NO_COLOR` changes nothing.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use console_terminal::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::live::cut;

/// How often live lines are redrawn though nothing happened: times count down.
const TICK: Duration = Duration::from_millis(500);

static SCREEN: LazyLock<MultiProgress> = LazyLock::new(|| {
    let target =
        if can_draw() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    MultiProgress::with_draw_target(target)
});

/// Whether drawing has ended for good.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Held by whoever writes above the live lines and by whoever takes them away: after writing, live lines are
/// put back as they were, which must not happen once they are gone.
static WRITING: Mutex<()> = Mutex::new(());

fn can_draw() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    std::io::stderr().is_terminal() && !is_dumb
}

/// Whether live lines are drawn.
pub fn is_live() -> bool {
    was_live() && !CLOSED.load(Ordering::SeqCst)
}

/// Whether live lines are drawn, or were until the process was told to stop.
pub fn was_live() -> bool {
    static CAN: LazyLock<bool> = LazyLock::new(can_draw);
    *CAN
}

/// Does something, usually writing a line, while no live line is in the way.
pub fn aside<T>(write: impl FnOnce() -> T) -> T {
    let _held = locked(&WRITING);
    if is_live() { SCREEN.suspend(write) } else { write() }
}

/// Takes all live lines away for good, so that the process may end at any moment.
pub fn close() {
    let _held = locked(&WRITING);
    if was_live() && !CLOSED.swap(true, Ordering::SeqCst) {
        let _unseen = SCREEN.clear();
        SCREEN.set_draw_target(ProgressDrawTarget::hidden());
    }
}

/// Columns of the terminal at this moment.
fn width() -> usize {
    usize::from(Term::stderr().size().1)
}

/// Columns that text for people has on a stream: as many as `COLUMNS` says, or as its terminal has. None
/// where neither is known: whoever reads a pipe breaks lines as they like.
pub fn columns(stream: &Term) -> Option<usize> {
    /// With fewer, lines are no longer sentences.
    const FEWEST: usize = 20;
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    let drawn = || stream.size_checked().map(|(_, columns)| usize::from(columns));
    told.or_else(drawn).filter(|columns| *columns >= FEWEST)
}

/// What live lines are drawn from, shared with those who work: no panic leaves half of it that matters.
pub fn locked<T>(shown: &Mutex<T>) -> MutexGuard<'_, T> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A live line whose text is set from outside, and cut where the terminal ends.
#[derive(Clone)]
pub struct TextLine {
    text: Arc<Mutex<String>>,
    line: Line,
}

impl TextLine {
    /// A line without a text, for those who want to see one.
    pub fn new(is_wanted: bool) -> Self {
        let text = Arc::default();
        let line =
            Line::new(is_wanted, &text, |text: &String, width| cut(text, width.saturating_sub(1)));
        Self { text, line }
    }

    /// Shows another text.
    pub fn set(&self, text: String) {
        *locked(&self.text) = text;
        self.line.draw();
    }

    /// Takes it away.
    pub fn remove(&self) {
        self.line.remove();
    }
}

/// One live line.
#[derive(Clone)]
pub struct Line {
    bar: ProgressBar,
}

impl Line {
    /// A line behind those that are there, which says what `text` makes of a state for the columns of the
    /// terminal; nobody sees it where it is not wanted.
    pub fn new<T: Send + 'static>(
        is_wanted: bool,
        state: &Arc<Mutex<T>>,
        text: fn(&T, usize) -> String,
    ) -> Self {
        if !is_wanted || !is_live() {
            return Self { bar: ProgressBar::hidden() };
        }
        let (bar, state) = (SCREEN.add(ProgressBar::new_spinner()), Arc::clone(state));
        let live = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            // Whoever draws while the screen is being closed leaves nothing on it.
            let drawn = if is_live() { text(&locked(&state), width()) } else { String::new() };
            let _unseen = out.write_str(&drawn);
        };
        let style = ProgressStyle::with_template("{live}").expect("the template is legal");
        bar.set_style(style.with_key("live", live));
        bar.enable_steady_tick(TICK);
        Self { bar }
    }

    /// Draws it anew.
    pub fn draw(&self) {
        if is_live() {
            self.bar.tick();
        }
    }

    /// Takes it away.
    pub fn remove(&self) {
        self.bar.disable_steady_tick();
        self.bar.finish_and_clear();
        SCREEN.remove(&self.bar);
    }
}
