//! How many updates a round needs: `min_arrivals = 3` or `min_arrivals = 0.5`.
//!
//! A whole number is a count and a number with a decimal point is a share of the cohort, so `1` and
//! `1.0` mean different things: one client, and everybody. What happens below it is the business of
//! [`attempt`](crate::attempt).

use serde::{Deserialize, Serialize};

use crate::cohort::sampler::Sampler;
use crate::error::{EngineError, refuse};
use crate::number;

const KEY: &str = "federation.min_arrivals";
/// `0.55 * 100` is a little more than 55 in binary and still means 55 clients.
const ROUNDING: f64 = 1e-9;

/// The fewest updates with which a round counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a whole number of clients, or a share of the cohort above 0 and at most 1 \
                 with a decimal point"
)]
pub enum MinArrivals {
    /// So many clients. 0 lets a round pass without anybody, which is what privacy accountants
    /// assume of an empty Poisson draw.
    Count(u32),
    /// This share of the cohort, rounded up; at least one client.
    Share(#[serde(deserialize_with = "share")] f64),
}

impl Default for MinArrivals {
    fn default() -> Self {
        Self::Count(1)
    }
}

impl MinArrivals {
    /// The fewest updates that a cohort of so many clients has to bring.
    pub fn of(self, cohort: usize) -> usize {
        match self {
            Self::Count(count) => count as usize,
            Self::Share(share) => ((share * cohort as f64 - ROUNDING).ceil() as usize).max(1),
        }
    }

    /// Whether it is the usual one, which no file has to say.
    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses what no cohort of so many clients can bring, also if a round closes early.
    pub(crate) fn check(
        self,
        (sampler, clients): (Sampler, usize),
        close_with: Option<u32>,
    ) -> Result<(), EngineError> {
        if let Self::Share(share) = self
            && !(share > 0.0 && share <= 1.0)
        {
            let expected = "a share above 0 and at most 1, or a whole number of clients";
            return refuse(KEY, share, expected);
        }
        let (needed, most) = (self.of(sampler.most(clients)), sampler.most(clients));
        if needed > most {
            let found = format!("{needed} of at most {most} clients in a round");
            let expected = "no more clients than can take part in a round";
            return refuse(KEY, found, expected);
        }
        // Without the number of clients, a share of them says nothing yet.
        let is_known = clients != usize::MAX || matches!(self, Self::Count(_));
        if let Some(close_with) = close_with
            && is_known
            && needed > close_with as usize
        {
            let found = format!("{close_with} where federation.min_arrivals asks for {needed}");
            let expected = "at least as many answers as a round needs";
            return refuse("conditions.close_with", found, expected);
        }
        Ok(())
    }
}

fn share<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    number::within(deserializer, |share| share > 0.0 && share <= 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_a_count_and_a_decimal_point_makes_a_share() {
        let read = |text: &str| serde_json::from_str::<MinArrivals>(text).ok();
        assert_eq!(read("3"), Some(MinArrivals::Count(3)));
        assert_eq!(read("0"), Some(MinArrivals::Count(0)));
        assert_eq!(read("0.5"), Some(MinArrivals::Share(0.5)));
        assert_eq!(read("1.0"), Some(MinArrivals::Share(1.0)));
        for bad in ["-1", "0.0", "1.5", "-0.5", r#""half""#, "5000000000"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        for text in ["3", "0.5", "1.0"] {
            let again = serde_json::to_string(&read(text).expect(text)).expect("a number");
            assert_eq!(again, text);
        }
    }

    #[test]
    fn a_share_is_rounded_up_and_never_nobody() {
        let needed = |share, cohort| MinArrivals::Share(share).of(cohort);
        assert_eq!((needed(0.5, 8), needed(0.5, 9), needed(1.0, 8)), (4, 5, 8));
        assert_eq!((needed(0.1, 3), needed(0.1, 0)), (1, 1));
        for (share, hundredths) in [(0.55, 55), (0.07, 7), (0.29, 29), (0.3, 30)] {
            assert_eq!(needed(share, 100), hundredths);
        }
    }

    #[test]
    fn what_no_round_can_bring_is_refused() {
        let check = |least: MinArrivals, sampler, close_with| least.check((sampler, 8), close_with);
        assert!(check(MinArrivals::Count(8), Sampler::All, None).is_ok());
        assert!(check(MinArrivals::Count(9), Sampler::All, None).is_err());
        assert!(check(MinArrivals::Count(5), Sampler::Uniform(4), None).is_err());
        assert!(check(MinArrivals::Share(1.0), Sampler::Uniform(4), Some(4)).is_ok());
        assert!(check(MinArrivals::Share(1.0), Sampler::Uniform(4), Some(3)).is_err());
        assert!(check(MinArrivals::Count(3), Sampler::All, Some(2)).is_err());
        assert!(check(MinArrivals::Share(f64::NAN), Sampler::All, None).is_err());
        let unknown = (Sampler::All, usize::MAX);
        assert!(MinArrivals::Share(0.5).check(unknown, Some(2)).is_ok());
        assert!(MinArrivals::Count(3).check(unknown, Some(2)).is_err());
    }
}
