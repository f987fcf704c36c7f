//! Memory asked for before it is needed.

/// Asks for a group before it is needed; a request past the end does nothing.
#[inline(always)]
pub(crate) fn prefetch<const BYTES: usize>(groups: &[[u8; BYTES]], at: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..BYTES).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let place = groups.as_ptr().cast::<i8>().wrapping_add(at * BYTES + line);
        // SAFETY: a prefetch reads nothing that the program sees and cannot fault at any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _no_prefetch = (groups, at);
}
