//! A runner with many jobs that need one OCI image: it is fetched and unpacked once, who waits for it holds
//! no slot, and if it cannot be had, each of them hears of that once.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tidemill_core::job::Image;
use tidemill_core::oci::OciDigest;
use tidemill_core::{Attempt, Event, ExecutionId, JobSpec, RunnerId};
use tidemill_dispatch::Cause;
use tidemill_image::{HostView, ImageLayers, ImageName, TreeStore};
use tidemill_runner::testing::{FakeHub, FakeSandboxes, exited};
use tidemill_runner::{
    BuildProgress, BuildWatch, Capacity, Ended, Job, JobHandle, JobId, LocalImages, LocalRunner,
    OciImages, RunnerConfig,
};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);
const JOBS: u128 = 100;
/// What a fetch tells.
const WAITS: &str = "waiting for registry example.org: 429 Too Many Requests";

/// Images that come when the test opens the door.
#[derive(Debug, Default)]
struct GatedImages {
    is_open: Mutex<bool>,
    opened: Condvar,
    fetches: AtomicU32,
    unpacks: AtomicU32,
    spared: AtomicU32,
    /// What every fetch fails with.
    failure: Option<&'static str>,
}

impl GatedImages {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

impl OciImages for GatedImages {
    fn with_layers(
        &self,
        image: &ImageName,
        watch: &BuildWatch,
        unpack: &mut dyn FnMut(ImageLayers) -> Result<PathBuf, Cause>,
    ) -> Result<PathBuf, Cause> {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        watch.tell(BuildProgress {
            message: WAITS.to_owned(),
            current: 1 << 20,
            total: Some(3 << 20),
        });
        let is_open = self.is_open.lock().unwrap();
        drop(
            self.opened
                .wait_while(is_open, |is_open| !*is_open)
                .unwrap(),
        );
        if let Some(failure) = self.failure {
            return Err(Cause {
                message: failure.to_owned(),
                hint: Some("look at the registry".to_owned()),
            });
        }
        self.unpacks.fetch_add(1, Ordering::Relaxed);
        unpack(ImageLayers {
            manifest: image.manifest,
            known_as: image.reference.clone(),
            layers: Vec::new(),
        })
    }

    fn not_needed(&self, _image: &ImageName) {
        self.spared.fetch_add(1, Ordering::Relaxed);
    }
}

struct Scene {
    root: Arc<TempDir>,
    runner: LocalRunner,
    hub: FakeHub,
    images: Arc<GatedImages>,
}

impl Scene {
    /// A runner with one slot.
    fn new(images: GatedImages) -> Self {
        Self::preparing_for(PATIENCE, images)
    }

    /// The same, for jobs that have so long to prepare.
    fn preparing_for(time: Duration, images: GatedImages) -> Self {
        Self::at(Arc::new(TempDir::new().unwrap()), time, images)
    }

    fn at(root: Arc<TempDir>, time: Duration, images: GatedImages) -> Self {
        let images = Arc::new(images);
        let home = (OsString::from("HOME"), OsString::from("/root"));
        let host = HostView::current([home]).unwrap();
        let trees = TreeStore::open(root.path().join("trees")).unwrap();
        let oci: Arc<GatedImages> = Arc::clone(&images);
        let hub = FakeHub::default();
        let sandboxes = FakeSandboxes::default().with("hello", |_| exited(0));
        let runner = LocalRunner::start(RunnerConfig {
            runner: RunnerId("here".to_owned()),
            capacity: Capacity::slots(NonZeroU32::MIN),
            prepare_timeout: Some(time),
            report_waits: vec![Duration::from_millis(1); 4],
            logs: root.path().join("logs"),
            scratch: Some(root.path().join("sandboxes")),
            hub: Arc::new(hub.clone()),
            sandboxes: Arc::new(sandboxes),
            images: Arc::new(LocalImages::new(host, trees).with_oci(oci)),
        });
        Self {
            root,
            runner,
            hub,
            images,
        }
    }

    /// What a job's record says of its progress.
    fn progress(&self, number: u128) -> Vec<Event> {
        let mut events = self.hub.events(job_id(number));
        events.retain(|event| matches!(event, Event::Progress { .. }));
        events
    }

