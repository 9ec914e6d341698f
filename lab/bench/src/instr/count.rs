//! Instructions of one operation of a contender, and what it sends to a replica.

use crate::callgrind::{self, Count};
use crate::contenders::Contender;
use crate::error::Error;
use crate::figures::Sample;
use crate::follower::Follower;
use crate::mode::Mode;
use crate::server::{Clock, Programs, RunsOn, Server};

/// Returns all that the server executes for one operation, and what of that is the module's own code.
pub fn instructions(programs: &Programs, contender: &Contender, mode: Mode) -> Result<[f64; 2], Error> {
    let [few, many] = contender.operations();
    let once = || {
        let of_few = count(programs, contender, mode, few)?;
        let of_many = count(programs, contender, mode, many)?;
        of_many
            .beyond(of_few, many - few)
            .ok_or_else(|| Error::Callgrind(format!("{many} operations cost no more than {few}")))
    };
    // On a busy machine, the timers of the shorter run may cost more than the operations of the longer one.
    let settled = || once().or_else(|_| once()).or_else(|_| once());
    let counts = (0..contender.counts(mode)).map(|_| settled()).collect::<Result<Vec<_>, Error>>()?;
    let median = |part: fn(&[f64; 2]) -> f64| Sample::new(counts.iter().map(part)).median();
    Ok([median(|[all, _]| *all), median(|[_, own]| *own)])
}

/// Counts what one server process executes from start to end.
fn count(programs: &Programs, contender: &Contender, mode: Mode, operations: usize) -> Result<Count, Error> {
    let dir = tempfile::tempdir().map_err(Error::io("creating a folder"))?;
    let server = programs.start(contender.runs_on, mode, Clock::Still, callgrind::wrapper(&dir))?;
    match serve(&server, contender, mode, operations) {
        Ok(()) => {}
        Err(_) if server.connect().is_err() => return Err(server.failure("the server died")),
        Err(error) => return Err(error),
    }
    server.stop();
    let module = (contender.runs_on == RunsOn::Module).then(|| programs.module());
    callgrind::instructions(&dir, module.as_deref())
}

fn serve(server: &Server, contender: &Contender, mode: Mode, operations: usize) -> Result<(), Error> {
    // Attached while the snapshot is still empty, and gone before the server stops.
    let _follower = match mode {
        Mode::Replica => Some(Follower::attach(server)?),
        Mode::NoPersistence | Mode::Aof => None,
    };
    let _background = contender.background.gather(server)?;
    let mut connection = server.connect()?;
    let load = (contender.prepare)(&mut connection, 0..contender.keys())?;
    load.run(&mut connection, operations)
}

/// Bytes that one operation sends to a replica.
pub fn replicated(programs: &Programs, contender: &Contender) -> Result<f64, Error> {
    let server = programs.start(contender.runs_on, Mode::Replica, Clock::Still, Vec::new())?;
    let mut connection = server.connect()?;
    let _follower = Follower::attach(&server)?;
    let load = (contender.prepare)(&mut connection, 0..contender.keys())?;
    load.run(&mut connection, contender.keys())?;
    let offset = |server: &Server| server.connect()?.info_number("replication", "master_repl_offset");
    let before = offset(&server)?;
    load.run(&mut connection, OPERATIONS_REPLICATED)?;
    Ok((offset(&server)? - before) / OPERATIONS_REPLICATED as f64)
}

const OPERATIONS_REPLICATED: usize = 6_400;
