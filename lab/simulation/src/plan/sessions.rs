//! Draws named sessions, the misfortunes of their clients, caps, and numbers of permits.

use std::num::NonZeroU32;

use dlock_core::Want;
use dlock_testkit::histories::{How, Lease};
use dlock_testkit::random::Random;

use super::{CLIENTS, Command, Event, Plan, SILENCE_US, What};

/// Some requests of the plan ask for a named session, a cap or a number; and clients hang, are cut off, die and close
/// sessions.
pub(super) fn add(plan: &mut Plan, random: &mut Random) {
    let has_misfortunes = !random.one_in(4);
    for Event { what, .. } in &mut plan.events {
        match what {
            What::Send { command: Command::Enter { how, .. }, .. } => ask_for_more(how, random),
            What::Send { command: Command::Renew { lease, binds, names_session, .. }, .. } if random.one_in(2) => {
                (*binds, *names_session) = (true, true);
                *lease = long(*lease, random);
            }
            _ => {}
        }
    }
    if has_misfortunes {
        let events = std::mem::take(&mut plan.events);
        plan.events = events.into_iter().flat_map(|event| [Some(event), misfortune(random)]).flatten().collect();
    }
}

fn ask_for_more(how: &mut How, random: &mut Random) {
    if random.one_in(2) {
        (how.binds, how.named) = (true, Some(0));
        how.lease = long(how.lease, random);
    }
    if random.one_in(5) {
        let lease = match how.lease {
            Lease::For(ms) => ms,
            // A cap below the lease is refused, and so is one below 300 ms in a session.
            Lease::Own | Lease::Until(_) if how.binds => 300,
            Lease::Own | Lease::Until(_) => 1,
        };
        how.cap = Some(random.within(lease..lease + 900));
    }
    if let Want::Permits { limit, permits: NonZeroU32::MIN } = how.want {
        how.want = if random.one_in(4) { how.want } else { Want::Slot { limit } };
    }
}

/// A lease that a session may have.
fn long(lease: Lease, random: &mut Random) -> Lease {
    match lease {
        Lease::For(..300) => Lease::For(random.within(300..900)),
        lease => lease,
    }
}

/// Returns a misfortune for about one event in ten.
fn misfortune(random: &mut Random) -> Option<Event> {
    let client = random.below(CLIENTS as u64) as usize;
    let for_us = random.within(SILENCE_US);
    let what = match random.below(90) {
        0..=2 => What::Hang { client, for_us },
        3..=5 => What::CutOff { client, for_us },
        6 => What::Die { client },
        7 => What::CloseSession { client },
        8 => What::Meddle { client, with: random.below(CLIENTS as u64) as usize },
        _ => return None,
    };
    Some(Event { after_us: random.within(10..20_000), what })
}
