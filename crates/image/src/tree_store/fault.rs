//! Where a test can have the store fail: before each step that changes what others see. Nothing outside tests.

use std::io;

#[cfg(not(test))]
pub(super) const fn here() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(super) use testing::{fail_at, here};

#[cfg(test)]
mod testing {
    use std::cell::Cell;

    use super::io;

    thread_local! {
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Fails if this is the step that was asked for.
    pub(crate) fn here() -> io::Result<()> {
        match LEFT.get() {
            None => Ok(()),
            Some(0) => {
                LEFT.set(None);
                Err(io::Error::other("a fault was asked for"))
            }
            Some(left) => {
                LEFT.set(Some(left - 1));
                Ok(())
            }
        }
    }

    /// Has one step of this thread fail, after so many that do not, while something is done. Tells whether
    /// it came to that.
    pub(crate) fn fail_at<T>(step: u32, act: impl FnOnce() -> T) -> (T, bool) {
        LEFT.set(Some(step));
        let result = act();
        (result, LEFT.take().is_none())
    }
}
