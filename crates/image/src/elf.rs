//! What an ELF file says about the files that it is loaded with: its interpreter, the libraries that it
//! needs and where it wants them to be looked for. The file is read and never run; it may be hostile.

#[cfg(test)]
pub(crate) mod testing;

use std::io;
use std::path::Path;

use object::elf::{self, FileHeader32, FileHeader64, Machine};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};

use crate::glob::open_plain;

/// Bytes of names at most that are read of one file. The largest programs have a few megabytes.
const NAMES_BYTES_MAX: u64 = 64 << 20;
/// Libraries that one file names at most.
const NEEDED_MAX: usize = 4096;
/// Bytes of the first line of a script that are looked at: what Linux reads of it.
const SCRIPT_LINE_BYTES: usize = 256;

/// What a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ElfFile {
    /// What it runs on: libraries have to be of the same.
    pub(crate) machine: ElfMachine,
    /// The program that loads it, if it is a program that is loaded.
    pub(crate) interpreter: Option<String>,
    /// The libraries that it needs, in order.
    pub(crate) needed: Vec<String>,
    /// Directories that are searched for its libraries and for those of what it loads. Without meaning
    /// if there is a `runpath`.
    pub(crate) rpath: Vec<String>,
    /// Directories that are searched for its own libraries.
    pub(crate) runpath: Option<Vec<String>>,
}

/// What a file runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ElfMachine {
    machine: Machine,
    pub(crate) is_64: bool,
}

impl ElfMachine {
    /// The directories for this machine on Debian and what comes of it, with the name of its kind:
    /// <https://wiki.debian.org/Multiarch/Tuples>.
    pub(crate) fn multiarch(self) -> Option<&'static str> {
        match (self.machine, self.is_64) {
            (elf::EM_X86_64, true) => Some("x86_64-linux-gnu"),
            (elf::EM_X86_64, false) => Some("x86_64-linux-gnux32"),
            (elf::EM_386, _) => Some("i386-linux-gnu"),
            (elf::EM_AARCH64, _) => Some("aarch64-linux-gnu"),
            (elf::EM_ARM, _) => Some("arm-linux-gnueabihf"),
            (elf::EM_RISCV, true) => Some("riscv64-linux-gnu"),
            (elf::EM_PPC64, _) => Some("powerpc64le-linux-gnu"),
            (elf::EM_S390, true) => Some("s390x-linux-gnu"),
            _ => None,
        }
    }
}

/// Why a file cannot be read as a program or library.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file cannot be read.
    #[error("it could not be read")]
    Read(#[source] io::Error),
    /// It begins with the name of an interpreter.
    #[error("it is a script for `{interpreter}`")]
    Script {
        /// What runs it.
        interpreter: String,
    },
    /// It is not in the format of Linux programs.
    #[error("it is no ELF file")]
    NotElf,
    /// It is in that format, and damaged.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

impl ElfError {
    /// What to do next.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Read(_) => "make it readable for the user that runs Tidemill".into(),
            Self::Script { interpreter } => format!("name its interpreter instead: {interpreter}"),
            Self::NotElf => "name a program or a library".into(),
            Self::Damaged(_) => "install it again".into(),
        }
    }
}

impl ElfFile {
    /// Reads what a file says. `path` has no symbolic links in it.
    pub(crate) fn read(path: &Path) -> Result<Self, ElfError> {
        let file = open_plain(path).map_err(ElfError::Read)?;
        if !file.metadata().map_err(ElfError::Read)?.is_file() {
            return Err(ElfError::NotElf);
        }
        let data = ReadCache::new(file);
        match FileKind::parse(&data) {
            Ok(FileKind::Elf64) => parse::<FileHeader64<Endianness>, _>(&data),
            Ok(FileKind::Elf32) => parse::<FileHeader32<Endianness>, _>(&data),
            Ok(_) | Err(_) => Err(other_kind(&data)),
        }
    }
}

/// What something is that is no ELF file.
fn other_kind<'data>(data: impl ReadRef<'data>) -> ElfError {
    let length = data.len().unwrap_or(0).min(SCRIPT_LINE_BYTES as u64);
    let start = data.read_bytes_at(0, length).unwrap_or_default();
    let Some(line) = start.strip_prefix(b"#!") else {
        return ElfError::NotElf;
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let interpreter = line.split_whitespace().next().unwrap_or_default();
    ElfError::Script {
        interpreter: interpreter.chars().flat_map(char::escape_debug).collect(),
    }
}

fn parse<'data, Elf, R>(data: R) -> Result<ElfFile, ElfError>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let damaged = |what| move |_| ElfError::Damaged(what);
    let header = Elf::parse(data).map_err(damaged("its header cannot be read"))?;
    let endian = header
        .endian()
        .map_err(damaged("its header cannot be read"))?;
    let segments = header
        .program_headers(endian, data)
        .map_err(damaged("its segments cannot be read"))?;
    let mut file = ElfFile {
        machine: ElfMachine {
            machine: header.e_machine(endian),
            is_64: header.is_type_64(),
        },
        interpreter: None,
        needed: Vec::new(),
        rpath: Vec::new(),
        runpath: None,
    };
    for segment in segments {
        let interpreter = segment
            .interpreter(endian, data)
            .map_err(damaged("the name of its interpreter cannot be read"))?;
        if let Some(interpreter) = interpreter {
            file.interpreter = Some(text(interpreter)?);
        }
        let dynamic = segment
            .dynamic(endian, data)
            .map_err(damaged("its dynamic section cannot be read"))?;
        if let Some(dynamic) = dynamic {
            let names = names::<Elf, R>(dynamic, segments, endian, data)?;
            read_dynamic::<Elf>(dynamic, names, endian, &mut file)?;
        }
    }
    Ok(file)
}

