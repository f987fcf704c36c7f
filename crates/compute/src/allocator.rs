//! The system's allocator, which says so in a sentence when there is no more memory.
//!
//! A program that runs out of memory can do little but end. The standard library then aborts, which
//! leaves a signal and often a core file where people expect an error and a status. This one ends the
//! process with [`OUT_OF_MEMORY`]; what was written before is whole, because files of a run are moved
//! into their place. It is here and not where it is used because `unsafe` stays in this crate.
//!
//! ```no_run
//! #[global_allocator]
//! static ALLOCATOR: fedra_compute::Allocator = fedra_compute::Allocator;
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;

/// The status of a process that ran out of memory: that of any run that broke down on its way.
pub const OUT_OF_MEMORY: i32 = 1;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator;

impl Allocator {
    /// From now on a large piece goes back to the system as soon as it is free. The C library otherwise learns
    /// from pieces that come and go to keep them, up to 32 MiB each, in one heap a thread: good for a process
    /// that computes all the time, and twice the memory for one that receives, trains and answers in turn.
    pub fn keep_little(self) {
        // SAFETY: a setting of the C library that may be changed at any time; where it refuses, it keeps more.
        #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
        let _kept_where_refused = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
    }
}

/// A large piece, in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
const LARGE: i32 = 1 << 20;

// SAFETY: every call goes to the system's allocator as it is; the only difference is that a null
// pointer never comes back, which callers have to expect anyway.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about the layout.
        in_large_pages(checked(unsafe { System.alloc(layout) }, layout.size()), layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about the layout.
        in_large_pages(
            checked(unsafe { System.alloc_zeroed(layout) }, layout.size()),
            layout.size(),
        )
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise about pointer, layout and size.
        checked(unsafe { System.realloc(pointer, layout, size) }, size)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise that the pointer is one of ours with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Asks for pages of 2 MiB where a piece has room for some: a model on its way to somebody is new memory, and with pages
/// of 4 KiB the system takes longer to provide it than anybody takes to write it.
#[cfg(all(target_os = "linux", not(miri)))]
fn in_large_pages(pointer: *mut u8, bytes: usize) -> *mut u8 {
    const SMALL_PAGE: usize = 64 << 10;
    if bytes >= 4 << 20 {
        let skipped = pointer.addr().next_multiple_of(SMALL_PAGE) - pointer.addr();
        // SAFETY: whole pages of a piece that belongs to the caller; advice changes none of its bytes, and where it is
        // not taken the pages are small.
        let _small_where_refused = unsafe {
            libc::madvise(pointer.add(skipped).cast(), bytes - skipped, libc::MADV_HUGEPAGE)
        };
    }
    pointer
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn in_large_pages(pointer: *mut u8, _bytes: usize) -> *mut u8 {
    pointer
}

fn checked(pointer: *mut u8, bytes: usize) -> *mut u8 {
    if pointer.is_null() {
        end(bytes);
    }
    pointer
}

/// Says what happened, without taking memory for it, and ends the process.
#[cold]
fn end(bytes: usize) -> ! {
    let mut text = [0_u8; 256];
    let room = text.len();
    let mut rest = &mut text[..];
    // The sentence is shorter than the room for it, and if nobody can read it there is nobody to tell.
    let _short = write!(
        rest,
        "error: out of memory: cannot allocate {bytes} more bytes\n\
         hint: fewer threads, a smaller batch or data.max_tokens need less; complete rounds are kept\n"
    );
    let written = room - rest.len();
    tell(&text[..written]);
    std::process::exit(OUT_OF_MEMORY)
}

/// Straight to the file: the lock of `stderr()` may be held by the very call that ran out of memory.
#[cfg(unix)]
fn tell(text: &[u8]) {
    use std::fs::File;
    use std::mem::ManuallyDrop;
    use std::os::fd::FromRawFd;
    // SAFETY: 2 is open in every process that the standard library started, and is not closed here.
    let mut stderr = ManuallyDrop::new(unsafe { File::from_raw_fd(2) });
    let _unread = stderr.write_all(text);
}

#[cfg(not(unix))]
fn tell(text: &[u8]) {
    let _unread = std::io::stderr().write_all(text);
}
