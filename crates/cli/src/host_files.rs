//! What the check of a job asks of this machine: variables, patterns, paths.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use globset::GlobBuilder;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use tidemill_core::check::{CallerVariable, PathKind, PathProblem};

/// Looks for a variable of this process.
pub(crate) fn caller_variable(name: &str) -> CallerVariable {
    match env::var(name) {
        Ok(value) => CallerVariable::Set { bytes: value.len() },
        Err(env::VarError::NotPresent) => CallerVariable::Unset,
        Err(env::VarError::NotUnicode(_)) => CallerVariable::NotUtf8,
    }
}

/// What is wrong with a pattern. The settings are those that the image code matches with.
pub(crate) fn pattern_error(pattern: &str) -> Option<String> {
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .err()
        .map(|error| error.kind().to_string())
}

/// Follows a path and looks at what is there.
pub(crate) fn host_path(path: &str, kind: PathKind) -> Result<(), PathProblem> {
    let problem = |error: std::io::Error| match error.kind() {
        // A file on the way has nothing below it.
        ErrorKind::NotFound | ErrorKind::NotADirectory => PathProblem::Missing,
        _ => PathProblem::Unreadable(error.to_string()),
    };
    let found = fs::metadata(path).map_err(problem)?;
    let is_device = found.file_type().is_char_device() || found.file_type().is_block_device();
    match kind {
        PathKind::Directory if !found.is_dir() => Err(PathProblem::NotDirectory),
        PathKind::File if !found.is_file() => Err(PathProblem::NotFile),
        PathKind::Mountable if is_device => Err(PathProblem::Device),
        PathKind::CharacterDevice if !found.file_type().is_char_device() => {
            Err(PathProblem::NotCharacterDevice)
        }
        PathKind::CharacterDevice => usable_device(path).map_err(problem)?,
        PathKind::Directory | PathKind::File | PathKind::Mountable => Ok(()),
    }
}

/// Looks whether a device has this very name, and whether this user may use it.
fn usable_device(path: &str) -> std::io::Result<Result<(), PathProblem>> {
    let real = fs::canonicalize(path)?;
    if real != Path::new(path) {
        return Ok(Err(PathProblem::Link(real.to_string_lossy().into_owned())));
    }
    let wanted = Access::READ_OK | Access::WRITE_OK;
    let may_use = accessat(CWD, path, wanted, AtFlags::EACCESS).is_ok();
    Ok(may_use.then_some(()).ok_or(PathProblem::NotAllowed))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_are_followed_and_told_apart() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
        fs::create_dir(at("directory")).unwrap();
        fs::write(at("file"), "").unwrap();
        symlink("directory", at("link")).unwrap();
        symlink("loop", at("loop")).unwrap();
        assert_eq!(host_path(&at("link"), PathKind::Directory), Ok(()));
        assert_eq!(host_path(&at("link/../file"), PathKind::File), Ok(()));
        assert_eq!(
            host_path(&at("file"), PathKind::Directory),
            Err(PathProblem::NotDirectory)
        );
        assert_eq!(
            host_path(&at("directory"), PathKind::File),
            Err(PathProblem::NotFile)
        );
        assert_eq!(
            host_path(&at("gone"), PathKind::File),
            Err(PathProblem::Missing)
        );
        assert_eq!(
            host_path(&at("file/x"), PathKind::File),
            Err(PathProblem::Missing)
        );
        assert!(matches!(
            host_path(&at("loop"), PathKind::File),
            Err(PathProblem::Unreadable(_))
        ));
    }

    #[test]
    fn devices_are_told_apart_from_files_and_links() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
        symlink("/dev/null", at("link")).unwrap();
        let device = |path: &str| host_path(path, PathKind::CharacterDevice);
        assert_eq!(device("/dev/null"), Ok(()));
        let link = PathProblem::Link("/dev/null".to_owned());
        assert_eq!(device(&at("link")), Err(link));
        assert_eq!(device(&at("gone")), Err(PathProblem::Missing));
        assert_eq!(device("/"), Err(PathProblem::NotCharacterDevice));
        let mountable = |path: &str| host_path(path, PathKind::Mountable);
        assert_eq!(mountable("/dev/null"), Err(PathProblem::Device));
        assert_eq!(mountable(&at("link")), Err(PathProblem::Device));
        assert_eq!(mountable(&at("")), Ok(()));
        assert_eq!(mountable(&at("gone")), Err(PathProblem::Missing));
    }

    #[test]
    fn patterns_are_read_as_they_are_matched() {
        for good in ["**/*.rs", "a/{b,c}/[!x-z]?", "\\*", "[]]"] {
            assert_eq!(pattern_error(good), None, "{good}");
        }
        for bad in ["[a", "{a", "a}", "[z-a]", "a\\"] {
            assert!(pattern_error(bad).is_some(), "{bad}");
        }
    }
}
