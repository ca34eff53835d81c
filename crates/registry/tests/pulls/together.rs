//! Several who want one image at once: one fetch, one failure, and one who goes on.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tidemill_oci::{Content, Names, Platform, Reference};
use tidemill_registry::{Client, Lookup, Progress, PullError, Watch};
use tokio::task::JoinSet;

use crate::fake::{Fake, Reply};
use crate::made::{Made, Puller, REPOSITORY, noise, runtime};

const WHO: usize = 20;
/// When something that does not come is no longer waited for.
const DEADLINE: Duration = Duration::from_secs(20);

/// Opened when all but one of those who pull are waiting for that one.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<usize>, Condvar)>);

impl Gate {
    fn one_more_waits(&self) {
        *self.0.0.lock().unwrap() += 1;
        self.0.1.notify_all();
    }

    fn wait_for(&self, count: usize) {
        let waiting = self.0.0.lock().unwrap();
        let too_few = |waiting: &mut usize| *waiting < count;
        let (_waiting, late) = self
            .0
            .1
            .wait_timeout_while(waiting, DEADLINE, too_few)
            .unwrap();
        assert!(!late.timed_out(), "they do not wait");
    }

    /// Counts everybody who waits, once.
    fn watch(&self) -> Watch {
        let (gate, waits) = (self.clone(), Mutex::new(false));
        Watch::new(move |progress| {
            if matches!(progress, Progress::Waiting { digest: None, .. })
                && !std::mem::replace(&mut *waits.lock().unwrap(), true)
            {
                gate.one_more_waits();
            }
        })
    }
}

/// Pulls many times at once.
fn pull_all(puller: &Puller, fake: &Fake, gate: &Gate) -> Vec<Result<(), PullError>> {
    let reference: Reference = format!("{}/{REPOSITORY}", fake.host()).parse().unwrap();
    runtime().block_on(async {
        let mut pulls = JoinSet::new();
        for _ in 0..WHO {
            let (reference, watch) = (reference.clone(), gate.watch());
            let (content, options) = (puller.content.clone(), puller.options.clone());
            pulls.spawn(async move {
                let client = Client::new(options).unwrap();
                let platform = Platform::host();
                let pulled = client.pull(&reference, &platform, &content, &watch);
                pulled.await.map(drop)
            });
        }
        pulls.join_all().await
    })
}

#[test]
fn many_ask_once_and_fetch_each_blob_once() {
    let made = Made::of(&[noise(1, 200_000), noise(2, 1000)]);
    let gate = Gate::default();
    let all = gate.clone();
    let fake = Fake::with_rule(made.served.clone(), move |request, _| {
        if request.is_for("manifests") {
            all.wait_for(WHO - 1);
        }
        None
    });
    let puller = Puller::new();
    for result in pull_all(&puller, &fake, &gate) {
        result.unwrap();
    }
    let paths: Vec<_> = fake.requests().into_iter().map(|it| it.path).collect();
    assert_eq!(
        paths.len(),
        4,
        "one manifest, one configuration, two layers: {paths:?}"
    );
    assert_eq!(Names::new(&puller.content).list().unwrap().len(), 1);
    assert_eq!(errands(&puller.content), 0);
}

