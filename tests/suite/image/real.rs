//! A Debian system as an image: its package managers work, and wherever it comes from it is one tree.

use rstest::rstest;
use serde_json::Value;
use tidemill_tests::{Mode, World, debian, skip};

use super::made::{Layout, give_all, image, run};
use super::registry::{Registry, has_tools};

/// A package that brings a user of its own is made, installed, looked at and removed.
const WITH_APT: &str = r"set -e
mkdir -p /tmp/demo/DEBIAN /tmp/demo/usr/share/demo
echo from the package >/tmp/demo/usr/share/demo/file
printf '%s\n' 'Package: demo' 'Version: 1.0' 'Architecture: all' 'Maintainer: nobody <nobody@example.org>' \
    'Description: a demonstration' >/tmp/demo/DEBIAN/control
printf '%s\n' '#!/bin/sh' 'adduser --system --group demo && chown demo:demo /usr/share/demo/file' \
    >/tmp/demo/DEBIAN/postinst
chmod 755 /tmp/demo/DEBIAN/postinst
dpkg-deb --build /tmp/demo /tmp/demo.deb
apt-get install -q -y /tmp/demo.deb
dpkg-query --show demo >/tmp/shown
file=$(cat /usr/share/demo/file)
owner=$(stat -c %U /usr/share/demo/file)
who=$(su demo -s /bin/sh -c 'id -un')
apt-get remove -q -y demo
test ! -e /usr/share/demo/file
dpkg --verify apt dpkg
echo; cat /tmp/shown; echo $file; echo $owner $who";

/// A wheel is made of a project with tests, installed, checked and tested.
const WITH_PIP: &str = r#"set -e
mkdir -p /tmp/project/demo
cd /tmp/project
cat >pyproject.toml <<'END'
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "demo"
version = "1.0"
END
echo 'def six(): return 6' >demo/__init__.py
cat >demo/test_six.py <<'END'
import unittest, demo
class Six(unittest.TestCase):
    def test_six(self):
        self.assertEqual(demo.six(), 6)
END
pip wheel -q --no-deps --no-build-isolation -w /tmp/wheels .
cd /
pip install -q --root-user-action=ignore --break-system-packages --no-index /tmp/wheels/*.whl
pip check
python3 -m unittest demo.test_six 2>&1 | tail -n 1
python3 -c 'import demo; print(demo.__file__.startswith("/usr/local/lib/"), demo.six())'"#;

/// An image with the Debian system as its only layer. `None` if it cannot be made here, which was said then.
fn layout(world: &World) -> Option<Layout> {
    let archive = match debian() {
        Ok(archive) => archive,
        Err(why) => {
            skip(&why);
            return None;
        }
    };
    let path = world.path().join("layout");
    let layout = path.to_str().unwrap();
    let image = format!("{layout}:1");
    run("umoci", &["init", "--layout", layout]);
    run("umoci", &["new", "--image", &image]);
    let archive = archive.to_str().unwrap();
    run("umoci", &["raw", "add-layer", "--image", &image, archive]);
    give_all(world, &path);
    Some(Layout { path })
}

/// Prepares a job in an image, which unpacks it.
fn unpack(world: &World, name: &str) {
    let name = format!("oci:{name}");
    let line = ["explain", "--image", &name, "--no-workspace"];
    world.ask(line.into_iter().chain(["--", "true"]));
}

/// The trees that images became, each with the number of its names.
fn image_trees(world: &World) -> Vec<(String, usize)> {
    let answer: Value =
        serde_json::from_slice(&world.ask(["cache", "ls", "--format", "json"])).unwrap();
    let trees = answer["trees"].as_array().unwrap().iter();
    let of_image = trees.filter(|tree| !tree["from"].as_str().unwrap().starts_with("layer "));
    let digest = |tree: &Value| tree["digest"].as_str().unwrap().to_owned();
    of_image
        .map(|tree| (digest(tree), tree["names"].as_array().unwrap().len()))
        .collect()
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn slow_a_debian_image_installs_packages_and_wheels(#[case] mode: Mode) {
    let Some(world) = World::new(mode).filter(|_| has_tools()) else {
        return;
    };
    let Some(layout) = layout(&world) else {
        return;
    };
    image(
        &world,
        &[
            "import",
            layout.path.to_str().unwrap(),
            "--name",
            "debian:1",
        ],
    );
    let flags = ["--image", "oci:debian:1", "--no-workspace", "--user", "0"];
    let done = world.job(WITH_APT).args(flags).args(["--grant", "root"]);
    let done = done.run();
    assert_eq!(done.code, 0, "{done}");
    assert!(
        done.out()
            .ends_with("\ndemo\t1.0\nfrom the package\ndemo demo\n"),
        "{done}"
    );
    let done = world.job(WITH_PIP).args(flags).run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "No broken requirements found.\nOK\nTrue 6\n"),
        "{done}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn slow_a_debian_image_is_one_tree_wherever_it_comes_from(#[case] mode: Mode) {
    let Some(world) = World::new(mode).filter(|_| has_tools()) else {
        return;
    };
    let Some(layout) = layout(&world) else {
        return;
    };
    let registry = Registry::start(&world);
    let pulled = format!("{}/debian:1", registry.host);
    layout.copy_to(&format!("docker://{pulled}"), &[]);
    let saved = world.path().join("saved.tar");
    let target = format!("docker-archive:{}:debian:saved", saved.display());
    layout.copy_to(&target, &[]);
    give_all(&world, &saved);
    image(&world, &["pull", &pulled]);
    image(&world, &["import", saved.to_str().unwrap()]);
    let path = layout.path.to_str().unwrap();
    image(&world, &["import", path, "--name", "debian:layout"]);
    unpack(&world, "debian:layout");
    let first = image_trees(&world);
    unpack(&world, &pulled);
    assert_eq!(image_trees(&world), first, "its manifest is the same");
    unpack(&world, "debian:saved");
    // Another manifest, because its layers are not compressed: the same trees have one more name.
    let named_once_more = |(digest, names): &(String, usize)| (digest.clone(), names + 1);
    let want: Vec<_> = first.iter().map(named_once_more).collect();
    assert!(!first.is_empty());
    assert_eq!(image_trees(&world), want);
}
