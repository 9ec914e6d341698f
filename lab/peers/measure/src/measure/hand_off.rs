//! A lock that many want: how long from the release to the next grant, and in which order they get it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Round, microseconds, rank};
use crate::clients::Client;
use crate::processes::Cost;
use crate::result::{Result, failed};

#[derive(Default)]
struct Seen {
    released: Cell<Option<Instant>>,
    took: RefCell<Vec<f64>>,
    /// The waiters in the order of their first grant, each by the place in which it had come.
    order: RefCell<Vec<usize>>,
}

pub async fn run(round: &mut Round, waiters: usize) -> Result<()> {
    let lock = Rc::new(format!("hand-off-{waiters}"));
    let seen = Rc::new(Seen::default());
    let (stop, stopped) = watch::channel(false);
    let mut clients = round.clients(waiters + 1).await?;
    let Some(mut first) = clients.pop() else { return failed("no client") };
    let held = first.acquire(&lock).await?;
    // The set ends its tasks when it is dropped.
    let mut tasks = JoinSet::new();
    let joined = async {
        for (place, client) in clients.into_iter().enumerate() {
            let (lock, seen, stopped) = (lock.clone(), seen.clone(), stopped.clone());
            tasks.spawn_local(wait_in_turn(client, place, lock, seen, stopped));
            sleep(if waiters > 100 { Duration::from_millis(2) } else { Duration::from_millis(6) }).await;
        }
        sleep(Duration::from_millis(300)).await;
    };
    tokio::select! {
        () = joined => {}
        lost = first.keep(&lock, &held) => return lost,
    }
    let cost = Cost::begin(round.servers.usage());
    seen.released.set(Some(Instant::now()));
    first.release(&lock, held).await?;
    tasks.spawn_local(wait_in_turn(first, waiters, lock, seen.clone(), stopped));
    // The servers may still be busy with those who have come: the window begins with the first grant.
    let end = Instant::now() + PATIENCE;
    while seen.took.borrow().is_empty() && Instant::now() < end {
        sleep(Duration::from_millis(5)).await;
    }
    sleep(round.window).await;
    if waiters == 64 {
        // Redlock takes longer until each has had its turn.
        let end = Instant::now() + Duration::from_secs(3);
        while seen.order.borrow().len() < waiters && Instant::now() < end {
            sleep(Duration::from_millis(20)).await;
        }
    }
    let costs = cost.of_each(seen.took.borrow().len() as f64, || round.servers.usage());
    stop.send(true)?;
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended? {
            return failed(error);
        }
    }
    let mut took = seen.took.take();
    if took.is_empty() {
        return failed("nobody got the lock after its release");
    }
    took.sort_by(f64::total_cmp);
    round.note_if(format!("hand-off/{waiters}/median"), rank(&took, 0.5));
    round.note_if(format!("hand-off/{waiters}/p99"), rank(&took, 0.99));
    if waiters == 64 {
        let mut order = seen.order.take();
        order.retain(|place| *place < waiters);
        round.note("hand-off/64/order", out_of_order(&order));
        round.note_costs("hand-off/64", costs);
    }
    Ok(())
}

async fn wait_in_turn(
    mut client: Client,
    place: usize,
    lock: Rc<String>,
    seen: Rc<Seen>,
    mut stopped: watch::Receiver<bool>,
) -> std::result::Result<(), String> {
    let mut is_known = false;
    loop {
        let granted = tokio::select! {
            granted = client.acquire(&lock) => granted,
            _ = stopped.wait_for(|stop| *stop) => break,
        };
        let now = Instant::now();
        let held = granted.map_err(|error| error.to_string())?;
        if let Some(released) = seen.released.take() {
            seen.took.borrow_mut().push(microseconds(now - released));
        }
        if !is_known {
            is_known = true;
            seen.order.borrow_mut().push(place);
        }
        seen.released.set(Some(Instant::now()));
        client.release(&lock, held).await.map_err(|error| error.to_string())?;
        if *stopped.borrow() {
            break;
        }
    }
    client.close().await;
    Ok(())
}

/// How long the first grant may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the share of pairs of whom the later one came first: 0 in order, 0.5 by chance.
fn out_of_order(order: &[usize]) -> f64 {
    let mut swapped = 0;
    let mut pairs = 0;
    for (at, first) in order.iter().enumerate() {
        for second in order.iter().skip(at + 1) {
            pairs += 1;
            swapped += usize::from(second < first);
        }
    }
    swapped as f64 / f64::max(pairs as f64, 1.0)
}
