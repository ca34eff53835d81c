//! The examples below each help text. Each stands on a line of its own and can be pasted.

pub(super) const TOP: &str = "\
Examples:
  tidemill run -- cargo test             run the tests of the directory you stand in
  tidemill run --timeout 10m -- make     end it after ten minutes
  tidemill ps                            what ran, and what runs
  tidemill logs -f last                  follow the newest one from another terminal
  tidemill doctor                        what this machine can do

Exit status:
  The job's own; 128+n if signal n ended it; 124 time limit; 125 Tidemill could not run it;
  126 not executable; 127 not found; 130 cancelled; 2 wrong usage.

Environment:
  TIDEMILL_STATE        the state directory, unless --state-dir names one
  TIDEMILL_KEEP_FOR     how long an execution is kept after its end [default: 90d]
  TIDEMILL_KEEP_COUNT   how many executions are kept [default: 10000]
  TIDEMILL_KEEP_BYTES   how much room their records and logs may take [default: 20GiB]
  TIDEMILL_CACHE_SIZE   how much room unpacked layers may take, unless --cache-size says it
  TIDEMILL_LOG          what Tidemill itself does, on standard error, such as tidemill_runner=debug
  NO_COLOR              no colours";

pub(super) const RUN: &str = "\
Examples:
  tidemill run -- cargo test
  tidemill run --memory 512MiB --timeout 30s -- python3 script.py
  tidemill run --image dir:/srv/debian --no-workspace -- apt-get --version
  tidemill run --write -- cargo fmt                  let it change the real files
  tidemill run --net host --pass-env TOKEN -- ./deploy.sh
  tidemill run --file job.json

`tidemill run --help` explains each flag; `tidemill explain` shows what a job would see.";

pub(super) const RUN_LONG: &str = "\
Examples:
  tidemill run -- cargo test
  tidemill run --memory 512MiB --timeout 30s -- python3 script.py
  tidemill run --image dir:/srv/debian --no-workspace -- apt-get --version
  tidemill run --layer file:./app.toml=/etc/app.toml -- ./app
  tidemill run --write -- cargo fmt                  let it change the real files
  tidemill run --net host --pass-env TOKEN -- ./deploy.sh
  tidemill run --tty -- bash                         a shell in the sandbox
  tidemill run --file job.json --result-file result.json
  echo '{\"program\": \"true\"}' | tidemill run --file -

The job's output comes out as it is written, standard output and standard error apart. With
--format json, standard output has one event per line and the record as the last line instead.

The first Ctrl-C asks the job to end and gives it its grace; the second kills it.

Exit status:
  The job's own; 128+n if signal n ended it; 124 time limit; 125 Tidemill could not run it;
  126 not executable; 127 not found; 130 cancelled; 2 wrong usage.";

pub(super) const PS: &str = "\
Examples:
  tidemill ps
  tidemill ps --state running --state queued
  tidemill ps --label branch=main --limit 5
  tidemill ps --after 4f0c2a9d81e3       those before this one
  tidemill ps --format json

States: queued, paused, starting, running, cancelling, succeeded, failed, timed_out, cancelled,
interrupted.";

pub(super) const SHOW: &str = "\
Examples:
  tidemill show last
  tidemill show 4f0c2a9d81e3             the end of an id, as `ps` shows it
  tidemill show last --format json";

pub(super) const EVENTS: &str = "\
Examples:
  tidemill events last
  tidemill events -f last                follow it until it has ended
  tidemill events last --format json     one JSON object per line";

pub(super) const LOGS: &str = "\
Examples:
  tidemill logs last
  tidemill logs -f last                  follow it until it has ended
  tidemill logs --tail 50 last
  tidemill logs --stream stderr last
  tidemill logs --raw last > output.bin  the exact bytes

Without --raw the log is shown as text: bytes that are not UTF-8 become U+FFFD, very long lines are
folded, colours are kept on a terminal (unless NO_COLOR is set), and every other terminal escape is
left out. What Tidemill noted of the job follows on standard error, unless --raw, --stream or
--format json asks for less.";

