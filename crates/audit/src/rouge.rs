//! ROUGE-L of two texts: the F1 of their longest common subsequence of words.

/// From 0, no word in common, to 1, the same words in the same order.
pub(crate) fn rouge_l(truth: &str, found: &str) -> f64 {
    let words = |text: &str| -> Vec<String> {
        text.split(|letter: char| !letter.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect()
    };
    let (truth, found) = (words(truth), words(found));
    if truth.is_empty() || found.is_empty() {
        return f64::from(u8::from(truth.is_empty() && found.is_empty()));
    }
    let mut lengths = vec![0_usize; found.len() + 1];
    for word in &truth {
        let mut diagonal = 0;
        for (place, other) in found.iter().enumerate() {
            let above = lengths[place + 1];
            lengths[place + 1] =
                if word == other { diagonal + 1 } else { above.max(lengths[place]) };
            diagonal = above;
        }
    }
    2.0 * lengths[found.len()] as f64 / (truth.len() + found.len()) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_order_count_whatever_stands_between_them() {
        assert_eq!(rouge_l("the cat sat", "The cat, sat."), 1.0);
        assert_eq!(rouge_l("police killed the gunman", "police kill the gunman"), 0.75);
        assert_eq!(rouge_l("a b c d", "d c b a"), 0.25);
        assert_eq!(rouge_l("a b", "x y"), 0.0);
        assert_eq!([rouge_l("", ""), rouge_l("a", "")], [1.0, 0.0]);
    }
}
