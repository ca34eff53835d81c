#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;
use tidemill_core::Attributes;
use tidemill_core::grant::PathAccess;
use tidemill_core::job::{Layer, User, Workspace};
use tidemill_core::root::{Node, RootMount};

use super::*;
use crate::host_view::{ImplicitWorkspaceError, implicit_workspace};
use crate::layer::{build_layer, layer_keys};
use crate::link_warning::link_warnings;
use crate::secret::HOME_SECRETS;

/// A host of its own: system directories, a home, a project.
struct World {
    base: TempDir,
    host: HostView,
    trees: TreeStore,
}

fn put(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

impl World {
    fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    fn at(base: TempDir) -> Self {
        let real = fs::canonicalize(base.path()).unwrap();
        let root = real.join("host");
        for file in [
            "usr/bin/env",
            "usr/bin/bash",
            "usr/bin/go",
            "usr/lib/libc.so",
            "usr/lib/locale/C.utf8/LC_CTYPE",
        ] {
            put(&root.join(file), "program");
        }
        for (link, target) in [
            ("bin", "usr/bin"),
            ("lib", "usr/lib"),
            ("lib64", "usr/lib64"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        let passwd = "root:x:0:0:root:/root:/bin/bash\nwww-data:x:33:33::/var/www:/usr/sbin/nologin\n\
                      alice:x:1000:1000:Alice Example,,,:/home/alice:/bin/bash\nnobody:x:65534:65534::/nonexistent:/bin/false\n";
        put(&root.join("etc/passwd"), passwd);
        put(
            &root.join("etc/group"),
            "root:x:0:\nsudo:x:27:alice\nalice:x:1000:\n",
        );
        put(&root.join("etc/resolv.conf"), "nameserver 192.0.2.1\n");
        put(&root.join("etc/hosts"), "192.0.2.9 inner\n");
        let home = real.join("home");
        let project = home.join("src/project");
        fs::create_dir_all(&project).unwrap();
        let trees = TreeStore::open(real.join("state/trees")).unwrap();
        let host = HostView {
            root,
            uid: 1234,
            gid: 1235,
            name: "alice".to_owned(),
            home,
            cwd: Some(project.clone()),
            stands_in: Some(project),
            env: [
                ("PATH", "/usr/bin:/bin:/nowhere"),
                ("TERM", "xterm-256color"),
            ]
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
            state_dir: Some(real.join("state")),
            allow_state_in_workspace: false,
        };
        Self { base, host, trees }
    }

    fn path(&self, inside: &str) -> String {
        fs::canonicalize(self.base.path())
            .unwrap()
            .join(inside)
            .to_str()
            .unwrap()
            .to_owned()
    }

    fn home(&self, inside: &str) -> String {
        self.path(&format!("home/{inside}"))
    }

    fn set(&mut self, name: &str, value: &str) {
        self.host.env.insert(name.into(), value.into());
    }

    fn spec(&self) -> JobSpec {
        let mut spec = JobSpec::new("true", []);
        spec.workspace = Some(Workspace {
            path: self.home("src/project"),
            write: false,
        });
        spec
    }

    fn plan(&self, spec: &JobSpec) -> Planned {
        self.try_plan(spec).unwrap()
    }

    fn try_plan(&self, spec: &JobSpec) -> Result<Planned, PlanError> {
        plan(spec, &self.host, &self.trees)
    }
}

fn mount<'a>(planned: &'a Planned, dest: &str) -> Option<&'a RootMount> {
    planned.root.mounts.iter().find(|mount| mount.dest == dest)
}

fn variable<'a>(planned: &'a Planned, name: &str) -> Option<&'a str> {
    planned
        .env
        .iter()
        .find(|(known, _)| known == name)
        .map(|(_, value)| value.as_str())
}

fn generated<'a>(planned: &'a Planned, path: &str) -> Option<&'a str> {
    planned
        .root
        .files
        .iter()
        .find(|file| file.path == path)
        .map(|file| file.content.as_str())
}

fn is_owned(planned: &Planned, dir: &str) -> bool {
    planned
        .root
        .nodes
        .iter()
        .any(|node| matches!(node, Node::Dir { path, job_owned: true, .. } if path == dir))
}

#[test]
fn the_host_image_is_the_hosts_programs_and_settings() {
    let world = World::new();
    let planned = world.plan(&world.spec());
    let usr = mount(&planned, "/usr").unwrap();
    assert_eq!(
        (usr.access, usr.owners),
        (PathAccess::ReadOnly, Owners::AsIs)
    );
    let etc = mount(&planned, "/etc").unwrap();
    assert_eq!(
        (etc.access, etc.owners),
        (PathAccess::CopyOnWrite, Owners::AsIs)
    );
    let bin = Node::Symlink {
        path: "/bin".into(),
        target: "usr/bin".into(),
    };
    assert!(planned.root.nodes.contains(&bin));
    assert!(!planned.root.root_writable);
    assert!(planned.root.trees.is_empty());
    assert_eq!(variable(&planned, "PATH"), Some("/usr/bin:/bin"));
    assert_eq!(variable(&planned, "SHELL"), Some("/bin/bash"));
    assert_eq!(variable(&planned, "LANG"), Some("C.UTF-8"));
    assert_eq!(variable(&planned, "TERM"), Some("dumb"));
    assert_eq!(variable(&planned, "TZ"), Some("UTC"));
    assert_eq!(variable(&planned, "CI"), None);
    assert_eq!(variable(&planned, "TMPDIR"), None);
}

#[test]
fn directories_that_are_not_merged_into_usr_are_mounted() {
    let world = World::new();
    put(Path::new(&world.path("host/sbin/init")), "program");
    assert!(mount(&world.plan(&world.spec()), "/sbin").is_some());
}

#[test]
fn the_job_is_the_caller_and_never_root_by_itself() {
    let mut world = World::new();
    let planned = world.plan(&world.spec());
    let account = &planned.root.account;
    assert_eq!(
        account.user,
        User {
            uid: 1234,
            gid: 1235
        }
    );
    assert_eq!(
        (account.name.as_str(), account.home.as_str()),
        ("alice", world.home("").trim_end_matches('/'))
    );
    let passwd = generated(&planned, "/etc/passwd").unwrap();
    assert!(
        passwd.contains(&format!("alice:x:1234:1235::{}:/bin/sh\n", account.home)),
        "{passwd}"
    );
    assert!(
        passwd.contains("root:x:0:0:") && passwd.contains("www-data:x:33:33:"),
        "{passwd}"
    );
    assert!(!passwd.contains("Alice Example"), "{passwd}");
    assert!(
        generated(&planned, "/etc/group")
            .unwrap()
            .ends_with("alice:x:1235:\n")
    );
    assert!(is_owned(&planned, &account.home));

    (world.host.uid, world.host.gid, world.host.name) = (0, 0, "root".to_owned());
    let planned = world.plan(&world.spec());
    let account = &planned.root.account;
    assert_eq!(
        account.user,
        User {
            uid: 1000,
            gid: 1000
        }
    );
    assert_eq!(
        (account.name.as_str(), account.home.as_str()),
        ("job", world.home("").trim_end_matches('/'))
    );
    assert_eq!(variable(&planned, "USER"), Some("job"));

    let mut spec = world.spec();
    spec.user = Some(User { uid: 0, gid: 0 });
    let account = world.plan(&spec).root.account;
    assert_eq!(
        (
            account.user.uid,
            account.name.as_str(),
            account.home.as_str()
        ),
        (0, "root", "/root")
    );
    spec.user = Some(User {
        uid: 4242,
        gid: 4243,
    });
    let planned = world.plan(&spec);
    assert!(
        generated(&planned, "/etc/passwd")
            .unwrap()
            .contains("job:x:4242:4243:")
    );
    assert_eq!(
        variable(&planned, "HOME"),
        Some(planned.root.account.home.as_str())
    );
}

