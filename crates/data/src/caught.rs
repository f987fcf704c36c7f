//! Panics inside libraries that read files: they become errors, and nobody sees them printed.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// What a call into a library gives, or the words of its panic.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if !CATCHING.get() {
                usual(panic);
            }
        }));
    });
    let outer = CATCHING.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    CATCHING.set(outer);
    outcome.map_err(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        words.unwrap_or("a panic without a message").to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_words_and_other_calls_pass() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught(|| panic!("no page {}", 3)), Err::<(), _>("no page 3".to_owned()));
        assert_eq!(caught(|| panic!("no page")), Err::<(), _>("no page".to_owned()));
        assert!(!CATCHING.get());
    }
}
