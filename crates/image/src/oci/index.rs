//! What a layer says, kept beside its files: a list of records in the order of the archive.
//!
//! ```text
//! "tidemill layer 1\n"  tally (4 numbers)  number of records  record…  BLAKE3 of all before
//! record: kind  path  mode uid gid seconds nanoseconds  number of attributes (name value)…  what the kind has
//! ```
//!
//! Numbers are LEB128, texts are a length and bytes. The file is ours, and read as if it were not: it may
//! be damaged.

use crate::unpack::{Content, Dress, Record, RecordKind, Tally, Time, Xattr};

const MAGIC: &[u8] = b"tidemill layer 1\n";
const DIGEST_BYTES: usize = 32;

/// A layer without the bytes of its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LayerIndex {
    pub(crate) records: Vec<Record>,
    pub(crate) tally: Tally,
}

impl LayerIndex {
    /// The bytes of the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer(MAGIC.to_vec());
        let tally = &self.tally;
        for count in [
            tally.entries,
            tally.bytes,
            tally.overlay_xattrs,
            tally.lost_xattrs,
        ] {
            out.number(count);
        }
        out.number(self.records.len() as u64);
        for record in &self.records {
            out.record(record);
        }
        let digest = blake3::hash(&out.0);
        out.0.extend_from_slice(digest.as_bytes());
        out.0
    }

    /// Reads it back. None for what was damaged, or is of another version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, digest) = bytes.split_last_chunk::<DIGEST_BYTES>()?;
        if blake3::hash(body).as_bytes() != digest {
            return None;
        }
        let mut from = Reader(body.strip_prefix(MAGIC)?);
        let tally = Tally {
            entries: from.number()?,
            bytes: from.number()?,
            overlay_xattrs: from.number()?,
            lost_xattrs: from.number()?,
        };
        let count = from.number()?;
        // A record has more than one byte.
        if count > from.0.len() as u64 {
            return None;
        }
        let records: Option<Vec<Record>> = (0..count).map(|_| from.record()).collect();
        let records = records?;
        from.0.is_empty().then_some(Self { records, tally })
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push((number & 0x7f) as u8);
    }

    fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text);
    }

    fn record(&mut self, record: &Record) {
        let kind = match &record.what {
            RecordKind::Dir => 0,
            RecordKind::File(_) => 1,
            RecordKind::Symlink(_) => 2,
            RecordKind::HardLink(_) => 3,
            RecordKind::Fifo => 4,
            RecordKind::Device => 5,
            RecordKind::Whiteout => 6,
            RecordKind::Opaque => 7,
            RecordKind::Aside(_) => 8,
        };
        self.number(kind);
        self.text(&record.path);
        let dress = &record.dress;
        for number in [dress.mode, dress.uid, dress.gid] {
            self.number(number.into());
        }
        self.number(dress.mtime.seconds.cast_unsigned());
        self.number(dress.mtime.nanos.into());
        self.number(record.xattrs.len() as u64);
        for (name, value) in &record.xattrs {
            self.text(name);
            self.text(value);
        }
        match &record.what {
            RecordKind::File(content) | RecordKind::Aside(content) => {
                self.number(content.number.into());
                self.number(content.size);
            }
            RecordKind::Symlink(target) | RecordKind::HardLink(target) => self.text(target),
            RecordKind::Dir
            | RecordKind::Fifo
            | RecordKind::Device
            | RecordKind::Whiteout
            | RecordKind::Opaque => {}
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text.to_owned())
    }

    fn content(&mut self) -> Option<Content> {
        Some(Content {
            number: self.small()?,
            size: self.number()?,
        })
    }

    fn xattr(&mut self) -> Option<Xattr> {
        Some((self.text()?, self.text()?))
    }

    fn record(&mut self) -> Option<Record> {
        let kind = self.number()?;
        let path = self.text()?;
        let dress = Dress {
            mode: self.small()?,
            uid: self.small()?,
            gid: self.small()?,
            mtime: Time {
                seconds: self.number()?.cast_signed(),
                nanos: self.small()?,
            },
        };
        let count = self.number()?;
        if count > self.0.len() as u64 {
            return None;
        }
        let xattrs = (0..count).map(|_| self.xattr()).collect::<Option<_>>()?;
        let what = match kind {
            0 => RecordKind::Dir,
            1 => RecordKind::File(self.content()?),
            2 => RecordKind::Symlink(self.text()?),
            3 => RecordKind::HardLink(self.text()?),
            4 => RecordKind::Fifo,
            5 => RecordKind::Device,
            6 => RecordKind::Whiteout,
            7 => RecordKind::Opaque,
            8 => RecordKind::Aside(self.content()?),
            _ => return None,
        };
        Some(Record {
            path,
            what,
            dress,
            xattrs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> LayerIndex {
        let content = Content {
            number: 3,
            size: 1 << 40,
        };
        let kinds = [
            RecordKind::Dir,
            RecordKind::File(content),
            RecordKind::Symlink(b"../x".to_vec()),
            RecordKind::HardLink(b"a/b".to_vec()),
            RecordKind::Fifo,
            RecordKind::Device,
            RecordKind::Whiteout,
            RecordKind::Opaque,
            RecordKind::Aside(content),
        ];
        let records = kinds.into_iter().map(|what| Record {
            path: b"a\n\xff".to_vec(),
            what,
            dress: Dress {
                mode: 0o4755,
                uid: u32::MAX,
                gid: 7,
                mtime: Time {
                    seconds: -1,
                    nanos: 999_999_999,
                },
            },
            xattrs: vec![(b"user.x".to_vec(), vec![0; 200])],
        });
        LayerIndex {
            records: records.collect(),
            tally: Tally {
                entries: 9,
                bytes: 2 << 40,
                overlay_xattrs: 1,
                lost_xattrs: 2,
            },
        }
    }

    #[test]
    fn reads_back_what_it_wrote() {
        let index = example();
        assert_eq!(LayerIndex::decode(&index.encode()), Some(index));
    }

    #[test]
    fn what_is_damaged_is_not_read() {
        let good = example().encode();
        for length in 0..good.len() {
            assert_eq!(LayerIndex::decode(&good[..length]), None, "{length} bytes");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x11;
            assert_eq!(LayerIndex::decode(&bad), None, "byte {at}");
        }
    }

    /// A digest says that a file is whole, not that we wrote it.
    #[test]
    fn what_claims_too_much_is_not_read() {
        let good = example().encode();
        let body = &good[..good.len() - DIGEST_BYTES];
        for at in MAGIC.len()..body.len() {
            let mut bad = body.to_vec();
            bad[at] = 0xff;
            let digest = blake3::hash(&bad);
            bad.extend_from_slice(digest.as_bytes());
            // Whatever comes of it, it comes of it without more memory than the file has bytes.
            let read = LayerIndex::decode(&bad);
            assert!(read.is_none_or(|index| index.records.len() == 9));
        }
        let version = b"tidemill layer 2\n";
        let other = [version, &body[MAGIC.len()..]].concat();
        let digest = blake3::hash(&other);
        let other = [other, digest.as_bytes().to_vec()].concat();
        assert_eq!(LayerIndex::decode(&other), None);
    }
}