#[test]
fn names_of_hosts_depend_on_the_network() {
    let world = World::new();
    let mut spec = world.spec();
    let planned = world.plan(&spec);
    let hosts = generated(&planned, "/etc/hosts").unwrap();
    assert!(hosts.contains("127.0.0.1\tlocalhost") && hosts.contains("::1\tlocalhost"));
    assert!(hosts.contains(HOSTNAME) && !hosts.contains("inner"));
    assert_eq!(generated(&planned, "/etc/resolv.conf"), Some(""));
    assert!(!planned.grants.contains(&Grant::HostNetwork));
    spec.network = Network::Host;
    let planned = world.plan(&spec);
    assert!(
        generated(&planned, "/etc/hosts")
            .unwrap()
            .contains("192.0.2.9 inner")
    );
    assert_eq!(
        generated(&planned, "/etc/resolv.conf"),
        Some("nameserver 192.0.2.1\n")
    );
    assert!(planned.grants.contains(&Grant::HostNetwork));
}

/// Makes an entry of a table of secrets real: a file, whose name fits the pattern.
fn plant(root: &Path, pattern: &str) -> std::path::PathBuf {
    let path = root.join(pattern.replace('*', "x"));
    if !path.exists() {
        put(&path, "TOP-SECRET");
    }
    path
}

/// The paths of the host that a plan shows, less what it hides.
fn shows(planned: &Planned, host_path: &Path) -> bool {
    planned.root.mounts.iter().any(|mount| {
        let sources =
            std::iter::once(&mount.source).chain(mount.over.iter().map(|tree| &tree.path));
        sources.into_iter().any(|source| {
            host_path
                .strip_prefix(source)
                .is_ok_and(|inside| !mount.hidden.iter().any(|hidden| inside.starts_with(hidden)))
        })
    })
}

#[test]
fn secrets_of_the_host_are_hidden() {
    let world = World::new();
    let etc = world.host.system("/etc");
    let planted: Vec<_> = crate::secret::ETC_SECRETS
        .iter()
        .map(|entry| plant(&etc, entry.pattern))
        .collect();
    put(
        &etc.join("npmrc"),
        "registry=https://registry.test/\n//registry.test/:_authToken=abc\n",
    );
    put(&etc.join("wgetrc"), "# password = x\ntries = 3\n");
    put(
        &etc.join("pip.conf"),
        "[global]\nindex-url = https://user:pw@pypi.test/simple\n",
    );
    put(&etc.join("ssl/certs/ca.pem"), "public");
    let planned = world.plan(&world.spec());
    for path in planted {
        assert!(!shows(&planned, &path), "{} is shown", path.display());
    }
    for (file, shown) in [
        ("npmrc", false),
        ("wgetrc", true),
        ("pip.conf", false),
        ("ssl/certs/ca.pem", true),
        ("passwd", true),
    ] {
        assert_eq!(shows(&planned, &etc.join(file)), shown, "{file}");
    }
    assert_eq!(generated(&planned, "/etc/machine-id"), Some(""));
}

/// A home with every tool and every secret of the tables.
fn full_home(world: &mut World) -> Vec<std::path::PathBuf> {
    let home = world.host.home.clone();
    let planted = HOME_SECRETS
        .iter()
        .map(|entry| plant(&home, entry.pattern))
        .collect();
    let mut path = vec!["/usr/bin".to_owned()];
    for bin in [
        ".cargo/bin",
        ".pyenv/shims",
        ".pyenv/bin",
        ".nvm/versions/node/x/bin",
        "go/bin",
        ".local/bin",
        ".volta/bin",
        ".asdf/shims",
        ".bun/bin",
        ".deno/bin",
        ".juliaup/bin",
        ".sdkman/candidates/java/current/bin",
        ".fly/bin",
        ".gem/ruby/3.3.0/bin",
        ".luarocks/bin",
        ".npm-global/bin",
        "bin",
        "tools/odd/bin",
        // None of these may open what is in them.
        ".ssh",
        ".aws",
        ".docker/bin",
        "",
        ".config",
        ".kube",
        ".claude-x/bin",
    ] {
        let dir = home.join(bin);
        if !dir.is_file() {
            drop(fs::create_dir_all(&dir));
            drop(fs::write(dir.join("tool"), "program"));
        }
        path.push(dir.to_str().unwrap().to_owned());
    }
    for file in [
        ".rustup/toolchains/stable/bin/cargo",
        ".cargo/registry/cache/x.crate",
        ".cargo/git/db/x",
        ".cargo/config.toml",
        "go/pkg/mod/cache/x",
        ".local/lib/python3/site-packages/x.py",
        ".npm/_cacache/index-v5/x",
        "bin/id_rsa",
        "bin/.netrc",
        "tools/odd/bin/server.pem",
    ] {
        put(&home.join(file), "x");
    }
    world.set("PATH", &path.join(":"));
    for name in ["NVM_DIR", "PYENV_ROOT", "CARGO_HOME", "RUSTUP_HOME"] {
        let dir = name.split('_').next().unwrap().to_lowercase();
        world.set(name, home.join(format!(".{dir}")).to_str().unwrap());
    }
    planted
}

