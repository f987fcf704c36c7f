//! Instructions that multiply bf16 and add f32: AMX tiles, and the dot products of AVX-512.
//!
//! Both compute what `matmul/tile.rs` defines, one block of 32 x 32 sums at a time. AMX is
//! written as assembly, because the compiler has no stable intrinsics for it. A process must ask
//! Linux for the tile registers once, since they enlarge what is saved of each thread.
//!
//! ```text
//! tmm0 tmm1   sums, 16 x 16 f32 each      += tmm4 tmm5 (left: 16 rows of 32 bf16)
//! tmm2 tmm3                                * tmm6 tmm7 (right: 16 pairs of rows, 16 columns)
//! ```

use std::sync::OnceLock;

/// Why this processor has no bf16 products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoBf16 {
    /// The instructions are missing, or no faster.
    #[error(
        "this processor has no instructions that multiply bf16 faster than f32 (AMX-BF16, or \
         AVX-512-BF16 on AMD's)"
    )]
    Instructions,
    /// There is AMX, and nothing else that would do.
    #[error("the system does not let this process use AMX (error {0} of arch_prctl)")]
    Refused(i32),
}

/// Whether AMX can be used from now on; asks the system the first time.
pub fn permitted() -> Result<(), NoBf16> {
    static ANSWER: OnceLock<Result<(), NoBf16>> = OnceLock::new();
    *ANSWER.get_or_init(x86::ask)
}

