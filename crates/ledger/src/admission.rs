//! How many executions may run at once, per hub and per queue. More wait, queued.

/// How many may run at once. An absent bound does not bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Concurrency {
    /// On the whole hub.
    pub per_hub: Option<u32>,
    /// Out of one queue.
    pub per_queue: Option<u32>,
}

/// How many have started and not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Running {
    /// On the whole hub.
    pub on_hub: u32,
    /// Out of the queue in question.
    pub in_queue: u32,
}

/// Whether one more may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Start,
    /// As many as may run out of its queue do run.
    QueueFull,
    /// As many as may run on the hub do run.
    HubFull,
}

/// Decides whether one more execution may start.
pub const fn admit(bounds: Concurrency, running: Running) -> Admission {
    match (bounds.per_hub, bounds.per_queue) {
        (Some(max), _) if running.on_hub >= max => Admission::HubFull,
        (_, Some(max)) if running.in_queue >= max => Admission::QueueFull,
        _ => Admission::Start,
    }
}