#[test]
fn no_credential_of_the_home_is_ever_granted() {
    let mut world = World::new();
    let planted = full_home(&mut world);
    let home = world.host.home.clone();
    // As a project, as everything, and with each directory of PATH in turn as the only one.
    let everything = world.host.env[std::ffi::OsStr::new("PATH")].clone();
    let mut paths: Vec<OsString> = std::env::split_paths(&everything).map(Into::into).collect();
    paths.push(everything);
    for path in paths {
        world.host.env.insert("PATH".into(), path.clone());
        for workspace in [Some("src/project"), Some(""), None] {
            let mut spec = world.spec();
            spec.workspace = workspace.map(|inside| Workspace {
                path: home
                    .join(inside)
                    .to_str()
                    .unwrap()
                    .trim_end_matches('/')
                    .to_owned(),
                write: false,
            });
            let planned = world.plan(&spec);
            for secret in &planted {
                assert!(
                    !shows(&planned, secret),
                    "{} is shown with PATH {path:?}",
                    secret.display()
                );
            }
            if workspace != Some("") {
                for suspicious in ["bin/id_rsa", "bin/.netrc", "tools/odd/bin/server.pem"] {
                    assert!(!shows(&planned, &home.join(suspicious)), "{suspicious}");
                }
            }
            for grant in &planned.grants {
                if let Grant::Path { host, .. } = grant {
                    let inside = Path::new(host).strip_prefix(&home);
                    let above = inside.ok().and_then(crate::secret::home_secret_above);
                    assert!(above.is_none(), "{host} is granted");
                }
            }
        }
    }
}

#[test]
fn tools_of_the_home_are_granted() {
    let mut world = World::new();
    full_home(&mut world);
    let planned = world.plan(&world.spec());
    for (dest, access) in [
        (".cargo/bin", PathAccess::ReadOnly),
        (".cargo/registry", PathAccess::CopyOnWrite),
        (".cargo/git", PathAccess::CopyOnWrite),
        (".cargo/config.toml", PathAccess::ReadOnly),
        (".rustup", PathAccess::ReadOnly),
        (".pyenv", PathAccess::ReadOnly),
        (".nvm", PathAccess::ReadOnly),
        ("go/bin", PathAccess::ReadOnly),
        ("go/pkg/mod", PathAccess::CopyOnWrite),
        (".local/bin", PathAccess::ReadOnly),
        (".local/lib", PathAccess::ReadOnly),
        (".sdkman", PathAccess::ReadOnly),
        ("tools/odd/bin", PathAccess::ReadOnly),
    ] {
        let mount =
            mount(&planned, &world.home(dest)).unwrap_or_else(|| panic!("{dest} is missing"));
        assert_eq!(mount.access, access, "{dest}");
        assert!(matches!(mount.owners, Owners::Job { .. }), "{dest}");
    }
    assert!(is_owned(&planned, &world.home(".cargo")));
    assert_eq!(variable(&planned, "CARGO_NET_OFFLINE"), Some("true"));
    assert!(is_owned(&planned, &world.home(".local")));
    assert!(
        mount(&planned, &world.home(".npm/_cacache")).is_none(),
        "there is no npm here"
    );
    let path = variable(&planned, "PATH").unwrap();
    for (entry, is_there) in [
        (".cargo/bin", true),
        (".nvm/versions/node/x/bin", true),
        ("bin", true),
        (".ssh", false),
        (".docker/bin", false),
    ] {
        let entry = world.home(entry);
        assert_eq!(
            path.split(':').any(|known| known == entry),
            is_there,
            "{entry} in {path}"
        );
    }
    assert_eq!(
        variable(&planned, "CARGO_HOME"),
        Some(world.home(".cargo").as_str())
    );
    assert!(planned.grants.contains(&Grant::Environment {
        name: "PYENV_ROOT".into()
    }));
}

#[test]
fn the_systems_own_cargo_finds_its_downloads() {
    let mut world = World::new();
    put(Path::new(&world.home(".cargo/registry/cache/x.crate")), "x");
    put(
        Path::new(&world.home(".cargo/credentials.toml")),
        "TOP-SECRET",
    );
    put(Path::new(&world.path("host/usr/bin/cargo")), "program");
    world.set("PATH", "/usr/bin");
    let mut spec = world.spec();
    let planned = world.plan(&spec);
    assert!(mount(&planned, &world.home(".cargo/registry")).is_some());
    assert!(!shows(
        &planned,
        Path::new(&world.home(".cargo/credentials.toml"))
    ));
    spec.network = Network::Host;
    assert_eq!(variable(&world.plan(&spec), "CARGO_NET_OFFLINE"), None);
}

#[test]
fn tools_behind_links_are_granted_without_their_secrets() {
    let mut world = World::new();
    let home = world.host.home.clone();
    let elsewhere = Path::new(&world.path("elsewhere")).to_owned();
    put(&elsewhere.join("nvm/versions/node/v1/bin/node"), "program");
    put(
        &elsewhere.join("nvm/versions/node/v1/etc/npmrc"),
        "TOP-SECRET",
    );
    put(&elsewhere.join("ssh/id_rsa"), "TOP-SECRET");
    symlink(elsewhere.join("nvm"), home.join(".nvm")).unwrap();
    symlink(elsewhere.join("ssh"), home.join(".ssh")).unwrap();
    let path = format!(
        "{}:{}",
        world.home(".nvm/versions/node/v1/bin"),
        world.home(".ssh")
    );
    world.set("PATH", &path);
    let planned = world.plan(&world.spec());
    assert!(shows(
        &planned,
        &elsewhere.join("nvm/versions/node/v1/bin/node")
    ));
    for secret in ["nvm/versions/node/v1/etc/npmrc", "ssh/id_rsa"] {
        assert!(!shows(&planned, &elsewhere.join(secret)), "{secret}");
    }
}

#[test]
fn cargos_settings_lose_their_tokens() {
    let mut world = World::new();
    full_home(&mut world);
    let text = "[source.crates-io]\nreplace-with = \"m\"\n[registries.m]\nindex = \"sparse+https://m.test/\"\ntoken = \"abc\"\n";
    put(Path::new(&world.home(".cargo/config.toml")), text);
    let planned = world.plan(&world.spec());
    let path = world.home(".cargo/config.toml");
    assert!(mount(&planned, &path).is_none());
    let passed = generated(&planned, &path).unwrap();
    assert!(
        passed.contains("replace-with") && !passed.contains("abc"),
        "{passed}"
    );
}

#[test]
fn links_in_path_lead_to_their_tools() {
    let mut world = World::new();
    let home = world.host.home.clone();
    put(
        &home.join(".local/share/uv/python/cpython/bin/python3"),
        "program",
    );
    put(
        &home.join(".local/share/uv/credentials/token"),
        "TOP-SECRET",
    );
    put(&home.join("scripts/real.sh"), "program");
    put(&home.join("jdk/bin/java"), "program");
    put(&home.join("jdk/lib/modules"), "library");
    fs::create_dir_all(home.join(".local/bin")).unwrap();
    symlink(
        "../share/uv/python/cpython/bin/python3",
        home.join(".local/bin/python3"),
    )
    .unwrap();
    symlink("../../scripts/real.sh", home.join(".local/bin/script")).unwrap();
    symlink("../../.ssh/id_rsa", home.join(".local/bin/trap")).unwrap();
    put(&home.join(".ssh/id_rsa"), "TOP-SECRET");
    let path = format!(
        "{}:{}:/usr/bin",
        world.home(".local/bin"),
        world.home("jdk/bin")
    );
    world.set("PATH", &path);
    let planned = world.plan(&world.spec());
    assert!(mount(&planned, &world.home(".local/share/uv/python")).is_some());
    assert!(mount(&planned, &world.home("scripts/real.sh")).is_some());
    assert!(mount(&planned, &world.home("jdk")).is_some());
    for secret in [".local/share/uv/credentials/token", ".ssh/id_rsa"] {
        assert!(!shows(&planned, &home.join(secret)), "{secret}");
    }
    // The same from an environment in the workspace.
    world.set("PATH", "/usr/bin");
    fs::create_dir_all(home.join("src/project/.venv/bin")).unwrap();
    symlink(
        home.join(".local/share/uv/python/cpython/bin/python3"),
        home.join("src/project/.venv/bin/python"),
    )
    .unwrap();
    assert!(
        mount(
            &world.plan(&world.spec()),
            &world.home(".local/share/uv/python")
        )
        .is_some()
    );
}

