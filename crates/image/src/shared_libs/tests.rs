use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;
use crate::elf::testing::ElfText;
use crate::tree_store::TreeStore;

const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
/// Of AArch64.
const OTHER_MACHINE: u16 = 183;

/// A host whose `/lib` and `/lib64` are links, with a loader and a C library.
struct Host {
    _base: TempDir,
    root: PathBuf,
    trees: TreeStore,
}

impl Host {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(base.path()).unwrap().join("root");
        fs::create_dir_all(root.join("usr/lib64")).unwrap();
        for lib in ["lib", "lib64"] {
            symlink(format!("usr/{lib}"), root.join(lib)).unwrap();
        }
        let host = Self {
            trees: TreeStore::open(base.path().join("trees")).unwrap(),
            _base: base,
            root,
        };
        host.library("usr/lib/x86_64-linux-gnu/ld-2.36.so", &[]);
        host.library("usr/lib/x86_64-linux-gnu/libc.so.6", &[]);
        let loader = host.root.join("usr/lib64/ld-linux-x86-64.so.2");
        symlink("../lib/x86_64-linux-gnu/ld-2.36.so", loader).unwrap();
        host
    }

    fn library(&self, path: &str, needed: &[&str]) {
        let text = ElfText {
            needed,
            ..ElfText::default()
        };
        text.write(&self.root.join(path));
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A program with these libraries; the text may have more.
    fn program(&self, path: &str, text: ElfText<'_>) -> String {
        let text = ElfText {
            interpreter: Some(text.interpreter.unwrap_or(LOADER)),
            ..text
        };
        let path = self.root.join(path);
        text.write(&path);
        path.to_str().unwrap().to_owned()
    }

    fn try_find(&self, program: &str) -> Result<Libraries, PlanError> {
        find(&[program.to_owned()], &self.root)
    }

    /// What a program is loaded with, as lines `OPENED` or `OPENED = ENTRY`, without the loader.
    fn found(&self, program: &str) -> Vec<String> {
        let libraries = self.try_find(program).unwrap();
        let lines = libraries
            .opened
            .iter()
            .filter(|(path, _)| !path.ends_with("ld-linux-x86-64.so.2"));
        lines
            .map(|(path, entry)| match path == entry {
                true => path.display().to_string(),
                false => format!("{} = {}", path.display(), entry.display()),
            })
            .collect()
    }
}

#[test]
fn libraries_are_searched_for_in_the_loaders_order() {
    let host = Host::new();
    let dirs = ["opt/own", "opt/conf", "usr/lib/x86_64-linux-gnu"];
    for dir in dirs {
        host.library(&format!("{dir}/liba.so"), &[]);
    }
    host.write("etc/ld.so.conf", "include ld.so.conf.d/*.conf # all\n");
    host.write("etc/ld.so.conf.d/x.conf", "/opt/conf\n");
    host.write("etc/ld.so.conf.d/ignored", "/opt/own\n");
    let find_with = |rpath, runpath| {
        let text = ElfText {
            needed: &["liba.so"],
            rpath,
            runpath,
            ..ElfText::default()
        };
        host.found(&host.program("opt/own/bin/program", text))
    };
    let own = ["/opt/own/liba.so"];
    assert_eq!(find_with(Some("/nowhere:/opt/own"), None), own);
    assert_eq!(find_with(None, Some("/opt/own")), own);
    assert_eq!(
        find_with(None, Some("$ORIGIN/../../own")),
        ["/opt/own/bin/../../own/liba.so = /opt/own/liba.so"]
    );
    // A RUNPATH makes the RPATH mean nothing.
    let configured = "/opt/conf/liba.so";
    let beside_loader = "/usr/lib/x86_64-linux-gnu/liba.so = /opt/conf/liba.so";
    assert_eq!(
        find_with(Some("/opt/own"), Some("/nowhere")),
        [configured, beside_loader]
    );
    fs::remove_file(host.root.join("opt/conf/liba.so")).unwrap();
    let standard = "/lib/x86_64-linux-gnu/liba.so = /usr/lib/x86_64-linux-gnu/liba.so";
    assert_eq!(find_with(None, None), [standard]);
}

