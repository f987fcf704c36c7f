//! The coordinator of a run at a SuperLink: it carries a fleet's messages to nodes and back.
//!
//! It takes the task of the run's server app, and asks every node that is online who it is. A node that
//! answers gets its seat like a site on our own network. From then on there is one message at a time on
//! its way to it: what can wait travels with the next request, and what is asked next is sent when the
//! last reply has come, because nobody says in which order two messages arrive.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use fedra_net::{Carrier, Fault, JoinOnDrop, Listener, NetError, Reception, RunEnd, Standing};

use crate::app::Apps;
use crate::error::FlowerError;
use crate::http::Endpoint;
use crate::kept_task::KeptTask;
use crate::message_pump::{Admission, MessagePump};
use crate::runtime_api::{RuntimeApi, Sought};
use crate::superlink::{Caller, SuperLink};

/// How often a task is looked for.
const LOOK: Duration = Duration::from_millis(500);
/// How often the fleet is looked at for something to send.
const TICK: Duration = Duration::from_millis(10);
/// How often the SuperLink has to say, in a row, that a run has finished before it is: one damaged byte in a token
/// looks the same.
const DENIALS: u32 = 3;
/// How long it may answer something else than what was asked for.
const REFUSING: Duration = Duration::from_mins(1);
/// The longest wait after the SuperLink could not be reached.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The last words without an end: the task waits for whoever comes with its token.
const STOPPED: &str = "fedra serve was stopped; within a minute the same command resumes this run";

/// The task of a run's server app, taken by this process.
pub struct Task {
    api: RuntimeApi,
}

