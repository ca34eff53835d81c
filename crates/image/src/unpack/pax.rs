//! Extended headers (pax): what they say of the entry after them.
//! <https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html>, "pax Header Block".
//!
//! They are read here and not by the tar crate, which takes each line for a record: a record says its
//! length, and a name or an attribute may have line ends in it.

use std::collections::BTreeMap;

use super::record::Time;
use crate::sparse::Piece;

/// Extended attributes of one entry at most: their names fill the 64 KiB that listxattr(2) can give long before.
const XATTRS_MAX: usize = 1024;

/// What extended headers say of an entry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) mtime: Option<Time>,
    pub(super) sparse: Sparse,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Extended attributes in a form that is not read.
    pub(super) foreign_xattrs: u32,
}

/// What they say of a sparse file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sparse {
    pub(super) name: Option<Vec<u8>>,
    /// The length of the file, holes counted.
    pub(super) size: Option<u64>,
    /// Format 0.1: `offset,length,offset,length…`.
    pub(super) map: Option<String>,
    /// Format 0.0: an offset and a length at a time.
    pub(super) pieces: Vec<Piece>,
    /// Format 1.0: the map stands before the data.
    pub(super) is_before_data: bool,
}

impl Sparse {
    pub(super) const fn is_some(&self) -> bool {
        self.is_before_data || self.map.is_some() || self.size.is_some() || !self.pieces.is_empty()
    }
}

/// What is wrong with an extended header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum PaxError {
    #[error("an extended header is not a list of records")]
    NotRecords,
    #[error("an extended header has more than {XATTRS_MAX} extended attributes")]
    TooManyXattrs,
    #[error("an extended header has `{0}` that is no number")]
    NotANumber(&'static str),
}

impl Pax {
    /// Reads the records of an extended header.
    pub(super) fn parse(mut bytes: &[u8]) -> Result<Self, PaxError> {
        let mut pax = Self::default();
        // Some writers pad with NULs.
        while !bytes.is_empty() && bytes[0] != 0 {
            let (key, value, rest) = first_record(bytes).ok_or(PaxError::NotRecords)?;
            pax.take(key, value)?;
            bytes = rest;
        }
        Ok(pax)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), PaxError> {
        let own = || Some(value.to_owned()).filter(|value| !value.is_empty());
        match key {
            b"path" => self.path = own(),
            b"linkpath" => self.link = own(),
            b"size" => self.size = Some(number(value, "size")?),
            b"uid" => self.uid = Some(number(value, "uid")?),
            b"gid" => self.gid = Some(number(value, "gid")?),
            b"mtime" => self.mtime = std::str::from_utf8(value).ok().and_then(parse_time),
            b"GNU.sparse.major" => self.sparse.is_before_data = value == b"1",
            b"GNU.sparse.name" => self.sparse.name = own(),
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => {
                self.sparse.size = Some(number(value, "GNU.sparse.size")?);
            }
            b"GNU.sparse.map" => {
                self.sparse.map = Some(String::from_utf8_lossy(value).into_owned());
            }
            b"GNU.sparse.offset" => self.sparse.pieces.push(Piece {
                offset: number(value, "GNU.sparse.offset")?,
                length: 0,
            }),
            b"GNU.sparse.numbytes" => {
                let length = number(value, "GNU.sparse.numbytes")?;
                if let Some(piece) = self.sparse.pieces.last_mut() {
                    piece.length = length;
                }
            }
            key => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattrs.insert(name.to_owned(), value.to_owned());
                    if self.xattrs.len() > XATTRS_MAX {
                        return Err(PaxError::TooManyXattrs);
                    }
                } else if key.starts_with(b"LIBARCHIVE.xattr.") {
                    self.foreign_xattrs += 1;
                }
            }
        }
        Ok(())
    }
}

/// The first record as key and value, and what comes after it.
fn first_record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let record = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &bytes[length..]))
}

fn number(value: &[u8], key: &'static str) -> Result<u64, PaxError> {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or(PaxError::NotANumber(key))
}

/// Reads a time such as `1700000000.25` or `-1.5`.
pub(super) fn parse_time(text: &str) -> Option<Time> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let nanos: u32 = digits.parse().ok()?;
    if whole.starts_with('-') && nanos > 0 {
        return Some(Time {
            seconds: seconds.saturating_sub(1),
            nanos: 1_000_000_000 - nanos,
        });
    }
    Some(Time { seconds, nanos })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length += 1;
        }
        [
            format!("{length} {key}=").as_bytes(),
            value,
            b"\n".as_slice(),
        ]
        .concat()
    }

    #[test]
    fn values_may_have_anything_in_them() {
        let bytes = [
            record("path", b"a\nb=c"),
            record("SCHILY.xattr.user.x", b"\n\0\n"),
            record("SCHILY.xattr.user.x", b"again\n"),
            record("size", b"12"),
            record("comment", b"30 path=b\n"),
        ]
        .concat();
        let pax = Pax::parse(&bytes).unwrap();
        assert_eq!(pax.path.as_deref(), Some(&b"a\nb=c"[..]));
        let xattrs: Vec<_> = pax.xattrs.into_iter().collect();
        assert_eq!(xattrs, [(b"user.x".to_vec(), b"again\n".to_vec())]);
        assert_eq!(pax.size, Some(12));
    }

    #[test]
    fn what_is_no_list_of_records_is_refused() {
        for bytes in [
            &b"5 a=\n"[..],
            b"x a=b\n",
            b"7 a=bc\n8",
            b"6 abc\n",
            b"99999999999999999999 a=b\n",
            b"2 a=b\n",
            b"0 a=b\n",
        ] {
            let is_first_good = bytes == b"5 a=\n";
            assert_eq!(Pax::parse(bytes).is_ok(), is_first_good, "{bytes:?}");
        }
        let many = (0..=XATTRS_MAX).map(|n| record(&format!("SCHILY.xattr.user.{n}"), b""));
        let many: Vec<u8> = many.flatten().collect();
        assert_eq!(Pax::parse(&many), Err(PaxError::TooManyXattrs));
        let size = Pax::parse(&record("size", b"-1"));
        assert_eq!(size, Err(PaxError::NotANumber("size")));
    }

    #[test]
    fn times_have_fractions() {
        for (text, seconds, nanos) in [
            ("1700000000", 1_700_000_000, 0),
            ("1700000000.5", 1_700_000_000, 500_000_000),
            ("1.123456789999", 1, 123_456_789),
            ("-1.25", -2, 750_000_000),
            ("-9223372036854775808.5", i64::MIN, 500_000_000),
        ] {
            let time = Time { seconds, nanos };
            assert_eq!(parse_time(text), Some(time), "{text}");
        }
        assert_eq!(parse_time("soon"), None);
    }
}
