package dlock;

import java.time.Duration;
import java.util.List;

/**
 * Is told about every request and every hold of a client: {@link DLockClient.Builder#listener}. For meters and logs.
 *
 * <p>Its methods are called on the threads of the client, before the program has the result, so they return at once. An
 * exception goes to the uncaught exception handler of the thread. Entering a lock again is neither a request nor a hold.
 */
public interface LockListener {
    /** The outcome of a request. */
    enum Outcome {
        /** The program holds the lock. */
        GRANTED,
        /** A server has answered, and did not grant it in time. */
        REFUSED,
        /** No server has answered, or one has answered with an error. The program gets an exception. */
        FAILED,
        /** The program did not wait any longer: an interrupt, a canceled future, or the end of the client. */
        CANCELED
    }

    /** A lock, several locks or permits are requested. Exactly one {@link #answered} follows. */
    default void requested(List<String> names) {}

    /** The request is over, this long after it was made. */
    default void answered(List<String> names, Outcome outcome, Duration waited) {}

    /** A hold begins. Exactly one {@link #released} or {@link #lost} follows. */
    default void held(List<String> names) {}

    /** The hold was released, this long after it began. The release may have had no answer. */
    default void released(List<String> names, Duration held) {}

    /** The hold was lost. The client learned of it this long after the hold began, perhaps only from the release. */
    default void lost(List<String> names, Duration held) {}
}
