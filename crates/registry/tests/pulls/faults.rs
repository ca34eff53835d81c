//! What goes wrong on the way, and is gone on with.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidemill_registry::{Progress, Watch};

use crate::fake::{Fake, Reply, Request, Then};
use crate::made::{Made, Puller, REPOSITORY, noise, runtime};

const SIZE: usize = 1_000_000;

/// An image of one layer, and a registry that answers the first request for that layer otherwise.
fn first_time(reply: impl Fn(&Reply) -> Reply + Send + Sync + 'static) -> (Made, Fake) {
    let made = Made::of(&[noise(7, SIZE)]);
    let layer = made.layers[0].to_string();
    let fake = Fake::with_rule(made.served.clone(), move |request, own| {
        (request.path.ends_with(&layer) && request.earlier == 0).then(|| reply(own))
    });
    (made, fake)
}

/// Pulls, and answers the requests for the layer.
fn pull_layer(made: &Made, fake: &Fake) -> Vec<Request> {
    let puller = Puller::new();
    puller.pull(fake).unwrap();
    assert_eq!(puller.content.verify(&made.layers[0]).unwrap(), SIZE as u64);
    assert!(puller.content.partials().unwrap().is_empty());
    fake.requests_for(&made.layers[0].to_hex())
}

#[test]
fn what_is_cut_off_is_gone_on_with() {
    let (made, fake) = first_time(|own| own.clone().cut_at(SIZE / 2));
    let requests = pull_layer(&made, &fake);
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].from(), None);
    assert_eq!(requests[1].from(), Some(SIZE / 2));
}

#[test]
fn what_stalls_at_half_is_gone_on_with() {
    let (made, fake) = first_time(|own| own.clone().cut_at(SIZE / 2).then(Then::Stall));
    let started = Instant::now();
    let requests = pull_layer(&made, &fake);
    assert_eq!(requests[1].from(), Some(SIZE / 2));
    assert!(started.elapsed() >= Duration::from_millis(400));
}

#[test]
fn a_registry_that_stalls_before_it_answers_is_asked_again() {
    let made = Made::of(&[noise(7, 1000)]);
    let fake = Fake::with_rule(made.served, |request, own| {
        (request.is_for("manifests") && request.earlier == 0).then(|| {
            let mut reply = own.clone().cut_at(0);
            reply.then = Then::Stall;
            reply
        })
    });
    Puller::new().pull(&fake).unwrap();
    assert_eq!(fake.requests_for("manifests").len(), 2);
}

#[test]
fn a_range_that_is_ignored_begins_anew() {
    let made = Made::of(&[noise(7, SIZE)]);
    let (layer, bytes) = (made.layers[0].to_string(), noise(7, SIZE));
    let fake = Fake::with_rule(made.served.clone(), move |request, _| {
        let whole = Reply::new(200).body(bytes.clone());
        let is_layer = request.path.ends_with(&layer);
        is_layer.then(|| match request.earlier {
            0 => whole.cut_at(SIZE / 2),
            _ => whole,
        })
    });
    let requests = pull_layer(&made, &fake);
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].from(), Some(SIZE / 2));
}

#[test]
fn a_wrong_part_is_not_taken() {
    let made = Made::of(&[noise(7, SIZE)]);
    let layer = made.layers[0].to_string();
    let fake = Fake::with_rule(made.served.clone(), move |request, own| {
        if !request.path.ends_with(&layer) {
            return None;
        }
        match request.earlier {
            0 => Some(own.clone().cut_at(SIZE / 2)),
            1 => Some(
                Reply::new(206)
                    .header("Content-Range", format!("bytes 7-{}/{SIZE}", SIZE - 1))
                    .body(vec![0; SIZE - 7]),
            ),
            _ => None,
        }
    });
    let requests = pull_layer(&made, &fake);
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[2].from(), None);
}

