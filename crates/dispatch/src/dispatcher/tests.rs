//! Every sentence of the dispatcher's description as a script: messages in, effects out.

mod budget;
mod cancel;
mod failures;
mod layers;
mod order;
mod references;
mod schedules;
mod status;
mod stop;
mod timeout;
