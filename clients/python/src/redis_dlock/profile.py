"""The settings of connections that this package opens: the address, TLS, login, database and name that the user's
client would give to a new connection now."""

from __future__ import annotations

from typing import Any

from redis.exceptions import LockError


class Source:
    """Makes connections as a pool does, with some settings changed, and lends none. A client whose one connection has
    selected another database than the pool's needs it."""

    def __init__(self, pool: Any, changes: dict[str, Any]) -> None:
        self.connection_class = pool.connection_class
        self._pool, self._changes = pool, changes

    @property
    def connection_kwargs(self) -> dict[str, Any]:
        """The present settings of the pool, with the changes."""
        return {**self._pool.connection_kwargs, **self._changes}


def source_of(pool: Any, told: Any) -> Any:
    """Returns what makes connections like the one connection of a client: the pool itself if its connections are in the
    same database, otherwise a `Source`. `told`: the reply to `CLIENT INFO` on that connection. Raises `LockError` if
    the connection has another user than the pool's settings, since the password of that user is not known."""
    words = (word.partition("=") for word in str(_text(told)).split())
    state = {name: value for name, _, value in words}
    known = pool.connection_kwargs
    user, mine = state.get("user"), known.get("username") or "default"
    if user is not None and user != mine and known.get("credential_provider") is None:
        raise LockError(
            f"the client's connection is that of user {user!r}, and a new one would be that of {mine!r}: "
            "give the login to the client when it is made"
        )
    database = int(state.get("db", known.get("db") or 0))
    return pool if database == int(known.get("db") or 0) else Source(pool, {"db": database})


def unknown(error: Exception) -> LockError:
    """Returns the error for a client with a single connection whose user may not run `CLIENT INFO`."""
    return LockError(f"the database of a client with a single connection is not known: {error} (it needs CLIENT INFO)")


def _text(word: Any) -> Any:
    return word.decode() if isinstance(word, bytes) else word


def own_settings(source: Any, retry: Any, within: float) -> dict[str, Any]:
    """Returns the settings for a connection outside of the pool. They are those of the pool, except for `retry`, and
    that neither connecting nor a step of the handshake takes longer than `within` seconds."""
    settings = dict(source.connection_kwargs)
    settings["retry"] = retry
    settings.pop("retry_on_error", None)
    settings.pop("retry_on_timeout", None)
    # A health check would send a PING in the middle of an exchange, and wait for the reply beyond the exchange's limit.
    settings["health_check_interval"] = 0
    told = settings.get("socket_timeout")
    settings["socket_timeout"] = min(told or within, within)
    # Connections through a Unix socket have a path, and no timeout for connecting.
    if "path" not in settings:
        told = settings.get("socket_connect_timeout") or told
        settings["socket_connect_timeout"] = min(told or within, within)
    return settings
