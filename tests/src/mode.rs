//! Who runs the binary: root, or a user without privileges.

use std::env;
use std::fs;
use std::process::Command;
use std::sync::OnceLock;

use crate::binary::lock;
use crate::host::has_program;

/// Who runs the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Root.
    Root,
    /// A user without privileges: the one who runs the suite, or one made for this if that is root.
    Rootless,
    /// A user without privileges, without sub-ids and without an entry in the user database. Only
    /// where the suite is root.
    Nobody,
}

/// A user by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its user id.
    pub uid: u32,
    /// The id of its main group.
    pub gid: u32,
    /// Its name.
    pub name: String,
}

/// The id of a user that nobody knows.
const UNKNOWN_ID: u32 = 61_999;

/// The user that is made for the rootless tests.
const TEST_USER: &str = "tidemill-test";

impl Mode {
    /// The user that the binary runs as.
    ///
    /// # Errors
    /// Why this mode cannot be tried here.
    pub fn account(self) -> Result<Account, String> {
        let own = rustix::process::geteuid().as_raw();
        match (self, own) {
            (Self::Root, 0) => Ok(Account {
                uid: 0,
                gid: 0,
                name: "root".to_owned(),
            }),
            (Self::Nobody, 0) => Ok(Account {
                uid: UNKNOWN_ID,
                gid: UNKNOWN_ID,
                name: "somebody".to_owned(),
            }),
            (Self::Root | Self::Nobody, _) => Err("the suite does not run as root".to_owned()),
            (Self::Rootless, 0) => {
                static USER: OnceLock<Result<Account, String>> = OnceLock::new();
                USER.get_or_init(test_user).clone()
            }
            (Self::Rootless, uid) => Ok(Account {
                uid,
                gid: rustix::process::getegid().as_raw(),
                name: by_uid(uid).unwrap_or_else(|| uid.to_string()),
            }),
        }
    }

    /// True if the suite itself is root, and so may look at and change everything.
    pub fn suite_is_root() -> bool {
        rustix::process::geteuid().is_root()
    }
}

/// The user for rootless tests, made if it is not there.
fn test_user() -> Result<Account, String> {
    let wanted = env::var("TIDEMILL_TEST_USER").ok();
    let name = wanted.filter(|name| !name.is_empty());
    let name = name.as_deref().unwrap_or(TEST_USER);
    let _guard = lock("user");
    if find(name).is_none() {
        run("useradd", &["--create-home", "--shell", "/bin/sh", name])?;
    }
    for (file, flag) in [
        ("/etc/subuid", "--add-subuids"),
        ("/etc/subgid", "--add-subgids"),
    ] {
        let text = fs::read_to_string(file).unwrap_or_default();
        if !text
            .lines()
            .any(|line| line.starts_with(&format!("{name}:")))
        {
            let first = free_range(&text);
            run(
                "usermod",
                &[flag, &format!("{first}-{}", first + 65_535), name],
            )?;
        }
    }
    find(name).ok_or_else(|| format!("the user {name} was made and cannot be found"))
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    if !has_program(program) {
        return Err(format!(
            "no user for rootless tests can be made: {program} is missing"
        ));
    }
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!(
        "no user for rootless tests can be made: {program}: {said}"
    ))
}

/// The first number behind every range that a file gives out.
fn free_range(text: &str) -> u64 {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':').skip(1);
            let first: u64 = fields.next()?.trim().parse().ok()?;
            Some(first + fields.next()?.trim().parse::<u64>().ok()?)
        })
        .fold(200_000, u64::max)
}

fn find(name: &str) -> Option<Account> {
    passwd().find(|account| account.name == name)
}

fn by_uid(uid: u32) -> Option<String> {
    passwd()
        .find(|account| account.uid == uid)
        .map(|account| account.name)
}

fn passwd() -> impl Iterator<Item = Account> {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let accounts: Vec<Account> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            Some(Account { uid, gid, name })
        })
        .collect();
    accounts.into_iter()
}
