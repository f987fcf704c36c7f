//! The bridge from the laboratory towards a Transformer: one federated task, three students.
//!
//! Linear attention has closed forms; softmax attention keeps a quadratic problem in the value block; softmax
//! with an MLP keeps neither. All three get the same clients, and for each warm-up `W` the kernel of round `W`
//! is frozen while everything else goes on. If the trade-off of the theory is about attention rather than about
//! linearity, the three curves have the same shape.

use fedra_seed::Seed;
use serde::{Deserialize, Serialize};

use crate::attention::Attention;
use crate::federation::{Federation, Work};
use crate::network::{Learns, Network, Sizes};
use crate::parallel;
use crate::phi::Phi;
use crate::world::World;

/// Everything that decides the bridge's numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BridgeSetting {
    /// Where all draws start.
    pub seed: u64,
    /// Worlds drawn for each curve.
    pub worlds: u32,
    /// Sizes of tokens, keys and outputs.
    pub sizes: Sizes,
    /// Which attention made the targets: softmax or linear (with the identity map).
    pub teacher: Teacher,
    /// Clients.
    pub clients: usize,
    /// Samples of each.
    pub samples: usize,
    /// Standard deviation of the noise on targets, whose clean mean square is 1.
    pub noise: f64,
    /// The weight of the ridge.
    pub ridge: f64,
    /// Hidden width of the MLP.
    pub hidden: usize,
    /// Rounds of every run.
    pub rounds: u32,
    /// Local gradient steps in a round.
    pub local_steps: u32,
    /// Clients in a round.
    pub cohort: usize,
    /// Values of `h_kernel = h_value`, rising.
    pub heterogeneities: Vec<f64>,
    /// Warm-ups to sweep, rising from 0 to `rounds`.
    pub warmups: Vec<u32>,
    /// The size of a gradient step, for each student.
    pub rate: Rates,
}

/// Step sizes: students differ in curvature.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// For linear attention.
    pub linear: f64,
    /// For softmax attention.
    pub softmax: f64,
    /// For softmax attention with an MLP.
    pub softmax_mlp: f64,
}

/// Which attention made the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Teacher {
    /// Softmax attention.
    Softmax,
    /// Linear attention with the identity map.
    Linear,
}

/// One of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Student {
    /// Linear attention with the identity map, and a value block.
    Linear,
    /// Softmax attention and a value block.
    Softmax,
    /// Softmax attention, a value block as wide as the tokens, and an MLP.
    SoftmaxMlp,
}

impl Student {
    /// All three, in the order of the bridge.
    pub const ALL: [Self; 3] = [Self::Linear, Self::Softmax, Self::SoftmaxMlp];

    /// The name in plots.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear attention",
            Self::Softmax => "softmax attention",
            Self::SoftmaxMlp => "softmax attention with MLP",
        }
    }

    fn network(self, setting: &BridgeSetting) -> Network {
        let (attention, mlp) = match self {
            Self::Linear => (Attention::Linear(Phi::Identity), 0),
            Self::Softmax => (Attention::Softmax, 0),
            Self::SoftmaxMlp => (Attention::Softmax, setting.hidden),
        };
        Network { attention, mlp, ridge: setting.ridge }
    }

    fn rate(self, rates: Rates) -> f64 {
        match self {
            Self::Linear => rates.linear,
            Self::Softmax => rates.softmax,
            Self::SoftmaxMlp => rates.softmax_mlp,
        }
    }
}