#[test]
fn parts_of_different_blobs_are_thrown_away_once() {
    let (made, fake) = first_time(|own| {
        let mut reply = own.clone().cut_at(SIZE / 2);
        reply.body[100] ^= 1;
        reply
    });
    let requests = pull_layer(&made, &fake);
    let from: Vec<_> = requests.iter().map(Request::from).collect();
    assert_eq!(from, [None, Some(SIZE / 2), None]);
}

#[test]
fn another_blob_is_refused_at_once() {
    let (made, fake) = first_time(|_| Reply::new(200).body(noise(8, SIZE)));
    let puller = Puller::new();
    let error = puller.refused(&fake);
    assert!(error.contains("have the digest sha256:"), "{error}");
    assert!(!puller.content.path(&made.layers[0]).exists());
    assert!(puller.content.partials().unwrap().is_empty());
    assert_eq!(fake.requests_for(&made.layers[0].to_hex()).len(), 1);
    puller.pull(&fake).unwrap();
}

#[test]
fn too_much_is_refused_before_it_fills_the_disk() {
    let made = Made::of(&[noise(7, SIZE)]);
    let layer = made.layers[0].to_string();
    let fake = Fake::with_rule(made.served, move |request, own| {
        request.path.ends_with(&layer).then(|| {
            let mut reply = own.clone();
            reply.body.extend(noise(9, SIZE));
            // Chunked: nothing tells how long it will be.
            let mut body = format!("{:x}\r\n", reply.body.len()).into_bytes();
            body.extend_from_slice(&reply.body);
            body.extend_from_slice(b"\r\n0\r\n\r\n");
            Reply::new(200)
                .header("Transfer-Encoding", "chunked")
                .body(body)
        })
    });
    let error = Puller::new().refused(&fake);
    assert!(error.contains("should have 1000000 bytes"), "{error}");
}

#[test]
fn a_wrong_length_is_told_before_a_byte_of_it_is_read() {
    let (_, fake) = first_time(|_| Reply::new(200).body(noise(8, SIZE + 1)));
    let puller = Puller::new();
    // It may be a proxy's mistake of the moment.
    puller.pull(&fake).unwrap();
    let made = Made::of(&[noise(7, SIZE)]);
    let fake = Fake::with_rule(made.served, |request, _| {
        request.is_for("blobs").then(|| Reply::new(200).body("x"))
    });
    let error = Puller::new().refused(&fake);
    assert!(error.contains("1 bytes, where"), "{error}");
}

#[test]
fn a_slow_registry_is_waited_for() {
    let made = Made::of(&[noise(7, 4000)]);
    let fake = Fake::with_rule(made.served, |request, own| {
        let mut reply = own.clone();
        reply.pace = Some((500, Duration::from_millis(100)));
        request.is_for("blobs").then_some(reply)
    });
    let started = Instant::now();
    Puller::new().pull(&fake).unwrap();
    assert!(
        started.elapsed() > Duration::from_millis(700),
        "longer than a stall"
    );
    assert_eq!(fake.requests_for("blobs").len(), 2);
}

#[test]
fn a_registry_that_only_drips_is_not_waited_for() {
    for kind in ["manifests", "blobs"] {
        let made = Made::of(&[noise(7, 4000)]);
        let layer = made.layers[0].to_string();
        let fake = Fake::with_rule(made.served, move |request, own| {
            let is_it = request.is_for("manifests") || request.path.ends_with(&layer);
            let mut reply = own.clone();
            reply.pace = Some((5, Duration::from_millis(100)));
            (request.is_for(kind) && is_it && request.earlier == 0).then_some(reply)
        });
        let started = Instant::now();
        Puller::new().pull(&fake).unwrap();
        assert!(started.elapsed() < Duration::from_secs(15), "{kind}");
        assert!(
            fake.requests_for(kind).len() >= 2,
            "{kind} are asked for again"
        );
    }
}

#[test]
fn errors_of_the_moment_pass() {
    for status in [500, 502, 503, 504, 408, 429] {
        let made = Made::of(&[noise(7, 1000)]);
        let fake = Fake::with_rule(made.served, move |request, _| {
            (request.earlier < 2).then(|| Reply::new(status))
        });
        Puller::new().pull(&fake).unwrap();
        assert_eq!(fake.requests_for("manifests").len(), 3);
        assert_eq!(fake.requests_for("blobs").len(), 6);
    }
}

