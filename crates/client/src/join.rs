//! Functions that wait for several futures at once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

/// Completes all futures. Polls them in order at first, so that their commands are sent in order.
pub(crate) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut pending = false;
        for (future, output) in all.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(ready) => *output = Some(ready),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    all.into_iter().filter_map(|(_, output)| output).collect()
}

/// Returns the first success, otherwise the last failure; `None` if there are no futures. Begins the next future as
/// soon as one has failed or `pause` has passed, so that a future that hangs does not hold up the others.
pub(crate) async fn first_ok<F, T, E>(futures: Vec<F>, pause: Duration) -> Option<Result<T, E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut others = futures.into_iter().peekable();
    let mut begun: Vec<Pin<Box<F>>> = Vec::new();
    let mut failed = None;
    loop {
        begun.extend(others.next().map(Box::pin));
        if begun.is_empty() {
            return failed;
        }
        let next = any(&mut begun);
        let ended = if others.peek().is_some() { timeout(pause, next).await.ok() } else { Some(next.await) };
        match ended {
            Some(Ok(value)) => return Some(Ok(value)),
            Some(error) => failed = Some(error),
            None => {}
        }
    }
}

/// Returns the output of the first future that completes, and removes it.
async fn any<F: Future>(futures: &mut Vec<Pin<Box<F>>>) -> F::Output {
    poll_fn(|context| {
        for at in 0..futures.len() {
            if let Some(Poll::Ready(output)) = futures.get_mut(at).map(|future| future.as_mut().poll(context)) {
                drop(futures.swap_remove(at));
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test that panics has failed, which is what it is for")]
mod tests {
    use std::future::pending;
    use std::time::{Duration, Instant};

    use super::first_ok;

    #[tokio::test]
    async fn a_future_that_hangs_or_fails_does_not_hold_up_the_next() {
        let began = Instant::now();
        let futures = (0..4).map(|number| async move {
            match number {
                0 => pending().await,
                1 | 2 => Err(number),
                _ => Ok(number),
            }
        });
        assert_eq!(first_ok(futures.collect(), Duration::from_millis(20)).await, Some(Ok(3)));
        assert!(began.elapsed() < Duration::from_secs(5));
        let failures = (0..3).map(|number| async move { Err::<(), _>(number) });
        assert_eq!(first_ok(failures.collect(), Duration::from_secs(60)).await, Some(Err(2)));
        assert_eq!(first_ok(Vec::<std::future::Ready<Result<(), ()>>>::new(), Duration::ZERO).await, None);
    }
}