impl BridgeSetting {
    /// Refuses values that mean nothing: the key, what was found and what was expected.
    pub fn check(&self) -> Result<(), BridgeError> {
        let refuse = |key, found: String, expected| Err(BridgeError { key, found, expected });
        let counts = [
            ("worlds", self.worlds as usize),
            ("sizes.width", self.sizes.width),
            ("sizes.key_width", self.sizes.key_width),
            ("sizes.tokens", self.sizes.tokens),
            ("sizes.outputs", self.sizes.outputs),
            ("clients", self.clients),
            ("samples", self.samples),
            ("hidden", self.hidden),
            ("rounds", self.rounds as usize),
            ("local_steps", self.local_steps as usize),
            ("cohort", self.cohort),
        ];
        for (key, count) in counts {
            if !(1..=100_000).contains(&count) {
                return refuse(key, count.to_string(), "a whole number from 1 to 100000");
            }
        }
        if self.cohort > self.clients {
            return refuse("cohort", self.cohort.to_string(), "at most as many as clients");
        }
        let above_zero = [
            ("rate.linear", self.rate.linear),
            ("rate.softmax", self.rate.softmax),
            ("rate.softmax_mlp", self.rate.softmax_mlp),
            ("ridge", self.ridge),
        ];
        for (key, number) in above_zero {
            if !(number.is_finite() && number > 0.0) {
                return refuse(key, number.to_string(), "a number above 0");
            }
        }
        if !(self.noise.is_finite() && self.noise >= 0.0) {
            return refuse("noise", self.noise.to_string(), "a number, 0 or more");
        }
        let rising = self.heterogeneities.windows(2).all(|pair| pair[0] < pair[1]);
        let known = self.heterogeneities.iter().all(|h| h.is_finite() && *h >= 0.0);
        if self.heterogeneities.is_empty() || !rising || !known {
            let found = format!("{:?}", self.heterogeneities);
            return refuse("heterogeneities", found, "rising numbers, 0 or more");
        }
        let rising = self.warmups.windows(2).all(|pair| pair[0] < pair[1]);
        let ends = (self.warmups.first(), self.warmups.last()) == (Some(&0), Some(&self.rounds));
        if self.warmups.len() < 3 || !rising || !ends {
            let found = format!("{:?}", self.warmups);
            return refuse(
                "warmups",
                found,
                "at least three, rising from 0 to the number of rounds",
            );
        }
        Ok(())
    }
}

/// A value that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: found {found}, expected {expected}")]
pub struct BridgeError {
    key: &'static str,
    found: String,
    expected: &'static str,
}

/// All runs of the bridge.
#[derive(Clone, Debug, Serialize)]
pub struct Bridge {
    /// What was asked.
    pub setting: BridgeSetting,
    /// One for each student, heterogeneity and world.
    pub runs: Vec<BridgeRun>,
}

/// One student on one world.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BridgeRun {
    /// Who learns.
    pub student: Student,
    /// `h_kernel = h_value`.
    pub heterogeneity: f64,
    /// Which world, from 0.
    pub world: u32,
    /// Final global loss for each warm-up; absent where the run left the finite numbers.
    pub final_by_warmup: Vec<(u32, Option<f64>)>,
}

impl Bridge {
    /// Runs everything on so many threads, and says after each run how many are done.
    pub fn run(
        setting: &BridgeSetting,
        threads: usize,
        done: impl Fn(usize, usize) + Sync,
    ) -> Result<Self, BridgeError> {
        setting.check()?;
        let mut jobs = Vec::new();
        // The slowest student first, so that no thread starts a long run last.
        for student in Student::ALL.into_iter().rev() {
            for &heterogeneity in &setting.heterogeneities {
                jobs.extend((0..setting.worlds).map(|world| (student, heterogeneity, world)));
            }
        }
        let finished = std::sync::atomic::AtomicUsize::new(0);
        let runs = parallel::map(&jobs, threads, |&(student, heterogeneity, world)| {
            let run = BridgeRun {
                student,
                heterogeneity,
                world,
                final_by_warmup: sweep(setting, student, heterogeneity, world),
            };
            done(finished.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1, jobs.len());
            run
        });
        Ok(Self { setting: setting.clone(), runs })
    }

