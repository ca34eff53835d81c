//! `run --format json`: every event on a line of standard output, the record on the last one.
//!
//! A thread of its own writes, so that a reader who is slow holds up neither the record nor the job.

use std::sync::Arc;
use std::thread;

use serde::Serialize;
use tidemill_hub::Follow;
use tidemill_ledger::Snapshot;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::screen::Viewer;
use crate::failure::{Failure, FailureKind};
use crate::output::Output;

/// Lines that wait for the reader. While it is full, events wait in the history.
const LINES_MAX: usize = 64;

/// The lines of one run.
#[derive(Debug)]
pub(crate) struct EventLines {
    sender: mpsc::Sender<Vec<u8>>,
    following: JoinSet<()>,
    written: oneshot::Receiver<()>,
}

impl EventLines {
    /// Starts to write what is followed.
    pub(crate) fn start(follow: Follow, viewer: Arc<Viewer>) -> Result<Self, Failure> {
        let (sender, receiver) = mpsc::channel(LINES_MAX);
        let (done, written) = oneshot::channel();
        thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || {
                write(receiver, &viewer);
                // Whoever waited for it may have given up.
                done.send(()).ok();
            })
            .map_err(|error| {
                Failure::new(FailureKind::Unable, "cannot start a thread for events")
                    .because(&error)
            })?;
        let mut following = JoinSet::new();
        following.spawn(tell(follow, sender.clone()));
        Ok(Self {
            sender,
            following,
            written,
        })
    }

    /// Writes the rest and the record, and waits until that is done. Cancel safe in that the rest is
    /// given up.
    pub(crate) async fn finish(mut self, snapshot: &Snapshot) {
        // The record may not know of the end, if the disk was full; then no last event comes.
        if snapshot.is_final() {
            while self.following.join_next().await.is_some() {}
        }
        self.following.abort_all();
        self.sender.send(line(snapshot)).await.ok();
        drop(self.sender);
        self.written.await.ok();
    }
}

/// Passes events on until the last one. A failure of the store is met, and told, by the run itself.
async fn tell(mut follow: Follow, sender: mpsc::Sender<Vec<u8>>) {
    loop {
        match follow.next().await {
            Ok(Some(record)) => {
                if sender.send(line(&*record)).await.is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "events are not shown any more");
                return;
            }
        }
    }
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("records have string keys only");
    line.push(b'\n');
    line
}

fn write(mut receiver: mpsc::Receiver<Vec<u8>>, viewer: &Viewer) {
    let mut output = Output::stdout();
    while let Some(line) = receiver.blocking_recv() {
        if output.write(&line).is_err() {
            viewer.lose_reader();
            return;
        }
    }
}