#[test]
fn what_libraries_need_is_found_too_and_each_once() {
    let host = Host::new();
    host.library("opt/a/liba.so", &["libb.so", "libc.so.6"]);
    host.library("opt/b/libb.so", &["liba.so"]);
    let with = |rpath, runpath| {
        let text = ElfText {
            needed: &["liba.so", "libc.so.6"],
            rpath,
            runpath,
            ..ElfText::default()
        };
        host.program("usr/bin/program", text)
    };
    // An RPATH holds for what is loaded by what it loads; a RUNPATH does not.
    let found = host.found(&with(Some("/opt/a:/opt/b"), None));
    let libc = "/lib/x86_64-linux-gnu/libc.so.6 = /usr/lib/x86_64-linux-gnu/libc.so.6";
    assert_eq!(found, [libc, "/opt/a/liba.so", "/opt/b/libb.so"]);
    let error = host
        .try_find(&with(None, Some("/opt/a:/opt/b")))
        .unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("`libb.so`") && message.contains("liba.so`"),
        "{message}"
    );
}

#[test]
fn a_library_of_another_machine_is_passed_over() {
    let host = Host::new();
    ElfText {
        machine: OTHER_MACHINE,
        ..ElfText::default()
    }
    .write(&host.root.join("opt/liba.so"));
    host.write("opt/text/liba.so", "no library");
    host.library("usr/lib/liba.so", &[]);
    let text = ElfText {
        needed: &["liba.so"],
        runpath: Some("/opt:/opt/text"),
        ..ElfText::default()
    };
    let found = host.found(&host.program("usr/bin/program", text));
    assert_eq!(found, ["/lib/liba.so = /usr/lib/liba.so"]);
}

#[test]
fn links_come_with_what_they_lead_to() {
    let host = Host::new();
    host.library("usr/lib/x86_64-linux-gnu/libz.so.1.2", &[]);
    host.library("srv/blas/libblas.so.3", &[]);
    let libs = host.root.join("usr/lib/x86_64-linux-gnu");
    symlink("libz.so.1.2", libs.join("libz.so.1")).unwrap();
    fs::create_dir_all(host.root.join("etc/alternatives")).unwrap();
    symlink("../../../etc/alternatives/blas", libs.join("libblas.so.3")).unwrap();
    let blas = host.root.join("etc/alternatives/blas");
    symlink("../../srv/blas/libblas.so.3", blas).unwrap();
    let text = ElfText {
        needed: &["libz.so.1", "libblas.so.3"],
        ..ElfText::default()
    };
    let libraries = host
        .try_find(&host.program("usr/bin/program", text))
        .unwrap();
    let entries: Vec<&str> = libraries
        .entries
        .iter()
        .map(|path| path.to_str().unwrap())
        .collect();
    assert_eq!(
        entries,
        [
            "/etc/alternatives/blas",
            "/srv/blas/libblas.so.3",
            "/usr/lib/x86_64-linux-gnu/ld-2.36.so",
            "/usr/lib/x86_64-linux-gnu/libblas.so.3",
            "/usr/lib/x86_64-linux-gnu/libz.so.1",
            "/usr/lib/x86_64-linux-gnu/libz.so.1.2",
            "/usr/lib64/ld-linux-x86-64.so.2",
        ]
    );
}

