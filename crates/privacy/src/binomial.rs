//! Terms and tails of the binomial distribution: batches that are cut at a cap, guesses that are right.

/// The chance of `least` or more heads in `coins` throws.
pub fn tail(least: u64, coins: u64, chance: f64) -> f64 {
    if least == 0 {
        return 1.0;
    }
    if least > coins {
        return 0.0;
    }
    if chance >= 1.0 {
        return 1.0;
    }
    let mean = coins as f64 * chance;
    // Each side is summed from its largest term outwards, so nothing cancels.
    if (least as f64) < mean {
        1.0 - below(least, coins, chance)
    } else {
        above(least, coins, chance)
    }
}

/// The chance of exactly so many heads.
pub fn term(heads: u64, coins: u64, chance: f64) -> f64 {
    if heads > coins {
        return 0.0;
    }
    if chance <= 0.0 || chance >= 1.0 {
        let certain = if chance <= 0.0 { 0 } else { coins };
        return if heads == certain { 1.0 } else { 0.0 };
    }
    log_term(heads, coins, chance).exp()
}

/// Terms of at most this share of the sum end it.
const NEGLIGIBLE: f64 = 1e-18;

fn above(least: u64, coins: u64, chance: f64) -> f64 {
    let odds = chance / (1.0 - chance);
    let ratio = |heads: u64| (coins - heads) as f64 / (heads + 1) as f64 * odds;
    summed(log_term(least, coins, chance).exp(), (least..=coins).map(ratio))
}

fn below(least: u64, coins: u64, chance: f64) -> f64 {
    let odds = (1.0 - chance) / chance;
    let ratio = |heads: u64| heads as f64 / (coins - heads + 1) as f64 * odds;
    summed(log_term(least - 1, coins, chance).exp(), (0..least).rev().map(ratio))
}

/// A term and those after it, each this many times the one before.
fn summed(mut term: f64, ratios: impl Iterator<Item = f64>) -> f64 {
    let mut sum = 0.0;
    for ratio in ratios {
        sum += term;
        term *= ratio;
        if term <= sum * NEGLIGIBLE {
            break;
        }
    }
    sum
}

fn log_term(heads: u64, coins: u64, chance: f64) -> f64 {
    let (k, n) = (heads as f64, coins as f64);
    log_choose(n, k) + k * chance.ln() + (n - k) * (-chance).ln_1p()
}

/// The logarithm of the number of ways to choose `k` of `n`.
pub fn log_choose(n: f64, k: f64) -> f64 {
    libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_of_few_coins_are_exact() {
        assert!((tail(2, 3, 0.5) - 0.5).abs() < 1e-14);
        assert!((tail(3, 3, 0.1) - 0.001).abs() < 1e-15);
        assert_eq!(tail(0, 3, 0.1), 1.0);
        assert_eq!(tail(4, 3, 0.1), 0.0);
        assert_eq!(tail(2, 3, 1.0), 1.0);
        assert!((term(2, 3, 0.5) - 0.375).abs() < 1e-14);
        assert_eq!([term(4, 3, 0.5), term(0, 3, 0.0), term(3, 3, 1.0)], [0.0, 1.0, 1.0]);
    }

    #[test]
    fn tails_of_many_coins_agree_with_the_reference() {
        for (least, coins, chance, expected) in
            [(150, 9_999, 0.01, 1.648_388_505_587_5e-6), (100, 9_999, 0.01, 0.513_098_653_659)]
        {
            let found = tail(least, coins, chance);
            assert!((found / expected - 1.0).abs() < 1e-9, "found {found}");
        }
    }
}
