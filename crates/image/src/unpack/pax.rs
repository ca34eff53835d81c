//! What extended headers (pax) say of an entry.

use std::io::{self, Read};

use rustix::fs::Timespec;
use tar::Entry;

/// What extended headers say of an entry.
#[derive(Debug, Default)]
pub(super) struct Pax {
    pub(super) mtime: Option<Timespec>,
    pub(super) is_sparse: bool,
    pub(super) sparse_name: Option<Vec<u8>>,
    pub(super) sparse_size: Option<u64>,
    pub(super) sparse_map: Option<String>,
    pub(super) has_attributes: bool,
}

impl Pax {
    /// Reads the extended headers of an entry.
    pub(super) fn read<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<Self> {
        let mut pax = Self::default();
        let Some(extensions) = entry.pax_extensions()? else {
            return Ok(pax);
        };
        for extension in extensions {
            let extension = extension?;
            let value = extension.value_bytes();
            let text = || String::from_utf8_lossy(value).into_owned();
            match extension.key_bytes() {
                b"mtime" => pax.mtime = parse_time(&text()),
                b"GNU.sparse.major" => pax.is_sparse = true,
                b"GNU.sparse.name" => pax.sparse_name = Some(value.to_vec()),
                b"GNU.sparse.realsize" | b"GNU.sparse.size" => {
                    pax.is_sparse = true;
                    pax.sparse_size = text().parse().ok();
                }
                b"GNU.sparse.map" => pax.sparse_map = Some(text()),
                key if key.starts_with(b"SCHILY.xattr.")
                    || key.starts_with(b"LIBARCHIVE.xattr.") =>
                {
                    pax.has_attributes = true;
                }
                _ => {}
            }
        }
        Ok(pax)
    }
}

/// Reads a time such as `1700000000.25` or `-1.5`.
pub(super) fn parse_time(text: &str) -> Option<Timespec> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let nanos: i64 = digits.parse().ok().filter(|nanos| *nanos >= 0)?;
    if whole.starts_with('-') && nanos > 0 {
        return Some(Timespec {
            tv_sec: seconds.saturating_sub(1),
            tv_nsec: 1_000_000_000 - nanos,
        });
    }
    Some(Timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    })
}