    /// The runs of one curve, in the order of their worlds.
    pub fn select(&self, student: Student, heterogeneity: f64) -> Vec<&BridgeRun> {
        let wanted =
            |run: &&BridgeRun| (run.student, run.heterogeneity) == (student, heterogeneity);
        self.runs.iter().filter(wanted).collect()
    }
}

fn sweep(
    setting: &BridgeSetting,
    student: Student,
    heterogeneity: f64,
    world: u32,
) -> Vec<(u32, Option<f64>)> {
    let seed = Seed(setting.seed).of("bridge").with(u64::from(world));
    let teacher = match setting.teacher {
        Teacher::Softmax => Attention::Softmax,
        Teacher::Linear => Attention::Linear(Phi::Identity),
    };
    let data = World {
        sizes: setting.sizes,
        teacher,
        clients: setting.clients,
        samples: setting.samples,
        kernel_shift: heterogeneity,
        value_shift: heterogeneity,
        noise: setting.noise,
    };
    let network = student.network(setting);
    let federation = Federation {
        clients: data.clients(seed),
        network,
        work: Work {
            local_steps: setting.local_steps,
            rate: student.rate(setting.rate),
            cohort: setting.cohort,
        },
        seed,
    };
    let start = network.start(setting.sizes, seed.of("student"));
    let path = federation.train(start, setting.rounds, Learns::Everything);
    let ending = |warmup: u32| {
        let at = path.get(warmup as usize)?.clone();
        let left = (setting.rounds - warmup) as usize;
        let loss = if network.mlp == 0 {
            let frozen = federation.freeze(&at);
            let values = frozen.train(at.value, warmup, setting.rounds);
            frozen.loss(values.get(left)?)
        } else {
            let rounds = federation.train_from(warmup, at, setting.rounds, Learns::AllButKernel);
            federation.loss(rounds.get(left)?)
        };
        loss.is_finite().then_some(loss)
    };
    setting.warmups.iter().map(|&warmup| (warmup, ending(warmup))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> BridgeSetting {
        BridgeSetting {
            seed: 1,
            worlds: 1,
            sizes: Sizes { width: 4, key_width: 2, tokens: 3, outputs: 2 },
            teacher: Teacher::Softmax,
            clients: 3,
            samples: 4,
            noise: 0.1,
            ridge: 0.05,
            hidden: 3,
            rounds: 4,
            local_steps: 2,
            cohort: 2,
            heterogeneities: vec![0.0, 1.0],
            warmups: vec![0, 2, 4],
            rate: Rates { linear: 0.05, softmax: 0.1, softmax_mlp: 0.05 },
        }
    }

    #[test]
    fn the_bridge_does_not_depend_on_the_number_of_threads() {
        let one = Bridge::run(&small(), 1, |_, _| {}).unwrap();
        assert_eq!(one.runs, Bridge::run(&small(), 3, |_, _| {}).unwrap().runs);
        assert_eq!(one.runs.len(), 6);
        let losses = one.runs.iter().flat_map(|run| &run.final_by_warmup);
        assert!(losses.clone().all(|(_, loss)| loss.is_some_and(f64::is_finite)));
        assert_eq!(losses.count(), 18);
    }

    #[test]
    fn values_that_mean_nothing_are_refused_by_their_key() {
        let check = |change: fn(&mut BridgeSetting), key: &str| {
            let mut setting = small();
            change(&mut setting);
            let refusal = setting.check().unwrap_err().to_string();
            assert!(refusal.starts_with(key), "{refusal}");
        };
        check(|setting| setting.cohort = 4, "cohort: found 4");
        check(|setting| setting.rate.softmax = f64::NAN, "rate.softmax: found NaN");
        check(|setting| setting.warmups = vec![0, 2], "warmups: found [0, 2]");
        check(|setting| setting.warmups = vec![0, 2, 5], "warmups");
        check(|setting| setting.heterogeneities.reverse(), "heterogeneities");
        check(|setting| setting.sizes.tokens = 0, "sizes.tokens: found 0");
        assert!(small().check().is_ok());
    }
}
