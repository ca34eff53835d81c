//! How large the store of unpacked layers may grow: a flag, the environment, or what suits the disk.

use std::env;

use tidemill_core::ByteSize;
use tidemill_image::CacheBounds;

use crate::args::GlobalArgs;
use crate::failure::{Failure, FailureKind};

const VARIABLE: &str = "TIDEMILL_CACHE_SIZE";
const FLAG: &str = "--cache-size";
/// Lifts the bound.
const ALL: &str = "all";

/// The bounds that the caller wants; none are what suits the disk.
///
/// # Errors
/// If what was written is no size.
pub(crate) fn bounds(global: &GlobalArgs) -> Result<Option<CacheBounds>, Failure> {
    match &global.cache_size {
        Some(text) => read(FLAG, text),
        None => read(VARIABLE, &env::var(VARIABLE).unwrap_or_default()),
    }
}

fn read(source: &str, text: &str) -> Result<Option<CacheBounds>, Failure> {
    match text.trim() {
        "" if source == VARIABLE => Ok(None),
        ALL => Ok(Some(CacheBounds {
            max: None,
            floor: ByteSize(0),
        })),
        text => match text.parse() {
            Ok(max) => Ok(Some(CacheBounds::at_most(max))),
            Err(_) => Err(Failure::new(
                FailureKind::Usage,
                format!(
                    "`{}` in {source} is not a size such as 50GiB, and not `{ALL}`",
                    text.escape_debug()
                ),
            )
            .hint(format!("leave {source} out for what suits the disk"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_slips_are_answered() {
        let max = |text: &str| {
            let bounds = read(FLAG, text).expect("a size").expect("it is not empty");
            bounds.max
        };
        assert_eq!(max("50GiB"), Some(ByteSize::gib(50)));
        assert_eq!(max(" all "), None);
        assert_eq!(read(VARIABLE, "").expect("unset"), None);
        for wrong in ["", "some", "-1", "5 parsecs"] {
            let failure = read(FLAG, wrong).expect_err("no size");
            assert!(failure.message.contains(FLAG), "{failure}");
        }
    }
}
