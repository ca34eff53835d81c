//! Layers: streamed to disk, gone on with where they broke off, checked at the end.

use bytes::Bytes;
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE};
use reqwest::{Response, StatusCode};
use tidemill_oci::{Begun, Content, ContentError, Descriptor, Partial};
use tokio::sync::mpsc;
use tokio::task::{JoinError, spawn_blocking};

use crate::client::{Ask, Failed, Session};
use crate::errand::BUSY_WAIT;
use crate::progress::{Progress, Watch};
use crate::registry_error::RegistryError;
use crate::retry::Tries;

/// Pieces of an answer that wait for the disk: what bounds the memory of one download, together with the
/// size of a piece, which the HTTP library bounds to some hundred kilobytes.
const WAITING_PIECES_MAX: usize = 8;

/// Why a blob did not come.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlobError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Content(#[from] ContentError),
    #[error("a task ended in panic")]
    Panicked(#[source] JoinError),
}

/// What a try came to.
enum Attempt {
    Done,
    /// It failed, with so many bytes there.
    Failed(Failed, u64),
    /// The bytes are wrong, and some of them are from another time: all of them are fetched anew.
    Anew,
}

/// Brings a blob into the store. If another process of this machine is at it, that one is waited for.
///
/// Cancel safe: what has come stays and is gone on with.
pub(crate) async fn fetch(
    session: &Session,
    descriptor: &Descriptor,
    content: &Content,
    watch: &Watch,
) -> Result<(), BlobError> {
    let mut tries = Tries::new(session.patience(), &descriptor.digest);
    let mut is_waiting = false;
    loop {
        let (store, wanted) = (content.clone(), descriptor.clone());
        // It reads what is there already.
        let begun = spawn_blocking(move || store.try_begin(&wanted));
        match begun.await.map_err(BlobError::Panicked)?? {
            Begun::Present => {
                watch.tell(&Progress::Came {
                    digest: descriptor.digest,
                    bytes: descriptor.size,
                });
                return Ok(());
            }
            Begun::Busy => {
                if !is_waiting {
                    watch.tell(&Progress::Waiting {
                        digest: Some(descriptor.digest),
                        problem: None,
                    });
                }
                is_waiting = true;
                tokio::time::sleep(BUSY_WAIT).await;
            }
            Begun::Partial(partial) => match attempt(session, partial, watch).await? {
                Attempt::Done => return Ok(()),
                Attempt::Anew => {}
                Attempt::Failed(failed, bytes) => failed.wait(&mut tries, bytes, watch).await?,
            },
        }
    }
}

async fn attempt(
    session: &Session,
    mut partial: Partial,
    watch: &Watch,
) -> Result<Attempt, BlobError> {
    let descriptor = partial.descriptor().clone();
    let offset = partial.offset();
    if offset == descriptor.size && offset > 0 {
        return commit(partial, true).await;
    }
    let ask = Ask {
        accept: None,
        from: offset,
        what: format!("{}", descriptor.digest),
    };
    let url = session
        .address()
        .of_part("blobs", &descriptor.digest.to_string());
    let response = match session.get(&url, &ask).await {
        Ok(response) => response,
        Err(failed) => return Ok(Attempt::Failed(failed, offset)),
    };
    match begins_at(&response, &descriptor, offset) {
        Ok(begin) if begin == offset => {}
        Ok(_) => partial.restart()?,
        Err(problem) => {
            // Next time it is asked for all of it.
            partial.restart()?;
            let error = session.wrong(response.url(), &ask, problem);
            return Ok(Attempt::Failed(Failed::passing(error), 0));
        }
    }
    let is_resumed = partial.offset() > 0;
    let (partial, failed) = stream(session, response, partial, watch).await?;
    if let Some(failed) = failed {
        return Ok(Attempt::Failed(failed, partial.offset()));
    }
    if partial.offset() < descriptor.size {
        let problem = format!("{} of {} bytes", partial.offset(), descriptor.size);
        let error = session.wrong(&url, &ask, problem);
        return Ok(Attempt::Failed(Failed::passing(error), partial.offset()));
    }
    commit(partial, is_resumed).await
}

/// Where an answer begins, if it is of use: at `offset`, or at 0.
fn begins_at(response: &Response, descriptor: &Descriptor, offset: u64) -> Result<u64, String> {
    let header = |name| response.headers().get(name)?.to_str().ok();
    let size = descriptor.size;
    match response.status() {
        StatusCode::OK => match header(CONTENT_LENGTH).map(str::parse::<u64>) {
            Some(Ok(length)) if length != size => {
                Err(format!("{length} bytes, where {size} are announced"))
            }
            _ => Ok(0),
        },
        StatusCode::PARTIAL_CONTENT => {
            let range = header(CONTENT_RANGE).unwrap_or_default();
            match parse_range(range) {
                Some((first, total)) if first == offset && total.is_none_or(|n| n == size) => {
                    Ok(offset)
                }
                _ => Err(format!("the part `{}`", range.escape_debug())),
            }
        }
        status => Err(format!("{status} for the bytes from {offset}")),
    }
}

/// The first byte and the size of the whole in `bytes 5-9/10`.
fn parse_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let first = range.split_once('-')?.0.trim().parse().ok()?;
    Some((first, total.trim().parse().ok()))
}

/// Writes what comes, in a thread of its own that also hashes it.
async fn stream(
    session: &Session,
    mut response: Response,
    mut partial: Partial,
    watch: &Watch,
) -> Result<(Partial, Option<Failed>), BlobError> {
    let digest = partial.descriptor().digest;
    let mut bytes = partial.offset();
    let (pieces, mut waiting) = mpsc::channel::<Bytes>(WAITING_PIECES_MAX);
    let writer = spawn_blocking(move || {
        while let Some(piece) = waiting.blocking_recv() {
            partial.write(&piece)?;
        }
        Ok::<_, ContentError>(partial)
    });
    let patience = session.patience();
    let mut pace = tokio::time::interval(patience.pace_every);
    pace.tick().await;
    let mut bytes_before = bytes;
    let failed = loop {
        watch.tell(&Progress::Came { digest, bytes });
        let next = tokio::select! {
            biased;
            _ = pace.tick() => {
                if bytes - bytes_before < patience.pace_bytes {
                    break Some(session.too_slow(&response));
                }
                bytes_before = bytes;
                continue;
            }
            next = session.chunk(&mut response) => next,
        };
        match next {
            Ok(Some(piece)) => {
                bytes += piece.len() as u64;
                if pieces.send(piece).await.is_err() {
                    // The writer tells why it has ended.
                    break None;
                }
            }
            Ok(None) => break None,
            Err(failed) => break Some(failed),
        }
    };
    drop(pieces);
    let partial = writer.await.map_err(BlobError::Panicked)??;
    Ok((partial, failed))
}

/// Checks and publishes. Bytes that came in several goes may be of several blobs, or not have reached the
/// disk before the machine went down; then they are fetched once more.
async fn commit(partial: Partial, is_resumed: bool) -> Result<Attempt, BlobError> {
    let result = spawn_blocking(move || partial.commit()).await;
    match result.map_err(BlobError::Panicked)? {
        Ok(()) => Ok(Attempt::Done),
        Err(ContentError::WrongDigest { .. }) if is_resumed => Ok(Attempt::Anew),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!(parse_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(parse_range("bytes 5-9/*"), Some((5, None)));
        for text in [
            "",
            "bytes */10",
            "bytes 5/10",
            "lines 1-2/3",
            "bytes x-9/10",
        ] {
            assert_eq!(parse_range(text), None, "{text}");
        }
    }
}
