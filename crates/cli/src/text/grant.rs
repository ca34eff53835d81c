//! What a job was given of the host, line by line.

use tidemill_core::Grant;
use tidemill_core::grant::PathAccess;

use crate::ui::plain;

/// One line for each grant, the walls that are missing first.
pub(crate) fn lines(grants: &[Grant]) -> Vec<String> {
    let mut sorted: Vec<&Grant> = grants.iter().collect();
    sorted.sort_by_key(|grant| rank(grant));
    sorted.into_iter().map(line).collect()
}

const fn rank(grant: &Grant) -> u8 {
    match grant {
        Grant::Missing { .. } => 0,
        Grant::HostNetwork => 1,
        Grant::Named { .. } => 2,
        Grant::Stdin => 3,
        Grant::Environment { .. } => 4,
        Grant::Path {
            access: PathAccess::Write,
            ..
        } => 5,
        Grant::Path {
            access: PathAccess::CopyOnWrite,
            ..
        } => 6,
        Grant::Path {
            access: PathAccess::ReadOnly,
            ..
        } => 7,
    }
}

fn line(grant: &Grant) -> String {
    match grant {
        Grant::Missing { wall, why } => {
            format!("missing wall   {} ({})", plain(wall), plain(why))
        }
        Grant::HostNetwork => {
            "network        the host's: the job reaches what this machine reaches".to_owned()
        }
        Grant::Named { name, widens } => {
            format!("{:<13}  {}", plain(name), plain(widens))
        }
        Grant::Stdin => "stdin          the caller's".to_owned(),
        Grant::Environment { name } => format!("variable       {}", plain(name)),
        Grant::Path {
            host,
            sandbox,
            access,
            why,
        } => {
            let access = match access {
                PathAccess::ReadOnly => "read",
                PathAccess::CopyOnWrite => "copy-on-write",
                PathAccess::Write => "write",
            };
            let place = if host == sandbox {
                plain(host)
            } else {
                format!("{} at {}", plain(host), plain(sandbox))
            };
            format!("{access:<13}  {place} ({})", plain(why))
        }
    }
}
