//! Instructions of one operation of a contender.

use super::Target;
use crate::callgrind::{self, Count};
use crate::contenders::Contender;
use crate::error::Error;
use crate::figures::Sample;
use crate::follower::Follower;
use crate::server::{Mode, Server, Setup};

/// All that the server executes for it, and what of that is code of the module.
pub fn instructions(target: &Target, contender: &Contender, mode: Mode) -> Result<[f64; 2], Error> {
    let [few, many] = contender.operations();
    let once = || {
        let of_few = count(target, contender, mode, few)?;
        let of_many = count(target, contender, mode, many)?;
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
fn count(target: &Target, contender: &Contender, mode: Mode, operations: usize) -> Result<Count, Error> {
    let dir = crate::server::run_dir()?;
    let setup = Setup { wrapper: callgrind::wrapper(&dir), ..target.setup(contender.runs_on, mode) };
    let mut server = Server::start(&setup, &dir)?;
    match serve(&server, contender, mode, operations) {
        Ok(()) => {}
        Err(_) if server.exited()?.is_some() => return Err(server.failure("the server died")),
        Err(error) => return Err(error),
    }
    server.stop()?;
    callgrind::instructions(&dir, setup.module)
}

fn serve(server: &Server, contender: &Contender, mode: Mode, operations: usize) -> Result<(), Error> {
    // Before there is anything in the snapshot, and gone before the server stops.
    let _follower = match mode {
        Mode::Replica => Some(Follower::attach(server)?),
        Mode::NoPersistence | Mode::Aof => None,
    };
    let _background = contender.background.gather(server)?;
    let mut connection = server.connect()?;
    let load = (contender.prepare)(&mut connection, 0..contender.keys())?;
    load.run(&mut connection, operations)
}