#[test]
fn a_workspace_is_where_it_is_on_the_host() {
    let world = World::new();
    let planned = world.plan(&world.spec());
    let path = world.home("src/project");
    let workspace = mount(&planned, &path).unwrap();
    assert_eq!(
        (workspace.source.as_str(), workspace.access),
        (path.as_str(), PathAccess::CopyOnWrite)
    );
    assert_eq!(
        (planned.workdir.as_str(), variable(&planned, "PWD")),
        (path.as_str(), Some(path.as_str()))
    );
    assert!(is_owned(&planned, &world.home("src")));
    let mut spec = world.spec();
    spec.workspace.as_mut().unwrap().write = true;
    assert_eq!(
        mount(&world.plan(&spec), &path).unwrap().access,
        PathAccess::Write
    );
}

#[test]
fn a_workspace_keeps_the_name_that_the_caller_knows() {
    // Links cannot be made in the directories that the sandbox makes, such as /tmp.
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    fs::create_dir_all(&target).unwrap();
    for base in [tempfile::tempdir_in(target), tempfile::tempdir_in("/tmp")] {
        let world = World::at(base.unwrap());
        let is_made = world.path("").starts_with("/tmp/");
        symlink(world.home("src"), world.path("shortcut")).unwrap();
        let mut spec = world.spec();
        let named = world.path("shortcut/project");
        spec.workspace.as_mut().unwrap().path.clone_from(&named);
        let planned = world.plan(&spec);
        assert_eq!(planned.workdir, named);
        let link = Node::Symlink {
            path: world.path("shortcut"),
            target: world.home("src"),
        };
        assert_eq!(planned.root.nodes.contains(&link), !is_made);
        let dest = if is_made {
            named
        } else {
            world.home("src/project")
        };
        assert_eq!(
            mount(&planned, &dest).unwrap().source,
            world.home("src/project")
        );
    }
}

#[test]
fn workspaces_that_cannot_be_are_refused_with_a_reason() {
    let mut world = World::new();
    put(Path::new(&world.home("file")), "x");
    let try_one = |world: &World, path: &str| {
        let mut spec = world.spec();
        spec.workspace.as_mut().unwrap().path = path.to_owned();
        world.try_plan(&spec)
    };
    let missing = try_one(&world, &world.home("missing")).unwrap_err();
    assert!(
        matches!(
            missing,
            PlanError::Source {
                what: "workspace",
                ..
            }
        ),
        "{missing}"
    );
    assert_eq!(missing.code(), ReasonCode::BadSpec);
    let reason = missing.reason();
    assert!(
        reason.message.contains("missing") && reason.message.contains("No such file"),
        "{reason}"
    );
    let file = try_one(&world, &world.home("file")).unwrap_err();
    assert!(matches!(file, PlanError::WrongKind { .. }), "{file}");
    // A sandbox, where these tests may run too, has no /sys.
    let system = ["/", "/proc", "/proc/self", "/sys", "/dev", "/tmp"];
    for path in system.into_iter().filter(|path| Path::new(path).exists()) {
        let error = try_one(&world, path).unwrap_err();
        assert!(
            matches!(error, PlanError::Workspace { .. }),
            "{path}: {error}"
        );
    }
    let relative = try_one(&world, "src").unwrap_err();
    assert!(
        matches!(relative, PlanError::NotAbsolute { .. }),
        "{relative}"
    );
    let state = try_one(&world, &world.path("state/trees")).unwrap_err();
    assert!(matches!(state, PlanError::InState { .. }), "{state}");
    let holds = try_one(&world, world.path("").trim_end_matches('/')).unwrap_err();
    assert!(matches!(holds, PlanError::HoldsState { .. }), "{holds}");
    assert!(holds.hint().contains("TIDEMILL_STATE"));
    world.host.allow_state_in_workspace = true;
    let planned = try_one(&world, world.path("").trim_end_matches('/')).unwrap();
    assert!(!shows(&planned, Path::new(&world.path("state/trees"))));
}

#[test]
fn only_a_project_is_taken_as_the_workspace_unasked() {
    let mut world = World::new();
    let taken = implicit_workspace(&world.host).unwrap();
    assert_eq!(
        taken,
        Workspace {
            path: world.home("src/project"),
            write: false
        }
    );
    fs::create_dir_all(world.home(".ssh/keys")).unwrap();
    let home = world.host.home.clone();
    for cwd in [
        home.clone(),
        home.parent().unwrap().to_owned(),
        home.join(".ssh/keys"),
        "/".into(),
        "/etc".into(),
        "/usr".into(),
        "/tmp".into(),
        "/proc/self".into(),
    ] {
        world.host.cwd = Some(cwd.clone());
        let error = implicit_workspace(&world.host).unwrap_err();
        assert!(
            matches!(error, ImplicitWorkspaceError::TooWide { .. }),
            "{}: {error}",
            cwd.display()
        );
        assert!(error.hint().contains("--no-workspace"));
    }
    world.host.cwd = Some(home.join("gone"));
    assert_eq!(
        implicit_workspace(&world.host).unwrap_err(),
        ImplicitWorkspaceError::Gone
    );
    let odd = home.join(OsString::from_vec(b"od\xffd".to_vec()));
    fs::create_dir(&odd).unwrap();
    world.host.cwd = Some(odd);
    let error = implicit_workspace(&world.host).unwrap_err();
    assert!(
        matches!(error, ImplicitWorkspaceError::NotUtf8 { .. }),
        "{error}"
    );
}

#[test]
fn a_working_directory_below_a_workspace_that_is_named_with_dots_is_found() {
    let world = World::new();
    put(Path::new(&world.home("src/project/sub/file")), "x");
    let mut spec = world.spec();
    let named = world.home("src/project/sub/..");
    spec.workspace.as_mut().unwrap().path.clone_from(&named);
    spec.workdir = Some(format!("{named}/sub"));
    assert_eq!(world.plan(&spec).workdir, world.home("src/project/sub"));
    spec.workdir = Some(format!("{named}/../project"));
    assert!(world.try_plan(&spec).is_err());
}

