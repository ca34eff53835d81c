//! The directory of a root file system: it becomes an image of one layer. The layer is a tar archive in
//! the order of names, without names of users, so that the same files give the same digest.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Serialize;
use tar::{Builder, EntryType, Header};

use super::{Import, ImportError, Imported};
use crate::content::{Committed, ContentError, NewBlob};
use crate::digest::OciDigest;
use crate::manifest::Descriptor;
use crate::media_type::{OCI_CONFIG, OCI_LAYER};
use crate::names::Named;

/// What names in a layer begin with that remove a file of a lower one.
const WHITEOUT: &[u8] = b".wh.";
/// Extended attributes that belong to a file's content; others belong to the machine.
const CAPABILITY: &str = "security.capability";
const USER: &str = "user.";
/// Bytes of the names and of one value of extended attributes: the kernel's own limits.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// The configuration as it is written here.
#[derive(Serialize)]
struct NewConfig<'a> {
    architecture: &'a str,
    os: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<&'a str>,
    rootfs: RootFs,
}

#[derive(Serialize)]
struct RootFs {
    #[serde(rename = "type")]
    kind: &'static str,
    diff_ids: [OciDigest; 1],
}

impl Import<'_> {
    pub(super) fn root(&mut self) -> Result<Vec<Imported>, ImportError> {
        let reference = self.name(None)?;
        let blob = self.content.create()?;
        let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
        let (device, _) = identity(self.source).map_err(failed(self.source))?;
        let mut walk = Walk {
            tar: Builder::new(BufWriter::new(blob)),
            source: self.source,
            own: identity(self.content.base()).ok(),
            device,
            linked: HashMap::new(),
            count: 0,
        };
        walk.directory(Path::new(""))?;
        if walk.count == 0 {
            return Err(self.not_an_image("the directory is empty"));
        }
        let blob = walk
            .tar
            .into_inner()
            .and_then(|buffered| {
                buffered
                    .into_inner()
                    .map_err(io::IntoInnerError::into_error)
            })
            .map_err(|source| ContentError::of("write into", self.content.base(), source))?;
        let Committed {
            digest,
            size,
            is_new,
        } = blob.commit()?;
        if is_new {
            self.added.push(digest);
        }
        let platform = &self.options.platform;
        let config = NewConfig {
            architecture: &platform.architecture,
            os: &platform.os,
            variant: platform.variant.as_deref(),
            rootfs: RootFs {
                kind: "layers",
                diff_ids: [digest],
            },
        };
        let bytes = serde_json::to_vec(&config).expect("a configuration is written as JSON");
        let config = Descriptor {
            media_type: OCI_CONFIG.to_owned(),
            digest: self.put(&bytes)?,
            size: bytes.len() as u64,
        };
        let layer = Descriptor {
            media_type: OCI_LAYER.to_owned(),
            digest,
            size,
        };
        let image = self.new_image(&config, &bytes, &[layer])?;
        Ok(vec![Imported {
            named: Named {
                reference,
                manifest: image.manifest.descriptor.clone(),
                platform: image.config.platform.clone(),
                index: None,
                is_local: true,
            },
            image,
        }])
    }
}

/// Goes through a directory and writes what it finds.
struct Walk<'a> {
    tar: Builder<BufWriter<NewBlob>>,
    source: &'a Path,
    /// The store, which may lie in the directory.
    own: Option<(u64, u64)>,
    /// The file system: what is mounted in the directory is left out.
    device: u64,
    /// Files of several names, by device and inode.
    linked: HashMap<(u64, u64), PathBuf>,
    count: u64,
}

