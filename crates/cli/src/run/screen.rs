//! A job's output on this process's own: every byte, as it comes, each stream on its own descriptor.

use std::io::{self, Stderr, Stdout};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidemill_core::Stream;
use tidemill_runner::LiveSink;
use tokio::sync::Notify;

use super::descriptor::Descriptor;
use super::terminal::Terminal;
use crate::ui::Ui;

/// What the thread that writes output and the one that decides tell each other.
#[derive(Debug, Default)]
pub(crate) struct Viewer {
    /// Output is not waited for any more.
    pub(crate) abandoned: AtomicBool,
    /// The job has written something.
    pub(crate) spoken: AtomicBool,
    /// Nobody reads standard output any more.
    gone: Notify,
}

impl Viewer {
    /// Waits until nobody reads standard output any more. Cancel safe.
    pub(crate) async fn reader_gone(&self) {
        self.gone.notified().await;
    }

    /// Nobody reads standard output any more.
    pub(crate) fn lose_reader(&self) {
        self.gone.notify_one();
    }
}

/// Copies a job's output.
#[derive(Debug)]
pub(crate) struct Screen {
    stdout: Descriptor<Stdout>,
    stderr: Descriptor<Stderr>,
    viewer: Arc<Viewer>,
    terminal: Option<Terminal>,
    ui: Ui,
}

impl Screen {
    pub(crate) fn new(viewer: Arc<Viewer>, terminal: Option<Terminal>, ui: Ui) -> Self {
        Self {
            stdout: Descriptor::new(io::stdout()),
            stderr: Descriptor::new(io::stderr()),
            viewer,
            terminal,
            ui,
        }
    }

    fn note(&self, is_terminal: bool, bytes: &[u8]) {
        if is_terminal {
            self.ui.job_wrote(bytes.ends_with(b"\n"));
        }
    }
}

impl LiveSink for Screen {
    fn write(&mut self, stream: Stream, _offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.viewer.spoken.store(true, Ordering::Relaxed);
        // Not only before the first output: how long it has to end is shown between two lines of it.
        self.ui.quiet();
        let abandoned = &self.viewer.abandoned;
        match stream {
            Stream::Stdout => {
                if let Err(error) = self.stdout.write_all(bytes, abandoned) {
                    // A reader that left is no news; a full disk is.
                    if !matches!(
                        error.kind(),
                        io::ErrorKind::BrokenPipe | io::ErrorKind::Interrupted
                    ) {
                        self.ui.note(&format!(
                            "standard output cannot be written ({error}), so the job is cancelled; \
                             what it wrote is in its log"
                        ));
                    }
                    self.viewer.lose_reader();
                    return Err(error);
                }
                self.note(self.stdout.is_terminal, bytes);
            }
            // Without a reader for it, standard error is lost, as it is for any program.
            Stream::Stderr => {
                if self.stderr.write_all(bytes, abandoned).is_ok() {
                    self.note(self.stderr.is_terminal, bytes);
                }
            }
        }
        Ok(())
    }

    fn terminal(&mut self, controller: OwnedFd) {
        if let Some(terminal) = &self.terminal {
            terminal.connect(controller);
        }
    }
}
