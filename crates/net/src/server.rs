//! The listening side: one place that accepts connections, settles TLS and knows who is there.
//!
//! ```text
//! accept -> first byte: TLS or not -> handshake, in time -> Peer -> HTTP/2 -> Routes
//! ```
//!
//! A connection that does not get through is told why where its protocol allows it, and costs the
//! others nothing: handshakes run beside each other, have a deadline, and there is a limit to
//! connections. A half-open connection is found by pings.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::capacity::USUAL_CONNECTIONS;
use crate::carrier::Carrier;
use crate::certs;
use crate::error::{NetError, broken_off, is_out_of_descriptors};
use crate::frame::CHUNK;
use crate::peer::{Peer, Traffic};
use crate::protocol::RunEnd;
use crate::runtime::Runtime;
use crate::service::Routes;
use crate::tls::{self, Party, ServerSecurity, TlsFailure};
use crate::watched::Watched;

/// A handshake that takes longer is given up.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often a silent peer is asked whether it is still there, and how long it may take to say so.
pub(crate) const PING: Duration = Duration::from_secs(20);
pub(crate) const PONG: Duration = Duration::from_secs(20);
/// Bytes that may be on their way in one stream, and in all streams of a connection.
pub(crate) const STREAM_WINDOW: u32 = 4 * CHUNK as u32;
pub(crate) const CONNECTION_WINDOW: u32 = 2 * STREAM_WINDOW;
/// A connection that could not be accepted is looked at again after this time.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// The alert with which TLS answers what is no TLS.
const UNEXPECTED_MESSAGE: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 10];
/// How long, and for how many bytes, a peer that is turned away is listened to.
const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELL_BYTES: u64 = 64 << 10;

/// Where and how to listen.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// With certificates, or in the clear.
    pub security: ServerSecurity,
    /// Most connections at a time; further ones wait to be accepted.
    pub connections: usize,
}

impl ServerOptions {
    /// With room for the usual number of connections.
    pub const fn new(listen: SocketAddr, security: ServerSecurity) -> Self {
        Self { listen, security, connections: USUAL_CONNECTIONS }
    }
}

/// A server that listens until it is dropped.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Listens, and answers with these routes. `told` learns of connections that did not get through.
    pub fn start(
        runtime: &Runtime,
        options: &ServerOptions,
        routes: Routes,
        told: impl Fn(SocketAddr, &str) + Send + Sync + 'static,
    ) -> Result<Self, NetError> {
        let acceptor = match &options.security {
            ServerSecurity::Tls(identity) => Some(TlsAcceptor::from(identity.server_config()?)),
            ServerSecurity::Plain => None,
        };
        let listen = options.listen;
        let bound = runtime.wait(async move { TcpListener::bind(listen).await })?;
        let listener = bound.map_err(|source| NetError::Listen { address: listen, source })?;
        let address =
            listener.local_addr().map_err(|source| NetError::Listen { address: listen, source })?;
        let (stop, stopped) = watch::channel(false);
        let room = Arc::new(Semaphore::new(options.connections));
        let accepting = Accepting { acceptor, routes, told: Arc::new(told), address, stopped };
        runtime.handle.spawn(accepting.run(listener, room));
        Ok(Self { address, stop })
    }
}

impl Carrier for Server {
    fn place(&self) -> String {
        self.address.to_string()
    }

    /// Sites have heard it on their streams.
    fn close(&mut self, _how: RunEnd, _reason: &str) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        // Streams that are open end first; nobody is listening any more when the last one has.
        let _nobody_left = self.stop.send(true);
    }
}

/// Is told of connections that did not get through.
type Told = dyn Fn(SocketAddr, &str) + Send + Sync;

#[derive(Clone)]
struct Accepting {
    acceptor: Option<TlsAcceptor>,
    routes: Routes,
    told: Arc<Told>,
    /// Where it listens.
    address: SocketAddr,
    stopped: watch::Receiver<bool>,
}

