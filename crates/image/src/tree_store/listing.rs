//! What is in a tree, entry by entry: the text whose digest names the tree.
//!
//! ```text
//! tidemill-tree 1
//! d 0755 0 0 1700000000.000000000 .
//! f 0644 0 0 1700000000.500000000 7 <64 digits> etc/motd user.note=hi
//! h etc/motd etc/motd.again
//! l 0777 0 0 1700000000.000000000 ../usr/bin bin
//! p 0600 0 0 1700000000.000000000 run/pipe
//! c 0600 0 0 1700000000.000000000 1:3 dev/null
//! ```
//!
//! Lines are sorted by path. The fields are kind, mode, user, group, time of modification, then for files
//! size and BLAKE3, for links the target, for devices the number; then the path and its extended
//! attributes. `h` is a further name of a file, after the first one. Bytes that are no printable ASCII,
//! blanks, `\` and `=` are written `\xNN`. Owners are the ids of the source: -1 is whoever built the tree.

use std::fmt::Write as _;

use tidemill_core::Digest;

const HEAD: &str = "tidemill-tree 1";

/// A tree's entries, sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
}

/// One thing in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Below the root, which itself has none.
    pub(crate) path: Vec<u8>,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Node(Node),
    /// A further name of the file with this path.
    Again(Vec<u8>),
}

/// All but its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// The lower twelve bits.
    pub(crate) mode: u32,
    pub(crate) user: i64,
    pub(crate) group: i64,
    /// Seconds and nanoseconds.
    pub(crate) mtime: (i64, u32),
    /// Extended attributes, sorted.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File { size: u64, content: Digest },
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    Character(u32, u32),
    Block(u32, u32),
}

/// Says that a list cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the list is not understood")]
pub(crate) struct ListingError {
    line: usize,
}

impl Listing {
    /// The text, which is the same for the same entries.
    pub(crate) fn encode(&self) -> String {
        let mut text = String::with_capacity(64 + self.entries.len() * 160);
        text.push_str(HEAD);
        text.push('\n');
        for entry in &self.entries {
            match &entry.what {
                What::Again(first) => {
                    text.push_str("h ");
                    escape(first, &mut text);
                    text.push(' ');
                    escape_path(&entry.path, &mut text);
                }
                What::Node(node) => {
                    node.encode(&mut text);
                    text.push(' ');
                    escape_path(&entry.path, &mut text);
                    node.encode_xattrs(&mut text);
                }
            }
            text.push('\n');
        }
        text
    }

    pub(crate) fn decode(text: &[u8]) -> Result<Self, ListingError> {
        let wrong = |line| ListingError { line };
        let text = std::str::from_utf8(text).map_err(|_| wrong(0))?;
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) || !text.ends_with('\n') {
            return Err(wrong(1));
        }
        let entries = lines
            .enumerate()
            .map(|(index, line)| decode_line(line).ok_or_else(|| wrong(index + 2)))
            .collect::<Result<_, _>>()?;
        Ok(Self { entries })
    }
}

impl Node {
    /// The part of the line before the path.
    fn encode(&self, text: &mut String) {
        let letter = match &self.kind {
            Kind::Directory => 'd',
            Kind::File { .. } => 'f',
            Kind::Symlink(_) => 'l',
            Kind::Fifo => 'p',
            Kind::Socket => 's',
            Kind::Character(..) => 'c',
            Kind::Block(..) => 'b',
        };
        let (seconds, nanos) = self.mtime;
        let written = write!(
            text,
            "{letter} {:04o} {} {} {seconds}.{nanos:09}",
            self.mode, self.user, self.group
        );
        let written = written.and_then(|()| match &self.kind {
            Kind::File { size, content } => write!(text, " {size} {}", content.to_hex()),
            Kind::Character(major, minor) | Kind::Block(major, minor) => {
                write!(text, " {major}:{minor}")
            }
            Kind::Symlink(target) => {
                text.push(' ');
                escape(target, text);
                Ok(())
            }
            Kind::Directory | Kind::Fifo | Kind::Socket => Ok(()),
        });
        written.expect("a string takes everything");
    }

    fn encode_xattrs(&self, text: &mut String) {
        for (name, value) in &self.xattrs {
            text.push(' ');
            escape(name, text);
            text.push('=');
            escape(value, text);
        }
    }

    /// What two files must have in common to be one inode. `owners` says how the ids of the source became
    /// those on disk, and `ordinal` which of several equal files of one tree it is: they stay several, so
    /// that a job sees the links that its image has and no others.
    pub(crate) fn key(&self, owners: &str, ordinal: u32) -> Digest {
        let mut text = format!("tidemill-file 1 {owners} {ordinal} ");
        self.encode(&mut text);
        self.encode_xattrs(&mut text);
        Digest::of(text.as_bytes())
    }
}

