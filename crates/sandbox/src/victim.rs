//! The name of the process that the kernel ended for want of memory, from the kernel's log. Only
//! where the log may be read; elsewhere the victim stays unnamed.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, SeekFrom};

/// The kernel's log, read from where the launcher began.
#[derive(Debug)]
pub(crate) struct KernelLog(OwnedFd);

impl KernelLog {
    pub(crate) fn open() -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let log = rustix::fs::open("/dev/kmsg", flags, Mode::empty()).ok()?;
        rustix::fs::seek(&log, SeekFrom::End(0)).ok()?;
        Some(Self(log))
    }

    /// The first process that was ended in this group since the last question.
    pub(crate) fn victim(&mut self, group: &str) -> Option<String> {
        let mut record = [0_u8; 8192];
        let mut found = None;
        loop {
            match rustix::io::read(&self.0, &mut record) {
                Ok(0) => return found,
                Ok(count) => {
                    let text = String::from_utf8_lossy(&record[..count]);
                    found = found.or_else(|| parse(&text, group));
                }
                // Records that were overwritten before we read them.
                Err(rustix::io::Errno::PIPE | rustix::io::Errno::INTR) => {}
                Err(_) => return found,
            }
        }
    }
}

/// `oom-kill:constraint=…,oom_memcg=/a/b,task_memcg=/a/b,task=tail,pid=1,uid=0`
pub(crate) fn parse(record: &str, group: &str) -> Option<String> {
    let fields = record.split_once("oom-kill:")?.1;
    let mut fields = fields.lines().next().unwrap_or_default().split(',');
    let mut in_group = false;
    let mut task = None;
    for (key, value) in fields.by_ref().filter_map(|field| field.split_once('=')) {
        match key {
            "oom_memcg" => in_group = value.rsplit('/').next() == Some(group),
            "task" => task = Some(value.to_owned()),
            _ => {}
        }
    }
    task.filter(|_| in_group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_victim_is_found_by_its_group() {
        let record = "6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/x/tidemill-a,task_memcg=/x/tidemill-a,task=tail,pid=12,uid=5\n";
        assert_eq!(parse(record, "tidemill-a").as_deref(), Some("tail"));
        assert_eq!(parse(record, "tidemill-b"), None);
        assert_eq!(parse("6,1,2,-;something else", "tidemill-a"), None);
    }
}
