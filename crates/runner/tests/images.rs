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
    Capacity, Ended, Job, JobHandle, LocalImages, LocalRunner, OciImages, RunnerConfig,
};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);
const JOBS: u128 = 100;

/// Images that come when the test opens the door.
#[derive(Debug, Default)]
struct GatedImages {
    is_open: Mutex<bool>,
    opened: Condvar,
    fetches: AtomicU32,
    unpacks: AtomicU32,
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
        unpack: &mut dyn FnMut(ImageLayers) -> Result<PathBuf, Cause>,
    ) -> Result<PathBuf, Cause> {
        self.fetches.fetch_add(1, Ordering::Relaxed);
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
}

struct Scene {
    _root: TempDir,
    runner: LocalRunner,
    images: Arc<GatedImages>,
}

impl Scene {
    /// A runner with one slot.
    fn new(images: GatedImages) -> Self {
        let root = TempDir::new().unwrap();
        let images = Arc::new(images);
        let home = (OsString::from("HOME"), OsString::from("/root"));
        let host = HostView::current([home]).unwrap();
        let trees = TreeStore::open(root.path().join("trees")).unwrap();
        let oci: Arc<GatedImages> = Arc::clone(&images);
        let sandboxes = FakeSandboxes::default().with("hello", |_| exited(0));
        let runner = LocalRunner::start(RunnerConfig {
            runner: RunnerId("here".to_owned()),
            capacity: Capacity::slots(NonZeroU32::MIN),
            prepare_timeout: Some(PATIENCE),
            report_waits: vec![Duration::from_millis(1); 4],
            logs: root.path().join("logs"),
            scratch: Some(root.path().join("sandboxes")),
            hub: Arc::new(FakeHub::default()),
            sandboxes: Arc::new(sandboxes),
            images: Arc::new(LocalImages::new(host, trees).with_oci(oci)),
        });
        Self {
            _root: root,
            runner,
            images,
        }
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
        handles
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