/// The table of the names that the dynamic section refers to.
fn names<'data, Elf, R>(
    dynamic: &[Elf::Dyn],
    segments: &[Elf::ProgramHeader],
    endian: Endianness,
    data: R,
) -> Result<&'data [u8], ElfError>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let value_of = |tag| {
        let entry = dynamic.iter().find(|entry| entry.tag(endian) == tag);
        entry.map(|entry| entry.val(endian))
    };
    let (Some(address), Some(size)) = (value_of(elf::DT_STRTAB), value_of(elf::DT_STRSZ)) else {
        return Ok(&[]);
    };
    if size > NAMES_BYTES_MAX {
        return Err(ElfError::Damaged("its table of names is too large"));
    }
    segments
        .iter()
        .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
        .find_map(|segment| {
            let start: u64 = segment.p_vaddr(endian).into();
            let length: u64 = segment.p_filesz(endian).into();
            let inside = address.checked_sub(start)?;
            if inside.checked_add(size)? > length {
                return None;
            }
            let offset: u64 = segment.p_offset(endian).into();
            data.read_bytes_at(offset.checked_add(inside)?, size).ok()
        })
        .ok_or(ElfError::Damaged("its table of names lies outside of it"))
}

fn read_dynamic<Elf: FileHeader<Endian = Endianness>>(
    dynamic: &[Elf::Dyn],
    names: &[u8],
    endian: Endianness,
    file: &mut ElfFile,
) -> Result<(), ElfError> {
    let name_at = |offset: u64| {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| names.get(offset..))
            .ok_or(ElfError::Damaged("a name lies outside of its table"))?;
        let end = memchr::memchr(0, rest).ok_or(ElfError::Damaged("a name does not end"))?;
        text(&rest[..end])
    };
    let directories = |list: String| -> Vec<String> {
        list.split(':')
            .filter(|directory| !directory.is_empty())
            .map(str::to_owned)
            .collect()
    };
    for entry in dynamic {
        let value = entry.val(endian);
        match entry.tag(endian) {
            elf::DT_NULL => break,
            elf::DT_NEEDED if file.needed.len() == NEEDED_MAX => {
                return Err(ElfError::Damaged("it names too many libraries"));
            }
            elf::DT_NEEDED => file.needed.push(name_at(value)?),
            elf::DT_RPATH => file.rpath = directories(name_at(value)?),
            elf::DT_RUNPATH => file.runpath = Some(directories(name_at(value)?)),
            _ => {}
        }
    }
    Ok(())
}

fn text(bytes: &[u8]) -> Result<String, ElfError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ElfError::Damaged("a name in it is not UTF-8"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn own() -> std::path::PathBuf {
        fs::canonicalize(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn this_test_says_what_it_is_loaded_with() {
        let file = ElfFile::read(&own()).unwrap();
        assert!(file.interpreter.unwrap().starts_with('/'));
        assert!(file.needed.iter().any(|name| name.starts_with("libc.")));
        assert!(file.machine.is_64);
    }

    #[test]
    fn a_file_says_what_it_was_made_with() {
        let scratch = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(scratch.path()).unwrap().join("file");
        testing::ElfText {
            interpreter: Some("/lib/ld.so"),
            needed: &["liba.so", "libb.so.1"],
            rpath: Some("/a:$ORIGIN/b"),
            runpath: Some("/c::/d"),
            machine: 183,
        }
        .write(&path);
        let file = ElfFile::read(&path).unwrap();
        assert_eq!(file.interpreter.as_deref(), Some("/lib/ld.so"));
        assert_eq!(file.needed, ["liba.so", "libb.so.1"]);
        assert_eq!(file.rpath, ["/a", "$ORIGIN/b"]);
        assert_eq!(file.runpath.unwrap(), ["/c", "/d"]);
        assert_eq!(file.machine.multiarch(), Some("aarch64-linux-gnu"));
    }

    #[test]
    fn other_files_are_told_apart() {
        let scratch = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(scratch.path()).unwrap().join("file");
        let try_with = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            ElfFile::read(&path).unwrap_err()
        };
        assert!(matches!(try_with(b""), ElfError::NotElf));
        assert!(matches!(try_with(b"\x7fEL"), ElfError::NotElf));
        let script = try_with(b"#! /usr/bin/env python3\n");
        assert!(script.hint().ends_with(": /usr/bin/env"), "{script}");
        let cut = fs::read(own()).unwrap();
        assert!(matches!(try_with(&cut[..100]), ElfError::Damaged(_)));
        assert!(matches!(
            ElfFile::read(path.parent().unwrap()),
            Err(ElfError::NotElf)
        ));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn a_damaged_file_is_an_error_or_another_answer(
            changes in prop::collection::vec((0_usize..400, any::<u8>()), 1..20)
        ) {
            let text = testing::ElfText {
                interpreter: Some("/lib/ld.so"),
                needed: &["liba.so", "libb.so"],
                runpath: Some("/c"),
                ..testing::ElfText::default()
            };
            let mut bytes = text.bytes();
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            let scratch = tempfile::tempdir().unwrap();
            let path = fs::canonicalize(scratch.path()).unwrap().join("file");
            fs::write(&path, bytes).unwrap();
            if let Ok(file) = ElfFile::read(&path) {
                prop_assert!(file.needed.len() <= NEEDED_MAX);
            }
        }
    }
}
