//! Which stream is for what: one gRPC method for each kind of link, and the code that gRPC needs around
//! it, written by hand because there is little of it.
//!
//! Every method is a stream of frames both ways under a path such as `/fedra.v1.Fedra/Join`. A handler
//! is told who is at the other end before it reads the first frame.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fedra_client::ServerSegment;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::frame::{Frame, MOST_FRAME};
use crate::peer::{ClientTraffic, Peer};
use crate::processes::Processes;

/// Frames that come in.
pub type Inbound = Streaming<Frame>;

/// Where frames go out; a status ends the stream with an error that the other side is told.
pub type Outbound = mpsc::Sender<Result<Frame, Status>>;

/// Frames that may wait to be sent: few, so that whoever sends waits for the network.
pub(crate) const WAITING_FRAMES: usize = 2;

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves one kind of stream.
pub type Handler = Arc<dyn Fn(Peer, Inbound, Outbound) -> Running + Send + Sync>;

/// The methods of a server.
#[derive(Clone, Default)]
pub struct Routes {
    handlers: BTreeMap<&'static str, Handler>,
    /// What goes over clients' connections; a handler that knows whose a stream is notes it there.
    pub(crate) traffic: Arc<ClientTraffic>,
    /// The server's half of a cut model, which knows who waits for whom.
    pub(crate) middle: Option<Arc<ServerSegment>>,
    /// Which process speaks for each client; a handler that knows whose a stream is asks there.
    pub(crate) processes: Arc<Processes>,
}

impl Routes {
    /// The same with one more method; its path is `/fedra.v1.Fedra/` and its name.
    #[must_use]
    pub fn with<F>(
        mut self,
        path: &'static str,
        handler: impl Fn(Peer, Inbound, Outbound) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let boxed: Handler =
            Arc::new(move |peer, inbound, outbound| Box::pin(handler(peer, inbound, outbound)));
        self.handlers.insert(path, boxed);
        self
    }

    /// Answers one HTTP/2 request of a peer.
    pub(crate) async fn answer(
        self,
        peer: Peer,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<tonic::body::Body>, Infallible> {
        let path = request.uri().path();
        let Some(handler) = self.handlers.get(path).cloned() else {
            let known: Vec<&str> = self.handlers.keys().copied().collect();
            let told = format!("found the method {path}, expected one of {}", known.join(", "));
            return Ok(Status::unimplemented(told).into_http());
        };
        let codec = ProstCodec::<Frame, Frame>::default();
        let mut grpc = tonic::server::Grpc::new(codec).max_decoding_message_size(MOST_FRAME);
        Ok(grpc.streaming(Method { handler, peer }, request).await)
    }
}

/// One call of a method.
struct Method {
    handler: Handler,
    peer: Peer,
}

impl Service<Request<Inbound>> for Method {
    type Response = Response<ReceiverStream<Result<Frame, Status>>>;
    type Error = Status;
    type Future = std::future::Ready<Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Inbound>) -> Self::Future {
        let (outbound, frames) = mpsc::channel(WAITING_FRAMES);
        tokio::spawn((self.handler)(self.peer.clone(), request.into_inner(), outbound));
        std::future::ready(Ok(Response::new(ReceiverStream::new(frames))))
    }
}
