//! The fixes that `doctor` prints: as commands that this user can paste, and each only once.

use std::env;
use std::os::unix::process::parent_id;

use tidemill_sandbox::Check;

use crate::command::cancel::caller;

/// How the user of this machine becomes root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Admin {
    /// With `sudo` before a command.
    Sudo,
    /// In a shell of root's, which knows neither the user nor the shell that a fix is for.
    Root {
        /// The user's name.
        user: String,
        /// The process of the user's shell.
        shell: u32,
    },
}

impl Admin {
    /// What is there on this machine.
    pub(super) fn here() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        if env::split_paths(&path).any(|directory| directory.join("sudo").is_file()) {
            Self::Sudo
        } else {
            Self::Root {
                user: caller(),
                shell: parent_id(),
            }
        }
    }

    fn fix(&self, text: &str) -> Fix {
        match self {
            Self::Root { user, shell } if text.contains("sudo ") => Fix {
                label: "fix, as root",
                text: text
                    .replace("sudo ", "")
                    .replace("$USER", user)
                    .replace("$$", &shell.to_string()),
            },
            _ => Fix {
                label: "fix",
                text: text.to_owned(),
            },
        }
    }
}

/// A fix as it is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fix {
    pub(super) label: &'static str,
    pub(super) text: String,
}

/// The fix of each check. What is one and the same for several checks, or differs only in the control
/// group that it makes, stands with the first of them.
pub(super) fn fixes(checks: &[Check], admin: &Admin) -> Vec<Option<Fix>> {
    let forms: Vec<Option<(String, Option<&str>)>> = checks
        .iter()
        .map(|check| check.fix.as_deref().map(form))
        .collect();
    let mut fixes = Vec::new();
    for (index, form) in forms.iter().enumerate() {
        let Some((text, group)) = form else {
            fixes.push(None);
            continue;
        };
        let is_twin = |other: &&Option<(String, Option<&str>)>| {
            other.as_ref().is_some_and(|(other, _)| other == text)
        };
        if let Some(first) = forms[..index].iter().position(|other| is_twin(&other)) {
            fixes.push(Some(Fix {
                label: "fix",
                text: format!("the same as {}", checks[first].name),
            }));
            continue;
        }
        let mut groups: Vec<&str> = Vec::new();
        for (_, other) in forms.iter().filter(is_twin).flatten() {
            groups.extend(other.filter(|other| !groups.contains(other)));
        }
        let whole = match (group, text.split_once(": ")) {
            (Some(_), Some((what, commands))) if groups.len() > 1 => {
                format!("{what}: for g in {}; do {commands}; done", groups.join(" "))
            }
            _ => checks[index].fix.clone().unwrap_or_default(),
        };
        fixes.push(Some(admin.fix(&whole)));
    }
    fixes
}

/// A fix with `$g` for the control group that it makes, and the group.
fn form(fix: &str) -> (String, Option<&str>) {
    let group = fix
        .split_once("mkdir -p ")
        .and_then(|(_, rest)| rest.split_once(" &&"))
        .map(|(group, _)| group);
    match group {
        Some(group) => (fix.replace(group, "$g"), Some(group)),
        None => (fix.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use tidemill_sandbox::CheckState;

    use super::*;

    fn check(name: &str, fix: &str) -> Check {
        Check {
            name: name.to_owned(),
            state: CheckState::Limited,
            found: String::new(),
            blocked_by: None,
            fix: Some(fix.to_owned()),
        }
    }

    fn texts(checks: &[Check], admin: &Admin) -> Vec<String> {
        let fixes = fixes(checks, admin).into_iter().flatten();
        fixes
            .map(|fix| format!("{}: {}", fix.label, fix.text))
            .collect()
    }

    #[test]
    fn control_groups_are_made_in_one_go() {
        let make = |group: &str| {
            format!(
                "make it: sudo mkdir -p {group} && sudo chown $USER {group} && \
                 echo $$ | sudo tee {group}/cgroup.procs"
            )
        };
        let checks = [
            check("memory", &make("/cg/memory/t")),
            check("pids", &make("/cg/pids/t")),
            check("fuse", "sudo modprobe fuse"),
        ];
        assert_eq!(
            texts(&checks, &Admin::Sudo),
            [
                "fix: make it: for g in /cg/memory/t /cg/pids/t; do sudo mkdir -p $g && \
                 sudo chown $USER $g && echo $$ | sudo tee $g/cgroup.procs; done",
                "fix: the same as memory",
                "fix: sudo modprobe fuse",
            ]
        );
        let alone = texts(&checks[..1], &Admin::Sudo);
        assert_eq!(alone, [format!("fix: {}", make("/cg/memory/t"))]);
    }

    #[test]
    fn without_sudo_the_commands_are_root_s() {
        let admin = Admin::Root {
            user: "ada".to_owned(),
            shell: 42,
        };
        let checks = [
            check("kvm", "sudo usermod -aG kvm $USER; echo $$"),
            check("landlock", "boot a newer kernel"),
        ];
        assert_eq!(
            texts(&checks, &admin),
            [
                "fix, as root: usermod -aG kvm ada; echo 42",
                "fix: boot a newer kernel"
            ]
        );
    }
}
