//! Which vector instructions this processor has, and a macro that compiles a loop for each level.
//!
//! The binary is built for any x86-64 machine and decides at run time, because a hospital's server
//! is rarely the machine that compiled it.

use std::sync::OnceLock;

/// Vector instructions found on this processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// AVX-512 with the F, VL, DQ and BW groups.
    Avx512,
    /// AVX2 with fused multiply-add.
    Avx2,
    /// Whatever the compiler may assume for the target.
    Baseline,
}

/// The level of this processor, looked up once.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let wide = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512bw");
    let narrow = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    match (wide && narrow, narrow) {
        (true, _) => Level::Avx512,
        (false, true) => Level::Avx2,
        (false, false) => Level::Baseline,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Baseline
}

/// Compiles a function's loop once per [`Level`] and calls the best one at run time.
///
/// The body must be straight loops over slices whose helpers are `#[inline(always)]`, so that the
/// compiler can vectorise the inlined whole with the wider instructions. Loops over chunks count: `zip` and
/// the `map` of arrays are calls in a build with several codegen units, which is what a program that uses
/// this crate gets (`tools/bench-builds`).
macro_rules! vectorised {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
            fn wide($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn narrow($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }

            match $crate::cpu::simd::level() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `level` answers Avx512 only where these instructions exist.
                $crate::cpu::simd::Level::Avx512 => unsafe { wide($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `level` answers Avx2 only where these instructions exist.
                $crate::cpu::simd::Level::Avx2 => unsafe { narrow($($arg),*) },
                #[cfg(not(target_arch = "x86_64"))]
                $crate::cpu::simd::Level::Avx512 | $crate::cpu::simd::Level::Avx2 => body($($arg),*),
                $crate::cpu::simd::Level::Baseline => body($($arg),*),
            }
        }
    };
}
pub(crate) use vectorised;
