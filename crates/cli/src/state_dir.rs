//! Where the state is: a flag, the environment, or the usual place in the home.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tidemill_hub::StateDir;

use crate::failure::{Failure, FailureKind};

/// The state directory, as an absolute path. It need not be there yet, and is nobody else's.
pub(crate) fn state_dir(flag: Option<&Path>) -> Result<PathBuf, Failure> {
    let chosen = choose(flag, |name| env::var_os(name)).ok_or_else(|| {
        Failure::new(
            FailureKind::State,
            "there is no place for the state: HOME is not set",
        )
        .hint("set HOME, or name a directory with --state-dir or TIDEMILL_STATE")
    })?;
    let path = std::path::absolute(&chosen).map_err(|error| {
        let message = format!("`{}` cannot be the state directory", chosen.display());
        Failure::new(FailureKind::State, message).because(&error)
    })?;
    StateDir::check_owner(&path)
        .map_err(|error| Failure::new(FailureKind::State, error.to_string()).hint(error.hint()))?;
    Ok(path)
}

/// An empty variable counts as unset, and a relative `XDG_STATE_HOME` is ignored, as the XDG base
/// directory specification asks.
fn choose(flag: Option<&Path>, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    flag.map(Path::to_path_buf)
        .or_else(|| set("TIDEMILL_STATE"))
        .or_else(|| {
            set("XDG_STATE_HOME")
                .filter(|path| path.is_absolute())
                .map(|path| path.join("tidemill"))
        })
        .or_else(|| set("HOME").map(|home| home.join(".local/state/tidemill")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_wish_counts() {
        let chosen = |flag: Option<&str>, variables: &[(&str, &str)]| {
            choose(flag.map(Path::new), |name| {
                variables
                    .iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| value.into())
            })
        };
        let all = [
            ("TIDEMILL_STATE", "/t"),
            ("XDG_STATE_HOME", "/x"),
            ("HOME", "/h"),
        ];
        assert_eq!(chosen(Some("flag"), &all), Some("flag".into()));
        assert_eq!(chosen(None, &all), Some("/t".into()));
        assert_eq!(chosen(None, &all[1..]), Some("/x/tidemill".into()));
        assert_eq!(
            chosen(None, &all[2..]),
            Some("/h/.local/state/tidemill".into())
        );
        let ignored = [
            ("TIDEMILL_STATE", ""),
            ("XDG_STATE_HOME", "x"),
            ("HOME", "/h"),
        ];
        assert_eq!(
            chosen(None, &ignored),
            Some("/h/.local/state/tidemill".into())
        );
        assert_eq!(chosen(None, &[]), None);
    }
}
