//! A site's side of what is said from its hello to the end of a run, whatever carries the messages.

use crate::error::NetError;
use crate::frame::Message;
use crate::link::from_meta;
use crate::listener::{Left, Listener};
use crate::protocol::{Asked, Request, RunEnd, Welcome};
use crate::site::ClientNode;

/// A site that talks with its server.
pub struct Conversation<'a> {
    /// The site.
    pub site: &'a mut ClientNode,
    /// Those who follow it.
    pub listener: &'a dyn Listener,
    /// Whether the server let it in.
    pub is_welcomed: bool,
}

/// What comes of a message.
#[derive(Debug)]
pub enum Heard {
    /// Nothing is due.
    Nothing,
    /// An answer.
    Answer(Message),
    /// An answer, after which the site cannot go on.
    Breakdown(Option<Message>, NetError),
    /// The run has finished.
    Left(Left),
}

impl Conversation<'_> {
    /// The first words; a welcome is due after them.
    pub fn hello(&mut self) -> Message {
        self.is_welcomed = false;
        Message::of(0, &self.site.hello())
    }

    /// Takes a message of the server, and does what it asks.
    pub fn hear(&mut self, message: &Message) -> Result<Heard, NetError> {
        if let Some(left) = end_of(message) {
            // The run may be over before this site got a word in.
            return Ok(Heard::Left(left));
        }
        if !self.is_welcomed {
            let welcome: Welcome = from_meta("a welcome", message)?;
            self.is_welcomed = true;
            self.listener.told("joined");
            if let Some(lost) = self.site.welcomed(welcome)? {
                self.listener.told(&format!("warning: {lost}"));
            }
            return Ok(Heard::Nothing);
        }
        let answer = self.site.answer(message)?;
        if let Some(broken) = self.site.broken.take() {
            return Ok(Heard::Breakdown(answer, broken));
        }
        if let Some(news) = self.site.news.take() {
            self.listener.told(&news);
        }
        Ok(answer.map_or(Heard::Nothing, Heard::Answer))
    }
}

/// Why the run has finished, if that is what a message says.
fn end_of(message: &Message) -> Option<Left> {
    let Request::End { how, reason } = from_meta::<Asked>("a request", message).ok()?.request
    else {
        return None;
    };
    Some(match how {
        RunEnd::Complete => Left::Ended(reason),
        RunEnd::GaveUp => Left::GaveUp(reason),
    })
}
