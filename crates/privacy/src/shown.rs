//! Epsilon in print: a bound that is rounded to nearest may no longer be one.
//!
//! Whatever shows an epsilon to people shows it by [`up`], or, where it is a bound from below, by [`down`].
//!
//! ```
//! use fedra_privacy::shown;
//!
//! assert_eq!(shown::up(1.82341, 3), "1.824");
//! assert_eq!(shown::up(0.07, 2), "0.07");
//! assert_eq!(shown::down(1.82399, 3), "1.823");
//! assert_eq!(shown::up(f64::INFINITY, 3), "infinite");
//! ```

/// The least number with so many places that is not below `epsilon`.
///
/// One that has none of these places keeps three digits, so that it cannot be taken for nothing, or for far more.
pub fn up(epsilon: f64, places: usize) -> String {
    let least = 10_f64.powi(-i32::try_from(places).unwrap_or(i32::MAX));
    if epsilon > 0.0 && epsilon < least {
        let nearest = format!("{epsilon:.2e}");
        // Half of a last digit is at most half a hundredth.
        let is_bound = nearest.parse().is_ok_and(|read: f64| read >= epsilon);
        return if is_bound { nearest } else { format!("{:.2e}", 1.0051 * epsilon) };
    }
    toward(epsilon, places, 1.0)
}

/// The largest number with so many places that is not above `epsilon`.
pub fn down(epsilon: f64, places: usize) -> String {
    toward(epsilon, places, -1.0)
}

fn toward(epsilon: f64, places: usize, sign: f64) -> String {
    if epsilon.is_infinite() && epsilon > 0.0 {
        return "infinite".to_owned();
    }
    // The decimal nearest to the number: exact, where a product with a power of ten is not.
    let nearest = format!("{:.places$}", epsilon + 0.0);
    let Ok(read) = nearest.parse::<f64>() else { return nearest };
    if sign * read >= sign * epsilon || epsilon.is_nan() {
        return nearest;
    }
    let unit = 10_f64.powi(i32::try_from(places).unwrap_or(i32::MAX));
    format!("{:.places$}", ((read * unit).round() + sign) / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_a_bound_and_the_nearest_one() {
        let mut number = 1e-7_f64;
        while number < 1e6 {
            for places in 0..5 {
                let unit = 10_f64.powf(-(places as f64));
                let (above, below) = (up(number, places), down(number, places));
                let (above, below): (f64, f64) = (above.parse().unwrap(), below.parse().unwrap());
                assert!(above >= number && below <= number, "{number} {places}: {below} {above}");
                assert!(above - number < unit * 1.001, "{number} {places}: {above}");
                assert!(number - below < unit * 1.001, "{number} {places}: {below}");
            }
            number *= 1.0137;
        }
    }

    #[test]
    fn a_decimal_is_shown_as_it_is() {
        for (number, shown) in [(0.07, "0.07"), (1.1, "1.10"), (3.0, "3.00"), (0.0, "0.00")] {
            assert_eq!((up(number, 2).as_str(), down(number, 2).as_str()), (shown, shown));
        }
        assert_eq!(up(-0.0, 1), "0.0");
        assert_eq!(up(2.99, 0), "3");
        assert_eq!([up(1e-12, 3), up(1.2341e-5, 3)], ["1.00e-12", "1.24e-5"]);
        assert_eq!(up(2.000_000_01, 4), "2.0001");
    }
}
