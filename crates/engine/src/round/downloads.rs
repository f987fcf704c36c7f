//! What goes down in a round, encoded once for all who lack the same.

use std::collections::BTreeMap;

use fedra_plan::{Layout, Round, Scope};
use fedra_wire::{Encoding, Header, Kind, ParamValues, encode_part};

use crate::error::EngineError;
use crate::protocol::fleet::SharedPayload;

/// Downloads of one round; who lacks the same gets the same bytes.
pub(crate) struct Downloads {
    kind: Kind,
    encoding: Encoding,
    encoded: BTreeMap<Scope, SharedPayload>,
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
    ) -> Result<SharedPayload, EngineError> {
        if let Some(encoded) = self.encoded.get(&scope) {
            return Ok(encoded.clone());
        }
        let header = Header::download(self.kind, self.encoding, round);
        let encoded: SharedPayload = encode_part(layout, &header, values, &scope)?.into();
        self.encoded.insert(scope, encoded.clone());
        Ok(encoded)
    }
}
