//! Why a layer that was named well cannot be made.

use tidemill_core::ReasonCode;
use tidemill_core::braces::BracesError;
use tidemill_core::layer::COMMAND_OUTPUT;

use crate::elf::ElfError;

/// Why a layer cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LayerFault {
    /// A file does not lie where leading directories are to be taken off.
    #[error("the pattern `{pattern}` matches `{path}`, which does not lie in `{strip}`")]
    NotBelow {
        /// The pattern.
        pattern: String,
        /// The file, relative to the pattern's directory.
        path: String,
        /// The directories that are to be taken off.
        strip: String,
    },
    /// Braces in a path do not fit together.
    #[error("the path `{pattern}` cannot be used")]
    Braces {
        /// The path as it was written.
        pattern: String,
        /// What is wrong.
        #[source]
        source: BracesError,
    },
    /// A file or link is to be made where a directory is.
    #[error("`{path}` in the sandbox is a directory, so no file or link can be made there")]
    IsDir {
        /// The path.
        path: String,
        /// True for a link, false for a file.
        is_link: bool,
    },
    /// A directory is to be made where a file is.
    #[error(
        "`{path}` in the sandbox is a file or a link to none, so no directory can be made there"
    )]
    IsFile {
        /// The path.
        path: String,
    },
    /// Something is to be made below what the same layer makes as a file or link.
    #[error("`{path}` cannot lie in `{above}`, which the same layer makes as a file or link")]
    BelowFile {
        /// The path.
        path: String,
        /// The file or link.
        above: String,
    },
    /// The image has a file where the output of a command goes.
    #[error("the image has a file at `{COMMAND_OUTPUT}`, where the output of a command goes")]
    NoPlaceForOutput,
    /// Something is to be made in a directory that each job has for itself.
    #[error(
        "`{path}` cannot be made by a layer: `{dir}` is the job's own, and empty when it starts"
    )]
    InTemporary {
        /// The path.
        path: String,
        /// The directory.
        dir: String,
    },
    /// A directory that is used where it is has something that overlayfs would take for an order.
    #[error(
        "`{path}` {mark}, by which overlayfs hides or replaces what lies below: a layer with it cannot be laid \
         over something else"
    )]
    Mark {
        /// The entry on the host.
        path: String,
        /// What it is or has.
        mark: String,
    },
    /// A program cannot be read.
    #[error("the program `{path}` cannot be read")]
    Program {
        /// The path on the host.
        path: String,
        /// Why not.
        #[source]
        source: ElfError,
    },
    /// A library that a program needs is not there.
    #[error("the library `{library}`, which `{needed_by}` needs, is not in {searched}")]
    LibraryMissing {
        /// Its name.
        library: String,
        /// What needs it.
        needed_by: String,
        /// The directories that were searched, in order.
        searched: String,
    },
    /// A program needs too many libraries.
    #[error("`{path}` needs more than {max} libraries")]
    TooManyLibraries {
        /// The program.
        path: String,
        /// The limit.
        max: usize,
    },
    /// An archive or image does not have the directory whose content is wanted.
    #[error("`{archive}` has no directory `{strip}`")]
    NoSuchDir {
        /// The archive or image.
        archive: String,
        /// The directory.
        strip: String,
    },
}

impl LayerFault {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::NotBelow { strip, .. } => {
                format!("begin the pattern with `{strip}/`, exclude that file, or leave `strip` out")
            }
            Self::Braces { .. } => "write `{a,b}` for one path with `a` and one with `b`".into(),
            Self::IsDir { path, is_link: false } => {
                format!("write {path}/ for a directory, or choose another path")
            }
            Self::IsDir { path, is_link: true } => format!(
                "say where the link itself is to be, for example {}/NAME",
                path.trim_end_matches('/')
            ),
            Self::IsFile { path } => format!(
                "write {} for an empty file in its place, or choose another path",
                path.trim_end_matches('/')
            ),
            Self::BelowFile { above, .. } => format!("write {above}/ for a directory"),
            Self::NoPlaceForOutput => "use another image, or make the layer elsewhere".into(),
            Self::InTemporary { path, .. } => format!(
                "let the job make it; or bring it with a `dir` or `file` layer, for example dir:DIR={path}"
            ),
            Self::Mark { .. } => {
                "remove it; or have the layer copied without such marks, which each of the options owner, \
                 mode and mtime does; or choose a destination of its own"
                    .into()
            }
            Self::Program { source, .. } => source.hint(),
            Self::LibraryMissing { .. } => {
                "install it, or run ldconfig if it lies in a directory of /etc/ld.so.conf; what is found \
                 by LD_LIBRARY_PATH is brought in with a `dir` layer"
                    .into()
            }
            Self::TooManyLibraries { .. } => "bring its directories in with `dir` layers".into(),
            // A path, and no reference of an image.
            Self::NoSuchDir { archive, .. } if archive.starts_with('/') => {
                format!("`tar -tf {archive}` lists what it has; or leave `strip` out")
            }
            Self::NoSuchDir { .. } => "name a directory that it has, or leave `strip` out".into(),
        }
    }

    /// The stable code of what happened.
    pub const fn code(&self) -> ReasonCode {
        match self {
            Self::NotBelow { .. }
            | Self::Braces { .. }
            | Self::IsDir { .. }
            | Self::IsFile { .. }
            | Self::BelowFile { .. }
            | Self::InTemporary { .. } => ReasonCode::BadSpec,
            Self::NoSuchDir { .. }
            | Self::NoPlaceForOutput
            | Self::Mark { .. }
            | Self::Program { .. }
            | Self::LibraryMissing { .. }
            | Self::TooManyLibraries { .. } => ReasonCode::Layer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_would_replace_a_directory_is_not_taken_for_a_stub() {
        let hint = |is_link| {
            let path = "/etc".to_owned();
            LayerFault::IsDir { path, is_link }.hint()
        };
        assert_eq!(
            hint(false),
            "write /etc/ for a directory, or choose another path"
        );
        assert_eq!(
            hint(true),
            "say where the link itself is to be, for example /etc/NAME"
        );
    }
}