impl Accepting {
    async fn run(mut self, listener: TcpListener, room: Arc<Semaphore>) {
        let mut is_told = false;
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _told = self.stopped.changed() => return,
            };
            let (socket, address) = match accepted {
                Ok(accepted) => accepted,
                // Those who are connected lose nothing, and others may do better.
                Err(error) => {
                    if is_out_of_descriptors(&error) && !std::mem::replace(&mut is_told, true) {
                        (self.told)(self.address, &format!("it cannot be accepted yet: {error}"));
                    }
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            };
            is_told = false;
            let serving = self.clone();
            tokio::spawn(async move {
                if let Err(reason) = serving.serve(socket, address).await {
                    (serving.told)(address, &reason);
                }
                drop(permit);
            });
        }
    }

    /// One connection, from its first byte to its end.
    async fn serve(&self, socket: TcpStream, address: SocketAddr) -> Result<(), String> {
        // Small messages go at once: a settled answer should not wait for a full packet.
        let _as_is = socket.set_nodelay(true);
        let mut first = [0];
        let peeked = tokio::time::timeout(HANDSHAKE, socket.peek(&mut first)).await;
        let speaks_tls = match peeked {
            Err(_) => return Err("it sent nothing".to_owned()),
            Ok(Err(error)) => return Err(broken_off(&error)),
            Ok(Ok(0)) => return Ok(()),
            Ok(Ok(_)) => first[0] == TLS_HANDSHAKE,
        };
        let traffic = Arc::new(Traffic::default());
        let socket = Watched::new(socket, Arc::clone(&traffic));
        match &self.acceptor {
            None if speaks_tls => {
                turn_away(socket, &[]).await;
                Err("it uses TLS, and this port does not".to_owned())
            }
            None => {
                self.talk(socket, Peer { address: address.to_string(), names: None, traffic }).await
            }
            Some(_) if !speaks_tls => {
                turn_away(socket, &UNEXPECTED_MESSAGE).await;
                Err("it does not use TLS, and this port does".to_owned())
            }
            Some(acceptor) => {
                let handshake = acceptor.accept(socket).into_fallible();
                let tls = match tokio::time::timeout(HANDSHAKE, handshake).await {
                    Err(_) => {
                        return Err(format!("no TLS handshake within {} s", HANDSHAKE.as_secs()));
                    }
                    Ok(Err((error, socket))) => {
                        turn_away(socket, &[]).await;
                        return Err(match tls::failure(&error, Party::SERVER) {
                            Some(TlsFailure::Certificate(why) | TlsFailure::Garbled(why)) => why,
                            None => broken_off(&error),
                        });
                    }
                    Ok(Ok(tls)) => tls,
                };
                let shown = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let names = shown.map(certs::client_names).unwrap_or_default();
                let peer =
                    Peer { address: address.to_string(), names: Some(names.into()), traffic };
                self.talk(tls, peer).await
            }
        }
    }

    /// HTTP/2 until either side ends it.
    async fn talk<S>(&self, socket: S, peer: Peer) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let routes = self.routes.clone();
        let answer = service_fn(move |request| routes.clone().answer(peer.clone(), request));
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(64)
            .max_header_list_size(16 << 10)
            .max_send_buf_size(CHUNK)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .serve_connection(TokioIo::new(socket), answer);
        let mut connection = std::pin::pin!(connection);
        let mut stopped = self.stopped.clone();
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = told(&mut stopped) => None,
        };
        let ended = if let Some(ended) = ended {
            ended
        } else {
            connection.as_mut().graceful_shutdown();
            connection.await
        };
        // A peer that went away without a word is no event; one that never spoke HTTP/2 is.
        match ended {
            Err(error) if error.is_parse() || error.is_user() => Err(error.to_string()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Ends a connection so that the peer still reads what it was told: a socket that is closed while
/// bytes are unread is reset, and what was on its way to the peer is lost.
async fn turn_away(mut socket: impl AsyncRead + AsyncWrite + Unpin, last_words: &[u8]) {
    let farewell = async {
        socket.write_all(last_words).await?;
        socket.shutdown().await?;
        tokio::io::copy(&mut socket.take(FAREWELL_BYTES), &mut tokio::io::sink()).await
    };
    let _gone_or_told = tokio::time::timeout(FAREWELL, farewell).await;
}

/// Waits until the server is told to stop, or is gone.
async fn told(stopped: &mut watch::Receiver<bool>) {
    let _stopped_or_gone = stopped.wait_for(|stopped| *stopped).await.map(drop);
}