#[test]
fn working_directories_are_checked_early() {
    let world = World::new();
    put(Path::new(&world.home("src/project/sub/file")), "x");
    symlink("/etc", world.home("src/project/out")).unwrap();
    let mut spec = world.spec();
    let mut try_one = |path: &str| {
        spec.workdir = Some(path.to_owned());
        world.try_plan(&spec).map(|planned| planned.workdir)
    };
    let project = world.home("src/project");
    assert_eq!(
        try_one(&format!("{project}//sub/.")).unwrap(),
        format!("{project}/sub")
    );
    let error = try_one(&format!("{project}/out")).unwrap_err();
    assert_eq!(error.code(), ReasonCode::BadWorkdir);
    assert_eq!(
        error.hint(),
        "if that directory is meant, name it itself: --workdir /etc"
    );
    for good in ["/", "/tmp", "/usr/bin", "/bin", "/var/log"] {
        assert!(try_one(good).is_ok(), "{good}");
    }
    for (bad, why) in [
        ("sub", "not absolute"),
        (&format!("{project}/sub/file"), "not a directory"),
        (&format!("{project}/sub/file/deeper"), "not a directory"),
        (&format!("{project}/../project"), "`..`"),
        ("/missing", "does not exist"),
        ("/proc/self/fd/7", "does not exist"),
        ("/tmp\0", "NUL"),
    ] {
        let error = try_one(bad).unwrap_err();
        assert!(error.to_string().contains(why), "{bad}: {error}");
        assert_eq!(error.code(), ReasonCode::BadWorkdir);
    }
}

#[test]
fn a_working_directory_in_the_workspace_stays_in_it() {
    // Where the links to the workspace can be made inside too, which is not below /tmp.
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    fs::create_dir_all(&target).unwrap();
    let target = target.canonicalize().unwrap();
    let home = std::env::home_dir().unwrap();
    let place = if target.starts_with("/tmp") {
        home
    } else {
        target
    };
    let world = World::at(tempfile::tempdir_in(place).unwrap());
    let project = world.home("src/project");
    put(Path::new(&world.home("src/project/sub/deep/file")), "x");
    put(Path::new(&world.home("src/beside/file")), "x");
    for (link, target) in [
        ("near", "sub/deep".to_owned()),
        ("round", "../project/sub".to_owned()),
        ("full", format!("{project}/sub")),
        ("top", project.clone()),
        ("out", "/etc".to_owned()),
        ("up", "../../../../../../../../../../etc".to_owned()),
        ("root", "/".to_owned()),
        ("twice", "sub/on".to_owned()),
        ("sub/on", "../out".to_owned()),
        ("beside", "../beside".to_owned()),
        ("dangling", "nothing".to_owned()),
        ("to-file", "sub/deep/file".to_owned()),
        ("out-file", "/etc/passwd".to_owned()),
    ] {
        symlink(target, format!("{project}/{link}")).unwrap();
    }
    symlink(&project, world.home("short")).unwrap();
    let try_one = |workspace: &str, workdir: &str| {
        let mut spec = world.spec();
        spec.workspace.as_mut().unwrap().path = workspace.to_owned();
        spec.workdir = Some(workdir.to_owned());
        world.try_plan(&spec).map(|planned| planned.workdir)
    };
    let dots = format!("{project}/sub/..");
    for workspace in [&project, &world.home("short"), &dots] {
        for good in ["near", "round", "full", "top", "sub", "near/../near"] {
            let result = try_one(workspace, &format!("{workspace}/{good}"));
            let has_dots = good.contains("..");
            assert_eq!(result.is_ok(), !has_dots, "{good}: {result:?}");
        }
        for (bad, leads_to) in [
            ("out", "/etc"),
            ("up", "/etc"),
            ("root", "/"),
            ("twice", "/etc"),
            ("root/usr", "/usr"),
        ] {
            let error = try_one(workspace, &format!("{workspace}/{bad}")).unwrap_err();
            assert!(
                matches!(&error, PlanError::WorkdirOutside { leads_to: to, .. } if to == leads_to),
                "{bad}: {error}"
            );
        }
        for (bad, why) in [
            (
                "beside",
                "/src/beside`, which does not exist in the sandbox",
            ),
            ("dangling", "/nothing`, which does not exist in the sandbox"),
            ("to-file", "/file`, which is not a directory"),
            ("out-file", "`/etc/passwd`, which is not a directory"),
            (
                "missing",
                "cannot be used: it does not exist in the sandbox",
            ),
        ] {
            let error = try_one(workspace, &format!("{workspace}/{bad}")).unwrap_err();
            assert!(error.to_string().contains(why), "{bad}: {error}");
        }
    }
    // By its real name too, and a link outside of the workspace is the sandbox's own.
    let error = try_one(&world.home("short"), &format!("{project}/out")).unwrap_err();
    assert!(matches!(error, PlanError::WorkdirOutside { .. }), "{error}");
    assert_eq!(try_one(&project, "/bin").unwrap(), "/bin");
}

#[test]
fn a_workspace_behind_a_link_is_told_and_never_taken_to_what_is_no_project() {
    let world = World::new();
    let project = world.home("src/project");
    fs::create_dir_all(world.home(".ssh")).unwrap();
    put(Path::new(&world.home("src/other/file")), "x");
    for (link, target) in [
        ("other", world.home("src/other")),
        ("keys", world.home(".ssh")),
        ("home", world.home("")),
        ("etc", "/etc".to_owned()),
    ] {
        symlink(target, format!("{project}/{link}")).unwrap();
    }
    let named = |link: &str| Workspace {
        path: format!("{project}/{link}"),
        write: false,
    };
    let try_one = |link: &str| {
        let mut spec = world.spec();
        spec.workspace = Some(named(link));
        world.try_plan(&spec)
    };
    let planned = try_one("other").unwrap();
    let mounted = planned
        .root
        .mounts
        .iter()
        .find(|mount| mount.source == world.home("src/other"));
    assert_eq!(
        mounted.unwrap().why,
        format!("the workspace, which `{project}/other` leads to; changes stay in the sandbox")
    );
    let real = world.home("src/other");
    let told = |workspace| {
        let mut spec = world.spec();
        spec.workspace = Some(workspace);
        link_warnings(&spec, &world.host, true)
    };
    assert_eq!(
        told(named("other")),
        [format!(
            "the workspace `{project}/other` is `{real}`: `{project}/other` is a symbolic link"
        )]
    );
    for (link, leads_to) in [
        ("keys", world.home(".ssh")),
        ("home", world.home("").trim_end_matches('/').to_owned()),
        (
            "etc",
            fs::canonicalize("/etc")
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned(),
        ),
    ] {
        let error = try_one(link).unwrap_err();
        assert!(
            matches!(error, PlanError::WorkspaceLink { .. }),
            "{link}: {error}"
        );
        assert!(
            error.hint().ends_with(&format!("--workspace {leads_to}")),
            "{link}: {error}"
        );
    }
    // By its own name it is what was asked for.
    let mut spec = world.spec();
    spec.workspace = Some(Workspace {
        path: world.home(".ssh"),
        write: false,
    });
    assert!(world.try_plan(&spec).is_ok());
    let plain = Workspace {
        path: project.clone(),
        write: false,
    };
    assert_eq!(told(plain), [""; 0]);
}