#[test]
fn a_failure_is_everybodys_who_waits_and_nobodys_who_comes_later() {
    let made = Made::of(&[noise(1, 1000)]);
    let gate = Gate::default();
    let all = gate.clone();
    let fake = Fake::with_rule(made.served.clone(), move |request, _| {
        (request.is_for("manifests") && request.earlier == 0).then(|| {
            all.wait_for(WHO - 1);
            Reply::new(403).body(r#"{"errors":[{"code":"DENIED","message":"not today"}]}"#)
        })
    });
    let puller = Puller::new();
    let results = pull_all(&puller, &fake, &gate);
    let elsewhere = |result: &&Result<(), PullError>| {
        let error = result.as_ref().unwrap_err();
        assert!(
            format!("{error} {}", error.hint()).contains("not today"),
            "{error}"
        );
        assert!(error.hint().contains("sign in"), "{}", error.hint());
        matches!(error, PullError::Elsewhere { .. })
    };
    assert_eq!(results.iter().filter(elsewhere).count(), WHO - 1);
    assert_eq!(fake.requests().len(), 1);
    assert_eq!(puller.content.list().unwrap(), []);
    puller.pull(&fake).unwrap();
    assert_eq!(fake.requests_for("manifests").len(), 2);
}

#[test]
fn a_layer_that_cannot_be_had_is_tried_by_one() {
    let made = Made::of(&[noise(1, 1000)]);
    let layer = made.layers[0].to_string();
    let gate = Gate::default();
    let all = gate.clone();
    let fake = Fake::with_rule(made.served.clone(), move |request, _| {
        request.path.ends_with(&layer).then(|| {
            all.wait_for(WHO - 1);
            Reply::new(404)
        })
    });
    let puller = Puller::new();
    for result in pull_all(&puller, &fake, &gate) {
        result.unwrap_err();
    }
    assert_eq!(fake.requests_for("manifests").len(), 1);
    assert_eq!(fake.requests_for(&made.layers[0].to_hex()).len(), 1);
    assert_eq!(Names::new(&puller.content).list().unwrap(), []);
}

#[test]
fn whoever_gives_up_leaves_it_to_the_next() {
    let made = Made::of(&[noise(1, 1000)]);
    let fake = Fake::with_rule(made.served.clone(), move |request, own| {
        (request.is_for("manifests") && request.earlier == 0).then(|| {
            let mut reply = own.clone().cut_at(0);
            reply.then = crate::fake::Then::Stall;
            reply
        })
    });
    let puller = Puller::new();
    let reference: Reference = format!("{}/{REPOSITORY}", fake.host()).parse().unwrap();
    let second_waits = Gate::default();
    runtime().block_on(async {
        let platform = Platform::host();
        let client = Client::new(puller.options.clone()).unwrap();
        let nobody = Watch::nobody();
        let mut first = Box::pin(client.pull(&reference, &platform, &puller.content, &nobody));
        // As far as its request goes.
        while fake.requests().is_empty() {
            tokio::select! {
                done = &mut first => panic!("{done:?}"),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
        let watch = second_waits.watch();
        let second = client.pull(&reference, &platform, &puller.content, &watch);
        let abandon = async move {
            while *second_waits.0.0.lock().unwrap() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            drop(first);
        };
        let (pulled, ()) = tokio::join!(second, abandon);
        pulled.unwrap();
    });
    assert_eq!(fake.requests_for("manifests").len(), 2);
}

#[test]
fn who_comes_while_the_layers_are_fetched_takes_what_the_name_means() {
    let made = Made::of(&[noise(1, 1000)]);
    let fake = Fake::start(made.served.clone());
    let puller = Puller::new();
    let reference: Reference = format!("{}/{REPOSITORY}", fake.host()).parse().unwrap();
    runtime().block_on(async {
        let (platform, nobody) = (Platform::host(), Watch::nobody());
        let client = Client::new(puller.options.clone()).unwrap();
        let resolve = || {
            client.resolve(
                &reference,
                &platform,
                &puller.content,
                Lookup::IfUnknown,
                &nobody,
            )
        };
        let first = resolve().await.unwrap();
        assert_eq!(fake.requests().len(), 2, "manifest and configuration");
        let second = resolve().await.unwrap();
        assert_eq!(second.image(), first.image());
        assert_eq!(fake.requests().len(), 2);
        let collected = Names::new(&puller.content).collect().unwrap();
        assert_eq!(collected, None, "what no name leads to yet stays");
        drop(first);
        let pulled = client
            .complete(second, &puller.content, &nobody)
            .await
            .unwrap();
        assert_eq!(pulled.named.reference, reference);
        assert_eq!(fake.requests().len(), 3);
        // Now the name leads there.
        resolve().await.unwrap().settle();
        assert_eq!(fake.requests().len(), 3);
    });
    assert_eq!(errands(&puller.content), 0);
}

#[test]
fn who_took_a_name_from_one_that_failed_fails_too() {
    let made = Made::of(&[noise(1, 1000)]);
    let layer = made.layers[0].to_string();
    let fake = Fake::with_rule(made.served.clone(), move |request, _| {
        (request.path.ends_with(&layer) && request.earlier == 0).then(|| Reply::new(404))
    });
    let puller = Puller::new();
    let reference: Reference = format!("{}/{REPOSITORY}", fake.host()).parse().unwrap();
    runtime().block_on(async {
        let (platform, nobody) = (Platform::host(), Watch::nobody());
        let client = Client::new(puller.options.clone()).unwrap();
        let content = &puller.content;
        let resolve = || client.resolve(&reference, &platform, content, Lookup::IfUnknown, &nobody);
        let (first, second) = (resolve().await.unwrap(), resolve().await.unwrap());
        let error = client.complete(first, content, &nobody).await.unwrap_err();
        assert!(matches!(error, PullError::Registry(_)), "{error}");
        // It comes to the layers when the first one has failed.
        let error = client.complete(second, content, &nobody).await.unwrap_err();
        assert!(matches!(error, PullError::Elsewhere { .. }), "{error}");
        assert_eq!(fake.requests().len(), 3);
        let third = resolve().await.unwrap();
        client.complete(third, content, &nobody).await.unwrap();
    });
}

#[test]
fn an_image_that_cannot_be_used_leaves_nothing() {
    let other = Made::for_platform(&[noise(1, 1000)], "s390x");
    let puller = Puller::new();
    let error = puller.refused(&Fake::start(other.served.clone()));
    assert!(error.contains("is an image for linux/s390x"), "{error}");
    let (index, _) = Made::index(&[("s390x", &other), ("ppc64le", &other)]);
    let error = puller.refused(&Fake::start(index.served));
    assert!(error.contains("there is no image for"), "{error}");
    assert_eq!(puller.content.list().unwrap(), []);
    assert_eq!(puller.content.partials().unwrap(), []);
}

fn errands(content: &Content) -> usize {
    std::fs::read_dir(content.base().join("errands"))
        .unwrap()
        .count()
}
