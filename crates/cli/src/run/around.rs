//! What a job in the middle of a larger project did not see.
//!
//! Without a word about it, a job sees the directory that its caller stands in and nothing above it. A
//! program that looks above for its repository or workspace fails there, and says what it says.

use std::path::Path;

/// What to write so that the job sees the whole repository around `workspace`; nothing if the workspace
/// is one itself or in none. Looks no further up than `home`.
pub(crate) fn hint(workspace: &Path, home: &Path) -> Option<String> {
    let is_repository = |directory: &Path| directory.join(".git").symlink_metadata().is_ok();
    if is_repository(workspace) {
        return None;
    }
    let around = workspace
        .ancestors()
        .skip(1)
        .take_while(|directory| *directory != home && directory.parent().is_some())
        .find(|directory| is_repository(directory))?;
    let rest = workspace.strip_prefix(around).ok()?;
    Some(format!(
        "it saw {} and nothing above it; for the whole repository: --workspace {} --workdir {}",
        workspace.display(),
        around.display(),
        rest.display()
    ))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_repository_around_the_workspace_is_found_below_the_home() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path();
        let inner = home.join("project/crates/core");
        fs::create_dir_all(&inner).unwrap();
        assert_eq!(hint(&inner, home), None);
        fs::create_dir(home.join("project/.git")).unwrap();
        let said = hint(&inner, home).unwrap();
        let wanted = format!(
            "--workspace {} --workdir crates/core",
            home.join("project").display()
        );
        assert!(said.ends_with(&wanted), "{said}");
        assert_eq!(hint(&home.join("project"), home), None);
        // A work tree has a file of that name.
        fs::write(inner.join(".git"), "gitdir: elsewhere").unwrap();
        assert_eq!(hint(&inner, home), None);
    }

    #[test]
    fn a_home_that_is_a_repository_is_nobody_s_project() {
        let scratch = tempfile::tempdir().unwrap();
        let inner = scratch.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir(scratch.path().join(".git")).unwrap();
        assert_eq!(hint(&inner, scratch.path()), None);
    }
}