#[test]
fn nothing_is_written_for_real_behind_a_link() {
    let mut world = World::new();
    let project = world.home("src/project");
    let other = world.home("src/other");
    put(Path::new(&other).join("deep/file").as_path(), "x");
    symlink(&other, format!("{project}/sub")).unwrap();
    let spec = |path: String, write| {
        let mut spec = world.spec();
        spec.workspace = Some(Workspace { path, write });
        spec
    };
    for inside in [
        "sub",
        "sub/deep",
        "./sub/../other",
        "sub/deep/../../project/sub",
    ] {
        let spec = spec(format!("{project}/{inside}"), true);
        let error = world.try_plan(&spec).unwrap_err();
        let PlanError::WrittenLink { link, leads_to, .. } = &error else {
            panic!("{inside}: {error}");
        };
        assert_eq!(*link, format!("{project}/sub"));
        assert_eq!(error.code(), ReasonCode::BadSpec);
        assert!(error.hint().ends_with(&format!("--workspace {leads_to}")));
        assert_eq!(link_warnings(&spec, &world.host, true), [""; 0]);
    }
    // Whoever stands behind it has gone there, and is told.
    let here = spec(format!("{project}/sub"), true);
    world.host.cwd = Some(format!("{project}/sub").into());
    world.host.stands_in = Some(other.clone().into());
    let planned = world.plan(&here);
    let mounted = planned
        .root
        .mounts
        .iter()
        .find(|mount| mount.source == other);
    assert_eq!(mounted.unwrap().access, PathAccess::Write);
    let told =
        format!("the workspace `{project}/sub` is `{other}`: `{project}/sub` is a symbolic link");
    for is_named in [true, false] {
        assert_eq!(link_warnings(&here, &world.host, is_named), [told.as_str()]);
    }
    // What the link says later changes nothing.
    fs::remove_file(format!("{project}/sub")).unwrap();
    symlink(world.home("src"), format!("{project}/sub")).unwrap();
    let planned = world.plan(&here);
    assert!(
        planned
            .root
            .mounts
            .iter()
            .any(|mount| mount.source == other)
    );
    assert!(
        !planned
            .root
            .mounts
            .iter()
            .any(|mount| mount.source == world.home("src"))
    );
}

#[test]
fn a_layer_behind_a_link_of_the_project_is_told() {
    let world = World::new();
    let project = world.home("src/project");
    put(Path::new(&world.home("src/other/file")), "x");
    symlink(world.home("src/other"), format!("{project}/sub")).unwrap();
    symlink(world.home("src/other"), world.home("beside")).unwrap();
    let dest = || "/x".to_owned();
    let layer = |source: String| Layer::Dir {
        source,
        dest: dest(),
        attributes: Attributes::default(),
    };
    let mut spec = world.spec();
    spec.layers = vec![
        layer(format!("{project}/sub")),
        layer(format!("{project}/sub")),
        layer(world.home("beside")),
        layer(world.home("src/other")),
        Layer::File {
            source: format!("{project}/sub/file"),
            dest: dest(),
            attributes: Attributes::default(),
        },
        Layer::Glob {
            base: format!("{project}/sub"),
            include: vec!["*".into()],
            exclude: Vec::new(),
            strip: None,
            dest: dest(),
            attributes: Attributes::default(),
        },
    ];
    let other = world.home("src/other");
    let told = |path: &str, real: &str| {
        format!("the layer `{project}/{path}` is `{real}`: `{project}/sub` is a symbolic link")
    };
    let expected = [
        told("sub", &other),
        told("sub/file", &format!("{other}/file")),
    ];
    assert_eq!(link_warnings(&spec, &world.host, false), expected);
    // No link below a pattern's directory is followed, not even one that the pattern names.
    spec.layers = vec![Layer::Glob {
        base: project,
        include: vec!["sub/deep/*".into()],
        exclude: Vec::new(),
        strip: None,
        dest: dest(),
        attributes: Attributes::default(),
    }];
    put(Path::new(&world.home("src/other/deep/file")), "x");
    let error = world.try_plan(&spec).unwrap_err();
    assert!(matches!(error, PlanError::NoMatch { .. }), "{error}");
}

