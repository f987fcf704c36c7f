//! A connection to a middle in the same process, and the server's end of one over a network.

use fedra_plan::Round;
use fedra_wire::ClientId;

use crate::error::Result;
use crate::split::peer::{Connect, Peer, Purpose};
use crate::split::server_segment::{ServerSegment, TrainingSession};
use crate::split::survey::Survey;

impl Connect for ServerSegment {
    fn connect(&self, client: ClientId, purpose: Purpose) -> Result<Box<dyn Peer + '_>> {
        Ok(Box::new(self.peer(client, purpose)))
    }
}

/// A connection to a middle in the same process. When it is dropped, the client has left.
#[derive(Debug)]
pub struct LocalPeer<'a> {
    middle: &'a ServerSegment,
    client: ClientId,
    serves: Serves,
}

/// What it does.
#[derive(Debug)]
enum Serves {
    Training(TrainingSession),
    Answers { round: Round, survey: Box<Survey> },
}

impl ServerSegment {
    /// A connection in this process.
    pub fn peer(&self, client: ClientId, purpose: Purpose) -> LocalPeer<'_> {
        let serves = match purpose {
            Purpose::Train(round) => Serves::Training(self.enter(client, round)),
            Purpose::Score(round) | Purpose::Probe(round) => {
                Serves::Answers { round, survey: Box::default() }
            }
        };
        LocalPeer { middle: self, client, serves }
    }
}

impl Peer for LocalPeer<'_> {
    fn exchange(&mut self, frame: Vec<u8>) -> Result<Vec<u8>> {
        self.middle.count(&frame, true);
        let _held = self.middle.clocks.hold(self.client);
        let answer = match &mut self.serves {
            Serves::Training(session) => self.middle.train(*session, frame),
            Serves::Answers { round, survey } => {
                self.middle.score((self.client, *round), survey, &frame)
            }
        }?;
        self.middle.count(&answer, false);
        Ok(answer)
    }
}

impl Drop for LocalPeer<'_> {
    fn drop(&mut self) {
        if let Serves::Training(session) = self.serves {
            self.middle.leave(session);
        }
    }
}
