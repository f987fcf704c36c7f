//! Staying joined: dials, talks until the run is over, and dials again when the connection is lost.

use std::time::{Duration, Instant};

use crate::dialer::Dialer;
use crate::error::NetError;
use crate::frame::Message;
use crate::link::{Link, from_meta, to_meta};
use crate::protocol::{Asked, JOIN, Request, RunEnd, Welcome, limits};
use crate::runtime::Runtime;
use crate::site::Site;

/// The first wait before dialling again; it doubles up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// How often somebody who wants to stop is heard.
const GLANCE: Duration = Duration::from_millis(100);
/// How long a site that cannot go on waits until the server has heard it.
const FAREWELL: Duration = Duration::from_secs(2);

/// Those who follow a site from outside.
pub trait JoinListener {
    /// Something that a person should know.
    fn told(&self, line: &str);

    /// Whether to leave; asked while nothing is worked on.
    fn stops(&self) -> bool;
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// The server said that the run is over.
    Ended(String),
    /// The server said that it cannot go on, and why.
    GaveUp(String),
    /// The listener wanted to stop.
    Stopped,
}

/// Takes part until the run is over, whatever happens to the connection. An error is one that would
/// come again.
pub fn join(
    site: &mut Site,
    (runtime, dialer): (&Runtime, &Dialer),
    listener: &dyn JoinListener,
) -> Result<Left, NetError> {
    let mut wait = FIRST_WAIT;
    loop {
        if listener.stops() {
            return Ok(Left::Stopped);
        }
        let limits = limits(site.client().layout());
        let mut greeted = false;
        let talked = dialer
            .open(runtime, JOIN, limits)
            .and_then(|mut link| talk(site, &mut link, (listener, &mut greeted)));
        match talked {
            Ok(left) => return Ok(left),
            Err(error) if error.is_temporary() => {
                if greeted {
                    wait = FIRST_WAIT;
                }
                listener.told(&format!("{error}; trying again in {:.1} s", wait.as_secs_f64()));
                let until = Instant::now() + wait;
                while Instant::now() < until {
                    if listener.stops() {
                        return Ok(Left::Stopped);
                    }
                    std::thread::sleep(GLANCE.min(until - Instant::now()));
                }
                wait = (wait * 2).min(LONGEST_WAIT);
            }
            Err(error) => return Err(error),
        }
    }
}

/// One connection, from hello to its end.
fn talk(
    site: &mut Site,
    link: &mut Link,
    (listener, greeted): (&dyn JoinListener, &mut bool),
) -> Result<Left, NetError> {
    link.send(Message { id: 0, meta: to_meta(&site.hello()), payloads: Vec::new() })?;
    let Some(message) = next(link, listener)? else { return Ok(Left::Stopped) };
    let welcome: Welcome = match from_meta("a welcome", &message) {
        Ok(welcome) => welcome,
        // The run may be over before this site got a word in.
        Err(error) => return end_of(&message).ok_or(error),
    };
    *greeted = true;
    listener.told("joined");
    if let Some(lost) = site.welcomed(welcome)? {
        listener.told(&format!("warning: {lost}"));
    }
    loop {
        let Some(message) = next(link, listener)? else { return Ok(Left::Stopped) };
        if let Some(left) = end_of(&message) {
            return Ok(left);
        }
        if let Some(answer) = site.answer(&message)? {
            link.send(answer)?;
        }
        if let Some(broken) = site.take_breakdown() {
            // The server has to hear it before the stream ends.
            let _verdict_or_end = link.receive(Some(FAREWELL));
            return Err(broken);
        }
        if let Some(news) = site.take_news() {
            listener.told(&news);
        }
    }
}

/// Why the run is over, if that is what a message says.
fn end_of(message: &Message) -> Option<Left> {
    match from_meta("a request", message).ok()? {
        Asked { request: Request::End { how: RunEnd::Complete, reason }, .. } => {
            Some(Left::Ended(reason))
        }
        Asked { request: Request::End { how: RunEnd::GaveUp, reason }, .. } => {
            Some(Left::GaveUp(reason))
        }
        Asked { .. } => None,
    }
}

/// The next message; `None` when the listener wants to stop instead.
fn next(link: &mut Link, listener: &dyn JoinListener) -> Result<Option<Message>, NetError> {
    loop {
        match link.receive(Some(GLANCE)) {
            Err(NetError::Late { .. }) if listener.stops() => return Ok(None),
            Err(NetError::Late { .. }) => {}
            other => return other.map(Some),
        }
    }
}
