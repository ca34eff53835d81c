//! Root file systems other than the host's: directories, archives, layers.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rstest::rstest;
use tidemill_tests::{
    Mode, TarEntry, World, busybox_root, busybox_tar, debian, skip, tree, write_tar,
};

/// Shows owners and permissions of the files that the small root has.
const SHOW_OWNED: &str = "cd /data; stat -c '%n %a %u %g' of-root of-app of-other setuid link; cat of-root; readlink link";

/// As the archive has it. Nothing in a sandbox may raise its rights, so the mount ignores setuid.
const OWNED: &str = "of-root 644 0 0\nof-app 640 1000 1000\nof-other 604 4242 4343\n\
                     setuid 4755 0 0\nlink 777 0 0\ndata/of-rootof-root\n";

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_directory_is_a_root(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(root) = world.busybox_root() else {
        return;
    };
    let before = tree(&root);
    let image = format!("dir:{}", root.display());
    let flags = ["--image", &image, "--no-workspace", "--user", "0"];
    let done = world
        .job("echo hello; ls /; touch /made /bin/made; rm /etc/group; ls /made")
        .args(flags);
    let done = done.run();
    assert_eq!(done.code, 0, "{done}");
    assert!(
        done.out().starts_with("hello\n") && done.out().ends_with("/made\n"),
        "{done}"
    );
    assert!(
        !done.out().contains("home\n"),
        "something of the host is there: {done}"
    );
    assert!(tree(&root) == before, "the real root changed");
    if mode == Mode::Root {
        let owned = world.job(SHOW_OWNED).args(flags).run();
        assert_eq!((owned.code, owned.out().as_str()), (0, OWNED), "{owned}");
    }
}

