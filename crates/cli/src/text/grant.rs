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
        Grant::Stdin => 2,
        Grant::Environment { .. } => 3,
        Grant::Path {
            access: PathAccess::Write,
            ..
        } => 4,
        Grant::Path {
            access: PathAccess::CopyOnWrite,
            ..
        } => 5,
        Grant::Path {
            access: PathAccess::ReadOnly,
            ..
        } => 6,
    }
}

fn line(grant: &Grant) -> String {
    match grant {
        Grant::Missing { wall, why } => {
            format!("missing wall   {} ({})", plain(wall), plain(why))
        }
        Grant::HostNetwork => "network        the host's".to_owned(),
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
