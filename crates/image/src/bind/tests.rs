use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use tempfile::TempDir;
use tidemill_core::Allow;
use tidemill_core::job::Workspace;

use super::*;
use crate::device::DeviceError;
use crate::plan::{Planned, plan};

/// A host of its own with a home, a project and data beside it.
struct World {
    base: TempDir,
    host: HostView,
    trees: TreeStore,
}

impl World {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(base.path()).unwrap();
        for file in [
            "host/usr/bin/env",
            "host/etc/passwd",
            "host/etc/shadow",
            "home/project/main.c",
            "home/.ssh/id_rsa",
            "data/in/file",
        ] {
            fs::create_dir_all(real.join(file).parent().unwrap()).unwrap();
            fs::write(real.join(file), "").unwrap();
        }
        let trees = TreeStore::open(real.join("state/trees")).unwrap();
        let host = HostView {
            root: real.join("host"),
            uid: 1234,
            gid: 1235,
            name: "alice".to_owned(),
            home: real.join("home"),
            cwd: None,
            stands_in: None,
            env: [("PATH".into(), "/usr/bin".into())].into(),
            state_dir: Some(real.join("state")),
            allow_state_in_workspace: false,
        };
        Self { base, host, trees }
    }

    fn path(&self, inside: &str) -> String {
        let real = fs::canonicalize(self.base.path()).unwrap();
        let path: PathBuf = real.join(inside).components().collect();
        path.to_str().unwrap().to_owned()
    }

    fn spec(&self, write: bool) -> JobSpec {
        let mut spec = JobSpec::new("true", []);
        spec.workspace = Some(Workspace {
            path: self.path("home/project"),
            write,
        });
        spec
    }

    fn bind(&self, source: &str, dest: &str, write: bool) -> GrantRequest {
        GrantRequest::Bind {
            source: self.path(source),
            dest: dest.to_owned(),
            write,
        }
    }

    fn plan(&self, grants: &[GrantRequest]) -> Result<Planned, PlanError> {
        let mut spec = self.spec(false);
        spec.grants = grants.to_vec();
        plan(&spec, &self.host, &self.trees)
    }

    fn planned(&self, source: &str, dest: &str, write: bool) -> Planned {
        self.plan(&[self.bind(source, dest, write)]).unwrap()
    }

    /// What a bind is refused with, causes too.
    fn refused(&self, source: &str, dest: &str, write: bool) -> String {
        let error = self.plan(&[self.bind(source, dest, write)]).unwrap_err();
        assert!(!error.hint().is_empty());
        error.reason().message
    }
}

fn mount<'a>(planned: &'a Planned, dest: &str) -> &'a RootMount {
    let found = planned.root.mounts.iter().find(|mount| mount.dest == dest);
    found.unwrap_or_else(|| panic!("{dest}: {planned:#?}"))
}

#[test]
fn a_bind_shows_a_path_as_it_is() {
    let world = World::new();
    for (write, access) in [(false, PathAccess::ReadOnly), (true, PathAccess::Write)] {
        let planned = world.planned("data", "/mnt/data", write);
        let shown = mount(&planned, "/mnt/data");
        assert_eq!(
            (shown.source.as_str(), shown.access, shown.over.len()),
            (world.path("data").as_str(), access, 0)
        );
        assert!(matches!(shown.owners, Owners::Job { .. }));
        let granted = planned
            .grants
            .iter()
            .find(|grant| matches!(grant, Grant::Path { sandbox, .. } if sandbox == "/mnt/data"));
        assert!(
            matches!(granted, Some(Grant::Path { access: given, .. }) if *given == access),
            "{granted:?}"
        );
    }
    let file = world.planned("data/in/file", "/etc/app.conf", false);
    assert_eq!(
        mount(&file, "/etc/app.conf").source,
        world.path("data/in/file")
    );
}