#[rstest]
#[case::rootless(Mode::Rootless)]
fn a_directory_of_somebody_else_is_a_root(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can make files of somebody else");
        return;
    }
    let root = world.path().join("root");
    let owner = Mode::Root.account().unwrap();
    if let Err(why) = busybox_root(&root, &owner) {
        skip(&why);
        return;
    }
    let image = format!("dir:{}", root.display());
    let flags = ["--image", &image, "--no-workspace"];
    let done = world
        .job("cat /data/of-root; echo x > /tmp/x && cat /tmp/x; test -e /var/tmp")
        .args(flags);
    let done = done.run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "data/of-rootx\n"),
        "{done}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_archive_is_a_root_with_all_its_owners(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let plain = world.write("root.tar", "");
    if let Err(why) = busybox_tar(File::create(&plain).unwrap()) {
        skip(&why);
        return;
    }
    let bytes = fs::read(&plain).unwrap();
    let packed = world.write("root.tar.zst", zstd::encode_all(&*bytes, 1).unwrap());
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gz, &bytes).unwrap();
    let gzipped = world.write("root.tgz", gz.finish().unwrap());
    for archive in [&plain, &packed, &gzipped] {
        let image = format!("tar:{}", archive.display());
        // Nobody has the rights of root here, so each reads only what is its own.
        for (user, reads) in [("0", ""), ("1000", "data/of-app"), ("4000", "")] {
            let flags = ["--image", &image, "--no-workspace", "--user", user];
            let text = format!("id -u; {SHOW_OWNED}; cat of-app; echo x >> of-root");
            let done = world.job(&text).args(flags).run();
            let expected = format!("{user}\n{OWNED}{reads}");
            assert_eq!(done.out(), expected, "{done}");
            assert_eq!(done.code == 0, user == "0", "{done}");
        }
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn layers_lie_over_the_image_and_later_ones_over_earlier_ones(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.write("one/a", "one\n");
    world.write("one/b", "one\n");
    world.write("two/b", "two\n");
    world.write("two/c.txt", "two\n");
    world.write("two/d.bin", "two\n");
    let single = world.write("single", "single\n");
    let archive = world.write("layer.tar", "");
    let entries = [
        TarEntry::dir("opt"),
        TarEntry::file("opt/from-tar", "tar\n"),
        TarEntry::file("opt/b", "tar\n"),
    ];
    write_tar(File::create(&archive).unwrap(), &entries);
    let work = world.work();
    let at = |path: &str| work.join(path).display().to_string();
    let layers = [
        format!("dir:{}=/layered", at("one")),
        format!("dir:{}=/layered", at("two")),
        format!("glob:{}=/globbed", at("two/*.txt")),
        format!("file:{}=/layered/single", single.display()),
        format!("tar:{}=/taken", archive.display()),
    ];
    let flags = layers.iter().flat_map(|layer| ["--layer", layer.as_str()]);
    let text = "cd /layered; cat a b c.txt single; ls /globbed; cat /taken/opt/from-tar; \
                echo changed > a && cat a";
    let before = tree(&work);
    let done = world.job(text).args(flags).run();
    let expected = "one\ntwo\ntwo\nsingle\nc.txt\ntar\n";
    assert!(done.out().starts_with(expected), "{done}");
    assert!(tree(&work) == before, "a layer's source changed");
    // What was built once is not built again: the second run says nothing of waiting.
    let archive_only = format!("tar:{}=/taken", archive.display());
    let again = world
        .job("cat /taken/opt/b")
        .args(["--layer", &archive_only])
        .run();
    assert_eq!((again.code, again.out().as_str()), (0, "tar\n"), "{again}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_empty_image_has_only_its_layers(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(root) = world.busybox_root() else {
        return;
    };
    let layer = format!("dir:{}=/bin", root.join("bin").display());
    let flags = ["--image", "none", "--no-workspace", "--layer", &layer];
    let done = world
        .program(["/bin/sh", "-c", "echo /*"])
        .args(flags)
        .run();
    assert_eq!(done.code, 0, "{done}");
    let out = done.out();
    let entries: Vec<&str> = out.split_whitespace().collect();
    assert!(
        entries.contains(&"/bin") && entries.contains(&"/proc"),
        "{done}"
    );
    for host in ["/usr", "/lib", "/root", "/work", "/boot"] {
        assert!(!entries.contains(&host), "{host}: {done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_archive_cannot_write_out_of_its_tree(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let outside = world.write("outside/victim", "safe\n");
    let place = outside.parent().unwrap().display().to_string();
    let link_out = TarEntry::symlink("door", &place);
    for (number, entries) in [
        vec![link_out.clone(), TarEntry::file("door/victim", "taken\n")],
        vec![link_out, TarEntry::file("door/new", "taken\n")],
    ]
    .into_iter()
    .enumerate()
    {
        let archive = world.write(format!("evil-{number}.tar"), "");
        write_tar(File::create(&archive).unwrap(), &entries);
        let layer = format!("tar:{}=/evil", archive.display());
        // Refused or harmless; either way nothing outside is touched.
        let done = world.job("true").args(["--layer", &layer]).run();
        assert!([0, 125].contains(&done.code), "{done}");
        assert_eq!(fs::read_to_string(&outside).unwrap(), "safe\n");
        assert_eq!(fs::read_dir(outside.parent().unwrap()).unwrap().count(), 1);
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn slow_a_debian_tree_works(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let archive = match debian() {
        Ok(archive) => archive,
        Err(why) => {
            skip(&why);
            return;
        }
    };
    let image = format!("tar:{}", archive.display());
    let flags = ["--image", &image, "--no-workspace", "--user", "0"];
    let text = "apt-get --version | head -n 1; python3 -c 'print(6 * 7)'; id -un; \
                stat -c %U:%G /etc/shadow /var/mail; su --help >/dev/null && echo su";
    let done = world.job(text).args(flags).run();
    let out = done.out();
    assert_eq!(done.code, 0, "{done}");
    assert!(out.starts_with("apt "), "{done}");
    assert!(
        out.ends_with("42\nroot\nroot:shadow\nroot:mail\nsu\n"),
        "{done}"
    );
    if mode == Mode::Root {
        // The same tree as a directory.
        let root = world.path().join("debian");
        fs::create_dir(&root).unwrap();
        let unpacked = Command::new("tar")
            .arg("-xpf")
            .arg(&archive)
            .arg("-C")
            .arg(&root)
            .status();
        assert!(unpacked.unwrap().success());
        let image = format!("dir:{}", root.display());
        let flags = ["--image", &image, "--no-workspace", "--user", "0"];
        let done = world.job(text).args(flags).run();
        assert_eq!((done.code, done.out()), (0, out), "{done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_layer_with_its_own_bin_goes_over_a_root_whose_bin_is_a_link(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !fs::symlink_metadata("/bin").is_ok_and(|bin| bin.is_symlink()) {
        skip("/bin is no link on this machine");
        return;
    }
    let tool = world.write("layer/bin/layered", "#!/bin/sh\necho layered\n");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    world.write("layer/etc/layered.conf", "of the layer\n");
    world.write("layer/var/run/layered.pid", "7\n");
    let text = "layered; /usr/bin/layered; cat /etc/layered.conf; readlink /bin; \
                readlink /var/run; test -x /bin/sh && test -r /etc/passwd && echo whole";
    let layer = format!("dir:{}", world.work().join("layer").display());
    let done = world.job(text).args(["--layer", &layer]).run();
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(
        done.out(),
        "layered\nlayered\nof the layer\nusr/bin\n/run\nwhole\n",
        "{done}"
    );
}