#[test]
fn the_specs_environment_wins() {
    let mut world = World::new();
    world.set("LANG", "de_DE.UTF-8");
    world.set("SECRET", "value");
    let mut spec = world.spec();
    spec.pass_env = vec!["LANG".into(), "SECRET".into(), "UNSET".into()];
    spec.env = [("SECRET", "mine"), ("HOME", "/elsewhere")]
        .map(|(n, v)| (n.into(), v.into()))
        .into();
    spec.limits.cpus = Some("1.5".parse().unwrap());
    spec.tty = true;
    let planned = world.plan(&spec);
    for (name, value) in [
        ("LANG", "de_DE.UTF-8"),
        ("SECRET", "mine"),
        ("HOME", "/elsewhere"),
        ("CARGO_BUILD_JOBS", "2"),
        ("TERM", "xterm-256color"),
    ] {
        assert_eq!(variable(&planned, name), Some(value), "{name}");
    }
    let names: Vec<_> = planned
        .grants
        .iter()
        .filter_map(|grant| match grant {
            Grant::Environment { name } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["LANG", "SECRET"]);
    world
        .host
        .env
        .insert("SECRET".into(), OsString::from_vec(vec![0xff]));
    let error = world.try_plan(&spec).unwrap_err();
    assert!(
        matches!(&error, PlanError::Variable { name, .. } if name == "SECRET"),
        "{error}"
    );
    world.set("SECRET", &"x".repeat(200_000));
    let error = world.try_plan(&spec).unwrap_err();
    assert!(error.to_string().contains("131,071"), "{error}");
}

#[test]
fn an_image_keeps_its_own_users() {
    let world = World::new();
    let image = world.path("image");
    for dir in ["bin", "var/app"] {
        fs::create_dir_all(format!("{image}/{dir}")).unwrap();
    }
    let passwd = "root:x:0:0:root:/root:/bin/sh\napp:x:500:500:The app:/var/app:/bin/ash";
    put(Path::new(&format!("{image}/etc/passwd")), passwd);
    let mut spec = JobSpec::new("true", []);
    spec.image = Image::Dir {
        path: image.clone(),
    };
    spec.user = Some(User { uid: 500, gid: 500 });
    let planned = world.plan(&spec);
    let account = &planned.root.account;
    assert_eq!(
        (account.name.as_str(), account.home.as_str()),
        ("app", "/var/app")
    );
    assert!(planned.root.root_writable);
    assert_eq!(planned.root.trees[0].path, image);
    assert_eq!(variable(&planned, "PATH"), Some(crate::PATH_DEFAULT));
    assert!(planned.root.mounts.is_empty());
    // The group is missing there, so both files are written; the image's lines stay as they are.
    assert!(
        generated(&planned, "/etc/passwd")
            .unwrap()
            .starts_with(passwd)
    );
    assert_eq!(generated(&planned, "/etc/group"), Some("app:x:500:\n"));
    spec.user = Some(User {
        uid: 4242,
        gid: 4242,
    });
    let planned = world.plan(&spec);
    let written = generated(&planned, "/etc/passwd").unwrap();
    assert_eq!(
        written,
        format!("{passwd}\njob:x:4242:4242::/home/job:/bin/sh\n")
    );
    assert!(is_owned(&planned, "/home/job"));
}

#[test]
fn a_hostile_image_cannot_make_us_read_the_host() {
    let world = World::new();
    put(
        Path::new(&world.path("outside/passwd")),
        "leak:x:4242:4242::/leak:/bin/sh\n",
    );
    for target in [
        world.path("outside/passwd"),
        "../../outside/passwd".to_owned(),
    ] {
        let image = world.path("image");
        fs::create_dir_all(format!("{image}/etc")).unwrap();
        symlink(&target, format!("{image}/etc/passwd")).unwrap();
        let mut spec = JobSpec::new("true", []);
        spec.image = Image::Dir {
            path: image.clone(),
        };
        spec.user = Some(User {
            uid: 4242,
            gid: 4242,
        });
        assert_eq!(world.plan(&spec).root.account.name, "job");
        fs::remove_dir_all(&image).unwrap();
    }
}

#[test]
fn images_that_cannot_be_are_refused_with_a_reason() {
    let world = World::new();
    put(Path::new(&world.home("file")), "x");
    let try_one = |image: Image| {
        let mut spec = JobSpec::new("true", []);
        spec.image = image;
        let keys = layer_keys(&spec, &world.host, &world.trees)?;
        for key in keys {
            build_layer(&key, &world.trees).map_err(|source| PlanError::Archive {
                path: key.to_string(),
                source,
            })?;
        }
        world.try_plan(&spec)
    };
    let dir = |path: String| Image::Dir { path };
    assert!(matches!(
        try_one(dir("/".into())),
        Err(PlanError::ImageIsHost)
    ));
    assert!(matches!(
        try_one(dir(world.home("missing"))),
        Err(PlanError::Source { .. })
    ));
    assert!(matches!(
        try_one(dir(world.home("file"))),
        Err(PlanError::WrongKind { .. })
    ));
    assert!(matches!(
        try_one(dir(world.path("state/.."))),
        Err(PlanError::HoldsState { .. })
    ));
    let error = try_one(Image::Tar {
        path: world.home("file"),
    })
    .unwrap_err();
    assert!(matches!(error, PlanError::Archive { .. }), "{error}");
    assert!(
        error.reason().message.contains("tar archive"),
        "{}",
        error.reason()
    );
}

/// Puts one odd thing into an image.
fn odd(image: &str, path: &str, what: &str) {
    let path = format!("{image}{path}");
    fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
    match what {
        "file" => fs::write(&path, "x").unwrap(),
        "dir" => fs::create_dir(&path).unwrap(),
        target => symlink(target.strip_prefix("to ").unwrap(), &path).unwrap(),
    }
}

#[test]
fn an_image_with_something_in_the_sandboxs_places_is_told_with_its_path() {
    let world = World::new();
    let plan_with = |path: &str, what: &str| {
        let image = world.path("image");
        odd(&image, path, what);
        let mut spec = JobSpec::new("true", []);
        spec.image = Image::Dir {
            path: image.clone(),
        };
        spec.user = Some(User {
            uid: 4242,
            gid: 4242,
        });
        let planned = world.try_plan(&spec);
        fs::remove_dir_all(&image).unwrap();
        (image, planned)
    };
    let is_file = "is a file, and the sandbox needs a directory there";
    let is_dir = "is a directory, and the sandbox needs a file there";
    let is_round = "leads round in a circle";
    let is_link = "is a symbolic link, and the sandbox needs a directory there";
    for (path, what, at, why) in [
        ("/tmp", "file", "/tmp", is_file),
        ("/var", "file", "/var", is_file),
        ("/var/tmp", "file", "/var/tmp", is_file),
        ("/proc", "file", "/proc", is_file),
        ("/dev", "file", "/dev", is_file),
        ("/etc", "file", "/etc", is_file),
        ("/home", "file", "/home", is_file),
        ("/tmp", "to tmp", "/tmp", is_round),
        ("/dev", "to /dev", "/dev", is_round),
        ("/etc", "to ../../../etc", "/etc", is_round),
        ("/home", "to home", "/home", is_round),
        ("/etc/passwd", "to passwd", "/etc/passwd", is_round),
        ("/etc/group", "to ../../etc/group", "/etc/group", is_round),
        ("/proc", "to .", "/proc", is_link),
        (
            "/tmp",
            "to /nowhere",
            "/tmp",
            "is a symbolic link to `/nowhere`, which is not there",
        ),
        ("/etc/passwd", "dir", "/etc/passwd", is_dir),
        ("/etc/group", "dir", "/etc/group", is_dir),
        ("/etc/hosts", "dir", "/etc/hosts", is_dir),
    ] {
        let (image, planned) = plan_with(path, what);
        let error = planned.unwrap_err();
        assert_eq!(error.code(), ReasonCode::Layer, "{path} {what}: {error}");
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("`{at}` in `{image}` ")) && message.ends_with(why),
            "{path} {what}: {message}"
        );
        assert!(error.hint().contains(at), "{}", error.hint());
    }
    for (path, what) in [
        ("/etc/hosts", "to hosts"),
        ("/etc/passwd", "to /nowhere"),
        ("/etc/passwd", "to ../../../etc/shadow"),
        ("/var/tmp", "to ../bin"),
        ("/tmp", "dir"),
    ] {
        fs::create_dir_all(world.path("image/bin")).unwrap();
        let (_, planned) = plan_with(path, what);
        assert!(planned.is_ok(), "{path} {what}: {planned:?}");
    }
}