#[test]
fn a_bind_behind_a_link_is_never_written() {
    let world = World::new();
    symlink(world.path("data"), world.path("link")).unwrap();
    let request = world.bind("link/in", "/mnt", true);
    let error = world.plan(&[request]).unwrap_err();
    assert!(matches!(error, PlanError::WrittenLink { .. }), "{error}");
    let named = format!("--grant bind:{}:/mnt:rw", world.path("data/in"));
    assert!(error.hint().ends_with(&named), "{}", error.hint());
}

#[test]
fn a_socket_can_be_bound_and_links_are_followed_once() {
    let world = World::new();
    let _listener = UnixListener::bind(world.path("data/socket")).unwrap();
    symlink(world.path("data"), world.path("link")).unwrap();
    let planned = world.planned("link/socket", "/run/socket", false);
    assert_eq!(
        mount(&planned, "/run/socket").source,
        world.path("data/socket")
    );
}

#[test]
fn sources_that_cannot_be_are_refused_with_a_reason() {
    let world = World::new();
    let refused = |source: &str| world.refused(source, "/mnt/x", false);
    assert!(refused("gone").contains("No such file"));
    assert!(refused("/").contains("it is the whole host"));
    assert!(refused("/dev/null").contains("not a directory, file or socket"));
    assert!(refused("/proc/self").contains("a view into the kernel"));
    assert!(refused("state/trees").contains("lies in Tidemill's state directory"));
    assert!(refused("").contains("contains Tidemill's state directory"));
}

#[test]
fn a_mount_of_the_kernels_below_a_source_is_found() {
    assert_eq!(kernels_below("/").as_deref(), Some("/proc"));
    assert_eq!(kernels_below("/usr/bin"), None);
    assert_eq!(unescaped("/a\\040b\\134c"), "/a b\\c");
}

#[test]
fn destinations_that_cannot_be_are_refused_with_a_reason() {
    let world = World::new();
    let refused = |source: &str, dest: &str| world.refused(source, dest, true);
    for made in ["/tmp", "/var/tmp", "/proc/x", "/dev/x"] {
        assert!(
            refused("data", made).contains("made by the sandbox itself"),
            "{made}"
        );
    }
    let workspace = world.path("home/project");
    assert!(refused("data", &workspace).contains("the workspace is there"));
    assert!(refused("data", "/usr/bin/env").contains("in the sandbox is a file"));
    assert!(refused("data/in/file", "/usr/bin").contains("in the sandbox is a directory"));
    let linked = world.planned("data", "/var/lock", false);
    assert_eq!(mount(&linked, "/run/lock").source, world.path("data"));
    let both = [
        world.bind("data", "/run/x", false),
        world.bind("data/in", "/var/run/x", false),
    ];
    let error = world.plan(&both).unwrap_err();
    assert!(
        error.reason().message.contains("another bind is there"),
        "{error}"
    );
}

#[test]
fn nothing_is_made_on_the_host_to_mount_on() {
    let world = World::new();
    // The sandbox mounts /var/tmp, and the workspace is mounted too.
    assert!(
        world
            .refused("data", "/var", true)
            .contains("there is no `/var/tmp`")
    );
    let home = world.path("home");
    let missing = world.refused("data", &home, true);
    assert!(
        missing.contains("there is no") && missing.contains("project"),
        "{missing}"
    );
    let planned = world.planned("data", &home, false);
    assert_eq!(mount(&planned, &home).over.len(), 1, "a tree has the place");
    fs::create_dir(world.path("data/project")).unwrap();
    let planned = world.planned("data", &home, true);
    assert!(mount(&planned, &home).over.is_empty());
    let order: Vec<&str> = planned
        .root
        .mounts
        .iter()
        .map(|m| m.dest.as_str())
        .collect();
    let at = |dest: &str| order.iter().position(|known| *known == dest);
    assert!(at(&home) < at(&world.path("home/project")), "{order:?}");
    fs::remove_dir(world.path("data/project")).unwrap();
    fs::write(world.path("data/project"), "").unwrap();
    assert!(
        world
            .refused("data", &home, false)
            .contains("has to be a directory")
    );

    // In a workspace that is written for real, only what is there can be mounted on.
    let mut spec = world.spec(true);
    let inside = world.path("home/project/deps");
    spec.grants = vec![world.bind("data", &inside, false)];
    let refused = plan(&spec, &world.host, &world.trees).unwrap_err();
    assert!(
        refused
            .reason()
            .message
            .contains("which the job writes for real")
    );
    fs::create_dir(&inside).unwrap();
    let planned = plan(&spec, &world.host, &world.trees).unwrap();
    assert_eq!(mount(&planned, &inside).source, world.path("data"));
    fs::remove_dir(&inside).unwrap();
    spec.workspace.as_mut().unwrap().write = false;
    plan(&spec, &world.host, &world.trees).unwrap();
    assert!(!Path::new(&inside).exists());
}

