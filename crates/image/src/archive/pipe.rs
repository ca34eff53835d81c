//! An archive is read and decompressed in a thread of its own, a few chunks ahead of whoever unpacks it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use sha2::{Digest as _, Sha256};
use tidemill_core::Digest;

use super::Compression;

/// Bytes of the file that are read at a time.
const BUFFER_BYTES: usize = 128 << 10;
/// Plain bytes that are passed on at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that may wait: 4 MiB.
const CHUNKS_MAX: usize = 16;

/// What is wanted to be known of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    /// The BLAKE3 digest of the file as it is.
    File,
    /// The SHA-256 digest of the plain bytes.
    Plain,
}

/// What the bytes were.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    File(Digest),
    Plain([u8; 32]),
}

/// The plain bytes of an archive.
pub(crate) struct ArchiveReader {
    chunks: Receiver<io::Result<Vec<u8>>>,
    /// Chunks that are done with go back.
    spare: SyncSender<Vec<u8>>,
    chunk: Vec<u8>,
    at: usize,
    consumed: Arc<AtomicU64>,
    is_compressed: bool,
    plain: Option<Sha256>,
    thread: JoinHandle<io::Result<blake3::Hash>>,
}

impl ArchiveReader {
    pub(super) fn start(
        source: Source,
        compression: Compression,
        watch: Watch,
    ) -> io::Result<Self> {
        let consumed = source.consumed();
        let (sender, chunks) = sync_channel(CHUNKS_MAX);
        let (spare, spares) = sync_channel(CHUNKS_MAX);
        let thread = thread::Builder::new()
            .name("decompress".to_owned())
            .spawn(move || feed(source, compression, &sender, &spares))?;
        Ok(Self {
            chunks,
            spare,
            chunk: Vec::new(),
            at: 0,
            consumed,
            is_compressed: compression != Compression::None,
            plain: (watch == Watch::Plain).then(Sha256::new),
            thread,
        })
    }

    /// Bytes of the file that were read so far, if it is compressed.
    pub(crate) fn compressed_bytes(&self) -> Option<u64> {
        self.is_compressed
            .then(|| self.consumed.load(Ordering::Relaxed))
    }

    /// True if it is the plain bytes that are watched: then the digest is that of what was read.
    pub(crate) const fn watches_plain(&self) -> bool {
        self.plain.is_some()
    }

    /// The digest of the whole file, with what is behind the archive's end; or of the plain bytes that
    /// were read.
    pub(crate) fn into_digest(self) -> io::Result<Ended> {
        let Self {
            chunks,
            plain,
            thread,
            ..
        } = self;
        drop(chunks);
        let panicked = |_| io::Error::other("the thread that decompresses panicked");
        let file = thread.join().map_err(panicked)??;
        Ok(match plain {
            Some(hasher) => Ended::Plain(hasher.finalize().into()),
            None => Ended::File(Digest::from_bytes(*file.as_bytes())),
        })
    }

    fn next_chunk(&mut self) -> io::Result<bool> {
        let done = std::mem::take(&mut self.chunk);
        // The thread that wants it may have ended, or have enough.
        self.spare.try_send(done).ok();
        self.at = 0;
        match self.chunks.recv() {
            Ok(chunk) => {
                self.chunk = chunk?;
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }
}

impl Read for ArchiveReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.at == self.chunk.len() && !self.next_chunk()? {
            return Ok(0);
        }
        let rest = &self.chunk[self.at..];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        if let Some(hasher) = &mut self.plain {
            hasher.update(&rest[..length]);
        }
        self.at += length;
        Ok(length)
    }
}

/// Decompresses to the end, or until nobody listens. What is left of the file is read then, for its
/// digest.
fn feed(
    mut source: Source,
    compression: Compression,
    chunks: &SyncSender<io::Result<Vec<u8>>>,
    spares: &Receiver<Vec<u8>>,
) -> io::Result<blake3::Hash> {
    let decoded = compression.decoder(&mut source).map(|mut decoder| {
        loop {
            let mut chunk = match spares.try_recv() {
                Ok(chunk) if chunk.capacity() >= CHUNK_BYTES => chunk,
                _ => Vec::with_capacity(CHUNK_BYTES),
            };
            chunk.clear();
            let filled = (&mut decoder)
                .take(CHUNK_BYTES as u64)
                .read_to_end(&mut chunk);
            let (is_last, chunk) = match filled {
                Ok(0) => return,
                Ok(length) => (length < CHUNK_BYTES, Ok(chunk)),
                Err(error) => (true, Err(error)),
            };
            if chunks.send(chunk).is_err() || is_last {
                return;
            }
        }
    });
    if let Err(error) = decoded {
        // Nobody listens if it was given up.
        chunks.send(Err(error)).ok();
    }
    source.finish()
}

/// The file, with an eye on what was read of it.
pub(super) struct Source(BufReader<Watched>);

struct Watched {
    file: File,
    consumed: Arc<AtomicU64>,
    hasher: Option<blake3::Hasher>,
}

impl Source {
    pub(super) fn new(file: File, watch: Watch) -> Self {
        let watched = Watched {
            file,
            consumed: Arc::default(),
            hasher: (watch == Watch::File).then(blake3::Hasher::new),
        };
        Self(BufReader::with_capacity(BUFFER_BYTES, watched))
    }

    fn consumed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.get_ref().consumed)
    }

    /// The digest of the whole file, if it is wanted.
    fn finish(self) -> io::Result<blake3::Hash> {
        let mut rest = self.0.into_inner();
        if rest.hasher.is_some() {
            io::copy(&mut rest, &mut io::sink())?;
        }
        Ok(rest.hasher.unwrap_or_default().finalize())
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl BufRead for Source {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.0.consume(amount);
    }
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(buffer)?;
        self.consumed.fetch_add(length as u64, Ordering::Relaxed);
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..length]);
        }
        Ok(length)
    }
}
