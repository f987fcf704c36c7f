//! Listens, reads whole requests within their bounds, and carries answers back.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, EXPECT, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};

use super::access::{self, ApiKey};
use super::body::{self, Answer, Unread};
use super::patient::Patient;
use super::responder::{Responder, whole};
use crate::error::{NetError, is_out_of_descriptors};
use crate::runtime::Runtime;

/// A request's head, or the next one's on the same connection, has to come within this time.
const HEAD: Duration = Duration::from_secs(10);
/// Most bytes of a head.
const LONGEST_HEAD: usize = 16 << 10;
/// A body has to come within this time.
const BODY: Duration = Duration::from_secs(30);
/// A client that takes no byte of its answer for so long is given up.
const DEAF: Duration = Duration::from_secs(30);
/// How much longer than it may be a body is read to its end, so that its sender sees the refusal.
const PATIENCE: u64 = 32;
/// A connection that could not be accepted is looked at again after this time.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Where and how to listen.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// The address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What clients have to show; without it, only programs of this machine are answered.
    pub key: Option<ApiKey>,
    /// Paths that need no key.
    pub open: &'static [&'static str],
    /// Most connections at a time; further ones wait to be accepted.
    pub connections: usize,
    /// Most bytes of a body.
    pub largest_body: usize,
    /// A refusal in JSON, out of the status and a sentence.
    pub refusal: fn(u16, &str) -> String,
}

/// A request whose body is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// `GET`, `POST` and so on.
    pub method: String,
    /// The path as it was sent, without a query.
    pub path: String,
    /// The body.
    pub body: Vec<u8>,
}

/// What is done about a request. It is called on the thread that serves everybody, so whatever takes time happens on
/// another one.
pub type HttpHandler = dyn Fn(HttpRequest, Responder) + Send + Sync;

/// A server that listens until it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    /// Where it listens.
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    room: Arc<Semaphore>,
    connections: u32,
}

impl HttpServer {
    /// Listens, and has requests answered by a handler.
    pub fn start(
        runtime: &Runtime,
        options: HttpOptions,
        handler: impl Fn(HttpRequest, Responder) + Send + Sync + 'static,
    ) -> Result<Self, NetError> {
        let listen = options.listen;
        let failed = |source| NetError::Listen { address: listen, source };
        let bound = runtime.wait(async move { TcpListener::bind(listen).await })?;
        let listener = bound.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let connections = u32::try_from(options.connections.max(1)).unwrap_or(u32::MAX);
        let room = Arc::new(Semaphore::new(connections as usize));
        let serving = Serving { options: Arc::new(options), handler: Arc::new(handler), stopped };
        runtime.handle.spawn(serving.accept(listener, Arc::clone(&room)));
        Ok(Self { address, stop, room, connections })
    }

    /// Accepts nobody any more, and waits until answers that are there have been read, but not longer than this.
    pub fn close(self, runtime: &Runtime, patience: Duration) {
        let _nobody_left = self.stop.send(true);
        let (room, all) = (Arc::clone(&self.room), self.connections);
        let _read_or_not = runtime.wait(async move {
            let _everybody_left = tokio::time::timeout(patience, room.acquire_many(all)).await;
        });
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _nobody_left = self.stop.send(true);
    }
}

#[derive(Clone)]
struct Serving {
    options: Arc<HttpOptions>,
    handler: Arc<HttpHandler>,
    stopped: watch::Receiver<bool>,
}

impl Serving {
    async fn accept(mut self, listener: TcpListener, room: Arc<Semaphore>) {
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _told = self.stopped.changed() => return,
            };
            match accepted {
                Ok((socket, _)) => {
                    let serving = self.clone();
                    tokio::spawn(async move {
                        serving.connection(socket).await;
                        drop(permit);
                    });
                }
                // Those who are connected lose nothing, and others may do better.
                Err(error) => {
                    let seconds = if is_out_of_descriptors(&error) { 20 } else { 1 };
                    tokio::time::sleep(ACCEPT_AGAIN * seconds).await;
                }
            }
        }
    }

    /// Requests of one connection, one after another.
    async fn connection(&self, socket: TcpStream) {
        // A token is a few bytes, and should not wait for others.
        let _as_is = socket.set_nodelay(true);
        let serving = self.clone();
        let answer = service_fn(move |request| {
            let serving = serving.clone();
            async move { Ok::<_, Infallible>(serving.answer(request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(LONGEST_HEAD)
            .serve_connection(TokioIo::new(Patient::new(socket, DEAF)), answer);
        let mut connection = std::pin::pin!(connection);
        let mut stopped = self.stopped.clone();
        let is_over = tokio::select! {
            _how = connection.as_mut() => true,
            _told = stopped.wait_for(|stopped| *stopped) => false,
        };
        if !is_over {
            connection.as_mut().graceful_shutdown();
            // A client that went away is no event.
            let _how = connection.await;
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let (parts, mut body) = request.into_parts();
        let options = &self.options;
        let path = parts.uri.path();
        let is_open = options.open.contains(&path);
        if let Err((status, told)) = access::check(&parts, options.key.as_ref(), is_open) {
            return self.refused(status, &told);
        }
        let most = options.largest_body;
        let declared = body.size_hint().lower();
        let read = if declared > most as u64 {
            Ok(Err(Unread::TooLong))
        } else {
            tokio::time::timeout(BODY, body::read(&mut body, most)).await
        };
        let body = match read {
            Ok(Ok(read)) => read,
            Ok(Err(Unread::TooLong)) => {
                // Who asked before sending has sent nothing.
                if !parts.headers.contains_key(EXPECT) {
                    let unwanted = body::discard(&mut body, most as u64 * PATIENCE);
                    let _gone = tokio::time::timeout(BODY, unwanted).await;
                }
                let told = format!("the body has more than {most} bytes, the most that is read");
                return self.refused(StatusCode::PAYLOAD_TOO_LARGE, &told);
            }
            Ok(Err(Unread::Broken)) => {
                return self.refused(StatusCode::BAD_REQUEST, "the body ended before it was whole");
            }
            Err(_late) => {
                let told = format!("the body did not come within {} s", BODY.as_secs());
                return self.refused(StatusCode::REQUEST_TIMEOUT, &told);
            }
        };
        let request = HttpRequest { method: parts.method.to_string(), path: path.to_owned(), body };
        let (sender, receiver) = oneshot::channel();
        (self.handler)(request, Responder(sender));
        let answered = receiver.await;
        answered.unwrap_or_else(|_| {
            self.refused(StatusCode::INTERNAL_SERVER_ERROR, "the answer was broken off")
        })
    }

    /// A refusal, after which the connection ends: what the client still sends is no request.
    fn refused(&self, status: StatusCode, told: &str) -> Response<Answer> {
        let mut answer = whole(status.as_u16(), (self.options.refusal)(status.as_u16(), told));
        let headers = answer.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}