#[test]
fn credentials_are_hidden_unless_they_were_named() {
    let world = World::new();
    let hidden = |source: &str| {
        let planned = world.planned(source, "/mnt/x", false);
        mount(&planned, "/mnt/x").hidden.clone()
    };
    assert_eq!(hidden("home"), [".ssh"]);
    assert!(hidden("home/.ssh").is_empty());
    assert!(hidden("host/etc").contains(&"shadow".to_owned()));
    assert!(hidden("host").contains(&"etc/shadow".to_owned()));
    assert!(hidden("data").is_empty());
}

#[test]
fn nothing_is_written_into_what_is_bound() {
    let world = World::new();
    let wrote =
        |planned: &Planned, path: &str| planned.root.files.iter().any(|file| file.path == path);
    let plain = world.plan(&[]).unwrap();
    assert!(wrote(&plain, "/etc/hosts") && wrote(&plain, "/etc/passwd"));
    let etc = world.planned("data", "/etc", true);
    assert!(
        !etc.root
            .files
            .iter()
            .any(|file| file.path.starts_with("/etc/"))
    );
    let hosts = world.planned("data/in/file", "/etc/hosts", false);
    assert!(!wrote(&hosts, "/etc/hosts") && wrote(&hosts, "/etc/passwd"));
}

#[test]
fn what_is_asked_for_by_name_is_planned_and_recorded() {
    let world = World::new();
    let planned = world
        .plan(&[
            GrantRequest::Userns,
            GrantRequest::Ptrace,
            GrantRequest::Sys,
        ])
        .unwrap();
    assert_eq!(planned.root.allow, [Allow::UserNamespaces, Allow::Ptrace]);
    assert!(planned.root.sys && planned.root.devices.is_empty());
    let named: Vec<&str> = planned
        .grants
        .iter()
        .filter_map(|grant| match grant {
            Grant::Named { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(named, ["userns", "ptrace", "sys"]);
    let plain = world.plan(&[]).unwrap();
    assert!(!plain.root.sys && plain.root.allow.is_empty());
}

#[test]
fn a_device_that_this_host_lacks_is_an_error() {
    let mut world = World::new();
    let device = |path: &str| GrantRequest::Device { path: path.into() };
    for (grant, path) in [
        (GrantRequest::Kvm, "/dev/kvm"),
        (GrantRequest::Fuse, "/dev/fuse"),
        (device("/dev/net/tun"), "/dev/net/tun"),
    ] {
        let error = world.plan(&[grant]).unwrap_err();
        let missing = matches!(
            error,
            PlanError::Device {
                source: DeviceError::Missing(_),
                ..
            }
        );
        assert!(missing && error.to_string().contains(path), "{error}");
    }
    fs::create_dir(world.path("host/dev")).unwrap();
    fs::write(world.path("host/dev/file"), "").unwrap();
    symlink("/dev/null", world.path("host/dev/link")).unwrap();
    for name in ["file", "link"] {
        let error = world.plan(&[device(&format!("/dev/{name}"))]).unwrap_err();
        assert!(
            error.reason().message.contains("not a character device"),
            "{error}"
        );
    }
    world.host.root = "/".into();
    let planned = world.plan(&[device("/dev/null")]).unwrap();
    assert_eq!(planned.root.devices, ["/dev/null"]);
}
