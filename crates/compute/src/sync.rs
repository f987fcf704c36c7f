//! What threads synchronise by: the standard library's primitives, or loom's.
//!
//! Under `--cfg loom` the same code runs on loom's versions, which try every order in which threads
//! can take turns and every value that a load may see. Only code that loom explores takes its
//! primitives from here.

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread::yield_now,
};
