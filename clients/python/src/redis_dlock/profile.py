"""The state that the user's client would give to a new connection now: address, TLS, login, database, name. Every
connection that this package opens has it."""

from __future__ import annotations

from typing import Any

from redis.exceptions import LockError


class Source:
    """Makes connections as a pool does, but lends none: for a client whose one connection has another database than its
    pool would give it."""

    def __init__(self, pool: Any, changes: dict[str, Any]) -> None:
        self.connection_class = pool.connection_class
        self._pool, self._changes = pool, changes

    @property
    def connection_kwargs(self) -> dict[str, Any]:
        """The settings of the pool now, with the changes."""
        return {**self._pool.connection_kwargs, **self._changes}


def source_of(pool: Any, told: Any) -> Any:
    """Returns what makes connections like the client's one connection, whose state is the reply to `CLIENT INFO`: the
    pool itself if it makes such ones. Raises `LockError` for a login whose password is not known."""
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
    """Returns the error for a client that may not ask for its own state."""
    return LockError(f"the database of a client with a single connection is not known: {error} (it needs CLIENT INFO)")


def _text(word: Any) -> Any:
    return word.decode() if isinstance(word, bytes) else word


def own_settings(source: Any, retry: Any, within: float) -> dict[str, Any]:
    """Returns the settings for a connection outside of the pool: those of the pool, but it does not retry by itself,
    and neither connecting nor a step of the handshake takes longer than this many seconds."""
    settings = dict(source.connection_kwargs)
    settings["retry"] = retry
    settings.pop("retry_on_error", None)
    settings.pop("retry_on_timeout", None)
    # The check would ask in the middle of an exchange, without regard to the limit of the exchange.
    settings["health_check_interval"] = 0
    told = settings.get("socket_timeout")
    settings["socket_timeout"] = min(told or within, within)
    if "path" not in settings:
        told = settings.get("socket_connect_timeout") or told
        settings["socket_connect_timeout"] = min(told or within, within)
    return settings
