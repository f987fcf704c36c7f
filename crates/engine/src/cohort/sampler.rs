//! Who takes part in a round.
//!
//! The draw depends on the experiment's seed and the round alone, so that a resumed run draws the
//! same cohorts. In a file: `"all"`, `{ uniform = 4 }`, `{ poisson = 0.5 }`.

use fedra_plan::Round;
use fedra_seed::Seed;
use fedra_wire::ClientId;
use serde::{Deserialize, Serialize};

use crate::error::{EngineError, refuse};

/// How a cohort is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "snake_case",
    expecting = "\"all\", { uniform = 4 } (this many clients) or { poisson = 0.5 } (each with this probability)"
)]
pub enum Sampler {
    /// Every client.
    #[default]
    All,
    /// So many clients, each set of them equally likely.
    Uniform(u32),
    /// Each client on its own with this probability; the cohort may be empty. This is the sampling
    /// that privacy accountants assume.
    Poisson(f64),
}

impl Sampler {
    /// How many of so many clients are drawn, about.
    pub fn about(self, clients: usize) -> usize {
        match self {
            Self::All => clients,
            Self::Uniform(count) => clients.min(count as usize),
            Self::Poisson(probability) => (probability * clients as f64).round() as usize,
        }
    }

    /// Refuses to draw more clients than there are, none, or with a probability that is none.
    pub fn check(self, clients: usize) -> Result<(), EngineError> {
        let key = "federation.sample";
        match self {
            Self::Uniform(count) if count == 0 || count as usize > clients => refuse(
                key,
                format!("{{ uniform = {count} }} of {clients} clients"),
                "at least one client and no more than there are",
            ),
            Self::Poisson(probability) if !(probability > 0.0 && probability <= 1.0) => {
                refuse(key, format!("{{ poisson = {probability} }}"), "above 0 and at most 1")
            }
            Self::All | Self::Uniform(_) | Self::Poisson(_) => Ok(()),
        }
    }

    /// The most clients that a cohort can have, out of so many.
    pub(crate) fn most(self, clients: usize) -> usize {
        match self {
            Self::All | Self::Poisson(_) => clients,
            Self::Uniform(count) => clients.min(count as usize),
        }
    }

    /// The cohort of a round, out of clients in ascending order; in ascending order too.
    pub fn draw(self, experiment: Seed, round: Round, clients: &[ClientId]) -> Vec<ClientId> {
        let mut generator = experiment.of("cohort").with(u64::from(round.0)).generator();
        match self {
            Self::All => clients.to_vec(),
            Self::Uniform(count) => {
                let mut pool = clients.to_vec();
                generator.sample(&mut pool, count as usize);
                pool.sort_unstable();
                pool
            }
            Self::Poisson(probability) => {
                // Every number has a coin, whether or not a client with it is there: who is missing
                // changes nobody else's. Numbers are places in a list, so few coins are in vain.
                let mut coins = (0..=u32::MAX).map(|number| (number, generator.uniform()));
                let mut is_drawn = |client: &ClientId| {
                    let coin = coins.find(|(number, _)| *number == client.0);
                    coin.is_some_and(|(_, coin)| coin < probability)
                };
                clients.iter().copied().filter(|client| is_drawn(client)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ten() -> Vec<ClientId> {
        (0..10).map(ClientId).collect()
    }

    #[test]
    fn samplers_read_as_in_an_experiment_file() {
        let check = |text, expected| {
            assert_eq!(serde_json::from_str::<Sampler>(text).expect(text), expected);
        };
        check(r#""all""#, Sampler::All);
        check(r#"{"uniform":4}"#, Sampler::Uniform(4));
        check(r#"{"poisson":0.5}"#, Sampler::Poisson(0.5));
    }

    #[test]
    fn a_uniform_cohort_has_its_size_and_reaches_everyone_equally_often() {
        let mut seen = [0; 10];
        for round in 0..2000 {
            let cohort = Sampler::Uniform(4).draw(Seed(1), Round(round), &ten());
            assert_eq!(cohort.len(), 4);
            assert!(cohort.is_sorted_by(|left, right| left < right));
            for client in cohort {
                seen[client.0 as usize] += 1;
            }
        }
        // 800 expected, standard deviation 22.
        assert!(seen.iter().all(|count| (700..900).contains(count)), "{seen:?}");
    }

    #[test]
    fn a_poisson_cohort_varies_in_size_around_its_mean() {
        let sizes: Vec<usize> = (0..2000)
            .map(|round| Sampler::Poisson(0.3).draw(Seed(1), Round(round), &ten()).len())
            .collect();
        assert!(sizes.contains(&0) && sizes.iter().any(|size| *size > 6));
        let total: usize = sizes.iter().sum();
        assert!((5600..6400).contains(&total), "{total}");
    }

    #[test]
    fn who_is_missing_changes_no_other_coin() {
        let poisson = Sampler::Poisson(0.5);
        for round in (0..50).map(Round) {
            let all = poisson.draw(Seed(1), round, &ten());
            for missing in ten() {
                let others: Vec<ClientId> =
                    ten().into_iter().filter(|client| *client != missing).collect();
                let expected: Vec<ClientId> =
                    all.iter().copied().filter(|client| *client != missing).collect();
                assert_eq!(poisson.draw(Seed(1), round, &others), expected, "{missing:?}");
            }
        }
    }

    #[test]
    fn impossible_draws_are_refused() {
        for sampler in [Sampler::Uniform(0), Sampler::Uniform(11), Sampler::Poisson(0.0)] {
            assert!(sampler.check(10).is_err(), "{sampler:?}");
        }
        assert!(Sampler::Poisson(f64::NAN).check(10).is_err());
        assert!(Sampler::Uniform(10).check(10).is_ok());
    }
}
