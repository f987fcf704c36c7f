//! A digest of a client's examples that only their owner can compute.
//!
//! A server has to notice that a client came back with other examples, and must not learn which they
//! are. A plain digest of short rows can be found by trying rows, so a secret of the client's goes in
//! first: without it a digest says nothing but whether two are alike.

use fedra_data::{Encoded, EncodedChoice, Target};
use fedra_plan::Digest;
use sha2::{Digest as _, Sha256};

use crate::examples::Examples;
use crate::shards::Shard;

/// What a digest of examples is mixed with: 256 bits that nobody can try.
pub type DataSecret = [u8; 32];

impl Shard {
    /// The digest of every example that the client trains or is scored on, in order. HMAC without its
    /// pads: the secret has one length, and goes in before and after.
    pub fn digest(&self, secret: &DataSecret) -> Digest {
        let mut sum = Sum(Sha256::new());
        sum.0.update(secret);
        for part in [&self.train, &self.validation, &self.test] {
            sum.examples(part);
        }
        let inner = sum.0.finalize();
        let outer = Sha256::new().chain_update(secret).chain_update(inner);
        Digest::from_bytes(outer.finalize().into())
    }
}

/// What one example is: its tokens or its image, and what is to be said of them.
pub(crate) fn example_digest(example: &Encoded) -> [u8; 32] {
    let mut sum = Sum(Sha256::new());
    sum.example(example);
    sum.0.finalize().into()
}

/// Values that cannot run into each other: each list has its length before it.
struct Sum(Sha256);

impl Sum {
    fn examples(&mut self, examples: &Examples) {
        self.number(examples.len());
        for (place, example) in examples.encoded().iter().enumerate() {
            self.example(example);
            self.list(examples.cut(place));
        }
    }

    fn example(&mut self, example: &Encoded) {
        let Encoded { ids, types, target, dropped, pixels } = example;
        self.list(ids);
        self.list(types);
        self.number(*dropped);
        if let Some(pixels) = pixels {
            // Behind a number that no target begins with.
            self.number(9);
            self.0.update(pixels.digest());
            let augment = pixels.augment().unwrap_or_default();
            self.numbers([usize::from(augment.flip), usize::from(augment.crop)]);
        }
        match target {
            Target::One(label) => self.numbers([0, *label as usize]),
            Target::Many(labels) => {
                self.number(1);
                self.list(labels);
            }
            Target::PerToken(labels) => {
                self.numbers([2, labels.len()]);
                self.numbers(labels.iter().map(|label| label.map_or(0, |one| one as usize + 1)));
            }
            Target::Choice(choice) => {
                let EncodedChoice { prompt, label, candidates } = choice;
                self.numbers([3, *prompt, *label as usize, candidates.len()]);
                for candidate in candidates {
                    self.numbers([candidate.label as usize, candidate.length as usize]);
                    self.list(&candidate.ids);
                }
            }
            Target::Text(text) => {
                self.numbers([4, text.prompt, text.reference.len()]);
                self.0.update(text.reference.as_bytes());
            }
            Target::Preference(pair) => {
                self.numbers([5, pair.chosen, pair.told.len()]);
                self.numbers(pair.told.iter().map(|told| told.map_or(0, |one| one as usize + 1)));
            }
        }
    }

    fn numbers(&mut self, numbers: impl IntoIterator<Item = usize>) {
        numbers.into_iter().for_each(|number| self.number(number));
    }

    fn number(&mut self, number: usize) {
        self.0.update((number as u64).to_le_bytes());
    }

    fn list(&mut self, numbers: &[u32]) {
        self.number(numbers.len());
        for number in numbers {
            self.0.update(number.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(ids: &[u32], target: Target) -> Encoded {
        Encoded { ids: ids.to_vec(), types: Vec::new(), target, dropped: 0, pixels: None }
    }

    fn shard(train: Vec<Encoded>, test: Vec<Encoded>) -> Shard {
        let (train, test) = (train.into_iter().collect(), test.into_iter().collect());
        Shard { train, test, ..Shard::default() }
    }

    #[test]
    fn a_digest_follows_rows_labels_their_part_and_the_secret() {
        let row = || example(&[1, 2, 3], Target::One(0));
        let secret = [1; 32];
        let first = shard(vec![row(), row()], vec![]).digest(&secret);
        assert_eq!(shard(vec![row(), row()], vec![]).digest(&secret), first);
        let others = [
            shard(vec![row(), example(&[1, 2, 3], Target::One(1))], vec![]),
            shard(vec![row(), example(&[1, 2, 4], Target::One(0))], vec![]),
            shard(vec![row(), example(&[1, 2, 3], Target::Many(vec![0]))], vec![]),
            shard(vec![row()], vec![row()]),
        ];
        for other in others {
            assert_ne!(other.digest(&secret), first, "{other:?}");
        }
        assert_ne!(shard(vec![row(), row()], vec![]).digest(&[2; 32]), first);
    }

    #[test]
    fn order_counts_and_lists_do_not_run_into_each_other() {
        let one = |tags: &[Option<u32>]| example(&[7], Target::PerToken(tags.to_vec()));
        let (a, b) = (one(&[None, Some(0)]), one(&[Some(0), None]));
        let digest = |rows: Vec<Encoded>| shard(rows, vec![]).digest(&[3; 32]);
        assert_ne!(digest(vec![a.clone(), b.clone()]), digest(vec![b, a]));
        let (c, d) = (example(&[1, 2], Target::One(0)), example(&[1], Target::One(0)));
        let e = example(&[2], Target::One(0));
        assert_ne!(digest(vec![c]), digest(vec![d, e]));
    }
}
