//! What a job in the middle of a larger project did not see.
//!
//! Without a word about it, a job sees the directory that its caller stands in and nothing above it. A
//! program that looks above for its repository or workspace fails there, and says what it says.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

/// Bytes that are read of a project's file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What to write so that the job sees the whole repository or workspace around `workspace`; nothing if
/// it is one itself or in none. Looks no further up than `home`.
pub(crate) fn hint(workspace: &Path, home: &Path) -> Option<String> {
    if is_repository(workspace) || is_whole(workspace) {
        return None;
    }
    let above = || {
        workspace
            .ancestors()
            .skip(1)
            .take_while(|directory| *directory != home && directory.parent().is_some())
    };
    let (around, what) = match above().find(|directory| is_repository(directory)) {
        Some(around) => (around, "repository"),
        None => (above().find(|directory| is_whole(directory))?, "workspace"),
    };
    let rest = workspace.strip_prefix(around).ok()?;
    Some(format!(
        "it saw {} and nothing above it; for the whole {what}: --workspace {} --workdir {}",
        workspace.display(),
        around.display(),
        rest.display()
    ))
}

fn is_repository(directory: &Path) -> bool {
    directory.join(".git").symlink_metadata().is_ok()
}

/// True for the root of a workspace whose packages look for it: that of Cargo, npm and yarn, or pnpm.
fn is_whole(directory: &Path) -> bool {
    let text = |name: &str| read(&directory.join(name));
    let is_header = |line: &str| {
        let line = line.trim_start();
        line.starts_with("[workspace]") || line.starts_with("[workspace.")
    };
    text("Cargo.toml").is_some_and(|text| text.lines().any(is_header))
        || text("package.json").is_some_and(|text| {
            serde_json::from_str::<Value>(&text).is_ok_and(|json| json.get("workspaces").is_some())
        })
        || directory.join("pnpm-workspace.yaml").is_file()
}

fn read(path: &Path) -> Option<String> {
    // What is no regular file is not opened: a pipe would never answer.
    if !path.is_file() {
        return None;
    }
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
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

    #[test]
    fn a_workspace_of_packages_is_found_without_a_repository() {
        for (file, text) in [
            ("Cargo.toml", "[package]\nname = 'a'\n\n[workspace]\n"),
            ("package.json", r#"{ "workspaces": ["packages/*"] }"#),
            ("pnpm-workspace.yaml", "packages:\n"),
        ] {
            let scratch = tempfile::tempdir().unwrap();
            let home = scratch.path();
            let root = home.join("project");
            let inner = root.join("packages/one");
            fs::create_dir_all(&inner).unwrap();
            fs::write(inner.join("Cargo.toml"), "[package]\nname = 'one'\n").unwrap();
            fs::write(root.join("package.json"), "{}").unwrap();
            assert_eq!(hint(&inner, home), None);
            fs::write(root.join(file), text).unwrap();
            let said = hint(&inner, home).unwrap();
            assert!(said.contains("for the whole workspace: "), "{said}");
            assert!(said.ends_with("--workdir packages/one"), "{said}");
            assert_eq!(hint(&root, home), None);
        }
    }
}
