//! How far our f32 may be from the golden f64, and how far it was.
//!
//! PyTorch's own f32 lies up to 1.5e-6 from those values (`float32_gap` in the files). Our GELU, which
//! is good to 6e-7, and sums in one long run take us to a few times that in six blocks of `MiniLM`;
//! each bound is about twice the largest error seen.

use crate::formula::Compact;
use std::collections::BTreeMap;
use std::fmt;

/// Of a loss, relative: a mean over rows, in which their errors cancel.
pub const LOSS: Bound = Bound { quantity: "loss", limit: 2e-7 };
/// Of hidden states, relative to their norm and to their largest entry.
pub const HIDDEN: Bound = Bound { quantity: "hidden", limit: 1e-5 };
/// Of logits, likewise.
pub const LOGITS: Bound = Bound { quantity: "logits", limit: 6e-6 };
/// Of a share of attention, absolute: it is a mean of probabilities.
pub const PROBE: Bound = Bound { quantity: "probe", limit: 3e-6 };
/// Of each gradient, relative to its norm plus [`FLOOR`] of the whole gradient's.
pub const GRADIENT: Bound = Bound { quantity: "gradient", limit: 4e-5 };

/// A small gradient is a difference of large terms, whose rounding it keeps: a key bias has a
/// gradient of zero, made of terms as large as any other.
const FLOOR: f64 = 1e-2;

/// The largest error that a quantity may have.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub quantity: &'static str,
    pub limit: f64,
}

/// The largest error of each quantity so far.
#[derive(Debug, Default)]
pub struct Agreement(BTreeMap<&'static str, f64>);

impl Agreement {
    /// Notes an error, and fails if it is too large.
    #[track_caller]
    pub fn note(&mut self, bound: Bound, error: f64, what: impl fmt::Display) {
        let Bound { quantity, limit } = bound;
        assert!(error <= limit, "{what}: {quantity} is off by {error:.2e}, expected {limit:.0e}");
        let worst = self.0.entry(quantity).or_default();
        *worst = worst.max(error);
    }

    /// Compares one number.
    #[track_caller]
    pub fn number(&mut self, bound: Bound, found: f32, expected: f64, what: impl fmt::Display) {
        self.note(bound, (f64::from(found) / expected - 1.0).abs(), what);
    }

    /// Compares arrays, relative to their norm and to their largest entry.
    #[track_caller]
    pub fn array(
        &mut self,
        bound: Bound,
        found: &[f32],
        expected: &[f64],
        what: impl fmt::Display,
    ) {
        assert_eq!(found.len(), expected.len(), "{what}: number of values");
        self.note(bound, relative(found, expected), what);
    }

    /// Compares what a golden file keeps of an array too large for it.
    #[track_caller]
    pub fn compact(
        &mut self,
        bound: Bound,
        found: &[f32],
        expected: &Compact,
        what: impl fmt::Display,
    ) {
        self.note(bound, Compact::of(found).distance(expected) / expected.norm, what);
    }

    /// Compares one parameter's gradient, given the norm of the whole gradient.
    #[track_caller]
    pub fn gradient(
        &mut self,
        found: &[f32],
        (expected, first): (&Compact, &[f64]),
        whole: f64,
        what: impl fmt::Display,
    ) {
        let entries = found.iter().zip(first).map(|(f, e)| (f64::from(*f) - e).abs());
        let distance = entries.fold(Compact::of(found).distance(expected), f64::max);
        self.note(GRADIENT, distance / (expected.norm + FLOOR * whole), what);
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("largest errors:")?;
        self.0.iter().try_for_each(|(quantity, worst)| write!(f, " {quantity} {worst:.1e}"))
    }
}

/// The larger of two errors: of the norm, and of the entry that is furthest off.
pub fn relative(found: &[f32], expected: &[f64]) -> f64 {
    let differences = || found.iter().zip(expected).map(|(f, e)| f64::from(*f) - e);
    let norm = |squares: f64| squares.sqrt();
    let off = norm(differences().map(|d| d * d).sum()) / norm(expected.iter().map(|e| e * e).sum());
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, |a: f64, b| a.max(b.abs()));
    off.max(most(&mut differences()) / most(&mut expected.iter().copied()))
}

/// The same between two f32 arrays.
pub fn relative_f32(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len(), "number of values");
    relative(found, &expected.iter().copied().map(f64::from).collect::<Vec<_>>())
}
