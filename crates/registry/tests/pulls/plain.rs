//! What works: whole images, again, by digest, for a platform, by several at once.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use tidemill_oci::{Names, Platform};

use crate::fake::Fake;
use crate::made::{Made, Puller, REPOSITORY, noise, runtime};

/// When a request that does not come is no longer waited for.
const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn an_image_is_pulled_once() {
    let layers: Vec<_> = (0..6).map(|seed| noise(seed, 50_000)).collect();
    let made = Made::of(&layers);
    let fake = Fake::start(made.served.clone());
    let puller = Puller::new();
    let pulled = puller.pull(&fake).unwrap();
    assert_eq!(pulled.named.manifest.digest, made.manifest_digest());
    assert_eq!(pulled.fetched, 300_000);
    for layer in &made.layers {
        assert_eq!(puller.content.verify(layer).unwrap(), 50_000);
    }
    let named = Names::new(&puller.content).list().unwrap();
    assert_eq!(named, [pulled.named]);
    let before = fake.requests().len();
    assert_eq!(puller.pull(&fake).unwrap().fetched, 0);
    let again = &fake.requests()[before..];
    assert_eq!(again.len(), 1, "only the tag is looked up again: {again:?}");
    let by_digest = format!("{}/{REPOSITORY}@{}", fake.host(), made.manifest_digest());
    assert_eq!(puller.pull_name(&by_digest).unwrap().fetched, 0);
    assert_eq!(
        fake.requests().len(),
        before + 1,
        "a digest needs no registry"
    );
}

#[test]
fn the_platform_is_chosen() {
    let host = Platform::host().architecture;
    let ours = Made::of(&[noise(1, 1000)]);
    let theirs = Made::for_platform(&[noise(2, 1000)], "s390x");
    let (all, index) = Made::index(&[("s390x", &theirs), (&host, &ours)]);
    let fake = Fake::start(all.served);
    let puller = Puller::new();
    let pulled = puller.pull(&fake).unwrap();
    assert_eq!(pulled.named.manifest.digest, ours.manifest_digest());
    assert_eq!(pulled.named.index, Some(index));
    assert!(fake.requests_for(&theirs.layers[0].to_hex()).is_empty());
    let by_index = format!("{}/{REPOSITORY}@{index}", fake.host());
    let before = fake.requests().len();
    assert_eq!(
        puller.pull_name(&by_index).unwrap().named.index,
        Some(index)
    );
    assert_eq!(fake.requests().len(), before);
}

#[test]
fn layers_come_together_but_not_all_at_once() {
    const AT_ONCE: usize = 4;
    let layers: Vec<_> = (0..20).map(|seed| noise(seed, 10_000)).collect();
    let made = Made::of(&layers);
    let config = made.manifest["config"]["digest"]
        .as_str()
        .unwrap()
        .to_owned();
    // The first layers are answered when all of them were asked for.
    let arrived = (Mutex::new(0), Condvar::new());
    let fake = Fake::with_rule(made.served, move |request, _| {
        if request.is_for("blobs") && !request.path.ends_with(&config) {
            let (count, all) = &arrived;
            let mut count = count.lock().unwrap();
            *count += 1;
            all.notify_all();
            let are_missing = |count: &mut usize| *count < AT_ONCE;
            drop(
                all.wait_timeout_while(count, DEADLINE, are_missing)
                    .unwrap(),
            );
        }
        None
    });
    Puller::new().pull(&fake).unwrap();
    assert_eq!(fake.at_once_max(), AT_ONCE);
}

#[test]
fn several_pulls_fetch_each_blob_once() {
    let layers: Vec<_> = (0..4).map(|seed| noise(seed, 500_000)).collect();
    let made = Made::of(&layers);
    let fake = Fake::start(made.served.clone());
    let puller = Puller::new();
    let reference = format!("{}/{REPOSITORY}", fake.host());
    runtime().block_on(async {
        let all = tokio::join!(
            puller.pull_async(&reference),
            puller.pull_async(&reference),
            puller.pull_async(&reference),
            puller.pull_async(&reference),
        );
        for result in [all.0, all.1, all.2, all.3] {
            result.unwrap();
        }
    });
    for layer in &made.layers {
        assert_eq!(fake.requests_for(&layer.to_hex()).len(), 1);
    }
}

#[test]
fn a_layer_that_is_there_twice_is_fetched_once() {
    let layer = noise(1, 10_000);
    let made = Made::of(&[layer.clone(), layer]);
    let fake = Fake::start(made.served.clone());
    let puller = Puller::new();
    assert_eq!(puller.pull(&fake).unwrap().image.manifest.layers.len(), 2);
    assert_eq!(fake.requests_for(&made.layers[0].to_hex()).len(), 1);
}
