//! All that the server remembers between two rounds: plain data that the steps of a round read and
//! change, and that a checkpoint holds.

pub(crate) mod checkpoint;
pub(crate) mod history;
pub(crate) mod log_mark;
pub(crate) mod versions;

use std::path::PathBuf;
use std::sync::Arc;

use fedra_plan::{Layout, Round, Scope};
use fedra_seed::{SecretKey, Seed};
use fedra_wire::{ClientId, Encoding, Expectation, Header, Kind, ParamValues, decode, encode};

use self::history::ServerHistory;
use self::log_mark::LogMark;
use self::versions::ClientVersions;
use crate::error::EngineError;
use crate::own_parts::OwnParts;
use crate::privacy::account::Account;
use crate::protocol::fleet::PublicText;
use crate::protocol::server_segment::SegmentHost;
use crate::recipe::Recipe;
use crate::selection::Memory;
use fedra_wire::ServerState;

/// The server between two rounds.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) recipe: Recipe,
    pub(crate) layout: Layout,
    pub(crate) seed: Seed,
    /// The round that comes next, and so the number of those that are complete.
    pub(crate) round: Round,
    /// Without the base of the versions.
    pub(crate) model: ParamValues,
    pub(crate) server: ServerState,
    pub(crate) versions: ClientVersions,
    pub(crate) history: ServerHistory,
    pub(crate) memory: Memory,
    pub(crate) log: LogMark,
    /// Where early updates wait when there are many; no part of a checkpoint.
    pub(crate) spill: Option<PathBuf>,
    /// The guarantee, and what is spent of it.
    pub(crate) account: Option<Account>,
    /// Where the server's noise comes from; no part of a checkpoint.
    pub(crate) noise: SecretKey,
    /// Whether that key follows from the seed, so that a round made again draws the same noise.
    pub(crate) simulated: bool,
    /// What the server measures blocks on, where clients may not; no part of a checkpoint.
    pub(crate) public: Option<Arc<dyn PublicText>>,
    /// The server's half of a cut model; no part of a checkpoint, which holds all numbers anyway.
    pub(crate) middle: Option<Arc<dyn SegmentHost>>,
    /// What a program decides; no part of a checkpoint.
    pub(crate) parts: Option<Arc<dyn OwnParts>>,
}

impl State {
    /// Before the first round; the initial model has to be whole.
    pub(crate) fn new(
        recipe: Recipe,
        layout: Layout,
        initial: ParamValues,
        (base, seed): (Scope, Seed),
    ) -> Result<Self, EngineError> {
        initial.check(&layout)?;
        let expected = Scope::everything(&layout) - &base;
        if initial.scope() != expected {
            let (found, expected) = (initial.len(), expected.len());
            return Err(EngineError::InitialModel { found, expected });
        }
        recipe.fits(&layout)?;
        let versions = ClientVersions::over(recipe.start, base);
        let guarantee = recipe.privacy.as_ref().map(|privacy| privacy.guarantee);
        let account = guarantee.map(Account::new).transpose()?;
        Ok(Self {
            recipe,
            layout,
            seed,
            round: Round(0),
            model: initial,
            server: ServerState::default(),
            versions,
            history: ServerHistory::default(),
            memory: Memory::default(),
            log: LogMark::default(),
            spill: None,
            account,
            noise: SecretKey::simulated(seed.of("privacy")),
            simulated: true,
            public: None,
            middle: None,
            parts: None,
        })
    }

    /// The seed of a client's draws: whoever else takes part, it is the same.
    pub(crate) fn client_seed(&self, client: ClientId) -> Seed {
        self.seed.of("client").with(u64::from(self.round.0)).with(u64::from(client.0))
    }

    /// The global model as clients hold it: through the download encoding, where it was sent.
    pub(crate) fn as_received(&self) -> Result<ParamValues, EngineError> {
        let download = self.recipe.work.download;
        if download == Encoding::F32 {
            return Ok(self.model.clone());
        }
        let never_sent = self.versions.never_sent(&self.layout);
        let sent = self.model.subset(&(Scope::everything(&self.layout) - &never_sent));
        let header = Header::download(Kind::Values, download, self.round);
        let bytes = encode(&self.layout, &header, &sent, None)?;
        let (_, mut received) = decode(&bytes, &Expectation::of(&self.layout, &header))?;
        received.absorb(self.model.subset(&never_sent));
        Ok(received)
    }
}
