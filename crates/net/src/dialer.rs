//! The calling side: one place that makes connections to a server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::error::{NetError, broken_off, is_out_of_descriptors};
use crate::frame::{Frame, Limits, MOST_FRAME};
use crate::link::Link;
use crate::peer::Traffic;
use crate::runtime::Runtime;
use crate::server::{CONNECTION_WINDOW, PING, PONG, STREAM_WINDOW};
use crate::service::WAITING_FRAMES;
use crate::site::fresh_number;
use crate::tls::{self, ClientSecurity, Party, TlsFailure};
use crate::watched::{Failure, Watched};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);

/// Makes connections to one server.
#[derive(Clone, Debug)]
pub struct Dialer {
    /// The server's address as it was given.
    pub server: String,
    host: ServerName<'static>,
    tls: Option<Arc<ClientConfig>>,
    /// The number of this process, which all of its streams carry.
    pub(crate) process: u64,
    /// How long nobody may answer before a site leaves.
    pub patience: Option<Duration>,
}

impl Dialer {
    /// For a server at `HOST:PORT`; reads the certificates.
    pub fn new(server: &str, security: &ClientSecurity) -> Result<Self, NetError> {
        let expected = "HOST:PORT, such as server.example:7400 or 127.0.0.1:7400";
        let wrong = || NetError::Address { found: server.to_owned(), expected };
        let (host, port) = server.rsplit_once(':').ok_or_else(wrong)?;
        port.parse::<u16>().map_err(|_| wrong())?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = ServerName::try_from(host.to_owned()).map_err(|_| wrong())?;
        let tls = match security {
            ClientSecurity::Tls(identity) => Some(identity.client_config()?),
            ClientSecurity::Plain => None,
        };
        let (server, process) = (server.to_owned(), fresh_number());
        Ok(Self { server, host, tls, process, patience: None })
    }

    /// Connects and opens one stream.
    pub fn open(
        &self,
        runtime: &Runtime,
        path: &'static str,
        limits: Limits,
    ) -> Result<Link, NetError> {
        let (dialer, handle) = (self.clone(), runtime.handle.clone());
        runtime.wait(async move {
            let opening = dialer.open_stream(path, limits, handle);
            tokio::time::timeout(CONNECT, opening)
                .await
                .unwrap_or_else(|_| Err(dialer.unreachable("it did not answer in time")))
        })?
    }

    async fn open_stream(
        &self,
        path: &'static str,
        limits: Limits,
        handle: tokio::runtime::Handle,
    ) -> Result<Link, NetError> {
        let traffic = Arc::new(Traffic::default());
        let (channel, failure) = self.connect(Arc::clone(&traffic)).await?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let origin = format!("{scheme}://{}", self.server);
        let origin = origin.parse().map_err(|_| self.unreachable("its address is not a URI"))?;
        let mut grpc =
            tonic::client::Grpc::with_origin(channel, origin).max_decoding_message_size(MOST_FRAME);
        let (outbound, frames) = mpsc::channel(WAITING_FRAMES);
        let frames = ReceiverStream::new(frames).filter_map(Result::ok);
        let codec = ProstCodec::<Frame, Frame>::default();
        let path = http::uri::PathAndQuery::from_static(path);
        let opened = grpc.streaming(tonic::Request::new(frames), path, codec).await;
        let (server, tls) = (self.server.clone(), self.tls.is_some());
        let explain = move |status: &tonic::Status| explained(&server, tls, &failure, status);
        let inbound = opened.map_err(|status| explain(&status))?.into_inner();
        Ok(Link::over(handle, (inbound, outbound), limits, traffic, explain))
    }

    /// TCP, TLS where that is asked for, HTTP/2.
    async fn connect(&self, traffic: Arc<Traffic>) -> Result<(Channel, Failure), NetError> {
        let socket = TcpStream::connect(&self.server).await.map_err(|source| {
            if is_out_of_descriptors(&source) {
                // It is this machine that lacks something, and a new process has it.
                return NetError::System { doing: format!("dialling {}", self.server), source };
            }
            self.unreachable(&source.to_string())
        })?;
        let _as_is = socket.set_nodelay(true);
        let mut socket = Watched::new(socket, traffic);
        socket.expects_http2 = self.tls.is_none();
        let Some(config) = &self.tls else { return self.speak(socket).await };
        let connector = TlsConnector::from(Arc::clone(config));
        let tls =
            connector.connect(self.host.clone(), socket).await.map_err(
                |error| match tls::failure(&error, Party::CLIENT) {
                    Some(failure) => of_tls(&self.server, failure),
                    None if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                        let reason =
                            "it closed the connection before TLS began: does that port use TLS?";
                        let (server, reason) = (self.server.clone(), reason.to_owned());
                        NetError::Garbled { server, reason }
                    }
                    None => self.unreachable(&broken_off(&error)),
                },
            )?;
        self.speak(Watched::new(tls, Arc::default())).await
    }

    async fn speak<S>(&self, socket: Watched<S>) -> Result<(Channel, Failure), NetError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let failure = socket.failure.clone();
        let made = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(crate::frame::CHUNK)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .handshake(TokioIo::new(socket))
            .await;
        let (sender, connection) = made.map_err(|error| self.unreachable(&error.to_string()))?;
        // Its end shows in the streams on it.
        tokio::spawn(async move { drop(connection.await) });
        Ok((Channel(sender), failure))
    }

    fn unreachable(&self, reason: &str) -> NetError {
        NetError::Unreachable { server: self.server.clone(), reason: reason.to_owned() }
    }
}

/// What a failed stream means: what the socket said says more than what became of it above.
fn explained(server: &str, tls: bool, failure: &Failure, status: &tonic::Status) -> NetError {
    let Some(error) = failure.take() else { return NetError::of_status(status) };
    match tls::failure(&error, Party::CLIENT) {
        Some(failure) => of_tls(server, failure),
        None if !tls && error.kind() == std::io::ErrorKind::InvalidData => {
            NetError::Garbled { server: server.to_owned(), reason: error.to_string() }
        }
        None => NetError::Lost(broken_off(&error)),
    }
}

fn of_tls(server: &str, failure: TlsFailure) -> NetError {
    let server = server.to_owned();
    match failure {
        TlsFailure::Certificate(reason) => NetError::Distrusted { server, reason },
        TlsFailure::Garbled(reason) => NetError::Garbled { server, reason },
    }
}

/// A connection as gRPC uses it.
struct Channel(SendRequest<Body>);

impl Service<http::Request<Body>> for Channel {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// Whether an address is of this machine alone.
pub fn is_loopback(server: &str) -> bool {
    if let Ok(address) = server.parse::<SocketAddr>() {
        return address.ip().to_canonical().is_loopback();
    }
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}
