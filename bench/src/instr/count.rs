//! Instructions of one operation of a contender.

use super::{LOCKS, Target};
use crate::callgrind;
use crate::contenders::Contender;
use crate::error::Error;
use crate::follower::Follower;
use crate::run_dir::RunDir;
use crate::server::{Mode, Server, Setup};

pub fn instructions(target: &Target, contender: &Contender, mode: Mode) -> Result<f64, Error> {
    let [few, many] = contender.operations();
    let of_few = count(target, contender, mode, few)?;
    let of_many = count(target, contender, mode, many)?;
    match of_many.checked_sub(of_few) {
        Some(difference) if difference > 0 => Ok(difference as f64 / (many - few) as f64),
        Some(_) | None => Err(Error::Callgrind(format!("{many} operations cost no more than {few}"))),
    }
}

/// What one server process executed from start to end.
fn count(target: &Target, contender: &Contender, mode: Mode, operations: usize) -> Result<u64, Error> {
    let dir = RunDir::create()?;
    let setup = Setup { wrapper: callgrind::wrapper(&dir), ..target.setup(contender.runs_on, mode) };
    let mut server = Server::start(&setup, &dir)?;
    match serve(&server, contender, mode, operations) {
        Ok(()) => {}
        Err(_) if server.exited()?.is_some() => return Err(server.failure("the server died")),
        Err(error) => return Err(error),
    }
    server.stop()?;
    callgrind::instructions(&dir)
}

fn serve(server: &Server, contender: &Contender, mode: Mode, operations: usize) -> Result<(), Error> {
    let mut connection = server.connect()?;
    // Before there is anything in the snapshot, and gone before the server stops.
    let _follower = match mode {
        Mode::Replica => Some(Follower::attach(server)?),
        Mode::NoPersistence | Mode::Aof => None,
    };
    let load = (contender.prepare)(&mut connection, 0..LOCKS)?;
    load.run(&mut connection, operations)
}
