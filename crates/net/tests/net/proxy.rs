//! A network that is worse than any real one: it stands between parties and delays, loses, repeats, cuts off
//! and damages what it carries.
//!
//! What happens to a direction of a connection follows from the seed, the connection's number and the bytes
//! that went before, never from the clock. Which party has which number does depend on it. The tests of both
//! networks use the same one.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fedra_seed::{Generator, Seed};

/// How long a damaged connection continues: where a length was damaged, nobody else would end it before the
/// next ping.
const DAMAGED: Duration = Duration::from_millis(150);

/// How bad it is.
#[derive(Clone, Copy, Debug)]
pub struct FaultPlan {
    /// Where faults are drawn from.
    pub seed: u64,
    /// Most bytes between two of them in one direction.
    pub apart: usize,
    /// After so many all is calm, so that what is tested comes to an end.
    pub count: usize,
}

impl FaultPlan {
    /// Nothing happens.
    pub const CALM: Self = Self { seed: 0, apart: usize::MAX, count: 0 };
}

/// What may happen to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// They come late.
    Delay,
    /// Some are lost, and what is behind them comes.
    Drop,
    /// Some come twice.
    Duplicate,
    /// Nothing comes behind them.
    Truncate,
    /// One bit is another one.
    Flip,
}

impl InjectedFault {
    pub const ALL: [Self; 5] =
        [Self::Delay, Self::Drop, Self::Duplicate, Self::Truncate, Self::Flip];
}

/// Carries bytes to a server.
pub struct Proxy {
    pub address: String,
    shared: Arc<Shared>,
}

struct Shared {
    server: Mutex<String>,
    faults: FaultPlan,
    happened: Mutex<Vec<InjectedFault>>,
    carried: Mutex<Vec<TcpStream>>,
    connections: AtomicUsize,
    is_down: AtomicBool,
    /// Whether an end that is lost is kept from the other one.
    is_quiet: AtomicBool,
}

/// Connections of which the server does not know yet that nobody is at their other end; it hears so when this
/// is dropped.
pub struct Unnoticed(Vec<TcpStream>);

impl Drop for Unnoticed {
    fn drop(&mut self) {
        for socket in &self.0 {
            let _gone = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Proxy {
    pub fn start(server: &str, faults: FaultPlan) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            server: Mutex::new(server.to_owned()),
            faults,
            happened: Mutex::default(),
            carried: Mutex::default(),
            connections: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            is_quiet: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                accepting.carry(near);
            }
        });
        Self { address, shared }
    }

    /// Cuts everything that it carries; how many connections there were.
    pub fn cut(&self) -> usize {
        let carried = std::mem::take(&mut *self.shared.carried.lock().unwrap());
        for socket in &carried {
            let _gone = socket.shutdown(Shutdown::Both);
        }
        carried.len() / 2
    }

    /// Sites lose their connections and get no other one until [`Proxy::down`] says so; the server does not notice.
    pub fn lose(&self) -> Unnoticed {
        self.shared.is_down.store(true, Ordering::SeqCst);
        self.shared.is_quiet.store(true, Ordering::SeqCst);
        let carried = std::mem::take(&mut *self.shared.carried.lock().unwrap());
        for near in carried.iter().step_by(2) {
            let _gone = near.shutdown(Shutdown::Both);
        }
        Unnoticed(carried.into_iter().skip(1).step_by(2).collect())
    }

    /// Behaves as a forwarder whose server is away: connections are accepted and ended at once.
    pub fn down(&self, is_down: bool) {
        self.shared.is_down.store(is_down, Ordering::SeqCst);
        self.shared.is_quiet.store(false, Ordering::SeqCst);
        if is_down {
            self.cut();
        }
    }

    /// Leads somewhere else from the next connection on.
    pub fn lead_to(&self, server: &str) {
        server.clone_into(&mut self.shared.server.lock().unwrap());
    }

    /// What has happened so far.
    pub fn happened(&self) -> Vec<InjectedFault> {
        self.shared.happened.lock().unwrap().clone()
    }
}

