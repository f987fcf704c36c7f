//! Staying joined: dials, talks until the run has finished, and dials again when the connection is lost.
//!
//! Before the server has let this process in, what does not fit is a wrong setting and ends it at once. After
//! that a site outlives its network: only what somebody decided ends it (see [`NetError::fault`]).

use std::time::{Duration, Instant};

use fedra_seed::Seed;

use crate::conversation::{Conversation, Heard};
use crate::dialer::Dialer;
use crate::error::{Fault, NetError, Standing};
use crate::frame::Message;
use crate::link::Link;
use crate::listener::{Left, Listener};
use crate::outage::Outage;
use crate::protocol::{JOIN, limits};
use crate::runtime::Runtime;
use crate::site::ClientNode;

/// How long a site that cannot go on waits until the server has heard it.
const FAREWELL: Duration = Duration::from_secs(2);
/// A connection that lasted so long was of use, whatever was said over it.
const USEFUL: Duration = Duration::from_secs(5);

/// Takes part until the run has finished, whatever happens to the connection. An error is one that would
/// come again.
pub fn join(
    site: &mut ClientNode,
    (runtime, dialer): (&Runtime, &Dialer),
    listener: &dyn Listener,
) -> Result<Left, NetError> {
    site.process = dialer.process;
    let mut outage = Outage::new(listener, dialer.patience, Seed(dialer.process));
    let mut standing = Standing::Stranger;
    loop {
        if listener.stops() {
            return Ok(Left::Stopped);
        }
        let limits = limits(&site.client.layout);
        let (begun, mut came) = (Instant::now(), Came::default());
        let talked = dialer
            .open(runtime, JOIN, limits)
            .and_then(|mut link| talk(site, &mut link, (listener, &mut came)));
        let error = match talked {
            Ok(left) => return Ok(left),
            // What it worked on is done again when it is back.
            Err(NetError::Stopped) => return Ok(Left::Stopped),
            Err(error) => error,
        };
        if came.is_welcomed {
            standing = Standing::Welcomed;
            outage.was_there();
        }
        if came.has_answered || (came.is_welcomed && begun.elapsed() > USEFUL) {
            outage.was_useful();
        }
        match error.fault(standing) {
            Fault::Refused => return Err(error),
            Fault::Lost => {
                if let Some(left) = outage.rest(&error.to_string()) {
                    return Ok(left);
                }
            }
        }
    }
}

/// What came of a connection.
#[derive(Debug, Default)]
struct Came {
    is_welcomed: bool,
    has_answered: bool,
}

/// One connection, from hello to its end.
fn talk(
    site: &mut ClientNode,
    link: &mut Link,
    (listener, came): (&dyn Listener, &mut Came),
) -> Result<Left, NetError> {
    let mut conversation = Conversation { site, listener, is_welcomed: false };
    say(link, conversation.hello())?;
    loop {
        let message = link.receive_unless(|| listener.stops())?;
        let Some(message) = message else { return Ok(Left::Stopped) };
        let heard = conversation.hear(&message);
        came.is_welcomed |= conversation.is_welcomed;
        match heard? {
            Heard::Nothing => {}
            Heard::Answer(answer) => {
                say(link, answer)?;
                came.has_answered = true;
            }
            Heard::Breakdown(answer, broken) => {
                answer.map_or(Ok(()), |answer| link.send(answer))?;
                // The server has to hear it before the stream ends.
                let _verdict_or_end = link.receive(Some(FAREWELL));
                return Err(broken);
            }
            Heard::Left(left) => {
                link.take_leave();
                return Ok(left);
            }
        }
    }
}

/// Says something. A stream that ended while this site worked says why to whoever reads on: that another
/// process took its place, for one.
fn say(link: &mut Link, message: Message) -> Result<(), NetError> {
    let Err(lost) = link.send(message) else { return Ok(()) };
    loop {
        match link.receive(Some(FAREWELL)) {
            Ok(_unanswered) => {}
            Err(NetError::Late { .. }) => return Err(lost),
            Err(why) => return Err(why),
        }
    }
}