impl Task {
    /// Waits for a run and takes its task; `None` when the listener wants to stop instead. The task is kept
    /// in the folder until it ends: a coordinator that was stopped or killed continues in the same run, as
    /// long as the SuperLink has not given it up.
    pub fn acquire(
        endpoint: &Endpoint,
        (apps, folder): (Apps, &Path),
        listener: &dyn Listener,
    ) -> Result<Option<Self>, FlowerError> {
        let (place, kept) = (&endpoint.authority, KeptTask::of(folder));
        let (mut link, mut said) = (None, String::new());
        let mut standing = Standing::Stranger;
        let mut say = |line: String| {
            if said != line {
                listener.told(&line);
                said = line;
            }
        };
        loop {
            if listener.stops() {
                return Ok(None);
            }
            let reached = match link.take() {
                Some(link) => Ok(link),
                None => SuperLink::reach(endpoint, Caller::Anybody, &|line| listener.told(line)),
            };
            let before = kept.read(place);
            let how = if before.is_some() { "resumes" } else { "coordinates" };
            let sought = reached.and_then(|link| match before {
                Some(taken) => RuntimeApi::resume(link, taken, &kept),
                None => RuntimeApi::acquire(link, apps, &kept),
            });
            match sought {
                Ok(Sought::Taken(mut api)) => {
                    listener.told(&format!("{how} run {} of the SuperLink", api.run));
                    api.log(&format!("fedra serve {how} this run"));
                    return Ok(Some(Self { api }));
                }
                Ok(Sought::None(unchanged, told)) => {
                    (link, standing) = (Some(unchanged), Standing::Welcomed);
                    let told = told.map(|told| format!("{told}; ")).unwrap_or_default();
                    let app = match apps {
                        Apps::Ours => "the app of `fedra flower app`",
                        Apps::Any => "the app of the stock clients",
                    };
                    say(format!("{told}waiting for a run at {place}: `flwr run` with {app}"));
                }
                Err(error) => match error.fault(standing) {
                    Fault::Lost => say(format!("{error}; trying again")),
                    Fault::Refused => return Err(error),
                },
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The run's number at the SuperLink.
    pub const fn run(&self) -> u64 {
        self.api.run
    }

    /// Carries messages from now on.
    pub fn start(
        self,
        reception: Reception,
        admission: Admission,
    ) -> Result<Coordinator, NetError> {
        let place = format!(
            "{} (run {} of the SuperLink)",
            self.api.link.http.endpoint.authority, self.api.run
        );
        let (orders, received) = channel();
        let courier = MessagePump::new(self.api, reception, admission);
        let thread = std::thread::Builder::new()
            .name("fedra-flower".to_owned())
            .spawn(move || carry(courier, &received));
        let doing = "starting the coordinator".to_owned();
        let thread = thread.map_err(|source| NetError::System { doing, source })?;
        Ok(Coordinator { place, orders, _thread: JoinOnDrop(Some(thread)) })
    }
}

/// Carries messages until it is dropped.
#[derive(Debug)]
pub struct Coordinator {
    place: String,
    orders: Sender<(RunEnd, String)>,
    _thread: JoinOnDrop,
}

impl Carrier for Coordinator {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn close(&mut self, how: RunEnd, reason: &str) {
        let _gone = self.orders.send((how, reason.to_owned()));
    }
}

/// Errors since something went well.
#[derive(Debug, Default)]
struct Trouble {
    is_told: bool,
    /// How often the SuperLink has said that the run has finished, or that it does not know who asks.
    denials: u32,
    /// Since when it has answered, and never with what was asked for.
    refusing: Option<Instant>,
}

impl Trouble {
    /// Whether the trouble may pass: a SuperLink that cannot be reached may be back at any time, and an answer
    /// to a call that was damaged on its way is another one when the call is made again.
    fn passes(&mut self, error: &FlowerError) -> bool {
        if error.is_of_connection() {
            self.refusing = None;
            return true;
        }
        if error.is_run_over() || error.is_unauthenticated() {
            self.denials += 1;
        }
        let since = *self.refusing.get_or_insert_with(Instant::now);
        match error.fault(Standing::Welcomed) {
            Fault::Lost => self.denials < DENIALS && since.elapsed() < REFUSING,
            Fault::Refused => false,
        }
    }
}

/// Works until it is told how the run ended, or that this process goes without an end.
fn carry(mut courier: MessagePump, orders: &Receiver<(RunEnd, String)>) {
    let (mut wait, mut trouble) = (TICK, Trouble::default());
    loop {
        match orders.try_recv() {
            Ok((how, reason)) => return courier.api.finish(how, &reason),
            Err(TryRecvError::Disconnected) => return courier.api.log(STOPPED),
            Err(TryRecvError::Empty) => {}
        }
        match courier.work() {
            Ok(()) => (wait, trouble) = (TICK, Trouble::default()),
            Err(error) if trouble.passes(&error) => {
                if !std::mem::replace(&mut trouble.is_told, true) {
                    courier.reception.tell(&format!("{error}; trying again until it answers"));
                }
                wait = (wait * 2).min(LONGEST_WAIT);
            }
            Err(error) => {
                courier.sever(&error);
                // The fleet ends first.
                let _told = orders.recv();
                return;
            }
        }
        std::thread::sleep(wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_over_when_the_superlink_says_so_again_and_again() {
        let over = FlowerError::Denied {
            call: "/v1/runtime/get-nodes",
            status: 403,
            code: 2007,
            detail: "not running".to_owned(),
        };
        let mut trouble = Trouble::default();
        let passed = (0..5).take_while(|_| trouble.passes(&over)).count();
        assert_eq!(passed, DENIALS as usize - 1);
        let away = || FlowerError::Unreachable {
            superlink: "link".to_owned(),
            reason: "refused".to_owned(),
        };
        let mut trouble = Trouble::default();
        assert!((0..1000).all(|_| trouble.passes(&away())), "it may be back at any time");
        let damaged =
            FlowerError::Reply { call: "/v1/runtime/get-nodes", reason: "garbage".to_owned() };
        assert!(trouble.passes(&damaged), "the same call may do better");
        trouble.refusing = Instant::now().checked_sub(REFUSING);
        assert!(trouble.refusing.is_none() || !trouble.passes(&damaged), "not for ever");
    }
}