pub(super) const CANCEL: &str = "\
Examples:
  tidemill cancel last
  tidemill cancel nightly                what was run with --name nightly
  tidemill cancel 4f0c2a9d81e3";

pub(super) const WAIT: &str = "\
Examples:
  tidemill wait last && echo it went well";

pub(super) const EXPLAIN: &str = "\
Examples:
  tidemill explain -- cargo test
  tidemill explain --image none --layer dir:./root -- /bin/app
  tidemill explain --format json --file job.json";

pub(super) const SCHEMA: &str = "\
Examples:
  tidemill schema > job.schema.json      what a job file may say
  tidemill schema record                 what `show --format json` and --result-file say
  tidemill schema event                  what `events --format json` says";

pub(super) const COMPLETIONS: &str = "\
Examples:
  source <(tidemill completions bash)
  tidemill completions zsh > ~/.zfunc/_tidemill
  tidemill completions fish > ~/.config/fish/completions/tidemill.fish";

pub(super) const MAN: &str = "\
Examples:
  tidemill man | man -l -
  tidemill man ~/.local/share/man/man1   one page for each command";

pub(super) const CACHE: &str = "\
Examples:
  tidemill cache du                      how much room it takes
  tidemill cache ls                      which trees there are, and which are in use
  tidemill cache prune --unused-for 7d   remove what nobody has used for a week
  tidemill cache verify                  read it all, and put aside what is damaged

By itself it takes up to 20 GiB, or a fifth of a smaller disk: --cache-size and TIDEMILL_CACHE_SIZE
say otherwise. When a layer is unpacked, the trees that were used least recently give way.";

pub(super) const CACHE_LS: &str = "\
Examples:
  tidemill cache ls
  tidemill cache ls --format json";

pub(super) const CACHE_DU: &str = "\
Examples:
  tidemill cache du
  tidemill cache du --format json";

pub(super) const CACHE_PRUNE: &str = "\
Examples:
  tidemill cache prune                   leftovers, damaged trees, blobs of images without a name
  tidemill cache prune --unused-for 7d
  tidemill cache prune --max 5GiB
  tidemill cache prune --all --dry-run

Needs no room on the disk. What was removed is unpacked again when a job asks for it.";

pub(super) const CACHE_VERIFY: &str = "\
Examples:
  tidemill cache verify
  tidemill cache verify --format json

What is damaged is built anew when a job asks for it.

Exit status:
  0 all is as it was built; 1 something is damaged; 125 something could not be checked.";

pub(super) const IMAGE: &str = "\
Examples:
  tidemill image pull debian:12
  tidemill image import app.tar
  tidemill image ls";

pub(super) const IMAGE_PULL: &str = "\
Examples:
  tidemill image pull debian:12
  tidemill image pull ghcr.io/me/app:1.4 --platform linux/arm64
  tidemill image pull localhost:5000/app
  tidemill image pull registry.lan/app --plain-http

What is here already is not fetched again, and what broke off is gone on with. Signs in as docker
does: `docker login`, or the file config.json in $DOCKER_CONFIG or ~/.docker.";

pub(super) const IMAGE_IMPORT: &str = "\
Examples:
  docker save app | tidemill image import -
  tidemill image import layout/ --name app:dev
  tidemill image import layout:1.4 --name app:old      one of several
  tidemill image import app.tar.gz
  tidemill image import /srv/debian --name debian:mine

The name that a source gives its image counts unless --name says another. A directory that is no
image layout is taken for a root file system.";

pub(super) const IMAGE_LS: &str = "\
Examples:
  tidemill image ls
  tidemill image ls --format json";

pub(super) const IMAGE_SHOW: &str = "\
Examples:
  tidemill image show debian:12
  tidemill image show 3f57d9401f8d --format json";

pub(super) const IMAGE_RM: &str = "\
Examples:
  tidemill image rm app:dev app:test
  tidemill image rm 3f57d9401f8d          with all its names

What other images need too stays, and so do jobs that run.";

pub(super) const IMAGE_TAG: &str = "\
Examples:
  tidemill image tag debian:12 base:stable";
