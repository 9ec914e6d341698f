package dlock;

import java.util.List;

/**
 * A command was not answered, and perhaps not sent. It may be sent again. This exception does not leave the package.
 */
final class Unanswered extends RuntimeException {
    private static final long serialVersionUID = 1;

    Unanswered(String message, Throwable cause) {
        super(message, cause);
    }

    /**
     * Returns whether the server writes nothing at present, and so renews nothing. The hold is still there until its
     * lease ends.
     */
    static boolean writesNothing(Throwable failure) {
        return failure instanceof ServerException
                && List.of("NOREPLICAS", "MISCONF", "BUSY").contains(((ServerException) failure).code());
    }

    /**
     * Returns whether the command may have been executed: it was not answered, its wait was ended, or an agent has not
     * heard of a majority. The agent's error has the code of a server that is loading, and another text.
     */
    static boolean mayBeExecuted(Throwable failure) {
        if (!(failure instanceof ServerException)) {
            return failure instanceof Unanswered;
        }
        String code = ((ServerException) failure).code();
        return code.equals("UNBLOCKED")
                || code.equals("LOADING") && !failure.getMessage().matches("LOADING \\S+ is loading .*");
    }

    /**
     * Returns whether the command may be sent again: it was not answered, or refused for the moment or by this server.
     */
    static boolean mayRepeat(Throwable failure) {
        return failure instanceof ServerException
                ? ((ServerException) failure).isForNow()
                : failure instanceof Unanswered;
    }
}
