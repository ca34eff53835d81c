//! Errands: what one process of the machine does for all that want it at the same time.
//!
//! ```text
//! errands/<hex>         held with flock by who does it; what that one says stands in it, in one line
//! ```
//!
//! Whoever does it has the last word: it writes it, and takes the file's name away. Those who were waiting
//! have the file open and read it; whoever comes later finds no file and begins anew. A process that is
//! killed leaves no last word, so the next of the waiting does it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::partial::is_at;
use super::{Content, ContentError, failed, make_dir, open_or_create, remove_file, try_lock};
use crate::digest::digest_of;

const DIRECTORY: &str = "errands";
/// Bytes of what is said.
const WORD_BYTES_MAX: usize = 16 << 10;
/// What a word begins with that is not the last one,
const MEANWHILE: u8 = b'-';
/// and the last one.
const LAST: u8 = b'=';
/// What a word ends with that has been written as a whole.
const END: u8 = b'\n';

/// Somebody who wants an errand done, as long as it is not known by whom.
#[derive(Debug)]
pub struct Wanted {
    path: PathBuf,
    file: File,
    /// Somebody was at it when this one looked, or may have been since.
    has_waited: bool,
}

/// An errand that is ours to do. Dropped before [`Errand::finish`], it is left to whoever waits for it.
#[derive(Debug)]
pub struct Errand {
    path: PathBuf,
    /// Locked as long as it is open.
    file: File,
}

/// How it is with an errand.
#[derive(Debug)]
pub enum Look {
    /// It is ours.
    Ours(Errand),
    /// Somebody else is at it.
    Theirs {
        /// Who goes on waiting.
        wanted: Wanted,
        /// What that one says, if it has said something.
        word: Option<String>,
    },
    /// Somebody else was at it, and this is the last word.
    Over(String),
}

impl Content {
    /// Asks for an errand. Equal texts are one errand.
    pub fn want(&self, what: &str) -> Result<Wanted, ContentError> {
        let directory = self.base.join(DIRECTORY);
        make_dir(&directory)?;
        let path = directory.join(digest_of(what.as_bytes()).to_hex());
        let file = open(&path)?;
        Ok(Wanted {
            path,
            file,
            has_waited: false,
        })
    }

    /// Removes what killed processes left.
    pub(super) fn sweep_errands(&self) {
        for entry in std::fs::read_dir(self.base.join(DIRECTORY))
            .into_iter()
            .flatten()
            .flatten()
        {
            if let Err(error) = super::remove_unlocked(&entry.path()) {
                tracing::debug!(path = %entry.path().display(), %error, "an errand could not be removed");
            }
        }
    }
}

impl Wanted {
    /// The same, for somebody who comes back to it later: a last word that is said meanwhile is for this one
    /// too.
    pub fn from_now_on(mut self) -> Result<Self, ContentError> {
        let last = said(&self.file, &self.path)?.filter(|(kind, _)| *kind == LAST);
        self.has_waited = last.is_none();
        Ok(self)
    }

    /// Looks how it is, without waiting.
    pub fn look(mut self) -> Result<Look, ContentError> {
        loop {
            match said(&self.file, &self.path)? {
                Some((LAST, word)) if self.has_waited => return Ok(Look::Over(word)),
                _ => {}
            }
            if !try_lock(&self.file, &self.path)? {
                self.has_waited = true;
                let word = said(&self.file, &self.path)?;
                let word = word.filter(|(kind, _)| *kind == MEANWHILE);
                return Ok(Look::Theirs {
                    word: word.map(|(_, word)| word),
                    wanted: self,
                });
            }
            let last = said(&self.file, &self.path)?.filter(|(kind, _)| *kind == LAST);
            let is_here = is_at(&self.file, &self.path).map_err(failed("look at", &self.path))?;
            match (last, is_here) {
                (Some((_, word)), _) if self.has_waited => return Ok(Look::Over(word)),
                // Of an errand that was over before we came.
                (Some(_), true) => {
                    remove_file(&self.path)?;
                }
                (None, true) => {
                    self.file.set_len(0).map_err(failed("empty", &self.path))?;
                    return Ok(Look::Ours(Errand {
                        path: self.path,
                        file: self.file,
                    }));
                }
                (_, false) => {}
            }
            self.file = open(&self.path)?;
            self.has_waited = false;
        }
    }
}

impl Errand {
    /// Tells those who wait how far it is: one line of 16 KiB at most.
    pub fn tell(&self, word: &str) -> Result<(), ContentError> {
        self.write(MEANWHILE, word)
    }