#[test]
fn errors_that_last_are_given_up_on() {
    let made = Made::of(&[noise(7, 1000)]);
    let fake = Fake::with_rule(made.served, |_, _| {
        Some(Reply::new(503).body(r#"{"errors":[{"code":"BUSY","message":"come back"}]}"#))
    });
    let error = Puller::new().refused(&fake);
    assert!(
        error.starts_with("gave up after 4 tries in a row: 127.0.0.1:"),
        "{error}"
    );
    assert!(
        error.contains("answered 503 Service Unavailable"),
        "{error}"
    );
    assert!(
        error.contains("some/image:latest: BUSY, come back"),
        "{error}"
    );
    assert_eq!(fake.requests().len(), 4);
}

#[test]
fn what_the_registry_asks_for_is_waited() {
    let made = Made::of(&[noise(7, 1000)]);
    let fake = Fake::with_rule(made.served, |request, _| {
        (request.is_for("blobs") && request.earlier == 0)
            .then(|| Reply::new(429).header("Retry-After", "1"))
    });
    let mut puller = Puller::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    puller.watch = Watch::new(move |progress| telling.lock().unwrap().push(progress.clone()));
    let started = Instant::now();
    puller.pull(&fake).unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
    let told = told.lock().unwrap();
    let waits = told.iter().filter(|progress| {
        matches!(progress, Progress::Retrying { problem, after, .. }
            if after.as_secs() == 1 && problem.contains("429 Too Many Requests"))
    });
    assert_eq!(waits.count(), 2, "configuration and layer: {told:?}");
    assert!(told.contains(&Progress::Planned {
        blobs: 1,
        bytes: 1000
    }));
}

#[test]
fn a_wait_of_hours_is_not_waited() {
    let made = Made::of(&[noise(7, 1000)]);
    let fake = Fake::with_rule(made.served, |_, _| {
        Some(Reply::new(429).header("Retry-After", "7200"))
    });
    let error = Puller::new().refused(&fake);
    assert!(error.contains("429 Too Many Requests"), "{error}");
    assert!(error.contains("sign in"), "{error}");
    assert_eq!(fake.requests().len(), 1);
}

#[test]
fn a_registry_that_is_not_there_is_named() {
    let fake = Fake::start(Made::of(&[]).served);
    let host = fake.host();
    drop(fake);
    let error = Puller::new().pull_name(&format!("{host}/a")).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, format!("failed to connect to {host}"));
    assert!(
        error.hint().contains("check the name, the network"),
        "{}",
        error.hint()
    );
}

#[test]
fn a_pull_that_was_given_up_is_gone_on_with() {
    let made = Made::of(&[noise(7, SIZE)]);
    let layer = made.layers[0].to_string();
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let fake = Fake::with_rule(made.served.clone(), move |request, own| {
        let is_first = request.path.ends_with(&layer) && seen.fetch_add(1, Ordering::SeqCst) == 0;
        is_first.then(|| own.clone().cut_at(SIZE / 4).then(Then::Stall))
    });
    let mut puller = Puller::new();
    puller.options.patience.stall = Duration::from_secs(60);
    let reference = format!("{}/{REPOSITORY}", fake.host());
    runtime().block_on(async {
        let quarter_is_there = async {
            let is_there = || {
                let partials = puller.content.partials().unwrap();
                partials
                    .iter()
                    .any(|partial| partial.size == SIZE as u64 / 4)
            };
            while !is_there() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = puller.pull_async(&reference) => panic!("it cannot be done"),
            () = quarter_is_there => {}
        }
    });
    puller.pull(&fake).unwrap();
    let requests = fake.requests_for(&made.layers[0].to_hex());
    assert_eq!(requests.last().unwrap().from(), Some(SIZE / 4));
}
