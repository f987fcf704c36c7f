//! What goes down in a round, encoded once for all who lack the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use fedra_plan::{Layout, Round, Scope};
use fedra_wire::{Encoding, Header, Kind, ParamValues, encode_part};

use crate::error::EngineError;

/// Downloads of one round; who lacks the same gets the same bytes.
pub(crate) struct Downloads {
    kind: Kind,
    encoding: Encoding,
    encoded: BTreeMap<Scope, Arc<[u8]>>,
}

impl Downloads {
    pub(crate) const fn new(kind: Kind, encoding: Encoding) -> Self {
        Self { kind, encoding, encoded: BTreeMap::new() }
    }

    /// The payload of a part of the values; what the values lack goes as zeros.
    pub(crate) fn get(
        &mut self,
        (layout, round): (&Layout, Round),
        values: &ParamValues,
        scope: Scope,
    ) -> Result<Arc<[u8]>, EngineError> {
        if let Some(encoded) = self.encoded.get(&scope) {
            return Ok(Arc::clone(encoded));
        }
        let header = Header::download(self.kind, self.encoding, round);
        let encoded: Arc<[u8]> = encode_part(layout, &header, values, &scope)?.into();
        self.encoded.insert(scope, Arc::clone(&encoded));
        Ok(encoded)
    }
}