    /// Says the last word, which goes to those who wait by now.
    pub fn finish(self, word: &str) -> Result<(), ContentError> {
        self.write(LAST, word)
        // Dropped, it has no name any more.
    }

    fn write(&self, kind: u8, word: &str) -> Result<(), ContentError> {
        let end = word.floor_char_boundary(WORD_BYTES_MAX - 2);
        let mut bytes = vec![kind];
        bytes.extend(word[..end].bytes().map(|byte| match byte {
            END => b' ',
            byte => byte,
        }));
        bytes.push(END);
        // Whoever reads in between sees a word without an end.
        self.file
            .set_len(0)
            .and_then(|()| self.file.write_all_at(&bytes, 0))
            .map_err(failed("write to", &self.path))
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if let Err(error) = remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "an errand could not be removed");
        }
    }
}

fn open(path: &Path) -> Result<File, ContentError> {
    open_or_create(path).map_err(failed("open", path))
}

/// What stands in the file, if it is whole.
fn said(file: &File, path: &Path) -> Result<Option<(u8, String)>, ContentError> {
    let mut bytes = vec![0; WORD_BYTES_MAX];
    let length = file.read_at(&mut bytes, 0).map_err(failed("read", path))?;
    let Some(([kind, word @ ..], [END])) =
        bytes[..length].split_at_checked(length.saturating_sub(1))
    else {
        return Ok(None);
    };
    Ok(Some((*kind, String::from_utf8_lossy(word).into_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content() -> (tempfile::TempDir, Content) {
        let directory = tempfile::tempdir().expect("a directory");
        let content = Content::open(directory.path()).expect("a store");
        (directory, content)
    }

    fn look(wanted: Wanted) -> Look {
        wanted.look().expect("the store can be read")
    }

    fn ours(content: &Content) -> Errand {
        match look(content.want("x").expect("the store can be written")) {
            Look::Ours(errand) => errand,
            other => panic!("{other:?}"),
        }
    }

    fn theirs(wanted: Wanted) -> (Wanted, Option<String>) {
        match look(wanted) {
            Look::Theirs { wanted, word } => (wanted, word),
            other => panic!("{other:?}"),
        }
    }

    fn over(wanted: Wanted) -> String {
        match look(wanted) {
            Look::Over(word) => word,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn those_who_wait_get_the_last_word_and_who_comes_later_begins_anew() {
        let (_directory, content) = content();
        let errand = ours(&content);
        let want = || content.want("x").expect("the store can be written");
        let (first, word) = theirs(want());
        assert_eq!(word, None);
        errand.tell("so\nfar").expect("the store can be written");
        let (first, word) = theirs(first);
        assert_eq!(word.as_deref(), Some("so far"));
        let (second, _) = theirs(want());
        let third = want().from_now_on().expect("the store can be read");
        errand.finish("failed").expect("the store can be written");
        assert_eq!(over(first), "failed");
        let again = ours(&content);
        assert_eq!(over(second), "failed", "also after somebody began anew");
        assert_eq!(over(third), "failed", "it did not look meanwhile");
        drop(again);
    }

    #[test]
    fn another_errand_does_not_wait() {
        let (_directory, content) = content();
        let _errand = ours(&content);
        let other = look(content.want("y").expect("the store can be written"));
        assert!(matches!(other, Look::Ours(_)), "{other:?}");
    }

    #[test]
    fn one_that_was_given_up_goes_to_the_next_who_waits() {
        let (_directory, content) = content();
        let errand = ours(&content);
        errand.tell("half").expect("the store can be written");
        let (first, _) = theirs(content.want("x").expect("the store can be written"));
        let (second, _) = theirs(content.want("x").expect("the store can be written"));
        // As after a kill: the lock is gone, the file and what was said are there.
        let Errand { path, .. } = &errand;
        let left = std::fs::read(path).expect("it is there");
        let path = path.clone();
        drop(errand);
        std::fs::write(&path, left).expect("the store can be written");
        let Look::Ours(next) = look(first) else {
            panic!("nobody else is at it");
        };
        let (second, word) = theirs(second);
        assert_eq!(word, None, "what was said before does not count");
        next.finish("done").expect("the store can be written");
        assert_eq!(over(second), "done");
    }

    #[test]
    fn a_last_word_that_was_left_behind_is_nobodys() {
        let (_directory, content) = content();
        let errand = ours(&content);
        let path = errand.path.clone();
        drop(errand);
        std::fs::write(&path, "=failed\n").expect("the store can be written");
        drop(ours(&content));
        std::fs::write(&path, "=failed\n").expect("the store can be written");
        content.sweep_errands();
        assert!(!path.exists());
    }
}
