//! Ways to use up a disk, and trees that are hard to take away: hostile cases 41, 42 and 45.

use std::env;
use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::sys::{self, call};
use crate::verdict::{Findings, Verdict};

const MIB: usize = 1 << 20;

fn bound(name: &str, otherwise: usize) -> usize {
    let told = env::var(name).ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Where a job may write.
const WRITABLE: &[&str] = &[".", "/tmp", "/var/tmp", "/dev/shm"];

pub(crate) fn disk_bomb() -> Verdict {
    sys::ignore(libc::SIGXFSZ);
    let mut findings = Findings::new();
    let mebibytes = bound("PROBE_MIB", 256);
    let block = vec![0x5a; MIB];
    for directory in WRITABLE {
        let path = Path::new(directory).join("probe-disk");
        let Ok(mut file) = File::create(&path) else {
            findings.absent(format!("{directory} cannot be written"));
            continue;
        };
        let refused = (0..mebibytes).find_map(|count| {
            let written = file.write_all(&block);
            written
                .err()
                .map(|error| format!("{directory}: {error} after {count} MiB"))
        });
        drop(fs::remove_file(&path));
        match refused {
            Some(text) => findings.held(text),
            None => findings.hole(format!("{directory} takes {mebibytes} MiB")),
        }
    }
    findings.verdict()
}

pub(crate) fn inode_bomb() -> Verdict {
    many_files(&[".", "/tmp", "/var/tmp"])
}

pub(crate) fn shared_memory_names() -> Verdict {
    many_files(&["/dev/shm"])
}

fn many_files(directories: &[&str]) -> Verdict {
    let mut findings = Findings::new();
    let files = bound("PROBE_FILES", 65_536);
    for directory in directories {
        let place = Path::new(directory).join("probe-inodes");
        if fs::create_dir(&place).is_err() {
            findings.absent(format!("{directory} cannot be written"));
            continue;
        }
        let made = (0..files).try_for_each(|number| {
            let file = File::create(place.join(number.to_string()));
            file.map(drop)
                .map_err(|error| format!("{error} after {number} files"))
        });
        match made {
            Err(text) => findings.held(format!("{directory}: {text}")),
            Ok(()) => findings.hole(format!("{directory} takes {files} files")),
        }
        drop(fs::remove_dir_all(&place));
    }
    findings.verdict()
}

pub(crate) fn deep_tree() -> Verdict {
    let levels = bound("PROBE_LEVELS", 5_000);
    for directory in [".", "/tmp"] {
        let made = sys::fork().and_then(|pid| {
            if pid == 0 {
                let result = dig(directory, levels);
                sys::exit_now(i32::from(result.is_err()));
            }
            sys::wait(pid)
        });
        if made.ok() != Some(sys::Ending::Exited(0)) {
            return Verdict::Absent(format!("no {levels} levels in {directory}"));
        }
    }
    Verdict::Safe(format!(
        "{levels} levels are there; whoever takes them away is judged"
    ))
}

fn dig(directory: &str, levels: usize) -> io::Result<()> {
    let start = CString::new(directory)?;
    call!(libc::SYS_chdir, start.as_c_str())?;
    for _ in 0..levels {
        call!(libc::SYS_mkdir, c"deep", 0o755)?;
        call!(libc::SYS_chdir, c"deep")?;
    }
    File::create("bottom").map(drop)
}

pub(crate) fn many_names() -> Verdict {
    let names = bound("PROBE_FILES", 200_000);
    for number in 0..names {
        // Links to one file: names without inodes.
        let made = if number == 0 {
            File::create("name-0").map(drop)
        } else if number % 60_000 == 0 {
            File::create(format!("name-{number}")).map(drop)
        } else {
            let first = number - number % 60_000;
            fs::hard_link(format!("name-{first}"), format!("name-{number}"))
        };
        if let Err(error) = made {
            return Verdict::Safe(format!("{error} after {number} names"));
        }
    }
    Verdict::Safe(format!(
        "{names} names are there; whoever takes them away is judged"
    ))
}

pub(crate) fn undeletable() -> Verdict {
    let made = (|| -> io::Result<()> {
        for directory in [".", "/tmp"] {
            let place = Path::new(directory).join("undeletable");
            fs::create_dir_all(place.join("closed/inner"))?;
            fs::write(place.join("closed/inner/file"), "x")?;
            fs::create_dir_all(place.join("read-only/inner"))?;
            fs::write(place.join("read-only/inner/file"), "x")?;
            fs::write(place.join("a\nb"), "x")?;
            fs::write(place.join("\u{1b}[31m"), "x")?;
            fs::write(place.join("-rf"), "x")?;
            fs::write(place.join("n".repeat(255)), "x")?;
            std::os::unix::fs::symlink("/", place.join("up"))?;
            std::os::unix::fs::symlink("loop", place.join("loop"))?;
            let pipe = CString::new(place.join("pipe").to_string_lossy().into_owned())?;
            call!(libc::SYS_mknod, pipe.as_c_str(), libc::S_IFIFO | 0o600, 0)?;
            drop(std::os::unix::net::UnixListener::bind(
                place.join("socket"),
            )?);
            for (name, mode) in [
                ("closed/inner", 0),
                ("closed", 0),
                ("read-only/inner", 0o555),
                ("read-only", 0o555),
                ("", 0),
            ] {
                fs::set_permissions(place.join(name), Permissions::from_mode(mode))?;
            }
        }
        Ok(())
    })();
    match made {
        Ok(()) => Verdict::Safe("all of it is there; whoever takes it away is judged".to_owned()),
        Err(error) => Verdict::Absent(format!("not all of it could be made: {error}")),
    }
}

pub(crate) fn sparse_file() -> Verdict {
    const TEBIBYTE: u64 = 1 << 40;
    const EXBIBYTE: u64 = 1 << 60;
    sys::ignore(libc::SIGXFSZ);
    let mut findings = Findings::new();
    for directory in WRITABLE {
        let path = Path::new(directory).join("probe-sparse");
        let Ok(file) = File::create(&path) else {
            findings.absent(format!("{directory} cannot be written"));
            continue;
        };
        // Larger than any file may be; if not, a hole too.
        if file.set_len(EXBIBYTE).is_ok() {
            let blocks = file.metadata().map_or(u64::MAX, |found| found.blocks());
            findings.unless(
                blocks > 64,
                format!("{directory}: an EiB has {blocks} blocks"),
            );
        }
        match file.set_len(TEBIBYTE) {
            Err(error) => findings.held(format!("{directory}: {error}")),
            Ok(()) => {
                let blocks = file.metadata().map_or(u64::MAX, |found| found.blocks());
                findings.unless(blocks > 64, format!("{directory}: {blocks} blocks in use"));
                // Left behind, for whoever copies or counts it.
                findings.held(format!("{directory}: a hole of a TiB in {blocks} blocks"));
            }
        }
        let allocated = call!(
            libc::SYS_fallocate,
            std::os::fd::AsRawFd::as_raw_fd(&file),
            0,
            0,
            TEBIBYTE
        );
        findings.unless(
            allocated.is_ok(),
            format!("{directory}: a TiB was allocated"),
        );
        let kept = file.metadata().map_or(u64::MAX, |found| found.blocks());
        findings.unless(kept > 64, format!("{directory}: {kept} blocks are taken"));
    }
    findings.verdict()
}
