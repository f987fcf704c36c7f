//! A connection to a middle in the same process, and the server's end of one over a network.

use fedra_wire::ClientId;

use crate::error::Result;
use crate::split::middle::Middle;
use crate::split::peer::{Connect, Peer, Purpose};
use crate::split::survey::Survey;

impl Connect for Middle {
    fn connect(&self, client: ClientId, purpose: Purpose) -> Result<Box<dyn Peer + '_>> {
        Ok(Box::new(self.peer(client, purpose)))
    }
}

/// A connection to a middle in the same process. When it is dropped, the client has left.
#[derive(Debug)]
pub struct LocalPeer<'a> {
    middle: &'a Middle,
    client: ClientId,
    purpose: Purpose,
    survey: Survey,
}

impl<'a> LocalPeer<'a> {
    pub(super) fn new(middle: &'a Middle, client: ClientId, purpose: Purpose) -> Self {
        Self { middle, client, purpose, survey: Survey::default() }
    }
}

impl Peer for LocalPeer<'_> {
    fn exchange(&mut self, frame: Vec<u8>) -> Result<Vec<u8>> {
        self.middle.count(&frame, true);
        let answer = match self.purpose {
            Purpose::Train(round) => self.middle.train(self.client, round, frame),
            Purpose::Score(round) | Purpose::Probe(round) => {
                self.middle.score((self.client, round), &mut self.survey, &frame)
            }
        }?;
        self.middle.count(&answer, false);
        Ok(answer)
    }
}

impl Drop for LocalPeer<'_> {
    fn drop(&mut self) {
        if let Purpose::Train(round) = self.purpose {
            self.middle.leave(self.client, round);
        }
    }
}
