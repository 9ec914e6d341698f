//! Why a target is missed, in a sentence, from the profile of ours and of the peer.

use crate::figures::{Figures, part};
use crate::page::number;
use crate::targets::{Bound, Profile, Verdict};

/// None: there is no profile.
pub fn sentence(figures: &Figures, verdict: &Verdict) -> Option<String> {
    let of = |system| Profile::of(figures, system, part(verdict.target.figure));
    let (ours, theirs) = (of(verdict.ours)?, of(verdict.peer)?);
    Some(match verdict.target.bound {
        Bound::AtMost(_) => in_turn(&ours, &theirs, verdict.peer.label),
        Bound::AtLeast(_) => side_by_side(&ours, &theirs, verdict.peer.label),
    })
}

/// One works after the other: what their times add up to.
fn in_turn(ours: &Profile, theirs: &Profile, peer: &str) -> String {
    let (shares, others) = (shares(ours), shares(theirs));
    let percent = |time: f64| format!("{:.0} %", time / ours.time * 100.0);
    let [_, _, (_, code), _] = shares;
    let mut text = format!("Of {} µs", number(ours.time));
    if let Some((name, time)) = shares.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)) {
        text += &format!(", the most goes into {name} ({})", percent(time));
    }
    text += &format!("; the code of the servers with the module takes {} µs ({}).", number(code), percent(code));
    let longer = ours.time - theirs.time;
    if longer <= 0.0 {
        return text + &format!(" This is {} µs less than with {peer}.", number(-longer));
    }
    text += &format!(" This is {} µs more than with {peer}", number(longer));
    let differences = shares.into_iter().zip(others).map(|((name, time), (_, other))| (name, time - other));
    if let Some((name, more)) = differences.max_by(|one, other| one.1.total_cmp(&other.1)) {
        text += &format!("; the largest part of the difference is {name}: {} µs more", number(more));
    }
    text + "."
}

/// Splits the time from one to the next into shares.
fn shares(profile: &Profile) -> [(&'static str, f64); 4] {
    let Profile { time, clients, clients_kernel, servers, servers_kernel } = profile;
    [
        ("the kernel, for sockets and processes of both sides", clients_kernel + servers_kernel),
        ("the code of the clients", clients - clients_kernel),
        ("the code of the servers", servers - servers_kernel),
        ("waiting, for a disk, another server or a wake-up", (time - clients - servers).max(0.0)),
    ]
}

/// Both work at the same time: the busier core sets the pace.
fn side_by_side(ours: &Profile, theirs: &Profile, peer: &str) -> String {
    let cores = |profile: &Profile| {
        [("clients'", profile.clients, profile.clients_kernel), ("servers'", profile.servers, profile.servers_kernel)]
    };
    let [clients, servers] = cores(ours);
    let (name, cpu, kernel) = if clients.1 > servers.1 { clients } else { servers };
    let other = cores(theirs).into_iter().find(|core| core.0 == name).map_or(f64::NAN, |core| core.1);
    format!(
        "The {name} core is the busier one, {:.0} % of the time: a pair takes {} µs of it, {} µs of them in the kernel. \
         With {peer}, it takes {} µs.",
        cpu / ours.time * 100.0,
        number(cpu),
        number(kernel),
        number(other),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Profile =
        Profile { time: 300.0, clients: 100.0, clients_kernel: 60.0, servers: 120.0, servers_kernel: 70.0 };

    #[test]
    fn a_longer_time_is_explained_by_what_grew_most() {
        let theirs = Profile { time: 200.0, clients: 60.0, clients_kernel: 50.0, servers: 110.0, servers_kernel: 60.0 };
        assert_eq!(
            in_turn(&OURS, &theirs, "etcd"),
            "Of 300 µs, the most goes into the kernel, for sockets and processes of both sides (43 %); the code of the \
             servers with the module takes 50.0 µs (17 %). This is 100 µs more than with etcd; the largest part of the \
             difference is waiting, for a disk, another server or a wake-up: 50.0 µs more."
        );
    }

    #[test]
    fn a_shorter_time_is_not_called_a_longer_one() {
        let theirs = Profile { time: 400.0, ..OURS };
        let text = in_turn(&OURS, &theirs, "etcd");
        assert!(text.ends_with("This is 100 µs less than with etcd."), "{text}");
    }

    #[test]
    fn the_busier_core_sets_the_pace_of_many_clients() {
        let theirs = Profile { servers: 90.0, ..OURS };
        let text = side_by_side(&OURS, &theirs, "etcd");
        assert!(
            text.starts_with("The servers' core is the busier one, 40 % of the time: a pair takes 120 µs"),
            "{text}"
        );
        assert!(text.ends_with("With etcd, it takes 90.0 µs."), "{text}");
    }
}
