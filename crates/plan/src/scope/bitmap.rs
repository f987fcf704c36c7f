//! A scope as one bit per parameter of a layout both ends know.
//!
//! Bit `i % 8` of byte `i / 8`, counted from the lowest, stands for the i-th parameter in id order.
//! Each scope has exactly one bitmap, so wrong lengths and set padding bits are refused.

use super::Scope;
use crate::error::PlanError;
use crate::layout::Layout;

impl Scope {
    /// The bitmap of this scope; refuses a scope that the layout does not hold.
    pub fn bitmap(&self, layout: &Layout) -> Result<Vec<u8>, PlanError> {
        self.check(layout)?;
        let mut bytes = vec![0; layout.len().div_ceil(8)];
        for (position, id) in layout.ids().enumerate() {
            bytes[position / 8] |= u8::from(self.contains(id)) << (position % 8);
        }
        Ok(bytes)
    }

    /// The scope a bitmap stands for.
    pub fn from_bitmap(layout: &Layout, bytes: &[u8]) -> Result<Self, PlanError> {
        let expected = layout.len().div_ceil(8);
        if bytes.len() != expected {
            let found = format!("a scope bitmap of {} bytes was found", bytes.len());
            return Err(PlanError::unusable(found, format!("{expected} bytes")));
        }
        let used = layout.len() % 8;
        if let Some(&found) = bytes.last()
            && used != 0
            && found >> used != 0
        {
            let found = format!("the last byte {found:#010b} of a scope bitmap sets padding");
            return Err(PlanError::unusable(found, format!("only {used} bits")));
        }
        let set = |position: usize| bytes[position / 8] >> (position % 8) & 1 == 1;
        let chosen = layout.ids().enumerate().filter(|(position, _)| set(*position));
        Ok(chosen.map(|(_, id)| id).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::id;
    use crate::shape::Shape;

    /// Ten parameters: one full byte and two bits.
    fn ten() -> Layout {
        let roles = ["query", "key", "value", "output", "up"];
        let ids = roles
            .iter()
            .flat_map(|role| ["weight", "bias"].map(|part| id(&format!("block.0.{role}.{part}"))));
        Layout::new(ids.map(|id| (id, Shape::vector(1)))).expect("legal")
    }

    #[test]
    fn the_first_parameter_is_the_lowest_bit_of_the_first_byte() {
        let layout = ten();
        let scope = Scope::from_iter([
            id("block.0.query.weight"),
            id("block.0.key.weight"),
            id("block.0.up.bias"),
        ]);
        assert_eq!(scope.bitmap(&layout), Ok(vec![0b0000_0101, 0b0000_0010]));
    }

    #[test]
    fn another_length_or_a_set_padding_bit_is_refused() {
        let layout = ten();
        for found in [0, 1, 3] {
            let refused = Scope::from_bitmap(&layout, &vec![0; found]).expect_err("another length");
            let said = format!("a scope bitmap of {found} bytes was found, expected 2 bytes");
            assert_eq!(refused.to_string(), said);
        }
        let refused = Scope::from_bitmap(&layout, &[0, 0b0000_0100]);
        assert_eq!(
            refused.expect_err("padding").to_string(),
            "the last byte 0b00000100 of a scope bitmap sets padding, expected only 2 bits"
        );
    }

    #[test]
    fn a_stray_parameter_has_no_bit() {
        let scope = Scope::from_iter([id("head.pooler.bias")]);
        assert!(scope.bitmap(&ten()).is_err());
    }
}
