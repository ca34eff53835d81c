//! Small ELF files for tests: nothing in them runs, and all that a loader reads is there.

use std::fs;
use std::path::Path;

/// What a file shall say.
#[derive(Debug, Clone, Default)]
pub(crate) struct ElfText<'a> {
    pub(crate) interpreter: Option<&'a str>,
    pub(crate) needed: &'a [&'a str],
    pub(crate) rpath: Option<&'a str>,
    pub(crate) runpath: Option<&'a str>,
    /// The number of the machine; x86-64 if 0.
    pub(crate) machine: u16,
}

/// Where the one segment is loaded.
const ADDRESS: u64 = 0x40_0000;
const HEADER: usize = 64;
const SEGMENT: usize = 56;

impl ElfText<'_> {
    /// The bytes of the file: header, three segments, names, dynamic section, interpreter.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut names = vec![0];
        let mut add = |text: &str| {
            let at = names.len() as u64;
            names.extend(text.as_bytes());
            names.push(0);
            at
        };
        let mut dynamic: Vec<(u64, u64)> = self.needed.iter().map(|name| (1, add(name))).collect();
        dynamic.extend(self.rpath.map(|path| (15, add(path))));
        dynamic.extend(self.runpath.map(|path| (29, add(path))));
        let names_at = HEADER + 3 * SEGMENT;
        let dynamic_at = (names_at + names.len()).next_multiple_of(8);
        dynamic.extend([
            (5, ADDRESS + names_at as u64),
            (10, names.len() as u64),
            (0, 0),
        ]);
        let interpreter_at = dynamic_at + dynamic.len() * 16;
        let mut interpreter = self.interpreter.unwrap_or_default().as_bytes().to_vec();
        interpreter.push(0);
        let end = interpreter_at + interpreter.len();
        let machine = if self.machine == 0 { 62 } else { self.machine };

        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        bytes.extend(3_u16.to_le_bytes());
        bytes.extend(machine.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        for word in [ADDRESS, HEADER as u64, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(0_u32.to_le_bytes());
        for half in [HEADER, SEGMENT, 3, 64, 0, 0] {
            bytes.extend(u16::try_from(half).expect("it is small").to_le_bytes());
        }
        let interpreter_kind: u32 = if self.interpreter.is_some() { 3 } else { 0 };
        for (kind, at, length) in [
            (1, 0, end),
            (2, dynamic_at, dynamic.len() * 16),
            (interpreter_kind, interpreter_at, interpreter.len()),
        ] {
            bytes.extend(kind.to_le_bytes());
            bytes.extend(4_u32.to_le_bytes());
            let at = at as u64;
            for word in [
                at,
                ADDRESS + at,
                ADDRESS + at,
                length as u64,
                length as u64,
                8,
            ] {
                bytes.extend(word.to_le_bytes());
            }
        }
        bytes.extend(names);
        bytes.resize(dynamic_at, 0);
        for (tag, value) in dynamic {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(interpreter);
        bytes
    }

    /// Writes the file, with the directories above it.
    pub(crate) fn write(&self, path: &Path) {
        fs::create_dir_all(path.parent().expect("a file lies in a directory"))
            .expect("the directory is the test's");
        fs::write(path, self.bytes()).expect("the directory is the test's");
    }
}