impl Shared {
    fn carry(self: &Arc<Self>, near: TcpStream) {
        if self.is_down.load(Ordering::SeqCst) {
            let _gone = near.shutdown(Shutdown::Both);
            return;
        }
        let server = self.server.lock().unwrap().clone();
        let Ok(far) = TcpStream::connect(server) else { return };
        let _as_is = near.set_nodelay(true).and_then(|()| far.set_nodelay(true));
        let number = self.connections.fetch_add(1, Ordering::SeqCst) as u64;
        self.carried.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
        let ways = [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)];
        for (direction, (from, to)) in (0..).zip(ways) {
            let seed = Seed(self.faults.seed).with(number).with(direction);
            let (shared, draws) = (Arc::clone(self), seed.of("mishaps").generator());
            std::thread::spawn(move || {
                let ends = [from.try_clone().unwrap(), to.try_clone().unwrap()];
                shared.pump((from, to), draws);
                let is_told = !shared.is_quiet.load(Ordering::SeqCst);
                for end in ends.into_iter().filter(|_| is_told) {
                    let _gone = end.shutdown(Shutdown::Both);
                }
            });
        }
    }

    /// One direction until its end.
    fn pump(&self, (mut from, mut to): (TcpStream, TcpStream), mut draws: Generator) {
        let mut left = self.next(&mut draws);
        let mut buffer = vec![0; 16 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let mut bytes = &buffer[..read];
            while bytes.len() > left {
                let (before, rest) = bytes.split_at(left);
                if to.write_all(before).is_err() {
                    return;
                }
                left = self.next(&mut draws);
                let Some(fault) = self.happens(&mut draws) else {
                    bytes = rest;
                    continue;
                };
                let some = 1 + draws.below(rest.len().min(64));
                bytes = match fault {
                    InjectedFault::Delay => {
                        std::thread::sleep(Duration::from_millis(5 + draws.below(40) as u64));
                        rest
                    }
                    InjectedFault::Truncate => return,
                    InjectedFault::Drop => damaged(&from, &to, &rest[some..]),
                    InjectedFault::Duplicate => {
                        if to.write_all(&rest[..some]).is_err() {
                            return;
                        }
                        damaged(&from, &to, rest)
                    }
                    InjectedFault::Flip => {
                        let flipped = rest[0] ^ (1 << draws.below(8));
                        if to.write_all(&[flipped]).is_err() {
                            return;
                        }
                        damaged(&from, &to, &rest[1..])
                    }
                };
            }
            left -= bytes.len();
            if to.write_all(bytes).is_err() {
                return;
            }
        }
    }

    fn next(&self, draws: &mut Generator) -> usize {
        draws.below(self.faults.apart.min(1 << 40))
    }

    /// What happens now, if anything still does.
    fn happens(&self, draws: &mut Generator) -> Option<InjectedFault> {
        let mut happened = self.happened.lock().unwrap();
        if happened.len() >= self.faults.count {
            return None;
        }
        // Each kind in its turn at first, so that none is missing; then as it comes.
        let kind = match happened.len() {
            few if few < InjectedFault::ALL.len() => few,
            _ => draws.below(InjectedFault::ALL.len()),
        };
        happened.push(InjectedFault::ALL[kind]);
        Some(InjectedFault::ALL[kind])
    }
}

/// A connection whose bytes are wrong from here on ends soon; they go on their way all the same.
fn damaged<'b>(from: &TcpStream, to: &TcpStream, rest: &'b [u8]) -> &'b [u8] {
    let ends = [from.try_clone().unwrap(), to.try_clone().unwrap()];
    std::thread::spawn(move || {
        std::thread::sleep(DAMAGED);
        for end in ends {
            let _gone = end.shutdown(Shutdown::Both);
        }
    });
    rest
}
