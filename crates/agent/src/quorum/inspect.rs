//! `DLOCK.INFO`, `PING` and `EXISTS`. `DLOCK.INFO` shows this agent's holds from the agent's table, and the holds of
//! other programs if a majority of the servers has them.

use std::collections::HashSet;
use std::time::Duration;

use dlock_core::args;
use dlock_core::engine::Detail;
use dlock_core::{Mode, Token};

use super::Quorum;
use super::hold::Hold;
use super::members::{Seen, SeenHold, held, queue};
use super::sessions::mode_name;
use crate::quorum::hold::AnchorId;
use crate::resp::{Reply, Request};
use crate::stats::Stats;

/// A hold as `DLOCK.INFO` shows it. Times are in ms.
struct Shown {
    owner: Vec<u8>,
    mode: Mode,
    token: u64,
    ttl: u64,
    session: Reply,
    held: u64,
}

impl Quorum {
    pub(super) async fn info(&self, request: &Request) -> Reply {
        let key = request.word(1).unwrap_or_default();
        let detail = match args::Info::parse(request.after(2)) {
            Ok(args::Info(detail)) => detail,
            Err(what) => return Reply::error(what.text(&request.name())),
        };
        let seen = self.members.look(key).await;
        // The holds are taken after the answers, so that a hold that ended meanwhile is not shown.
        let own = self.table.all(key);
        let is_ours_alone = own.iter().any(|hold| hold.mode == Mode::Exclusive);
        let mut seen = match seen {
            Ok(seen) => seen,
            // No majority answers. The hold is certain without one, but the waiters are not known.
            Err(_) if is_ours_alone => Vec::<Seen>::new(),
            Err(why) => {
                Stats::count(&self.table.stats.outages);
                return Reply::error(why);
            }
        };
        let others = held(&seen, self.members.majority()).into_iter();
        let others =
            others.filter(|seen| !is_ours_alone && !own.iter().any(|hold| hold.drawn.as_bytes() == seen.owner));
        let mut holds: Vec<_> = others.map(Shown::from).chain(own.iter().map(|hold| Shown::from(&**hold))).collect();
        holds.sort_by_key(|hold| hold.token);
        let (waiters, queue) = queue(&mut seen);
        if holds.is_empty() && waiters == 0 { Reply::Nil } else { answer(detail, holds, waiters, queue) }
    }

    /// Returns the error that answers `PING`; `None` if a majority of the servers answers.
    pub async fn ping(&self) -> Option<Reply> {
        let why = self.members.ping().await.err()?;
        Stats::count(&self.table.stats.outages);
        Some(Reply::error(why))
    }

    /// Answers `EXISTS`: how many of the locks a majority has as held. Clients send it to see whether anything answers.
    pub async fn exists(&self, request: &Request) -> Reply {
        let mut count = 0;
        for key in request.after(1) {
            match self.members.look(key).await {
                Ok(seen) => count += i64::from(!held(&seen, self.members.majority()).is_empty()),
                Err(why) => {
                    Stats::count(&self.table.stats.outages);
                    return Reply::error(why);
                }
            }
        }
        Reply::Integer(count)
    }
}

/// Makes the reply of `DLOCK.INFO`. Over a quorum, each hold has one entry, so there are as many entries as holds.
fn answer(detail: Detail, mut holds: Vec<Shown>, waiters: u64, mut queue: Vec<Reply>) -> Reply {
    let is_shared = |hold: &Shown| hold.mode == Mode::Shared;
    let mode = match (holds.iter().any(is_shared), holds.iter().all(is_shared)) {
        _ if holds.is_empty() => "free",
        (true, true) => "shared",
        (true, false) => "both",
        (false, _) => "exclusive",
    };
    // An owner may have both modes, which are two holds.
    let owners = holds.iter().map(|hold| &hold.owner).collect::<HashSet<_>>().len();
    let mut fields = vec![
        ("mode", Reply::bulk(mode)),
        ("holders", Reply::number(owners)),
        ("count", Reply::number(holds.len())),
        ("token", Reply::perhaps(holds.iter().map(|hold| hold.token).max())),
        ("ttl", Reply::number(holds.iter().map(|hold| hold.ttl).max().unwrap_or(0))),
        ("waiters", Reply::number(waiters)),
    ];
    match detail {
        Detail::Summary => {}
        Detail::OfOwner(owner) => {
            holds.retain(|hold| hold.owner == *owner.text());
            fields.push(("holds", Reply::Array(holds.into_iter().map(Reply::from).collect())));
        }
        Detail::Full(count) => {
            holds.truncate(count);
            queue.truncate(count);
            fields.push(("holds", Reply::Array(holds.into_iter().map(Reply::from).collect())));
            fields.push(("queue", Reply::Array(queue)));
        }
    }
    Reply::fields(fields)
}

impl From<SeenHold> for Shown {
    fn from(SeenHold { owner, mode, token, ttl, held }: SeenHold) -> Self {
        Self { owner, mode, token, ttl, session: Reply::Nil, held }
    }
}

impl From<&Hold> for Shown {
    fn from(hold: &Hold) -> Self {
        let session = match hold.anchor().map(|anchor| anchor.id.clone()) {
            Some(AnchorId::Connection(number)) => Reply::number(number),
            Some(AnchorId::Named(id)) => Reply::bulk(id.as_bytes()),
            None => Reply::Nil,
        };
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (owner, token) = (hold.owner.text().to_vec(), Token::get(hold.token));
        Self { owner, mode: hold.mode, token, ttl: ms(hold.remaining()), session, held: ms(hold.granted.elapsed()) }
    }
}

impl From<Shown> for Reply {
    fn from(hold: Shown) -> Self {
        Reply::fields(vec![
            ("owner", Reply::Bulk(hold.owner)),
            ("mode", Reply::bulk(mode_name(hold.mode))),
            ("count", Reply::Integer(1)),
            ("token", Reply::number(hold.token)),
            ("ttl", Reply::number(hold.ttl)),
            ("session", hold.session),
            ("held", Reply::number(hold.held)),
            // A quorum has no caps and no slots.
            ("cap", Reply::Nil),
            ("slot", Reply::Nil),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_with_both_modes_counts_once_as_a_holder() {
        let hold = |owner: &str, mode, token| Shown {
            owner: owner.into(),
            mode,
            token,
            ttl: 900,
            session: Reply::Nil,
            held: 100,
        };
        let holds = vec![hold("a", Mode::Shared, 1), hold("a", Mode::Exclusive, 2), hold("b", Mode::Shared, 3)];
        let Reply::Map(fields) = answer(Detail::Summary, holds, 0, Vec::new()) else { panic!("INFO is a map") };
        let field = |name: &str| fields.iter().find(|(field, _)| *field == Reply::bulk(name)).map(|(_, value)| value);
        assert_eq!(field("mode"), Some(&Reply::bulk("both")));
        assert_eq!(field("holders"), Some(&Reply::Integer(2)));
        assert_eq!(field("count"), Some(&Reply::Integer(3)));
    }
}