#[test]
fn a_file_of_a_glob_that_may_not_be_read_is_named_with_its_owner() {
    let world = World::new();
    for number in 0..100 {
        put(
            &Path::new(&world.path("files")).join(format!("{number}.txt")),
            "x",
        );
    }
    let locked = world.path("files/7.txt");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    let mut spec = world.spec();
    spec.layers = vec![Layer::Glob {
        base: world.path("files"),
        include: vec!["*.txt".into()],
        exclude: Vec::new(),
        strip: None,
        dest: "/texts".into(),
        attributes: Attributes::default(),
    }];
    let keys = layer_keys(&spec, &world.host, &world.trees).unwrap();
    let built = build_layer(&keys[0], &world.trees);
    if rustix::process::geteuid().is_root() {
        // Root reads everything; the black-box suite tries it as somebody else.
        assert!(built.is_ok(), "{built:?}");
        return;
    }
    let error = built.unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains(&locked) && message.contains("mode 000"),
        "{message}"
    );
    assert!(error.hint().contains("readable"), "{}", error.hint());
}

#[test]
fn layers_are_built_once_and_planned_in_order() {
    let world = World::new();
    let tree = world.path("content");
    put(Path::new(&format!("{tree}/app/run")), "from the archive");
    put(Path::new(&format!("{tree}/app/conf")), "from the archive");
    let archive = world.path("layer.tar.gz");
    let status = std::process::Command::new("tar")
        .args(["-czf", &archive, "-C", &tree, "."])
        .status();
    assert!(status.unwrap().success());
    put(Path::new(&world.path("files/a.txt")), "a");
    put(Path::new(&world.path("files/sub/b.txt")), "b");
    put(Path::new(&world.path("files/sub/c.md")), "c");
    put(Path::new(&world.path("conf")), "from the file");
    let mut spec = JobSpec::new("/app/run", []);
    spec.image = Image::None;
    spec.layers = vec![
        Layer::Tar {
            source: archive.clone(),
            dest: "/".into(),
            strip: None,
            attributes: Attributes::default(),
        },
        Layer::Tar {
            source: archive,
            dest: "/copy".into(),
            strip: None,
            attributes: Attributes::default(),
        },
        Layer::Glob {
            base: world.path("files"),
            include: vec!["**/*.txt".into()],
            exclude: Vec::new(),
            strip: None,
            dest: "/texts".into(),
            attributes: Attributes::default(),
        },
        Layer::File {
            source: world.path("conf"),
            dest: "/app/conf".into(),
            attributes: Attributes::default(),
        },
    ];
    assert!(matches!(
        world.try_plan(&spec),
        Err(PlanError::NotBuilt { .. })
    ));
    let keys = layer_keys(&spec, &world.host, &world.trees).unwrap();
    assert_eq!(keys.len(), 1, "one archive, one tree");
    assert!(!keys[0].is_built(&world.trees));
    let root = build_layer(&keys[0], &world.trees).unwrap();
    assert_eq!(build_layer(&keys[0], &world.trees).unwrap(), root);
    let planned = world.plan(&spec);
    let dests: Vec<&str> = planned
        .root
        .mounts
        .iter()
        .map(|mount| mount.dest.as_str())
        .collect();
    assert_eq!(
        dests,
        ["/copy", "/texts/a.txt", "/texts/sub/b.txt", "/app/conf"]
    );
    assert_eq!(planned.root.trees.len(), 1);
    let archive_grants = planned.grants.iter().filter(
        |grant| matches!(grant, Grant::Path { host, .. } if host.ends_with("layer.tar.gz")),
    );
    assert_eq!(archive_grants.count(), 2);
}

#[test]
fn many_matches_become_a_tree_that_follows_the_files() {
    let world = World::new();
    for number in 0..100 {
        put(
            Path::new(&world.path(&format!("files/{number}.txt"))),
            "old",
        );
    }
    let mut spec = world.spec();
    spec.layers = vec![Layer::Glob {
        base: world.path("files"),
        include: vec!["*.txt".into()],
        exclude: Vec::new(),
        strip: None,
        dest: "/texts".into(),
        attributes: Attributes::default(),
    }];
    let keys = layer_keys(&spec, &world.host, &world.trees).unwrap();
    let root = build_layer(&keys[0], &world.trees).unwrap();
    assert_eq!(fs::read_dir(&root).unwrap().count(), 100);
    assert_eq!(
        mount(&world.plan(&spec), "/texts").unwrap().source,
        root.to_str().unwrap()
    );
    fs::write(world.path("files/7.txt"), "new").unwrap();
    assert!(matches!(
        world.try_plan(&spec),
        Err(PlanError::NotBuilt { .. })
    ));
    let keys = layer_keys(&spec, &world.host, &world.trees).unwrap();
    let again = build_layer(&keys[0], &world.trees).unwrap();
    assert_ne!(again, root);
    assert_eq!(fs::read_to_string(again.join("7.txt")).unwrap(), "new");
    assert_eq!(fs::read_to_string(root.join("7.txt")).unwrap(), "old");
}

#[test]
fn globs_that_cannot_be_are_refused_with_a_reason() {
    let world = World::new();
    put(Path::new(&world.path("files/a.txt")), "a");
    let try_one = |base: &str, pattern: &str| {
        let mut spec = world.spec();
        spec.layers = vec![Layer::Glob {
            base: world.path(base),
            include: vec![pattern.into()],
            exclude: Vec::new(),
            strip: None,
            dest: "/g".into(),
            attributes: Attributes::default(),
        }];
        layer_keys(&spec, &world.host, &world.trees).map(|keys| keys.len())
    };
    assert!(matches!(
        try_one("files", "*.md"),
        Err(PlanError::NoMatch { .. })
    ));
    assert!(matches!(
        try_one("files", "[a"),
        Err(PlanError::Pattern { .. })
    ));
    assert!(matches!(
        try_one("missing", "*"),
        Err(PlanError::Source { .. })
    ));
    assert_eq!(try_one("files", "a.txt").unwrap(), 0);
    assert_eq!(try_one("files", "./a.txt").unwrap(), 0);
}

/// The real host of whoever runs the tests.
#[test]
fn this_host_can_be_planned() {
    let trees = tempfile::tempdir().unwrap();
    let project = tempfile::tempdir().unwrap();
    let host = HostView::current(std::env::vars_os())
        .unwrap()
        .with_state_dir(trees.path());
    let mut spec = JobSpec::new("true", []);
    let path = project.path().to_str().unwrap().to_owned();
    spec.workspace = Some(Workspace { path, write: false });
    let planned = plan(
        &spec,
        &host,
        &TreeStore::open(trees.path().join("trees")).unwrap(),
    )
    .unwrap();
    assert!(mount(&planned, "/usr").is_some() && mount(&planned, "/etc").is_some());
    assert_ne!(planned.root.account.user.uid, 0);
    for secret in ["/etc/shadow", "/etc/gshadow", "/etc/sudoers"] {
        assert!(
            !Path::new(secret).exists() || !shows(&planned, Path::new(secret)),
            "{secret}"
        );
    }
    for mount in &planned.root.mounts {
        let real = fs::canonicalize(&mount.source).unwrap();
        assert_eq!(
            real.to_str(),
            Some(mount.source.as_str()),
            "a source has no links"
        );
    }
}