#[cfg(test)]
pub use x86::has_dot_products;
pub use x86::{Configured, dot_products, has_fast_dot_products, tiles};

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod x86 {
    use super::NoBf16;
    use core::arch::asm;
    use core::arch::x86_64::{
        __cpuid_count, __m512bh, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_set1_ps,
        _mm512_storeu_ps,
    };
    use std::marker::PhantomData;

    /// Bits of CPUID leaf 7 in EDX: AMX-BF16 and AMX-TILE.
    const AMX: u32 = 1 << 22 | 1 << 24;
    /// The system saves the configuration and the contents of tiles (bits of XCR0).
    const SAVED: u64 = 1 << 17 | 1 << 18;
    /// `ARCH_REQ_XCOMP_PERM` of Linux, and the state to ask for: the contents of tiles.
    const REQUEST: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;

    pub fn ask() -> Result<(), NoBf16> {
        if !is_x86_feature_detected!("xsave") || __cpuid_count(0, 0).eax < 7 {
            return Err(NoBf16::Instructions);
        }
        if __cpuid_count(7, 0).edx & AMX != AMX || saved_by_the_system() & SAVED != SAVED {
            return Err(NoBf16::Instructions);
        }
        // SAFETY: this call takes numbers, and only adds to what the process may do.
        if unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) } == 0 {
            return Ok(());
        }
        Err(NoBf16::Refused(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)))
    }

    /// XCR0.
    fn saved_by_the_system() -> u64 {
        let (low, high): (u32, u32);
        // SAFETY: the caller has seen XSAVE, which the standard library reports only where the
        // system has enabled it, so XGETBV exists; it reads a register.
        unsafe {
            asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high,
                options(nomem, nostack, preserves_flags));
        }
        u64::from(high) << 32 | u64::from(low)
    }

    /// Whether AVX-512 multiplies bf16 here.
    pub fn has_dot_products() -> bool {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16")
    }

    /// Whether it does so faster than f32. Intel's processors have one unit for it and two for f32: a step
    /// took 1.4 times as long.
    pub fn has_fast_dot_products() -> bool {
        let is_intel = __cpuid_count(0, 0).ebx == u32::from_le_bytes(*b"Genu");
        has_dot_products() && !is_intel
    }

    /// What LDTILECFG reads: eight tiles of 16 rows of 64 bytes.
    #[repr(C, align(64))]
    struct Configuration {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }

    static CONFIGURATION: Configuration = Configuration {
        palette: 1,
        start_row: 0,
        reserved: [0; 14],
        row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
        rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
    };

    /// This thread's tiles, for as long as it lives.
    #[derive(Debug)]
    pub struct Configured(PhantomData<*const ()>);

    impl Configured {
        /// Panics where AMX is not permitted.
        pub fn new() -> Self {
            super::permitted().expect("only a permitted kernel is chosen");
            // SAFETY: AMX is there and permitted, and the configuration is one of palette 1.
            unsafe {
                asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION,
                    options(nostack, preserves_flags, readonly));
            }
            Self(PhantomData)
        }
    }

    impl Drop for Configured {
        fn drop(&mut self) {
            // SAFETY: nobody on this thread needs the tiles any more; without contents, the system
            // has less to save.
            unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
        }
    }

    /// `into = from + a * b` with AMX; without `from`, sums start at zero. Rows are so many floats apart.
    ///
    /// # Safety
    /// `a` and `b` must be `blocks` blocks of 512 words, and `from` and `into` 32 rows of 32 floats,
    /// which nobody else uses meanwhile.
    pub unsafe fn tiles(
        _: &Configured,
        (a, b, blocks): (*const f32, *const f32, usize),
        (from, from_stride): (*const f32, usize),
        (into, stride): (*mut f32, usize),
    ) {
        // SAFETY: the caller vouches for the memory; the tiles are configured, hold nothing that
        // is needed before or after, and the compiler never uses them.
        unsafe {
            asm!(
                "test {from}, {from}",
                "jz 2f",
                "tileloadd tmm0, [{from} + {from_stride}*1]",
                "tileloadd tmm1, [{from} + {from_stride}*1 + 64]",
                "tileloadd tmm2, [{from_below} + {from_stride}*1]",
                "tileloadd tmm3, [{from_below} + {from_stride}*1 + 64]",
                "jmp 3f",
                "2:",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "3:",
                "test {blocks}, {blocks}",
                "jz 5f",
                ".p2align 4",
                "4:",
                "tileloadd tmm4, [{a} + {line}*1]",
                "tileloadd tmm6, [{b} + {line}*1]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{b} + {line}*1 + 1024]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{a} + {line}*1 + 1024]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {a}, 2048",
                "add {b}, 2048",
                "dec {blocks}",
                "jnz 4b",
                "5:",
                "tilestored [{into} + {stride}*1], tmm0",
                "tilestored [{into} + {stride}*1 + 64], tmm1",
                "tilestored [{into_below} + {stride}*1], tmm2",
                "tilestored [{into_below} + {stride}*1 + 64], tmm3",
                from = in(reg) from,
                from_below = in(reg) from.wrapping_add(16 * from_stride),
                from_stride = in(reg) 4 * from_stride,
                into = in(reg) into,
                into_below = in(reg) into.wrapping_add(16 * stride),
                stride = in(reg) 4 * stride,
                line = in(reg) 64_usize,
                a = inout(reg) a => _,
                b = inout(reg) b => _,
                blocks = inout(reg) blocks => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }

    /// `sums += a * b` with the dot products of AVX-512, eight rows at a time.
    pub fn dot_products(a: &[[f32; 512]], b: &[[f32; 512]], sums: &mut [f32; 1024]) {
        assert!(has_dot_products(), "only a kernel that is there is chosen");
        // SAFETY: just asserted.
        unsafe { dot_products_inside(a, b, sums) }
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    fn dot_products_inside(a: &[[f32; 512]], b: &[[f32; 512]], sums: &mut [f32; 1024]) {
        const ROWS: usize = 8;
        for first in (0..32).step_by(ROWS) {
            // SAFETY: `first + ROWS <= 32`, so offsets are below 32 * 32 in `sums` and below 512 in
            // a block; any bits are a vector of bf16.
            unsafe {
                let at = |r: usize, half: usize| (first + r) * 32 + 16 * half;
                let mut held = [[_mm512_set1_ps(0.0); 2]; ROWS];
                for (r, row) in held.iter_mut().enumerate() {
                    row[0] = _mm512_loadu_ps(sums.as_ptr().add(at(r, 0)));
                    row[1] = _mm512_loadu_ps(sums.as_ptr().add(at(r, 1)));
                }
                for (a, b) in a.iter().zip(b) {
                    for pair in 0..16 {
                        let word = |at: usize| -> __m512bh {
                            std::mem::transmute(_mm512_loadu_ps(b.as_ptr().add(at)))
                        };
                        let right = [word(16 * pair), word(256 + 16 * pair)];
                        for (r, row) in held.iter_mut().enumerate() {
                            let x = _mm512_set1_ps(*a.as_ptr().add((first + r) * 16 + pair));
                            let x: __m512bh = std::mem::transmute(x);
                            row[0] = _mm512_dpbf16_ps(row[0], x, right[0]);
                            row[1] = _mm512_dpbf16_ps(row[1], x, right[1]);
                        }
                    }
                }
                for (r, row) in held.iter().enumerate() {
                    _mm512_storeu_ps(sums.as_mut_ptr().add(at(r, 0)), row[0]);
                    _mm512_storeu_ps(sums.as_mut_ptr().add(at(r, 1)), row[1]);
                }
            }
        }
    }
}

/// Elsewhere there is neither.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
mod x86 {
    use super::NoBf16;

    pub fn ask() -> Result<(), NoBf16> {
        Err(NoBf16::Instructions)
    }

    pub fn has_dot_products() -> bool {
        false
    }

    pub fn has_fast_dot_products() -> bool {
        false
    }

    #[derive(Debug)]
    pub struct Configured(());

    impl Configured {
        pub fn new() -> Self {
            unreachable!("only a permitted kernel is chosen")
        }
    }

    /// # Safety
    /// None: it is never called.
    pub unsafe fn tiles(
        _: &Configured,
        _: (*const f32, *const f32, usize),
        _: (*const f32, usize),
        _: (*mut f32, usize),
    ) {
        unreachable!("nothing is configured")
    }

    pub fn dot_products(_: &[[f32; 512]], _: &[[f32; 512]], _: &mut [f32; 1024]) {
        unreachable!("only a kernel that is there is chosen")
    }
}
