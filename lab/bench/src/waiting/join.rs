//! The server's cost of joining the queue, by the length of the queue.
//!
//! The same clients join the end of one long queue and then, each for itself, the end of a short one.

use super::ring::{Resource, Ring};
use crate::connection::Connection;
use crate::error::Error;
use crate::figures::{Sample, Sheet};
use crate::owners;
use crate::resp::{Expect, Reply, Request};
use crate::server::Programs;

pub fn measure(programs: &Programs, sheet: &mut Sheet) -> Result<(), Error> {
    let mut open = programs.open()?;
    let mut lines = Vec::new();
    lines.push(Ring::form(open.crowd(LONG + 1)?, Resource::Lock, &owners::key(0), 0, &mut open.control)?);
    for number in 1..=JOINING {
        let first_owner = LONG + 1 + number * (SHORT + 1);
        let crowd = open.crowd(SHORT + 1)?;
        lines.push(Ring::form(crowd, Resource::Lock, &owners::key(number), first_owner, &mut open.control)?);
    }
    let mut crowd: Vec<Joining> =
        (1..=JOINING).map(|number| Joining::new(number, open.server.connect()?)).collect::<Result<_, _>>()?;
    let (mut long, mut short) = (Vec::new(), Vec::new());
    for _ in 0..=ROUNDS {
        long.push(round(&mut crowd, |one| &one.long, &mut open.control)?);
        short.push(round(&mut crowd, |one| &one.short, &mut open.control)?);
    }
    // The first round was to warm up.
    let ratio = Sample::new(long.iter().zip(&short).skip(1).map(|(long, short)| long / short));
    let median = |times: Vec<f64>| Sample::new(times.into_iter().skip(1)).median();
    sheet.note("joining", &format!("behind {LONG} {:.2} us, behind {SHORT} {:.2} us", median(long), median(short)));
    sheet.judge(&format!("behind {LONG} / behind {SHORT}"), ratio.median(), AT_MOST, "");
    Ok(())
}

struct Joining {
    connection: Connection,
    long: Request,
    short: Request,
    /// Sent by another client.
    leave: Request,
}

impl Joining {
    fn new(number: usize, mut connection: Connection) -> Result<Self, Error> {
        let owner = format!("joining:{number}").into_bytes();
        let id = match connection.call(&[b"CLIENT", b"ID"])? {
            Reply::Integer(id) => id.to_string(),
            other => return Err(Error::Reply(format!("CLIENT ID got {other:?}"))),
        };
        let join = |line| {
            let key = owners::key(line);
            Request::new(&[b"DLOCK.ACQUIRE", &key, &owner, b"PX", b"3600000", b"BLOCK", b"0"], Expect::Nil)
        };
        let leave = Request::new(&[b"CLIENT", b"UNBLOCK", id.as_bytes()], Expect::Integer(1));
        Ok(Self { connection, long: join(0), short: join(number), leave })
    }
}

/// Returns the microseconds of server CPU per join. All clients leave the queue again.
fn round(crowd: &mut [Joining], line: fn(&Joining) -> &Request, control: &mut Connection) -> Result<f64, Error> {
    let before = control.cpu_seconds()?;
    for one in crowd.iter_mut() {
        let bytes = line(one).bytes.clone();
        one.connection.send(&bytes)?;
    }
    control.settle()?;
    let seconds = control.cpu_seconds()? - before;
    let leaves: Vec<&Request> = crowd.iter().map(|one| &one.leave).collect();
    control.exchange(&leaves)?;
    for one in crowd.iter_mut() {
        one.connection.receive_for(&one.long)?;
    }
    Ok(seconds * 1e6 / crowd.len() as f64)
}

const LONG: usize = 10_000;
const SHORT: usize = 10;
const JOINING: usize = 200;
const ROUNDS: usize = 41;
const AT_MOST: f64 = 1.5;
