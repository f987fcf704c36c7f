//! Staying joined: dials, talks until the run is over, and dials again when the connection is lost.

use std::time::{Duration, Instant};

use crate::conversation::{Conversation, Heard};
use crate::dialer::Dialer;
use crate::error::NetError;
use crate::frame::Message;
use crate::link::Link;
use crate::protocol::{JOIN, limits};
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

    /// Whether to leave; asked while nothing is worked on. Work itself is stopped by the client's observer.
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
            // What it worked on is done again when it is back.
            Err(NetError::Stopped) => return Ok(Left::Stopped),
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
    let mut conversation = Conversation::new(site, listener);
    link.send(conversation.hello())?;
    loop {
        let Some(message) = next(link, listener)? else { return Ok(Left::Stopped) };
        let heard = conversation.hear(&message);
        *greeted |= conversation.is_welcomed();
        match heard? {
            Heard::Nothing => {}
            Heard::Answer(answer) => link.send(answer)?,
            Heard::Breakdown(answer, broken) => {
                answer.map_or(Ok(()), |answer| link.send(answer))?;
                // The server has to hear it before the stream ends.
                let _verdict_or_end = link.receive(Some(FAREWELL));
                return Err(broken);
            }
            Heard::Left(left) => return Ok(left),
        }
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
