//! Layers are read once, however many images have them and however many ask at once.

use std::os::unix::fs::MetadataExt;
use std::sync::Barrier;

use super::*;

#[test]
fn layers_that_images_share_are_read_once_and_lie_on_the_disk_once() {
    let world = World::new();
    let base = vec![dir("d"), file("d/big", &"x".repeat(100_000))];
    let first = world
        .build(&[base.clone(), vec![file("one", "1")]])
        .unwrap();
    let second = world.image(&[base, vec![file("two", "2")]]);
    // It cannot be read again.
    fs::remove_file(&second.layers[0].blob).unwrap();
    let second = build(&second, &world.trees).unwrap();
    let ino = |root: &Path| fs::metadata(root.join("d/big")).unwrap().ino();
    assert_ne!(first, second);
    assert_eq!(ino(&first), ino(&second));
}

#[test]
fn many_who_ask_at_once_read_each_layer_once() {
    let world = World::new();
    let image = world.image(&[
        vec![file("a", "1")],
        vec![file("b", "2")],
        vec![file("c", "3")],
    ]);
    let barrier = Barrier::new(8);
    let roots: Vec<PathBuf> = thread::scope(|scope| {
        let ask = || {
            // A store of its own, as another process has.
            let trees = TreeStore::open(world.base.path().join("trees")).unwrap();
            barrier.wait();
            build(&image, &trees).unwrap()
        };
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        asking
            .into_iter()
            .map(|asked| asked.join().unwrap())
            .collect()
    });
    assert!(roots.iter().all(|root| *root == roots[0]));
    assert_eq!(fs::read_to_string(roots[0].join("c")).unwrap(), "3");
}

#[test]
fn sixty_layers_make_one_directory() {
    let world = World::new();
    let layers: Vec<Vec<Item>> = (0..60)
        .map(|number| {
            vec![
                dir("d"),
                file(&format!("d/{number}"), &number.to_string()),
                file("last", &number.to_string()),
            ]
        })
        .collect();
    let root = world.build(&layers).unwrap();
    assert_eq!(fs::read_dir(root.join("d")).unwrap().count(), 60);
    assert_eq!(fs::read_to_string(root.join("last")).unwrap(), "59");
}
