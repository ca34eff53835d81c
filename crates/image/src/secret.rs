//! What of the host is never shown to a job: tables that were reviewed line by line, each with its
//! reason.
//!
//! A job runs as an id that the host's permissions mostly keep out anyway. These tables are the
//! second wall: for backups with lax modes, for files that the caller owns, and for a job whose ids
//! are mapped to the caller's.

mod table;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path};
use std::sync::LazyLock;

use table::SUSPICIOUS_NAMES;
pub use table::{ETC_MAYBE_SECRETS, ETC_SECRETS, HOME_SECRETS, Secret};

/// True if `name` fits `pattern`, in which `*` stands for any run of characters.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = name
        .strip_prefix(first)
        .and_then(|name| name.strip_suffix(last));
    let Some(mut inner) = inner else {
        return false;
    };
    for part in middle.split('*') {
        match inner.find(part) {
            Some(at) => inner = &inner[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// A pattern, name by name.
type Pattern = Vec<&'static str>;

static HOME_PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    HOME_SECRETS
        .iter()
        .map(|secret| split(secret.pattern))
        .collect()
});
static ETC_PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    ETC_SECRETS
        .iter()
        .map(|secret| split(secret.pattern))
        .collect()
});
static ETC_MAYBE_PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    ETC_MAYBE_SECRETS
        .iter()
        .map(|pattern| split(pattern))
        .collect()
});
static SUSPICIOUS_PATTERNS: LazyLock<Vec<Pattern>> =
    LazyLock::new(|| SUSPICIOUS_NAMES.iter().map(|name| vec![*name]).collect());

/// The entry of the table that `path` (relative to a home) is, or lies below.
pub fn home_secret_above(path: &Path) -> Option<&'static Secret> {
    let names = names_of(path);
    let above = |pattern: &Pattern| pattern.len() <= names.len() && fits(pattern, &names);
    HOME_PATTERNS
        .iter()
        .position(above)
        .map(|index| &HOME_SECRETS[index])
}

/// True for a directory (relative to a home) in which the table knows secrets: a place of settings.
pub fn holds_home_secrets(dir: &Path) -> bool {
    let names = names_of(dir);
    HOME_PATTERNS
        .iter()
        .any(|pattern| pattern.len() > names.len() && fits(pattern, &names))
}

/// What has to be hidden in a directory of a home: existing paths relative to `dir`. `dir_in_home`
/// says where in the home it is; empty for the home itself.
pub fn home_secrets_below(dir: &Path, dir_in_home: &Path) -> Vec<String> {
    let names = names_of(dir_in_home);
    let below: Vec<Pattern> = HOME_PATTERNS
        .iter()
        .filter(|pattern| pattern.len() > names.len() && fits(pattern, &names))
        .map(|pattern| pattern[names.len()..].to_vec())
        .collect();
    let mut found = Vec::new();
    if !below.is_empty() {
        expand(dir, &below, "", &mut found);
    }
    finish(found)
}

/// What has to be hidden in `/etc`: existing paths relative to `etc`.
pub fn etc_secrets(etc: &Path) -> Vec<String> {
    let mut found = Vec::new();
    expand(etc, &ETC_PATTERNS, "", &mut found);
    let mut candidates = Vec::new();
    expand(etc, &ETC_MAYBE_PATTERNS, "", &mut candidates);
    found.extend(
        candidates
            .into_iter()
            .filter(|path| file_holds_secret(&etc.join(path))),
    );
    finish(found)
}

/// What has to be hidden directly in a directory about which nothing is known.
pub fn suspicious_entries(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    expand(dir, &SUSPICIOUS_PATTERNS, "", &mut found);
    finish(found)
}

/// True if each name fits its place in the pattern, as far as both go.
fn fits(pattern: &Pattern, names: &[Cow<'_, str>]) -> bool {
    pattern
        .iter()
        .zip(names)
        .all(|(pattern, name)| name_matches(pattern, name))
}

/// How much of a settings file is looked at.
pub const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// True if a settings file holds a password or token, or if that cannot be said because it is not
/// readable, too large or not text.
pub fn file_holds_secret(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return false,
        Ok(metadata) if metadata.is_file() && metadata.len() <= SETTINGS_BYTES_MAX => {}
        Ok(_) => return true,
        // Nobody else sees what is not there.
        Err(_) => return false,
    }
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(SETTINGS_BYTES_MAX).read_to_string(&mut text));
    if read.is_err() {
        return true;
    }
    // Most files do not even mention one, and this is done for every job.
    text.make_ascii_lowercase();
    let mentions = text.contains("://") || SECRET_KEYS.iter().any(|key| text.contains(key));
    mentions && text.lines().any(line_holds_secret)
}

/// What the names of settings with a password or token have in them.
const SECRET_KEYS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "token",
    "secret",
    "_auth",
    "api_key",
    "apikey",
    "access_key",
    "accesskey",
    "private_key",
    "credential",
];