#[test]
fn musl_loads_itself_and_looks_into_its_own_directories() {
    let host = Host::new();
    let loader = "/lib/ld-musl-x86_64.so.1";
    host.library("usr/lib/ld-musl-x86_64.so.1", &[]);
    host.library("usr/local/lib/liba.so", &[]);
    host.library("opt/musl/libb.so", &[]);
    let program = |needed| {
        let text = ElfText {
            interpreter: Some(loader),
            needed,
            ..ElfText::default()
        };
        host.program("usr/bin/program", text)
    };
    let found = host.found(&program(&["libc.musl-x86_64.so.1", "liba.so"]));
    let own = "/lib/ld-musl-x86_64.so.1 = /usr/lib/ld-musl-x86_64.so.1";
    assert_eq!(found[0], own);
    assert_eq!(
        found[1..]
            .iter()
            .filter(|line| line.contains("libc"))
            .count(),
        0
    );
    assert!(
        found.contains(&"/usr/local/lib/liba.so".to_owned()),
        "{found:?}"
    );
    assert!(host.try_find(&program(&["libb.so"])).is_err());
    host.write("etc/ld-musl-x86_64.path", "/opt/musl\n/usr/local/lib\n");
    assert!(host.try_find(&program(&["libb.so"])).is_ok());
}

#[test]
fn a_static_program_needs_nothing() {
    let host = Host::new();
    let path = host.root.join("usr/bin/static");
    ElfText::default().write(&path);
    let libraries = host.try_find(path.to_str().unwrap()).unwrap();
    assert!(libraries.entries.is_empty() && libraries.opened.is_empty());
}

/// Every path that the loader opens shows a file of the tree, in a root of any shape.
fn assert_opens(host: &Host, libraries: &Libraries, image: Option<&Path>, dest: &str) {
    let copies = libraries.copies(Attributes::default()).unwrap();
    let owners = host.trees.owners();
    let root = host
        .trees
        .get_or_build_with(&copies.tree_name(owners), |building| {
            Ok::<_, crate::layer::LayerError>(copies.build(building, owners)?)
        })
        .unwrap();
    let mut stack = Stack::new(true);
    if let Some(image) = image {
        stack.add_image_tree(&Source {
            path: image.to_str().unwrap().to_owned(),
            owners: Owners::AsIs,
            known_as: "an image".to_owned(),
            why: "a test".to_owned(),
        });
    }
    let tree = root.to_str().unwrap();
    libraries
        .add_to(tree, dest, Owners::AsIs, &host.trees, &mut stack)
        .unwrap();
    for path in libraries.opened.keys() {
        let path = format!("{}{}", dest.trim_end_matches('/'), path.display());
        let found = stack.resolve(&path).unwrap().found;
        let is_ours = matches!(&found, Found::File(file) if file.starts_with(tree));
        assert!(is_ours, "{path}: {found:?}");
    }
}

#[test]
fn what_the_loader_opens_is_there_in_a_root_of_any_shape() {
    let host = Host::new();
    host.library("usr/lib/x86_64-linux-gnu/libz.so.1", &[]);
    host.library("opt/conf/liba.so", &[]);
    host.write("etc/ld.so.conf", "/opt/conf\n");
    let text = ElfText {
        needed: &["libz.so.1", "liba.so", "libc.so.6"],
        ..ElfText::default()
    };
    let libraries = host
        .try_find(&host.program("usr/bin/program", text))
        .unwrap();
    assert_opens(&host, &libraries, None, "/");
    assert_opens(&host, &libraries, None, "/opt/root");
    let image = |name: &str| {
        let image = host.root.join(name);
        fs::create_dir_all(image.join("usr")).unwrap();
        image
    };
    // Directories where the host has links, with a loader of their own.
    let split = image("split");
    for lib in ["lib", "lib64", "usr/lib"] {
        fs::create_dir_all(split.join(lib)).unwrap();
        fs::write(split.join(lib).join("ld-linux-x86-64.so.2"), "another").unwrap();
    }
    assert_opens(&host, &libraries, Some(&split), "/");
    // Links where the host has directories, and links that lead elsewhere.
    let merged = image("merged");
    fs::create_dir_all(merged.join("usr/lib")).unwrap();
    symlink("lib", merged.join("usr/lib64")).unwrap();
    symlink("usr/lib", merged.join("lib")).unwrap();
    symlink("usr/lib", merged.join("lib64")).unwrap();
    assert_opens(&host, &libraries, Some(&merged), "/");
    let empty = image("empty");
    assert_opens(&host, &libraries, Some(&empty), "/");
}