impl Walk<'_> {
    /// Writes what is in a directory, in the order of the names' bytes.
    fn directory(&mut self, relative: &Path) -> Result<(), ImportError> {
        let path = self.source.join(relative);
        let mut names = fs::read_dir(&path)
            .and_then(|entries| {
                entries
                    .map(|entry| entry.map(|entry| entry.file_name()))
                    .collect::<io::Result<Vec<_>>>()
            })
            .map_err(failed(&path))?;
        names.sort();
        for name in names {
            self.entry(&relative.join(&name), &name)?;
        }
        Ok(())
    }

    fn entry(&mut self, relative: &Path, name: &OsStr) -> Result<(), ImportError> {
        let path = self.source.join(relative);
        if name.as_bytes().starts_with(WHITEOUT) {
            return Err(ImportError::Entry {
                path: self.source.to_owned(),
                entry: relative.display().to_string().escape_debug().to_string(),
                problem: "would remove a file when it is unpacked, as layers have it".to_owned(),
            });
        }
        let metadata = fs::symlink_metadata(&path).map_err(failed(&path))?;
        let identity = (metadata.dev(), metadata.ino());
        let kind = metadata.file_type();
        if kind.is_socket() || self.own == Some(identity) {
            return Ok(());
        }
        self.count += 1;
        if !kind.is_dir() && metadata.nlink() > 1 {
            if let Some(first) = self.linked.get(&identity).cloned() {
                return self.link(relative, &metadata, EntryType::Link, first.as_os_str());
            }
            self.linked.insert(identity, relative.to_owned());
        }
        if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(failed(&path))?;
            return self.link(relative, &metadata, EntryType::Symlink, target.as_os_str());
        }
        if kind.is_file() {
            return self.file(relative, &metadata);
        }
        let mut header = header(&metadata, EntryType::Directory);
        if kind.is_dir() {
            self.attributes(&path)?;
        } else if kind.is_fifo() {
            header.set_entry_type(EntryType::Fifo);
        } else {
            let entry_type = if kind.is_char_device() {
                EntryType::Char
            } else {
                EntryType::Block
            };
            header.set_entry_type(entry_type);
            set_device(&mut header, metadata.rdev()).map_err(failed(&path))?;
        }
        self.append(&mut header, relative, io::empty())?;
        if kind.is_dir() && metadata.dev() == self.device {
            self.directory(relative)?;
        }
        Ok(())
    }

    fn file(&mut self, relative: &Path, metadata: &Metadata) -> Result<(), ImportError> {
        let path = self.source.join(relative);
        let no_follow = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
        let file = File::options()
            .read(true)
            .custom_flags(no_follow)
            .open(&path)
            .map_err(failed(&path))?;
        self.attributes(&path)?;
        let mut header = header(metadata, EntryType::Regular);
        header.set_size(metadata.len());
        let mut counted = Counted { file, count: 0 };
        self.append(&mut header, relative, (&mut counted).take(metadata.len()))?;
        if counted.count != metadata.len() {
            return Err(ImportError::Entry {
                path: self.source.to_owned(),
                entry: relative.display().to_string().escape_debug().to_string(),
                problem: "changed while it was read".to_owned(),
            });
        }
        Ok(())
    }

    fn link(
        &mut self,
        relative: &Path,
        metadata: &Metadata,
        kind: EntryType,
        target: &OsStr,
    ) -> Result<(), ImportError> {
        let mut header = header(metadata, kind);
        let target = target.as_bytes();
        if target.len() > LINK_BYTES {
            // The extension of GNU for targets that have no room in the header.
            let mut long = Header::new_gnu();
            long.set_entry_type(EntryType::GNULongLink);
            long.set_size(target.len() as u64 + 1);
            self.append(
                &mut long,
                Path::new(LONG_LINK),
                target.chain(io::repeat(0).take(1)),
            )?;
        }
        let shown = &target[..target.len().min(LINK_BYTES)];
        header
            .set_link_name_literal(shown)
            .map_err(failed(&self.source.join(relative)))?;
        self.append(&mut header, relative, io::empty())
    }

    fn append(
        &mut self,
        header: &mut Header,
        relative: &Path,
        data: impl Read,
    ) -> Result<(), ImportError> {
        let path = self.source.join(relative);
        self.tar
            .append_data(header, relative, data)
            .map_err(|source| match Errno::from_io_error(&source) {
                Some(Errno::NOSPC | Errno::DQUOT) => {
                    ContentError::of("write the layer of", &path, source).into()
                }
                _ => failed(&path)(source),
            })
    }

    /// Writes the extended attributes of the next entry before it.
    fn attributes(&mut self, path: &Path) -> Result<(), ImportError> {
        let mut records = Vec::new();
        for (name, value) in extended_attributes(path).map_err(failed(path))? {
            records.push((format!("SCHILY.xattr.{name}"), value));
        }
        if records.is_empty() {
            return Ok(());
        }
        let records = records
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()));
        self.tar
            .append_pax_extensions(records)
            .map_err(failed(path))
    }
}

/// Room for the target of a link in a header.
const LINK_BYTES: usize = 100;
/// What GNU calls the entry of a target that has no room.
const LONG_LINK: &str = "././@LongLink";

/// Reads, and counts how much.
struct Counted {
    file: File,
    count: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(buffer)?;
        self.count += length as u64;
        Ok(length)
    }
}

/// What an entry says of itself: mode, owner and time, and no names of users. Times are whole seconds.
fn header(metadata: &Metadata, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(metadata.mode() & 0o7777);
    header.set_uid(metadata.uid().into());
    header.set_gid(metadata.gid().into());
    header.set_mtime(metadata.mtime().try_into().unwrap_or(0));
    header.set_size(0);
    header
}

fn set_device(header: &mut Header, device: u64) -> io::Result<()> {
    header.set_device_major(rustix::fs::major(device))?;
    header.set_device_minor(rustix::fs::minor(device))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ImportError + use<> {
    let path = path.to_owned();
    move |source| ImportError::Read { path, source }
}

/// The extended attributes that are part of a file's content, in the order of their names.
fn extended_attributes(path: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = match rustix::fs::llistxattr(path, names.as_mut_slice()) {
        Ok(length) => length,
        // A file system that has none.
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut names: Vec<_> = names[..length]
        .split(|&byte| byte == 0)
        .filter_map(|name| std::str::from_utf8(name).ok())
        .filter(|name| *name == CAPABILITY || name.starts_with(USER))
        .collect();
    names.sort_unstable();
    let mut attributes = Vec::new();
    for name in names {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let length = rustix::fs::lgetxattr(path, name, value.as_mut_slice())?;
        value.truncate(length);
        attributes.push((name.to_owned(), value));
    }
    Ok(attributes)
}
