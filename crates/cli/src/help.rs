//! Texts of the help pages: examples at their beginning, exit codes at their end.

/// The template of a help page that begins with examples.
pub const EXAMPLES_FIRST: &str = "\
{about-with-newline}
{before-help}{usage-heading} {usage}

{all-args}{after-help}";

pub const DLOCK_EXAMPLES: &str = "\
Examples:
  dlock run backup -- /usr/local/bin/backup --full    # one at a time, on all machines together
  dlock run --once 1d report -- make report           # in the crontab of each machine: one of them runs it
  dlock acquire deploy:web --lease 1h                 # across the steps of a pipeline
  dlock info backup                                   # who holds it, and who waits
  dlock top";

pub const DLOCK: &str = "\
The server (-s URL, or DLOCK_URL) needs the dlock module. dlock COMMAND --help has more examples, and the exit codes.";

pub const RUN_EXAMPLES: &str = "\
Examples:
  dlock run backup -- /usr/local/bin/backup --full
  dlock run --no-wait -E 0 report -- make report      # cron: skip it if the last one is still running
  dlock run --once 1d --quiet report -- make report   # cron on several machines: one of them runs it
  dlock run --wait 10m --lease 1m deploy:web -- ./deploy.sh
  dlock run --max-time 1h import -- ./import          # one that hangs does not keep its lock
  dlock run --limit 4 render -- ./render page.svg     # at most four at a time
  dlock run --limit 4 --slot \"gpu:$(hostname)\" -- sh -c 'CUDA_VISIBLE_DEVICES=$DLOCK_SLOT exec ./train'
  dlock run -k account:1 -k account:2 -- ./transfer   # both locks or none
  dlock run db:migrate -- sh -c 'migrate --fence \"$DLOCK_TOKEN\"'
  dlock run -s redis://a -s redis://b -s redis://c --longest-lease 1m report -- make report";

pub const RUN: &str = "\
Times: 500ms, 30s, 5m, 2h, 1d; without a unit seconds.

Exit code: that of the command (128 and the number of the signal that killed it), or
    1  the lock was not acquired (0 with --once, another code with -E)
   64  the command line is invalid
   69  no server answers (quorum: no majority), it returns an error, or too few replicas have the lock
   71  the system does not tell how the command ended
   75  the lock was lost while the command ran, which was ended; or --max-time has ended both
  126  the command cannot be started
  127  the command does not exist";

pub const ACQUIRE_EXAMPLES: &str = "\
Examples:
  dlock acquire maintenance --lease 2h --label \"alice: new disks\"
  lock=$(dlock acquire deploy:web --lease 1h --wait 10m --env) || exit; eval \"$lock\"
  dlock acquire deploy:web --lease 1h --env > deploy.lock   # in another shell: . ./deploy.lock
  dlock acquire deploy:web --lease 1h --env=file >> \"$GITHUB_ENV\"";

pub const ACQUIRE: &str = "\
dlock renew and dlock release take the owner from DLOCK_OWNER, and refuse a lock of another owner. A command that runs
under a lock for as long as it takes needs none of this: dlock run.

Exit code: 0; 1 the lock was not acquired (another code with -E), 64 the command line is invalid, 69 no server answers or
it returns an error, 74 the output could not be written, and the lock was released.";

pub const RENEW_EXAMPLES: &str = "\
Examples:
  dlock renew deploy:web --lease 1h      # in the same environment as dlock acquire --env";

pub const RENEW: &str = "\
Exit code: 0; 1 that owner does not hold it, 64 the command line is invalid, 69 no server answers (it may be held or
not), or it returns an error.";

pub const RELEASE_EXAMPLES: &str = "\
Examples:
  dlock release deploy:web               # in the same environment as dlock acquire --env
  dlock release deploy:web ci-7:8a19685554eee661";

pub const RELEASE: &str = "\
The server does not log it (dlock.log-hold apart). dlock break takes a lock from somebody else, and leaves a trace.

Exit code: 0 it was released, 1 that owner did not hold it, 64 the command line is invalid, 69 no server answers or it
returns an error.";

pub const INFO_EXAMPLES: &str = "\
Examples:
  dlock info backup
  dlock info backup --json | jq '.holds[0].owner'";

pub const INFO: &str = "\
Exit code: 0 it is held, 1 it is free, 64 the command line is invalid, 69 no server answers or it returns an error.";

pub const LS_EXAMPLES: &str = "\
Examples:
  dlock ls 'deploy:*'";

pub const LS: &str = "\
Goes through all keys of the server (SCAN). If some nodes of a cluster do not answer, prints the locks of the others.

Exit code: 0; 64 the command line is invalid, 69 a server did not answer.";

pub const WATCH_EXAMPLES: &str = "\
Examples:
  dlock watch leader
  dlock watch leader | jq -c '[.state, .holders[0].owner]'";