    async fn enqueue(&self, number: u128, image: Image) -> JobHandle {
        let spec = JobSpec {
            image,
            ..JobSpec::new("hello", [])
        };
        let enqueued = self.runner.enqueue(Job {
            execution: ExecutionId::for_test(number),
            attempt: Attempt(1),
            spec: Arc::new(spec),
            live: None,
            stdin: None,
        });
        enqueued.await.unwrap()
    }

    /// Many jobs that need one image, which all of them wait for.
    async fn enqueue_all(&self) -> Vec<JobHandle> {
        let image = Image::Oci {
            reference: "example:1".to_owned(),
            digest: Some(OciDigest::from_bytes([7; 32])),
            platform: None,
        };
        let mut handles = Vec::new();
        for number in 1..=JOBS {
            handles.push(self.enqueue(number, image.clone()).await);
        }
        for number in 1..=JOBS {
            let waits = async {
                while !self.kinds(number).contains(&"status") {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(PATIENCE, waits).await.unwrap();
        }
        handles
    }

    fn kinds(&self, number: u128) -> Vec<&'static str> {
        self.hub.kinds(job_id(number))
    }
}

fn job_id(number: u128) -> JobId {
    JobId {
        execution: ExecutionId::for_test(number),
        attempt: Attempt(1),
    }
}

async fn ended(mut handle: JobHandle) -> Ended {
    timeout(PATIENCE, handle.ended()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_hundred_jobs_fetch_and_unpack_their_image_once_and_hold_no_slot_meanwhile() {
    let scene = Scene::new(GatedImages::default());
    let waiting = scene.enqueue_all().await;
    // The only slot is free for whoever needs no image.
    let other = scene.enqueue(JOBS + 1, Image::None).await;
    assert_eq!(ended(other).await.event.kind(), "completed");
    scene.images.open();
    for handle in waiting {
        assert_eq!(ended(handle).await.event.kind(), "completed");
    }
    let counts = [&scene.images.fetches, &scene.images.unpacks];
    assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [1, 1]);
    let told = [Event::Progress {
        step: None,
        current: 1 << 20,
        total: Some(3 << 20),
        message: Some(WAITS.to_owned()),
    }];
    for number in [1, JOBS] {
        assert_eq!(scene.progress(number), told, "{number}");
    }
    assert_eq!(scene.progress(JOBS + 1), [], "it does not wait for it");
}

#[tokio::test]
async fn a_job_whose_time_is_over_says_what_it_waited_for() {
    let time = Duration::from_millis(300);
    let scene = Scene::preparing_for(time, GatedImages::default());
    for handle in scene.enqueue_all().await {
        let event = ended(handle).await.event;
        let Event::TimedOut { reason, .. } = &event else {
            panic!("{event:?}");
        };
        let waited = format!("before its layers were ready: {WAITS} (1 MiB of 3 MiB)");
        assert!(reason.message.ends_with(&waited), "{reason}");
    }
    scene.images.open();
}

#[tokio::test]
async fn an_image_that_is_unpacked_is_not_fetched() {
    let scene = Scene::new(GatedImages::default());
    let counts = |scene: &Scene| {
        let counts = [&scene.images.fetches, &scene.images.spared];
        counts.map(|count| count.load(Ordering::Relaxed))
    };
    scene.images.open();
    for handle in scene.enqueue_all().await {
        assert_eq!(ended(handle).await.event.kind(), "completed");
    }
    assert_eq!(counts(&scene), [1, 0]);
    // Another process, later.
    let root = Arc::clone(&scene.root);
    drop(scene);
    let scene = Scene::at(root, PATIENCE, GatedImages::default());
    for handle in scene.enqueue_all().await {
        assert_eq!(ended(handle).await.event.kind(), "completed");
    }
    assert_eq!(counts(&scene), [0, 1]);
}

#[tokio::test]
async fn an_image_that_cannot_be_had_fails_each_of_a_hundred_jobs_once() {
    let failure = "the registry has no such manifest";
    let scene = Scene::new(GatedImages {
        failure: Some(failure),
        ..GatedImages::default()
    });
    let waiting = scene.enqueue_all().await;
    scene.images.open();
    for handle in waiting {
        let event = ended(handle).await.event;
        let Event::Failed { reason, .. } = &event else {
            panic!("{event:?}");
        };
        assert!(reason.message.contains(failure), "{reason}");
        assert_eq!(reason.hint.as_deref(), Some("look at the registry"));
    }
    assert_eq!(scene.images.fetches.load(Ordering::Relaxed), 1);
}