pub(crate) fn decode_line(line: &str) -> Option<Entry> {
    let mut fields = line.split(' ');
    let letter = fields.next()?;
    if letter == "h" {
        let first = unescape(fields.next()?)?;
        let path = unescape_path(fields.next()?)?;
        let what = What::Again(first);
        return fields.next().is_none().then_some(Entry { path, what });
    }
    let mode = u32::from_str_radix(fields.next()?, 8).ok()?;
    let user = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let (seconds, nanos) = fields.next()?.split_once('.')?;
    let mtime = (seconds.parse().ok()?, nanos.parse().ok()?);
    let kind = match letter {
        "d" => Kind::Directory,
        "f" => Kind::File {
            size: fields.next()?.parse().ok()?,
            content: format!("b3:{}", fields.next()?).parse().ok()?,
        },
        "l" => Kind::Symlink(unescape(fields.next()?)?),
        "p" => Kind::Fifo,
        "s" => Kind::Socket,
        "c" | "b" => {
            let (major, minor) = fields.next()?.split_once(':')?;
            let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
            if letter == "c" {
                Kind::Character(major, minor)
            } else {
                Kind::Block(major, minor)
            }
        }
        _ => return None,
    };
    let path = unescape_path(fields.next()?)?;
    let xattrs = fields
        .map(|field| {
            let (name, value) = field.split_once('=')?;
            Some((unescape(name)?, unescape(value)?))
        })
        .collect::<Option<_>>()?;
    Some(Entry {
        path,
        what: What::Node(Node {
            kind,
            mode,
            user,
            group,
            mtime,
            xattrs,
        }),
    })
}

/// The root's path is empty, and a field must not be.
fn escape_path(path: &[u8], text: &mut String) {
    if path.is_empty() {
        text.push('.');
    } else {
        escape(path, text);
    }
}

fn unescape_path(field: &str) -> Option<Vec<u8>> {
    if field == "." {
        return Some(Vec::new());
    }
    unescape(field)
}

fn escape(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        match byte {
            b'\\' | b'=' | 0..=b' ' | 0x7f.. => {
                write!(text, "\\x{byte:02x}").expect("a string takes everything");
            }
            plain => text.push(char::from(*plain)),
        }
    }
}

fn unescape(field: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'\\' {
            bytes.push(*first);
            rest = behind;
            continue;
        }
        let digits = behind.strip_prefix(b"x")?.get(..2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &behind[3..];
    }
    Some(bytes)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn kind() -> impl Strategy<Value = Kind> {
        prop_oneof![
            Just(Kind::Directory),
            Just(Kind::Fifo),
            Just(Kind::Socket),
            (any::<u64>(), any::<[u8; 32]>()).prop_map(|(size, bytes)| Kind::File {
                size,
                content: Digest::from_bytes(bytes)
            }),
            vec(any::<u8>(), 1..8).prop_map(Kind::Symlink),
            (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| Kind::Character(major, minor)),
            (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| Kind::Block(major, minor)),
        ]
    }

    fn node() -> impl Strategy<Value = Node> {
        let owner = -1_i64..=i64::from(u32::MAX);
        let xattrs = vec((vec(any::<u8>(), 1..6), vec(any::<u8>(), 0..6)), 0..3);
        let mtime = (any::<i64>(), 0..1_000_000_000_u32);
        (kind(), 0..0o10000_u32, owner.clone(), owner, mtime, xattrs).prop_map(
            |(kind, mode, user, group, mtime, xattrs)| Node {
                kind,
                mode,
                user,
                group,
                mtime,
                xattrs,
            },
        )
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let path = prop_oneof![Just(Vec::new()), vec(any::<u8>(), 2..9)];
        let what = prop_oneof![
            node().prop_map(What::Node),
            vec(any::<u8>(), 1..9).prop_map(What::Again),
        ];
        (path, what).prop_map(|(path, what)| Entry { path, what })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read_back(entries in vec(entry(), 0..8)) {
            let listing = Listing { entries };
            let text = listing.encode();
            prop_assert_eq!(text.lines().count(), listing.entries.len() + 1);
            prop_assert_eq!(Listing::decode(text.as_bytes()).unwrap(), listing);
        }

        #[test]
        fn different_files_have_different_keys(one in node(), other in node(), ordinal in 0..3_u32) {
            prop_assert_eq!(one == other, one.key("kept", ordinal) == other.key("kept", ordinal));
            prop_assert_ne!(one.key("kept", ordinal), one.key("kept", ordinal + 1));
            prop_assert_ne!(one.key("kept", ordinal), one.key("lost", ordinal));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            let mut text = HEAD.as_bytes().to_vec();
            text.push(b'\n');
            text.extend(bytes);
            if let Ok(listing) = Listing::decode(&text) {
                prop_assert!(Listing::decode(listing.encode().as_bytes()).unwrap() == listing);
            }
        }
    }

    #[test]
    fn the_form_is_the_one_that_is_written_above() {
        let node = |kind, mode| Node {
            kind,
            mode,
            user: 0,
            group: -1,
            mtime: (1_700_000_000, 5),
            xattrs: Vec::new(),
        };
        let mut file = node(
            Kind::File {
                size: 7,
                content: Digest::of(b"content"),
            },
            0o4755,
        );
        file.xattrs = vec![(b"user.a=b".to_vec(), b"\0 c".to_vec())];
        let listing = Listing {
            entries: vec![
                Entry {
                    path: Vec::new(),
                    what: What::Node(node(Kind::Directory, 0o755)),
                },
                Entry {
                    path: "a ü\n".as_bytes().to_vec(),
                    what: What::Node(file),
                },
                Entry {
                    path: b"b".to_vec(),
                    what: What::Again(b"a".to_vec()),
                },
            ],
        };
        let content = Digest::of(b"content").to_hex();
        let expected = format!(
            "tidemill-tree 1\n\
             d 0755 0 -1 1700000000.000000005 .\n\
             f 4755 0 -1 1700000000.000000005 7 {content} a\\x20\\xc3\\xbc\\x0a user.a\\x3db=\\x00\\x20c\n\
             h a b\n"
        );
        assert_eq!(listing.encode(), expected);
    }
}
