//! Numbers as bytes and back: f32, little endian.

/// The bytes of some numbers.
pub fn to_bytes(numbers: &[f32]) -> Vec<u8> {
    let words: Vec<[u8; 4]> = numbers.iter().map(|number| number.to_le_bytes()).collect();
    words.into_flattened()
}

/// The numbers of some bytes; `None` where the last one is cut short.
pub fn from_bytes(bytes: &[u8]) -> Option<Vec<f32>> {
    let (words, rest) = bytes.as_chunks();
    rest.is_empty().then(|| words.iter().map(|word| f32::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_from_their_bytes_and_a_cut_one_does_not() {
        let numbers = [1.5_f32, -0.0, f32::INFINITY];
        let bytes = to_bytes(&numbers);
        assert_eq!(bytes[..4], 1.5_f32.to_le_bytes());
        let back = from_bytes(&bytes).unwrap();
        assert!(back.iter().zip(&numbers).all(|(one, other)| one.to_bits() == other.to_bits()));
        assert_eq!((back.len(), from_bytes(&bytes[..11])), (3, None));
    }
}