pub const WATCH: &str = "\
Runs until Ctrl-C, or until nobody reads its output.

Exit code: 0; 64 the command line is invalid, 69 no server answers at the start.";

pub const LOG_EXAMPLES: &str = "\
Examples:
  dlock log --event lapse,deadlock
  dlock log --follow";

pub const LOG: &str = "\
Several servers (-s URL -s URL) are read one by one, not as a quorum.

Exit code: 0; 64 the command line is invalid, 69 a server did not answer.";

pub const GRAPH_EXAMPLES: &str = "\
Examples:
  dlock graph
  dlock graph --format dot | dot -Tsvg > waits.svg
  dlock graph -s redis://a -s redis://b 'order:*'";

pub const GRAPH: &str = "\
Goes through all keys of the servers (SCAN). Several servers (-s URL -s URL) are read one by one: an owner that holds a
lock on one and waits on another may be part of a deadlock that neither of them sees.

Exit code: 0; 64 the command line is invalid, 69 a server did not answer.";

pub const METRICS_EXAMPLES: &str = "\
Examples:
  dlock metrics --listen 127.0.0.1:9122";

pub const METRICS: &str = "\
Reads INFO dlock each time it is asked. If anybody waits, it also goes through all keys of the server (SCAN) for the most
contended locks; --locks 0 leaves that out. Several servers (-s URL -s URL) are read one by one.

Exit code: 0, even if a server does not answer (dlock_up is 0); 64 the command line is invalid, 69 it cannot listen there.";

pub const TOP_EXAMPLES: &str = "\
Examples:
  dlock top
  dlock top 'deploy:*' --interval 5s";

pub const TOP: &str = "\
Goes through all keys of the server (SCAN) each time.

Exit code: 0; 64 the command line is invalid, or this is no terminal; 69 no server answers at the start.";

pub const BREAK_EXAMPLES: &str = "\
Examples:
  dlock break deploy:web
  dlock break deploy:web --yes --json";

pub const BREAK: &str = "\
Every user who may release this lock (DLOCK.RELEASE) may break it. The server logs who did (dlock log --event break).

Exit code: 0 it was taken or was free, 1 it was left alone, 64 the command line is invalid, 69 no server answers or it
returns an error.";

pub const FAILOVER_EXAMPLES: &str = "\
Examples:
  dlock failover -s redis-sentinel://a,b,c/main --dry-run
  dlock failover -s redis-sentinel://a,b,c/main
  dlock failover -s redis://a --to b:6379
  dlock failover -s redis://node-4:7000      # a replica of a cluster takes over";

pub const FAILOVER: &str = "\
Ctrl-C undoes what was done, until a replica is being promoted. Then it is too late.

Exit code: 0 the replica is the primary, 1 the old primary stays (128 and the number of the signal if one ended it),
64 the command line is invalid, 69 a server did not answer; if it is not certain which server is the primary, the
message says so.";

pub const UNINSTALL_EXAMPLES: &str = "\
Examples:
  dlock uninstall --check -s redis://10.0.0.1
  dlock uninstall -s redis://10.0.0.1";

pub const UNINSTALL: &str = "\
Works on one server: with replicas, on the primary first, and then on each replica. Deletes its locks, and writes an AOF
that a server without the module can load. Then prints what is left to do on the machine: the files to edit while the
server is down. Before this, stop the programs that take locks.

Exit code: 0 its files do not need the module; 1 they still do (with --check, as long as the server has the module); 64
the command line is invalid, 69 the server does not answer or refuses.";

pub const AGENT_EXAMPLES: &str = "\
Examples:
  dlock agent --listen unix:/run/dlock.sock -s redis://a -s redis://b -s redis://c --longest-lease 60s
  dlock agent --listen 127.0.0.1:6390 -s redis-sentinel://a,b,c/main";

pub const AGENT: &str = "\
Runs until TERM or Ctrl-C. Writes what it lost to standard error.

Exit code: 0; 64 the command line is invalid, 69 it cannot listen there.";

pub const SERVE_EXAMPLES: &str = "\
Examples:
  dlock serve
  dlock serve --port 0 --print-port --test-clock
  dlock serve --listen unix:/run/dlock/dlock.sock --socket-mode 660";

pub const SERVE: &str = "\
Memory only: the server loses its locks when it ends. Three of them are a quorum, which goes on when one ends.
Runs until TERM or Ctrl-C.

Exit code: 0; 64 the command line is invalid, 69 it cannot listen there.";

pub const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  dlock completions bash > /etc/bash_completion.d/dlock";

pub const MAN_EXAMPLES: &str = "\
Examples:
  dlock man | man -l -
  dlock man /usr/local/share/man/man1";

pub const PRINTED: &str = "\
Exit code: 0; 64 the command line is invalid, 74 it cannot be written.";