/// True if a line of a settings file looks like one with a password or token. Comments do not
/// count, and neither does a bare key without a value.
pub fn line_holds_secret(line: &str) -> bool {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return false;
    }
    let lower = line.to_ascii_lowercase();
    if has_url_password(&lower) {
        return true;
    }
    SECRET_KEYS.iter().any(|key| {
        lower.match_indices(key).any(|(at, _)| {
            let rest = lower[at + key.len()..].trim_start_matches(|c: char| {
                c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '"' | '\'' | ']')
            });
            let value = rest.trim_start().strip_prefix(['=', ':', '>']);
            value.is_some_and(|value| !value.trim_matches([' ', '"', '\'']).is_empty())
        })
    })
}

/// True for `scheme://user:password@host` and for `scheme://token@host`, as long as the user is not
/// the well-known `git`.
fn has_url_password(line: &str) -> bool {
    line.match_indices("://").any(|(at, mark)| {
        let rest = &line[at + mark.len()..];
        let end = rest
            .find(['/', ' ', '"', '\'', '?', '#'])
            .unwrap_or(rest.len());
        rest[..end]
            .rsplit_once('@')
            .is_some_and(|(user, _)| user != "git")
    })
}

fn names_of(path: &Path) -> Vec<Cow<'_, str>> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_string_lossy()),
            _ => None,
        })
        .collect()
}

/// Literal names that are looked up one by one; for more, the directory is listed.
const LOOK_UPS_MAX: usize = 8;

/// Adds the existing paths below `dir` that fit one of the patterns. Each directory is listed at most
/// once: this is done for every job.
fn expand(dir: &Path, patterns: &[Pattern], prefix: &str, found: &mut Vec<String>) {
    let has_star = |pattern: &&Pattern| pattern[0].contains('*');
    let wanted = patterns.len() > LOOK_UPS_MAX || patterns.iter().any(|pattern| has_star(&pattern));
    let listed = if wanted { list(dir) } else { None };
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for pattern in patterns {
        match &listed {
            Some(listed) if has_star(&pattern) => {
                let fitting = listed.iter().filter(|name| name_matches(pattern[0], name));
                names.extend(fitting.map(String::as_str));
            }
            Some(listed) => {
                if listed
                    .binary_search_by(|name| name.as_str().cmp(pattern[0]))
                    .is_ok()
                {
                    names.insert(pattern[0]);
                }
            }
            None => {
                if dir.join(pattern[0]).symlink_metadata().is_ok() {
                    names.insert(pattern[0]);
                }
            }
        }
    }
    for name in names {
        let path = if prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{prefix}/{name}")
        };
        let fitting = patterns
            .iter()
            .filter(|pattern| name_matches(pattern[0], name));
        let rest: Vec<Pattern> = fitting.map(|pattern| pattern[1..].to_vec()).collect();
        if rest.iter().any(Vec::is_empty) {
            found.push(path);
        } else {
            expand(&dir.join(name), &rest, &path, found);
        }
    }
}

/// The names in a directory, sorted; `None` if it cannot be listed.
fn list(dir: &Path) -> Option<Vec<String>> {
    // A name that is not UTF-8 cannot be written in a plan; no program writes its secrets so.
    let names = fs::read_dir(dir).ok()?.flatten();
    let mut names: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    Some(names)
}

/// The names of a pattern.
fn split(pattern: &'static str) -> Pattern {
    pattern.split('/').collect()
}

/// Sorted, each once, without what lies below another one.
fn finish(mut found: Vec<String>) -> Vec<String> {
    found.sort();
    found.dedup();
    let mut kept: Vec<String> = Vec::new();
    for path in found {
        let below = kept.iter().any(|above| {
            path.strip_prefix(above.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        });
        if !below {
            kept.push(path);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, name, fits) in [
            ("shadow*", "shadow", true),
            ("shadow*", "shadow-", true),
            ("shadow*", "myshadow", false),
            ("*.key", "x.key", true),
            ("*.key", "x.key.pub", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "acb", false),
            ("a*b*c", "abc", true),
            ("ab*ba", "aba", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            (".ssh", ".sshx", false),
        ] {
            assert_eq!(name_matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn lines_with_passwords_are_told_from_lines_about_them() {
        for line in [
            "password = hunter2",
            "//registry.test/:_authToken=abc",
            "  \"token\": \"abc\",",
            "http-proxy-password=x",
            "index-url = https://user:pw@pypi.test/simple",
            "url = https://ghp_abc@github.test/x",
            "<password>x</password>",
            "aws_secret_access_key = x",
            "credentials=/root/.smb,uid=0",
        ] {
            assert!(line_holds_secret(line), "{line}");
        }
        for line in [
            "# password = hunter2",
            "; token=x",
            "password =",
            "url = ssh://git@github.test/x",
            "index-url = https://pypi.test/simple",
            "always-auth = true",
            "",
        ] {
            assert!(!line_holds_secret(line), "{line}");
        }
    }

    #[test]
    fn what_lies_below_a_secret_is_one() {
        for (path, is_secret) in [
            (".ssh", true),
            (".ssh/keys/id", true),
            (".config/gcloud/x", true),
            (".config", false),
            (".config/other", false),
            (".cargo/credentials.toml", true),
            (".cargo/bin", false),
            (".nvm/versions/node/v20/etc/npmrc", true),
            (".nvm/versions/node/v20/bin", false),
        ] {
            assert_eq!(
                home_secret_above(Path::new(path)).is_some(),
                is_secret,
                "{path}"
            );
        }
    }
}
