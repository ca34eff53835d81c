//! The second wall: Landlock. What the mounts allow and this does not is refused all the same, and
//! a process can neither signal nor trace, nor reach an abstract socket, outside of the job.

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope,
};
use tidemill_core::RootPlan;
use tidemill_core::grant::PathAccess;
use tidemill_core::root::{Allow, Node};

use crate::request::StartError;

/// The newest interface that this table was reviewed for. An older kernel gets what it has.
const REVIEWED: ABI = ABI::V6;

/// Directories that every job may write.
/// mq_open(3) comes to its file system by a way of its own, which begins in none of the others.
const ALWAYS_WRITABLE: [&str; 4] = ["/tmp", "/var/tmp", "/dev", "/dev/mqueue"];

/// Puts this thread, and all that it starts, behind the wall.
///
/// # Errors
/// If the kernel has Landlock and refuses the rules.
pub(crate) fn build(plan: &RootPlan) -> Result<(), StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::Setup {
        step: "restrict the job with Landlock".to_owned(),
        error: error.to_string(),
    };
    let all = AccessFs::from_all(REVIEWED);
    let read = AccessFs::from_read(REVIEWED);
    // Behind a wall of files no process may mount, not even in a namespace of its own.
    let may_mount =
        (plan.allow.iter()).any(|allow| matches!(allow, Allow::UserNamespaces | Allow::Fuse));
    let rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let rules = if may_mount {
        Ok(rules)
    } else {
        rules.handle_access(all)
    };
    let mut rules = rules
        .and_then(|rules| rules.scope(Scope::from_all(REVIEWED)))
        .and_then(Ruleset::create)
        .map_err(|error| failed(&error))?;
    let table = if may_mount {
        Vec::new()
    } else {
        table(plan, read, all)
    };
    for (path, access) in table {
        // What is not there needs no rule.
        let Ok(opened) = PathFd::new(&path) else {
            continue;
        };
        rules = rules
            .add_rule(PathBeneath::new(opened, access))
            .map_err(|error| failed(&error))?;
    }
    rules.restrict_self().map_err(|error| failed(&error))?;
    Ok(())
}

fn table(
    plan: &RootPlan,
    read: BitFlags<AccessFs>,
    all: BitFlags<AccessFs>,
) -> Vec<(String, BitFlags<AccessFs>)> {
    // Opening a terminal and asking it things is not reading; /dev holds only what a job may use.
    let mut table = vec![("/".to_owned(), if plan.root_writable { all } else { read })];
    // A process writes its own entries here (its name, its out-of-memory score, a nested map).
    let own_entries = read | AccessFs::WriteFile | AccessFs::Truncate;
    table.push(("/proc".to_owned(), own_entries));
    table.extend(ALWAYS_WRITABLE.map(|path| (path.to_owned(), all)));
    table.push((plan.account.home.clone(), all));
    for node in &plan.nodes {
        if let Node::Dir {
            path,
            job_owned: true,
            ..
        } = node
        {
            table.push((path.clone(), all));
        }
    }
    for mount in &plan.mounts {
        if mount.access != PathAccess::ReadOnly {
            table.push((mount.dest.clone(), all));
        }
    }
    table
}
