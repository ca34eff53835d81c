//! Small root file systems made by hand: one static busybox, and files of several owners.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;

use tar::{Builder, EntryType, Header};

use crate::host::is_file;
use crate::mode::{Account, Mode};

/// The programs of busybox that the tests' jobs use.
const APPLETS: &[&str] = &[
    "sh", "cat", "id", "ls", "stat", "echo", "touch", "mkdir", "rm", "env", "true", "false",
    "sleep", "printf", "test", "grep", "wc", "head", "chown", "ln", "readlink", "getent", "find",
    "sort",
];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/srv/app:/bin/sh\n";
const GROUP: &str = "root:x:0:\napp:x:1000:\n";

/// Files whose owners and permissions the tests look at: path, mode, owner, group.
const OWNED: &[(&str, u32, u32, u32)] = &[
    ("data/of-root", 0o644, 0, 0),
    ("data/of-app", 0o640, 1000, 1000),
    ("data/of-other", 0o604, 4242, 4343),
    ("data/setuid", 0o4755, 0, 0),
];

/// One entry of an archive.
#[derive(Debug, Clone)]
pub struct TarEntry {
    /// The path in the archive.
    pub path: String,
    /// Its kind.
    pub kind: EntryType,
    /// Permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u64, u64),
    /// What a link points to.
    pub target: Option<String>,
    /// A file's content.
    pub content: Vec<u8>,
}

impl TarEntry {
    /// A directory of root's.
    pub fn dir(path: &str) -> Self {
        Self {
            path: format!("{path}/"),
            kind: EntryType::Directory,
            mode: 0o755,
            owner: (0, 0),
            target: None,
            content: Vec::new(),
        }
    }

    /// A file of root's.
    pub fn file(path: &str, content: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.to_owned(),
            kind: EntryType::Regular,
            mode: 0o644,
            content: content.into(),
            ..Self::dir(path)
        }
    }

    /// A symbolic link.
    pub fn symlink(path: &str, target: &str) -> Self {
        Self {
            path: path.to_owned(),
            kind: EntryType::Symlink,
            mode: 0o777,
            target: Some(target.to_owned()),
            ..Self::dir(path)
        }
    }

    /// The same entry with other permission bits.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// The same entry with another owner and group.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = (uid.into(), gid.into());
        self
    }
}

/// Writes an archive.
pub fn write_tar(sink: impl Write, entries: &[TarEntry]) {
    let mut archive = Builder::new(sink);
    for entry in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(entry.kind);
        header.set_mode(entry.mode);
        header.set_uid(entry.owner.0);
        header.set_gid(entry.owner.1);
        header.set_mtime(1_700_000_000);
        header.set_size(entry.content.len() as u64);
        let added = match &entry.target {
            Some(target) => archive.append_link(&mut header, &entry.path, target),
            None => archive.append_data(&mut header, &entry.path, entry.content.as_slice()),
        };
        added.expect("the archive can be written");
    }
    archive.finish().expect("the archive can be written");
}

/// The host's busybox, if there is one that needs no library.
fn static_busybox() -> Result<Vec<u8>, String> {
    let found = ["/bin/busybox", "/usr/bin/busybox", "/usr/local/bin/busybox"]
        .into_iter()
        .map(Path::new)
        .find(|path| is_file(path))
        .ok_or("busybox is not installed")?;
    let bytes = fs::read(found).map_err(|error| error.to_string())?;
    // A program with an interpreter names it in its first page.
    let first_page = &bytes[..bytes.len().min(4096)];
    if first_page.windows(9).any(|part| part == b"/ld-linux") {
        return Err("busybox is not static".to_owned());
    }
    Ok(bytes)
}

/// The entries of the small root.
fn entries() -> Result<Vec<TarEntry>, String> {
    let busybox = static_busybox()?;
    let mut entries: Vec<TarEntry> = ["bin", "etc", "data", "srv", "root", "tmp", "usr", "var"]
        .map(TarEntry::dir)
        .into();
    entries.push(TarEntry::dir("srv/app").owner(1000, 1000));
    entries.push(TarEntry::file("bin/busybox", busybox).mode(0o755));
    for applet in APPLETS {
        entries.push(TarEntry::symlink(&format!("bin/{applet}"), "busybox"));
    }
    entries.push(TarEntry::file("etc/passwd", PASSWD));
    entries.push(TarEntry::file("etc/group", GROUP));
    for (path, mode, uid, gid) in OWNED {
        entries.push(TarEntry::file(path, *path).mode(*mode).owner(*uid, *gid));
    }
    entries.push(TarEntry::symlink("data/link", "of-root"));
    Ok(entries)
}

/// Writes the small root as an archive.
///
/// # Errors
/// Why this host has nothing to make it of.
pub fn busybox_tar(sink: impl Write) -> Result<(), String> {
    write_tar(sink, &entries()?);
    Ok(())
}

/// Makes the small root as a directory. For root its files have several owners, for anybody else
/// they are all of this account.
///
/// # Errors
/// Why this host has nothing to make it of.
pub fn busybox_root(at: &Path, account: &Account) -> Result<(), String> {
    let entries = entries()?;
    fs::create_dir_all(at).expect("the world is ours");
    let give = |path: &Path, owner: (u64, u64)| {
        if !Mode::suite_is_root() {
            return;
        }
        let id = |id: u64| u32::try_from(id).expect("ids are small here");
        let (uid, gid) = match account.uid {
            0 => (id(owner.0), id(owner.1)),
            _ => (account.uid, account.gid),
        };
        lchown(path, Some(uid), Some(gid)).expect("root may do so");
    };
    give(at, (0, 0));
    for entry in &entries {
        let path = at.join(&entry.path);
        match (&entry.target, entry.kind) {
            (Some(target), _) => symlink(target, &path).expect("the world is ours"),
            (None, EntryType::Directory) => {
                fs::create_dir_all(&path).expect("the world is ours");
            }
            _ => fs::write(&path, &entry.content).expect("the world is ours"),
        }
        let path = at.join(entry.path.trim_end_matches('/'));
        give(&path, entry.owner);
        if entry.target.is_none() {
            fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode))
                .expect("the file is ours");
        }
    }
    Ok(())
}
