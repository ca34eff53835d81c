//! The network namespace of jobs without a network: nothing but a loopback interface, IPv4 and IPv6, up.
//!
//! It belongs to the launcher's user namespace and not to a job's, so that no job can change anything in
//! it. To make one takes longer than all other namespaces together, so it is kept from job to job, one
//! at a time, as long as no job has made a socket of a network in it, which process 1 hears of. That no
//! socket is left is looked at too.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::sys::process;
use crate::{network_text, unreached};

/// What the kernel tells of a network namespace: open sockets and those that wait for their end, and
/// what was sent, received and refused.
const FILES: [&str; 3] = ["sockstat", "snmp", "snmp6"];

/// The network namespace that this process stands in.
#[derive(Debug)]
pub(crate) struct JobNetwork {
    files: [Option<File>; FILES.len()],
    /// What they say while nothing was done.
    unused: [String; FILES.len()],
}

impl JobNetwork {
    /// Makes a new one and enters it.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn make() -> io::Result<Self> {
        process::unshare(libc::CLONE_NEWNET)?;
        process::bring_loopback_up()?;
        // Kept open: they go on to tell of this namespace. A kernel without one of them has none of
        // what it tells of.
        let files = FILES.map(|name| File::open(format!("/proc/self/net/{name}")).ok());
        let unused = look_at_all(&files);
        Ok(Self { files, unused })
    }

    /// True if no socket is left in it. To be asked when every process of the job is gone, and of a job
    /// that has made none of a network: what a socket leaves behind does not all show.
    pub(crate) fn is_as_new(&self) -> bool {
        look(0, self.files[0].as_ref()) == self.unused[0]
    }

    /// True if something inside wanted to reach an address that only a network has.
    pub(crate) fn was_missed(&self) -> bool {
        let [_, now, now_v6] = look_at_all(&self.files);
        let is_unused = now == self.unused[1] && now_v6 == self.unused[2];
        !is_unused && unreached::attempts(&now, &now_v6) > 0
    }
}

fn look_at_all(files: &[Option<File>; FILES.len()]) -> [String; FILES.len()] {
    std::array::from_fn(|index| look(index, files[index].as_ref()))
}

/// What one of [`FILES`] says.
fn look(index: usize, file: Option<&File>) -> String {
    let mut bytes = [0; 8192];
    let length = file.and_then(|file| file.read_at(&mut bytes, 0).ok());
    let text = String::from_utf8_lossy(&bytes[..length.unwrap_or(0)]);
    if index == 0 {
        network_text::of_this_namespace(&text)
    } else {
        text.into_owned()
    }
}
