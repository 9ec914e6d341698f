//! The handshake of each new connection: name and login.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use redis::ConnectionInfo;

/// User and password for a server: see [`ClientBuilder::credentials`](crate::ClientBuilder::credentials).
#[derive(Clone)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// Takes the password of this user; `None` is the default user.
    pub fn new(user: Option<&str>, password: impl Into<String>) -> Self {
        Self { user: user.map(str::to_owned), password: password.into() }
    }
}

/// Shows the user only.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Provided = Pin<Box<dyn Future<Output = Result<Credentials, BoxError>> + Send>>;

/// The name and the login of connections.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    pub client_name: Option<String>,
    provider: Option<Arc<dyn Fn() -> Provided + Send + Sync>>,
}

impl Setup {
    pub fn provide<F, R>(&mut self, provider: F)
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        self.provider = Some(Arc::new(move || Box::pin(provider())));
    }

    /// Returns the same server, with the user and the password of the provider.
    pub async fn log_in(&self, info: ConnectionInfo) -> Result<ConnectionInfo, BoxError> {
        let Some(provider) = &self.provider else { return Ok(info) };
        let Credentials { user, password } = provided(&**provider).await?;
        let mut settings = info.redis_settings().clone().set_password(password);
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        Ok(info.set_redis_settings(settings))
    }
}

/// Asks the provider. Makes a panic an error, which is retried: the task that asks may keep holds.
async fn provided(provider: &(dyn Fn() -> Provided + Send + Sync)) -> Result<Credentials, BoxError> {
    let panicked = |_| BoxError::from("the provider panicked");
    // A future that panicked is not polled again. The provider is called again, as if by another thread.
    let mut asked = catch_unwind(AssertUnwindSafe(provider)).map_err(panicked)?;
    poll_fn(|context| {
        catch_unwind(AssertUnwindSafe(|| asked.as_mut().poll(context)))
            .unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic))))
    })
    .await
}
