//! Bytes that one operation of a contender sends to a replica.

use crate::contenders::Contender;
use crate::error::Error;
use crate::follower::Follower;
use crate::mode::Mode;
use crate::server::{Clock, Programs, Server};

pub fn bytes(programs: &Programs, contender: &Contender) -> Result<f64, Error> {
    let server = programs.start(contender.runs_on, Mode::Replica, Clock::Still, Vec::new())?;
    let mut connection = server.connect()?;
    let _follower = Follower::attach(&server)?;
    let load = (contender.prepare)(&mut connection, 0..contender.keys())?;
    load.run(&mut connection, contender.keys())?;
    let offset = |server: &Server| server.connect()?.info_number("replication", "master_repl_offset");
    let before = offset(&server)?;
    load.run(&mut connection, OPERATIONS)?;
    Ok((offset(&server)? - before) / OPERATIONS as f64)
}

const OPERATIONS: usize = 6_400;
