//! Catches panics of the machine under test without a word on standard error.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<String> = const { RefCell::new(String::new()) };
}

static HOOK: Once = Once::new();

/// Runs something and returns what it said and where, if it panicked. What it worked on may be in
/// the middle of a change then and is only to be dropped.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if CATCHING.get() {
                CAUGHT.set(describe(info));
            } else {
                before(info);
            }
        }));
    });
    CATCHING.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(false);
    result.map_err(|_| CAUGHT.take())
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let text = info.payload_as_str().unwrap_or("no message");
    match info.location() {
        Some(place) => format!("{text} ({}:{})", place.file(), place.line()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_with_its_message_and_place() {
        assert_eq!(caught(|| 3), Ok(3));
        let error = caught(|| panic!("no {}", "luck")).expect_err("it panics");
        assert!(
            error.starts_with("no luck (crates/sim/src/panics.rs:"),
            "{error}"
        );
    }
}
